"""What f saves for df: a minimum cut between what is there and what the reverse reads.

Given  %z = add(%x, %b);  %e = erf(%z);  %y = mul(%z, %e)  with large arrays, whose reverse reads
%z and %e: saving both takes two arrays. The cut {%x, %b} takes none that is not there anyway, so
the reverse computes %z and %e again, which a fused loop does while it reads %x.

Note [Save or recompute]
The network has a node pair per value, joined by an edge whose capacity is what saving the value
costs: its bytes; a tenth of them where it is an input or an output of f, which somebody else may
hold as well; a sixteenth more where it may run twice, few instructions compute it and only fused
loops read it: they would have to write it, while what it is computed from is in memory. Of a norm
of a product, the product and the mean of each row are saved, not their difference. But what is read
on both sides of a product, as the sum of a residual is, has to be in memory. (With `kernels` not so
of what is small beside the largest array: 1/std of a row is saved, not its square. Under a budget
bytes alone count.) The source feeds inputs and the results of nodes that must not run twice,
operands feed results, and what the reverse reads feeds the sink. The cut edges are the captures.

Without a budget only pointwise ops and views of large arrays (`KERNEL_CELLS`) run twice, and of
those with many instructions at most `CAPTURE_CALLS` in a row: less than what writing and reading
their results takes. Small arrays are saved: they cost nothing but their bytes. Where kernels fuse
arrays of any size (`kernels`), any may be computed again: what is not saved of a cast of a weight
is neither written nor read. A `memory_budget` below 1 lets further nodes run twice, in order:
pointwise ones and reductions, by bytes of their results; then products and all other pure nodes:
every second one, then every fourth and so on. What is saved is then spread evenly, so that the peak
falls too: one long stretch would hold more than was spared. As each step only adds nodes that may
run twice, the least cut never grows; the first step is taken whose captures have at most that share
of the bytes that are captured without a budget. At 0, inputs alone are captured, and random
results. Random numbers and effects never run twice.

A cut that tears a comparison (Note [Torn comparisons]) is sought again: what was selected from
something that is computed again is not to be in it, and may run twice as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradof import tuning
from gradof.autodiff.cut import Network, minimum_cut
from gradof.autodiff.optimize import all_nodes, captured_uses
from gradof.autodiff.recompute import recompute
from gradof.autodiff.regions import checkpointed
from gradof.autodiff.reverse import ReverseDetails
from gradof.autodiff.step import Step
from gradof.ir.core import Graph, Node, Value
from gradof.ir.extent import example
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType
from gradof.ops.cost import is_expensive
from gradof.passes.purity import is_constant, is_pure, is_view
from gradof.passes.torn import jumps, torn

_REDUCTIONS = frozenset({
    "sum", "prod", "amax", "amin", "even_max", "even_min", "mean", "any", "all", "argmax", "argmin",
})  # fmt: skip


def choose_captures(
    graph: Graph, reverse: ReverseDetails, budget: float | None = None, *, kernels: bool = False,
    overwritten: frozenset[Value] = frozenset(), step: Step | None = None,
    unlimited: int | None = None,
) -> None:  # fmt: skip
    """Let the reverse compute again what is cheaper so; see Note [Save or recompute].

    Nothing is computed again from inputs that are `overwritten` before it runs. `step` says that
    the graph is the body of a loop; `unlimited` are the bytes that the budget is a share of, where
    that is not what is captured of this graph without one.
    """
    captured = dict.fromkeys(v for _, _, v in captured_uses(graph, reverse.block))
    if step is None and not any(_is_saved(v, graph) for v in captured):
        return
    inside = checkpointed(graph)
    free = _free(graph, 1 if kernels else tuning.KERNEL_CELLS) | inside
    free -= {node for node in free if not overwritten.isdisjoint(node.inputs)}
    again = [v for v in captured if v.node in free and v.node is not None and not is_view(v.node)]
    if budget is None and not again and step is None:
        return
    dear = _least_dear(graph) if kernels else 0
    held = frozenset() if step is None else step.held(graph)
    asked = _Asked(graph, list(captured), [n for n in all_nodes(reverse.block) if jumps(n)])
    cut = _least_cut(asked, free, inside, held, dear)
    if budget is not None and budget < 1.0:
        now = saved_bytes(cut, graph)
        limit = budget * (now if unlimited is None else unlimited)
        if now > limit:
            cut = _within(asked, free, inside, held, limit, cut)
    halves = budget is not None and budget < 1.0
    recompute(graph, reverse.block, set(cut), apart=halves or bool(inside), halves=halves)


@dataclass
class _Asked:
    """What the reverse reads of a graph, and its nodes that compare."""

    graph: Graph
    captured: list[Value]
    jumps: list[Node]


def saved_bytes(values: Sequence[Value], graph: Graph) -> int:
    """Bytes of what is saved beyond the graph's own inputs and outputs."""
    return sum(_bytes(v) for v in values if _is_saved(v, graph))


def _is_saved(value: Value, graph: Graph) -> bool:
    return value.node is not None and value not in graph.outputs


def _bytes(value: Value) -> int:
    if isinstance(value.type, TensorType) and value.type.shape is not None:
        return example(value.type.nbytes)
    return 64  # a scalar or a size: a Python object


def _has_cells(value: Value, least: int) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType) and type_.shape is not None and type_.size >= least


def _runs_twice_for_free(node: Node, least: int) -> bool:
    if is_constant(node) or is_view(node):
        return True
    large = any(_has_cells(v, least) for v in node.outputs)
    return has_trait(node.kind, "elementwise") and is_pure(node) and large


def _free(graph: Graph, least: int) -> set[Node]:
    """Nodes that run twice without a budget: few expensive ones in a row (`CAPTURE_CALLS`).

    Pointwise ones are of arrays with `least` elements or more.
    """
    depth: dict[Node, int] = {}
    for node in graph.nodes():
        if _runs_twice_for_free(node, least):
            below = [depth.get(v.node, 0) for v in node.inputs if v.node is not None]
            total = max(below, default=0) + is_expensive(node.kind)
            if total <= tuning.CAPTURE_CALLS:
                depth[node] = total
    return set(depth)


def _least_cut(
    asked: _Asked, twice: set[Node], inside: set[Node], held: frozenset[Value],
    dear: int | None = None,
) -> list[Value]:  # fmt: skip
    """The cheapest values from which all captured ones follow by nodes that may run twice.

    Results of nodes `inside` a checkpointed region are not saved at any cost. Inputs and outputs
    that are `held` by f alone cost what others do. What loops would
    have to write is dearer from `dear` bytes on, but not under a budget, which is one of bytes.
    """
    again, inside = set(twice), set(inside)
    cut = _cut(asked, again, inside, held, dear)
    while new := {v.node for v in _torn(asked, cut) if v.node and is_pure(v.node)} - inside:
        again |= new
        inside |= new
        cut = _cut(asked, again, inside, held, dear)
    return cut


def _torn(asked: _Asked, cut: list[Value]) -> list[Value]:
    """What must not be saved beside what is computed again: Note [Torn comparisons]."""
    kept = set(cut)
    nodes, seen = list(asked.jumps), set(asked.captured)
    todo = list(asked.captured)
    while todo:
        value = todo.pop()
        if value in kept or value.node is None:
            continue
        if jumps(value.node):
            nodes.append(value.node)
        todo += [v for v in value.node.inputs if v not in seen]
        seen.update(value.node.inputs)
    return torn(nodes, kept.__contains__)


def _cut(
    asked: _Asked, twice: set[Node], inside: set[Node], held: frozenset[Value], dear: int | None
) -> list[Value]:
    graph, captured = asked.graph, asked.captured
    costs: dict[Value, int] = {}
    feeds: dict[Value, list[Value]] = {}  # value -> what is computed again from it
    levels = _levels(graph)
    todo = list(captured)
    while todo:
        value = todo.pop()
        node = value.node
        if value in costs or (node is not None and is_constant(node)):
            continue
        shared = (node is None or value in graph.outputs) and value not in held
        written = dear is not None and _bytes(value) >= dear and node in twice
        costs[value] = _cost(value, shared, written and _is_of_a_loop(value, levels))
        if node is not None and node in twice:
            for operand in node.inputs:
                feeds.setdefault(operand, []).append(value)
                todo.append(operand)
    roots = [v for v in costs if v.node is None or v.node not in twice]
    reads = [v for v in captured if v in costs]
    if not roots or not reads:
        return captured
    free = {v for v in costs if v.node in inside}
    cut = minimum_cut(Network(roots, costs, feeds, reads, free))
    order = (*graph.inputs, *(o for n in graph.nodes() for o in n.outputs))
    return [v for v in order if v in cut]


def _least_dear(graph: Graph) -> int:
    """Bytes from which a value is a pass over memory, and not what a row has beside its cells."""
    values = (*graph.inputs, *(v for n in graph.nodes() for v in n.outputs))
    return max(map(_bytes, values), default=0) // tuning.CAPTURE_ROW


def _cost(value: Value, shared: bool, of_a_loop: bool) -> int:
    """What saving a value costs, in sixteenths of bytes."""
    cost = 16 * _bytes(value)
    if shared:
        return max(1, cost // 10)
    return cost + cost // 16 if of_a_loop else cost


def _levels(graph: Graph) -> dict[Node, int]:
    """Of each node, how many calls that no loop is fused with lie before it, in a row."""
    levels: dict[Node, int] = {}
    for node in graph.nodes():
        makers = [v.node for v in node.inputs if v.node is not None]
        levels[node] = max((levels[m] + (not _is_fused(m)) for m in makers), default=0)
    return levels


def _is_fused(node: Node) -> bool:
    return (
        is_constant(node) or is_view(node) or node.kind in _REDUCTIONS
        or has_trait(node.kind, "elementwise")
    )  # fmt: skip


def _is_of_a_loop(value: Value, levels: dict[Node, int]) -> bool:
    """Whether few instructions compute it, and only the loop that does so reads it."""
    node = value.node
    if node is None or is_expensive(node.kind) or is_view(node):
        return False
    todo = [value]
    for at in todo:
        for use in at.uses:
            if is_view(use.node):
                todo += use.node.outputs
            elif levels.get(use.node, 0) > levels[node] or not _is_fused(use.node):
                return False
    return True


def _within(
    asked: _Asked, free: set[Node], inside: set[Node], held: frozenset[Value], limit: float,
    cut: list[Value],
) -> list[Value]:  # fmt: skip
    """The cut of the first step whose captures fit the limit, or of the last one."""
    steps = _steps(asked.graph, free)
    low, high = 0, len(steps)
    while low < high:  # captured bytes never grow from one step to the next
        middle = (low + high) // 2
        tried = _least_cut(asked, free.union(*steps[:middle]), inside, held)
        if saved_bytes(tried, asked.graph) <= limit:
            high = middle
        else:
            low = middle + 1
    return _least_cut(asked, free.union(*steps[:low]), inside, held) if low else cut


def _steps(graph: Graph, free: set[Node]) -> list[set[Node]]:
    """Nodes that may run twice under a budget, in the order in which they are let to."""
    steps: list[tuple[int, int, set[Node]]] = []
    spread: dict[int, set[Node]] = {}
    products = 0
    for node in graph.nodes():
        if node in free or not is_pure(node) or node.kind in ("Opaque", "python_call"):
            continue
        cheap = has_trait(node.kind, "elementwise")
        if cheap or node.kind in _REDUCTIONS:
            steps.append((0 if cheap else 1, -sum(map(_bytes, node.outputs)), {node}))
            continue
        products += 1
        spread.setdefault((products & -products).bit_length(), set()).add(node)
    steps += [(2, level, nodes) for level, nodes in spread.items()]
    return [nodes for _, _, nodes in sorted(steps, key=lambda step: step[:2])]
