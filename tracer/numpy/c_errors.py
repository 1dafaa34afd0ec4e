"""Errors of compiled code that was given a traced array, told as ours.

    _peaks(x)      TypeError: a bytes-like object is required, not 'TracedArray'
                →  UnsupportedOpError: in scipy.signal.peak_widths, a traced array would become ...

Compiled code that numpy's or scipy's own Python code calls says whatever it likes ("Expected a
2-dim C contiguous array"): what it says there, of a frame that has traced arrays, is ours as well.
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
    if isinstance(error, GradofError):
        return None
    found, passed_on = _last_of_python(error)
    if found is None or is_raised(found.tb_frame.f_code, found.tb_lasti):
        return None  # by code that says so itself
    frame: FrameType = found.tb_frame
    if is_told:
        return frame
    in_library = _room(frame) in ("numpy", "scipy") and not passed_on
    if not any(part in text for part in _NO_FIT) and not (
        in_library and isinstance(error, (TypeError, ValueError))
    ):
        return None
    return frame if contains_traced(tuple(frame.f_locals.values())) else None


def _room(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _last_of_python(error: Exception) -> tuple[Any, bool]:
    """Where Python code of others was last, and whether code of ours was called from there."""
    traceback: Any = error.__traceback__
    found, passed_on = None, False
    while traceback is not None:
        if _room(traceback.tb_frame) == "gradof":
            passed_on = True
        elif not of_cython(traceback.tb_frame.f_code):
            found, passed_on = traceback, False
        traceback = traceback.tb_next
    return found, passed_on


def clear(error: Exception) -> Exception:
    """The error to raise: another one where it names a class that no user knows."""
    if met(error) is None:
        return error
    traceback: Any = error.__traceback__
    return plain_error(called_in_scipy(traceback), traceback_loc(traceback))
