"""Errors of compiled code that was given a traced array, told as ours.

    _peaks(x)      TypeError: a bytes-like object is required, not 'TracedArray'
                →  UnsupportedOpError: in scipy.signal.peak_widths, a traced array would become ...
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from gradof.errors import GradofError
from gradof.tracer.numpy.array import TracedArray, plain_error
from gradof.tracer.numpy.instruction import is_raised
from gradof.tracer.numpy.operands import contains_traced
from gradof.tracer.state.source import called_in_scipy, of_cython, traceback_loc

_NAME = TracedArray.__name__
_NO_ARRAY = "object __array__ method not producing an array"  # one of a class of the user's
# What compiled code says of arguments that it cannot take: pybind11 and Cython.
_NO_FIT = ("incompatible function arguments", "No matching signature found")


def met(error: Exception) -> FrameType | None:
    """Where compiled code has met a traced array that it cannot take; None for other errors."""
    text = str(error)
    is_told = _NAME in text or text == _NO_ARRAY
    if isinstance(error, GradofError) or not (is_told or any(part in text for part in _NO_FIT)):
        return None
    traceback: Any = error.__traceback__
    found: Any = None
    while traceback is not None:
        ours = str(traceback.tb_frame.f_globals.get("__name__", "")).startswith("gradof.")
        if not ours and not of_cython(traceback.tb_frame.f_code):
            found = traceback
        traceback = traceback.tb_next
    if found is None or is_raised(found.tb_frame.f_code, found.tb_lasti):
        return None  # by code that says so itself
    frame: FrameType = found.tb_frame
    return frame if is_told or contains_traced(tuple(frame.f_locals.values())) else None


def clear(error: Exception) -> Exception:
    """The error to raise: another one where it names a class that no user knows."""
    if met(error) is None:
        return error
    traceback: Any = error.__traceback__
    return plain_error(called_in_scipy(traceback), traceback_loc(traceback))
