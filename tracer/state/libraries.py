"""Which code is a library's: its functions are not searched for arrays of the user's."""

from __future__ import annotations

import sys
import sysconfig
from types import CellType
from typing import Any

_LIBRARIES = (frozenset(sys.stdlib_module_names) - {"__main__"}) | {
    "torch", "numpy", "scipy", "sympy", "gradof", "functorch", "torchgen", "triton", "jax",
    "pandas",
    "pytest", "_pytest", "pluggy",  # names that assertions rewritten by pytest refer to
}  # fmt: skip
LIBRARY_FOLDERS = tuple(
    {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def from_library(obj: Any) -> bool:
    """Whether a function or class is of a library."""
    return is_library(str(getattr(obj, "__module__", "")))


def is_library(module: str) -> bool:
    """Whether a module is of a library; what other packages hold may change, and is searched."""
    return module.partition(".")[0] in _LIBRARIES


def is_set(cell: CellType) -> bool:
    """Whether a closure variable has a value."""
    try:
        cell.cell_contents  # noqa: B018  # reading is the test
    except ValueError:
        return False
    return True
