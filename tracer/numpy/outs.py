"""Where numpy's functions may be given `out` by its place.

    out_by_name(np.cumsum, (x, 0, None, y), {})      (x, 0, None), {"out": y}
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np


def _names_from_out(function: Any) -> tuple[int, tuple[str, ...]] | None:
    """The place of `out` and the names from there on; None where it has no place."""
    code = function._implementation.__code__
    names = code.co_varnames[: code.co_argcount]
    return (names.index("out"), names[names.index("out") :]) if "out" in names else None


# Those in C tell no names; of the others' code a trace has its own, so they are looked at before.
_PLACES: dict[Any, tuple[int, tuple[str, ...]] | None] = {
    np.dot: (2, ("out",)), np.concatenate: (2, ("out",)),
    **{
        f: _names_from_out(f) for module in (np, np.linalg) for f in vars(module).values()
        if isinstance(getattr(f, "_implementation", None), FunctionType)
    },
}  # fmt: skip


def out_by_name(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call; `out` and what follows it are among the named ones."""
    names = _PLACES.get(func)
    if names is None or len(args) <= names[0]:
        return args, kwargs
    return args[: names[0]], {**dict(zip(names[1], args[names[0] :], strict=False)), **kwargs}
