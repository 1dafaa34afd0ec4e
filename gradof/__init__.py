"""gradof: a JIT tracing compiler for gradients.

`import gradof` is light: it loads neither torch nor sympy. Each public name loads what it needs
the first time it is used.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from gradof import errors as errors

if TYPE_CHECKING:
    from gradof.api import (
        cfunc,
        checkpoint,
        cond,
        custom_vjp,
        differentiate,
        fori_loop,
        grad,
        hessian,
        hvp,
        jacobian,
        jvp,
        limits,
        primitive,
        release_memory,
        scan,
        stop_gradient,
        value_and_grad,
        value_of,
        vjp,
        while_loop,
    )

# tracer/, autodiff/ and codegen/ are reached through links in this folder. Where a checkout has
# no links (git on Windows makes text files of them), they are found beside this folder instead.
if not os.path.isdir(os.path.join(__path__[0], "tracer")):
    __path__.append(os.path.dirname(__path__[0]))

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "cfunc",
    "checkpoint",
    "cond",
    "custom_vjp",
    "differentiate",
    "errors",
    "fori_loop",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "limits",
    "primitive",
    "release_memory",
    "scan",
    "stop_gradient",
    "value_and_grad",
    "value_of",
    "vjp",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("gradof.api"), name)
    raise AttributeError(f"module 'gradof' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext gradof` calls: the cell magic `%%gradof`."""
    importlib.import_module("gradof.notebook").register(shell)


def __dir__() -> list[str]:
    return __all__
