"""A pytest plugin: what a numpy package's own tests call is compared with plain numpy.

    SUITE_OF=colour SUITE_PATH=installed SUITE_ROWS=rows.jsonl \
        python -P -m pytest -p tests.packages.beside_numpy tests

As `tests.packages.beside`, for functions of arrays and for methods. Copies are called three times,
the last time with arguments that were moved; results, arguments and objects afterwards, errors,
random numbers and warnings are compared. The gradient for random cotangents is compared with
finite differences, where three steps agree on one. `tests.packages.suites --numpy` makes such runs.
"""

from __future__ import annotations

import copy
import inspect
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import GradofError
from tests.packages.watching import OF, Watch, forget_our_tests, kind, mapped

CALLS = 3
_STEPS = (1e-5, 1e-6, 3e-7)
__name__ = "gradof.beside"  # what calls the package's code is none of the user's
Function = Callable[..., Any]


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (np.ndarray, np.generic, float)):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from _leaves(part)
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from _leaves(part)


def _is_real(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f"


def _rebuilt(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A copy with other numbers; TypeError where there are arrays of subclasses."""

    def leaf(value: Any) -> Any:
        if isinstance(value, np.ndarray) and type(value) is not np.ndarray:
            raise TypeError(f"a {type(value).__name__}")
        if isinstance(value, (np.ndarray, np.generic, float)):
            return change(value)
        plain = isinstance(value, (int, str, bytes, type(None), type)) or callable(value)
        return value if plain else copy.deepcopy(value)

    return mapped(tree, leaf)


def _as_it_is(leaf: Any) -> Any:
    return leaf.copy(order="K") if isinstance(leaf, np.ndarray) else leaf


def _moved(leaf: Any) -> Any:
    if isinstance(leaf, float) or _is_real(leaf):
        factor = 1 + 1e-3 if isinstance(leaf, float) else leaf.dtype.type(1 + 1e-3)
        return leaf * factor
    return _as_it_is(leaf)


class _Run:
    """What came of one call."""

    def __init__(self, function: Function, owner: Any, given: Any, number: int) -> None:
        self.result = self.error = None
        args, kwargs = _rebuilt(given, _moved if number == CALLS - 1 else _as_it_is)
        np.random.seed(number)
        random.seed(number)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                self.result = function(*args, **kwargs)
            except TimeoutError:
                raise
            except Exception as error:
                self.error = error
        names = {w.category.__name__ for w in told if "gradof" not in w.category.__module__}
        self.told = sorted(names - {"RuntimeWarning"})  # of numbers: compiled code gives none
        self.given, self.drawn = (args, kwargs), np.random.random()
        self.state = dict(vars(owner)) if hasattr(owner, "__dict__") else {}


def _array_differences(a: Any, b: Any, path: str) -> Iterator[str]:
    if type(a) is not type(b):
        yield f"{path} is a {type(b).__name__}, not a {type(a).__name__}"
    elif (a.dtype, a.shape) != (b.dtype, b.shape):
        yield f"{path} is {b.dtype}{b.shape}, not {a.dtype}{a.shape}"
    elif a.dtype.kind in "fc":
        eps = np.finfo(a.dtype).eps
        with np.errstate(all="ignore"):
            scale = np.nanmax(np.abs(np.where(np.isfinite(a), a, 0)), initial=0)
            near = np.isclose(a, b, rtol=eps * 1e6, atol=scale * eps * 1e3, equal_nan=True)
        if not near.all():
            yield f"{path} is {np.asarray(b)[~near].flat[0]}, not {np.asarray(a)[~near].flat[0]}"
    elif a.dtype.kind != "O" and not np.array_equal(a, b):
        yield f"{path} has other elements"


def _differences(a: Any, b: Any, path: str, depth: int = 6) -> Iterator[str]:
    if isinstance(a, (np.ndarray, np.generic)) or isinstance(b, (np.ndarray, np.generic)):
        yield from _array_differences(a, b, path)
    elif type(a) is not type(b):
        yield f"{path} is a {type(b).__name__}, not a {type(a).__name__}"
    elif isinstance(a, (float, complex)):
        if not np.isclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True):
            yield f"{path} is {b}, not {a}"
    elif isinstance(a, (int, str, bytes)):
        if a != b:
            yield f"{path} is {str(b)[:40]}, not {str(a)[:40]}"
    elif isinstance(a, (list, tuple, dict)):
        if len(a) != len(b):
            yield f"{path} has {len(b)} items, not {len(a)}"
            return
        keys = a if isinstance(a, dict) else range(len(a))
        for key in keys:
            yield from _differences(a[key], b[key], f"{path}.{key}", depth - 1)
    elif depth > 0 and hasattr(a, "__dict__") and type(a).__module__.partition(".")[0] in OF:
        yield from _differences(vars(a), vars(b), path, depth - 1)


def _of_runs(expected: _Run, found: _Run) -> Iterator[str]:
    mine, theirs = found.error, expected.error
    told = isinstance(mine, GradofError) and theirs is not None and isinstance(mine, type(theirs))
    if type(theirs) is not type(mine) and not told:
        yield f"error {mine!r} for {theirs!r}"[:500]
        return
    if expected.error is not None:
        if str(expected.error) != str(found.error) and not told:  # ours names the line, too
            yield f"text {str(found.error)[:150]!r} for {str(expected.error)[:150]!r}"
        return
    for name in ("result", "given", "state", "drawn", "told"):
        yield from _differences(getattr(expected, name), getattr(found, name), name)


def _floats(tree: Any) -> list[Any]:
    double = np.dtype(np.float64)  # Python's numbers, too
    return [x for x in _leaves(tree) if getattr(x, "dtype", double) == double and np.size(x)]


class _Slope:
    """The gradient of a call for random cotangents along a random direction, in two ways."""

    def __init__(self, thing: Function, given: Any) -> None:
        self.thing, self.given = thing, given
        start = [np.asarray(x) for x in _leaves(given) if self._varies(x)]
        rng = np.random.default_rng(7)  # off the ties of the tests' own numbers
        self.at = [_like(x, x * (1 + 1e-3 * rng.standard_normal(x.shape)) + 1e-9) for x in start]
        sizes = [np.maximum(np.abs(x), 1e-3) for x in self.at]
        self.along = [_like(x, s * rng.standard_normal(x.shape))
                      for x, s in zip(start, sizes, strict=True)]  # fmt: skip
        self.values = _floats(self._plain(self.at)) if self.at else []
        self.cotangents = [rng.standard_normal(np.shape(v)) for v in self.values]

    def _varies(self, leaf: Any) -> bool:
        return _is_real(leaf) and leaf.dtype == np.float64 and bool(leaf.size)

    def _placed(self, leaves: Any) -> Any:
        rest = iter(leaves)
        return _rebuilt(self.given, lambda x: next(rest) if self._varies(x) else _as_it_is(x))

    def _plain(self, leaves: Any) -> Any:
        args, kwargs = self._placed([x.copy() for x in leaves])
        np.random.seed(0)
        return copy.deepcopy(self.thing)(*args, **kwargs)

    def ours(self) -> float:
        """By our own gradient; GradofError where there is none."""
        function = copy.deepcopy(self.thing)

        def outputs(*leaves: Any) -> Any:
            args, kwargs = self._placed(leaves)
            return _floats(function(*args, **kwargs))

        np.random.seed(0)
        _, pull = gradof.vjp(outputs, *(x.copy() for x in self.at))
        pairs = zip(pull(list(self.cotangents)), self.along, strict=True)
        return sum(float(np.sum(np.asarray(g) * d)) for g, d in pairs if g is not None)

    def by_difference(self, step: float) -> float:
        """By a difference of two values."""
        high, low = (
            _floats(self._plain([x + h * d for x, d in zip(self.at, self.along, strict=True)]))
            for h in (step, -step)
        )
        parts = zip(high, low, self.cotangents, strict=True)
        return sum(float(np.sum((a - b) * c)) for a, b, c in parts) / (2 * step)


def _like(x: Any, y: Any) -> Any:
    """Symmetric where `x` is: functions of such matrices may read one half only."""
    square = x.ndim == 2 and x.shape[0] == x.shape[1] and np.array_equal(x, x.T)
    return (y + y.T) / 2 if square else y


def _of_gradient(thing: Function, given: Any) -> tuple[str, str]:
    """The status and reason of a call whose values are right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            slope = _Slope(thing, given)
            estimates = [slope.by_difference(h) for h in _STEPS] if slope.values else []
        except TimeoutError:
            raise
        except Exception as error:
            return "values", f"no differences: {error!r}"[:100]
        if not estimates:
            return "values", ""
        try:
            ours = slope.ours()
        except GradofError as error:
            return "refused", f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
    first, *others = estimates
    bound = 3e-3 * (abs(first) + 1e-6 * sum(float(np.sum(np.abs(v))) for v in slope.values) + 1e-8)
    if not all(abs(first - x) <= bound / 3 for x in others):
        return "equal", "differences disagree"
    if not abs(ours - first) <= bound:
        return "wrong", f"gradient {ours}, by differences {estimates}"
    return "equal", ""


def _owner(function: Any) -> Any:
    return getattr(function, "__self__", None)


def _compared(thing: Any, given: Any) -> dict[str, Any]:
    try:
        _rebuilt(given, _as_it_is)
        theirs, ours, third = (copy.deepcopy(thing) for _ in range(3))
    except Exception as error:
        return {"status": "not copied", "reason": repr(error)[:200]}
    compiled, errors = gradof.differentiate(ours), 0
    for number in range(CALLS):
        expected = _Run(theirs, _owner(theirs), given, number)
        found = _Run(compiled, _owner(ours), given, number)
        errors += expected.error is not None
        wrong = list(_of_runs(expected, found))
        if wrong:
            refused = isinstance(found.error, GradofError) and expected.error is None
            reason = "; ".join(f"call {number}: {text}" for text in wrong[:3])
            return {"status": "refused" if refused else "wrong", "reason": reason[:900]}
    if errors == CALLS:
        return {"status": "noeager", "reason": repr(expected.error)[:100]}
    status, reason = _of_gradient(third, given)
    return {"status": status, "reason": reason, "traces": compiled.cache_info().misses}


def _is_asked(args: Any, kwargs: Any) -> bool:
    return any(map(_is_real, _leaves((args, kwargs))))


_watch = Watch(_is_asked, _compared, lambda thing, given: kind(given))


def _of_methods(cls: type) -> None:
    """Watch the public methods of a class, each on its own object."""
    for name, method in list(vars(cls).items()):
        public = not name.startswith("_") or name == "__call__"
        if not public or not inspect.isfunction(method) or inspect.isgeneratorfunction(method):
            continue
        if not hasattr(method, "__wrapped__"):
            what = f"{cls.__module__}:{cls.__qualname__}.{name}"
            setattr(cls, name, _watch.of_calls(method, method.__get__, what))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """A package's tests may be called as ours."""
    forget_our_tests()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Watch methods of the package's classes, and functions where a test module has them."""
    modules = [m for name, m in list(sys.modules.items())
               if name.partition(".")[0] in OF and "test" not in name]  # fmt: skip
    classes = {c for m in modules for c in vars(m).values() if inspect.isclass(c)}
    for cls in classes:
        own = cls.__module__.partition(".")[0] in OF
        if own and not issubclass(cls, (np.ndarray, BaseException, type)):
            _of_methods(cls)
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        for name, value in list(vars(module).items()):
            setattr(module, name, _watch.watched(value))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Each test begins with the same random states, and ends in time."""
    np.random.seed(0)
    random.seed(0)
    with _watch.test(item.nodeid):
        return (yield)
