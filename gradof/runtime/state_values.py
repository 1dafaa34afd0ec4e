"""Values of Python state: how they are read from their places, compared, and shown.

A value is as it was where it is the very object, or an equal one of the same plain type: numbers,
text, tuples of such, a `torch.Size`. Other objects are compared by identity alone, arrays that are
no inputs by type, or by a checksum of their elements.
"""

from __future__ import annotations

import enum
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gradof.ir import contents
from gradof.runtime.arrays import torch_if_loaded
from gradof.tracer.core.containers import is_size
from gradof.tracer.state.origins import Step
from gradof.tracer.state.places import Place, read_place

ATOMS = (type(None), bool, int, float, complex, str, bytes)

Checked = tuple[Any, Any, Any, str]  # container, key, expected value, description


def reference(obj: Any) -> Callable[[], Any]:
    """A weak reference, or what gives the object itself where it can have none."""
    try:
        return weakref.ref(obj)
    except TypeError:  # without __weakref__
        return lambda: obj


def are_equal(checked: list[Checked], read: Callable[[Any, Any], Any]) -> bool:
    """Whether every place has the value that is expected."""
    for container, key, expected, _ in checked:
        found = read(container, key)
        if found is not expected and not is_same(found, expected):
            return False
    return True


def environment_has(expected: Mapping[str, Any]) -> bool:
    """Whether variables of the environment have these raw values."""
    if not expected:
        return True
    data: Any = os.environ._data  # type: ignore[attr-defined]  # raw, without decoding
    return not any(data.get(name.encode()) != value for name, value in expected.items())


def surroundings_are(
    switches: Mapping[Any, Any], environment: Mapping[str, Any], variables: Mapping[Any, Any]
) -> bool:
    """Whether switches of torch, the environment and context variables are as expected."""
    if any(switch() != value for switch, value in switches.items()):
        return False
    return environment_has(environment) and all(
        (now := variable.get(None)) is value or is_same(now, value)
        for variable, value in variables.items()
    )


def arrays_are(types: Iterable[Sequence[Any]], data: Iterable[Sequence[Any]]) -> bool:
    """Whether the arrays in places are of these types, and have elements of these checksums."""
    if any(array_type(read_place(place)) != expected for place, expected, _ in types):
        return False
    return all(checksum(read_place(place)) == n for place, n, _ in data)


def content_of(cell: Any, _: Any) -> Any:
    """What a closure cell holds; ValueError if it is empty."""
    return cell.cell_contents


def read_at(obj: Any, how: Any) -> Any:
    """The value in a Place (of a tuple its length, if `how` is its class), by a step, in a slot."""
    if isinstance(obj, Place):
        found = read_place(obj)
        if isinstance(how, type):
            return len(found) if isinstance(found, tuple) and type(found) is how else None
        return found
    if isinstance(how, Step):
        return how.read(obj)
    return obj[how] if type(obj) is deque else how.__get__(obj)  # a slot


def is_same(found: Any, expected: Any) -> bool:
    """Equal values of one type; zeros by sign too, and nan is itself."""
    if type(found) is not type(expected):
        return False
    if type(found) in (float, complex):
        return repr(found) == repr(expected)
    if isinstance(found, np.generic):
        return bool(found.tobytes() == expected.tobytes())
    if type(found) is tuple or is_size(type(found)):
        return _same_items(found, expected)
    if type(found) in (frozenset, slice, range) or isinstance(found, ATOMS):
        return bool(found == expected)
    return False


def _same_items(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    return len(found) == len(expected) and all(
        a is b or is_same(a, b) for a, b in zip(found, expected, strict=True)
    )


def array_type(array: Any) -> Any:
    """What code may ask of an array without reading its elements.

    A tensor of the user's own class is not asked by way of what that class makes of it.
    """
    torch = torch_if_loaded()
    if torch is None or type(array) is torch.Tensor or not isinstance(array, torch.Tensor):
        return _asked(array)
    with torch._C.DisableTorchFunctionSubclass():
        return _asked(array)


def _asked(array: Any) -> tuple[Any, ...]:
    return (
        type(array), getattr(array, "dtype", None), getattr(array, "shape", None),
        getattr(array, "requires_grad", None), getattr(array, "device", None),
    )  # fmt: skip


def checksum(array: Any) -> Any:
    """Tells the elements of a numpy array from others; None of what has no plain elements."""
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        return None
    return contents.checksum(array)


def is_tuple(cls: Any) -> bool:
    """Whether values of a class are tuples, or named ones, which have nothing but their items."""
    if cls is tuple:
        return True
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and cls.__dictoffset__ == 0


def is_plain(value: Any) -> bool:
    """Whether nothing within a value can change: an atom, or a tuple of such, a `torch.Size`."""
    if type(value) is tuple or is_size(type(value)):
        return all(map(is_plain, value))
    return type(value) in ATOMS


def short(value: Any) -> str:
    """A value in a message, in less than a line."""
    shown = isinstance(value, (*ATOMS, enum.Enum, np.generic, range, slice)) or is_plain(value)
    text = repr(value) if shown else f"a {type(value).__qualname__}"
    return text if len(text) < 80 else text[:77] + "..."


def difference(shown: str, expected: Any, found: Any) -> str:
    """What was one value and is another, in words; where both look alike, what of them differs.

    >>> difference("sizes", (1, 2), (1, 3))
    'sizes was (1, 2) and is (1, 3)'
    """
    was, now = short(expected), short(found)
    if was != now:
        return f"{shown} was {was} and is {now}"
    return f"{shown} was another {type(found).__qualname__}{_inner_difference(expected, found)}"


def _inner_difference(expected: Any, found: Any) -> str:
    """Of two values of one text."""
    if type(found) is not type(expected):
        return f", of {type(expected).__module__}"
    if type(found) is tuple:
        if len(expected) != len(found):
            return f" of {len(expected)} items, and has {len(found)}"
        for n, (old, new) in enumerate(zip(expected, found, strict=True)):
            if old is not new and not is_same(new, old):
                return ": " + difference(f"item {n}", old, new)
    if type(found) is frozenset:
        gone, more = (", ".join(sorted(map(short, a - b))) for a, b in
                      ((expected, found), (found, expected)))  # fmt: skip
        return f": it had {gone or 'no others'} and has {more or 'no others'}"
    if isinstance(found, (str, bytes)):  # long, and alike at first
        pairs = enumerate(zip(expected, found, strict=False))
        at = next((n for n, (old, new) in pairs if old != new), min(len(expected), len(found)))
        part = slice(max(0, at - 10), at + 30)
        return f": {expected[part]!r} was at {at}, where {found[part]!r} is"
    return ""


def last_name(path: str) -> str:
    """The last name of a description such as `model.layers.0`."""
    return path.rpartition(".")[2]


def shown_path(path: str, step: Step) -> str:
    """The description of what a step from a described object leads to."""
    key = step.key[1] if step.kind == "class" else step.key
    key = "cached" if step.kind == "cached" else key  # arguments may be anything
    if key is None:
        return path
    return f"{path}.{key}" if path else str(key)
