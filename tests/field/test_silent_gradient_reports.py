"""Reports of gradients that were wrong without a word, written anew; eager has the numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradof
from gradof import differentiate
from gradof.errors import LeafMutationError, UnsupportedOpError
from tests.runtime.compare import check, close

Tensor = torch.Tensor
F64 = torch.float64


def _leaf(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).to(dtype).requires_grad_()


def test_pytorch_182012_diagonal_scatter_has_a_gradient() -> None:
    """The gradient of what is not overwritten was zero, silently."""
    for offset in (0, 1, -2):
        n = 5 - abs(offset)
        check(lambda x, s, o=offset: torch.diagonal_scatter(x, s, o).square().sum(),
              _leaf(5, 5), _leaf(n, seed=1), order=2)  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1])
def test_pytorch_180164_slice_scatter_then_a_sum_over_the_dim(dim: int) -> None:
    y = _leaf(*((2, 5) if dim == 0 else (4, 2)), seed=1)
    check(lambda x, y: torch.slice_scatter(x, y, dim=dim, start=1, end=3).sin().sum(dim=dim),
          _leaf(4, 5), y, order=2)  # fmt: skip


def test_pytorch_180164_slice_scatter_into_an_expanded_tensor() -> None:
    """The gradient is expanded, of stride zero, where the slice is cut out of it."""
    check(lambda x, y: torch.slice_scatter(x.expand(3, 4), y, dim=1, start=0, end=2).sum(),
          _leaf(4), _leaf(3, 2, seed=1))  # fmt: skip


def test_pytorch_136662_a_copied_row_then_zeroed() -> None:
    """Ones, a column copied in, a strided view of a clone overwritten: reordering breaks it."""

    def fn(c: Tensor) -> Tensor:
        a = torch.ones(2, 3, dtype=F64)
        a[:, 0].copy_(c)
        d = a.clone()
        column = d[:, 0]
        kept = column.clone()
        column.copy_(torch.zeros(2, dtype=F64))
        return (kept * c + d.sum(1)).sum()

    check(fn, _leaf(2), order=2)


def test_a_gradient_through_two_views_of_one_buffer() -> None:
    def fn(x: Tensor) -> Tensor:
        buffer = torch.zeros(4, 4, dtype=F64)
        buffer[:2] = x[:2] * 2
        buffer[:, 1:3] += x[:, :2]
        buffer.diagonal().mul_(x[0])
        return (buffer * buffer).sum()

    check(fn, _leaf(4, 4), order=2)


def test_pytorch_100794_a_result_used_in_place_and_again() -> None:
    """The value before the change feeds one branch, the value after it another."""

    def fn(x: Tensor) -> Tensor:
        y = x.sin()
        before = y * 2
        y.mul_(x).add_(1)
        return (before * y).sum()

    check(fn, _leaf(5), order=2)


def test_pytorch_193061_chained_modulated_norms_share_one_table() -> None:
    """The gradient of one half of the table was never written."""

    def fn(x: Tensor, table: Tensor) -> Tensor:
        for scale, shift in (table[0:2].unbind(0), table[2:4].unbind(0)):
            x = F.layer_norm(x, (x.shape[-1],)) * (1 + scale) + shift
        return x.square().mean()

    check(fn, _leaf(6, 8), _leaf(4, 8, seed=1), order=2)
    check(fn, _leaf(300, 64, dtype=torch.float32), _leaf(4, 64, seed=1, dtype=torch.float32))


def test_pytorch_91468_retain_grad_and_a_hook_on_a_result() -> None:
    """Hooks on what a compiled function returns run, and may change the gradient."""
    x = _leaf(4)
    seen: list[Tensor] = []
    y = differentiate(torch.sin)(x)
    y.retain_grad()

    def double(g: Tensor) -> Tensor:
        seen.append(g)
        return g * 2

    y.register_hook(double)
    y.square().sum().backward()
    torch.testing.assert_close(seen[0], 2 * x.detach().sin())
    torch.testing.assert_close(y.grad, 4 * x.detach().sin())
    torch.testing.assert_close(x.grad, 4 * x.detach().sin() * x.detach().cos())


def test_pytorch_91468_a_hook_inside_runs_or_is_refused() -> None:
    """It is never ignored."""
    counted: list[Tensor] = []

    def doubled(x: Any) -> Any:
        y = x.sin()
        y.register_hook(lambda g: g * 2)
        return y.sum()

    def noted(x: Any) -> Any:
        y = x.sin()
        y.register_hook(counted.append)
        return y.sum()

    x = _leaf(3)
    (slope,) = torch.autograd.grad(differentiate(doubled)(x), x)
    torch.testing.assert_close(slope, 2 * x.detach().cos())
    with pytest.raises(gradof.errors.TraceError, match="hook"):
        differentiate(noted, strict=True)(x)
    assert not counted


def test_pytorch_179804_the_backward_knows_of_autocast_inside() -> None:
    """The product runs in bfloat16, the rest in float32; so do their gradients."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = x @ w
        return (h.float() * x[:, :2]).sum()

    runs = []
    for wrap in (differentiate, lambda f: f):
        x, w = _leaf(4, 3, dtype=torch.float32), _leaf(3, 2, seed=1, dtype=torch.float32)
        wrap(fn)(x, w).backward()
        runs.append((x.grad, w.grad))
    for mine, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2)
        assert mine is not None and torch.equal(mine, mine.bfloat16().float()) == torch.equal(
            theirs, theirs.bfloat16().float()
        )


def _accumulated(wrap: Callable[[nn.Module], Any], steps: int) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(F64)
    run = wrap(model)
    for n in range(steps):
        (run(_leaf(2, 3, seed=n).detach()).square().mean() / steps).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def test_pytorch_169545_gradients_accumulate_over_steps() -> None:
    for mine, theirs in zip(
        _accumulated(differentiate, 5), _accumulated(lambda m: m, 5), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-13)


def test_pytorch_96693_four_quarters_make_one() -> None:
    """`.grad` adds up over calls; no gradient buffer is shared between them."""
    w = torch.ones(3, dtype=F64, requires_grad=True)
    loss = differentiate(lambda w: (w * 0.25).sum())
    for _ in range(4):
        loss(w).backward()
    assert w.grad is not None
    torch.testing.assert_close(w.grad, torch.ones(3, dtype=F64))


def test_thunder_1284_in_place_on_a_leaf_is_an_error() -> None:
    with pytest.raises(LeafMutationError, match="leaf Variable that requires grad"):
        differentiate(lambda x: x.mul_(2).sum())(_leaf(3))


def test_mlx_3201_no_stale_result_for_another_shape() -> None:
    """A mean over another length divides by that length."""
    fn = differentiate(lambda x: (x.sum() / x.shape[0], x.mean(), x.numel()))
    for n in (3, 5, 1, 8):
        x = torch.arange(float(n))
        total, mean, count = fn(x)
        assert float(total) == float(mean) == (n - 1) / 2 and count == n


def test_mlx_1234_maximum_of_equal_numbers_has_no_nan() -> None:
    check(lambda x: torch.maximum(x, torch.zeros_like(x)).sum() + x.amax(),
          torch.tensor([0.0, -1.0, 2.0, 2.0], dtype=F64, requires_grad=True))  # fmt: skip
    got = gradof.grad(lambda x: np.sum(np.maximum(x, 0.0)))(np.array([0.0, -1.0, 2.0]))
    np.testing.assert_array_equal(got, [0.5, 0.0, 1.0])


def test_pytorch_198102_change_through_an_unfolded_view_with_gaps() -> None:
    """Elements that no window covers become zero elsewhere; here it is refused."""

    def gaps(x: Tensor) -> Tensor:
        windows = x.unfold(1, 1, 5)
        windows.add_(windows)
        return x

    def overlaps(x: Tensor) -> Tensor:
        x.unfold(0, 2, 1)[0].mul_(2)
        return x

    x = torch.arange(1.0, 25.0).reshape(4, 6)
    for fn in (gaps, overlaps):
        with pytest.raises(UnsupportedOpError, match=r"unfold|overlap"):
            differentiate(fn, strict=True)(x)
        torch.testing.assert_close(x, torch.arange(1.0, 25.0).reshape(4, 6))


def test_windows_that_cover_everything_once_may_be_changed() -> None:
    def fn(x: Tensor) -> Tensor:
        x.unfold(1, 3, 3)[:, 1].mul_(2)
        return x.unfold(0, 2, 1).sum() + x[0].unfold(0, 1, 5).sum()

    x = torch.arange(1.0, 25.0).reshape(4, 6)
    y = x.clone()
    torch.testing.assert_close(differentiate(fn)(x), fn(y))
    torch.testing.assert_close(x, y)


def test_pytorch_128035_gradients_of_a_changed_argument() -> None:
    """A detached alias of an argument that is then changed."""

    def fn(a: Tensor) -> tuple[Tensor, Tensor]:
        alias = a.detach().clone()
        a.mul_(2)
        return a, alias

    runs = []
    for wrap in (differentiate, lambda f: f):
        leaf = torch.ones(3, requires_grad=True)
        out, alias = wrap(fn)(leaf * 2)
        out.sum().backward()
        runs.append((leaf.grad, alias))
    for mine, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_pytorch_106321_a_recurrence_unrolled_over_rows() -> None:
    def fn(rows: Tensor, state: Tensor, w: Tensor) -> Tensor:
        outputs = []
        for row in rows:
            state = row + state * w
            outputs.append(state)
        return torch.cat(outputs)

    check(fn, _leaf(5, 3, 7), _leaf(3, 7, seed=1), _leaf(7, seed=2), order=2)


def test_pytorch_96064_a_loop_with_an_accumulator_in_place() -> None:
    def fn(x: Tensor) -> Tensor:
        total = torch.zeros(3, dtype=F64)
        for i in range(x.shape[0]):
            total += x[i] * (i + 1)
            total[0] = total[0] * 0.5
        return total.square().sum()

    check(fn, _leaf(4, 3), order=2)


def test_pytorch_196173_a_branch_on_the_identity_of_an_object() -> None:
    """Which of two lists an attribute is, decides; rebinding it is noticed."""

    class Box:
        def __init__(self) -> None:
            self.a, self.b = [1.0], [2.0]
            self.now = self.a

    box = Box()
    fn = differentiate(lambda x: x * (3.0 if box.now is box.a else 5.0))
    x = torch.ones(2)
    assert fn(x)[0] == 3.0
    box.now = box.b
    assert fn(x)[0] == 5.0
    box.now = box.a
    assert fn(x)[0] == 3.0


def test_thunder_1284_in_numpy_the_callers_array_is_changed_as_it_would_be() -> None:
    def fn(x: Any) -> Any:
        x *= 2.0
        return np.sum(x**2)

    x = np.array([1.0, 2.0])
    value, gradient = gradof.value_and_grad(fn)(x)
    np.testing.assert_array_equal(x, [2.0, 4.0])
    assert value == 20.0
    np.testing.assert_array_equal(gradient, [8.0, 16.0])


def test_pytorch_131794_one_output_of_many() -> None:
    """What is not differentiated is not computed: one cosine for one of four sines."""

    def fn(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, ...]:
        return a.sin(), b.sin(), c.sin(), d.sin()

    compiled = differentiate(fn)
    leaves = [_leaf(3, seed=n) for n in range(4)]
    outs = compiled(*leaves)
    grads = torch.autograd.grad(outs[2].sum(), leaves, allow_unused=True)
    assert [g is None for g in grads] == [True, True, False, True]
    close(grads[2], leaves[2].detach().cos())
    (plan,) = compiled.plans()
    (gradient,) = plan.gradients.values()
    (special,) = gradient.dfs.values()
    kinds = [n.kind for n in special.plan.prepared.walk()]
    assert kinds.count("cos") == 1


def test_pytorch_177764_undefined_cotangents_stay_undefined() -> None:
    """None where eager gives None, zeros where it gives zeros, for every subset of outputs."""

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 2, (x * y).sum(), y.detach() + 1

    x, y = _leaf(3), _leaf(3, seed=1)
    for chosen in ((0,), (1,), (0, 1)):
        results = []
        for run in (differentiate(fn), fn):
            outs = run(x, y)
            loss = sum((outs[i].sum() for i in chosen), torch.zeros((), dtype=F64))
            results.append(torch.autograd.grad(loss, (x, y), allow_unused=True))
        for mine, theirs in zip(*results, strict=True):
            close(mine, theirs)


def test_copied_models_do_not_share_gradients() -> None:
    """pytorch#169545's cause: two models that hold one buffer."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1).to(F64)
    first, second = differentiate(model), differentiate(copy.deepcopy(model))
    x = torch.ones(1, 2, dtype=F64)
    first(x).sum().backward()
    assert all(p.grad is None for p in second.parameters())
    second(x * 3).sum().backward()
    torch.testing.assert_close(model.weight.grad, x)


def test_an_expanded_tensor_is_not_changed_in_place() -> None:
    """Eager refuses it; several elements are one in memory."""

    def fn(x: Tensor) -> Tensor:
        return x.clone()[None].expand(2, 3).mul_(2)

    with pytest.raises(RuntimeError):
        fn(torch.ones(3))
    with pytest.raises(UnsupportedOpError, match="expanded tensor"):
        differentiate(fn, strict=True)(torch.ones(3))
    check(lambda x: x.expand(2, 3).clone().mul_(x).sum(), _leaf(3), order=2)
