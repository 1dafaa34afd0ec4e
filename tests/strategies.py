"""Random graphs for every test, made by hypothesis; the same seed gives the same graph.

    @given(graphs())
    def test_something(case):        # case.graph is valid, case.inputs are arrays that fit it

`graphs` composes well-conditioned ops (no log of a negative, no division near zero), so that values
and gradients are smooth and of moderate size. It brings out shared subexpressions, broadcasting at
intermediates, unused inputs, repeated outputs, 0-d shapes and sizes of zero. `texts` gives graphs
that need not make sense to any op, but print every construct of the text form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from numpy.typing import NDArray

import gradof.ops  # registers every op
from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense, to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Block, Graph, Loc, Node, Value
from gradof.ir.types import (
    F32,
    F64,
    DType,
    ScalarType,
    SizeType,
    TensorType,
    Type,
    all_dtypes,
    dtype,
)
from gradof.ops.expr import Emitter, Expr, F

assert gradof.ops is not None
Array = NDArray[Any]
Shape = tuple[int, ...]


# --- valid graphs -------------------------------------------------------------------------------


@dataclass
class Case:
    """A valid graph and inputs that fit it."""

    graph: Graph
    inputs: list[Array]

    def __repr__(self) -> str:
        return f"{self.graph}inputs of {[a.shape for a in self.inputs]}"


_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "tanh": F.tanh,
    "sin": F.sin,
    "cos": F.cos,
    "sigmoid": F.sigmoid,
    "neg": F.neg,
    "atan": F.atan,
    "bounded_exp": lambda x: F.exp(F.tanh(x)),
    "safe_log": lambda x: F.log(x * x + 1.0),
    "safe_sqrt": lambda x: F.sqrt(F.square(x) + 1.0),
    "safe_div": lambda x: 1.0 / (x * x + 0.5),
    "scaled": lambda x: x * 0.5,
    "rsqrt": lambda x: F.rsqrt(x * x + 1.0),
}
_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": F.add,
    "sub": F.sub,
    "mul": lambda a, b: F.tanh(a) * F.sin(b),
    "div": lambda a, b: a / (b * b + 1.0),
    "logaddexp": lambda a, b: F.logaddexp(F.sin(a), F.cos(b)),
    "where": lambda a, b: _two_branches(a - b),
}


def _two_branches(x: Expr) -> Expr:
    # |tanh(x)|^5 written with a branch: smooth enough for differences of second derivatives.
    t = F.tanh(x)
    odd = t * t * t * t * t
    return F.where(x > 0.0, odd, -odd)


def shapes(max_rank: int = 3, max_size: int = 4, zero: bool = True) -> SearchStrategy[Shape]:
    """Shapes of ranks 0 to `max_rank`, now and then with a size of one or zero."""
    sizes = st.sampled_from([*range(1, max_size + 1), 1, *([0] if zero else [])])
    return st.lists(sizes, max_size=max_rank).map(tuple)


@st.composite
def graphs(
    draw: DrawFn,
    dtypes: tuple[DType, ...] = (F64,),
    max_nodes: int = 12,
    zero: bool = True,
    max_outputs: int = 3,
) -> Case:
    """A valid graph of floating-point inputs and outputs, with inputs that fit it."""
    dt = draw(st.sampled_from(dtypes))
    graph = Graph(draw(st.sampled_from(["f", "loss", "g"])))
    emitter = Emitter(Builder(graph.block))
    base = draw(shapes(zero=zero))
    pool: list[Expr] = []
    for i in range(draw(st.integers(1, 4))):
        shape = draw(st.one_of(_broadcast_from(base), shapes(zero=zero)))
        pool.append(emitter.wrap(graph.block.add_param(TensorType(dt, shape), f"x{i}")))
    for _ in range(draw(st.integers(1, max_nodes))):
        step = draw(st.sampled_from([_step_unary, _step_binary, _step_reduce, _step_shape,
                                     _step_matmul]))  # fmt: skip
        new = step(draw, pool)
        if new is not None:
            new.value.hint = draw(st.sampled_from([None, "h", "y", "h"]))
            pool.append(new)
    count = draw(st.integers(1, max_outputs))
    # An output is a result, so at least one unary op stands behind it.
    chosen = [draw(st.sampled_from(pool[-4:])) for _ in range(count)]
    graph.set_outputs([(F.tanh(x) if x.value.node is None else x).value for x in chosen])
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    inputs = [_sample(rng, v.type) for v in graph.inputs]
    return Case(graph, inputs)


def _sample(rng: np.random.Generator, type_: Type) -> Array:
    assert isinstance(type_, TensorType) and type_.shape is not None
    # Apart from each other, so that a small step makes no other element the largest.
    spread = rng.permutation(np.linspace(-1.5, 1.5, type_.size)) + rng.uniform(-0.01, 0.01)
    values: Array = spread.reshape(type_.shape)
    return values.astype(to_numpy_dtype(type_.dtype))


@st.composite
def _broadcast_from(draw: DrawFn, base: Shape) -> Shape:
    cut = draw(st.integers(0, len(base)))
    return tuple(1 if draw(st.booleans()) and n != 0 else n for n in base[cut:])


def _step_unary(draw: DrawFn, pool: list[Expr]) -> Expr:
    return _UNARY[draw(st.sampled_from(sorted(_UNARY)))](draw(st.sampled_from(pool)))


def _step_binary(draw: DrawFn, pool: list[Expr]) -> Expr | None:
    build = _BINARY[draw(st.sampled_from(sorted(_BINARY)))]
    a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return None
    return build(a, b)


def _step_reduce(draw: DrawFn, pool: list[Expr]) -> Expr | None:
    x = draw(st.sampled_from(pool))
    dims = tuple(sorted(draw(st.sets(st.integers(0, max(0, x.rank - 1)), max_size=x.rank))))
    keep = draw(st.booleans())
    empty = any(x.shape[d] == 0 for d in dims)
    kind = draw(st.sampled_from(["sum", "mean", "cumsum", "amax"]))
    if kind == "cumsum" and x.rank:
        return F.cumsum(x, dim=draw(st.integers(0, x.rank - 1)))
    if kind == "sum" or empty or kind == "cumsum":  # the mean and the maximum of nothing are none
        return F.sum(x, dims=dims, keepdims=keep)
    if kind == "amax":  # of distinct elements: a tie has no unique gradient
        return F.amax(x, dims=dims, keepdims=keep) if x.value.node is None else None
    return F.mean(x, dims=dims, keepdims=keep)


def _step_shape(draw: DrawFn, pool: list[Expr]) -> Expr | None:
    x = draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(["permute", "reshape", "expand", "flip", "slice", "cat"]))
    if kind == "permute":
        return F.permute(x, dims=tuple(draw(st.permutations(range(x.rank)))))
    if kind == "reshape":
        return F.reshape(x, shape=(int(math.prod(x.shape)),))
    if kind in ("expand", "cat") and x.type.size > 100:
        return None  # small graphs of small arrays
    if kind == "expand":
        return F.expand(x, shape=(2, *x.shape))
    if not x.rank:
        return None
    dim = draw(st.integers(0, x.rank - 1))
    if kind == "flip":
        return F.flip(x, dims=(dim,))
    if kind == "cat":
        return F.cat(x, F.sin(x), x, dim=dim)
    n = x.shape[dim]
    start = draw(st.integers(0, n))
    stop = draw(st.integers(start, n))
    return F.slice(x, dim=dim, start=start, stop=stop, step=draw(st.integers(1, 2)))


def _step_matmul(draw: DrawFn, pool: list[Expr]) -> Expr | None:
    a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    if a.rank < 2 or b.rank < 2:
        return None
    try:
        return F.tanh(a) @ (b if a.shape[-1] == b.shape[-2] else b.mT)
    except InferenceError:
        return None  # these two shapes do not multiply


# --- anything that prints -----------------------------------------------------------------------

FLOATS = st.one_of(
    st.floats(allow_nan=False, width=64),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, 5e-324, 1e16]),
)
COMPLEXES = st.builds(complex, FLOATS, FLOATS)
NUMBERS = st.one_of(st.booleans(), st.integers(-(2**70), 2**70), FLOATS, COMPLEXES)
_DENSE_DTYPES = [d for d in all_dtypes() if d.name != "bf16"]


@st.composite
def denses(draw: DrawFn) -> Dense:
    """Constant arrays of every dtype numpy has, nan and infinities included."""
    dt = draw(st.sampled_from(_DENSE_DTYPES))
    shape = draw(shapes(max_rank=2, max_size=5))
    count = math.prod(shape)
    if dt.kind == "bool":
        raw = bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
        return Dense(dt, shape, raw)
    if dt.kind in ("int", "uint"):
        size = count * dt.itemsize
        return Dense(dt, shape, draw(st.binary(min_size=size, max_size=size)))
    elements: SearchStrategy[Any] = COMPLEXES if dt.is_complex else FLOATS
    values = draw(st.lists(elements, min_size=count, max_size=count))
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(values, np.complex128 if dt.is_complex else np.float64)
        return Dense.of(array.reshape(shape).astype(to_numpy_dtype(dt)))


def attrs() -> SearchStrategy[Attr]:
    """Every kind of attribute value."""
    leaf: SearchStrategy[Any] = st.one_of(
        NUMBERS,
        st.none(),
        st.text(max_size=8),
        st.sampled_from(all_dtypes()),
        denses(),
    )
    return st.recursive(leaf, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


def types() -> SearchStrategy[Type]:
    """Every kind of type."""
    tensor = st.builds(
        TensorType,
        st.sampled_from(all_dtypes()),
        st.one_of(st.none(), shapes()),
        st.sampled_from(["cpu", "cuda:0", "cuda:11", "meta"]),
    )
    scalar = st.sampled_from(["bool", "int", "float", "complex"]).map(
        lambda k: ScalarType(k)  # type: ignore[arg-type]  # one of the four literals
    )
    return st.one_of(tensor, scalar, st.just(SizeType()))


HINTS = st.sampled_from([None, "x", "x", "h", "self", "α", "größe", "_", "x1", "inf", "block"])
LOCS = st.one_of(
    st.none(),
    st.builds(Loc, st.sampled_from(["a.py", "~/dir with space/b.py", "<stdin>"]),
              st.integers(1, 10**6)),
)  # fmt: skip
_KINDS = st.sampled_from(["mm", "tanh", "_size", "a.b", "Constant", "nan_to_num", "info"])


@st.composite
def texts(draw: DrawFn) -> Graph:
    """A well-scoped graph of arbitrary kinds, types and attributes, with nested blocks."""
    graph = Graph(draw(st.sampled_from(["f", "df", "größe"])))
    visible = [
        graph.block.add_param(draw(types()), draw(HINTS)) for _ in range(draw(st.integers(0, 3)))
    ]
    _fill(draw, graph.block, visible, 0)
    graph.set_outputs(_some(draw, visible))
    return graph


def _some(draw: DrawFn, visible: list[Value]) -> list[Value]:
    return draw(st.lists(st.sampled_from(visible), max_size=3)) if visible else []


def _fill(draw: DrawFn, block: Block, visible: list[Value], depth: int) -> None:
    for _ in range(draw(st.integers(0, 4 - depth))):
        names = draw(st.lists(st.sampled_from(["value", "dims", "a", "b_c"]), unique=True))
        node = Node(draw(_KINDS), _some(draw, visible), {n: draw(attrs()) for n in names},
                    draw(LOCS))  # fmt: skip
        if depth < 2 and draw(st.booleans()):
            inner = node.add_block()
            seen = [*visible, *(inner.add_param(draw(types()), draw(HINTS)) for _ in range(1))]
            _fill(draw, inner, seen, depth + 1)
            inner.returns.set_inputs(_some(draw, seen))
        block.append(node)
        visible += [
            node.add_output(draw(types()), draw(HINTS)) for _ in range(draw(st.integers(0, 2)))
        ]


__all__ = ["F32", "F64", "Case", "attrs", "denses", "dtype", "graphs", "shapes", "texts", "types"]
