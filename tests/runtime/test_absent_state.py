"""State that is not there at the first call, and state in objects of C's: as in plain Python.

A counter that the function gives itself, its class, a module or a tensor with `getattr(..., 0) + 1`
has no value when the function is traced; the trace depends on that.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import hashlib
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import TraceError

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Callable[[], Program]] = {}
TORCH = {"parameter", "tensor"}  # that hold a tensor
REFUSED = {"defaults", "class_of_an_object", "hash", "context"}  # in numpy


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """A program, made anew for each run."""
    PROGRAMS[make.__name__] = make
    return make




@program
def function() -> Program:
    def fn(x: Any) -> Any:
        me.n = getattr(me, "n", 0) + 1
        return x.sum() * me.n

    me: Any = fn
    return fn


@program
def function_tried() -> Program:
    def fn(x: Any) -> Any:
        try:
            me.n += 1
        except AttributeError:
            me.n = 1
        return x.sum() * me.n

    me: Any = fn
    return fn


@program
def function_by_name() -> Program:
    def fn(x: Any) -> Any:
        setattr(me, "n", 2 if hasattr(me, "n") else 1)  # noqa: B010  # by name
        return x.sum() * me.n

    me: Any = fn
    return fn


@program
def function_deleted() -> Program:
    def fn(x: Any) -> Any:
        if hasattr(me, "n"):
            del me.n
            return x.sum() * 2
        me.n = 1
        return x.sum() * 3

    me: Any = fn
    return fn


@program
def helper() -> Program:
    def double(v: Any) -> Any:
        me.calls = getattr(me, "calls", 0) + 1
        return v * me.calls

    me: Any = double
    return lambda x: double(x.sum())


@program
def method() -> Program:
    class Counter:
        def go(self) -> int:
            me: Any = Counter.go
            me.n = getattr(me, "n", 0) + 1
            return int(me.n)

    return lambda x: x.sum() * Counter().go()


@program
def class_() -> Program:
    class Config:
        @classmethod
        def bump(cls) -> int:
            me: Any = cls
            me.n = getattr(cls, "n", 0) + 1
            return int(me.n)

    return lambda x: x.sum() * Config.bump()


@program
def metaclass() -> Program:
    class Meta(type):
        @property
        def count(cls) -> int:
            me: Any = cls
            me.n = getattr(cls, "n", 0) + 1
            return int(me.n)

    class Config(metaclass=Meta):
        pass

    return lambda x: x.sum() * Config.count


@program
def module() -> Program:
    settings: Any = types.ModuleType("settings")

    def fn(x: Any) -> Any:
        settings.n = getattr(settings, "n", 0) + 1
        return x.sum() * settings.n

    return fn


@program
def module_of_a_library() -> Program:
    vars(sys).pop("gradof_counts", None)

    def fn(x: Any) -> Any:
        place: Any = sys
        place.gradof_counts = getattr(sys, "gradof_counts", 0) + 1
        return x.sum() * place.gradof_counts

    return fn


@program
def global_() -> Program:
    globals().pop("_COUNTED", None)

    def fn(x: Any) -> Any:
        global _COUNTED
        try:
            _COUNTED += 1  # type: ignore[name-defined]
        except NameError:
            _COUNTED = 1  # type: ignore[name-defined]
        return x.sum() * _COUNTED  # type: ignore[name-defined]

    return fn


@program
def global_by_name() -> Program:
    globals().pop("_NAMED", None)

    def fn(x: Any) -> Any:
        globals()["_NAMED"] = globals().get("_NAMED", 0) + 1
        return x.sum() * globals()["_NAMED"]

    return fn


@program
def tensor() -> Program:
    w: Any = torch.ones(2)

    def fn(x: Any) -> Any:
        w.n = getattr(w, "n", 0) + 1
        return (x.sum() * w).sum() * w.n

    return fn


@program
def parameter() -> Program:
    w: Any = torch.nn.Parameter(torch.ones(2))

    def fn(x: Any) -> Any:
        w.steps = getattr(w, "steps", 0) + 1
        return (x.sum() * w).sum() * w.steps

    return fn


@program
def weak_set() -> Program:
    class Thing:
        pass

    kept: list[Any] = []
    things: weakref.WeakSet[Any] = weakref.WeakSet()

    def fn(x: Any) -> Any:
        kept.append(Thing())
        things.add(kept[-1])
        return x.sum() * len(things)

    return fn


@program
def weak_keys() -> Program:
    class Thing:
        pass

    key = Thing()
    counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def fn(x: Any) -> Any:
        counts[key] = counts.get(key, 0) + 1
        return x.sum() * counts[key]

    return fn


@program
def cached_with_a_list() -> Program:
    @functools.cache
    def double(n: int) -> int:
        return n * 2

    count = [0]

    def fn(x: Any) -> Any:
        count[0] += 1
        return x.sum() * double(count[0])

    return fn


@program
def number_of_ctypes() -> Program:
    count = ctypes.c_int(0)

    def fn(x: Any) -> Any:
        count.value += 1
        return x.sum() * count.value

    return fn


@program
def hash() -> Program:
    seen = hashlib.md5(usedforsecurity=False)

    def fn(x: Any) -> Any:
        seen.update(b"a")
        return x.sum() * seen.digest()[0]

    return fn


@program
def context() -> Program:
    var = contextvars.ContextVar("var", default=1)
    inside = contextvars.Context()

    def fn(x: Any) -> Any:
        inside.run(lambda: var.set(var.get() + 1))
        return x.sum() * inside[var]

    return fn


@program
def defaults() -> Program:
    def fn(x: Any, n: int = 1) -> Any:
        me.__defaults__ = (n + 1,)
        return x.sum() * n

    me: Any = fn
    return fn


@program
def class_of_an_object() -> Program:
    class First:
        scale = 2

    class Second:
        scale = 3

    obj: Any = First()

    def fn(x: Any) -> Any:
        y = x.sum() * obj.scale
        obj.__class__ = Second if type(obj) is First else First
        return y

    return fn


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_torch(name: str) -> None:
    runs = []
    for compiled in (False, True):
        fn, run = PROGRAMS[name](), []
        called = gradof.differentiate(fn) if compiled else fn
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some run as they are
            for k in range(5):
                x = torch.full((2, 3), 1.0 + k, requires_grad=True)
                y = called(x)
                (slope,) = torch.autograd.grad(y, x)
                run.append((y.item(), slope.tolist()))
        runs.append(run)
    assert runs[0] == runs[1]


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - TORCH - REFUSED))
def test_in_numpy(name: str) -> None:
    plain, called = PROGRAMS[name](), gradof.value_and_grad(PROGRAMS[name]())
    arrays = [np.full((2, 3), 1.0 + k) for k in range(5)]
    expected = [float(plain(x)) for x in arrays]
    if name in ("global_", "global_by_name", "module_of_a_library"):  # one place for both
        called = gradof.value_and_grad(PROGRAMS[name]())
    assert [float(called(x)[0]) for x in arrays] == expected


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_in_numpy(name: str) -> None:
    with pytest.raises(TraceError, match="is called: it would run once"):
        gradof.grad(PROGRAMS[name]())(np.ones(3))


def test_what_others_set_later() -> None:
    """A flag that is not there at first, and is set between calls."""

    def loss(x: Any) -> Any:
        return x.sum() * (2.0 if getattr(me, "doubled", False) else 1.0)

    me: Any = loss
    called = gradof.differentiate(loss)
    x = torch.ones(3, requires_grad=True)
    assert called(x).item() == 3.0
    me.doubled = True
    assert called(x).item() == 6.0
    del me.doubled
    assert called(x).item() == 3.0


def test_a_wrapper_with_a_signature_of_its_own() -> None:
    def given_scale(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapped(x: Any) -> Any:
            return fn(x, 3.0)

        return wrapped

    @given_scale
    def loss(x: Any, scale: float) -> Any:
        return (x * scale).sum()

    x = torch.ones(3, requires_grad=True)
    gradof.differentiate(loss, strict=True)(x).backward()
    assert x.grad is not None and x.grad.tolist() == [3.0] * 3
    assert gradof.grad(loss)(np.ones(3)).tolist() == [3.0] * 3
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        gradof.grad(loss)(np.ones(3), 2.0)
