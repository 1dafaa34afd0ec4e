"""Random orders of what there is, and samples of it: places are drawn, and items taken from there.

    rng.permutation(x)                  x[at], at a drawn order of len(x) places
    random.sample(range(n), 3)          three numbers of the graph
    np.random.shuffle(names)            a list of texts: which order it is decides the trace

The places are those that the generator gives for any items, which numpy and Python draw alike. So
another order at each call is no other trace where items are numbers, and their gradient is kept.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.number_trees import plain
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.drawing import draw
from gradof.tracer.numpy.floats import as_python
from gradof.tracer.numpy.functions import as_array, whole
from gradof.tracer.numpy.numbers import strong
from gradof.tracer.numpy.recorder import Recorder, contains_traced
from gradof.tracer.state.unheard import quietly

_NUMBERS = frozenset({bool, int, float})
_LARGEST = 2**53


def _places(generator: Any, n: int) -> Any:
    """A drawn order of n places."""
    places = np.arange(n)
    if not isinstance(generator, random.Random):
        generator.shuffle(places)
        return places
    listed = places.tolist()
    generator.shuffle(listed)
    return np.array(listed, np.int64)


def _shuffle(recorder: Recorder, generator: Any, x: Any, axis: int = 0) -> None:
    """In place: an array along an axis, or a list."""
    recorder.enter()
    if isinstance(x, np.ndarray) and not isinstance(x, TracedArray):
        raise recorder.into_plain("shuffle of a plain array")
    if axis:
        _check(generator, "shuffle", x, axis)
    if type(x) is not TracedArray:
        made = _items(recorder, x, draw(recorder, generator, "shuffle", (len(x),), by=_places))
        for k, item in enumerate(made):
            x[k] = item
        return
    if isinstance(generator, random.Random) and x.ndim > 1:
        raise recorder.unsupported(
            "random.shuffle of rows, of which Python doubles some", "use np.random.shuffle"
        )
    at = draw(recorder, generator, "shuffle", (np.shape(x)[axis],), by=_places)
    recorder.handlers.set_item(x, ..., np.take(x, at, axis))


def _permutation(recorder: Recorder, generator: Any, x: Any, axis: int = 0) -> Any:
    """A copy in another order, or an order of so many."""
    if not contains_traced(x) or isinstance(x, TracedNumber):
        more = (axis,) if axis else ()
        return draw(recorder, generator, "permutation", (plain(x), *more))
    items = as_array(x)
    if items.ndim == 0:
        return draw(recorder, generator, "permutation", (whole(items),))
    if axis:
        _check(generator, "permutation", items, axis)
    return np.take(items, draw(recorder, generator, "permutation", (items.shape[axis],)), axis)


def _permuted(
    recorder: Recorder, generator: Any, x: Any, *, axis: int | None = None, out: Any = None
) -> Any:
    """Each line along an axis in an order of its own."""
    recorder.enter()
    items = as_array(x)
    _check(generator, "permuted", items, axis)
    places = np.arange(items.size).reshape(items.shape)
    at = draw(recorder, generator, "permuted", (places,), {"axis": axis})
    made = np.take(np.ravel(items), at)
    if out is None:
        return made
    if type(out) is not TracedArray:
        raise recorder.into_plain("permuted into a plain array")
    recorder.handlers.set_item(out, ..., made)
    return out


def _sample(
    recorder: Recorder, generator: Any, population: Any, k: int, *, counts: Any = None
) -> list[Any]:
    """Items of a population, each at most once."""
    k = whole(plain(k))
    _ask(generator, "sample", population, k, counts=counts)
    n = len(population)

    def places(source: Any, n: int, k: int) -> Any:
        return np.array(source.sample(range(n), k, counts=counts), np.int64)

    drawn = draw(recorder, generator, "sample", (n, k), by=places)
    return _items(recorder, population, drawn)


def _choices(
    recorder: Recorder, generator: Any, population: Any, weights: Any = None, *,
    cum_weights: Any = None, k: int = 1,
) -> list[Any]:  # fmt: skip
    """Items of a population, by weights."""
    n = len(population)

    def places(source: Any, weights: Any, cum_weights: Any) -> Any:
        given, summed = (
            None if w is None else np.asarray(w).tolist() for w in (weights, cum_weights)
        )
        found = source.choices(range(n), given, cum_weights=summed, k=count)
        return np.array(found, np.int64)

    count = whole(plain(k))
    drawn = draw(
        recorder, generator, "choices", (_weights(weights), _weights(cum_weights)), by=places
    )
    return _items(recorder, population, drawn)


def _weights(given: Any) -> Any:
    if given is None:
        return None
    return as_array(list(given)) if contains_traced(given) else np.asarray(plain(list(given)))


def _ask(generator: Any, name: str, population: Any, *args: Any, **kwargs: Any) -> None:
    """Python's own errors."""
    items = np.empty(len(population)) if type(population) is TracedArray else population
    getattr(type(generator)(0), name)(items, *args, **kwargs)


def _check(generator: Any, name: str, x: Any, axis: int | None) -> None:
    """numpy's own errors of an axis."""
    like = np.empty(np.shape(x)) if isinstance(x, TracedArray) else x
    getattr(quietly(copy.deepcopy, generator), name)(like, axis=axis)


def _items(recorder: Recorder, items: Sequence[Any], at: Any) -> list[Any]:
    """The items at drawn places: of numbers those of the graph, of others the ones they are now.

    Items that are arrays stay themselves: who has them elsewhere sees what is written to them.
    """
    if type(items) is range:
        return [as_python(k * items.step + items.start) for k in at]
    if isinstance(items, np.ndarray) and items.ndim == 1:
        return list(as_array(items)[at])
    values = list(items)
    numbers = [x.value if type(x) is TracedNumber else x for x in values]
    kinds = {type(x) for x in numbers}
    if len(kinds) == 1 and kinds <= _NUMBERS and all(abs(x) < _LARGEST for x in numbers):
        return [as_python(x) for x in np.take(as_array(strong(recorder, values)), at)]
    scalars = [x for x in values if isinstance(x, np.generic) or _is_scalar(x)]
    if len(scalars) == len(values) and len({x.dtype for x in scalars}) == 1:
        return list(as_array(values)[at])
    return [values[k] for k in whole(at).tolist()]


def _is_scalar(value: Any) -> bool:
    return type(value) is TracedArray and value.is_scalar


ORDERS: dict[str, Callable[..., Any]] = {
    "shuffle": _shuffle, "permutation": _permutation, "permuted": _permuted, "sample": _sample,
    "choices": _choices,
}
