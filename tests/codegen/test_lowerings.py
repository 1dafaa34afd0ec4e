"""What the emitter relies on: every lowering gives the inferred type, and arrays of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gradof.codegen import compile_graph
from gradof.codegen.host.buffers import may_alias
from gradof.codegen.host.evaluate import interpret
from gradof.codegen.lowering.numpy import POOLING, Library, lowering
from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node
from gradof.ir.types import BOOL, F64, I64, DType, TensorType, all_dtypes, dtype
from gradof.ops.registry import Op, all_ops, get_op

Array = NDArray[Any]
DTYPES = [d for d in all_dtypes() if d.name != "bf16" and not d.is_complex]
# Values for attributes by name; an op with others needs a row in CALLS.
ATTRS: dict[str, Attr] = {
    "low": 0.25, "high": 0.75, "beta": 1.0, "threshold": 20.0, "n": 1, "dims": (0,),
    "keepdims": True, "dim": 0, "diagonal": 0, "dtype": dtype("f32"), "device": "cpu",
}  # fmt: skip
ELEMENTWISE = [
    o.name for o in all_ops() if "elementwise" in o.traits and not o.is_composite
    and set(o.attrs) <= set(ATTRS) and o.name not in ("real", "imag")  # of complex arrays
]  # fmt: skip
# Eager torch raises there, too: op -> dtypes -> its message.
REFUSED_BY_TORCH = {
    "erfcx": ({"f16"}, "Half"), "inverse_mills": ({"f16"}, "Half"),
    "log_ndtr": ({"f16"}, "Half"), "ndtri": ({"f16"}, "Half"),
    "sign": ({"u16", "u32", "u64"}, "UInt"),
}  # fmt: skip
X, IMAGE = (3, 4), (2, 4, 5, 5)
INDEX = ("index", (2, 4))
Row = tuple[str, tuple[Any, ...], dict[str, Attr]]


def reductions() -> Iterator[Row]:
    """Every reduction over no, some and all dims, with and without keeping them."""
    for keep in (False, True):
        for name in ("sum", "prod", "amax", "amin", "any", "all"):
            for dims in ((), (0,), (0, 1)):
                yield name, (X,), {"dims": dims, "keepdims": keep}
        for name in ("argmax", "argmin"):
            yield name, (X,), {"dim": 1, "keepdims": keep}


CALLS: list[Row] = [
    *reductions(),
    ("poisson", (X,), {}),
    ("standard_gamma", (X,), {}),
    ("dirichlet", (X,), {}),
    ("math_result", ((), ()), {"function": "exp"}),
    ("cumsum", (X,), {"dim": 1}),
    ("cumprod", (X,), {"dim": 1}),
    ("mm", ((3, 4), (4, 2)), {}),
    ("bmm", ((2, 3, 4), (4, 2)), {}),
    ("tril", (X,), {"diagonal": 0}),
    ("triu", (X,), {"diagonal": 1}),
    ("cat", (X, X), {"dim": 0}),
    ("cat", (X,), {"dim": 0}),
    ("pad", (X,), {"pads": ((0, 0), (1, 2)), "value": 0}),
    ("pad", (X,), {"pads": ((0, 0), (0, 0)), "value": 0}),
    ("permute", (X,), {"dims": (1, 0)}),
    ("reshape", (X,), {"shape": (4, 3)}),
    ("expand", (X,), {"shape": (2, 3, 4)}),
    ("flip", (X,), {"dims": (0, 1)}),
    ("slice", (X,), {"dim": 1, "start": 1, "stop": 4, "step": 2}),
    ("unslice", ((3, 2),), {"shape": X, "dim": 1, "start": 1, "stop": 4, "step": 2}),
    ("slice_scatter", (X, (3, 2)), {"dim": 1, "start": 1, "stop": 4, "step": 2}),
    ("slice_scatter", (X, X), {"dim": 1, "start": 0, "stop": 4, "step": 1}),
    ("index_select", (X, ("index", (2,))), {"dim": 0}),
    ("index_add", (X, ("index", (2,)), (2, 4)), {"dim": 0}),
    ("dynamic_slice", (X, ("index", ())), {"dims": (1,), "sizes": (2,)}),
    ("dynamic_slice_scatter", (X, (3, 2), ("index", ())), {"dims": (1,)}),
    ("dynamic_unslice", ((3, 2), ("index", ())), {"dims": (1,), "shape": (3, 4)}),
    ("gather", (X, INDEX), {"dim": 0}),
    ("scatter", (X, INDEX, (2, 4)), {"dim": 0}),
    ("scatter_add", (X, INDEX, (2, 4)), {"dim": 0}),
    ("full", (), {"dtype": dtype("f32"), "shape": X, "device": "cpu", "value": 1.0}),
    ("position", (), {"shape": X, "device": "cpu"}),
    ("within", (), {"shape": (1, 4), "dim": 1, "start": 1, "stop": 3, "device": "cpu"}),
    ("arange", (), {"n": 4, "start": 0, "step": 1, "dtype": I64, "device": "cpu"}),
    ("convolution", (IMAGE, (6, 2, 3, 3)),
     {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "transposed": False,
      "output_padding": (0, 0), "groups": 2}),
    ("convolution", (IMAGE, (4, 2, 1, 1)),
     {"stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "transposed": True,
      "output_padding": (0, 0), "groups": 1}),
    ("window_sum", (IMAGE,), {"kernel": (2, 2), "stride": (1, 2), "out": (2, 1)}),
    ("window_sum", ((2, 5),), {"kernel": (3,), "stride": (2,), "out": (2,)}),
    ("window_spread", (IMAGE,), {"kernel": (2, 3), "stride": (2, 1), "space": (11, 7)}),
    ("window_spread", ((2, 2, 2, 2),), {"kernel": (2, 1, 1), "stride": (2, 1, 1),
                                        "space": (5, 2, 3)}),
    ("scatter_maxima", (IMAGE, ("index", IMAGE)), {"space": (5, 6)}),
    ("take_maxima", (IMAGE, ("index", (2, 4, 3, 3))), {"rank": 2}),
    ("max_pool2d_with_indices", (IMAGE,),
     {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1),
      "ceil_mode": False}),
    ("sort", (X,), {"dim": 1, "descending": True, "stable": True}),
    ("topk", (X,), {"k": 2, "dim": 1, "largest": True, "sorted": True}),
    ("kthvalue", (X,), {"k": 2, "dim": 1, "keepdims": False}),
    ("median", (X,), {}), ("median_dim", (X,), {"dim": 1, "keepdims": False}),
    ("max_pool3d_with_indices", ((1, 2, 4, 4, 4),),
     {"kernel": (2, 2, 2), "stride": (2, 2, 2), "padding": (0, 0, 0), "dilation": (1, 1, 1),
      "ceil_mode": False}),
    ("cummax", (X,), {"dim": 0}),
    ("logcumsumexp", (X,), {"dim": 0}),
    ("cummin", (X,), {"dim": 0}),
    ("frexp", (X,), {}),
    ("to_device", (X,), {"device": "cpu"}), ("again", (X,), {"region": 1}),
    ("alias", (X,), {}), ("detach", (X,), {}),
    ("AutogradAdd", (X, X), {}),
    *((name, ((2, 3, 3),), {}) for name in (
        "inv", "inverse_or_nan", "adjugate", "det", "slogdet", "svd", "svdvals", "qr",
        "matrix_exp", "lu_pivots", "lu_unpivoted",
    )),
    ("cholesky_ex", ((2, 3, 3),), {"check_errors": False}),
    ("inv_ex", ((2, 3, 3),), {"check_errors": False}),
    *((name, ((4, 2),), {}) for name in ("svd", "svdvals", "qr", "lu_pivots")),
    ("pinv", ((4, 2),), {"rcond": 1e-6}),
    ("solve", ((2, 3, 3), (3, 2)), {}),
    ("solve_triangular", ((2, 3, 3), (3, 2)), {"lower": True}),
    ("solve_banded", ((3, 4), (4, 2)), {"low": 1, "high": 1}),
    ("sylvester", ((3, 3), (2, 2), (3, 2)), {}),
    ("matrix_sqrt", ((2, 2),), {}), ("matrix_log", ((2, 2),), {}),
    ("eigh_by", ((2, 3, 3),), {"driver": "lower"}),
    ("trig_transform", (X,), {"cosine": True, "type": 2, "dim": 1}),
    ("correlate1d", (X, (3,)), {"dim": 1}), ("lfilter", ((2,), (2,), X), {}),
    ("spline_filter", (X,), {"order": 3, "mode": "mirror", "dim": 1}),
    ("csr_rows", (("index", (4,)),), {"nnz": 0}),
    ("sparse_mm", ((0,), ("index", (0,)), ("index", (4,)), (3, 2)),
     {"shape": (3, 3), "turned": True}),
    ("quantile_of", (X,), {"dist": "norm", "method": "_ppf"}),
    ("gammainc_moment", (X, X), {"n": 1, "upper": False}),
    ("betainc_moment", (X, X, X), {"n": 1, "m": 0, "upper": True}),
]  # fmt: skip


def sample(name: str, dt: DType, shape: tuple[int, ...]) -> Array:
    """Numbers in the op's domain: within (0, 1) for floats, small and positive for integers."""
    rng = np.random.default_rng(0)
    if dt.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dt.kind in ("int", "uint"):
        return rng.integers(1, 5, shape).astype(to_numpy_dtype(dt))
    low = 1.1 if name == "acosh" else 0.1
    return rng.uniform(low, low + 0.8, shape).astype(to_numpy_dtype(dt))


def call_graph(
    record: Op, types: Sequence[TensorType], attrs: dict[str, Attr]
) -> tuple[Graph, Node] | None:
    """The graph of one call; None where no type can be inferred for these operands."""
    graph = Graph("f")
    params = [graph.block.add_param(t, f"x{i}") for i, t in enumerate(types)]
    try:
        node = Builder(graph.block).emit_node(record.name, *params, **attrs)
    except InferenceError:
        return None
    graph.set_outputs(node.outputs)
    return graph, node


def check_call(record: Op, graph: Graph, node: Node, inputs: list[Array], library: Library) -> None:
    """The emitted results have the inferred types, and lowerings give arrays of their own."""
    results = compile_graph(graph, library=library)(*inputs)
    raw: list[Any] = []
    interpret(graph, inputs, library=library, observe=lambda _, values: raw.extend(values))
    for result, value, array in zip(results, node.outputs, raw, strict=True):
        assert isinstance(value.type, TensorType)
        what = f"{record.name} on {[str(a.dtype) for a in inputs]}"
        assert (result.shape, str(result.dtype)) == (
            value.type.shape, str(to_numpy_dtype(value.type.dtype)),
        ), what  # fmt: skip
        assert array.dtype == result.dtype, what  # before it was returned, too
        if not may_alias(node) and array.ndim:
            assert array.flags.writeable, what
            assert not any(np.shares_memory(array, x) for x in inputs), what
    if not may_alias(node):
        for a, b in itertools.combinations(raw, 2):
            assert not np.shares_memory(a, b), record.name


def libraries(record: Op) -> Iterator[Library]:
    yield "numpy"
    if record.torch is not None or record.name in POOLING:
        yield "torch"


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_ops_keep_their_types(name: str) -> None:
    record = get_op(name)
    attrs = {a: ATTRS[a] for a in record.attrs}
    accepted = set()
    for dt, shape in itertools.product(DTYPES, [(), (4,), (0, 2)]):
        kinds = [BOOL if n == "c" else dt for n in record.inputs]
        types = [TensorType(k, shape) for k in kinds]
        made = call_graph(record, types, attrs)
        if made is None:
            continue
        accepted.add(dt)
        inputs = [sample(name, k, shape) for k in kinds]
        for library in libraries(record):
            refused, message = REFUSED_BY_TORCH.get(name, (set(), ""))
            if library == "torch" and dt.name in refused:
                with pytest.raises(NotImplementedError, match=message):
                    check_call(record, *made, inputs, library)
            else:
                check_call(record, *made, inputs, library)
    assert accepted, f"no dtype is good enough for {name}"


@pytest.mark.parametrize(
    ("name", "operands", "attrs"), CALLS, ids=[f"{n}{i}" for i, (n, _, _) in enumerate(CALLS)]
)
def test_other_ops_keep_their_types(
    name: str, operands: tuple[Any, ...], attrs: dict[str, Attr]
) -> None:
    record = get_op(name)
    accepted = set()
    for dt in DTYPES:
        inputs = [
            np.zeros(shape[1], np.int64) if shape and shape[0] == "index"
            else sample(name, dt, shape)
            for shape in operands
        ]  # fmt: skip
        types = [TensorType(I64 if x.dtype == np.int64 else dt, x.shape) for x in inputs]
        made = call_graph(record, types, attrs)
        if made is None:
            continue
        for library in libraries(record):
            if library == "numpy" or dt in (F64, dtype("f32")):
                check_call(record, *made, inputs, library)
        accepted.add(dt)
    assert accepted, f"no dtype is good enough for {name}"


def test_the_tables_leave_out_only_these() -> None:
    named = {*ELEMENTWISE, *(name for name, _, _ in CALLS)}
    rest = {o.name for o in all_ops() if o.numpy is not None and not o.is_composite} - named
    assert len(rest) < len(named) / 4, sorted(rest)


def test_what_takes_out() -> None:
    wanted = {
        "tanh": "in place", "relu": "in place", "mm": "elsewhere", "sum": "never",
        "rsqrt": "never", "sigmoid": "never", "cumsum": "never", "where": "never",
    }  # fmt: skip
    assert {name: lowering(get_op(name), "numpy").writes for name in wanted} == wanted
    assert lowering(get_op("mm"), "torch").writes == "never"
