"""differentiate(module): a torch module whose forward is compiled.

The result shares the module's `__dict__`, so parameters, buffers, hooks, `state_dict` and
`train()`/`eval()` are the same objects, and it is an instance of a subclass of the module's
class.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from gradof.errors import InputError
from gradof.runtime.cache import CacheInfo
from gradof.runtime.function import Differentiated
from gradof.runtime.refuse import Numerics, not_scripted
from gradof.runtime.shell import keep_state, runs_as_it_is, shell


def differentiate_module(
    module: Any, static_argnames: tuple[str, ...], strict: bool = False,
    memory_budget: float | None = None, numerics: Numerics = "eager", cuda_graph: bool = False,
    audit: float = 0.0,
) -> Any:  # fmt: skip
    """A module like `module` that runs compiled; see the module docstring.

    The forward of torch's distributed modules runs as it is (`gradof.runtime.shell`).

    Raises InputError for a module that was differentiated already.
    """
    cls = type(module)
    if hasattr(cls, "_gradof_original"):
        raise InputError("this module is differentiated already", hint="use it as it is")
    if runs_as_it_is(module):
        return shell(module, functools.partial(
            differentiate_module, static_argnames=static_argnames, strict=strict,
            memory_budget=memory_budget, numerics=numerics, cuda_graph=cuda_graph, audit=audit,
        ))  # fmt: skip
    forwards = _Forwards(module, functools.partial(
        Differentiated, static_argnames=static_argnames, strict=strict,
        memory_budget=memory_budget, numerics=numerics, cuda_graph=cuda_graph, audit=audit,
    ))  # fmt: skip

    def reduce(self: Any, protocol: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return differentiate_module, (
            module, static_argnames, strict, memory_budget, numerics, cuda_graph, audit
        )  # fmt: skip

    result: Any = object.__new__(_subclass(cls, _members(module, forwards, reduce)))
    object.__setattr__(result, "__dict__", module.__dict__)  # a scripted module has its own
    keep_state(module, result)
    return result


def _members(module: Any, forwards: _Forwards, reduce: Callable[..., Any]) -> dict[str, Any]:
    """What the class of a differentiated module has of its own."""

    def set_forward(self: Any, new: Any) -> None:
        self.__dict__["forward"] = new

    def set_class(self: Any, new: type) -> None:
        if not issubclass(new, type(self)):  # a lazy module becomes another at its first call;
            module.__class__ = new  # `fully_shard` makes a subclass of what it is given
            new = _subclass(new, members)
        vars(object)["__class__"].__set__(self, new)

    members: dict[str, Any] = {
        # before what the instance has
        "forward": property(forwards.now, set_forward),
        "__class__": property(type, set_class),
        "__reduce_ex__": reduce,
        "__prepare_scriptable__": not_scripted,
        "_gradof_original": property(lambda self: module),
        "trace": lambda self, *a, **k: forwards.compiled().trace(*a, **k),
        "gradient": lambda self, *a, **k: forwards.compiled().gradient(*a, **k),
        "explain": lambda self, *a, **k: forwards.compiled().explain(*a, **k),
        "explore": lambda self, *a, **k: forwards.compiled().explore(*a, **k),
        "lint": lambda self, *a, **k: forwards.compiled().lint(*a, **k),
        "find_nan": lambda self, *a, **k: forwards.compiled().find_nan(*a, **k),
        "audit_info": lambda self: forwards.compiled().audit_info(),
        "cache_info": lambda self: forwards.cache_info(),
    }
    return members


def _subclass(cls: Any, members: dict[str, Any]) -> type:
    """A subclass that looks like the class: hooks ask for its name, torch.fx for its forward."""
    names = {"__doc__": cls.__doc__, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    meta = type(type(cls).__name__, (type(cls),), {"forward": property(lambda _: cls.forward)})
    made: type = meta(cls.__name__, (cls,), {**members, **names})
    return made


def _is_uninitialized(module: Any) -> bool:
    """Whether a lazy module among its modules waits for the shapes of its first call."""
    from torch.nn.parameter import is_lazy  # not at the top: numpy users may have no torch

    own = ((m._parameters, m._buffers) for m in module.modules())
    return any(is_lazy(p) for tables in own for table in tables for p in table.values())


def _scripted(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The forward of modules of torch.jit, which have it from torch."""
    return self.forward(*args, **kwargs)


class _Forwards:
    """The compiled forward of a module: one for each function that stands there."""

    def __init__(self, module: Any, make: Callable[..., Differentiated]) -> None:
        self._module, self._make = module, make
        found = inspect.getattr_static(type(module), "forward", None)
        self._is_scripted = type(found).__name__ == "_CachedForward"  # torch.jit has the function
        self._own = self._own_forward()
        self._made: dict[Any, Differentiated] = {}
        self._is_lazy = _is_uninitialized(module)
        self._latest: tuple[Any, Differentiated] | None = None  # a function and its compiled form
        self.compiled()

    def _own_forward(self) -> Any:
        """The forward that was put on the instance; not the one that torch.jit keeps there."""
        own = self._module.__dict__.get("forward")
        return None if self._is_scripted and type(own).__name__ == "ScriptMethod" else own

    def _of_class(self) -> Any:
        return _scripted if self._is_scripted else type(self._module).forward

    def now(self, _: Any) -> Any:
        """What `module.forward` is; one that was put on the instance since runs as it is.

        So does the call in which lazy modules find their parameters' shapes.
        """
        own = self._own_forward()
        if own is None and self._latest is not None:  # as nearly always: every call asks
            forward, compiled = self._latest
            if self._of_class() is forward:
                return compiled
        if own is not self._own and own is not None:
            return own
        self._is_lazy = self._is_lazy and _is_uninitialized(self._module)
        if self._is_lazy:
            return self._module.forward
        compiled = self.compiled()
        self._latest = (self._of_class(), compiled) if own is None else None
        return compiled

    def compiled(self) -> Differentiated:
        """The compiled forward, of the class as it is now or of the instance."""
        own = self._own if "forward" in self._module.__dict__ else None
        forward = self._of_class() if own is None else own
        made = self._made.get(forward)
        if made is None:
            bound = MethodType(forward, self._module) if own is None else own
            made = self._made[forward] = self._make(bound)
        return made

    def cache_info(self) -> CacheInfo:
        """The sums over all of them."""
        infos = [made.cache_info() for made in self._made.values()]
        return CacheInfo(*map(sum, zip(*infos, strict=True)))
