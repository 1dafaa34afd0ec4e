"""Nests of arrays as one array, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The numbers of a nest of tuples, lists and dicts in one array, and the way back.

    Dicts are read by sorted keys.
    """
    parts: list[Any] = []
    structure = _structure(value, parts)
    flat = np.concatenate([np.ravel(p) for p in parts]) if parts else np.array([])

    def unflatten(flat: Any) -> Any:
        return _restored(structure, as_array(flat))

    return flat, unflatten


def flatten_func(func: Callable[..., Any], example: Any) -> Any:
    """`(func of flat arrays, unflatten, the flat example)`."""
    flat, unflatten = flatten(example)

    def of_flat(x: Any, *args: Any) -> Any:
        return flatten(func(unflatten(x), *args))[0]

    return of_flat, unflatten, flat


_Structure = tuple[Any, Any]  # a type and its items' structures by key, or None and a slice


def _structure(value: Any, parts: list[Any]) -> _Structure:
    if isinstance(value, dict):
        return type(value), {k: _structure(value[k], parts) for k in sorted(value)}
    if isinstance(value, (list, tuple)):
        return type(value), [_structure(v, parts) for v in value]
    array = as_array(value)
    start = sum(int(np.size(p)) for p in parts)
    parts.append(array)
    return None, (start, start + int(np.size(array)), np.shape(array))


def _restored(structure: _Structure, flat: Any) -> Any:
    kind, inside = structure
    if kind is None:
        start, stop, shape = inside
        return np.reshape(flat[start:stop], shape)
    if isinstance(inside, dict):
        return kind((k, _restored(s, flat)) for k, s in inside.items())
    items = [_restored(s, flat) for s in inside]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)
