"""Where scipy's splines keep their arrays: from 1.18 on in an object that they delegate to.

    keep(spline, c=c, x=x, axis=0, extrapolate=True)
    kept(spline, "c")                   # not `spline.c`, which scipy passes through np.asarray
"""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np

from gradof.tracer.scipy.calls import holds_traced
from gradof.tracer.scipy.twins import XP

try:
    DELEGATES = tuple(map(int, metadata.version("scipy").split(".")[:2])) >= (1, 18)
except metadata.PackageNotFoundError:  # nobody asks
    DELEGATES = False
_ARRAYS = ("c", "x", "t")


def keep(made: Any, **parts: Any) -> None:
    """Give a spline its arrays and settings, by the names of its attributes."""
    if DELEGATES:
        made._delegate_to, made._xp, made._xp_internal = SimpleNamespace(**parts), XP, XP
        return
    for name, value in parts.items():
        setattr(made, f"_{name}" if name in _ARRAYS else name, value)
    made._asarray = np.asarray


def is_traced(made: Any) -> bool:
    """Whether any of them is traced."""
    inner = getattr(made, "_delegate_to", made)
    return type(inner) is SimpleNamespace or holds_traced(inner)


def kept(made: Any, name: str) -> Any:
    """One of its arrays, traced or not."""
    return getattr(made._delegate_to, name) if DELEGATES else getattr(made, f"_{name}")
