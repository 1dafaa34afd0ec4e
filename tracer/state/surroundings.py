"""Settings of the process that code reads without naming them, each as one value to compare.

>>> decimal_context() == decimal_context()
True
"""

from __future__ import annotations

import decimal
import os
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np


def decimal_context() -> str:
    """Precision, rounding, and what else arithmetic of decimals follows."""
    context = decimal.getcontext()
    return repr((context.prec, context.rounding, context.Emin, context.Emax, context.capitals,
                 context.clamp, context.traps))  # fmt: skip


def environment() -> dict[Any, Any]:
    """All of os.environ, as it is kept."""
    data: Any = os.environ._data  # type: ignore[attr-defined]  # raw, without decoding
    return dict(data)


def _of_torch() -> dict[str, Any]:
    return dict(vars(sys.modules["torch._tensor_str"].PRINT_OPTS))


def _of_numpy() -> dict[str, Any]:
    return dict(np.get_printoptions())


# Modules of Python code that asks the machine, and which functions do (None: all).
OUTSIDE: dict[str, frozenset[str] | None] = {
    "genericpath": None, "queue": None, "subprocess": None, "socket": None, "tempfile": None,
    "shutil": None, "glob": None, "uuid": None, "secrets": None, "sqlite3": None,
    "pathlib": frozenset({"exists", "is_file", "is_dir", "open", "read_text", "read_bytes", "stat",
                          "write_text", "write_bytes", "iterdir", "glob", "mkdir", "unlink"}),
    "pathlib._local": frozenset({"exists", "open", "read_text", "stat", "write_text", "iterdir"}),
}  # fmt: skip
# What reads files without a call of `open` that is heard; a numpy trace guards the files itself.
_READERS: dict[str, frozenset[str]] = {
    "numpy.lib._npyio_impl": frozenset({
        "load", "loadtxt", "genfromtxt", "fromregex",
        "save", "savez", "savez_compressed", "savetxt",
    }),
    "numpy.lib._format_impl": frozenset({"open_memmap", "read_array"}),
    "numpy.lib.format": frozenset({"open_memmap", "read_array"}),
    "numpy._core.memmap": frozenset({"__new__"}), "numpy.core.memmap": frozenset({"__new__"}),
    "pandas.io.parsers.readers": frozenset({"read_csv", "read_table", "read_fwf"}),
}  # fmt: skip
# Switches of torch's that code may ask for, beside those of every call (`runtime.arrays`).
SWITCHES_OF_TORCH = frozenset({
    "get_num_threads", "get_num_interop_threads", "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision", "is_anomaly_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "initial_seed", "get_default_device", "is_warn_always_enabled",
})  # fmt: skip
# The module whose code follows a setting, and what it is.
SWITCHES_OF_MODULES: dict[str, Callable[[], Any]] = {
    "torch._tensor_str": _of_torch, "numpy._core.arrayprint": _of_numpy,
    "numpy.core.arrayprint": _of_numpy,
}  # fmt: skip


def outside_of(frame: FrameType, guards_files: bool) -> str | None:
    """What code asks of the machine as it is called, by name; None if it asks nothing."""
    module, name = str(frame.f_globals.get("__name__", "")), frame.f_code.co_name
    if module in OUTSIDE:
        names = OUTSIDE[module]
        return f"{module}.{name}" if names is None or name in names else None
    if module == "random" and name == "__init__" and frame.f_locals.get("x") is None:
        return "random.Random without a seed"
    if module == "os" and name in ("walk", "fwalk"):
        return f"os.{name}"
    return f"{module}.{name}" if not guards_files and name in _READERS.get(module, ()) else None


def asks_again(code: CodeType, space: dict[str, Any], hashed: bool) -> bool:
    """Whether what a call of a library's code means depends on who calls it, and with what.

    `hashed`: it is known that tensors are looked up.
    """
    module = str(space.get("__name__", ""))
    if code.co_name == "__hash__":
        return module == "torch._tensor" and not hashed
    if module in OUTSIDE or module in _READERS:
        return True
    return (module, code.co_name) in _NAMED


_NAMED = {("os", "__getitem__"), ("os", "walk"), ("os", "fwalk"), ("random", "__init__")}


def is_installed(code: CodeType) -> bool:
    """Whether code is an installed library's, rather than the user's own."""
    return "site-packages" in code.co_filename or "dist-packages" in code.co_filename


def is_repeated(message: Any, name: str) -> bool:
    """Whether the filters show a warning of a module each time it is given, rather than once."""
    for action, text, category, module, line in warnings.filters:
        if (
            (text is None or text.match(str(message.message)))
            and issubclass(message.category, category)
            and (module is None or module.match(name))
            and line in (0, message.lineno)
        ):
            return action in ("always", "all")
    return False
