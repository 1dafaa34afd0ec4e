"""One statement per op: wrong statements are refused at import, right ones are complete."""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradof.codegen.lowering.numpy import lowering
from gradof.errors import InferenceError, OpDefinitionError
from gradof.ir.opinfo import OPS, has_trait, lookup
from gradof.ir.types import F32, F64, I64, ScalarType, TensorType
from gradof.ops import registry
from gradof.ops.expr import Expr
from gradof.ops.families import FLOATS, binary, unary
from gradof.ops.registry import all_ops, find_by_api_name, get_op, op

ALL = all_ops()


@pytest.fixture
def scratch() -> Iterator[None]:
    """Leave the registry as it was."""
    ops, names = dict(OPS), dict(registry._BY_API_NAME)
    yield
    OPS.clear()
    OPS.update(ops)
    registry._BY_API_NAME.clear()
    registry._BY_API_NAME.update(names)


GOOD: dict[str, Any] = {
    "schema": "fresh(x) -> y", "family": unary(FLOATS), "numpy": "np.tanh",
    "vjp": {"x": lambda g, y: g * y},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"schema": "fresh"}, "cannot read the schema 'fresh'"),
        ({"schema": "fresh(x)"}, "cannot read the schema"),
        ({"schema": "fresh x -> y"}, "cannot read the schema"),
        ({"schema": "fresh(x) -> y z"}, "cannot read the schema"),
        ({"schema": "tanh(x) -> y"}, "op tanh: is defined twice"),
        ({"names": ["aten.tanh"]}, "aten.tanh is already served by tanh"),
        ({"traits": {"fast"}}, r"unknown traits \['fast'\]"),
        ({"vjp": None}, r"vjp must name exactly its inputs; missing \{'x'\}"),
        ({"vjp": {}}, "missing {'x'}"),
        ({"vjp": {"x": None, "z": None}}, "unknown {'z'}"),
        ({"vjp": {"x": lambda g, z: g}}, r"the rule of x reads \['z'\]; it may read"),
        ({"vjp": {"x": lambda g, z_like: g}}, r"the rule of x reads \['z_like'\]"),
        ({"vjp": {"x": lambda g_y: g_y}}, r"reads \['g_y'\]"),
        ({"schema": "fresh(x) -> y, z"}, r"reads \['g'\]"),
        ({"numpy": None}, "has no numpy lowering"),
        ({"expand": lambda x: x}, "a composite takes its lowering from its expansion"),
        ({"expand": lambda x: x, "vjp": None}, "takes its lowering"),
        ({"expand": lambda x: x, "numpy": None, "vjp": {"z": None}}, "unknown {'z'}"),
        ({"expand": lambda x: x, "numpy": None, "vjp": {"x": lambda z: z}}, "reads \\['z'\\]"),
    ],
)
@pytest.mark.usefixtures("scratch")
def test_wrong_statements_are_refused(changes: dict[str, Any], match: str) -> None:
    before = dict(OPS)
    statement = {**GOOD, **changes}
    with pytest.raises(OpDefinitionError, match=match) as caught:
        op(statement.pop("schema"), **statement)
    assert caught.value.hint
    assert dict(OPS) == before


@pytest.mark.usefixtures("scratch")
def test_a_right_statement_is_registered() -> None:
    made = op(
        "fresh(a, *rest; dims, keep) -> y, z",
        family=binary(),
        numpy="np.add",
        vjp={"a": lambda g_y, rest, dims: g_y, "rest": None},
        names=["numpy.fresh"],
        doc="A test.",
    )
    assert (made.inputs, made.attrs, made.outputs) == (("a", "rest"), ("dims", "keep"), ("y", "z"))
    assert made.variadic and made.reads == {"a": ("g_y", "rest", "dims")}
    assert made.module == __name__ and made.is_differentiable and not made.is_composite
    assert get_op("fresh") is made is find_by_api_name("numpy.fresh")
    assert lookup("fresh") is made and has_trait("fresh", "elementwise")


def test_lookups_of_nothing() -> None:
    assert find_by_api_name("aten.nothing") is None
    assert not has_trait("nothing", "view")
    with pytest.raises(KeyError):
        get_op("nothing")
    with pytest.raises(InferenceError, match="unknown op 'nothing'"):
        lookup("nothing")


def test_every_api_name_is_served_once() -> None:
    counts = Counter(name for each in ALL for name in each.names)
    assert [name for name, n in counts.items() if n > 1] == []
    for each in ALL:
        for name in each.names:
            assert find_by_api_name(name) is each
            assert re.fullmatch(r"(aten|numpy|scipy\.special)\.\w+(\.\w+)?", name), name


def test_every_named_function_exists() -> None:
    import scipy.special
    import torch

    for each in ALL:
        for name in each.names:
            library, _, rest = name.partition(".")
            if library == "aten":
                base, _, overload = rest.partition(".")
                packet = getattr(torch.ops.aten, base)
                assert not overload or overload in packet.overloads(), name
            elif library == "numpy":
                assert callable(functools.reduce(getattr, rest.split("."), np)), name
            else:
                assert callable(getattr(scipy.special, rest.removeprefix("special."))), name


@pytest.mark.parametrize("record", ALL, ids=lambda o: o.name)
def test_every_op_has_all_it_needs(record: registry.Op) -> None:
    assert record.outputs or "effect" in record.traits
    assert record.module.startswith("gradof.ops.")
    assert len(record.domain) >= len(record.inputs)
    assert record.schema.startswith(record.name + "(")
    if record.is_composite:
        assert record.expand is not None and record.numpy is None
        assert not record.vjp or set(record.vjp) == set(record.inputs)
        given = list(inspect.signature(record.expand).parameters.values())
        names = {p.name for p in given}
        variadic = any(p.kind is p.VAR_POSITIONAL for p in given)
        open_ended = any(p.kind is p.VAR_KEYWORD for p in given)
        assert open_ended or set(record.attrs) <= names
        assert variadic or len([n for n in names if n not in record.attrs]) >= 1
        return
    assert set(record.vjp) == set(record.inputs), "every input has a rule or an explicit None"
    if "structural" not in record.traits:
        for library in ("numpy", "torch"):
            found = lowering(record, library)
            assert found.text
    if "elementwise" in record.traits:
        assert "view" not in record.traits and len(record.outputs) == 1
    if "random" in record.traits:
        assert all(rule is None for rule in record.vjp.values()) or record.reads


@pytest.mark.parametrize("record", ALL, ids=lambda o: o.name)
def test_calls_with_wrong_arity_or_attributes_are_refused(record: registry.Op) -> None:
    tensor = TensorType(F32, (2, 2))
    attrs: dict[str, Any] = dict.fromkeys(record.attrs, 0)
    wrong = [] if record.variadic else [tensor] * (len(record.inputs) + 1)
    if not record.variadic or len(record.inputs) == 1:
        with pytest.raises(InferenceError, match="takes"):
            record.infer(wrong, attrs)
    right = [tensor] * max(1, len(record.inputs)) if record.inputs else []
    with pytest.raises(InferenceError, match=r"takes the attributes"):
        record.infer(right, {**attrs, "surplus": 1})


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "match"),
    [
        ("tanh", [TensorType(I64, (2,))], {}, "an operand of dtype i64 where"),
        ("tanh", [ScalarType("float")], {}, "at least one operand must be a tensor"),
        ("add", [TensorType(F32, (2,)), TensorType(F64, (2,))], {}, "insert a cast"),
        ("add", [TensorType(F32, (2,)), TensorType(F32, (3,))], {}, "do not broadcast"),
        ("add", [TensorType(F32, ()), TensorType(F32, (), "cuda:0")], {}, "on cpu and cuda:0"),
        ("add", [TensorType(I64, (2,)), ScalarType("float")], {}, "does not fit dtype i64"),
        ("sum", [TensorType(F32, (2,))], {"dims": (1,), "keepdims": False}, "do not fit"),
        ("sum", [TensorType(F32, (2, 2))], {"dims": (0, 0), "keepdims": False}, "do not fit"),
        ("sum", [TensorType(F32, (2,))], {"dims": [0], "keepdims": False}, "a tuple of ints"),
        ("sum", [TensorType(F32, (2,))], {"dims": (True,), "keepdims": False}, "tuple of ints"),
        ("mean", [TensorType(I64, (2,))], {"dims": (0,), "keepdims": False}, "dtype i64"),
        ("argmax", [TensorType(F32, (0,))], {"dim": 0, "keepdims": False}, "an empty dim"),
        ("mm", [TensorType(F32, (2, 3)), TensorType(F32, (2, 3))], {}, "cannot be multiplied"),
        ("mm", [TensorType(F32, (2,)), TensorType(F32, (2,))], {}, "multiplies matrices"),
        ("bmm", [TensorType(F32, (2, 2)), TensorType(F64, (2, 2))], {}, "insert a cast"),
        ("reshape", [TensorType(F32, (2, 3))], {"shape": (4,)}, "cannot reshape"),
        ("reshape", [TensorType(F32, (2, 3))], {"shape": (-1, -6)}, "cannot reshape"),
        ("permute", [TensorType(F32, (2, 3))], {"dims": (0, 0)}, "no permutation"),
        ("expand", [TensorType(F32, (2,))], {"shape": (3,)}, "broadcast"),
        ("expand", [TensorType(F32, (2,))], {"shape": ()}, "cannot expand"),
        ("sum_to", [TensorType(F32, (2,))], {"shape": (2, 2)}, "cannot sum"),
        ("slice", [TensorType(F32, (3,))], dict(dim=0, start=2, stop=1, step=1), "slice 2:1:1"),
        ("slice", [TensorType(F32, (3,))], dict(dim=0, start=0, stop=3, step=0), "slice 0:3:0"),
        ("slice", [TensorType(F32, (3,))], dict(dim=1, start=0, stop=3, step=1), "do not fit"),
        ("cat", [TensorType(F32, (2, 2)), TensorType(F32, (2, 3))], {"dim": 0}, "concatenate"),
        ("cat", [TensorType(F32, (2,)), TensorType(F64, (2,))], {"dim": 0}, "insert a cast"),
        ("pad", [TensorType(F32, (2,))], {"pads": ((1, -1),), "value": 0.0}, "do not fit"),
        ("where", [TensorType(F32, (2,))] * 3, {}, "where"),
        ("dot", [TensorType(F32, (2,)), TensorType(F32, (3,))], {}, "two vectors"),
        ("mv", [TensorType(F32, (2, 3)), TensorType(F32, (2,))], {}, "mv cannot multiply"),
        ("cast", [TensorType(F32, (2,))], {"dtype": "f64"}, "cast needs a dtype"),
        ("Constant", [], {"value": "text"}, "a number or a dense array"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    kind: str, inputs: list[Any], attrs: dict[str, Any], match: str
) -> None:
    with pytest.raises(InferenceError, match=match):
        get_op(kind).infer(inputs, attrs)


def test_expressions_refuse_what_is_no_operand() -> None:
    from gradof.ir.builder import Builder
    from gradof.ir.core import Graph
    from gradof.ops.expr import Emitter, F

    graph = Graph("f")
    emitter = Emitter(Builder(graph.block))
    x: Expr = emitter.wrap(graph.block.add_param(TensorType(F32, (2,)), "x"))
    with pytest.raises(InferenceError, match="cannot use a str"):
        F.add(x, "one")
    with pytest.raises(InferenceError, match="at least one tensor operand"):
        F.add(1.0, 2.0)
    with pytest.raises(InferenceError, match=r"2 results; use \.multiple"):
        F.sort(x, dim=0, descending=False, stable=False)
    assert (x + 1.0).scalar is None and len(graph.block) == 3
