"""How long the backward of a result takes, told when it is over.

    when_backward_is_done(loss, inputs, told)       # told(seconds), at the end of loss.backward()
    clocked(fn, told)(x).backward()                 # told twice

It is timed from where the first cotangent reaches the result to where the last one reaches the
inputs that were computed before, or, where all inputs are leaves, to the end of the whole backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradof.codegen.machine.autotune import now
from gradof.tracer.core.pytree import flatten

Tensor = torch.Tensor


def clocked(fn: Callable[..., Any], told: Callable[[float], None]) -> Callable[..., Any]:
    """`fn`, of whose calls it is told how long they take, and then how long their backwards do."""

    def run(*args: Any, **kwargs: Any) -> Any:
        start = now()
        result = fn(*args, **kwargs)
        told(now() - start)
        leaves, _ = flatten((args, kwargs))
        when_backward_is_done(result, [x for x in leaves if isinstance(x, Tensor)], told)
        return result

    return run


def when_backward_is_done(
    result: Any, inputs: Sequence[Any], told: Callable[[float], None]
) -> bool:
    """Tell of the first backward through a result; False where there can be none."""
    leaves, _ = flatten(((result,), {}))
    found = [t.grad_fn for t in leaves if isinstance(t, Tensor)]
    ends = {node for node in found if node is not None}
    if not ends:
        return False
    clock = _Clock(told)
    for node in ends:
        node.register_prehook(clock.begins)
    before = {t.grad_fn for t in inputs if isinstance(t, Tensor) and t.grad_fn is not None}
    for node in before - ends:
        node.register_prehook(clock.reaches)
    return True


class _Clock:
    def __init__(self, told: Callable[[float], None]) -> None:
        self._told = told
        self._start: float | None = None
        self._last: float | None = None

    def begins(self, _: Any) -> None:
        """A cotangent has reached the result."""
        if self._start is None:
            self._start = now()
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._is_over)

    def reaches(self, _: Any) -> None:
        """A cotangent has reached what an input was computed by."""
        self._last = now()

    def _is_over(self) -> None:
        assert self._start is not None
        self._told((self._last or now()) - self._start)
