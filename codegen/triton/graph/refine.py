"""Reshapes within a loop: what they join is computed in the dims that both sides have.

    %s : f32[64,32,32768] = reshape(%x)             of f32[64,256,64,64]: groups of eight channels
    %h = mul(sub(%s, %mean), %rstd)          →      all of it as f32[64,32,8,64,64], whose sums
    %y = mul(reshape(%h), %w)                       are over the last three dims

A reshape that splits or merges dims would end a loop before it and begin another one after it. In
finer dims it renames axes (Note [Views in groups] in `gradof.codegen.fusion.access`), and reshapes
of what is in memory are views. Dims that ops make equal are one class; each class is cut where any
reshape of one of its dims has an end of a dim. Where cuts do not divide one another, nothing is
changed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from gradof import tuning
from gradof.codegen.fusion.access import is_static, renames_axes
from gradof.codegen.fusion.iteration_space import REDUCTIONS
from gradof.codegen.triton.graph.one_hot import is_cells
from gradof.ir.attrs import Attr
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value

_VIEWS = frozenset({"reshape", "permute", "expand"})
_Dim = tuple[Value, int]


def refine_reshapes(graph: Graph) -> None:
    """Rewrite every loop that has a reshape inside which is no mere change of names."""
    seen: set[Node] = set()
    for node in list(graph.nodes()):
        if node in seen or node.block is None or not _joins_loops(node):
            continue
        nodes = _connected(node)
        seen |= nodes
        if len(nodes) <= tuning.REFINED_NODES:
            ordered = [n for n in graph.nodes() if n in nodes]
            classes = _Classes(ordered)
            if classes.settle() and classes.cuts:
                _Rewrite(graph, ordered, classes).run()


def _joins_loops(node: Node) -> bool:
    if node.kind != "reshape" or renames_axes(node) or not is_static(node):
        return False
    source = node.inputs[0].node
    return source is not None and _is_loop(source) and any(
        _is_loop(use.node) for use in node.output.uses
    )  # fmt: skip


def _is_loop(node: Node) -> bool:
    return (is_cells(node) or node.kind in REDUCTIONS) and is_static(node)


def _connected(start: Node) -> set[Node]:
    """Loops and views around a reshape, as far as one makes what another reads."""
    found = {start}
    todo = [start]
    while todo and len(found) <= tuning.REFINED_NODES:
        node = todo.pop()
        near = [v.node for v in node.inputs if v.node is not None]
        near += [use.node for out in node.outputs for use in out.uses]
        near += [use.node for v in node.inputs if _is_beside(v, node) for use in v.uses]
        for other in near:
            if other not in found and (_is_loop(other) or _is_inner_view(other)):
                found.add(other)
                todo.append(other)
    return found


def _is_beside(value: Value, node: Node) -> bool:
    """Whether loops that read a value are to run alike: it is all of what they loop over."""
    source = value.node
    made = source is not None and (_is_loop(source) or _is_inner_view(source))
    return not made and value.has_uses and value.shape == node.inputs[0].shape != ()


def _is_inner_view(node: Node) -> bool:
    return node.kind in _VIEWS and is_static(node) and bool(node.inputs[0].shape)


class _Classes:
    """Dims that are one axis, and where each class of them is cut: sizes of what is behind."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.parent: dict[_Dim, _Dim] = {}
        self.cuts: dict[_Dim, set[int]] = {}
        self.groups: list[tuple[list[_Dim], list[_Dim]]] = []
        for node in nodes:
            for a, b in _same(node):
                self.unite(a, b)
            if node.kind == "reshape":
                self.groups += _groups(node.inputs[0], node.output)

    def find(self, dim: _Dim) -> _Dim:
        while (up := self.parent.get(dim, dim)) != dim:
            dim = up
        return dim

    def unite(self, a: _Dim, b: _Dim) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[a] = b

    def settle(self) -> bool:
        """Cut until every reshape has its cuts on both sides; False where cuts do not fit."""
        changed = True
        while changed:
            changed = False
            for sides in self.groups:
                ends = {end for dims in sides for end in self.ends(dims)}
                for dims in sides:
                    behind = 1
                    for dim in reversed(dims):
                        n = dim[0].known_shape[dim[1]]
                        mine = {e // behind for e in ends if behind < e < behind * n}
                        if any(behind * c not in ends for c in mine) or not _divide(mine, n):
                            return False
                        cuts = self.cuts.setdefault(self.find(dim), set()) if mine else set()
                        changed |= not mine <= cuts
                        cuts |= mine
                        behind *= n
            self.cuts = {k: v for k, v in self.cuts.items() if v}
        return all(_divide(cuts, v.known_shape[d]) for (v, d), cuts in self.cuts.items())

    def ends(self, dims: list[_Dim]) -> Iterator[int]:
        behind = 1
        for dim in reversed(dims):
            yield from (behind * c for c in self.cuts.get(self.find(dim), ()))
            behind *= dim[0].known_shape[dim[1]]
            yield behind

    def factors(self, value: Value, dim: int) -> tuple[int, ...]:
        """The finer dims of a dim."""
        n = value.known_shape[dim]
        cuts = sorted(self.cuts.get(self.find((value, dim)), ())) if n != 1 else []
        ends = [1, *cuts, n]
        return tuple(b // a for a, b in itertools.pairwise(ends))[::-1]


def _divide(cuts: set[int], n: int) -> bool:
    ends = [1, *sorted(cuts), n]
    return all(b % a == 0 for a, b in itertools.pairwise(ends))


def _same(node: Node) -> Iterator[tuple[_Dim, _Dim]]:
    """Pairs of dims of an operand and the result that are one axis."""
    out = node.output
    shape = out.known_shape
    for value in node.inputs:
        mine = value.known_shape
        if node.kind == "permute":
            dims = node.attrs["dims"]
            assert isinstance(dims, tuple)
            yield from (((value, d), (out, k)) for k, d in enumerate(dims) if isinstance(d, int))
        elif node.kind in REDUCTIONS:
            kept = _kept(node)
            places = kept if node.attrs["keepdims"] else range(len(kept))
            yield from (((value, d), (out, k)) for d, k in zip(kept, places, strict=True))
        elif node.kind != "reshape":
            lead = len(shape) - len(mine)
            yield from (
                ((value, d), (out, d + lead)) for d, n in enumerate(mine)
                if n == shape[d + lead] != 1
            )  # fmt: skip


def _kept(node: Node) -> list[int]:
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    return [d for d in range(len(node.inputs[0].known_shape)) if d not in dims]


def _groups(a: Value, b: Value) -> list[tuple[list[_Dim], list[_Dim]]]:
    """Runs of dims on both sides of a reshape that have as many elements, the shortest."""
    left = [(a, k) for k, n in enumerate(a.known_shape) if n != 1]
    right = [(b, k) for k, n in enumerate(b.known_shape) if n != 1]
    found = []
    while left or right:
        one, two = [left.pop(0)], [right.pop(0)]
        while (p := _size(one)) != (q := _size(two)):
            if p < q:
                one.append(left.pop(0))
            else:
                two.append(right.pop(0))
        found.append((one, two))
    return found


def _size(dims: list[_Dim]) -> int:
    return math.prod(v.known_shape[d] for v, d in dims)


class _Rewrite:
    def __init__(self, graph: Graph, nodes: list[Node], classes: _Classes) -> None:
        self.graph, self.nodes, self.classes = graph, nodes, classes
        self.inside = set(nodes)
        self.finer: dict[Value, Value] = {}

    def run(self) -> None:
        """Every node again in finer dims, before itself; what others read, in its old shape."""
        for node in self.nodes:
            assert node.block is not None
            builder = Builder(node.block, node, node.loc)
            made = self.made(node, builder)
            made.hint = node.output.hint
            self.finer[node.output] = made
            others = [u for u in node.output.uses if u.node not in self.inside]
            if others:
                old = self.reshaped(made, node.output.known_shape, builder)
                for use in others:
                    use.node.replace_input(use.index, old)
        for node in reversed(self.nodes):
            node.erase()

    def made(self, node: Node, builder: Builder) -> Value:
        out = node.output
        shape = self.shape(out)
        if node.kind == "reshape":
            return self.reshaped(self.of(node.inputs[0], builder), shape, builder)
        if node.kind == "expand":
            like = self.like(node.inputs[0], out)
            return builder.emit(
                "expand", self.reshaped(self.of(node.inputs[0], builder), like, builder),
                shape=shape,
            )  # fmt: skip
        if node.kind == "permute" or node.kind in REDUCTIONS:
            return self.turned(node, builder)
        operands = [
            self.finer.get(v, v) if v.known_shape == () else
            self.reshaped(self.of(v, builder), self.like(v, out), builder)
            for v in node.inputs
        ]  # fmt: skip
        return builder.emit(node.kind, *operands, **node.attrs)

    def turned(self, node: Node, builder: Builder) -> Value:
        """A permute or a reduction: dims by the places of their finer ones."""
        value = node.inputs[0]
        places: list[tuple[int, ...]] = []
        at = 0
        for d in range(len(value.known_shape)):
            n = len(self.classes.factors(value, d))
            places.append(tuple(range(at, at + n)))
            at += n
        dims = node.attrs["dims"]
        assert isinstance(dims, tuple)
        attrs: dict[str, Attr] = dict(node.attrs)
        attrs["dims"] = tuple(p for d in dims if isinstance(d, int) for p in places[d])
        made = builder.emit(node.kind, self.of(value, builder), **attrs)
        return self.reshaped(made, self.shape(node.output), builder)

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape in finer dims."""
        return tuple(
            f for d in range(len(value.known_shape)) for f in self.classes.factors(value, d)
        )

    def like(self, value: Value, out: Value) -> tuple[int, ...]:
        """The finer shape of an operand that is broadcast to a result."""
        shape, mine = out.known_shape, value.known_shape
        lead = len(shape) - len(mine)
        found: list[int] = []
        for d, n in enumerate(mine):
            factors = self.classes.factors(out, d + lead)
            found += factors if n == shape[d + lead] else [1] * len(factors)
        return tuple(found)

    def of(self, value: Value, builder: Builder) -> Value:
        """A value in finer dims; a view where it is made outside."""
        if value not in self.finer:
            return self.reshaped(value, self.shape(value), builder)
        return self.finer[value]

    def reshaped(self, value: Value, shape: tuple[int, ...], builder: Builder) -> Value:
        return value if value.known_shape == shape else builder.emit("reshape", value, shape=shape)
