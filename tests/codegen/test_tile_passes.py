"""Passes that tiles save, those that torch makes faster, and the axes of a nest."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen.cpu import tiles
from gradof.codegen.cpu.tile_torch import SCALAR_LOOPS, one_thread, writing
from gradof.codegen.cpu.tiles import TileKernel
from gradof.codegen.loopnest import Buffer
from gradof.codegen.run_nest import AsNest, run_nest
from gradof.errors import CodegenError
from gradof.ir.types import F64
from tests.codegen.test_tiles import LOSS, MASKS, NORM, inputs_of, nest_of

SIGNS = """graph f(%x : {d}[9,40], %y : {d}[9,40]):
  %h : float = Constant[value=-0.3]()
  %t : float = Constant[value=2.0]()
  %u : float = Constant[value=3.0]()
  %n : {d}[9,40] = neg(%x)
  %a : {d}[9,40] = mul(%n, %h)
  %b : {d}[9,40] = neg(%a)
  %c : {d}[9,40] = add(%y, %n)
  %e : {d}[9,40] = add(%n, %y)
  %g : {d}[9,40] = sub(%y, %n)
  %i : {d}[9,40] = sub(%n, %y)
  %j : {d}[9,40] = div(%y, %t)
  %k : {d}[9,40] = div(%y, %u)
  %m : {d}[9,40] = mul(%n, %y)
  %o : {d}[9,40] = mul(%h, %n)
  %p : {d}[9,40] = mul(%y, %h)
  %q : {d}[9,40] = neg(%p)
  %r : {d}[9,40] = exp(%p)
  return (%b, %c, %e, %g, %i, %j, %k, %m, %o, %q, %r)"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_signs_and_halves_cost_no_pass_and_no_bit(dtype: str) -> None:
    nest = nest_of(SIGNS.replace("{d}", dtype))
    kernel = TileKernel(nest)
    special = [0.0, -0.0, np.inf, -np.inf, 1.0, -1.5, 5e-324, 1e-45, 3e38, -1.7e308]
    rng = np.random.default_rng(2)
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    with np.errstate(over="ignore"):
        x, y = (np.concatenate([rng.choice(special, 200), rng.standard_normal(160)])
                .astype(kind).reshape(9, 40) for _ in range(2))  # fmt: skip
    with np.errstate(all="ignore"):
        want = run_nest(nest, [x, y])
    for h, w in zip(kernel(x, y), want, strict=True):
        np.testing.assert_array_equal(h, w)
        numbers = ~np.isnan(w)
        np.testing.assert_array_equal(np.signbit(h[numbers]), np.signbit(w[numbers]))
    assert kernel.source.count("np.negative(") == 2, "that of %n, and of a product read twice"
    assert kernel.source.count("np.true_divide(") == 1, "that by three"


SCALED = """graph f(%x : {d}[9,40], %y : {d}[9,40], %w : {d}[40], %r : {d}[9,1]):
  %2 : float = Constant[value={two}]()
  %d : {d}[9,40] = mul(%y, %w)
  %a : {d}[9,40] = mul(%d, %r)
  %s : {d}[9,40] = mul(%d, %x)
  %t : {d}[9,1] = sum[dims=(1,), keepdims=True](%s)
  %m : {d}[9,40] = mul(%x, %2)
  %n : {d}[9,40] = mul(%t, %m)
  %o : {d}[9,40] = add(%a, %n)
  return (%o)"""


@pytest.mark.parametrize(("two", "passes"), [(2.0, 4), (-0.5, 4), (3.0, 5), (1024.0, 5)])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_power_of_two_goes_to_the_row(two: float, passes: int, dtype: str) -> None:
    nest = nest_of(SCALED.replace("{d}", dtype).replace("{two}", str(two)))
    kernel = TileKernel(nest)
    inputs = inputs_of(nest)
    assert kernel.source.count(", out=") == passes
    for have, want in zip(kernel(*inputs), run_nest(nest, inputs), strict=True):
        eps = float(np.finfo(want.dtype).eps)
        bound = 40 * 5 * eps * abs(two)  # of the sum of 40 terms, times some number of x
        np.testing.assert_allclose(have, want, rtol=20 * eps, atol=bound)


def test_what_is_summed_is_written_over_afterwards() -> None:
    kernel = TileKernel(nest_of(SCALED.replace("{d}", "f32").replace("{two}", "2.0")))
    lines = [line.split(" = ")[0].strip() for line in kernel.source.split("\n") if " = " in line]
    assert lines.index("t") < lines.index("a"), kernel.source
    assert len(kernel.widths) == 2, "the product of y and w, and x times numbers of rows"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("columns", [7, 40, 700])
@pytest.mark.parametrize(
    ("text", "call"), [(LOSS, "torch_amax("), (NORM, "torch_mul("), (MASKS, "torch_amin(")]
)
def test_broadcasting_and_extremes_are_torchs_and_change_no_bit(
    text: str, call: str, columns: int, dtype: str
) -> None:
    nest = nest_of(re.sub(r"\b(40|32|24)\b", str(columns), text.replace("{d}", dtype)))
    inputs = inputs_of(nest)
    for a in inputs:
        if a.dtype.kind == "f" and a.size > 9:
            a.reshape(-1)[[0, -2, 5]] = np.nan, np.inf, -np.inf
    kernel, plain = TileKernel(nest, torch=True), TileKernel(nest)
    assert kernel.on_thread is one_thread and call in kernel.source
    assert "torch_" not in plain.source
    for have, want in zip(kernel(*inputs), plain(*inputs), strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div"])
def test_broadcasting_reads_what_torch_cannot(kind: str) -> None:
    a = np.arange(24.0).reshape(4, 6)
    rows = np.linspace(1, 2, 4)[::-1][:, None]  # negative strides
    columns = np.broadcast_to(np.float64(3.0), (1, 6))  # read-only
    ufunc = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide}[kind]
    for b in (rows, columns):
        out = np.empty_like(a)
        assert writing(kind)(a, b, out=out) is out
        np.testing.assert_array_equal(out, ufunc(a, b))
    np.testing.assert_array_equal(rows, np.linspace(1, 2, 4)[::-1][:, None])


@pytest.mark.parametrize("kind", sorted(SCALAR_LOOPS))
def test_functions_of_torchs_are_those_of_eager(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", "tiles")
    function: Any = getattr(torch, kind)
    args = [torch.randn(300, 400, dtype=torch.float64) * 30 for _ in range(2)]
    args = [a.requires_grad_() for a in args[: 2 if kind in ("hypot", "logaddexp") else 1]]

    def fn(*args: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = (function(*args) * args[0]).sum()
        return value

    compiled = gradof.differentiate(fn)
    for _ in range(3):
        have, want = compiled(*args), fn(*args)
        torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-9)
        have_grads, want_grads = (torch.autograd.grad(v * 0.3, args) for v in (have, want))
        for h, w in zip(have_grads, want_grads, strict=True):
            torch.testing.assert_close(h, w, rtol=1e-12, atol=1e-12)
    (plan,) = compiled.plans()
    assert f"torch_{kind}(" in plan.gradients[next(iter(plan.gradients))].f.executable.listing


@pytest.mark.parametrize(
    ("shape", "dims", "axes"),
    [
        ((3, 5), (0, 1), (3, 5)),
        ((3, 5), (1, 0), (5, 3)),
        ((1, 5), (None, 1), (1, 5)),
        ((1, 5), (1, None), (5, 1)),
        ((5, 1), (None, 0), (1, 5)),
        ((2, 1, 3, 4), (3, None, 0, 2), (4, 1, 2, 3)),
        ((1, 1), (None, None, None), (1, 1, 1)),
        ((), (None, None), (1, 1)),
        ((0, 4), (1, 0), (4, 0)),
    ],
)
def test_arrays_have_the_axes_of_the_nest(
    shape: tuple[int, ...], dims: tuple[int | None, ...], axes: tuple[int, ...]
) -> None:
    array = np.arange(float(np.prod(shape))).reshape(shape)
    gaps = np.repeat(array, 2, -1)[..., ::2] if shape else array
    for a in (array, np.asfortranarray(array), gaps):
        view = AsNest(Buffer("x", F64, shape, dims), shape).of(a)
        assert view.shape == axes and (np.shares_memory(view, a) or not a.size)
        named = [d for d in dims if d is not None]
        rest = [d for d in range(len(shape)) if d not in named]
        np.testing.assert_array_equal(view.ravel(), a.transpose(*named, *rest).ravel())


def test_an_axis_that_the_nest_has_not_is_told() -> None:
    with pytest.raises(CodegenError, match="varies along an axis"):
        AsNest(Buffer("x", F64, (3, 5), (None, 1)), (3, 5))


def test_a_kernel_keeps_a_few_shapes_and_takes_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_MAX_PLANS", 2)
    kernel = TileKernel(nest_of(NORM.replace("{d}", "f64")))
    for rows in (6, 3, 9, 6, 1, 3):
        inputs = [np.resize(a, (rows, 32)) if a.ndim == 2 and a.shape[0] == 6 else a
                  for a in inputs_of(kernel.nest)]  # fmt: skip
        want = run_nest(kernel.nest, inputs)
        for h, w in zip(kernel(*inputs), want, strict=True):
            np.testing.assert_allclose(h, w, rtol=1e-12, atol=1e-12)
        assert 1 <= len(kernel._plans) <= 2
