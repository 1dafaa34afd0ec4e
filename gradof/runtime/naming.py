"""Wrappers that took the place of the function they wrap, for pickle."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def name_of(wrapper: Any, fn: Callable[..., Any]) -> str | None:
    """The qualified name under which a wrapper took its function's place, for pickle; else None."""
    name = getattr(fn, "__qualname__", "")
    found: Any = sys.modules.get(getattr(fn, "__module__", ""))
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is wrapper else None
