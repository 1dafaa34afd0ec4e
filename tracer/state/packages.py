"""Which packages are a function's own, and which are libraries.

Note [Installed packages]
Code in site-packages is not followed, unless the traced function is of that package, or a class of
its object is: a DataFrame's attributes are walked, but not all of pandas by way of its methods,
which takes seconds. What a function of another package holds in its globals is a constant.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from types import CellType, FunctionType, MethodType
from typing import Any

_LIBRARIES = (frozenset(sys.stdlib_module_names) - {"__main__"}) | {
    "torch", "numpy", "scipy", "sympy", "gradof", "functorch", "torchgen", "triton", "jax",
    "pytest", "_pytest", "pluggy",  # names that assertions rewritten by pytest refer to
}  # fmt: skip
LIBRARY_FOLDERS = tuple(
    {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def packages_of(fn: Any) -> frozenset[str]:
    """The packages that a function is of, and those of the objects that it is a method of."""
    found, todo, seen = set[str](), [fn], set[int]()
    while todo:
        obj = todo.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, MethodType):
            found.update(package_of(base) for base in type(obj.__self__).__mro__)
            todo.append(obj.__func__)
        elif isinstance(obj, functools.partial):
            todo.append(obj.func)
        elif isinstance(obj, FunctionType):
            found.add(package_of(obj))
            cells = (c.cell_contents for c in obj.__closure__ or () if is_set(c))
            todo += [c for c in (*cells, *obj.__dict__.values()) if callable(c)]
        elif package_of(type(obj)) == "gradof":  # a compiled function
            todo += [v for v in getattr(obj, "__dict__", {}).values() if callable(v)]
        else:
            found.update(package_of(base) for base in type(obj).__mro__)
    return frozenset(found)


def package_of(obj: Any) -> str:
    """The package of a function or class."""
    return str(getattr(obj, "__module__", "")).partition(".")[0]


def from_library(obj: Any, home: frozenset[str] | None) -> bool:
    """Whether a function or class is of a library; `home` is that of `is_library`."""
    return is_library(package_of(obj), home)


def is_library(module: str, home: frozenset[str] | None) -> bool:
    """Whether a module is one; with `home`, other installed packages are, too."""
    package = module.partition(".")[0]
    if package in _LIBRARIES:
        return True
    return home is not None and package not in home and _is_installed(package)


@functools.lru_cache(maxsize=1024)
def _is_installed(package: str) -> bool:
    """Whether a package that is loaded lies where pip or Python put theirs."""
    file = getattr(sys.modules.get(package), "__file__", None)
    return bool(file) and str(file).startswith(LIBRARY_FOLDERS)


def is_set(cell: CellType) -> bool:
    """Whether a closure variable has a value."""
    try:
        cell.cell_contents  # noqa: B018  # reading is the test
    except ValueError:
        return False
    return True
