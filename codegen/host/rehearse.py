"""What a program's kernels will be given, found without running it, to compile them side by side.

    rehearsal = Rehearsal(graph, kernels, reads, fixed, namespace)
    rehearsal.compile_for(tensors)      # before the first run: then its launches find all compiled

A kernel is compiled at its first launch, for the strides and dtypes of its operands: one after the
other, a network's kernels take minutes. So the graph is gone through once with torch's meta
tensors, which have shapes and strides, and no memory. (Fake ones have a device, too, but the first
of them has torch import its compiler, for seconds.) What has an effect, or reads elements, is not
evaluated: its results are taken to be contiguous. Where a guess is wrong, or nothing could be told,
the kernel is compiled when it is launched, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradof.codegen.lowering.torch_calls import statement
from gradof.codegen.lowering.torch_ops import dtype_text
from gradof.codegen.triton.compiling import compile_at_once
from gradof.ir.attrs import Dense
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import TensorType
from gradof.passes.purity import is_pure

_LEFT_ALONE = frozenset({
    "Guard", "Opaque", "in_range", "attention", "attention_backward", "library_call",
    "library_gradient",
})  # fmt: skip


class Rehearsal:
    """See the module docstring. `kernels` are launches by fusion group; `fixed` names constants."""

    def __init__(
        self, graph: Graph, kernels: Mapping[Node, Any], reads: Mapping[Node, Sequence[int]],
        fixed: Mapping[Value, str], namespace: Mapping[str, Any], device: Callable[[Node], str],
    ) -> None:  # fmt: skip
        self.graph, self.kernels, self.reads = graph, kernels, reads
        self.fixed, self.namespace, self.device = fixed, namespace, device

    def compile_for(self, tensors: Sequence[Any]) -> None:
        """Compile what a call with these tensors launches."""
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        found: list[Any] = []
        known = {value: self.namespace[name] for value, name in self.fixed.items()}
        known |= zip(self.graph.inputs, tensors, strict=True)
        with _disable_current_modes(), torch.no_grad():
            values = {value: _without_memory(tensor) for value, tensor in known.items()
                      if isinstance(value.type, TensorType)}  # fmt: skip
            for node in self.graph.nodes():
                outs = self._results(node, values, found)
                values.update(zip(node.outputs, outs, strict=True))
        compile_at_once(found)

    def _results(self, node: Node, values: dict[Value, Any], found: list[Any]) -> Sequence[Any]:
        """Meta tensors for the outputs of a node; None where nothing is known of one."""
        if all(value in values for value in node.outputs):
            return [values[value] for value in node.outputs]  # constants
        if node in self.kernels:
            given = [values.get(node.inputs[k]) for k in self.reads[node]]
            if all(x is not None for x in given):
                launch = self.kernels[node]
                made: Sequence[Any] = launch.kernel.rehearse(given, launch.device, found)
                return made
        elif _is_evaluated(node) and all(values.get(v) is not None for v in node.inputs):
            try:
                return self._evaluated(node, values)
            except Exception:  # what a meta tensor cannot do; the call itself tells of the rest
                pass
        return [_contiguous(value) for value in node.outputs]

    def _evaluated(self, node: Node, values: Mapping[Value, Any]) -> Sequence[Any]:
        operands = [f"rehearsed{k}" for k in range(len(node.inputs))]
        device = self.device(node)
        space = {name: values[v] for name, v in zip(operands, node.inputs, strict=True)}
        text = statement(node, operands, device)
        made = eval(text, {**self.namespace, **space, device: "meta"})
        return [made] if len(node.outputs) == 1 else list(made)


def _is_evaluated(node: Node) -> bool:
    if node.kind == "Constant":
        return not isinstance(node.attrs["value"], Dense)
    return is_pure(node) and node.kind not in _LEFT_ALONE and not node.blocks


def _without_memory(tensor: Any) -> Any:
    import torch

    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
    )  # fmt: skip


def _contiguous(value: Value) -> Any:
    """A tensor of a type, as torch's functions mostly make it."""
    import torch

    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape is None:
        return None
    dtype = eval(dtype_text(type_.dtype), {"torch": torch})
    return torch.empty(type_.shape, dtype=dtype, device="meta")
