"""Where iterators stand: whether a run has taken from one that was there before it.

>>> items = iter([1, 2])
>>> before = position(items)
>>> next(items), position(items) == before
(1, False)

What compiled code would have to take again at each call, it cannot: such a run is refused.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from types import FrameType, GeneratorType, WrapperDescriptorType
from typing import Any

from gradof.tracer.state.in_c import methods_in_c

_TRACERS = frozenset({"gradof.tracer.torch.tracer", "gradof.tracer.numpy.tracer"})  # call the run


@functools.lru_cache(maxsize=4096)
def is_iterator(cls: type) -> bool:
    """Whether instances are iterators, which are used up."""
    return issubclass(cls, Iterator)


def gives_anew(cls: type, names: frozenset[str]) -> bool:
    """Whether what code of these names takes from instances is another thing each time."""
    return is_iterator(cls) or not methods_in_c(cls).isdisjoint(names)


def position(iterator: Any) -> Any:
    """Something that differs once an item was taken, by the iterator's own account of itself.

    Of an iterator of a Python class, whose state is in its attributes, it says nothing.
    """
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return None if frame is None else (frame.f_lasti, _locals(frame))
    # Looked at as it stands: a class may answer what it is asked by making objects (a Mock does).
    if not isinstance(vars(type(iterator)).get("__next__"), WrapperDescriptorType):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of itertools, until Python 3.14
        try:
            parts = iterator.__reduce__()
        except (TypeError, RuntimeError):  # such as a file; of a dict that has changed since
            return None
    return tuple(_standing(part) for part in parts[1:])



def is_of_callers(iterator: Any, frame: FrameType) -> bool:
    """Whether it is a variable of a caller of a frame, in the same run, for functions within it.

    Such a one the run has made, or it was in reach of other code of the run, which has told so. An
    argument may be a default.
    """
    at = frame.f_back
    while at is not None and at.f_globals.get("__name__") not in _TRACERS:
        own = set(at.f_code.co_cellvars).difference(at.f_code.co_varnames)
        if any(at.f_locals.get(name) is iterator for name in own):
            return True
        at = at.f_back
    return False


def _locals(frame: Any) -> Any:
    return tuple((name, _standing(value)) for name, value in frame.f_locals.items())


def _standing(part: Any) -> Any:
    if isinstance(part, (int, float, str, range, type(None))):
        return part
    kind: Any = type(part)
    if is_iterator(kind):
        return position(part)
    if isinstance(part, tuple):
        return tuple(map(_standing, part))
    return len(part) if isinstance(part, (list, dict, set)) else id(part)
