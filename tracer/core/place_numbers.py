"""Numbers in Python's state that differ from call to call, as inputs of the graph.

    self.beta *= 0.99              graph f(..., %beta : f64[])
    return mse + self.beta * kl      %0 : f64[] = mul(%beta, 0.99)      stored in self.beta

For the run, the place holds a `TracedNumber`; afterwards it has its own number again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradof.tracer.core.number import LARGEST, TracedNumber
from gradof.tracer.state.places import Place, place_key, read_place, write_place


@dataclass(frozen=True)
class NumberAt:
    """Where a number is read anew at every call."""

    place: Place

    @property
    def name(self) -> str:
        """The name of the attribute, item or variable."""
        key = getattr(self.place.key, "__name__", self.place.key)
        return key if isinstance(key, str) and key.isidentifier() else "number"

    def read(self, fn: Any) -> Any:
        """The number there now; LookupError, AttributeError or ValueError if it is gone."""
        return read_place(self.place)

    def __str__(self) -> str:
        return f"the number {self.name!r}"


class NumbersInPlaces:
    """The numbers of one trace."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._origins = {place_key(p): NumberAt(p) for p in places}
        self._filled: list[tuple[Place, Any]] = []

    def origin(self, key: Any) -> NumberAt:
        """The origin of the number with this `place_key`."""
        return self._origins[key]

    def fill(self, make: Callable[[Any, Any, str | None], TracedNumber]) -> None:
        """Put a traced number into each place, made of its key, value and name."""
        for key, origin in self._origins.items():
            value = origin.read(None)
            if type(value) is float or (type(value) is int and -LARGEST < value < LARGEST):
                write_place(origin.place, make(key, value, origin.name))
                self._filled.append((origin.place, value))

    def restore(self) -> None:
        """Put the numbers back."""
        for place, value in self._filled:
            write_place(place, value)
        self._filled.clear()
