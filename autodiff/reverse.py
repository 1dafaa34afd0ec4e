"""add_reverse_inline: the reverse of a graph, as a block that may read every value of the forward.

    graph f(%x, %w):                       Reverse(%dy):
      %h = mm(%x, %w)                        %dh = GradOf[name='tanh'](%dy)
      %y = tanh(%h)                            block(): ... -> (mul(%dy, ...))
      return (%y)                            %dw = GradOf[name='mm'](%dh)  block(): ...
                                             return (%dw)

Note [GradOf is linear]
Each differentiated op becomes one GradOf node: its inputs are the cotangents of the op's outputs,
its body the op's rules. A rule is linear in the cotangents, so if all of them are zero, so are
all results, whatever the body would compute. Besides GradOf, the top level of the reverse holds
only AutogradAdd and AutogradZero.

Note [Broadcasting is undone here]
A rule may return a gradient of the op's broadcast shape. It is summed back to the operand's shape
in one place, `_undo_broadcast`, at every op: never at the end, where x - mean(x) would already be
wrong. Where shapes are only known at run time, the sizes are computed beside the forward and
captured instead of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradof.autodiff.loops import reverse_of_loop
from gradof.autodiff.requires_grad import (
    op_of,
    propagate_requires_grad,
    reaching,
)
from gradof.errors import DifferentiationError, UnsupportedOpError
from gradof.ir.builder import Builder
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import is_loop
from gradof.ir.types import TensorType
from gradof.ops.expr import Emitter, Expr, F
from gradof.ops.nan_safe import zero_where_unreached
from gradof.ops.opaque import ask_no_gradient
from gradof.ops.registry import Op, Refused
from gradof.ops.rules import input_name, rule_arguments
from gradof.passes.expand_composites import expand_composites_in


@dataclass
class ReverseDetails:
    """The reverse block (owned by an uninserted node) and which gradient belongs to which value."""

    block: Block
    grad_map: dict[Value, Value]
    input_vjps: list[int]  # f outputs that have a cotangent among the block's params
    output_vjps: list[int]  # f inputs whose gradient the block returns


def add_reverse_inline(
    graph: Graph, requires_grad: Sequence[bool], memory_budget: float | None = None
) -> ReverseDetails:
    """Build the reverse of `graph`; may add size nodes to it, right after the node they belong to,
    and outputs to loops: what their reverse reads of each step.

    `memory_budget` is that of `differentiate`, for the bodies of loops.

    Raises DifferentiationError for a node without a rule record (a GradOf that was not lowered).
    """
    return _ReverseBuilder(graph, requires_grad, memory_budget).build()


class _ReverseBuilder:
    def __init__(self, graph: Graph, flags: Sequence[bool], memory_budget: float | None) -> None:
        self.graph = graph
        self.memory_budget = memory_budget
        self.needs = propagate_requires_grad(graph, flags)
        for node in graph.nodes():
            if node.kind == "Opaque":
                ask_no_gradient(
                    node, [i for i, v in enumerate(node.inputs) if v not in self.needs]
                )
        self.flags = flags
        self.block = Node("Reverse").add_block()
        self.grads: dict[Value, Value] = {}

    def build(self) -> ReverseDetails:
        input_vjps = []
        for i, value in enumerate(self.graph.outputs):
            if value in self.needs:
                self.add_grad(value, self.block.add_param(value.type, _hint(value)))
                input_vjps.append(i)
        for node in list(self.graph.block.reversed_nodes()):
            if any(out in self.grads for out in node.outputs):
                if is_loop(node):
                    self.reverse_loop(node)
                else:
                    self.reverse_node(node)
        output_vjps, results = [], []
        for i, (value, flag) in enumerate(zip(self.graph.inputs, self.flags, strict=True)):
            if flag and value in self.grads:
                output_vjps.append(i)
                results.append(self.grads[value])
        self.block.returns.set_inputs(results)
        return ReverseDetails(self.block, self.grads, input_vjps, output_vjps)

    def add_grad(self, value: Value, grad: Value) -> None:
        """A second contribution is joined by AutogradAdd, which never broadcasts."""
        previous = self.grads.get(value)
        if previous is not None:
            made = value if value.node is not None else grad  # whose line the sum is given
            loc = None if made.node is None else made.node.loc
            grad = Builder(self.block, loc=loc).emit("AutogradAdd", previous, grad)
            grad.hint = _hint(value)
        self.grads[value] = grad

    def is_seeded(self, out: Value) -> bool:
        """Whether a cotangent has reached an output that is more than a symbolic zero."""
        grad = self.grads.get(out)
        return grad is not None and (grad.node is None or grad.node.kind != "AutogradZero")

    def cotangent(self, out: Value) -> Value:
        grad = self.grads.get(out)
        if grad is not None:
            return grad
        assert isinstance(out.type, TensorType)
        loc = None if out.node is None else out.node.loc
        zero = Builder(self.block, loc=loc).emit(
            "AutogradZero", dtype=out.type.dtype, shape=out.type.shape, device=out.type.device
        )
        zero.hint = _hint(out)
        # A rule may read this output (the vectors of eigh, for the gradient of its values): if it
        # is saved, lambda_lift_reverse gives it a cotangent here, for the second derivative.
        self.grads[out] = zero
        return zero

    def reverse_node(self, node: Node) -> None:
        record = op_of(node)
        outputs = [out for out in node.outputs if isinstance(out.type, TensorType)]
        differentiable = [o for o in outputs if o.type.dtype.is_inexact]  # type: ignore[union-attr]
        cotangents = {out: self.cotangent(out) for out in differentiable}
        grad_of = Node("GradOf", cotangents.values(), {"name": node.kind}, node.loc)
        body = grad_of.add_block()
        after = node._next
        assert after is not None
        emitter = Emitter(
            Builder(body, loc=node.loc), Builder(self.graph.block, after, node.loc)
        )
        results = self.rule_results(node, record, cotangents, emitter)
        body.returns.set_inputs([grad.value for _, grad in results])
        expand_composites_in(body)
        self.block.append(grad_of)
        for value in node.inputs if node.blocks else ():
            # A rule of the user's own may read what no gradient reaches yet; the second will.
            if value in self.needs and value.node is not None:
                self.cotangent(value)
        for value, grad in results:
            self.add_grad(value, grad_of.add_output(grad.value.type, _hint(value)))

    def reverse_loop(self, node: Node) -> None:
        """See `gradof.autodiff.loops`."""
        found = reverse_of_loop(
            node, self.needs, nan_safe=self.graph.nan_safe, memory_budget=self.memory_budget
        )
        # what is saved has a cotangent for the second derivative alone, which has no other paths
        reached = reaching(found.loop, {out for out in found.seeded if self.is_seeded(out)})
        cotangents = [self.cotangent(out) for out in found.seeded]
        grad_of = Node("GradOf", cotangents, {"name": node.kind}, node.loc)
        body = grad_of.add_block()
        made = found.emit(Builder(body, loc=node.loc), cotangents)
        parts = zip(found.operands, found.params, made, strict=True)
        results = [(value, grad) for value, param, grad in parts
                   if value in self.needs and param in reached]  # fmt: skip
        body.returns.set_inputs([grad for _, grad in results])
        self.block.append(grad_of)
        for value, grad in results:
            self.add_grad(value, grad_of.add_output(grad.type, _hint(value)))

    def rule_results(
        self, node: Node, record: Op, cotangents: dict[Value, Value], emitter: Emitter
    ) -> list[tuple[Value, Expr]]:
        results: list[tuple[Value, Expr]] = []
        for name in record.vjp:
            positions = [i for i in range(len(node.inputs)) if input_name(record, i) == name]
            wanted = [i for i in positions if node.inputs[i] in self.needs]
            rule = record.vjp[name]
            if rule is None or not wanted:
                continue
            if isinstance(rule, Refused):
                raise UnsupportedOpError(
                    f"the gradient of {record.name} in its operand {name}: {rule.reason}",
                    loc=node.loc,
                    hint="keep that operand constant: argnums without it, or a number",
                )
            arguments = rule_arguments(node, record, record.reads[name], cotangents, emitter)
            grads = rule(**arguments)
            listed = list(grads) if record.variadic else [grads]
            if len(listed) != len(positions):
                raise DifferentiationError(
                    f"the rule of {record.name} gives {len(listed)} gradients for "
                    f"{len(positions)} operands", loc=node.loc,
                )
            for i, grad in zip(positions, listed, strict=True):
                if i in wanted and grad is not None:
                    if self.graph.nan_safe:
                        grad = zero_where_unreached(node, record, grad, cotangents, emitter)
                    reduced = _undo_broadcast(grad, node, node.inputs[i], emitter)
                    results.append((node.inputs[i], reduced))
        return results


def _undo_broadcast(grad: Expr, node: Node, operand: Value, emitter: Emitter) -> Expr:
    """See Note [Broadcasting is undone here]."""
    want = operand.type
    assert isinstance(want, TensorType)
    if grad.dtype.is_complex and want.dtype.is_float:
        grad = F.real(grad)  # what a real number cannot follow
    have = grad.type
    if have.dtype != want.dtype:
        raise DifferentiationError(
            f"the rule of {node.kind} gives a gradient of dtype {have.dtype} for {want}",
            loc=node.loc,
        )
    if want.shape is not None and have.shape is not None:
        return grad if want.shape == have.shape else F.sum_to(grad, shape=want.shape)
    operands = [v for v in node.inputs if isinstance(v.type, TensorType)]
    if len(operands) < 2 or "elementwise" not in op_of(node).traits:
        return grad
    forward = emitter.forward
    size = forward.emit(
        "_size_if_not_equal", forward.emit("size", operand), forward.emit("size", node.outputs[0])
    )
    return F._grad_sum_to_size(grad, emitter.wrap(size))


def _hint(value: Value) -> str:
    return "d" if value.hint is None else f"d{value.hint}"
