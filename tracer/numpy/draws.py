"""Random numbers of numpy's and Python's generators within a trace: drawn anew at every call.

    rs = np.random.RandomState(0)
    def loss(p): return np.mean((p + rs.randn(100)) ** 2)
        →  %z : f64[100] = python_draw[function='a random draw: randn#1', ...]()

The call is a node, which draws from the generator that the code knows, in the program's order: one
seed gives the numbers of plain numpy. Generators are compiled code, so what traced code sees in
their place is a `Drawn` (Note [Only names in the traced code]); the trace itself draws from a copy,
and leaves the generator as it was. What is not caught moves it, and that is refused
(`state/generators`). A clock is read in the same way.

A gradient goes through those draws that are standard numbers, scaled (`scaled_draws`).
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
from gradof.tracer.numpy.scaled_draws import SCALED
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


class Seeded(Drawn):
    """A generator that the traced code seeds: what it draws is the same at every call."""

    def __getattr__(self, name: str) -> Any:
        generator = self.__dict__["generator"]
        found = getattr(generator, name)
        if name == "spawn":
            return lambda n: [Seeded(child) for child in found(n)]
        return functools.partial(_of_seed, generator, name) if _draws(generator, name) else found


def _of_seed(generator: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Constants; of traced parameters and items, what follows from constants."""
    recorder = active_recorder()
    if recorder is None or recorder.closed or not contains_traced((*args, *kwargs.values())):
        return getattr(generator, name)(*args, **kwargs)
    draw_constant = functools.partial(_of_seed, generator)
    items = args[0] if args else kwargs.get("a", kwargs.get("x"))
    if name in _OF_ITEMS and contains_traced(items):
        return _OF_ITEMS[name](draw_constant, *args, **kwargs)
    if name == "shuffle":  # in place
        in_place = _shuffle_by if type(items) is TracedArray else type(generator).shuffle
        return in_place(generator, *args, **kwargs)
    scaled = SCALED.get(name)
    if scaled is None:
        return getattr(generator, name)(*plain(args), **plain(kwargs))
    return _scaled(scaled, draw_constant, recorder, generator, name, args, kwargs)


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
    scaled = None if is_python else SCALED.get(name)
    if scaled is not None and contains_traced((*args, *kwargs.values())):
        drawn = functools.partial(_called, generator)
        return _scaled(scaled, drawn, recorder, generator, name, args, kwargs)
    return draw(recorder, generator, name, plain(args), plain(kwargs))


def _scaled(
    scaled: Function, drawn: Function, recorder: Recorder, generator: Any, name: str,
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """A draw whose parameters are traced, if not whole numbers and texts alone."""
    args = tuple(_scalar(recorder, a) for a in args)
    kwargs = {k: _scalar(recorder, v) for k, v in kwargs.items()}
    if not contains_traced((*args, *kwargs.values())):
        return drawn(name, *args, **kwargs)
    given, named = real(args), {k: real(v) for k, v in kwargs.items()}
    getattr(quietly(copy.deepcopy, generator), name)(*given, **named)  # numpy's own checks
    return scaled(drawn, generator, *args, **kwargs)


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
    return _choice_by(functools.partial(_called, rng), a, size, replace, p, axis, **kwargs)


def _choice_by(drawn: Function, a: Any, size: Any = None, replace: bool = True, p: Any = None,
               axis: int = 0, **kwargs: Any) -> Any:  # fmt: skip
    if isinstance(a, TracedNumber):
        return drawn("choice", whole(a), size, replace, p, **kwargs)
    items = as_array(a) if contains_traced(a) else np.asarray(a)
    at = drawn("choice", items.shape[axis], size, replace, p, **kwargs)
    if not contains_traced(items):
        return items.take(whole(at), axis) if size is not None else items[int(at)]
    return np.take(items, at, axis)


def _permuted_by(drawn: Function, x: Any, axis: int = 0) -> Any:
    if isinstance(x, TracedNumber):
        return drawn("permutation", whole(x))
    items = as_array(x)
    return np.take(items, drawn("permutation", items.shape[axis]), axis)


_OF_ITEMS: dict[str, Function] = {"choice": _choice_by, "permutation": _permuted_by}


def _shuffle_by(generator: Any, x: TracedArray, axis: int = 0) -> None:
    places = np.arange(x.shape[axis])
    generator.shuffle(places)
    x[...] = np.take(x, places, axis)


def _choice_of_python(generator: Any, seq: Any) -> Any:
    return seq[_called(generator, "randrange", len(seq))]


def _scalar(recorder: Recorder, value: Any) -> Any:
    if type(value) is TracedNumber and isinstance(value.value, float):
        return as_scalar(recorder, value, np.float64)
    return plain(value)


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
    return Unseeded(original, _without_seed, _with_seed, _opened)


def _without_seed(made: Any) -> Any:
    if active_recorder() is None:
        return made
    if type(made) not in KINDS:
        raise TraceError(
            "random numbers of an unseeded generator would be baked into the trace",
            loc=user_loc(), hint="give it a seed, or make the generator outside",
        )
    return drawn_for(made)


def _opened(given: Any) -> Any:
    return given.__dict__["generator"] if issubclass(type(given), Drawn) else given


def _with_seed(made: Any) -> Any:
    is_numpys = type(made) in (np.random.Generator, np.random.RandomState)
    return Seeded(made) if is_numpys and active_recorder() is not None else made


def wraps_of(module: Any) -> dict[str, Wrap]:
    """By name, the wrappers of what draws in `numpy.random` or `random`."""
    found: dict[str, Wrap] = {}
    for name, value in vars(module).items():
        owner = next((g for g in GLOBAL if getattr(value, "__self__", None) is g), None)
        if owner is not None and _draws(owner, name):
            found[name] = functools.partial(_of_global, name, owner)
    if module is np.random:
        found["seed"] = functools.partial(_of_global, "seed", GLOBAL[0])
        found |= dict.fromkeys((*NAMES, "Generator"), _unseeded)
    return found
