"""Numbers in Python's state that differ from call to call, as inputs of the graph.

    self.beta *= 0.99              graph f(..., %beta : f64[])
    return mse + self.beta * kl      %0 : f64[] = mul(%beta, 0.99)      stored in self.beta

For the run, the place holds a `TracedNumber`; afterwards it has its own number again. Arrays of
numpy that vary are inputs in the same way, so that `np.exp(self.h)` is recorded, which plain numpy
would compute unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.tracer.core.number import LARGEST, NUMBERS
from gradof.tracer.state.held import Held
from gradof.tracer.state.places import (
    Place,
    Raw,
    place_key,
    read_place,
    resolved,
    write_place,
    written_at,
)


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


def may_vary(value: Any, arrays: bool) -> bool:
    """Whether a value in a place can be an input: a number, but no bool.

    With `arrays`, as in functions of numpy, arrays can, too.
    """
    if type(value) is int:
        return -LARGEST < value < LARGEST
    return type(value) in NUMBERS or (arrays and is_numeric(value))


def is_floating(value: Any) -> bool:
    """Whether it is a floating-point array or number of numpy's."""
    return is_numeric(value) and value.dtype.kind in "fc"


def is_numeric(value: Any) -> bool:
    """Whether it is an array or number of numpy's, of numbers or booleans."""
    plain = type(value) is np.ndarray or isinstance(value, np.generic)
    return plain and value.dtype.kind in "fciub"


def there(place: Place) -> Any:
    """What a place holds; None if nothing is there."""
    try:
        return read_place(place)
    except (LookupError, AttributeError, ValueError):
        return None


def varying_now(places: Mapping[Any, Place], arrays: bool) -> dict[Any, Place]:
    """Of places whose numbers vary, those that hold what can be an input; see `may_vary`."""
    return {key: place for key, place in places.items() if may_vary(there(place), arrays)}


class NumbersInPlaces:
    """The numbers and arrays of one trace: each place holds what `may_vary`."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._origins = {place_key(p): NumberAt(p) for p in places}
        self._filled: list[tuple[Place, Any]] = []

    def origin(self, key: Any) -> NumberAt:
        """The origin of the number with this `place_key`."""
        return self._origins[key]

    def fill(self, make: Callable[[Any, Any, str | None], Any], held: Held) -> None:
        """Put what is traced into each place, made of its key, value and name.

        For `held` it was there at entry.

        A place that is told by two keys is filled once: an object that was replaced before, and
        the way to whatever is there now. That way holds for the next object, too.
        """
        found: dict[Any, tuple[Any, NumberAt, Place]] = {}
        for key, origin in self._origins.items():
            where = resolved(origin.place)
            at = place_key(where)
            if at not in found or where is not origin.place:
                found[at] = key, origin, where
        for key, origin, where in found.values():
            made = make(key, read_place(where), origin.name)
            written = written_at(where)
            self._filled.append((written, read_place(written)))
            write_place(where, made)
            _correct(held, written, read_place(written))

    def restore(self, held: Held | None = None) -> None:
        """Put the numbers and arrays back; in `held`, too, which has what was there at entry."""
        for place, value in reversed(self._filled):  # of a tuple, as it was at first
            write_place(place, value)
            if held is not None:
                _correct(held, place, value)
        self._filled.clear()


def _correct(held: Held, place: Place, value: Any) -> None:
    holder = place.container
    held.correct(place.kind, holder.of if isinstance(holder, Raw) else holder, place.key, value)
