"""The code behind a value, and what it says of how the value is used.

>>> code_of(property(code_of)).co_name
'code_of'
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.heard import is_heard


@functools.lru_cache(maxsize=4096)
def makes_names(cls: type) -> bool:
    """Whether attributes are looked up under names that the class puts together."""
    for name in ("__getattribute__", "__getattr__"):
        code = code_of(getattr(cls, name, None))
        if code is not None and facts_of(code).builds:
            return "torch" not in code.co_filename.rpartition("site-packages")[2][:7]
    return False


def wraps(fn: Any) -> bool:
    """Whether it is a function of a library's around another one."""
    return (
        isinstance(fn, FunctionType) and fn.__closure__ is not None
        and not is_heard(str(fn.__globals__.get("__name__")))
    )  # fmt: skip


def absolute(name: str, space: dict[str, Any]) -> str:
    """The name of a module that a function with these globals imports."""
    if not name.startswith("."):
        return name
    package = str(space.get("__package__") or space.get("__name__", "")).split(".")
    dots = len(name) - len(name.lstrip("."))
    above = package[: len(package) - dots + 1]
    return ".".join([*above, name[dots:]]) if name[dots:] else ".".join(above)


def code_of(value: Any) -> Any:
    """The code of a function or method of a class; None for data."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    value = getattr(value, "func", value) if type(value) is functools.cached_property else value
    return value.__code__ if isinstance(value, FunctionType) else None
