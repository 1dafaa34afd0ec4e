"""differentiate(module): a torch module whose forward is compiled.

The result shares the module's `__dict__`, so parameters, buffers, hooks, `state_dict` and
`train()`/`eval()` are the same objects, and it is an instance of a subclass of the module's
class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

from gradof.errors import InputError
from gradof.runtime.function import Differentiated
from gradof.runtime.refuse import Numerics
from gradof.runtime.shell import keep_state, runs_as_it_is, shell


def differentiate_module(
    module: Any, static_argnames: tuple[str, ...], strict: bool = False,
    memory_budget: float | None = None, numerics: Numerics = "eager", cuda_graph: bool = False,
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
            memory_budget=memory_budget, numerics=numerics, cuda_graph=cuda_graph,
        ))  # fmt: skip
    own = module.__dict__.get("forward")  # of this instance: a scripted module has one
    forward_ = MethodType(cls.forward, module) if own is None else own
    compiled = Differentiated(
        forward_, static_argnames, strict, memory_budget, numerics, cuda_graph
    )

    def forward(self: Any) -> Any:
        now = self.__dict__.get("forward")
        return compiled if now is own else now

    def set_forward(self: Any, new: Any) -> None:
        self.__dict__["forward"] = new

    def reduce(self: Any, protocol: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return differentiate_module, (
            module, static_argnames, strict, memory_budget, numerics, cuda_graph
        )  # fmt: skip

    members: dict[str, Any] = {
        "forward": property(forward, set_forward),  # before what the instance has
        "__reduce_ex__": reduce,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "_gradof_original": property(lambda self: module),
        "trace": lambda self, *a, **k: compiled.trace(*a, **k),
        "gradient": lambda self, *a, **k: compiled.gradient(*a, **k),
        "explain": lambda self, *a, **k: compiled.explain(*a, **k),
        "lint": lambda self, *a, **k: compiled.lint(*a, **k),
        "find_nan": lambda self, *a, **k: compiled.find_nan(*a, **k),
        "cache_info": lambda self: compiled.cache_info(),
    }
    subclass = type(f"Differentiated{cls.__name__}", (cls,), members)
    result: Any = object.__new__(subclass)
    object.__setattr__(result, "__dict__", module.__dict__)  # a scripted module has its own
    keep_state(module, result)
    return result
