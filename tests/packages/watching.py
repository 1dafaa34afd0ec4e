"""What a package's own tests call, watched: each kind of call is compared once, before it is made.

    watch = Watch(asked, compared)          # of the package that SUITE_OF names
    test_module.norm = watch.watched(norm)  # compared(norm, (args, kwargs)) gives a row's fields

`beside` and `beside_numpy` say what is asked and how it is compared. One row each is written to
SUITE_ROWS. A kind of call is what is called and the types and shapes of its arguments.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

OF = frozenset(os.environ["SUITE_OF"].split(","))
SECONDS = 200  # for one test
_ROWS = os.environ["SUITE_ROWS"]
_HERE = __name__.partition(".")[0]
__name__ = "gradof.beside"  # what calls the package's code is none of the user's

Compared = Callable[[Any, Any], dict[str, Any]]


class _Inside(threading.local):
    depth, test = 0, ""


class Watch:
    """The calls of one run of tests that were seen, and what they are wrapped in."""

    def __init__(
        self, asked: Callable[[Any, Any], bool], compared: Compared,
        kind: Callable[[Any, Any], Any],
    ) -> None:  # fmt: skip
        self._asked, self._compared, self._kind = asked, compared, kind
        self._inside = _Inside()
        self._seen: set[int] = set()
        self._wrapped: dict[Any, Any] = {}

    def beside(self, name: str, thing: Any, args: Any, kwargs: Any) -> None:
        """Compare a call, if it is the first of its kind; random states stay as they were."""
        kind = hash((name, self._kind(thing, (args, kwargs))))
        if kind in self._seen:
            return
        self._seen.add(kind)
        states = np.random.get_state(), random.getstate()
        self._inside.depth += 1
        try:
            row = self._compared(thing, (args, kwargs))
        except TimeoutError:
            raise
        except Exception:
            row = {"status": "error", "reason": traceback.format_exc()[-600:]}
        finally:
            self._inside.depth -= 1
            np.random.set_state(states[0])
            random.setstate(states[1])
        with open(_ROWS, "a") as file:
            print(json.dumps({"name": name, "test": self._inside.test, **row}), file=file)

    def of_calls(self, original: Any, thing_of: Callable[[Any], Any] | None, name: str = "") -> Any:
        """What calls `original`, and compares the call; of a method `thing_of` gives the object.

        It is None where this object's calls are not compared.
        """

        @functools.wraps(original)
        def watch(*args: Any, **kwargs: Any) -> Any:
            inside = self._inside
            if not inside.depth:
                thing = original if thing_of is None else thing_of(args[0])
                given = args if thing_of is None else args[1:]
                if thing is not None and self._asked(given, kwargs):
                    what = name or f"{type(thing).__module__}:{type(thing).__name__}"
                    self.beside(what, thing, given, kwargs)
            inside.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                inside.depth -= 1

        return watch

    def watched(self, value: Any) -> Any:
        """A function of the package, watched; a module of it, whose functions are."""
        if is_wanted(value):
            if value not in self._wrapped:
                name = f"{value.__module__}:{value.__qualname__}"
                self._wrapped[value] = self.of_calls(value, None, name)
            return self._wrapped[value]
        if type(value) is ModuleType and value.__name__.partition(".")[0] in OF:
            return _Proxy(value, self)
        return value

    @contextmanager
    def test(self, name: str) -> Iterator[None]:
        """One test, which has to end in time."""

        def late(*_: Any) -> None:
            raise TimeoutError(f"{name} takes more than {SECONDS} s beside eager")

        self._inside.test = name
        signal.signal(signal.SIGALRM, late)
        signal.alarm(SECONDS)
        try:
            yield
        finally:
            signal.alarm(0)


def mapped(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of a nest of tuples, lists and dicts, with `leaf` of what is in it."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(part, leaf) for part in tree))
    if type(tree) in (list, tuple):
        return type(tree)(mapped(part, leaf) for part in tree)
    if type(tree) is dict:
        return {key: mapped(part, leaf) for key, part in tree.items()}
    return leaf(tree)


def kind(tree: Any) -> Any:
    """The types and shapes of arguments."""
    if hasattr(tree, "dtype") and hasattr(tree, "shape"):
        return str(tree.dtype), tuple(tree.shape)
    if isinstance(tree, (list, tuple)):
        return tuple(map(kind, tree))
    if isinstance(tree, dict):
        return tuple((str(key), kind(part)) for key, part in tree.items())
    plain = isinstance(tree, (int, float, str, type(None)))
    return repr(tree)[:60] if plain else type(tree).__name__


def is_wanted(value: Any) -> bool:
    """Whether a value is a public function of the package."""
    return (
        inspect.isfunction(value) and str(value.__module__).partition(".")[0] in OF
        and not value.__name__.startswith("_") and not hasattr(value, "__wrapped__")
        and "test" not in value.__module__ and not inspect.isgeneratorfunction(value)
    )  # fmt: skip


class _Proxy(ModuleType):
    """A module of the package, for its tests: its functions are watched."""

    def __init__(self, module: ModuleType, watch: Watch) -> None:
        object.__setattr__(self, "_module", (module, watch))

    def __getattribute__(self, name: str) -> Any:
        module, watch = object.__getattribute__(self, "_module")
        return watch.watched(getattr(module, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_module")[0], name, value)


def forget_our_tests() -> None:
    """Forget our own `tests`, which are imported by now: a package's may be called so, too.

    From then on the folders of SUITE_PATH are on the path of imports, and the one we are in.
    """
    for name in [m for m in sys.modules if m.partition(".")[0] == _HERE]:
        del sys.modules[name]
    sys.path[:0] = [*os.environ["SUITE_PATH"].split(os.pathsep), os.getcwd()]
