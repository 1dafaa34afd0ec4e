"""Random numbers of numpy's and Python's generators within a trace: drawn anew at every call.

    rs = np.random.RandomState(0)
    def loss(p): return np.mean((p + rs.randn(100)) ** 2)
        →  %z : f64[100] = python_draw[function='a random draw: randn#1', ...]()

The call is a node, which draws from the generator that the code knows, in the program's order: one
seed gives the numbers of plain numpy. Generators are compiled code, so what traced code sees in
their place is a `Drawn` (Note [Only names in the traced code]); the trace itself draws from a copy,
and leaves the generator as it was. What is not caught moves it, and that is refused
(`state/generators`). A clock is read in the same way.

A gradient goes through `normal`, `uniform` and `exponential` to their parameters, as standard
numbers are drawn and scaled, which is how numpy computes them.
"""

from __future__ import annotations

import copy
import functools
import random
import time
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, MethodType
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.number_trees import plain
from gradof.tracer.core.unseeded import NAMES, Unseeded
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.drawing import draw
from gradof.tracer.numpy.functions import as_array, whole
from gradof.tracer.numpy.names import STAND_INS
from gradof.tracer.numpy.numbers import as_scalar
from gradof.tracer.numpy.orders import ORDERS
from gradof.tracer.numpy.random_states import PUTS, TAKES, Bits, put, refused, take
from gradof.tracer.numpy.recorder import Recorder, contains_traced, real
from gradof.tracer.state.generators import GLOBAL, Clock
from gradof.tracer.state.source import user_loc
from gradof.tracer.state.unheard import quietly

Function = Callable[..., Any]
Wrap = Callable[[Function], Any]
KINDS = (np.random.Generator, np.random.RandomState, random.Random)
# Methods that are no draws, or change what they are given.
_REFUSED = frozenset({"bytes", "spawn", "randbytes"})
_NOT_DRAWN = _REFUSED | {"bit_generator"}
_PYTHON = frozenset({  # of Python's own generators: what gives numbers
    "betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
    "getstate", "lognormvariate", "normalvariate", "paretovariate", "randint", "random",
    "randrange", "sample", "seed", "setstate", "shuffle", "triangular", "uniform",
    "vonmisesvariate", "weibullvariate",
})  # fmt: skip


class Drawn:
    """A generator, whose draws are recorded by the thread that traces."""

    def __init__(self, generator: Any) -> None:
        self.__dict__["generator"] = generator

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind: type = type(self.__dict__["generator"])
        return kind

    def __getattr__(self, name: str) -> Any:
        generator, recorder = self.__dict__["generator"], active_recorder()
        if name == "bit_generator" and recorder is not None and not recorder.closed:
            return Bits(recorder, generator)
        if name in _REFUSED and recorder is not None and not recorder.closed:
            raise refused(recorder, f"{type(generator).__name__}.{name}")
        found = getattr(generator, name)
        return functools.partial(_called, generator, name) if _draws(generator, name) else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["generator"], name, value)

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(self.__dict__["generator"], memo)

    def __reduce__(self) -> Any:
        return self.__dict__["generator"].__reduce__()


def _draws(generator: Any, name: str) -> bool:
    if isinstance(generator, random.Random):
        return name in _PYTHON
    is_method = not name.startswith("_") and callable(getattr(type(generator), name, None))
    return is_method and name not in _NOT_DRAWN


_METHODS = (MethodType, BuiltinFunctionType)
_DRAWN: weakref.WeakValueDictionary[int, Drawn] = weakref.WeakValueDictionary()


def drawn_for(generator: Any) -> Drawn:
    """What traced code sees in the place of a generator; the same one for the same generator."""
    found = _DRAWN.get(id(generator))
    if found is None:
        found = _DRAWN[id(generator)] = Drawn(generator)
    return found


def stand_in(value: Any) -> tuple[Any, Any] | None:
    """A generator, or a method of one, and what traced code sees in its place."""
    kind = type(value)
    if kind is Drawn:
        return value.__dict__["generator"], value
    if kind in KINDS:
        return value, drawn_for(value)
    owner = getattr(value, "__self__", None) if kind in _METHODS else None
    if type(owner) in KINDS and _draws(owner, value.__name__):
        return value, functools.partial(_called, owner, value.__name__)
    return None


STAND_INS.append(stand_in)


# --- one draw -------------------------------------------------------------------------------------


def _called(generator: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    recorder = active_recorder()
    if recorder is None or recorder.closed:
        return getattr(generator, name)(*args, **kwargs)
    is_python = isinstance(generator, random.Random)
    if name in TAKES:
        return take(recorder, generator, name)
    if name in PUTS and len(args) == 1 and not kwargs:
        return put(recorder, generator, name, args[0])
    if name in ORDERS:
        return ORDERS[name](recorder, generator, *args, **kwargs)
    if name == "choice" and _is_of_objects(is_python, *args, **kwargs):
        return (_choice_of_python if is_python else _choice)(generator, *args, **kwargs)
    scaled = None if is_python else _SCALED.get(name)
    if scaled is not None:
        args = tuple(_scalar(recorder, a) for a in args)
        kwargs = {k: _scalar(recorder, v) for k, v in kwargs.items()}
        if any(type(a) is TracedArray for a in (*args, *kwargs.values())):
            given, named = real(args), {k: real(v) for k, v in kwargs.items()}
            getattr(quietly(copy.deepcopy, generator), name)(*given, **named)  # numpy's own checks
            return scaled(generator, *args, **kwargs)
    return draw(recorder, generator, name, plain(args), plain(kwargs))


def _is_of_objects(is_python: bool, *args: Any, **kwargs: Any) -> bool:
    """Whether `choice` is of what no graph draws: objects, texts, or traced numbers.

    Python's gives an item as it is, so that numbers of several types are objects there.
    """
    items = args[0] if args else kwargs.get("a", kwargs.get("seq"))
    if isinstance(items, (int, np.integer, TracedNumber, type(None))):
        return False
    if type(items) is range or contains_traced(items) or not len(items):
        return contains_traced(items)
    several = is_python and len({*map(type, items)}) > 1
    return several or np.asarray(items).dtype.kind not in "biufc"


def _choice(rng: Any, a: Any, size: Any = None, replace: bool = True, p: Any = None,
            axis: int = 0, **kwargs: Any) -> Any:  # fmt: skip
    """Items by drawn places: which object it is decides the trace."""
    items = as_array(a) if contains_traced(a) else np.asarray(a)
    at = _called(rng, "choice", items.shape[axis], size, replace, p, **kwargs)
    if not contains_traced(items):
        return items.take(whole(at), axis) if size is not None else items[int(at)]
    return np.take(items, at, axis)


def _choice_of_python(generator: Any, seq: Any) -> Any:
    return seq[_called(generator, "randrange", len(seq))]


def _scalar(recorder: Recorder, value: Any) -> Any:
    if type(value) is TracedNumber and isinstance(value.value, float):
        return as_scalar(recorder, value, np.float64)
    return plain(value)


def _size(size: Any, *parameters: Any) -> Any:
    return np.broadcast_shapes(*map(np.shape, parameters)) or None if size is None else size


def _normal(rng: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    z = _called(rng, "standard_normal", _size(size, loc, scale))
    return loc + scale * z


def _uniform(rng: Any, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
    name = "random" if isinstance(rng, np.random.Generator) else "random_sample"
    return low + (high - low) * _called(rng, name, _size(size, low, high))


def _exponential(rng: Any, scale: Any = 1.0, size: Any = None) -> Any:
    return scale * _called(rng, "standard_exponential", _size(size, scale))


_SCALED: dict[str, Function] = {
    "normal": _normal, "uniform": _uniform, "exponential": _exponential,
}  # fmt: skip


# --- the names of numpy.random, random and time ---------------------------------------------------


def _of_clock(original: Function) -> Function:
    """A clock's function: it is read at every call, in the program's order."""
    clock = Clock(original)

    @functools.wraps(original)
    def read() -> Any:
        recorder = active_recorder()
        if recorder is None or recorder.closed:
            return original()
        return draw(recorder, clock, "read")

    return read


CLOCKS: dict[str, Wrap] = dict.fromkeys(
    [f"{name}{ns}" for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
     for ns in ("", "_ns") if hasattr(time, name)], _of_clock,
)  # fmt: skip


def _of_global(name: str, generator: Any, original: Function) -> Function:
    return functools.wraps(original)(functools.partial(_called, generator, name))


def _unseeded(original: Function) -> Any:
    """A class of generators: one without a seed draws what no other call draws."""
    return Unseeded(original, _without_seed)


def _without_seed(made: Any) -> Any:
    if active_recorder() is None:
        return made
    if type(made) not in KINDS:
        raise TraceError(
            "random numbers of an unseeded generator would be baked into the trace",
            loc=user_loc(), hint="give it a seed, or make the generator outside",
        )
    return drawn_for(made)


def wraps_of(module: Any) -> dict[str, Wrap]:
    """By name, the wrappers of what draws in `numpy.random` or `random`."""
    found: dict[str, Wrap] = {}
    for name, value in vars(module).items():
        owner = next((g for g in GLOBAL if getattr(value, "__self__", None) is g), None)
        if owner is not None and _draws(owner, name):
            found[name] = functools.partial(_of_global, name, owner)
    if module is np.random:
        found["seed"] = functools.partial(_of_global, "seed", GLOBAL[0])
        found |= dict.fromkeys(NAMES, _unseeded)
    return found
