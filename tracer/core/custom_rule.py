"""Recording a rule of the user's own: what was traced after a `CustomRule` moves into its block.

    %y = CustomRule(%raw, %x)                %y = CustomRule(%raw, %x, %s)
    %c = copy(%y)      a stand-in for dy       block(%dy, %y, %s):
    %dx = mul(%c, %s)                     →      %dx = mul(%dy, %s)
    the trace goes on                            -> (%dx)
                                             the trace goes on

The rule is traced right after the function, on cotangents made up for the purpose; none of its
nodes may depend on their values by a branch. Guards that read only what the forward knows stay
outside, with what they read.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof.errors import CustomRuleError, DataDependentError
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_node
from gradof.ir.core import Loc, Node, Value
from gradof.ops.custom import has_cotangent
from gradof.passes.purity import is_pure


class RuleRecording:
    """One CustomRule on its way: `node.outputs` stand for the results from now on.

    `cotangents` has a stand-in per result, None for results that have no gradient.
    """

    def __init__(self, builder: Builder, raw: Sequence[Value], wrt: Sequence[Value]) -> None:
        self.builder = builder
        self.wrt = list(wrt)
        self.node = builder.emit_node("CustomRule", *raw, *wrt, results=len(raw), wrt=())
        for out, value in zip(self.node.outputs, raw, strict=True):
            out.hint, value.hint = value.hint, None if value.node is not None else value.hint
        self.cotangents = [
            builder.emit("copy", out) if has_cotangent(out.type) else None
            for out in self.node.outputs
        ]

    def close(self, grads: Sequence[Value | None], loc: Loc | None) -> list[Value]:
        """Move what was recorded since into the block; `grads` has one entry per `wrt`.

        Returns the values that are gone. Raises DataDependentError for a rule that branches on a
        cotangent, CustomRuleError for one that draws random numbers.
        """
        stand_ins = [c for c in self.cotangents if c is not None]
        recorded = self._recorded()
        kept = _needed_by_guards(recorded, loc, set(stand_ins))
        block = self.node.add_block()
        mapping = {c: block.add_param(c.type, _hint(out)) for c, out in zip(
            stand_ins, (o for o in self.node.outputs if has_cotangent(o.type)), strict=True
        )}  # fmt: skip
        mapping.update((o, block.add_param(o.type, o.hint)) for o in self.node.outputs)
        own = {out for node in recorded for out in node.outputs}
        wanted = [g for g in grads if g is not None]
        captured: list[Value] = []

        def bring(value: Value) -> None:
            if value in mapping or value in own:
                return
            if value.node is not None and value.node.kind == "Constant":
                mapping[value] = block.append(clone_node(value.node, {})).output
                return
            captured.append(value)
            mapping[value] = block.add_param(value.type, value.hint)

        for node in recorded:
            if node.kind == "Guard" or (node.outputs and node.outputs[0] in mapping):
                continue  # a stand-in
            for value in node.inputs:
                bring(value)
            if not is_pure(node):
                raise CustomRuleError(
                    f"a custom rule draws random numbers ({node.kind})", loc=node.loc or loc,
                    hint="draw them in the forward, and save them",
                )  # fmt: skip
            block.append(clone_node(node, mapping))
        for value in wanted:
            bring(value)
        block.returns.set_inputs([mapping[g] for g in wanted])
        first = len(self.node.outputs)
        places = tuple(first + i for i, g in enumerate(grads) if g is not None)
        self.node.attrs["wrt"] = places
        self.node.set_inputs([*self.node.inputs, *captured])
        return _erase([node for node in recorded if node not in kept])

    def _recorded(self) -> list[Node]:
        nodes = []
        node = self.node.next
        while node is not None and node is not self.builder.anchor:
            nodes.append(node)
            node = node.next
        return nodes


def _needed_by_guards(recorded: Sequence[Node], loc: Loc | None, unknown: set[Value]) -> set[Node]:
    kept: set[Node] = set()
    needed: set[Value] = set()
    for node in reversed(recorded):
        if node.kind == "Guard" or any(out in needed for out in node.outputs):
            if any(out in unknown for out in node.outputs):
                raise DataDependentError(
                    "a custom rule branches on the value of a cotangent", loc=loc,
                    hint="use where, so that the rule is the same for every cotangent",
                )  # fmt: skip
            kept.add(node)
            needed.update(node.inputs)
    return kept


def _erase(nodes: Sequence[Node]) -> list[Value]:
    gone: list[Value] = []
    for node in reversed(nodes):
        gone += node.outputs
        node.erase()
    return gone


def _hint(value: Value) -> str:
    return f"d{value.hint or ''}"
