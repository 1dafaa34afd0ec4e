"""Local variables of a frame that runs, changed from outside, as debuggers do."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any


def set_locals(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Let local variables of a function that runs, and those it closes over, have other values."""
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):  # from then on `f_locals` writes through
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
