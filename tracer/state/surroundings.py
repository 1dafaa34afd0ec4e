"""Settings of the process that code reads without naming them, each as one value to compare.

>>> decimal_context() == decimal_context()
True
"""

from __future__ import annotations

import decimal
import sys
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np


def decimal_context() -> str:
    """Precision, rounding, and what else arithmetic of decimals follows."""
    context = decimal.getcontext()
    return repr((context.prec, context.rounding, context.Emin, context.Emax, context.capitals,
                 context.clamp, context.traps))  # fmt: skip


def _of_torch() -> dict[str, Any]:
    return dict(vars(sys.modules["torch._tensor_str"].PRINT_OPTS))


def _of_numpy() -> dict[str, Any]:
    return dict(np.get_printoptions())


# The module whose code follows a setting, and what it is.
SWITCHES_OF_MODULES: dict[str, Callable[[], Any]] = {
    "torch._tensor_str": _of_torch, "numpy._core.arrayprint": _of_numpy,
    "numpy.core.arrayprint": _of_numpy,
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
