"""Numbers that Python's `random` and `numpy.random` draw in a torch function: drawn at every call.

    if random.random() < 0.1:        %r : f64[] = python_draw[function='a random draw: random#1']
    lam = np.random.beta(0.2, 0.2)   %l : f64[] = python_draw[function='a random draw: beta#2']

The call is a node, which draws from the generator itself, in the program's order; the trace draws
from a copy. `random.choice` draws the number of what it chooses, and so do `choices`, `sample` and
`shuffle` (`_PICKS`). Arrays, and what else is no plain int or float, move the generator itself,
which is refused (`state/generators`), as are draws by generators of the user's own, and by those
that the function makes without a seed. So are `seed` and what reads or sets the state, which the
copy does not follow.

Note [Names of imported draws]
`from random import random` gives a module a name of its own for a function. While a trace runs what
stands for the function is under all such names. They are looked for once a module, and anew in
`__main__`, to which a session adds.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from gradof.ir.core import Value
from gradof.ir.types import F64, I64
from gradof.ops.expr import Expr, F
from gradof.ops.python_call import DRAWS, held
from gradof.tracer.core.number import LARGEST
from gradof.tracer.core.number_trees import has_number, plain
from gradof.tracer.core.unseeded import NAMES, Unseeded
from gradof.tracer.state.effects import effect_error
from gradof.tracer.state.source import user_loc
from gradof.tracer.state.unheard import quietly
from gradof.tracer.torch.numbers import MOST_READ, TorchNumbers
from gradof.tracer.torch.recorder import Recorder

Function = Callable[..., Any]
_LOCK = threading.RLock()
_ACTIVE: dict[int, Drawing] = {}  # by thread, the trace that runs there
_MODULES: tuple[tuple[Any, Any, frozenset[str]], ...] = (
    (random, random._inst, frozenset({
        "betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss",
        "lognormvariate", "normalvariate", "paretovariate", "randint", "random", "randrange",
        "sample", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
    })),
    (np.random, np.random.mtrand._rand, frozenset({
        "beta", "binomial", "chisquare", "choice", "exponential", "f", "gamma", "geometric",
        "gumbel", "laplace", "logistic", "lognormal", "normal", "pareto", "poisson", "power",
        "rand", "randint", "randn", "random", "random_sample", "rayleigh", "sample",
        "standard_cauchy", "standard_exponential", "standard_gamma", "standard_normal",
        "standard_t", "triangular", "uniform", "vonmises", "wald", "weibull",
    })),
)  # fmt: skip


_STATES = frozenset({"seed", "getstate", "setstate", "get_state", "set_state"})


class Drawing:
    """The draws of one trace."""

    def __init__(self, recorder: Recorder, numbers: TorchNumbers) -> None:
        self.recorder = recorder
        self.numbers = numbers
        self.twins: dict[int, tuple[Any, Any]] = {}  # generators and their copies
        self.is_over = False

    @property
    def generators(self) -> tuple[Any, ...]:
        """The generators that the trace draws from."""
        return tuple(generator for generator, _ in self.twins.values())

    def draw(self, generator: Any, original: Function, args: Any, kwargs: Any) -> Any:
        """The number that a call draws, of the graph; what is no number is drawn in earnest."""
        name = original.__name__
        if has_number(args) or has_number(kwargs):
            if name == "uniform" and len(args) == 2 and not kwargs:
                low, high = args
                return low + (high - low) * self.draw(generator, generator.random, (), {})
            return original(*plain(args), **plain(kwargs))
        if generator is random._inst and name in _PICKS:
            if not args or not isinstance(args[0], Sequence):
                return original(*args, **kwargs)
            return self._picked(name, original, *args, **kwargs)
        shown = getattr(self._twin(generator), name)(*args, **kwargs)
        if not _is_small(shown):
            return original(*args, **kwargs)
        value = self._emit(generator, original, args, kwargs, shown)
        return self.numbers.numbers.element(shown, value)

    def _picked(self, name: str, original: Function, seq: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function picks of a sequence: its numbers, or what is at one place."""
        n = len(seq)
        are_numbers = {type(x) for x in seq} in ({int}, {float}) and all(map(_is_small, seq))
        pool = list(seq) if are_numbers else list(range(n))
        pick = functools.partial(_PICKS[name], original)
        twin = self._twin(random._inst)
        shown = _PICKS[name](getattr(twin, name), pool, *args, **kwargs)
        if not n or len(shown) > (MOST_READ if are_numbers else 1):
            return original(seq, *args, **kwargs)
        found = self._elements(shown, self._emit(random._inst, pick, (pool, *args), kwargs, shown))
        found = found if are_numbers else [seq[i] for i in found]
        if name == "shuffle":
            seq[:] = found
            return None
        return found[0] if name == "choice" else found

    def _elements(self, shown: list[Any], value: Value) -> list[Any]:
        """The numbers of a vector of the graph."""
        numbers, found = self.numbers.numbers, []
        for i, number in enumerate(shown):
            part = numbers.emit(functools.partial(self._element, value, i))
            self.recorder.varying.add(part.value)
            found.append(numbers.element(number, part.value))
        return found

    def _element(self, value: Value, i: int) -> Expr:
        whole = self.recorder.emitter.wrap(value)
        return F.reshape(F.slice(whole, dim=0, start=i, stop=i + 1, step=1), shape=())

    def _twin(self, generator: Any) -> Any:
        """The copy of a generator that the trace draws from."""
        return self.twins.setdefault(
            id(generator), (generator, quietly(copy.deepcopy, generator))
        )[1]

    def _emit(
        self, generator: Any, original: Function, args: Any, kwargs: Any, shown: Any
    ) -> Value:
        array = np.asarray(shown)

        def function(*_: Any) -> tuple[Any, ...]:
            if not self.is_over:  # the trace asks again what it has drawn
                return (array,)
            return (np.asarray(original(*args, **kwargs)),)

        builder = self.recorder.builder
        loc = builder.loc = user_loc()
        given = F.full.with_emitter(self.recorder.emitter)(
            dtype=F64, shape=(), device="cpu", value=0.0
        )
        node = builder.emit_node(
            "python_draw", given.value,
            types=((F64 if array.dtype.kind == "f" else I64, array.shape),),
            function=held(DRAWS + _name(original), function, None, loc, generator),
        )
        self.recorder.varying.add(node.outputs[0])
        return node.outputs[0]


def _is_small(number: Any) -> bool:
    """Whether a value is a number that a graph can hold."""
    return type(number) is float or (type(number) is int and abs(number) < LARGEST)


def _name(function: Function) -> str:
    named = function.args[0] if isinstance(function, functools.partial) else function
    return str(named.__name__)


def _shuffled(shuffle: Function, pool: list[Any]) -> list[Any]:
    found = list(pool)
    shuffle(found)
    return found


# What a function of `random` that picks gives as a list, with numbers in the place of the sequence.
_PICKS: dict[str, Function] = {
    "choice": lambda choice, pool: [choice(pool)], "shuffle": _shuffled,
    "choices": lambda choices, pool, *args, **kwargs: choices(pool, *args, **kwargs),
    "sample": lambda sample, pool, *args, **kwargs: sample(pool, *args, **kwargs),
}  # fmt: skip


def _wrapped(generator: Any, original: Function) -> Function:
    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        drawing = _ACTIVE.get(threading.get_ident())
        if drawing is None or drawing.recorder.paused:
            return original(*args, **kwargs)
        if original.__name__ in _STATES:
            raise effect_error(f"{original.__name__}() of a random generator", user_loc())
        return drawing.draw(generator, original, args, kwargs)

    return draw


def _without_seed(made: Any) -> Any:
    drawing = _ACTIVE.get(threading.get_ident())
    if drawing is None or drawing.recorder.paused:
        return made
    raise effect_error(f"{type(made).__name__} of numpy.random without a seed", user_loc())


_WRAPPED: list[tuple[dict[str, Any], str, Any]] = [
    *[(vars(module), name, _wrapped(generator, getattr(module, name)))
      for module, generator, names in _MODULES
      for name in names | _STATES if hasattr(module, name)],
    *[(vars(np.random), name, Unseeded(getattr(np.random, name), _without_seed))
      for name in NAMES],
]  # fmt: skip
_BY_ORIGINAL = {id(names[name]): wrapped for names, name, wrapped in _WRAPPED}
_Names = tuple[dict[str, Any], str, Function]


class _Imported:
    """The names that modules have for what draws; see Note [Names of imported draws]."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._known: list[_Names] = []
        self._modules: list[Any] = []  # whose ids are in `_seen`

    def names(self) -> list[_Names]:
        """All of them, as far as they are known."""
        for module in list(sys.modules.values()):
            if id(module) not in self._seen and isinstance(module, ModuleType):
                self._seen.add(id(module))
                self._modules.append(module)
                found = _names_in(vars(module))
                if module.__name__.startswith("numpy."):  # whose classes make their own parts
                    found = [each for each in found if not isinstance(each[2], Unseeded)]
                self._known += found
        return [*self._known, *_names_in(vars(sys.modules["__main__"]))]


def _names_in(names: dict[str, Any]) -> list[_Names]:
    if _BY_ORIGINAL.keys().isdisjoint(map(id, names.values())):
        return []
    return [(names, name, _BY_ORIGINAL[id(value)])
            for name, value in list(names.items()) if id(value) in _BY_ORIGINAL]  # fmt: skip


_IMPORTED = _Imported()
_PLACED: list[tuple[_Names, Any]] = []  # what stands where, and what was there


def _place() -> None:
    for found in (*_WRAPPED, *_IMPORTED.names()):
        names, name, wrapped = found
        if id(names.get(name)) in _BY_ORIGINAL:
            _PLACED.append((found, names[name]))
            names[name] = wrapped


def _put_back() -> None:
    while _PLACED:
        (names, name, wrapped), original = _PLACED.pop()
        if names.get(name) is wrapped:  # the function may have bound it anew
            names[name] = original


@contextlib.contextmanager
def drawn_numbers(drawing: Drawing) -> Iterator[None]:
    """Within it, draws by this thread are recorded; those of others are as they were."""
    here = threading.get_ident()
    with _LOCK:
        outer = _ACTIVE.get(here)
        if not _ACTIVE:
            _place()
        _ACTIVE[here] = drawing
    try:
        yield
    finally:
        drawing.is_over = True
        with _LOCK:
            if outer is None:
                del _ACTIVE[here]
            else:
                _ACTIVE[here] = outer
            if not _ACTIVE:
                _put_back()
