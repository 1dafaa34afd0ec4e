"""Raw bfloat16 in emitted code: conversions only where they are due, products as eager has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradof.codegen import compile_graph
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.lowering.half import widen_bf16
from gradof.codegen.lowering.half_products import mm_bf16, mm_f16, multiplies
from gradof.ir.types import BF16, F16, DType
from tests.codegen.test_native_half import EPS, held, primitives, raw, wide


def dtypes_of(run: Callable[..., Any]) -> set[DType]:
    nest: LoopNest = run.nest  # type: ignore[attr-defined]
    return {b.dtype for b in (*nest.inputs, *nest.outputs) if len(b.shape) > 1}


@pytest.mark.parametrize("half", ["bf16", "f16"])
def test_a_torch_callers_kernels_read_and_write_2_bytes(half: str) -> None:
    text = """graph f(%x : {h}[300,200], %w : {h}[200,200], %y : {h}[300,200]):
      %0 : {h}[300,200] = exp(%x)
      %1 : {h}[300,200] = mul(%0, %y)
      %2 : {h}[200,300] = permute[dims=(1, 0)](%1)
      %3 : {h}[200,300] = add(%2, %2)
      %4 : {h}[200,200] = mm(%3, %1)
      %5 : {h}[200,200] = mul(%4, %w)
      %6 : {h}[200,200] = square(%5)
      return (%1, %2, %6)""".replace("{h}", half)  # fmt: skip
    run = compile_graph(primitives(text), library="torch", backend="native")
    assert [k.emitter for k in run.kernels] == ["native"] * len(run.kernels) and run.kernels
    assert set().union(*map(dtypes_of, run.kernels)) == {BF16 if half == "bf16" else F16}
    given = [held(np.random.default_rng(k).normal(0, 0.1, s), half)
             for k, s in enumerate(((300, 200), (200, 200), (300, 200)))]  # fmt: skip
    have = run(*[raw(a, half) for a in given])
    want = compile_graph(primitives(text), backend="numpy")(*given)
    if half == "bf16":  # the product's operands alone are widened, where torch multiplies float32
        count = 0 if multiplies("bf16") else 2
        assert run.source.count("widen_bf16(") == count
        assert run.source.count("narrow_bf16(") == count // 2
        assert all(a.dtype == np.uint16 for a in have)
    for a, b in zip(have, want, strict=True):  # numpy and libmvec differ in the bits of exp
        b = np.asarray(b, np.float32)
        np.testing.assert_allclose(wide(a, half), b, rtol=0, atol=2 * EPS[half] * np.abs(b).max())


@pytest.mark.parametrize("shapes", [((5, 7), (7, 3)), ((64, 300), (300, 40)),
                                    ((4, 9, 33), (4, 33, 17))])  # fmt: skip
@pytest.mark.parametrize("half", ["bf16", "f16"])
def test_products_are_summed_in_float32_and_rounded_once(half: str, shapes: Any) -> None:
    given = [held(np.random.default_rng(k).standard_normal(s), half)
             for k, s in enumerate(shapes)]  # fmt: skip
    exact = np.matmul(*(a.astype(np.float64) for a in given))
    run = mm_bf16 if half == "bf16" else mm_f16
    for a, b in (given, [np.swapaxes(np.swapaxes(x, -1, -2).copy(), -1, -2) for x in given]):
        have = wide(run(raw(a, half), raw(b, half)), half)
        off = np.abs(have - exact).max()
        assert off <= EPS[half] * np.abs(exact).max() * 0.51


def test_products_are_float32s_where_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradof.codegen.lowering.half_products.multiplies", lambda dtype: False)
    graph = primitives("graph f(%x : bf16[9,9]):\n %y : bf16[9,9] = mm(%x, %x)\n return (%y)")
    x = held(np.random.default_rng(0).standard_normal((9, 9)), "bf16")
    run = compile_graph(graph, library="torch")
    assert "narrow_bf16" in run.source
    (want,) = compile_graph(graph)(x)
    np.testing.assert_array_equal(widen_bf16(run(raw(x, "bf16"))[0]), want)


VIEWS = """graph f(%x : bf16[6,8], %y : bf16[6,8]):
  %a : bf16[8,6] = permute[dims=(1, 0)](%x)
  %b : bf16[3,6] = slice[dim=0, start=1, stop=7, step=2](%a)
  %c : bf16[3,6] = exp(%b)
  %d : bf16[8,6] = exp(%a)
  %e : bf16[2,3,6] = expand[shape=(2, 3, 6)](%c)
  %f : bf16[8,12] = cat[dim=1](%d, %a)
  %g : f32[8,6] = cast[dtype=f32](%a)
  return (%a, %c, %e, %f, %g, %x, %x, %y, %d)"""


def test_views_inputs_and_results_of_both_kinds() -> None:
    x, y = (held(np.random.default_rng(k).standard_normal((6, 8)), "bf16") for k in (0, 1))
    run = compile_graph(primitives(VIEWS), library="torch")
    have, want = run(raw(x, "bf16"), raw(y, "bf16")), compile_graph(primitives(VIEWS))(x, y)
    for a, b, value in zip(have, want, primitives(VIEWS).outputs, strict=True):
        assert a.flags.writeable and a.shape == b.shape
        assert a.dtype == (np.uint16 if "bf16" in str(value.type) else np.float32)
        np.testing.assert_allclose(wide(a, "bf16") if a.dtype == np.uint16 else a, b, rtol=2**-7)
    for k, a in enumerate(have):
        assert not any(np.shares_memory(a, b) for b in have[k + 1 :])
    assert run.source.count("widen_bf16(x") == 1  # each value once


def test_a_numpy_callers_bfloat16_is_held() -> None:
    graph = primitives(
        "graph f(%x : bf16[300,200]):\n %0 : bf16[300,200] = exp(%x)\n"
        " %y : bf16[300,200] = mul(%0, %x)\n return (%y)"
    )
    x = held(np.random.default_rng(0).standard_normal((300, 200)), "bf16")
    run = compile_graph(graph, backend="native")
    assert run.kernels and run(x)[0].dtype == np.float32
    want = compile_graph(graph, backend="numpy")(x)[0]
    np.testing.assert_allclose(run(x)[0], want, rtol=2**-7)
