"""Large results wait in a trace: types as computed ones, nothing computed that nobody reads."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof import tuning
from gradof.errors import OpaqueOpWarning, UnsupportedOpError
from gradof.testing import check
from gradof.tracer.torch import deferred as torch_deferred
from gradof.tracer.torch.deferred import Deferred
from gradof.tracer.torch.deferred_layers import TYPES
from gradof.tracer.torch.tracer import trace_torch

Tensor = torch.Tensor
ATEN = torch.ops.aten
N = tuning.DEFERRED_CELLS


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many results of each trace were never computed."""
    counts: list[int] = []
    forget = Deferred.forget

    def counting(self: Deferred) -> None:
        counts.append(len(self._waiting))
        forget(self)

    monkeypatch.setattr(Deferred, "forget", counting)
    yield counts


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results wait, too."""
    monkeypatch.setattr(tuning, "DEFERRED_CELLS", 0)


def _mlp(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(torch.relu(x @ w), (w.shape[1],)).softmax(-1).square().sum(0).mean()


def test_what_nobody_reads_is_not_computed(waited: list[int]) -> None:
    x, w = torch.randn(N // 16, 16), torch.randn(16, 32)
    trace_torch(_mlp, (x, w), {})
    assert waited[0] >= 6
    trace_torch(_mlp, (x[:3], w), {})
    assert waited[1] == 0, "small results are computed at once"
    assert check(_mlp, (x.double(), w.double())).ok


def _layer_calls() -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Layers of images: strides, dilations, groups, transposed ones, three dims."""
    x, cube = torch.randn(2, 8, 64, 66), torch.randn(2, 4, 16, 32, 32)
    row = torch.randn(4, 8, N // 8)
    one = [torch.rand(8) for _ in range(4)]
    conv, plain = ATEN.convolution.default, (False, [0, 0])
    return [
        (conv, (x, torch.randn(6, 8, 3, 3), torch.randn(6), [1], [1], [1], *plain, 1), {}),
        (conv, (x, torch.randn(8, 4, 5, 3), None, [2, 3], [2, 0], [1, 2], *plain, 2), {}),
        (conv, (x, torch.randn(8, 5, 4, 4), None, [2, 2], [1, 1], [1, 1], True, [1, 0], 1), {}),
        (conv, (cube, torch.randn(3, 4, 2, 2, 2), None, [1], [0], [1], False, [0], 1), {}),
        (conv, (row.double(), torch.randn(8, 1, 7).double(), None, [1], [3], [1], False, [0], 8),
         {}),
        (ATEN._native_batch_norm_legit_functional.default, (x, *one, True, 0.1, 1e-5), {}),
        (ATEN.native_batch_norm.default, (x, None, None, None, None, True, 0.1, 1e-5), {}),
        (ATEN.native_batch_norm.default, (x, *one, False, 0.1, 1e-5), {}),
        (ATEN.max_pool2d_with_indices.default, (x, [3], [2], [1], [1], True), {}),
        (ATEN.max_pool2d_with_indices.default, (x[0], [2, 3]), {}),
        (ATEN.cat.default, ([x, x[:1]],), {}), (ATEN.cat.default, ([x, x[..., :3]], -1), {}),
    ]


def test_types_are_those_of_computed_results() -> None:
    """Shapes, dtypes and strides, over dtypes, broadcasting, and every op that may wait."""
    x, y = torch.randn(N // 4, 4), torch.rand(4)
    row, one, flag = torch.randn(N // 4, 1), torch.tensor(2.5, dtype=torch.float64), x > 0
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        *((op.default, (x,), {}) for op in (
            ATEN.exp, ATEN.log, ATEN.special_erfc, ATEN.isnan, ATEN.gelu, ATEN.sigmoid, ATEN.relu,
            ATEN.sum, ATEN.mean, ATEN.clone, ATEN.neg, ATEN.logical_not, ATEN.rsqrt, ATEN.silu,
        )),
        (ATEN.add.Tensor, (x, y), {"alpha": 2}), (ATEN.mul.Tensor, (row, y), {}),
        (ATEN.mul.Tensor, (x, 2), {}), (ATEN.mul.Tensor, (flag, 2.5), {}),
        (ATEN.mul.Tensor, (x, one), {}), (ATEN.pow.Tensor_Scalar, (x, 3), {}),
        (ATEN.gt.Scalar, (x, 0.5), {}), (ATEN.where.self, (flag, x, one), {}),
        (ATEN.where.self, (flag, x.double(), y), {}), (ATEN.add.Tensor, (x.half(), y), {}),
        (ATEN.add.Tensor, (flag, flag), {}), (ATEN.masked_fill.Scalar, (x, flag, 1.0), {}),
        (ATEN.addcmul.default, (x, y, row), {"value": 0.5}),
        (ATEN.div.Tensor_mode, (x, y), {"rounding_mode": "floor"}),
        (ATEN.sum.dim_IntList, (x, [0]), {}), (ATEN.sum.dim_IntList, (x, [-1], True), {}),
        (ATEN.sum.dim_IntList, (x, None), {"dtype": torch.float64}),
        (ATEN.sum.dim_IntList, (flag, [1]), {}), (ATEN.mean.dim, (x, [0, 1], True), {}),
        (ATEN.amax.default, (x, [0]), {}), (ATEN.amin.default, (x,), {}),
        (ATEN._softmax.default, (x, 1, False), {}), (ATEN._log_softmax.default, (x, 0, False), {}),
        (ATEN.native_layer_norm.default, (x, [4], y, y, 1e-5), {}),
        (ATEN.native_layer_norm.default, (x, [N // 4, 4], None, None, 1e-5), {}),
        (ATEN.native_layer_norm.default, (x.bfloat16(), [4], None, None, 1e-5), {}),
        (ATEN.mm.default, (x, torch.randn(4, 3)), {}),
        (ATEN.bmm.default, (x.reshape(2, -1, 4), torch.randn(2, 4, 5)), {}),
        (ATEN._to_copy.default, (x,), {"dtype": torch.int64}),
        (ATEN._unsafe_view.default, (x, [N]), {}),
        (ATEN.bernoulli.p, (x, 0.3), {}), (ATEN.rand_like.default, (x,), {}),
        (ATEN.randn_like.default, (x,), {"dtype": torch.float64}),
        (ATEN.addmm.default, (torch.randn(3), x, torch.randn(4, 3)), {}),
        *_layer_calls(),
    ]  # fmt: skip
    assert {func for func, _, _ in calls} >= torch_deferred._SHAPES.keys() | TYPES.keys()
    for func, args, kwargs in calls:
        deferred = Deferred()
        got = deferred.call(func, args, kwargs)
        torch.manual_seed(1)
        deferred.settle(got)
        torch.manual_seed(1)
        want = func(*args, **kwargs)
        assert isinstance(got, torch.Tensor) == isinstance(want, torch.Tensor)
        for a, b in zip(*([t] if isinstance(t, Tensor) else t for t in (got, want)), strict=True):
            assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride()), func
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def _branch(x: Tensor) -> Tensor:
    y = torch.exp(x) * 2.0
    return y.sum() if y.mean() > 3.0 else (y * x).sum()


def _view_changed(x: Tensor) -> Tensor:
    y = torch.tanh(x) * 1.0
    y[: y.shape[0] // 2] *= 2.0
    return y.T.reshape(-1).cumsum(0).sum() if y[0, 0] > 5.0 else y.square().sum()


def _sorted(x: Tensor) -> Tensor:
    return torch.sort(torch.sin(x), 0).values[: 3].sum() + (x * 2.0).to(torch.int64).sum()


def _inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        scale = float((x * 3.0).abs().max())
    return (x / scale).sum()


@pytest.mark.parametrize("fn", [_branch, _view_changed, _sorted, _inference])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_read_is_computed(fn: Callable[..., Tensor], dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    x = torch.randn(N // 32, 32, dtype=dtype)
    for scale in (0.1, 1.0, -2.0):
        assert check(fn, (x * scale,)).ok


def test_a_number_read_off_random_numbers_is_the_one_drawn() -> None:
    """Draws wait in order, and settling them moves the generator as eager does."""

    def fn(x: Tensor) -> Tensor:
        first = F.dropout(x, 0.5)
        noise = torch.rand_like(x)
        again = F.dropout(x, 0.2)
        size = 1.0 if noise[0, 0] > 0.5 else 2.0  # reads the second draw of three
        last = F.dropout(x, 0.9)
        size *= 3.0 if torch.rand(()) > 0.5 else 1.0  # drawn at once, after one that waits
        return (first + again * size + last + torch.randn(x.shape)).sum()

    x = torch.randn(N // 8, 8, dtype=torch.float64)
    compiled = gradof.differentiate(fn)
    for seed in range(6):
        torch.manual_seed(seed)
        got = compiled(x)
        after = torch.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(got, fn(x))
        assert torch.equal(after, torch.get_rng_state())


def test_running_statistics_are_read_as_they_were() -> None:
    """Batch norm points them at new numbers while what was computed of them still waits."""
    norm = torch.nn.BatchNorm1d(8, dtype=torch.float64)

    def fn(x: Tensor) -> Tensor:
        assert norm.running_mean is not None
        before = x * norm.running_mean
        y: Tensor = norm(x)
        return y.square().sum() if before.abs().sum() > 0.0 else y.sum() + 5.0

    x = torch.randn(N // 8, 8, dtype=torch.float64) + 1.0
    compiled = gradof.differentiate(fn)
    for _ in range(3):
        state = {name: t.clone() for name, t in norm.state_dict().items()}
        want = fn(x)
        norm.load_state_dict(state)
        torch.testing.assert_close(compiled(x), want)


@pytest.mark.parametrize("fn", [
    lambda x: x @ x,
    lambda x: x + torch.ones(7),
    lambda x: F.layer_norm(x, (5,)),
    lambda x: x.sum(4),
    lambda x: torch.exp(x)[:0].amax(0),
    lambda x: torch.exp(x).reshape(3, 5, 7, 11),
])  # fmt: skip
def test_errors_are_those_of_torch(fn: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(N // 4, 4)
    with pytest.raises((RuntimeError, IndexError)) as eager:
        fn(x)
    with pytest.raises(type(eager.value)) as ours:
        gradof.differentiate(fn)(x)
    assert str(eager.value) in str(ours.value)  # with the user's line, and a hint


@pytest.mark.usefixtures("everything")
def test_an_op_of_the_users_own_reads_what_waits() -> None:
    """A kernel registered with torch gets numbers, not memory nobody has filled."""
    seen: list[float] = []

    @torch.library.custom_op("gradof_tests::total", mutates_args=())
    def total(x: Tensor) -> Tensor:
        seen.append(float(x.sum()))
        return x.sum()

    x = torch.full((4, 4), 2.0)
    with pytest.warns(OpaqueOpWarning):
        got = gradof.differentiate(lambda x: total(torch.sqrt(x * x)))(x)
    assert got == 32.0 and np.isfinite(seen).all()


@pytest.mark.usefixtures("everything")
def test_graphs_are_the_same_whether_results_wait_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, w = torch.randn(6, 4, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    for fn, args in ((_mlp, (x, w)), (_branch, (x,)), (_view_changed, (x,)), (_sorted, (x,))):
        waiting = str(trace_torch(fn, args, {}).graph)
        with monkeypatch.context() as m:
            m.setattr(tuning, "DEFERRED_CELLS", 1 << 60)
            assert str(trace_torch(fn, args, {}).graph) == waiting


def test_strict_still_refuses_ops_without_a_rule() -> None:
    with pytest.raises(UnsupportedOpError):
        trace_torch(lambda x: torch.special.airy_ai(torch.exp(x)), (torch.randn(N),), {},
                    strict=True)  # fmt: skip
