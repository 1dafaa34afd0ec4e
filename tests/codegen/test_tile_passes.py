"""Passes that tiles save, those that torch makes faster, and the axes of a nest."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen.loops.interpret import AsNest, run_nest
from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.tiles import kernel as tiles
from gradof.codegen.tiles.kernel import TileKernel
from gradof.codegen.tiles.torch_calls import SCALAR_LOOPS, one_thread, row_total
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
    assert kernel.source.count("np.negative(") == 1, "that of %n"
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


@pytest.mark.parametrize(("two", "passes"), [(2.0, 4), (-0.5, 4), (3.0, 5), (8192.0, 5)])
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


BROAD = """graph f(%x : {d}[9,40], %w : {d}[40], %r : {d}[9,1]):
  %a : {d}[9,40] = add(%x, %w)
  %b : {d}[9,40] = sub(%r, %a)
  %c : {d}[9,40] = mul(%b, %w)
  %e : {d}[9,40] = div(%c, %r)
  %m : {d}[9,1] = amax[dims=(1,), keepdims=True](%e)
  %n : {d}[9,1] = amin[dims=(1,), keepdims=True](%b)
  return (%a, %b, %c, %e, %m, %n)"""


def resized(text: str, dtype: str, columns: int) -> tuple[LoopNest, list[Any]]:
    """A nest of so many columns, and inputs with some numbers that are not finite."""
    nest = nest_of(re.sub(r"\b(40|32|24)\b", str(columns), text.replace("{d}", dtype)))
    inputs = inputs_of(nest)
    for a in inputs:
        if a.dtype.kind == "f" and a.size > 9:
            a.reshape(-1)[[0, -2, 5]] = np.nan, np.inf, -np.inf
    return nest, inputs


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("columns", [7, 40, 700])
def test_broadcasting_and_extremes_are_torchs_and_change_no_bit(columns: int, dtype: str) -> None:
    nest, inputs = resized(BROAD, dtype, columns)
    kernel, plain = TileKernel(nest, torch=True), TileKernel(nest)
    assert kernel.calls_torch and "torch_" not in plain.source
    for call in ("torch_add(", "torch_sub(", "torch_mul(", "torch_div(", "torch_amax(",
                 "torch_amin("):  # fmt: skip
        assert call in kernel.source
    for have, want in zip(kernel(*inputs), plain(*inputs), strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("columns", [7, 40, 700])
@pytest.mark.parametrize("text", [LOSS, NORM, MASKS])
def test_torchs_sums_are_numpys_but_for_rounding(text: str, columns: int, dtype: str) -> None:
    nest, inputs = resized(text, dtype, columns)
    kernel, plain = TileKernel(nest, torch=True), TileKernel(nest)
    assert ("torch_total(" in kernel.source) == (text != MASKS)
    for have, want in zip(kernel(*inputs), plain(*inputs), strict=True):
        eps, finite = float(np.finfo(want.dtype).eps), np.isfinite(want)
        np.testing.assert_array_equal(have[~finite], want[~finite])
        have, want = have[finite], want[finite]
        bound = 50 * eps * np.abs(want).max(initial=0)
        np.testing.assert_allclose(have, want, rtol=100 * eps, atol=bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [5, 9, 40, 257, 1024, 5000])
def test_how_torch_adds_a_row_does_not_depend_on_the_others(columns: int, dtype: Any) -> None:
    x = np.random.default_rng(columns).standard_normal((67, columns)).astype(dtype)
    with one_thread():
        together = row_total()(torch.from_numpy(x))
        for start, stop in ((0, 1), (3, 11), (66, 67), (2, 66)):
            alone = row_total()(torch.from_numpy(x[start:stop].copy()))
            np.testing.assert_array_equal(alone, together[start:stop])
        apart = row_total()(torch.from_numpy(x.T.copy()).T)  # columns that are not adjacent
    exact = x.astype(np.longdouble).sum(1, keepdims=True)
    bound = 20 * float(np.finfo(dtype).eps) * np.abs(x).sum(1, keepdims=True)
    assert (np.abs(together - exact) <= bound).all() and (np.abs(apart - exact) <= bound).all()


FUSED = """graph f(%x : {d}[9,40], %y : {d}[9,40], %w : {d}[40], %r : {d}[9,1], %q : {d}[9,1]):
  %h : float = Constant[value=-0.3]()
  %k : float = Constant[value=0.7]()
  %a : {d}[9,40] = mul(%x, %w)
  %b : {d}[9,40] = add(%a, %y)
  %c : {d}[9,40] = mul(%r, %x)
  %e : {d}[9,40] = sub(%y, %c)
  %g : {d}[9,40] = sub(%c, %y)
  %i : {d}[9,40] = mul(%x, %h)
  %j : {d}[9,40] = add(%i, %k)
  %l : {d}[9,40] = mul(%y, %h)
  %m : {d}[9,40] = sub(%x, %l)
  %n : {d}[9,40] = mul(%x, %y)
  %o : {d}[9,40] = add(%n, %a)
  %s : {d}[9,40] = mul(%q, %x)
  %t : {d}[9,40] = add(%s, %r)
  %u : {d}[9,40] = sub(%k, %n)
  return (%b, %e, %g, %j, %m, %o, %t, %u{more})"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_sum_with_a_product_is_one_call_whoever_else_reads_it(dtype: str) -> None:
    text = FUSED.replace("{d}", dtype)
    fewer, more = (nest_of(text.replace("{more}", also)) for also in ("", ", %a, %i, %n"))
    inputs = inputs_of(fewer)
    named = {b.name: a for b, a in zip(fewer.inputs, inputs, strict=True)}
    kernels = [TileKernel(nest, torch=True) for nest in (fewer, more)]
    source = kernels[0].source
    for call in (
        "torch_addcmul(tensor_y, tensor_x, tensor_w, out=",  # b
        "torch_addcmul(tensor_y, tensor_r, tensor_x, value=-1.0, out=",  # e
        "torch_add(number(0.7), tensor_x, alpha=-0.3, out=",  # j
        "torch_add(tensor_x, tensor_y, alpha=0.3, out=",  # m
        "torch_addcmul(number(0.7), tensor_x, tensor_y, value=-1.0, out=",  # u
        "torch_mul(tensor_q, tensor_x, out=",  # s: with r it would be two of rows
    ):
        assert call in source, source
    assert source.count("addcmul(") == 4 and "addcmul" not in TileKernel(fewer).source
    have, again = kernels[0](*inputs), kernels[1](*(named[b.name] for b in more.inputs))
    found = {b.name: a for b, a in zip(more.outputs, again, strict=True)}
    for b, one in zip(fewer.outputs, have, strict=True):
        np.testing.assert_array_equal(one, found[b.name])
    bound = 40 * float(np.finfo(have[0].dtype).eps)
    for one, want in zip(have, run_nest(fewer, inputs), strict=True):
        np.testing.assert_allclose(one, want, rtol=0, atol=bound)
    inputs[0][0, :3] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = run_nest(fewer, inputs)
    for one, want in zip(kernels[0](*inputs), expected, strict=True):
        np.testing.assert_array_equal(one[0, :3], want[0, :3])


NUMBERS = """graph f(%x : {d}[9,40], %y : {d}[9,40], %w : {d}[40], %z : {d}[9,40]):
  %h : float = Constant[value={number}]()
  %a : {d}[9,40] = mul(%x, %h)
  %b : {d}[9,40] = mul(%a, %y)
  %c : {d}[9,40] = add(%z, %b)
  %e : {d}[9,40] = mul(%h, %y)
  %g : {d}[9,40] = mul(%x, %e)
  %i : {d}[9,40] = sub(%w, %g)
  %j : {d}[9,40] = mul(%z, %h)
  %k : {d}[9,40] = div(%j, %y)
  %l : {d}[9,40] = sub(%x, %k)
  %m : {d}[9,40] = div(%z, %w)
  %n : {d}[9,40] = add(%m, %x)
  %o : {d}[9,40] = div(%x, %y)
  %p : {d}[9,40] = sub(%o, %z)
  return (%c, %i, %l, %n, %p{more})"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("number", ["-0.3", "1e30"])
def test_a_number_on_the_way_to_a_sum_is_given_to_torch(number: str, dtype: str) -> None:
    text = NUMBERS.replace("{d}", dtype).replace("{number}", number)
    fewer, more = (nest_of(text.replace("{more}", m)) for m in ("", ", %a, %e, %j, %m"))
    named = dict(zip((b.name for b in fewer.inputs), inputs_of(fewer), strict=True))
    named["y"][0, :4] = 0.0, -0.0, np.inf, np.nan
    kernels = [TileKernel(nest, torch=True) for nest in (fewer, more)]
    by, source = float(number), kernels[0].source
    for call in (
        f"torch_addcmul(tensor_z, tensor_x, tensor_y, value={by!r}, out=",  # c
        f"torch_addcmul(tensor_w, tensor_y, tensor_x, value={-by!r}, out=",  # i
        f"torch_addcdiv(tensor_x, tensor_z, tensor_y, value={-by!r}, out=",  # l
        "torch_addcdiv(tensor_x, tensor_z, tensor_w, out=",  # n
    ):
        assert call in source, source
    assert "np.multiply" not in source and source.count("addcdiv(") == 2
    other = kernels[1].source  # where others read what is rounded on the way
    assert other.count("addcdiv(") == 1 and set(re.findall(r"value=([^,]*)", other)) == {"-1.0"}
    have, again = (k(*(named[b.name] for b in k.nest.inputs)) for k in kernels)
    found = {b.name: a for b, a in zip(more.outputs, again, strict=True)}
    with np.errstate(all="ignore"):
        want = run_nest(fewer, [named[b.name] for b in fewer.inputs])
    for b, one, other in zip(fewer.outputs, have, want, strict=True):
        np.testing.assert_array_equal(one, found[b.name])
        eps = float(np.finfo(one.dtype).eps)
        np.testing.assert_allclose(one, other, rtol=40 * eps, atol=40 * eps)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("number", [
    "inf", "-inf", "nan", "1e300", "-1e300", "3.5e38", "3e38", "0.0", "-0.0", "1e-310", "7",
    "1" + 25 * "0", "1" + 45 * "0"])  # fmt: skip
def test_any_number_is_added_and_multiplied(number: str, dtype: str) -> None:
    kind = "int" if number.isdigit() else "float"
    text = f"""graph f(%x : {dtype}[9,40], %y : {dtype}[9,40]):
      %k : {kind} = Constant[value={number}]()
      %a : {dtype}[9,40] = mul(%x, %k)
      %b : {dtype}[9,40] = add(%a, %y)
      %c : {dtype}[9,40] = sub(%y, %a)
      %p : {dtype}[9,40] = mul(%x, %y)
      %e : {dtype}[9,40] = add(%p, %k)
      %g : {dtype}[9,40] = sub(%k, %p)
      return (%b, %c, %e, %g)"""
    nest = nest_of(text)
    inputs = inputs_of(nest)
    inputs[0][0, :4] = inputs[1][0, :4] = 0.0, -0.0, np.inf, np.nan
    with np.errstate(all="ignore"):
        want = run_nest(nest, inputs)
    bound = 8 * float(np.finfo(want[0].dtype).eps)
    for one, other in zip(TileKernel(nest, torch=True)(*inputs), want, strict=True):
        finite = np.isfinite(other)
        np.testing.assert_array_equal(one[~finite], other[~finite])
        np.testing.assert_allclose(one[finite], other[finite], rtol=bound, atol=20 * bound)
        zeros = other == 0
        np.testing.assert_array_equal(np.signbit(one[zeros]), np.signbit(other[zeros]))


def test_torch_reads_what_it_cannot_see() -> None:
    nest = nest_of(BROAD.replace("{d}", "f64"))
    inputs = inputs_of(nest)
    rows = next(k for k, b in enumerate(nest.inputs) if b.shape == (9, 1))
    inputs[rows] = inputs[rows][::-1]  # negative strides
    for a in inputs:
        a.flags.writeable = False
    kept = [a.copy() for a in inputs]
    have, want = TileKernel(nest, torch=True)(*inputs), run_nest(nest, inputs)
    for one, other in zip(have, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    for a, b in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(a, b)


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
