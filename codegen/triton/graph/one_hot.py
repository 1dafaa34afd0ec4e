"""One-hot gathers and scatters by address: the one cell of a row is read or written where it is.

    gather(log_p(x), t)                     → log_p of gather(x, t): a number of each row
    sum(scatter_add(zeros, t, v), dim)      → v
    cast(scatter_add(zeros, t, v))          → scatter_add(zeros, t, cast(v))

The first leaves a gather of what was there before the cells were computed, which a kernel loads by
the index (`Space`). The second is of a cotangent of cross-entropy: the sum over the row is known.
One index a row is meant, in range (Note [One-hot gathers] in
`gradof.codegen.fusion.iteration_space`).
"""

from __future__ import annotations

from gradof import tuning
from gradof.codegen.fusion.iteration_space import is_one_hot
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.passes.purity import is_pure


def pick_from_memory(graph: Graph) -> None:
    """Gather operands in place of results; drop sums over what has one number."""
    for node in list(graph.nodes()):
        made = _summed(node) if node.kind == "sum" else None
        if node.kind == "cast":
            made = _cast(node)
        if node.kind == "gather" and is_one_hot(node):
            made = _Above(node).run()
        if made is not None and made is not node.output:
            made.hint = made.hint or node.output.hint
            node.output.replace_all_uses_with(made)
            node.erase()


def _summed(node: Node) -> Value | None:
    """The numbers that were scattered, in place of the sums of the rows."""
    source = _scattered(node.inputs[0])
    if source is None or node.attrs["dims"] != (source.attrs["dim"],):
        return None
    if node.attrs["keepdims"]:
        return source.inputs[2]
    assert node.block is not None
    builder = Builder(node.block, node, node.loc)
    return builder.emit("reshape", source.inputs[2], shape=shape_of(node.output))


def _cast(node: Node) -> Value | None:
    """The numbers cast and then scattered."""
    source = _scattered(node.inputs[0])
    if source is None:
        return None
    assert node.block is not None and source.inputs[0].node is not None
    builder = Builder(node.block, node, node.loc)
    dtype = node.attrs["dtype"]
    value = builder.emit("cast", source.inputs[2], dtype=dtype)
    zeros = builder.emit("full", **{**source.inputs[0].node.attrs, "dtype": dtype})
    return builder.emit("scatter_add", zeros, source.inputs[1], value, dim=source.attrs["dim"])


def _scattered(value: Value) -> Node | None:
    """The node that puts one number into each row of zeros, if the value is of one."""
    node = value.node
    if node is None or node.kind != "scatter_add" or not is_one_hot(node):
        return None
    onto = node.inputs[0].node
    zeros = onto is not None and onto.kind == "full" and onto.attrs["value"] == 0
    return node if zeros else None


class _Above:
    """A gather of cells as cells of gathers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        dim = node.attrs["dim"]
        assert isinstance(dim, int) and node.block is not None
        self.dim = dim
        self.builder = Builder(node.block, node, node.loc)
        self.whole = shape_of(node.inputs[0])
        self.made: dict[Value, Value] = {}
        self.ops = 0

    def run(self) -> Value | None:
        """The result; None where nothing is above, or too much."""
        source = self.node.inputs[0].node
        if source is None or not is_cells(source) or not self.are_few_above(source):
            return None
        return self.of(self.node.inputs[0])

    def are_few_above(self, node: Node) -> bool:
        """Whether the ops of cells above, itself one of them, are no more than are picked."""
        seen, todo = {node}, [node]
        while todo and len(seen) <= tuning.PICKED_OPS:
            above = {v.node for v in todo.pop().inputs if v.node is not None and self.is_above(v)}
            todo += above - seen
            seen |= above
        return len(seen) <= tuning.PICKED_OPS

    def is_above(self, value: Value) -> bool:
        return self.varies(value) and value.node is not None and is_cells(value.node)

    def varies(self, value: Value) -> bool:
        """Whether its cells along the dim differ."""
        shape = shape_of(value)
        mine = self.dim - (len(self.whole) - len(shape))
        return mine >= 0 and shape[mine] != 1

    def of(self, value: Value) -> Value:
        """The cells of a value that the index names."""
        if not self.varies(value):
            return value
        if value not in self.made:
            node = value.node
            if node is not None and is_cells(node):
                operands = [self.of(v) for v in node.inputs]
                self.made[value] = self.builder.emit(node.kind, *operands, **node.attrs)
            else:
                self.made[value] = self.gathered(value)
        return self.made[value]

    def gathered(self, value: Value) -> Value:
        if shape_of(value) != self.whole:
            value = self.builder.emit("expand", value, shape=self.whole)
        return self.builder.emit("gather", value, self.node.inputs[1], dim=self.dim)


def is_cells(node: Node) -> bool:
    """Whether it computes each cell by itself, and may be computed elsewhere."""
    return has_trait(node.kind, "elementwise") and is_pure(node) and len(node.outputs) == 1


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape; () of a number, and where it is known at run time only."""
    return value.shape or ()
