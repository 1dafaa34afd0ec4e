"""Functions that stand for those of a module or class while a trace runs, in every thread.

    stand_ins = StandIns(math, {"sqrt": traced_sqrt})
    with stand_ins.placed():          # traces may be within one another: the last one puts it back
        math.sqrt(n)                  # traced_sqrt(n)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from gradof.ir import forks


class StandIns:
    """By name, what stands for attributes of `owner`; see the module docstring."""

    def __init__(self, owner: Any, functions: Mapping[str, Any]) -> None:
        self._owner, self._functions = owner, functions
        # what a class has from the class below it is found there again
        self._own = {name: vars(owner)[name] for name in functions if name in vars(owner)}
        self._lock = forks.rlock()
        self._depth = 0

    @contextlib.contextmanager
    def placed(self) -> Iterator[None]:
        """Within it, they stand there."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                for name, function in self._functions.items():
                    setattr(self._owner, name, function)
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._put_back()

    def _put_back(self) -> None:
        for name in self._functions:
            if name in self._own:
                setattr(self._owner, name, self._own[name])
            else:
                delattr(self._owner, name)
