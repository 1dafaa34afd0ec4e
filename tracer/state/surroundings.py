"""Settings of the process that code reads without naming them, each as one value to compare.

>>> decimal_context() == decimal_context()
True
"""

from __future__ import annotations

import decimal
import gc
import logging
import os
import sys
import warnings
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any

import numpy as np

from gradof.tracer.state.heard import is_heard


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
}  # fmt: skip
_FILES_OF_PANDAS = ("ExcelFile", "HDFStore", "StataReader", "TextFileReader")
# Switches of torch's that code may ask for, beside those of every call (`runtime.arrays`).
SWITCHES_OF_TORCH = frozenset({
    "get_num_threads", "get_num_interop_threads", "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision", "is_anomaly_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "initial_seed", "get_default_device", "is_warn_always_enabled",
})  # fmt: skip
# Functions in C that say how the interpreter and the process are set.
_SWITCHES_IN_C = frozenset({
    sys.getrecursionlimit, sys.getswitchinterval, sys.get_int_max_str_digits, gc.isenabled,
    gc.get_threshold, os.getcwd,
})  # fmt: skip


class Level:
    """What a logger shows, as a switch: calls of `debug` that show nothing are no effect."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger

    def __call__(self) -> tuple[int, bool, int]:
        """Its level, and what else decides."""
        logger = self.logger
        return logger.getEffectiveLevel(), logger.disabled, logger.manager.disable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Level) and other.logger is self.logger

    def __hash__(self) -> int:
        return id(self.logger)


# The module whose code follows a setting, and what it is.
SWITCHES_OF_MODULES: dict[str, Callable[[], Any]] = {
    "torch._tensor_str": _of_torch, "numpy._core.arrayprint": _of_numpy,
    "numpy.core.arrayprint": _of_numpy,
}  # fmt: skip


def is_switch(function: Any) -> bool:
    """Whether a function in C says how torch, Python or the process are set."""
    if function.__name__ in SWITCHES_OF_TORCH:
        return str(function.__module__ or "torch").startswith("torch")
    return type(function) is BuiltinFunctionType and function in _SWITCHES_IN_C


def switch_of(frame: FrameType) -> Callable[[], Any] | None:
    """What code of a library asks for as it is called, as a function to ask again."""
    module, name = str(frame.f_globals.get("__name__", "")), frame.f_code.co_name
    if module in SWITCHES_OF_MODULES:
        return SWITCHES_OF_MODULES[module]
    if module == "torch" and name in SWITCHES_OF_TORCH:
        found: Callable[[], Any] | None = frame.f_globals.get(name)
        return found
    if (module, name) == ("torch.backends", "__get__"):  # torch.backends.cudnn.benchmark
        return getattr(frame.f_locals.get("self"), "getter", None)
    if module.endswith("_core._ufunc_config") and name == "geterr":
        return np.geterr
    if module == "logging" and name in ("isEnabledFor", "getEffectiveLevel"):
        return Level(frame.f_locals["self"]) if _is_asked_by_users(frame) else None
    return None


def _is_asked_by_users(frame: FrameType | None) -> bool:
    """Whether code that is heard has called a module, in which a frame runs."""
    module = None if frame is None else frame.f_globals.get("__name__")
    while frame is not None and frame.f_globals.get("__name__") == module:
        frame = frame.f_back
    return frame is not None and is_heard(str(frame.f_globals.get("__name__", "")))


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
    if module == "pandas.util._decorators":  # the reader is wrapped
        name = getattr(frame.f_locals.get("func"), "__name__", name)
    if not guards_files and _reads_files(module, name, frame):
        return f"{module}.{name}"
    return None


def _reads_files(module: str, name: str, frame: FrameType) -> bool:
    if module.startswith("pandas."):
        if name == "__init__":
            return type(frame.f_locals.get("self")).__name__ in _FILES_OF_PANDAS
        return name.startswith("read_")
    return name in _READERS.get(module, ())


def asks_again(code: CodeType, space: dict[str, Any], hashed: bool) -> bool:
    """Whether what a call of a library's code means depends on who calls it, and with what.

    `hashed`: it is known that tensors are looked up.
    """
    module = str(space.get("__name__", ""))
    if code.co_name == "__hash__":
        return module == "torch._tensor" and not hashed
    if module in OUTSIDE or module in _READERS:
        return True
    if module.startswith(("pandas.io.", "pandas.util._decorators")):
        return code.co_name.startswith("read_") or code.co_name in ("__init__", "wrapper")
    return (module, code.co_name) in _NAMED


_NAMED = {
    ("os", "__getitem__"), ("os", "walk"), ("os", "fwalk"), ("random", "__init__"),
    ("torch.backends", "__get__"), ("logging", "isEnabledFor"), ("logging", "getEffectiveLevel"),
}  # fmt: skip


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
