"""Every elementwise op says what it costs, and the classes are in the order of measured times."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import sympy

from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.llvm.vectors import supports
from gradof.codegen.machine.engine import status
from gradof.errors import InferenceError
from gradof.ir.types import F64, TensorType
from gradof.ops.cost import CALL, CHEAP, DIVISION, cost_of, is_expensive
from gradof.ops.registry import Op, all_ops
from tests.codegen.test_native import nests

KEPT = [o for o in all_ops() if "elementwise" in o.traits and (o.vjp or not o.is_composite)]
SIMPLE = {"Abs", "Max", "Min", "Pow"}


@pytest.mark.parametrize("record", KEPT, ids=lambda o: o.name)
def test_an_elementwise_op_costs_what_its_formula_has(record: Op) -> None:
    assert record.cost in (CHEAP, DIVISION, CALL)
    if record.formula is None:
        return
    names = {n: sympy.Symbol(n) for n in (*record.inputs, *record.attrs)}
    expression = sympy.sympify(record.formula, locals=names)
    powers = [p.exp for p in expression.atoms(sympy.Pow)]
    functions = {type(f).__name__ for f in expression.atoms(sympy.Function)} - SIMPLE
    if functions or any(not p.is_number for p in powers) or "cbrt" in record.formula:
        assert record.cost == CALL
    elif any(p.is_negative or not p.is_integer for p in powers):
        assert record.cost >= DIVISION
    else:
        assert record.cost == CHEAP


def test_what_a_python_function_computes_is_a_call() -> None:
    cheap = {o.name for o in KEPT if callable(o.numpy) and not is_expensive(o.name)}
    assert cheap == {"clamp", "complex", "philox_kept"}  # the last one for devices alone


def test_what_scipy_computes_number_by_number_is_a_call() -> None:
    of_scipy = [o.name for o in KEPT if any(n.startswith("scipy.special.") for n in o.names)]
    assert len(of_scipy) > 100 and all(map(is_expensive, of_scipy))


def test_what_is_no_op_is_cheap() -> None:
    assert cost_of("load") == cost_of("rounded") == CHEAP


def seconds(op: str, result: str) -> float:
    """The least time of a kernel that has the op of 24 different numbers for each element."""
    lines = [" %s0 : f64[8192] = neg(%x)"]
    for k in range(24):
        lines += [f" %c{k} : float = Constant[value={k / 100}]()",
                  f" %a{k} : f64[8192] = add(%x, %c{k})",
                  f" %y{k} : {result}[8192] = {op}(%a{k})",
                  f" %z{k} : f64[8192] = cast[dtype=f64](%y{k})",
                  f" %s{k + 1} : f64[8192] = add(%s{k}, %z{k})"]  # fmt: skip
    (nest,) = nests("graph f(%x : f64[8192]):\n" + "\n".join(lines) + "\n return (%s24)")
    kernel, x = NativeKernel(nest), np.random.default_rng(0).uniform(0.3, 0.7, 8192)
    found = []
    for _ in range(9):
        start = time.perf_counter()
        kernel(x)
        found.append(time.perf_counter() - start)
    return min(found[1:])


@pytest.mark.long
@pytest.mark.skipif(not status()[0], reason="no native code here")
def test_classes_are_in_the_order_of_measured_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_NUM_THREADS", "1")
    times: dict[int, list[Any]] = {CHEAP: [], DIVISION: [], CALL: []}
    for record in KEPT:
        inputs = (record.inputs, record.attrs, record.is_composite)
        if inputs == (("x",), (), False) and _is_native(record):
            bool_ = "bool" if record.name.startswith("is") else "f64"
            times[record.cost].append((seconds(record.name, bool_), record.name))
    cheap, division, call = (sorted(times[c]) for c in (CHEAP, DIVISION, CALL))
    assert len(cheap) > 5 and len(division) == 3 and len(call) > 20
    assert cheap[-1] < call[0], (cheap, call)
    assert cheap[len(cheap) // 2] < division[0] < call[len(call) // 2]



def _is_native(record: Op) -> bool:
    try:
        (result,) = record.infer([TensorType(F64, (8,))], {})
    except InferenceError:  # of other dtypes
        return False
    return isinstance(result, TensorType) and supports(record.name, [F64], result.dtype)
