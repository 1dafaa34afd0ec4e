"""Scalar expansions: each op's is what its numpy form computes, and every target can unfold it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradof.codegen.host.evaluate import interpret
from gradof.codegen.llvm import vectors
from gradof.codegen.lowering import torch_ops
from gradof.codegen.lowering.scalar import dtypes_of, unfolded
from gradof.codegen.triton import ops as triton_ops
from gradof.errors import CodegenError, InferenceError, OpDefinitionError
from gradof.ir.attrs import Attr, to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Graph
from gradof.ir.types import BF16, BOOL, F32, F64, I32, I64, DType, TensorType
from gradof.ops.cost import cost_of
from gradof.ops.expr import F
from gradof.ops.families import reduction, unary
from gradof.ops.registry import Op, all_ops, get_op, op
from tests.codegen.test_native import sample, ulps
from tests.ops.test_registry import scratch as scratch  # a fixture

PAGE = Path(__file__).parents[2] / "docs" / "adding_an_op.md"
ELEMENTWISE = [o for o in all_ops() if "elementwise" in o.traits and not o.is_composite]
WITH = [o for o in ELEMENTWISE if o.scalar is not None]
ATTRS: dict[str, list[dict[str, Attr]]] = {
    "clamp": [{"low": 0, "high": None}, {"low": -1, "high": 1}],
    "softplus": [{"beta": 1.0, "threshold": 20.0}, {"beta": 1.5, "threshold": 1e9}],
}
DTYPES = (F32, F64, I32, I64, BOOL)
TARGETS = {"native": vectors.supports, "triton": triton_ops.supports}


def result_of(record: Op, dt: DType, attrs: dict[str, Attr]) -> DType | None:
    """The dtype of the result; None where the op does not take the dtype."""
    try:
        (result,) = record.infer([TensorType(dt, (4,))] * len(record.inputs), attrs)
    except InferenceError:
        return None
    assert isinstance(result, TensorType)
    return result.dtype


CASES = [
    (record, dt, attrs) for record in WITH for dt in DTYPES
    for attrs in ATTRS.get(record.name, [{}]) if result_of(record, dt, attrs) is not None
]  # fmt: skip
FLOATS = [c for c in CASES if c[1] in (F32, F64)]


def only_others(kind: str, given: Sequence[DType], result: DType) -> bool:
    """A target that computes exactly the ops without an expansion for the dtype."""
    record = get_op(kind)
    return record.scalar is None or (kind, given[0]) in ATOMS


# What has an expansion for other dtypes alone.
ATOMS = {
    *((name, BOOL) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")),
    *((name, dt) for dt in (F32, F64) for name in ("round", "floor", "maximum")),
}


@np.errstate(all="ignore")
@pytest.mark.parametrize(
    ("record", "dt", "attrs"),
    [c for c in CASES if unfolded(c[0].name, *c[1:], only_others) is not None],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_an_expansion_is_what_numpy_computes(
    record: Op, dt: DType, attrs: dict[str, Attr]
) -> None:
    graph = unfolded(record.name, dt, attrs, only_others)
    assert graph is not None
    parts = [n for n in graph.nodes() if n.kind != "Constant"]
    assert (record.name, dt) not in {(n.kind, dtypes_of(n)[0][0]) for n in parts}
    kinds = {n.kind for n in parts}
    assert all(cost_of(kind) <= record.cost for kind in kinds), "it costs less than its parts"
    operands = [sample(record.name, dt, k) for k in range(len(record.inputs))]
    have = np.array([interpret(graph, [x[k] for x in operands])[0] for k in range(61)])
    want = whole(record, attrs, operands)
    assert have.dtype == want.dtype
    if want.dtype.kind == "f":
        assert ulps(have, want) <= 8
        np.testing.assert_array_equal(np.isnan(have), np.isnan(want))
    else:
        np.testing.assert_array_equal(have, want)


def whole(record: Op, attrs: dict[str, Attr], operands: list[Any]) -> Any:
    """The op's own numpy form."""
    graph = Graph("f")
    types = [TensorType(dtype_of(x), x.shape) for x in operands]
    params = [graph.block.add_param(t, f"x{k}") for k, t in enumerate(types)]
    graph.set_outputs([Builder(graph.block).emit(record.name, *params, **attrs)])
    return interpret(graph, operands)[0]


def dtype_of(array: Any) -> DType:
    return next(d for d in DTYPES if to_numpy_dtype(d) == array.dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("record", "dt", "attrs"), FLOATS, ids=lambda v: getattr(v, "name", str(v))
)
def test_every_target_has_or_unfolds_each_of_floats(
    record: Op, dt: DType, attrs: dict[str, Attr], target: str
) -> None:
    result = result_of(record, dt, attrs)
    assert result is not None
    found = TARGETS[target](record.name, [dt] * len(record.inputs), result, attrs)
    without = record.name in ("log_ndtr", "inverse_mills")  # libmvec has no erfcx
    assert found != (without and target == "native")


def test_tables_of_targets_name_registered_ops() -> None:
    names = {o.name for o in all_ops()}
    assert vectors.INTRINSIC <= names
    assert triton_ops.INTRINSIC <= names
    assert torch_ops.TABLES <= names | {"AutogradAdd"}


def test_half_precision_is_computed_in_float32_and_rounded_once() -> None:
    graph = unfolded("xlogy", BF16, {}, triton_ops.has)
    assert graph is not None
    casts = [n for n in graph.nodes() if n.kind == "cast"]
    assert [n.attrs["dtype"] for n in casts] == [F32, F32, BF16]
    assert graph.outputs[0] is casts[-1].output


@pytest.mark.usefixtures("scratch")
def test_expansions_that_go_round_in_circles_are_an_error() -> None:
    for name, other in (("there", "back"), ("back", "there")):
        op(f"{name}(x) -> y", family=unary(), vjp={"x": None}, numpy="np.tanh",
           scalar=lambda x, other=other: getattr(F, other)(x))  # fmt: skip
    with pytest.raises(CodegenError, match="expansion of there leads to there again"):
        unfolded("there", F32, {}, vectors.has)


@pytest.mark.usefixtures("scratch")
def test_only_elementwise_ops_have_one() -> None:
    with pytest.raises(OpDefinitionError, match="scalar= is of elementwise ops"):
        op("spread(x; dims, keepdims) -> y", family=reduction(), vjp={"x": None}, numpy="np.ptp",
           scalar=lambda x: x)  # fmt: skip


@pytest.mark.usefixtures("scratch")
def test_attributes_that_are_equal_and_not_the_same_are_told_apart() -> None:
    op("shifted(x; by) -> y", family=unary(), vjp={"x": None}, numpy="{x} + {by}",
       scalar=lambda x, by: x + by)  # fmt: skip
    found = [str(unfolded("shifted", F64, {"by": by}, vectors.has)) for by in (0.0, -0.0, 0)]
    assert len(set(found)) == 3


PRIMITIVES = re.search(r"works everywhere: `([^`]+)`", PAGE.read_text())


def test_the_page_names_what_every_target_computes_itself() -> None:
    assert PRIMITIVES is not None
    names = set(PRIMITIVES[1].split())
    both = {
        o.name for o in all_ops()
        if o in ELEMENTWISE and all(has_all(o, has) for has in (vectors.has, triton_ops.has))
    }  # fmt: skip
    assert names == both


def has_all(record: Op, has: Any) -> bool:
    """Whether a target computes the op itself on float32 and float64, or on bools if of those."""
    if record.name in ("where", "cast", "copy"):
        return True
    dtypes = [BOOL] if record.name.startswith("logical") else [F32, F64]
    found = [result_of(record, dt, {}) if not record.attrs else None for dt in dtypes]
    return all(
        r is not None and has(record.name, [dt] * len(record.inputs), r)
        for dt, r in zip(dtypes, found, strict=True)
    )
