"""Ops as torch expressions give what the reference interpreter gives, in dtype and number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gradof.codegen.host.evaluate import interpret
from gradof.codegen.lowering.torch_ops import HELPERS, needed_helpers, torch_expression
from gradof.errors import CodegenError
from gradof.ir.attrs import Attr
from gradof.ir.core import Graph, Node, Value
from gradof.ir.parser import parse_graph
from gradof.ir.types import BOOL, F32, F64, I64, DType, TensorType
from gradof.ops.registry import get_op
from tests.codegen.test_lowerings import ATTRS, CALLS, ELEMENTWISE, call_graph, sample

# What eager, too, does not have of these.
NO_BOOL = {
    "argmax", "argmin", "cumsum", "mm", "bmm", "topk", "kthvalue", "median", "median_dim",
}  # fmt: skip
NO_INTEGERS = {"poisson", "standard_gamma", "dirichlet"}
CASES = [
    *((name, ((3, 4),) * len(get_op(name).inputs), {a: ATTRS[a] for a in get_op(name).attrs})
      for name in ELEMENTWISE),
    *CALLS,
]  # fmt: skip


def evaluated(graph: Graph, arrays: list[NDArray[Any]]) -> tuple[Any, ...]:
    """The graph's results, each node by the expression it has."""
    space: dict[str, Any] = {"torch": torch}
    exec("\n".join(HELPERS.values()), space)
    names: dict[Value, str] = {}
    for k, (value, array) in enumerate(zip(graph.inputs, arrays, strict=True)):
        names[value] = f"x{k}"
        space[f"x{k}"] = torch.from_numpy(np.array(array))
    for number, node in enumerate(graph.nodes()):
        text = torch_expression(node, [names[v] for v in node.inputs], '"cpu"')
        assert set(needed_helpers(text)) <= set(HELPERS)
        found = eval(text, space)
        for k, value in enumerate(node.outputs):
            names[value] = f"y{number}_{k}"
            space[names[value]] = found[k] if len(node.outputs) > 1 else found
            if node.kind == "Constant" and not isinstance(value.type, TensorType):
                names[value] = text
    return tuple(space[names[v]] for v in graph.outputs)


def compare(graph: Graph, arrays: list[NDArray[Any]]) -> None:
    torch.manual_seed(0)
    found = evaluated(graph, arrays)
    torch.manual_seed(0)  # both draw the same numbers
    for mine, theirs in zip(found, interpret(graph, arrays, library="torch"), strict=True):
        other = torch.from_numpy(np.array(theirs))
        tolerance = 1e-5 if mine.dtype == torch.float32 else 1e-12
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def graphs(
    name: str, operands: tuple[Any, ...], attrs: dict[str, Attr]
) -> Iterator[tuple[Graph, Node, list[NDArray[Any]]]]:
    """A call of the op on every dtype that it takes."""
    record = get_op(name)
    conditions = [n == "c" for n in record.inputs] if len(record.inputs) == len(operands) else []
    for dt in (F32, F64, I64, BOOL):
        arrays = [
            np.arange(np.prod(s[1])).reshape(s[1]) % 2 if s and s[0] == "index"
            else sample(name, BOOL if any(conditions[k : k + 1]) else dt, s)
            for k, s in enumerate(operands)
        ]  # fmt: skip
        made = call_graph(record, [TensorType(kind_of(a), a.shape) for a in arrays], attrs)
        if made is not None:
            yield *made, arrays


def kind_of(array: NDArray[Any]) -> DType:
    return {"float32": F32, "float64": F64, "int64": I64, "bool": BOOL}[array.dtype.name]


@pytest.mark.parametrize(
    ("name", "operands", "attrs"), CASES, ids=[f"{n}{i}" for i, (n, _, _) in enumerate(CASES)]
)
def test_an_op_is_what_the_reference_computes(
    name: str, operands: tuple[Any, ...], attrs: dict[str, Attr]
) -> None:
    for graph, node, arrays in graphs(name, operands, attrs):
        try:
            torch_expression(node, [f"x{k}" for k in range(len(operands))], '"cpu"')
        except CodegenError as error:
            assert f"{name} has no torch form" in str(error)
            assert not any(n.startswith("aten.") for n in get_op(name).names), "torch has it"
            return
        kind = kind_of(arrays[0]) if arrays else F32
        if (name in NO_BOOL and kind == BOOL) or (name in NO_INTEGERS and not kind.is_float):
            with pytest.raises(RuntimeError, match=r"(?i)bool|long|not implemented"):
                evaluated(graph, arrays)
        else:
            compare(graph, arrays)


NUMBERS = """
graph f(%x : f64[3], %k : i64[3], %b : bool[3]):
  %two : float = Constant[value=-2.5]()
  %n : int = Constant[value=3]()
  %a0 : f64[3] = add(%x, %two)
  %a1 : f64[3] = pow(%two, %x)
  %a2 : f64[3] = maximum(%x, %two)
  %a3 : f64[3] = where(%b, %two, %two)
  %a4 : f64[3] = where(%b, %x, %two)
  %a5 : i64[3] = sub(%n, %k)
  %a6 : i64[3] = floor_divide(%k, %n)
  %a7 : f64[] = cast[dtype=f64](%n)
  %a8 : f64[3] = cast[dtype=f64](%b)
  return (%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7, %a8)
"""


def test_numbers_among_the_operands_are_as_wide_as_tensors() -> None:
    arrays = [np.array([0.1, 2.0, -1.5]), np.array([-4, 0, 7]), np.array([True, False, True])]
    compare(parse_graph(NUMBERS), arrays)


CONSTANTS = """
graph f(%x : f64[2,2], %i : i64[2]):
  %c : f64[4] = Constant[value=dense<f64[4]>[1.5, -0.0, inf, nan]]()
  %m : i64[1,2] = Constant[value=dense<i64[1,2]>[3, -4]]()
  %r : f64[4] = arange[n=4, start=0.5, step=0.25, dtype=f64, device="cpu"]()
  %j : i64[2] = in_range[size=2, wraps=True, error="index"](%i)
  return (%c, %m, %r, %j)
"""


def test_constants_and_what_has_no_tensor_to_start_from() -> None:
    compare(parse_graph(CONSTANTS), [np.zeros((2, 2)), np.array([-1, 1])])


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_out_of_range_is_an_error(index: int) -> None:
    graph = parse_graph(
        "graph f(%i : i64[1]):\n %j : i64[1] = in_range[size=2, wraps=False, error='index'](%i)\n"
        " return (%j)"
    )
    with pytest.raises(IndexError, match="out of bounds for a dimension of size 2"):
        evaluated(graph, [np.array([index])])


def test_what_has_no_form_names_the_op_and_the_line() -> None:
    graph = parse_graph(
        "graph f(%x : f64[3]):\n %y : f64[3] = cbrt(%x)  # user.py:7\n return (%y)"
    )
    (node,) = graph.nodes()
    with pytest.raises(CodegenError, match="cbrt has no torch form") as caught:
        torch_expression(node, ["x"], "x.device")
    assert "user.py:7" in str(caught.value)
