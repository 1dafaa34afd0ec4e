"""Numbers that Python's `random` and `numpy.random` draw in a torch function: drawn at every call.

    if random.random() < 0.1:        %r : f64[] = python_draw[function='a random draw: random#1']
    lam = np.random.beta(0.2, 0.2)   %l : f64[] = python_draw[function='a random draw: beta#2']

The call is a node, which draws from the generator itself, in the program's order; the trace draws
from a copy. Arrays, and what else is no plain int or float, move the generator itself, which is
refused (`state/generators`), as are draws by generators of the user's own, and by functions that
were imported by their own names. So are `seed` and what reads or sets the state, which the copy
does not follow.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradof.ir.core import Value
from gradof.ir.types import F64, I64
from gradof.ops.expr import F
from gradof.ops.python_call import DRAWS, held
from gradof.tracer.core.number import LARGEST
from gradof.tracer.core.number_trees import has_number, plain
from gradof.tracer.state.effects import effect_error
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.numbers import TorchNumbers
from gradof.tracer.torch.recorder import Recorder

Function = Callable[..., Any]
_LOCK = threading.RLock()
_ACTIVE: dict[int, Drawing] = {}  # by thread, the trace that runs there
_MODULES: tuple[tuple[Any, Any, frozenset[str]], ...] = (
    (random, random._inst, frozenset({
        "betavariate", "expovariate", "gammavariate", "gauss", "lognormvariate", "normalvariate",
        "paretovariate", "randint", "random", "randrange", "triangular", "uniform",
        "vonmisesvariate", "weibullvariate",
    })),
    (np.random, np.random.mtrand._rand, frozenset({
        "beta", "binomial", "chisquare", "exponential", "f", "gamma", "geometric", "gumbel",
        "laplace", "logistic", "lognormal", "normal", "pareto", "poisson", "power", "rand",
        "randint", "randn", "random", "random_sample", "rayleigh", "sample", "standard_cauchy",
        "standard_exponential", "standard_gamma", "standard_normal", "standard_t", "triangular",
        "uniform", "vonmises", "wald", "weibull",
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
        _, twin = self.twins.setdefault(id(generator), (generator, copy.deepcopy(generator)))
        shown = getattr(twin, name)(*args, **kwargs)
        if type(shown) not in (int, float) or (isinstance(shown, int) and abs(shown) >= LARGEST):
            return original(*args, **kwargs)
        value = self._emit(generator, original, args, kwargs, shown)
        self.recorder.varying.add(value)
        return self.numbers.numbers.element(shown, value)

    def _emit(
        self, generator: Any, original: Function, args: Any, kwargs: Any, shown: float
    ) -> Value:
        def function(*_: Any) -> tuple[Any, ...]:
            if not self.is_over:  # the trace asks again what it has drawn
                return (np.asarray(shown),)
            return (np.asarray(original(*args, **kwargs)),)

        builder = self.recorder.builder
        loc = builder.loc = user_loc()
        given = F.full.with_emitter(self.recorder.emitter)(
            dtype=F64, shape=(), device="cpu", value=0.0
        )
        node = builder.emit_node(
            "python_draw", given.value, types=((F64 if isinstance(shown, float) else I64, ()),),
            function=held(DRAWS + original.__name__, function, None, loc, generator),
        )
        return node.outputs[0]


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


_WRAPPED = [
    (module, name, getattr(module, name), _wrapped(generator, getattr(module, name)))
    for module, generator, names in _MODULES for name in names | _STATES if hasattr(module, name)
]  # fmt: skip


@contextlib.contextmanager
def drawn_numbers(drawing: Drawing) -> Iterator[None]:
    """Within it, draws by this thread are recorded; those of others are as they were."""
    here = threading.get_ident()
    with _LOCK:
        outer = _ACTIVE.get(here)
        if not _ACTIVE:
            for module, name, _, wrapped in _WRAPPED:
                setattr(module, name, wrapped)
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
                for module, name, original, _ in _WRAPPED:
                    setattr(module, name, original)
