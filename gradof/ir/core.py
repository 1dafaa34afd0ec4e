"""Graph, Block, Node, Value, Use: a mutable SSA form owned by its graph.

    graph f(%a : f32[3], %b : f32[3]):
      %y : f32[3] = mul(%a, %b)
      return (%y)

`f.block.params` are `%a, %b`; `f.block.nodes()` yields the one node; `f.block.returns` is the
sentinel node whose inputs are the results, so a result is a use like any other.

Note [Uses are kept by the mutators]
Only the methods of Node and Block touch use lists. A `Use` is (user node, operand index), because
one node may use a value twice.

Note [Topological order]
Within a block a value is defined before it is used, and a nested block sees the values defined
before its node. `verify` checks it; `Node.is_before` compares positions in one block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from gradof.errors import IRError
from gradof.ir.attrs import Attr
from gradof.ir.loc import Loc as Loc
from gradof.ir.types import Type
from gradof.ir.value import Use as Use
from gradof.ir.value import Value as Value
from gradof.ir.value import use_of


class Node:
    """An operation; see the module docstring. Create with `Graph.create`, then insert."""

    __slots__ = (
        "_inputs", "_next", "_order", "_prev", "attrs", "block", "blocks", "kind", "loc", "outputs",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        inputs: Iterable[Value] = (),
        attrs: dict[str, Attr] | None = None,
        loc: Loc | None = None,
    ) -> None:
        self.kind = kind
        self.attrs: dict[str, Attr] = dict(attrs or {})
        self.loc = loc
        self.blocks: list[Block] = []
        self.outputs: list[Value] = []
        self.block: Block | None = None
        self._inputs: tuple[Value, ...] = ()
        self._prev: Node | None = None
        self._next: Node | None = None
        self._order = 0
        self._read(inputs)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The operands."""
        return self._inputs

    @property
    def output(self) -> Value:
        """The only output; IRError if there are several."""
        if len(self.outputs) != 1:
            raise IRError(f"{self.kind} has {len(self.outputs)} outputs, not one", loc=self.loc)
        return self.outputs[0]

    def add_input(self, value: Value) -> None:
        """Given `f(a)`; after `add_input(b)`: `f(a, b)`."""
        value._uses[use_of((self, len(self._inputs)))] = None
        self._inputs += (value,)

    def replace_input(self, index: int, value: Value) -> None:
        """Given `f(a, b)`; after `replace_input(1, c)`: `f(a, c)`."""
        use = Use(self, index)
        del self._inputs[index]._uses[use]
        self._inputs = (*self._inputs[:index], value, *self._inputs[index + 1 :])
        value._uses[use] = None

    def set_inputs(self, values: Sequence[Value]) -> None:
        """Replace all operands."""
        for i, old in enumerate(self._inputs):
            del old._uses[use_of((self, i))]
        self._read(values)

    def _read(self, values: Iterable[Value]) -> None:
        self._inputs = tuple(values)
        for i, value in enumerate(self._inputs):
            value._uses[use_of((self, i))] = None

    def remove_input(self, index: int) -> None:
        """Given `f(a, b, c)`; after `remove_input(1)`: `f(a, c)`."""
        self.set_inputs([v for i, v in enumerate(self._inputs) if i != index])

    def add_output(self, type_: Type, hint: str | None = None) -> Value:
        """Append an output of the given type."""
        value = Value(type_, self, len(self.outputs), hint, None)
        self.outputs.append(value)
        return value

    def remove_output(self, index: int) -> None:
        """Drop an unused output; IRError if it is used."""
        if self.outputs[index].has_uses:
            raise IRError(f"output {index} of {self.kind} is still used", loc=self.loc)
        del self.outputs[index]
        for i, value in enumerate(self.outputs):
            value.index = i

    def add_block(self) -> Block:
        """Append an empty nested block."""
        block = Block(self)
        self.blocks.append(block)
        return block

    def is_before(self, other: Node) -> bool:
        """Whether this node comes before `other` in their common block."""
        assert self.block is other.block and self.block is not None
        return self.block._order_of(self) < self.block._order_of(other)

    def erase(self) -> None:
        """Remove from the block, with the uses of the operands; IRError while outputs are used."""
        for value in self.outputs:
            if value.has_uses:
                user = next(iter(value._uses)).node
                raise IRError(
                    f"cannot erase {self.kind}: its output is used by {user.kind}", loc=self.loc
                )
        for block in self.blocks:
            block.clear()
        self.set_inputs([])
        self._let_go()
        if self.block is not None:
            self.block._unlink(self)

    def _let_go(self) -> None:
        """Point at nothing that points back: then its memory is free at once, without a search
        for dead cycles."""
        for block in self.blocks:
            block.params, block.returns.block = [], None
        self.outputs, self.blocks = [], []

    def move_before(self, anchor: Node) -> None:
        """Move this node to just before `anchor`, possibly into another block."""
        assert self.block is not None and anchor.block is not None
        if anchor is self:
            return
        self.block._unlink(self)
        anchor.block.insert_before(anchor, self)

    @property
    def next(self) -> Node | None:
        """The following node of the block, or None at its end."""
        assert self.block is not None
        return None if self._next is self.block.returns else self._next

    def __repr__(self) -> str:
        return f"<Node {self.kind} at {self.loc}>"


_SPACE = 1 << 192  # between the numbers of neighbours; Python's ints have no end


class Block:
    """Params, a doubly linked list of nodes, and a sentinel node whose inputs are the results."""

    __slots__ = ("_dirty", "_head", "owner", "params", "returns")

    def __init__(self, owner: Node | Graph) -> None:
        self.owner = owner
        self.params: list[Value] = []
        self.returns = Node("return")
        self.returns.block = self
        self._head: Node = self.returns  # first node, or the sentinel when empty
        self._dirty = False

    def add_param(self, type_: Type, hint: str | None = None) -> Value:
        """Append a block input."""
        value = Value(type_, None, len(self.params), hint, self)
        self.params.append(value)
        return value

    def remove_params(self, indices: Iterable[int]) -> None:
        """Drop unused block inputs; IRError if one is used."""
        gone = set(indices)
        for i in sorted(gone):
            if self.params[i].has_uses:
                raise IRError(f"input {i} of the block is still used")
        self.params = [value for i, value in enumerate(self.params) if i not in gone]
        for i, value in enumerate(self.params):
            value.index = i

    @property
    def results(self) -> tuple[Value, ...]:
        """The values the block returns."""
        return self.returns.inputs

    def nodes(self) -> Iterator[Node]:
        """Nodes in order. The current node may be erased while iterating."""
        node: Node = self._head
        while node is not self.returns:
            following = node._next
            yield node
            assert following is not None
            node = following if node.block is not self else node._next or following

    def reversed_nodes(self) -> Iterator[Node]:
        """Nodes, last first. The current node may be erased while iterating."""
        node = self.returns._prev
        while node is not None:
            previous = node._prev
            yield node
            node = previous

    def walk(self) -> Iterator[Node]:
        """Nodes in order, each followed by the nodes of its blocks."""
        for node in self.nodes():
            yield node
            for block in node.blocks:
                yield from block.walk()

    @property
    def parent(self) -> Block | None:
        """The block around this one, or None for the graph's own or an uninserted node's block."""
        return self.owner.block if isinstance(self.owner, Node) else None

    def append(self, node: Node) -> Node:
        """Insert at the end."""
        return self.insert_before(self.returns, node)

    def prepend(self, node: Node) -> Node:
        """Insert at the start."""
        return self.insert_before(self._head, node)

    def insert_before(self, anchor: Node, node: Node) -> Node:
        """Given `a; b`; after `insert_before(b, n)`: `a; n; b`."""
        if node.block is not None:
            raise IRError(f"{node.kind} is already in a block", loc=node.loc)
        assert anchor.block is self
        node.block = self
        return self._link(node, anchor)

    def _link(self, node: Node, anchor: Node) -> Node:
        previous = anchor._prev
        node._prev, node._next, anchor._prev = previous, anchor, node
        if previous is None:
            self._head = node
        else:
            previous._next = node
        if not self._dirty:
            self._number(node, previous, anchor)
        return node

    def _number(self, node: Node, previous: Node | None, anchor: Node) -> None:
        # A small part of the gap: most nodes are inserted one after the other.
        after = anchor._order - 2 * _SPACE if previous is None else previous._order
        gap = min(anchor._order - after, _SPACE)
        node._order = after + max(1, gap >> 6)
        self._dirty = gap < 2

    def emit(
        self, anchor: Node, kind: str, inputs: tuple[Value, ...], attrs: dict[str, Attr],
        loc: Loc | None, types: Iterable[Type],
    ) -> Node:  # fmt: skip
        """Make a node with outputs of these types, whose `attrs` are its own, before `anchor`.

        As `insert_before` of a new node, in one go: traces make very many.
        """
        node = Node.__new__(Node)
        node.kind, node.attrs, node.loc, node.block = kind, attrs, loc, self
        node.blocks, node.outputs, node._inputs, node._order = [], [], inputs, 0
        for i, value in enumerate(inputs):
            value._uses[use_of((node, i))] = None
        for i, type_ in enumerate(types):
            node.outputs.append(Value(type_, node, i, None, None))
        return self._link(node, anchor)

    def insert_after(self, anchor: Node, node: Node) -> Node:
        """Given `a; b`; after `insert_after(a, n)`: `a; n; b`."""
        assert anchor._next is not None
        return self.insert_before(anchor._next, node)

    def number_later(self) -> None:
        """Number the nodes when an order is first asked for: many are about to be inserted."""
        self._dirty = True

    def erase_all(self, nodes: Collection[Node]) -> None:
        """Erase nodes of this block whose outputs only they themselves use."""
        gone = set(nodes)
        for node in nodes:
            for i, value in enumerate(node._inputs):
                if value.node not in gone:
                    del value._uses[use_of((node, i))]
            for value in node.outputs:
                if not gone.issuperset([use[0] for use in value._uses]):
                    raise IRError(f"cannot erase {node.kind}: its output is used", loc=node.loc)
            for block in node.blocks:
                block.clear()
            self._unlink(node)
        for node in nodes:
            node._inputs = ()
            for value in node.outputs:
                value._uses.clear()
            node._let_go()

    def clear(self) -> None:
        """Erase every node, last first, and the results."""
        self.returns.set_inputs([])
        for node in self.reversed_nodes():
            node.erase()

    def _unlink(self, node: Node) -> None:
        if node._prev is None:
            assert node._next is not None
            self._head = node._next
        else:
            node._prev._next = node._next
        assert node._next is not None
        node._next._prev = node._prev
        # `_next` stays, so that an iteration standing on this node can go on.
        node.block = None
        node._prev = None

    def _order_of(self, node: Node) -> int:
        if self._dirty:
            order = 0
            for n in self.nodes():
                n._order = order
                order += _SPACE
            self.returns._order = order + (_SPACE << 64)
            self._dirty = False
        return node._order

    def __len__(self) -> int:
        return sum(1 for _ in self.nodes())


class Graph:
    """A named top-level block.

    `nan_safe` says how it is differentiated (`ops.nan_safe`), `small_kernels` and `whole` how it
    is compiled (`codegen.targets.choose`); copies and derivatives keep them.
    """
    __slots__ = ("block", "name", "nan_safe", "small_kernels", "whole")
    __hash__ = None  # type: ignore[assignment]  # mutable, compared by structure

    def __init__(self, name: str = "f") -> None:
        self.name = name
        self.nan_safe = self.small_kernels = False
        self.whole: bool | None = None
        self.block = Block(self)

    @property
    def inputs(self) -> list[Value]:
        """The graph's inputs."""
        return self.block.params

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The graph's outputs."""
        return self.block.results

    def set_outputs(self, values: Sequence[Value]) -> None:
        """Replace what the graph returns."""
        self.block.returns.set_inputs(values)

    def nodes(self) -> Iterator[Node]:
        """Top-level nodes, in order."""
        return self.block.nodes()

    def walk(self) -> Iterator[Node]:
        """All nodes, nested ones included."""
        return self.block.walk()

    def __eq__(self, other: object) -> bool:
        """Equal up to the naming of values: kinds, wiring, types, attributes, hints and lines."""
        if not isinstance(other, Graph):
            return NotImplemented
        from gradof.ir.clone import same_structure

        return self.name == other.name and same_structure(self.block, other.block)

    def __str__(self) -> str:
        from gradof.ir.printer import print_graph

        return print_graph(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.block)} nodes>"

    def _repr_html_(self) -> str:
        from gradof.ir.html import code, framed

        return framed(f"graph {self.name}, {len(self.block)} nodes", code(str(self)))
