"""Which values may carry a gradient: an over-approximation by one forward sweep."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gradof.errors import DifferentiationError
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import Loop, is_loop
from gradof.ir.opinfo import OPS
from gradof.ops.registry import Op
from gradof.ops.rules import input_name


def op_of(node: Node) -> Op:
    """The op record of a node; DifferentiationError for one that has none."""
    record = OPS.get(node.kind)
    if not isinstance(record, Op):
        raise DifferentiationError(
            f"{node.kind} cannot be differentiated", loc=node.loc,
            hint="specialise symbolic zeros and GradOf blocks first (specialize_autograd_zero)",
        )
    return record


def propagate_requires_grad(graph: Graph, flags: Sequence[bool]) -> set[Value]:
    """Values with a differentiable path from an input whose flag is set.

    Integer and boolean results never require grad, and an operand without a rule passes nothing on.
    """
    if len(flags) != len(graph.inputs):
        raise DifferentiationError(
            f"{graph.name} has {len(graph.inputs)} inputs, but {len(flags)} requires_grad flags",
            hint="pass one flag per input, or None for every floating-point input",
        )
    result = {v for v, flag in zip(graph.inputs, flags, strict=True) if flag and v.is_inexact}
    _spread(graph.block, result)
    return result


def needed_in_loop(loop: Loop, needs: Collection[Value]) -> set[Value]:
    """The values of a Loop's body that require grad, where `needs` do outside of it."""
    start = {
        param for param, value in (
            *zip(loop.constant_params, loop.constants, strict=True),
            *zip(loop.carried_params, loop.initial, strict=True),
            *zip(loop.row_params, loop.sequences, strict=True),
        )
        if value in needs and param.is_inexact
    }  # fmt: skip
    while True:
        found = set(start)
        _spread(loop.body, found)
        pairs = zip(loop.carried_params, loop.carried_results, strict=True)
        more = {param for param, result in pairs if result in found and param not in found}
        if not more:
            return found
        start |= more


def reaching(loop: Loop, seeds: Collection[Value]) -> set[Value]:
    """The params of a Loop's body from which a gradient path leads to `seeds`, some of its outputs.

    For as many steps as there are: what is carried in may be gone after two of them, and has no
    gradient then, as it has none in the unrolled program.
    """
    paths: dict[Value, set[Value]] = {}  # result of the body: the params it follows from
    for param in loop.body.params:
        found = {param}
        if param.is_inexact:
            _spread(loop.body, found)
        for result in loop.body.results:
            if result in found:
                paths.setdefault(result, set()).add(param)

    def before(live: frozenset[Value]) -> frozenset[Value]:
        ends = [r for p, r in zip(loop.carried_params, loop.carried_results, strict=True)
                if p in live]  # fmt: skip
        return frozenset().union(*(paths.get(r, ()) for r in (*ends, *rows)))

    rows = [r for out, r in zip(loop.stacks, loop.row_results, strict=True) if out in seeds]
    pairs = zip(loop.finals, loop.carried_params, strict=True)
    live = frozenset(p for out, p in pairs if out in seeds)
    back: dict[frozenset[Value], frozenset[Value]] = {}  # what is live after a step: before it
    for _ in range(loop.steps):
        after = live
        live = back[after] if after in back else back.setdefault(after, before(after))
        if live == after:
            break
    anywhere = frozenset[Value]().union(*back.values())  # constants and rows are read at any step
    if loop.count is not None:  # any number of steps may run
        return {*anywhere, *live, *frozenset().union(*back)}
    return {*(anywhere - set(loop.carried_params)), *live}


def _spread(block: Block, result: set[Value]) -> None:
    """Add the values of a block that follow from those of a set."""
    for node in block.nodes():
        if is_loop(node):
            loop = Loop(node)
            inside = needed_in_loop(loop, result)
            pairs = (
                *zip(loop.finals, loop.carried_params, strict=True),
                *zip(loop.stacks, loop.row_results, strict=True),
            )
            result.update(out for out, inner in pairs if inner in inside)
            continue
        record = op_of(node)
        if any(
            v in result and record.vjp.get(input_name(record, i)) is not None
            for i, v in enumerate(node.inputs)
        ):
            result.update(out for out in node.outputs if out.is_inexact)
