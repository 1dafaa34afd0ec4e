"""Modules whose forward runs as it is, around children that are compiled.

    fast = differentiate(DistributedDataParallel(model))     # DDP's own forward, compiled `model`
    fast = differentiate(model)                 # after fully_shard of its layers: `model.forward`
                                                # as it is, every layer compiled by itself

torch's distributed wrappers and hooks talk to other processes, keep Python state, and wait for
gradients: none of that is in a trace. A *shell* of such a module shares its `__dict__`, as
differentiated modules do, and sees its children differently: where the forward reaches for one, it
gets the differentiated child, or a shell of it where the child contains such code in turn.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from operator import is_
from typing import Any

from gradof.errors import InputError
from gradof.runtime.cache import CacheInfo
from gradof.runtime.refuse import not_scripted

_ROOMS = ("torch.distributed", "torch.nn.parallel")  # their code runs as it is
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_UNIMPLEMENTED = "_forward_unimplemented"  # the forward of ModuleList and the like

Compile = Callable[[Any], Any]


def runs_as_it_is(module: Any) -> bool:
    """Whether the forward of a module is distributed code, or calls some in a submodule."""
    inside = (m for m in module.modules() if m is not module)
    return is_distributed(_forward(module)) or any(map(_is_managed, inside))


def _is_managed(module: Any) -> bool:
    if is_distributed(_forward(module)):
        return True
    return any(is_distributed(h) for name in _HOOKS for h in getattr(module, name).values())


def _forward(module: Any) -> Any:
    """As it is stored: the class of a scripted module has a descriptor of its own there."""
    return inspect.getattr_static(type(module), "forward")


def is_distributed(function: Any) -> bool:
    """Whether a function is of torch's distributed code."""
    function = getattr(function, "func", function)  # of a partial
    name = str(getattr(function, "__module__", None))
    return any(name == room or name.startswith(f"{room}.") for room in _ROOMS)


def shell(module: Any, compile_: Compile) -> Any:
    """A shell of `module`; `compile_` differentiates one of its children."""
    cls, children = type(module), _Children(module, compile_)

    def getattr_(self: Any, name: str) -> Any:
        return children.seen(cls.__getattr__(self, name))

    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise InputError(
            f"the forward of this {cls.__name__} runs as it is: its children are compiled, each "
            "by itself", hint="ask a child, such as model.module.explain(...)",
        )  # fmt: skip

    def reduce(self: Any, protocol: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return compile_, (module,)

    members: dict[str, Any] = {
        "__getattr__": getattr_,
        "__reduce_ex__": reduce,
        "__prepare_scriptable__": not_scripted,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "_modules": property(lambda self: children.table(), lambda self, new: children.set(new)),
        "_gradof_original": property(lambda self: module),
        "cache_info": lambda self: children.cache_info(),
        **dict.fromkeys(("trace", "gradient", "explain", "lint"), refused),
    }
    result: Any = object.__new__(type(cls.__name__, (cls,), members))
    object.__setattr__(result, "__dict__", module.__dict__)
    keep_state(module, result)
    return result


def keep_state(module: Any, other: Any) -> None:
    """What `fully_shard` keeps by module, such as for `set_requires_gradient_sync`, for both."""
    states = sys.modules.get("torch.distributed._composable_state")
    if states is not None:
        found = states._get_module_state(module)
        if found is not None and found is not module:
            states._insert_module_state(other, found)


class _Table(dict[str, Any]):
    """A module's children by name, as its shell sees them; what is put in is the module's, too."""

    def __init__(self, owner: _Children, items: Iterator[tuple[str, Any]]) -> None:
        super().__init__(items)
        self._owner = owner

    def __setitem__(self, name: str, child: Any) -> None:
        self._owner.real[name] = self._owner.original(child)
        super().__setitem__(name, self._owner.seen(child))

    def __delitem__(self, name: str) -> None:
        del self._owner.real[name]
        super().__delitem__(name)


class _Children:
    """The children of one module, differentiated when they are first seen."""

    def __init__(self, module: Any, compile_: Compile) -> None:
        self._module = module
        self._compile = compile_
        self._known: dict[int, tuple[Any, Any]] = {}  # by id: a child, and what stands for it
        self._table: _Table | None = None
        self._names: tuple[str, ...] = ()
        self._originals: tuple[Any, ...] = ()

    @property
    def real(self) -> dict[str, Any]:
        """The module's own table."""
        found: dict[str, Any] = self._module.__dict__["_modules"]
        return found

    def table(self) -> _Table:
        """The children as the shell sees them now."""
        real = self.real
        if self._table is None or tuple(real) != self._names or not all(
            map(is_, real.values(), self._originals)
        ):  # fmt: skip
            self._names, self._originals = tuple(real), tuple(real.values())
            self._table = _Table(self, ((n, self.seen(m)) for n, m in real.items()))
        return self._table

    def set(self, new: dict[str, Any]) -> None:
        """Another table, as nn.Sequential makes one where an item is taken out."""
        self._module.__dict__["_modules"] = {n: self.original(m) for n, m in new.items()}

    def seen(self, value: Any) -> Any:
        """What stands for a child; anything else is itself."""
        if not hasattr(type(value), "named_parameters") or hasattr(type(value), "_gradof_original"):
            return value
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = value, self._stand_in(value)
        return found[1]

    def _stand_in(self, child: Any) -> Any:
        if getattr(_forward(child), "__name__", None) == _UNIMPLEMENTED:
            return shell(child, self._compile)
        return self._compile(child)

    def original(self, child: Any) -> Any:
        """The child that something stands for."""
        return next((real for real, seen in self._known.values() if seen is child), child)

    def cache_info(self) -> CacheInfo:
        """The counts of all children that were compiled."""
        infos = [seen.cache_info() for _, seen in self._known.values()]
        none = CacheInfo(0, 0, 0, 0, 0)
        return CacheInfo(*map(sum, zip(none, *infos, strict=True)))
