"""specialize_autograd_zero: df for known-undefined cotangents, as a plain graph of primitives.

Which outputs of f receive a gradient is known before df runs (it is part of the cache key), so
every symbolic zero folds away, together with what fed it:

    AutogradAdd of a zero and x         → x
    AutogradAdd of two values           → add, equal ones collected (`collect_terms`)
    GradOf with all cotangents zero     → zeros
    any other GradOf                    → its body, inlined
    a linear op, mul, mm ... of a zero  → a zero
    Loop                                → the same of its body, for all its steps

A gradient that is zero altogether leaves the outputs: eager gives None there. See Note [GradOf is
linear].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradof.autodiff.collect_terms import collect_terms
from gradof.errors import DifferentiationError
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph, inline
from gradof.ir.core import Graph, Node, Value
from gradof.ir.garbage import few_collections
from gradof.ir.loop import Loop, body_graph, is_loop, set_body
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType
from gradof.ops.expr import Emitter, F
from gradof.passes.pipeline import CLEAN_UP, run_passes

# Ops that are zero as soon as one of these operands is (they are linear in each of them).
_ZERO_OPERANDS = {
    "mul": (0, 1), "div": (0,), "mm": (0, 1), "bmm": (0, 1), "dynamic_slice": (0,),
    "dynamic_unslice": (0,),
}  # fmt: skip


@dataclass
class SpecializedDf:
    """A df without symbolic zeros.

    `inputs` are the positions among df's inputs that are left (defined cotangents and all
    captures); `outputs` those of df's outputs that are not zero altogether.
    """

    graph: Graph
    inputs: list[int]
    outputs: list[int]


@few_collections()
def specialize_autograd_zero(
    df: Graph, defined: Sequence[bool], wanted: Sequence[bool] | None = None
) -> SpecializedDf:
    """Fold df for cotangents of which `defined[i]` says whether cotangent i is given.

    `wanted`, one flag per output of df, drops gradients nobody asked for. Captures that are not
    read for what is left are no inputs. df itself is left as it was.
    """
    copy = clone_graph(df)
    folder = _Folder(copy, defined)
    folder.run()
    flags = [True] * len(copy.outputs) if wanted is None else list(wanted)
    if len(flags) != len(copy.outputs):
        raise DifferentiationError(f"df has {len(copy.outputs)} outputs, not {len(flags)}")
    outputs = [
        i for i, v in enumerate(copy.outputs) if flags[i] and v not in folder.zero
    ]
    copy.set_outputs([copy.outputs[i] for i in outputs])
    run_passes(copy, CLEAN_UP)
    if collect_terms(copy, folder.sums):
        run_passes(copy, CLEAN_UP)
    inputs = [
        i for i, v in enumerate(copy.inputs) if (defined[i] if i < len(defined) else v.has_uses)
    ]
    copy.block.remove_params(set(range(len(copy.inputs))).difference(inputs))
    return SpecializedDf(copy, inputs, outputs)


class _Folder:
    def __init__(self, graph: Graph, defined: Sequence[bool]) -> None:
        if len(defined) > len(graph.inputs):
            raise DifferentiationError(f"df has fewer than {len(defined)} inputs")
        self.graph = graph
        self.zero = {v for v, flag in zip(graph.inputs, defined, strict=False) if not flag}
        self.sums: set[Node] = set()  # of gradients

    def run(self) -> None:
        for node in list(self.graph.nodes()):
            if node.kind == "AutogradZero":
                self.zero.add(node.output)
            elif node.kind == "AutogradAdd":
                self.fold_sum(node)
            elif node.kind == "GradOf":
                self.fold_grad_of(node)
            elif is_loop(node):
                self.fold_loop(node)
            else:
                self.fold_plain(node)

    def fold_sum(self, node: Node) -> None:
        a, b = node.inputs
        if a in self.zero and b in self.zero:
            self.zero.add(node.output)
            return
        if a in self.zero or b in self.zero:
            kept = b if a in self.zero else a
        else:
            assert node.block is not None
            sum_ = Builder(node.block, node, node.loc).emit_node("add", a, b)
            self.sums.add(sum_)
            kept = sum_.output
        self.replace(node, kept)

    def fold_grad_of(self, node: Node) -> None:
        if all(v in self.zero for v in node.inputs):
            self.zero.update(node.outputs)
            return
        assert node.block is not None
        before = node._prev
        results = inline(node.blocks[0], [], node.block, node)
        new = before.next if before is not None else next(iter(node.block.nodes()))
        while new is not None and new is not node:
            following = new.next
            if new.kind == "AutogradZero":
                self.zero.add(new.output)
            elif is_loop(new):
                self.fold_loop(new)
            elif any(v in self.zero for v in new.inputs):
                results = self.fold_body(new, results)
            new = following
        for out, result in zip(node.outputs, results, strict=True):
            if result in self.zero:
                self.zero.add(out)
            else:
                out.replace_all_uses_with(result)
                if result.node is not None:  # df's inputs keep the names they came with
                    result.hint = out.hint or result.hint

    def fold_loop(self, node: Node) -> None:
        """Fold the body: what is carried is zero if it is at first, and a step leaves it so.

        Results that are zero are told apart here, and dropped as dead code later.
        """
        loop = Loop(node)
        pairs = (
            *zip(loop.constants, loop.constant_params, strict=True),
            *zip(loop.sequences, loop.row_params, strict=True),
        )
        given = {p.index for v, p in pairs if v in self.zero}
        first = 1 + len(loop.constants)
        carried = {k for k, v in enumerate(loop.initial) if v in self.zero}
        while True:
            body = body_graph(loop.body)
            zeros = given | {first + k for k in carried}
            inner = _Folder(body, [i not in zeros for i in range(len(body.inputs))])
            inner.run()
            zeros = {k for k, v in enumerate(body.outputs) if v in inner.zero}
            if carried <= zeros:
                break
            carried &= zeros
        count = len(loop.initial)
        self.zero.update(
            out for k, out in enumerate(node.outputs) if k in (carried if k < count else zeros)
        )
        inner.materialize(body.block.returns)
        run_passes(body, CLEAN_UP)
        if collect_terms(body, inner.sums):
            run_passes(body, CLEAN_UP)
        set_body(node, body)
        where = len(loop.constants) + (loop.count is not None)
        for k in range(where, where + count):
            if node.inputs[k] in self.zero and k - where not in carried:
                self.materialize_operand(node, k)

    def fold_body(self, node: Node, results: list[Value]) -> list[Value]:
        """Fold one inlined node; the results of the body follow what it is replaced with."""
        kept = self.zero_rule(node)
        if kept is None:
            return results
        out = node.output
        self.replace(node, kept)
        return [kept if r is out else r for r in results]

    def fold_plain(self, node: Node) -> None:
        if any(v in self.zero for v in node.inputs):
            kept = self.zero_rule(node)
            if kept is not None:
                self.replace(node, kept)

    def zero_rule(self, node: Node) -> Value | None:
        """The value a node with zero operands equals.

        None where it stays or became a zero itself.
        """
        tensors = [v for v in node.inputs if isinstance(v.type, TensorType)]
        if has_trait(node.kind, "linear") and all(v in self.zero for v in tensors):
            self.zero.update(node.outputs)
            return None
        if any(node.inputs[i] in self.zero for i in _ZERO_OPERANDS.get(node.kind, ())):
            self.zero.update(node.outputs)
            return None
        if node.kind in ("add", "sub") and all(v in self.zero for v in node.inputs):
            self.zero.update(node.outputs)
            return None
        if node.kind in ("add", "sub") and isinstance(node.output.type, TensorType):
            return self.other_side(node)
        if node.kind == "where" and node.inputs[1] in self.zero and node.inputs[2] in self.zero:
            self.zero.update(node.outputs)
            return None
        self.materialize(node)
        return None

    def other_side(self, node: Node) -> Value | None:
        a, b = node.inputs
        other = b if a in self.zero else a
        if other.type != node.output.type:
            self.materialize(node)
            return None
        if node.kind == "sub" and a in self.zero:
            assert node.block is not None
            return Builder(node.block, node, node.loc).emit("neg", other)
        return other

    def materialize(self, node: Node) -> None:
        """Give real zeros to a node that cannot be folded."""
        for i, value in enumerate(node.inputs):
            if value in self.zero:
                self.materialize_operand(node, i)

    def materialize_operand(self, node: Node, index: int) -> None:
        """Real zeros for one operand."""
        assert node.block is not None
        emitter = Emitter(Builder(node.block, node, node.loc))
        node.replace_input(index, _zeros(node.inputs[index], emitter))

    def replace(self, node: Node, kept: Value) -> None:
        hint = node.output.hint
        node.output.replace_all_uses_with(kept)
        kept.hint = kept.hint or hint
        # the node is dead now; dead-code elimination removes it


def _zeros(value: Value, emitter: Emitter) -> Value:
    assert isinstance(value.type, TensorType)
    if value.type.shape is None:
        raise DifferentiationError(
            "a zero gradient of unknown shape would have to be materialised",
            hint="give the graph's values their shapes",
        )
    return F.full.with_emitter(emitter)(
        dtype=value.type.dtype, shape=value.type.shape, device=value.type.device, value=0.0
    ).value
