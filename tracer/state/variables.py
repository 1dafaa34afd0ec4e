"""Variables of a frame that runs: what they hold, and local ones changed as debuggers do."""

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


def is_tensor_in(frame: FrameType, name: str) -> bool:
    """Whether a global or closure variable holds a tensor; if another comes, it is seen anew."""
    free = name in frame.f_code.co_freevars
    return hasattr((frame.f_locals if free else frame.f_globals).get(name), "dtype")
