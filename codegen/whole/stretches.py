"""Parts of a graph that are one native function each, between calls that are none.

Given  %h = mm(%x, %w);  %n = convolution(%i, %k);  %t = tanh(%h);  %y = add(%t, %n);  return (%y)
the result is
      %n = convolution(%i, %k)              # the library's
      %y = Stretch(%x, %w, %n)              # one call of machine code
        block(%x, %w, %n): %h = mm(%x, %w); %t = tanh(%h); %y = add(%t, %n) -> (%y)

Note [Phases]
What a function of `whole` can compute or call is *inside*: a torch caller's large kernels and
products, too. All else is *outside*: other calls of libraries, random numbers. A node inside is in
phase p if p calls outside, each of which needs a result of the phase before, come ahead of it; a
node outside has the phase that it waits for. All nodes inside of one phase are a stretch: no path
leads from it through the outside back to it. What follows from the graph's inputs alone waits for
its first reader, so that it does not fill memory early: what df computes again, as a rule.

Views are inside of every stretch that reads through them, and outside where others do.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradof import tuning
from gradof.codegen.fusion.rebuild import has_effect
from gradof.codegen.llvm.kernel import collapses, is_native
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.lowering.numpy import Library
from gradof.codegen.whole.kernels import reason_against_nest, takes
from gradof.codegen.whole.support import reason_against_node
from gradof.codegen.whole.views import CONSTANTS, VIEWS
from gradof.ir.clone import clone_node
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import is_loop
from gradof.ir.origins import joined
from gradof.ops.cost import is_expensive


def gather_stretches(graph: Graph, library: Library) -> Graph:
    """Put what native functions can compute between other calls into Stretch nodes."""
    groups = {n: schedule(n) for n in graph.nodes() if n.kind == "FusionGroup" and takes(n)}
    called = {n for n, nest in groups.items()
              if reason_against_nest(nest, library) is None}  # fmt: skip
    open_ = {n for n, nest in groups.items() if n not in called and _is_opened(n, nest, library)}
    graph, inside = _opened(graph, called, open_) if open_ else (graph, called)
    inside.update(n for n in graph.nodes() if n.kind != "FusionGroup" and _is_inside(n, library))
    return _Rebuild(graph, inside).run()


def _opened(graph: Graph, called: set[Node], groups: set[Node]) -> tuple[Graph, set[Node]]:
    """The graph without some groups, and the nodes that were in them, and those called, in it."""
    made, inside = _bare_copy(graph), set[Node]()
    mapping = {v: made.block.add_param(v.type, v.hint) for v in graph.inputs}
    for node in graph.nodes():
        if node not in groups:
            made.block.append(each := clone_node(node, mapping))
            if node in called:
                inside.add(each)
            continue
        (block,) = node.blocks
        mapping.update(zip(block.params, [mapping[v] for v in node.inputs], strict=True))
        for inner in block.nodes():
            made.block.append(each := clone_node(inner, mapping))
            if not _is_free(each):
                inside.add(each)
        mapping.update(zip(node.outputs, [mapping[v] for v in block.results], strict=True))
    made.set_outputs([mapping[v] for v in graph.outputs])
    return made, inside


def _is_opened(node: Node, nest: LoopNest, library: Library) -> bool:
    """Whether a group that would be numpy's tiles can be computed node by node.

    Rows that are no vector are computed number by number, in which functions take far longer.
    """
    nodes = list(node.blocks[0].nodes())
    short = nest.sizes[-1] < tuning.SEGMENT_COLUMNS
    if not is_native(nest) or collapses(nest):
        return False
    if short and any(is_expensive(each.kind) for each in nodes):
        return False
    return all(
        _is_free(each) or reason_against_node(each, library, tuning.STRETCH_KERNEL) is None
        for each in nodes
    )


def _bare_copy(graph: Graph) -> Graph:
    """A graph of that name, and of what was decided about it, without nodes."""
    made = Graph(graph.name)
    made.nan_safe, made.small_kernels, made.whole = graph.nan_safe, graph.small_kernels, graph.whole
    return made


def may_stretch(graph: Graph, library: Library) -> bool:
    """Whether there is so much inside that a function pays."""
    if graph.whole is False:
        return False
    count = 0
    for node in graph.nodes():
        count += _is_inside(node, library) and _worth(node)
        if count >= tuning.STRETCH_LEAST:
            return True
    return False


def _is_free(node: Node) -> bool:
    return node.kind in VIEWS or node.kind in CONSTANTS


def _is_inside(node: Node, library: Library) -> bool:
    if _is_free(node):
        return False
    if node.kind == "FusionGroup":
        return takes(node)
    most = tuning.STRETCH_CELLS
    return all(reason_against_node(each, library, most) is None for each in _within(node))


def _within(node: Node) -> Iterator[Node]:
    """A node and those of its blocks."""
    yield node
    for block in node.blocks:
        for each in block.nodes():
            yield from _within(each)


def _keeps_its_place(node: Node) -> bool:
    """Whether a node, or one of a loop's steps, keeps its order among others of its kind."""
    return any(map(has_effect, _within(node)))


def _worth(node: Node) -> int:
    """How many calls of numpy a node within a function spares; a loop has them at each step."""
    if is_loop(node):
        return tuning.STRETCH_LEAST
    return tuning.STRETCH_CALLS.get(node.kind, 1)


class _Rebuild:
    """The new graph, phase by phase."""

    def __init__(self, graph: Graph, inside: set[Node]) -> None:
        self.source, self.inside = graph, inside
        self.graph = _bare_copy(graph)
        self.mapping: dict[Value, Value] = {}
        self.phase: dict[Node, int] = {}

    def run(self) -> Graph:
        """The graph with Stretch nodes; nothing in the source is changed."""
        nodes = list(self.source.nodes())
        self.find_phases(nodes)
        self.sink(nodes)
        for param in self.source.inputs:
            self.mapping[param] = self.graph.block.add_param(param.type, param.hint)
        phases: dict[int, tuple[list[Node], list[Node]]] = {}
        for node in nodes:
            if not _is_free(node):
                phases.setdefault(self.phase[node], ([], []))[node in self.inside].append(node)
        for _, (outside, inside) in sorted(phases.items()):
            if sum(map(_worth, inside)) >= tuning.STRETCH_LEAST:
                for k in range(0, len(inside), tuning.WHOLE_MOST):
                    self.stretch(inside[k : k + tuning.WHOLE_MOST])
                self.append(outside)
            else:
                self.append(inside)
                self.append(outside)
        self.graph.set_outputs([self.outer(v) for v in self.source.outputs])
        return self.graph

    # --- phases; see Note [Phases] ----------------------------------------------------------------

    def find_phases(self, nodes: list[Node]) -> None:
        """The earliest phase of each node."""
        last_effect, after_outside = -1, False
        for node in nodes:
            mine = node in self.inside
            phase = 0 if mine else -1
            for value in node.inputs:
                maker = _base(value).node
                if maker is not None and maker in self.phase:
                    waits = mine and maker not in self.inside
                    phase = max(phase, self.phase[maker] + waits)
            if _keeps_its_place(node):
                phase = max(phase, last_effect + (mine and after_outside))
                last_effect, after_outside = phase, not mine
            if not _is_free(node) or node.kind in CONSTANTS:
                self.phase[node] = phase

    def sink(self, nodes: list[Node]) -> None:
        """Let what follows from inputs of the graph alone wait for its first reader."""
        early = set[Node]()
        for node in nodes:
            makers = (_base(v).node for v in node.inputs)
            if node in self.inside and not _keeps_its_place(node) and all(
                maker is None or _is_free(maker) or maker in early for maker in makers
            ):  # fmt: skip
                early.add(node)
        for node in reversed(nodes):
            if node not in early:
                continue
            readers = [r for out in node.outputs for r in _readers(out)]
            if all(r in self.phase for r in readers):  # not returned
                self.phase[node] = min(
                    (self.phase[r] for r in readers), default=self.phase[node]
                )  # fmt: skip

    # --- the new graph ----------------------------------------------------------------------------

    def append(self, nodes: list[Node]) -> None:
        """Nodes as they are."""
        for node in nodes:
            for value in node.inputs:
                self.outer(value)
            self.graph.block.append(clone_node(node, self.mapping))

    def outer(self, value: Value) -> Value:
        """A value outside of stretches, where a view of it is taken when it is first read."""
        if value not in self.mapping:
            assert value.node is not None
            for operand in value.node.inputs:
                self.outer(operand)
            self.graph.block.append(clone_node(value.node, self.mapping))
        return self.mapping[value]

    def stretch(self, nodes: list[Node]) -> None:
        """One Stretch node."""
        made = Node("Stretch", loc=joined(*(node.loc for node in nodes)))
        block, mine = made.add_block(), set(nodes)
        inner: dict[Value, Value] = {}
        for node in nodes:
            for value in node.inputs:
                self.read(value, made, block, inner)
            block.append(clone_node(node, inner))
        outputs = [v for node in nodes for v in node.outputs]
        results = [v for v in outputs if any(r not in mine for r in _readers(v))]
        block.returns.set_inputs([inner[v] for v in results])
        for value in results:
            self.mapping[value] = made.add_output(value.type, value.hint)
        self.graph.block.append(made)

    def read(self, value: Value, made: Node, block: Block, inner: dict[Value, Value]) -> None:
        """Have a value within a stretch, by the views that lead to it."""
        if value in inner:
            return
        node = value.node
        if node is not None and _is_free(node):
            for operand in node.inputs:
                self.read(operand, made, block, inner)
            block.append(clone_node(node, inner))
            return
        made.add_input(self.outer(value))
        inner[value] = block.add_param(value.type, value.hint)


def _base(value: Value) -> Value:
    """What a value is a view of."""
    while value.node is not None and value.node.kind in VIEWS:
        value = value.node.inputs[0]
    return value


def _readers(value: Value) -> Iterator[Node]:
    """What reads a value, directly or through views; the node that returns among them."""
    for use in value.uses:
        if use.node.kind in VIEWS:
            yield from _readers(use.node.output)
        else:
            yield use.node
