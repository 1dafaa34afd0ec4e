"""Attention as users write it: which nodes of a graph are softmax(Q K^T) V, and why some are not.

    s = bmm(q, kt);  s = s / 4.0 + bias;  p = softmax(s);  o = bmm(p, v)
    found.steps     (("div", ("s", 4.0)), ("add", ("s", "x0")))     with found.extras == [bias]

The softmax is searched as its expansion, `exp(x - amax(x)) / sum(exp(x - amax(x)))` over the last
dim. From there the way goes back to a product over pointwise changes of the scores, and on to the
product with V. A softmax without a product before it and one after it is no attention.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gradof.codegen.triton.attention.causal import number_of, without_diagonals
from gradof.codegen.triton.graph.one_hot import shape_of
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import BF16, BOOL, F16, F32, TensorType
from gradof.ops.attention import Step
from gradof.ops.expr import Emitter, F
from gradof.ops.registry import get_op
from gradof.passes.common_subexpression import common_subexpression
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.expand_composites import expand_composites

PRODUCTS = frozenset({"bmm", "mm"})
STEPS = frozenset({"add", "div", "mul", "neg", "sub", "tanh", "where"})
DTYPES = (F16, BF16, F32)
_RUN = "run as a flash kernel; second derivatives as primitives"
MAX_HEAD = 256  # elements of a row of Q, K or V that a program holds
_RENAMES = frozenset({"alias", "cast", "reshape"})


@dataclass
class Attention:
    """One softmax(Q K^T) V; `reason` says why it cannot be one kernel, if it cannot."""

    loc: str
    product: Node
    last: Node
    after: set[Node]  # that make the probabilities
    frame: tuple[int, ...]  # the shape of the scores: batch, rows, keys
    nodes: set[Node] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    extras: list[Value] = field(default_factory=list)  # tensors that steps read: "x0", "x1"
    safe: bool = False  # a row of which all scores are -inf gives 0, not nan
    causal: int | None = None  # row m meets keys 0 to m + causal alone
    reason: str = ""

    def __str__(self) -> str:
        said = f"not a flash kernel: {self.reason}" if self.reason else _RUN
        return f"{self.loc or 'attention'}: {said}"


class _Unfit(Exception):
    """Why what was found cannot be one kernel."""


@dataclass(frozen=True)
class _Softmax:
    scores: Value
    result: Value
    nodes: frozenset[Node]


def find_attention(graph: Graph, with_gradient: Collection[Value] = ()) -> list[Attention]:
    """Every attention of a graph of primitives, in order; nothing is changed.

    `with_gradient` are the values whose gradient may be wanted.
    """
    found = []
    for node in graph.nodes():
        softmax = _softmax(node)
        if softmax is None:
            continue
        path = _path_to_product(softmax.scores)
        last, ahead = _to_last_product(softmax.result)
        if path is not None and last is not None:
            found.append(_described(graph, softmax, path, last, ahead, with_gradient))
    return found


def _described(
    graph: Graph, softmax: _Softmax, path: list[Node], last: Node, ahead: list[Node],
    with_gradient: Collection[Value],
) -> Attention:  # fmt: skip
    product = path[0]
    loc = product.loc or last.loc
    assert softmax.result.node is not None
    after = {softmax.result.node, *ahead}
    made = Attention(str(loc or ""), product, last, after, shape_of(softmax.scores))
    made.nodes = {product, last, *softmax.nodes, *path, *ahead}
    try:
        _check_types(made)
        dead = _dead_rows(softmax, path, ahead)
        made.safe = bool(dead)
        made.nodes |= dead
        for before, node in itertools.pairwise(path):
            if node not in dead:
                _add_step(made, before.output, node)
        for node in ahead:
            if node not in dead and not renames(node):
                raise _Unfit(f"the probabilities are changed by {node.kind}{_at(node)}")
        left = without_diagonals(made.steps, made.extras, made.frame)
        made.steps, made.extras, made.causal = left
        _check_readers(graph, made)
        _check_gradients(made, with_gradient)
    except _Unfit as unfit:
        made.reason = str(unfit)
    return made


def _softmax(div: Node) -> _Softmax | None:
    """The softmax over the last dim that a division ends."""
    if div.kind != "div" or not all(isinstance(v.type, TensorType) for v in div.inputs):
        return None
    exp, total = (v.node for v in div.inputs)
    if exp is None or total is None or (exp.kind, total.kind) != ("exp", "sum"):
        return None
    sub = exp.inputs[0].node
    if total.inputs[0] is not exp.output or sub is None or sub.kind != "sub":
        return None
    scores, top = sub.inputs[0], sub.inputs[1].node
    shift = {top} if top is not None else set()
    if top is not None and top.kind in ("detach", "alias"):
        top = top.inputs[0].node
        shift.add(top)  # type: ignore[arg-type]  # None is told apart below
    if top is None or top.kind != "amax" or top.inputs[0] is not scores:
        return None
    rank = len(shape_of(scores))
    for reduction in (total, top):
        if reduction.attrs != {"dims": (rank - 1,), "keepdims": True}:
            return None
    nodes = frozenset({div, exp, total, sub, *(n for n in shift if n is not None)})
    return _Softmax(scores, div.output, nodes)


def _path_to_product(value: Value) -> list[Node] | None:
    """From a product to a value, over views and pointwise ops; None where no way leads there."""
    seen: set[Node] = set()
    stack: list[tuple[Value, tuple[Node, ...]]] = [(value, ())]
    while stack:
        at, behind = stack.pop()
        node = at.node
        if node is None or node in seen or len(node.outputs) != 1:
            continue
        seen.add(node)
        if node.kind in PRODUCTS:
            return [node, *behind]
        if renames(node) or _is_pointwise(node):
            # the first operand first: scores are on the left of what is added to them
            stack += [(v, (node, *behind)) for v in reversed(node.inputs)]
    return None


def _to_last_product(value: Value) -> tuple[Node | None, list[Node]]:
    """The product that the probabilities are the left operand of, and what is on the way to it."""
    stack: list[tuple[Value, tuple[Node, ...]]] = [(value, ())]
    while stack:
        at, behind = stack.pop()
        for use in at.uses:
            if use.node.kind in PRODUCTS and use.index == 0:
                return use.node, list(behind)
            if renames(use.node) or _is_pointwise(use.node):
                stack.append((use.node.output, (*behind, use.node)))
    return None, []


def renames(node: Node) -> bool:
    """Whether a node changes no element and no order of elements."""
    if node.kind != "permute":
        return node.kind in _RENAMES
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    sizes = shape_of(node.inputs[0])
    kept = [d for d in dims if isinstance(d, int) and sizes[d] != 1]
    return kept == sorted(kept)


def _is_pointwise(node: Node) -> bool:
    return (
        node.kind != "return" and len(node.outputs) == 1 and not node.blocks
        and "elementwise" in get_op(node.kind).traits
    )  # fmt: skip


def _check_types(made: Attention) -> None:
    *batch, rows, keys = made.frame
    for node in (made.product, made.last):
        for value in (*node.inputs, node.output):
            type_ = value.type
            assert isinstance(type_, TensorType)
            if type_.dtype not in DTYPES:
                raise _Unfit(f"its dtype is {type_.dtype}; f16, bf16 and f32 have a kernel")
    if shape_of(made.product.output)[-2:] != (rows, keys):
        raise _Unfit("its rows are not the product's: Q and K of unlike batch dims are one matrix")
    if shape_of(made.last.inputs[0])[-2:] != (rows, keys):
        raise _Unfit("its rows are not the last product's: V has other batch dims")
    if not math.prod(made.frame):
        raise _Unfit("there are no scores")
    if len(batch) > 2:
        raise _Unfit(f"its batch has {len(batch)} dims; up to two have a kernel")
    heads = (shape_of(made.product.inputs[0])[-1], shape_of(made.last.output)[-1])
    if max(heads) > MAX_HEAD or not min(heads):
        raise _Unfit(f"a head has {max(heads)} elements; 1 to {MAX_HEAD} have a kernel")


def _dead_rows(softmax: _Softmax, path: list[Node], ahead: list[Node]) -> set[Node]:
    """What gives rows of -inf a probability of 0, as torch's own attention does.

    dead = all(x == -inf);  p = where(dead, 0, softmax(where(dead, 0, x)))
    """
    first = path[-1]
    dead = _dead(first)
    after = [n for n in ahead if n.kind == "where"]
    if dead is None or len(path) < 2 or not after or after[0].inputs[0].node is not dead:
        return set()
    if not _is_zero(after[0].inputs[1]):
        return set()
    eq = dead.inputs[0].node
    assert eq is not None
    return {first, after[0], dead, eq}


def _dead(where: Node) -> Node | None:
    if where.kind != "where" or not _is_zero(where.inputs[1]):
        return None
    dead, scores = where.inputs[0].node, where.inputs[2]
    if dead is None or dead.kind != "all" or not dead.attrs["keepdims"]:
        return None
    eq = dead.inputs[0].node
    rank = len(shape_of(scores))
    if eq is None or eq.kind != "eq" or dead.attrs["dims"] != (rank - 1,):
        return None
    return dead if eq.inputs[0] is scores and number_of(eq.inputs[1]) == -math.inf else None


def _add_step(made: Attention, score: Value, node: Node) -> None:
    """One change of the scores."""
    if renames(node):
        type_ = node.output.type
        if isinstance(type_, TensorType) and type_.dtype not in DTYPES:
            raise _Unfit(f"the scores are cast to {type_.dtype}{_at(node)}")
        return
    if node.kind not in STEPS:
        raise _Unfit(f"the scores are changed by {node.kind}{_at(node)}")
    if sum(v is score for v in node.inputs) != 1 or (
        node.kind == "where" and node.inputs[0] is score
    ) or (node.kind == "div" and node.inputs[0] is not score):
        raise _Unfit(f"{node.kind} reads the scores twice or divides by them{_at(node)}")
    args: list[str | int | float] = []
    for value in node.inputs:
        if value is score:
            args.append("s")
            continue
        number = number_of(value)
        if number is None:
            args.append(_extra(made, value, node))
        else:
            args.append(number)
    if node.kind == "where" and not isinstance(args[0], str):
        raise _Unfit(f"where has a number as its condition{_at(node)}")
    made.steps.append((node.kind, tuple(args)))


def _extra(made: Attention, value: Value, node: Node) -> str:
    """The name of a tensor that a step reads."""
    home = made.product.output.type
    type_ = value.type
    if not isinstance(type_, TensorType) or shape_of(node.output) != made.frame:
        raise _Unfit(f"{node.kind} reads a number that varies, or scores in another shape"
                     f"{_at(node)}")  # fmt: skip
    assert isinstance(home, TensorType)
    if type_.device != home.device:
        raise _Unfit(f"{node.kind} reads a tensor on {type_.device}{_at(node)}")
    if type_.dtype not in (*DTYPES, BOOL):
        raise _Unfit(f"{node.kind} reads a tensor of {type_.dtype}{_at(node)}")
    if value not in made.extras:
        made.extras.append(value)
    return f"x{made.extras.index(value)}"


def _check_readers(graph: Graph, made: Attention) -> None:
    for node in made.nodes - {made.last}:
        for out in node.outputs:
            for use in out.uses:
                if use.node is graph.block.returns:
                    raise _Unfit(f"{_what(made, node)} are returned")
                if use.node not in made.nodes:
                    raise _Unfit(
                        f"{_what(made, node)} are read elsewhere, by {use.node.kind}{_at(use.node)}"
                    )
    for value in (made.last.inputs[1], *made.product.inputs, *made.extras):
        if value.node in made.nodes:
            raise _Unfit("Q, K, V or a mask are made of its own scores")


def _what(made: Attention, node: Node) -> str:
    return "the probabilities" if node in made.after else "the scores"


def _check_gradients(made: Attention, with_gradient: Collection[Value]) -> None:
    for value in made.extras:
        if value in with_gradient:
            name = f"%{value.hint} : " if value.hint else ""
            raise _Unfit(f"{name}{value.type}, which its scores read, has a gradient")


def _is_zero(value: Value) -> bool:
    return number_of(value) == 0


def _at(node: Node) -> str:
    return f", {node.loc}" if node.loc else ""


def recognised(
    graph: Graph, requires_grad: Sequence[bool] | None = None
) -> tuple[Graph, list[Attention]]:
    """A copy of a graph in primitives, and every attention of that copy.

    `requires_grad` has a flag per input: gradients that are wanted. Without it the graph is not
    differentiated, and what cuts gradients, as `no_grad` does everywhere, is a view.
    """
    copy = clone_graph(graph)
    expand_composites(copy)
    if requires_grad is None:
        for node in [n for n in copy.nodes() if n.kind == "detach"]:
            assert node.block is not None
            emitter = Emitter(Builder(node.block, node, node.loc))
            node.output.replace_all_uses_with(F.alias(emitter.wrap(node.inputs[0])).value)
            node.erase()
    wanted: set[Value] = set()
    if requires_grad is not None:
        common_subexpression(copy)
        eliminate_dead_code(copy)
        wanted = carrying(copy, requires_grad)
    return copy, find_attention(copy, wanted)


def carrying(graph: Graph, requires_grad: Sequence[bool]) -> set[Value]:
    """Values that a gradient may reach an input through, at the least."""
    pairs = zip(graph.inputs, requires_grad, strict=True)
    found = {v for v, flag in pairs if flag and v.is_inexact}
    for node in graph.nodes():
        if node.kind != "detach" and any(v in found for v in node.inputs):
            found.update(v for v in node.outputs if v.is_inexact)
    return found
