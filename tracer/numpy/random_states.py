"""States of generators that traced code takes and puts back: at every call, in the program's order.

    state = rng.get_state()          %s = python_draw[function='a random draw: get_state']()
    noise = rng.randn(10)            %z = python_draw[function='a random draw: randn']()
    rng.set_state(state)             %t = python_draw[function='a random draw: set_state']()

What the code sees is a `Kept`, which stands for the state of each call. It can be put back, and
that is all: code that looks into it, or hands it on, is an error.
"""

from __future__ import annotations

import random
from typing import Any, NoReturn

import numpy as np

from gradof.errors import UnsupportedOpError
from gradof.tracer.numpy.drawing import draw
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.state.source import user_loc

TAKES = frozenset({"get_state", "getstate"})
PUTS = frozenset({"set_state", "setstate"})


class Kept:
    """A state that a call has taken; see the module docstring."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: Any = None

    def refuse(self, *_: Any) -> NoReturn:
        """Raise the error for all but putting it back."""
        raise UnsupportedOpError(
            "the state of a random generator is looked into, or handed on", loc=user_loc(),
            hint="put it back within the function, or take it outside",
        )

    __getitem__ = __iter__ = __len__ = __deepcopy__ = __copy__ = __reduce_ex__ = __repr__ = refuse
    __eq__ = refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "gradof")):  # what is asked of any object
            raise AttributeError(name)
        return self.refuse()


def take(recorder: Recorder, generator: Any, name: str) -> Kept:
    """What stands for the generator's state at this place of each call."""
    kept = Kept()

    def by(source: Any) -> int:
        kept._state = _state(source)
        return 0

    draw(recorder, generator, name, by=by)
    return kept


def put(recorder: Recorder, generator: Any, name: str, state: Any) -> None:
    """Put a state there, at this place of each call; arrays in one that is given are operands."""

    def by(source: Any, *given: Any) -> int:
        _set(source, *(given or (state._state,)))
        return 0

    draw(recorder, generator, name, () if type(state) is Kept else (state,), by=by)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)


def _set(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def refused(recorder: Recorder, what: str) -> Exception:
    """The error for what gives more of a generator than numbers, or other generators."""
    recorder.enter()
    return recorder.unsupported(
        f"{what} of a random generator", "draw them outside and pass them as an argument"
    )


class Bits:
    """The bit generator of a generator, as traced code sees it: `state` is taken and put."""

    def __init__(self, recorder: Recorder, generator: Any) -> None:
        self.__dict__.update(recorder=recorder, generator=generator)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind: type = type(self.__dict__["generator"].bit_generator)
        return kind

    def __getattr__(self, name: str) -> Any:
        if name == "state":
            return take(self.__dict__["recorder"], self.__dict__["generator"], "get_state")
        bits = self.__dict__["generator"].bit_generator
        if name.startswith("__"):
            return getattr(bits, name)
        raise refused(self.__dict__["recorder"], f"{type(bits).__name__}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "state":
            setattr(self.__dict__["generator"].bit_generator, name, value)
            return
        put(self.__dict__["recorder"], self.__dict__["generator"], "set_state", value)
