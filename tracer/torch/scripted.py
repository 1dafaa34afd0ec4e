"""Functions of torch.jit.script inside traced code run op by op.

    @torch.jit.script
    def gelu(x: torch.Tensor): ...

    @differentiate
    def loss(x): return gelu(x).sum()      # its ops are in the graph

torch's interpreter runs a function that it has optimized under an autograd of its own, of which a
trace sees nothing. So while a trace runs, a copy of it runs that was never optimized. Tensors that
the interpreter makes of numbers, as for `torch.tensor(0.5)`, are seen as they are read: they are
constants, as the numbers are. Of modules, too, the methods run so (`scripted_modules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from gradof.errors import UnsupportedOpError
from gradof.tracer.core.regions import is_recording
from gradof.tracer.state.source import user_loc
from gradof.tracer.state.unheard import unheard
from gradof.tracer.torch.functional import plainly
from gradof.tracer.torch.recorder import Recorder
from gradof.tracer.torch.scripted_modules import inlined, without_constants, without_self
from gradof.tracer.torch.state import OuterState

Lift = Callable[[torch.Tensor], torch.Tensor]
_Function: Any = torch.jit.ScriptFunction
_Method: Any = torch._C.ScriptMethod
_Module: Any = torch.jit._script.RecursiveScriptModule
_private: Any = torch._C
_jit: Any = torch.jit


@contextmanager
def scripted(recorder: Recorder, lift: Lift, outer: OuterState) -> Iterator[None]:
    """Within it, scripted functions run op by op on the threads that record.

    `lift` gives what stands for a tensor in the trace; `outer` is told what graphs read and keep.
    """
    call, call_method, set_there = _Function.__call__, _Method.__call__, _Module.__setattr__
    interpret = unheard(call)

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_recording():
            return call(function, *args, **kwargs)
        given = _bound(function.schema.arguments, args, kwargs)
        return follow(function.name, inlined(function), given)

    def run_method(method: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_recording():
            return call_method(method, *args, **kwargs)
        graph, held, names = without_self(method)
        outer.read(names)
        return follow(method.name, graph, _bound(method.schema.arguments[1:], args, kwargs) + held)

    def follow(name: str, graph: Any, given: list[Any]) -> Any:
        kept = without_constants(graph)
        for tensor in kept:
            outer.keep(tensor)
        _make_of_lists(name, graph)
        copy = _private._create_function_from_graph(name, graph)
        recorder.refused = None
        before, recorder.adopts = recorder.adopts, True
        try:
            # what Python runs here is torch's, and ours
            with torch._C.DisableTorchFunction():
                return interpret(copy, *[_lifted(a, lift) for a in given + kept])
        except RuntimeError:  # torch's interpreter has lost what it was
            if recorder.refused is None:
                raise
            raise recorder.refused from None
        finally:
            recorder.adopts = before

    def set_attribute(module: Any, name: str, value: Any) -> None:
        if not is_recording() or "_c" not in vars(module) or not module._c.hasattr(name):
            set_there(module, name, value)
            return
        raise UnsupportedOpError(
            f"{name} of a module of torch.jit is set", loc=user_loc(),
            hint="use the module as it was before torch.jit.script or trace",
        )

    _Function.__call__, _Method.__call__, _Module.__setattr__ = run, run_method, set_attribute
    try:
        with _jit.optimized_execution(False):
            yield
    finally:
        _Function.__call__, _Method.__call__, _Module.__setattr__ = call, call_method, set_there


def _make_of_lists(name: str, graph: Any) -> None:
    """Make tensors of lists of constants beforehand: under modes torch's interpreter crashes."""
    if any(_made_of_lists(graph)):
        with _disable_current_modes(), plainly():
            _private._jit_pass_constant_propagation(graph)
    if any(_made_of_lists(graph)):
        raise UnsupportedOpError(
            f"{name}, a scripted function, makes a tensor of a list", loc=user_loc(),
            hint="use the function as it was before torch.jit.script",
        )


def _made_of_lists(graph: Any) -> Iterator[Any]:
    for kind in ("aten::tensor", "aten::as_tensor"):
        for node in graph.findAllNodes(kind):
            if next(node.inputs()).type().kind() == "ListType":
                yield node


def _lifted(argument: Any, lift: Lift) -> Any:
    if isinstance(argument, torch.Tensor):
        return lift(argument)
    if type(argument) in (list, tuple):
        return type(argument)(_lifted(part, lift) for part in argument)
    if type(argument) is dict:
        return {key: _lifted(part, lift) for key, part in argument.items()}
    return argument


def _bound(arguments: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments by position, defaults included: a copy has neither names nor defaults."""
    made = list(args)
    for argument in arguments[len(args) :]:
        made.append(kwargs[argument.name] if argument.name in kwargs else argument.default_value)
    return made
