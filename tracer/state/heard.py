"""Whose code counts as the user's, by its module; Note [What code can see] in `reads`."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from gradof.tracer.state.kinds import module_of

# Packages whose code keeps no state that a trace depends on, or is our own.
_SILENT = frozenset({
    "gradof", "numpy", "torchgen", "sympy", "triton", "pytest", "_pytest", "pluggy", "mpmath",
    "functorch", "jax", "networkx", "tqdm", "pandas",
})  # fmt: skip
# Modules of scipy that remember what they have found, and work on no objects of the user's.
_LOOKUPS = frozenset({
    "scipy.linalg.blas", "scipy.linalg.lapack", "scipy.sparse._sputils",
    "scipy.interpolate._fitpack_impl", "scipy.signal._spline_filters",
    "scipy.sparse.linalg._dsolve.linsolve", "scipy.integrate._quadrature",
})  # fmt: skip
_OURS = frozenset({"gradof", "numpy", "torch", "builtins"})
# Of torch and the standard library, the modules whose code works on the user's objects.
_HEARD = (
    "torch.nn.modules.", "torch.nn.utils.", "torch.distributions.", "torch.nn.parameter",
    "torch.optim.", "torch.amp.grad_scaler", "torch.ao.",
)  # fmt: skip
# Modules of the standard library whose instances no numeric code depends on.
OPAQUE = frozenset({
    "logging", "threading", "_thread", "_weakref", "typing", "re", "abc", "inspect",
    "warnings", "ast", "random",
})  # fmt: skip
# Of these what a run does to them is done: threads may wait on them while it runs, and a lock that
# was put back would never be let go.
_BETWEEN_THREADS = frozenset({
    "threading", "_thread", "logging", "queue", "_queue", "multiprocessing", "concurrent",
    "asyncio",
})  # fmt: skip
_LOCK = type(threading.Lock())
_HEARD_STDLIB = frozenset({"functools", "collections", "dataclasses", "__main__"})


def is_heard(module: str) -> bool:
    """Whether the code of a module counts as the user's; see Note [What code can see]."""
    top = module.partition(".")[0]
    if top == "torch":
        return module.startswith(_HEARD)
    # collections compiles the __new__ of a namedtuple
    if top in _SILENT or module in _LOOKUPS or top.startswith("namedtuple_"):
        return False
    return top in _HEARD_STDLIB or top not in sys.stdlib_module_names


@functools.lru_cache(maxsize=4096)
def joins_threads(cls: Any) -> bool:
    """Whether instances are how threads wait for each other: locks, queues, loggers."""
    top = module_of(cls).partition(".")[0]
    return top in _BETWEEN_THREADS and cls.__name__ != "_local"


def is_opaque(cls: Any) -> bool:
    """Whether instances are our own plans, or are how threads wait for each other; no locks."""
    return getattr(cls, "_gradof_opaque", False) or (cls is not _LOCK and joins_threads(cls))


@functools.lru_cache(maxsize=4096)
def hides(cls: Any) -> bool:
    """Whether instances may be read under names that no code which is heard mentions.

    Such as a graph of networkx, or a queue: code that is not heard reads their attributes.
    """
    module = module_of(cls)
    top = module.partition(".")[0]
    return not is_heard(module) and top not in OPAQUE and top not in _OURS


def is_of_stdlib(cls: Any) -> bool:
    """Whether a class is of Python's standard library."""
    return module_of(cls).partition(".")[0] in sys.stdlib_module_names
