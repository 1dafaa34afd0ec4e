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
from gradof.tracer.state.source import called_in_scipy, of_cython, traceback_loc

_NAME = TracedArray.__name__
_NO_ARRAY = "object __array__ method not producing an array"  # one of a class of the user's


def met(error: Exception) -> FrameType | None:
    """Where compiled code has met a traced array that it cannot take; None for other errors."""
    text = str(error)
    if isinstance(error, GradofError) or not (_NAME in text or text == _NO_ARRAY):
        return None
    traceback: Any = error.__traceback__
    found: Any = None
    while traceback is not None:
        if not of_cython(traceback.tb_frame.f_code):
            found = traceback
        traceback = traceback.tb_next
    if found is None or is_raised(found.tb_frame.f_code, found.tb_lasti):
        return None  # by code that says so itself
    frame: FrameType = found.tb_frame
    return frame


def clear(error: Exception) -> Exception:
    """The error to raise: another one where it names a class that no user knows."""
    if met(error) is None:
        return error
    traceback: Any = error.__traceback__
    return plain_error(called_in_scipy(traceback), traceback_loc(traceback))
