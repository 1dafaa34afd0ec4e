"""scipy's own Python code, made to run on traced arrays.

    twin = twin_of(scipy.stats.gamma)       # an object whose methods take traced arrays
    twin._logpdf(x, a)

Much of scipy is written in numpy and would be recorded as the user's own code is, were it not for
functions that numpy does not hand over (np.asarray, np.zeros). A twin of a class has copies of its
functions whose globals are those of the module, with numpy's proxy in the place of numpy.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from gradof.tracer.numpy.creation import replacements
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, original_of, scipy_function
from gradof.tracer.scipy.samples import policy_of, through_policy

Function = Callable[..., Any]


@functools.cache
def _vendored(name: str) -> Any:
    """scipy's copy of another package, which 1.18 has moved."""
    room = "scipy._external" if importlib.util.find_spec("scipy._external") else "scipy._lib"
    return importlib.import_module(f"{room}.{name}")


class _Namespace:
    """What scipy's code calls `xp`: numpy's proxy, and the names that only its wrapper has."""

    def __getattr__(self, name: str) -> Any:
        proxy = replacements()[id(np)][1]
        compat = "array_api_compat.numpy"
        return getattr(proxy if hasattr(proxy, name) else _vendored(compat), name)

    def asarray(
        self, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None
    ) -> Any:
        """An array, traced or not."""
        made = as_array(obj)
        made = made if dtype is None or made.dtype == np.dtype(dtype) else made.astype(dtype)
        return np.copy(made) if copy else made

    newaxis = None


_CHANGES: dict[str, Function] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "power": np.power, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


class _At:
    """`xpx.at(x, index).set(value)`, and `.add` and its like, which write to arrays of numpy's."""

    def __init__(self, x: Any, index: Any = ...) -> None:
        self.x, self.index = x, index

    def __getitem__(self, index: Any) -> _At:
        return _At(self.x, index)

    def set(self, value: Any, /, copy: Any = None, xp: Any = None) -> Any:
        """The array, or a copy, with other elements at the index."""
        made = np.copy(self.x) if copy or np.ndim(self.x) == 0 else self.x  # numbers are fixed
        made[self.index] = value
        return made

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _CHANGES:
            raise AttributeError(f"xpx.at has no {name} here")
        change = _CHANGES[name]
        return lambda value, /, copy=None, xp=None: self.set(
            change(self.x[self.index], value), copy
        )


class _Extra:
    """What scipy's code calls `xpx`: functions beside the standard ones."""

    at = _At

    def __getattr__(self, name: str) -> Any:
        return getattr(_vendored("array_api_extra"), name)


# Beside a module's own, the functions that its twin sees as twins.
_HELPERS = (
    "scipy._lib.", "scipy._external.", "scipy.signal._polyutils", "scipy.spatial.transform.",
)
XP = _Namespace()


def _asarray(
    array: Any, dtype: Any = None, order: Any = None, copy: Any = None, *, xp: Any = None,
    check_finite: bool = False, subok: bool = False,
) -> Any:  # fmt: skip
    return XP.asarray(array, dtype=dtype, copy=copy)


# What scipy's code asks about arrays and their library, answered for numpy's proxy.
_STANDS_FOR: dict[str, Any] = {
    "array_namespace": lambda *arrays, **options: XP, "np_compat": XP, "xpx": _Extra(),
    "is_numpy": lambda xp: True, "is_lazy_array": lambda x: False, "_asarray": _asarray,
    "xp_size": lambda x: x.size, "xp_device": lambda x: "cpu",
    "xp_copy": lambda x, **options: np.copy(x),
    "is_array_api_obj": lambda x: isinstance(x, (np.ndarray, np.generic)),
    "is_marray": lambda xp: False,
}  # fmt: skip
_OF_MODULE: dict[str, dict[str, Any]] = {}
_SPACES: dict[str, dict[str, Any]] = {}


def twin_globals(module: str) -> dict[str, Any]:
    """The names of a module, where numpy is its proxy and scipy's functions see that as well."""
    if module in _SPACES:
        return _SPACES[module]
    space = _SPACES[module] = {}  # before it is filled: modules know each other
    table = replacements()
    for name, value in vars(sys.modules[module]).items():
        found = table.get(id(value))
        if found is not None:
            space[name] = found[1]
        elif name in _STANDS_FOR:
            space[name] = _STANDS_FOR[name]
        elif isinstance(value, FunctionType):
            home = str(value.__globals__.get("__name__"))
            if home == module or home.startswith(_HELPERS):
                value = moved(value, twin_globals(home))
            space[name] = value
        else:
            space[name] = value
    space.update(_OF_MODULE.get(module, {}))
    return space


def moved(function: FunctionType, space: dict[str, Any]) -> FunctionType:
    """The function with other globals."""
    made = FunctionType(
        function.__code__, space, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made


def stand_in(module: str, name: str) -> Callable[[Function], Function]:
    """Register what twins see in the place of one function of a module."""

    def register(function: Function) -> Function:
        _OF_MODULE.setdefault(module, {})[name] = function
        return function

    return register


def through(*names: str) -> None:
    """Register functions whose own code is recorded as it runs on traced arrays."""
    for name in names:
        scipy_function(name)(functools.partial(_through, name))


def through_callbacks(*names: str) -> None:
    """The same of functions that call functions of the user's, which may know traced arrays."""

    def record(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        return _through(name, *args, **kwargs)

    for name in names:
        scipy_function(name, raw=True)(functools.partial(record, name))


def through_traced(name: str, at: str) -> None:
    """The same of a method that changes its object and returns nothing, where it is traced."""

    @scipy_function(name, at=at, raw=True)
    def record(original: Any, *args: Any, **kwargs: Any) -> Any:
        if not (any(map(holds_traced, args)) or holds_traced(kwargs)):
            return original(*args, **kwargs)
        return _through(name, *args, **kwargs)


def twin_of_private(module: str, name: str) -> Function:
    """What several modules import from one of scipy's: its code, where numpy is its proxy."""

    def function(*args: Any, **kwargs: Any) -> Any:
        original: Any = getattr(importlib.import_module(module), name)
        return moved(original, twin_globals(module))(*args, **kwargs)

    return function


def twin_function(name: str) -> Any:
    """A registered function that takes traced arrays, and objects that know some."""
    function: Any = original_of(name)
    return moved(function, twin_globals(function.__module__))


def _through(name: str, *args: Any, **kwargs: Any) -> Any:
    policy = policy_of(original_of(name))
    if kwargs.pop("_no_deco", False):  # of scipy's own calls
        policy = None
    # without what scipy wraps around it, for masks of nan and other libraries' arrays
    function: Any = inspect.unwrap(original_of(name))
    twin = moved(function, twin_globals(function.__globals__["__name__"]))
    return twin(*args, **kwargs) if policy is None else through_policy(policy, twin, args, kwargs)


@functools.lru_cache(maxsize=256)
def twin_class(cls: type) -> type:
    """A subclass whose functions, inherited ones too, take traced arrays."""
    space: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("scipy."):
            continue
        for name, value in vars(base).items():
            if isinstance(value, FunctionType):
                space[name] = moved(value, twin_globals(value.__module__))
    return type(cls.__name__, (cls,), space)


def twin_of(obj: Any) -> Any:
    """A copy of an object, of the twin of its class."""
    made = copy.copy(obj)
    cls: Any = type(obj)
    made.__class__ = twin_class(cls)
    return made
