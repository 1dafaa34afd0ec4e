"""Rows that torch computes in one call: where that is so, where it may not be, and the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof import tuning
from gradof.codegen.tiles.kernel import TileKernel
from gradof.codegen.tiles.row_calls import row_functions
from gradof.errors import CodegenError

Function = Callable[..., torch.Tensor]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[TileKernel]:
    """The kernels that are made from here on, of any size."""
    made: list[TileKernel] = []
    init = TileKernel.__init__

    def remember(self: TileKernel, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(TileKernel, "__init__", remember)
    monkeypatch.setenv("GRADOF_BACKEND", "tiles")
    return made


def calls(kernels: list[TileKernel]) -> dict[str, int]:
    """How often each call of whole rows is in the kernels' sources."""
    text = "".join(k.source for k in kernels)
    names = ("softmax", "softmax_grad", "layer_norm", "layer_norm_grad")
    counts = {name: text.count(f"torch_{name}(") for name in names}
    return {name: n for name, n in counts.items() if n}


def check(function: Function, args: list[torch.Tensor], argnums: tuple[int, ...]) -> None:
    """Value and gradients are float64 eager's."""
    value, gradients = gradof.value_and_grad(function, argnums=argnums)(*args)
    wide = [a.double().requires_grad_(k in argnums) for k, a in enumerate(args)]
    want = function(*wide)
    expected = torch.autograd.grad(want, [wide[k] for k in argnums])
    eps = torch.finfo(args[0].dtype).eps
    total = args[0].numel() ** 0.5  # of so many numbers around zero
    torch.testing.assert_close(value.double(), want, rtol=0, atol=40 * eps * total)
    for one, other in zip(gradients, expected, strict=True):
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one.double(), other, rtol=0, atol=40 * eps * scale)


def arrays(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Normal numbers."""
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


N, C = 400, 136
NORMS: dict[str, tuple[Function, tuple[tuple[int, ...], ...], tuple[int, ...], dict[str, int]]] = {
    "affine": (
        lambda x, w, b, y: (F.layer_norm(x, (C,), w, b) * y).sum(),
        ((N, C), (C,), (C,), (N, C)), (0, 1, 2, 3), {"layer_norm": 1, "layer_norm_grad": 1}),
    "the weight is given": (
        lambda x, w, b, y: (F.layer_norm(x, (C,), w, b) * y).sum(),
        ((N, C), (C,), (C,), (N, C)), (0,), {"layer_norm": 1, "layer_norm_grad": 1}),
    "x is given": (
        lambda x, w, b, y: (F.layer_norm(x, (C,), w, b) * y).sum(),
        ((N, C), (C,), (C,), (N, C)), (1, 2), {"layer_norm": 1, "layer_norm_grad": 1}),
    "the weight alone": (
        lambda x, w, b, y: (F.layer_norm(x, (C,), w, b) * y).sum(),
        ((N, C), (C,), (C,), (N, C)), (0, 1), {"layer_norm": 1, "layer_norm_grad": 1}),
    "no bias": (
        lambda x, w, y: (F.layer_norm(x, (C,), w) * y).sin().sum(),
        ((N, C), (C,), (N, C)), (0, 1), {"layer_norm": 1, "layer_norm_grad": 1}),
    "no weight": (
        lambda x, y: (F.layer_norm(x, (C,)) * y).sin().sum(),
        ((N, C), (N, C)), (0, 1), {"layer_norm": 1, "layer_norm_grad": 1}),
    "no power of two": (
        lambda x, w, b, y: (F.layer_norm(x, (99,), w, b, 0.1) * y).sum(),
        ((N, 99), (99,), (99,), (N, 99)), (0, 1, 2), {"layer_norm": 1, "layer_norm_grad": 1}),
    "batches": (
        lambda x, w, b, y: (F.layer_norm(x, (C,), w, b).tanh() * y).sum(),
        ((5, 80, C), (C,), (C,), (5, 80, C)), (0, 1, 2), {"layer_norm": 1, "layer_norm_grad": 1}),
    "of a sum": (
        lambda x, r, a, w, b, y: (F.layer_norm(x + a + r, (C,), w, b) * y).sum(),
        ((N, C), (N, C), (C,), (C,), (C,), (N, C)), (0, 1, 2, 3, 4),
        {"layer_norm": 1, "layer_norm_grad": 1}),
    "x has another way": (
        lambda x, w, b, y: ((x + F.layer_norm(x, (C,), w, b)) * y).sum(),
        ((N, C), (C,), (C,), (N, C)), (0, 1, 2), {"layer_norm": 1, "layer_norm_grad": 1}),
    "x has another way before": (
        lambda x, w, b, y: (F.layer_norm(x, (C,), w, b) * y + x.sin()).sum(),
        ((N, C), (C,), (C,), (N, C)), (0, 1, 2), {"layer_norm": 1, "layer_norm_grad": 1}),
    "two of them": (
        lambda x, w, b, y: (F.layer_norm(F.layer_norm(x, (C,), w, b).sin(), (C,), b, w) * y).sum(),
        ((N, C), (C,), (C,), (N, C)), (0, 1, 2), {"layer_norm": 2, "layer_norm_grad": 2}),
    "the same row for all": (
        lambda x, w, b, y: (F.layer_norm(x, (C,), w, b) * y).sum(),
        ((N, C), (C,), (C,), (C,)), (0, 1, 2), {"layer_norm": 1}),
    "few columns": (
        lambda x, w, b, y: (F.layer_norm(x, (63,), w, b) * y).sum(),
        ((999, 63), (63,), (63,), (999, 63)), (0, 1, 2), {}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NORMS)
def test_layer_norms_are_one_call_and_one_for_gradients(
    name: str, dtype: torch.dtype, kernels: list[TileKernel]
) -> None:
    function, shapes, argnums, expected = NORMS[name]
    check(function, arrays(*shapes, dtype=dtype), argnums)
    assert calls(kernels) == expected
    assert not any("check=True" in k.source for k in kernels), "the nest says what is centred"


SOFTMAXES: dict[str, tuple[Function, dict[str, int]]] = {
    "softmax": (
        lambda x, y: (torch.softmax(x * 0.3, -1) * y).sum(), {"softmax": 1, "softmax_grad": 1}),
    "by hand": (
        lambda x, y: ((e := (x - x.detach().amax(-1, keepdim=True)).exp())
                      / e.sum(-1, keepdim=True) * y).sum(),
        {"softmax": 1}),
    "its sum is read": (
        lambda x, y: (torch.softmax(x, -1) * y).sum() + torch.logsumexp(x, -1).sum(),
        {"softmax": 1, "softmax_grad": 1}),
    "of one row for all": (
        lambda x, y: (torch.softmax(x[:1] + y[0], -1) * y).sum(), {}),
    "a smaller sum": (
        lambda x, y: ((e := (x - x.detach().amin(-1, keepdim=True)).exp())
                      / e.sum(-1, keepdim=True) * y).sum(), {}),
    "log_softmax": (lambda x, y: (torch.log_softmax(x, -1) * y).sum(), {}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SOFTMAXES)
def test_a_softmax_is_one_call_and_one_for_its_gradient(
    name: str, dtype: torch.dtype, kernels: list[TileKernel]
) -> None:
    function, expected = SOFTMAXES[name]
    check(function, arrays((4, 100, C), (4, 100, C), dtype=dtype), (0, 1))
    assert calls(kernels) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_may_lie_apart(dtype: torch.dtype, kernels: list[TileKernel]) -> None:
    shapes = ((C, N), (C, N))
    check(lambda x, y: (torch.softmax(x.T, -1) * y.T).sum(), arrays(*shapes, dtype=dtype), (0, 1))
    check(lambda x, y: (F.layer_norm(x.T, (C,)) * y.T).sum(), arrays(*shapes, dtype=dtype), (0, 1))
    assert calls(kernels) == {
        "softmax": 1, "softmax_grad": 1, "layer_norm": 1, "layer_norm_grad": 1
    }  # fmt: skip
    x, y, w = arrays((N, C), (N, C), (C, 3), dtype=dtype)
    apart = [torch.stack([a, a * 2], -1)[..., 0] for a in (x, y)]
    check(NORMS["affine"][0], [apart[0], w[:, 0], w[:, 1], apart[1]], (0, 1, 2))
    for out in (torch.zeros(C, N, dtype=dtype).T, torch.zeros(N, 2 * C, dtype=dtype)[:, ::2]):
        g, x = arrays((N, C), (N, C), dtype=dtype)
        p = torch.softmax(x, -1)
        row_functions()["softmax_grad"](g, p, out=out)
        wanted = p.double() * (g.double() - (g.double() * p.double()).sum(-1, keepdim=True))
        tolerance = 40 * torch.finfo(dtype).eps
        torch.testing.assert_close(out.double(), wanted, rtol=0, atol=tolerance)


def centred(x: torch.Tensor) -> torch.Tensor:
    """Less the mean of each row."""
    return x - x.mean(-1, keepdim=True)


OTHERS: dict[str, Function] = {
    "divided by one less": lambda x, y: (
        centred(x) * ((centred(x) ** 2).sum(-1, keepdim=True) / (C - 1) + 0.1).rsqrt() * y).sum(),
    "the mean of others": lambda x, y: (
        (x - y.mean(-1, keepdim=True))
        * (((x - y.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + 0.1).rsqrt() * y).sum(),
    "twice the mean": lambda x, y: (
        (c := x - x.mean(-1, keepdim=True) * 2)
        * ((c * c).mean(-1, keepdim=True) + 0.1).rsqrt() * y).sum(),
    "root mean square": lambda x, y: (
        x * ((x * x).mean(-1, keepdim=True) + 0.1).rsqrt() * y).sum(),
}  # fmt: skip


PARTS: dict[str, tuple[Function, dict[str, int]]] = {
    "a variance that varies": (
        lambda x, y: (
            (c := centred(x))
            * ((c * c).mean(-1, keepdim=True) + y[:, :1] ** 2).rsqrt() * y).sum(),
        {"layer_norm_grad": 1}),
    "what is centred is read": (
        lambda x, y: (
            (c := centred(x)) * ((c * c).mean(-1, keepdim=True) + 0.1).rsqrt() * y + c.sin()).sum(),
        {"layer_norm": 1}),
    "a root mean square's weight": (
        lambda x, y: (
            x * ((x * x).mean(-1, keepdim=True) + 0.1).rsqrt() * y[0] * y.sin()).sum(),
        {"layer_norm_grad": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_norm_are_calls_by_themselves(name: str, kernels: list[TileKernel]) -> None:
    function, expected = PARTS[name]
    check(function, arrays((N, C), (N, C)), (0, 1))
    assert calls(kernels) == expected
    assert not any("check=True" in k.source for k in kernels), "the nest says what is centred"


def gradient(c: torch.Tensor, g: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """Of a layer norm, if c is centred and r the inverse deviation."""
    d = g * r - c * (r * r * r * (g * c).mean(-1, keepdim=True))
    return d - d.mean(-1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [
    "centred", "moved", "by a mean", "by another", "not finite", "rows apart", "one for all rows",
])  # fmt: skip
def test_a_gradient_of_what_is_not_centred_is_what_it_says(
    kind: str, dtype: torch.dtype, kernels: list[TileKernel]
) -> None:
    x, g, m, r = arrays((N, C), (N, C), (N, 1), (N, 1), dtype=dtype)
    if kind == "not finite":
        x[3, 7] = torch.inf
    mean = {"by a mean": x.mean(-1, keepdim=True), "by another": m}
    if kind == "rows apart":
        r = arrays((N, 3), dtype=dtype)[0][:, 1:2]
        mean[kind] = torch.stack([x.mean(-1, keepdim=True)] * 2, 1)[:, 1]
    if kind == "one for all rows":
        r = r[:1].expand(N, 1)

    def function(x: Any, g: Any, m: Any, r: Any) -> torch.Tensor:
        return gradient(x - m if kind in mean else x, g, r)

    r.abs_() if kind != "one for all rows" else r[:1].abs_()
    is_centred = kind in ("centred", "one for all rows")
    args = [centred(x) if is_centred else x, g, mean.get(kind, m), r]
    want = function(*(a.double() for a in args))
    scale = 40 * torch.finfo(dtype).eps * float(want[:3].abs().max())
    found = gradof.differentiate(function)(*args)
    torch.testing.assert_close(found.double(), want, rtol=0, atol=scale, equal_nan=True)
    assert calls(kernels) == {"layer_norm_grad": 1} and "check=True" in kernels[0].source


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_like_a_norm_is_computed_as_it_is(
    name: str, kernels: list[TileKernel]
) -> None:
    check(OTHERS[name], arrays((N, C), (N, C)), (0, 1))
    assert kernels and calls(kernels) == {}


def test_a_norm_whose_deviation_is_read_gives_it_too(kernels: list[TileKernel]) -> None:
    def norm(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        c = centred(x)
        inverse = ((c * c).mean(-1, keepdim=True) + 0.1).rsqrt()
        return c * inverse, inverse.log()

    (x,) = arrays((N, C))
    for one, other in zip(gradof.differentiate(norm)(x), norm(x.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=2e-6)
    assert calls(kernels) == {"layer_norm": 1}


def test_rows_that_are_not_finite_are_torchs(kernels: list[TileKernel]) -> None:
    x, w, b = arrays((N, C), (C,), (C,))
    x[0, 3], x[1, 5], x[2], x[3] = torch.nan, torch.inf, -torch.inf, 3.0

    def both(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.softmax(x, -1), F.layer_norm(x, (C,), w, b)

    for one, other in zip(gradof.differentiate(both)(x, w, b), both(x, w, b), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-5, atol=1e-6)
    assert calls(kernels) == {"softmax": 1, "layer_norm": 1}


def test_sums_are_the_same_bits_on_any_threads(
    kernels: list[TileKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, shapes, argnums, _ = NORMS["affine"]
    x, w, b, y = (a.repeat(8, *[1] * (a.ndim - 1)) if a.ndim == 2 else a for a in arrays(*shapes))
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            monkeypatch.setenv("GRADOF_NUM_THREADS", str(threads))
            found.append(gradof.grad(function, argnums=argnums)(x, w, b, y))
            found.append(gradof.value_and_grad(function, argnums=argnums)(x, w, b, y)[1])
    finally:
        torch.set_num_threads(before)
    for gradients in found[1:]:
        for one, other in zip(gradients, found[0], strict=True):
            assert torch.equal(one, other)
    assert all(k.sums_tiles for k in kernels) and tuning.TILE_CELLS < x.numel() // 2


def test_a_norm_is_for_its_number_of_columns(kernels: list[TileKernel]) -> None:
    check(NORMS["no weight"][0], arrays((N, C), (N, C)), (0,))
    (kernel,) = kernels
    with pytest.raises(CodegenError, match=f"for {C} columns, not 70"):
        kernel(np.zeros((N, 70), np.float32), np.zeros((N, 70), np.float32))
