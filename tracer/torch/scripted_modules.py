"""Graphs of torch.jit as functions of all that they read: of a module, and tensors they keep.

    %w : Tensor = prim::GetAttr[name="weight"](%lin)      an input, the module's `lin.weight`
    %t : bool = prim::GetAttr[name="training"](%self)     a constant, as it is now
    %c : Tensor = prim::Constant[value=...]()             an input, the tensor that the graph has

Which values these are, the guard of a trace looks at (`gradof.tracer.state.scripted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gradof.errors import UnsupportedOpError
from gradof.tracer.state.scripted import are_tensors, is_plain
from gradof.tracer.state.source import user_loc

_private: Any = torch._C
_REFUSED = {
    "prim::SetAttr": "sets an attribute of it",
    "prim::CallMethod": "calls a method of an interface",
}

_DEEP = 100  # calls within calls
_UNSEEN = {
    "prim::PythonOp": "calls a function of Python's",
}
# Of a tensor of no dims with one of these the type is the first's: but not with a number.
_HALF = torch.zeros((), dtype=torch.half)
_NARROW = {
    torch.int64: torch.zeros((), dtype=torch.int8), torch.float32: _HALF, torch.float64: _HALF,
}  # fmt: skip


def without_self(method: Any) -> tuple[Any, list[torch.Tensor], set[str]]:
    """The graph of a method without the module, the tensors that are its last inputs, and the names
    that it reads.

    Raises UnsupportedOpError for a method that changes its module, or reads what is not compared.
    """
    graph = inlined(method)
    owners = {next(graph.inputs()).debugName(): method.owner}
    reads, read = _Reads(graph), list[Any]()
    written = graph.alias_db().has_writers
    for node in _nodes(graph):
        if node.kind() in _REFUSED:
            raise _refusal(method, _REFUSED[node.kind()])
        if node.kind() != "prim::GetAttr":
            continue
        read.append(node)
        name, owner = node.s("name"), owners.get(node.inputsAt(0).debugName())
        if owner is None:
            raise _refusal(method, f"reads {name} of one of several objects")
        value, out = owner.getattr(name), node.output()
        if isinstance(value, list) and written(out):
            raise _refusal(method, f"may change {name}, a list")
        if isinstance(value, torch.ScriptModule):
            owners[out.debugName()] = value
        elif (made := reads.made(node, value)) is not None:
            out.replaceAllUsesWith(made)
        else:
            raise _refusal(method, f"reads {name}, a {type(value).__name__}")
    names = {node.s("name") for node in read}
    for node in reversed(read):
        if list(node.output().uses()):
            raise _refusal(method, f"hands on {node.s('name')}, an object of it")
        node.destroy()
    graph.eraseInput(0)
    return graph, reads.tensors, names


class _Reads:
    """What a graph has for values that it has read of a module."""

    def __init__(self, graph: Any) -> None:
        self.tensors: list[torch.Tensor] = []
        self._graph = graph
        self._inputs: dict[int, Any] = {}

    def made(self, node: Any, value: Any) -> Any:
        """A constant, inputs for tensors, or None for a value that is neither."""
        self._graph.setInsertPoint(node)
        if is_plain(tuple(value) if isinstance(value, list) else value):
            return self._graph.insertConstant(value)
        if isinstance(value, torch.Tensor):
            return self._input(value)
        if not isinstance(value, list) or not are_tensors(tuple(value)):
            return None
        parts = [self._input(tensor) for tensor in value]
        made = self._graph.insertNode(self._graph.create("prim::ListConstruct", parts, 1)).output()
        made.setType(_private.ListType(_private.TensorType.get()))
        return made

    def _input(self, tensor: torch.Tensor) -> Any:
        if id(tensor) not in self._inputs:
            made = self._inputs[id(tensor)] = self._graph.addInput()
            made.setType(_private.TensorType.get())
            self.tensors.append(tensor)
        return self._inputs[id(tensor)]


def without_constants(graph: Any) -> list[torch.Tensor]:
    """The tensors that a graph keeps, as one of torch.jit.trace does; they are its last inputs."""
    nodes = [
        node for node in _nodes(graph)
        if node.kind() == "prim::Constant" and node.hasAttribute("value")
        and node.kindOf("value") == "t" and not _is_number(node.t("value"))
    ]  # fmt: skip
    found = [node.t("value") for node in nodes]
    for node in nodes:
        made = graph.addInput()
        made.setType(_private.TensorType.get())
        node.output().replaceAllUsesWith(made)
        node.destroy()
    return found


def _is_number(tensor: torch.Tensor) -> bool:
    """Whether it is how torch has a number of Python's, such as the 2 of `x * 2`."""
    if tensor.dim() or tensor.dtype not in _NARROW:
        return False
    with torch._C.DisableTorchFunction():
        return torch.result_type(_NARROW[tensor.dtype], tensor) is not tensor.dtype


def inlined(function: Any) -> Any:
    """The graph of a function or method with those of all that it calls: torch's goes one deep.

    Raises UnsupportedOpError for one of which the trace would not see all.
    """
    graph = function.inlined_graph
    for _ in range(_DEEP):  # what is left then are methods of interfaces
        if graph.findAllNodes("prim::fork"):
            _private._jit_pass_inline_fork_wait(graph)
        elif not (
            graph.findAllNodes("prim::CallMethod") + graph.findAllNodes("prim::CallFunction")
        ):
            break
        _private._jit_pass_inline(graph)
    _without_futures(graph)
    for kind, what in _UNSEEN.items():
        if graph.findAllNodes(kind):
            raise UnsupportedOpError(
                f"{function.name}, a scripted function, {what}", loc=user_loc(),
                hint="use the function as it was before torch.jit.script",
            )
    return graph


def _without_futures(graph: Any) -> None:
    """Where forked parts stand in the graph, what they give is there: nothing waits for it.

    They run one after the other, in the order in which they are forked.
    """
    for node in list(_nodes(graph)):
        params = [value for block in node.blocks() for value in block.inputs()]
        for value in (*node.outputs(), *params):
            if "Future" in value.type().annotation_str:
                value.setType(_given(value.type()))
        if node.kind() == "aten::wait":
            node.output().replaceAllUsesWith(node.inputsAt(0))
            node.destroy()


def _given(type_: Any) -> Any:
    """A type with what futures give in their places."""
    kind = type_.kind()
    if kind == "FutureType":
        return _given(type_.getElementType())
    if kind == "ListType":
        return _private.ListType(_given(type_.getElementType()))
    return type_


def _nodes(block: Any) -> Iterator[Any]:
    """The nodes of a block and of those within it, in order."""
    for node in list(block.nodes()):
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _refusal(method: Any, what: str) -> UnsupportedOpError:
    return UnsupportedOpError(
        f"{method.name} of a module of torch.jit {what}", loc=user_loc(),
        hint="use the module as it was before torch.jit.script or trace",
    )
