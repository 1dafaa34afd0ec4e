"""numpy arrays in torch functions: arguments, what `Tensor.numpy` gives, results and state."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradof
from gradof import differentiate
from gradof.errors import DataDependentError, EagerWarning, LeafTypeError
from gradof.tracer.core.pytree import flatten

W = torch.randn(3, generator=torch.Generator().manual_seed(0)).requires_grad_()
HELD = SimpleNamespace()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


MODEL = _model()


def scaled(a: Any) -> Any:
    return (torch.as_tensor((a - 0.5) / 2, dtype=torch.float32) * W).sum()


def rows(a: Any) -> Any:
    return sum((torch.from_numpy(row).float() * W).sum() * i for i, row in enumerate(a))


def the_same(a: Any) -> Any:
    return [a, torch.as_tensor(a, dtype=torch.float32) @ W]


def views(a: Any) -> Any:
    return a[1:], a.T, torch.as_tensor(a)[:, 0], a[:, None, 1], a.reshape(-1)


def acts(a: Any) -> Any:
    with torch.no_grad():
        return MODEL(torch.as_tensor(a, dtype=torch.float32)).argmax(-1).numpy()


def writes(a: Any) -> Any:
    t = torch.from_numpy(a)
    t.mul_(2)
    return t.sum() + (t.float() * W).sum()


def writes_a_copy(a: Any) -> Any:
    t = torch.tensor(a)
    t.mul_(2)
    return t.float() @ W, a


def derives(a: Any) -> Any:
    t = torch.tensor(a, requires_grad=True)
    (g,) = torch.autograd.grad((t**2).sum(), t)
    return g.numpy()


def joins(a: Any) -> Any:
    both = np.stack([a, a * 2]), np.concatenate([a, np.expand_dims(a[0], 0)])
    return [torch.as_tensor(x).float() @ W for x in both]


def asks(a: Any) -> Any:
    n, k = a.shape
    found = torch.zeros(n, k) + torch.as_tensor(a).mean() * len(a) * a.ndim * a.size
    return found, a.dtype == np.float32, isinstance(a, np.ndarray), type(a) is np.ndarray


def stores(a: Any) -> Any:
    HELD.given = a
    HELD.made = (torch.as_tensor(a) * 2).numpy()
    HELD.tensor = torch.as_tensor(a) * 3
    return torch.as_tensor(a).float() @ W


def masks(a: Any) -> Any:
    return torch.where(torch.as_tensor(np.logical_and(a > 0, a < 1)), W, 0.0).sum(0)


def clips(a: Any) -> Any:
    return torch.as_tensor(np.clip(a, -0.5, 0.5)).float() @ W


def copies(a: Any) -> Any:
    return (
        torch.Tensor(a) @ W, torch.FloatTensor(a) @ W, torch.DoubleTensor(a), W.new_tensor(a) @ W,
        torch.tensor([a[0], a[1]]), isinstance(torch.Tensor(a), torch.FloatTensor),
    )  # fmt: skip


def goes_and_comes(a: Any) -> Any:
    t = torch.as_tensor(a) * 2
    n = t.numpy()
    t.add_(1)
    return torch.from_numpy(n).float() @ W, n


def takes_places(a: Any) -> Any:
    places = torch.as_tensor(a)[:, 0].argsort().numpy()
    return W[places[:2] - places[:2]], a[places]


def shares(a: Any) -> Any:
    t = torch.as_tensor(a) + 1
    return t, t.numpy()


def _arrays(seed: int) -> list[Any]:
    draw = np.random.default_rng(seed)
    floats = [draw.standard_normal((4, 3)).astype(np.float32) for _ in range(3)]
    steps = draw.standard_normal((8, 3)).astype(np.float32)[::2]
    columns = np.asfortranarray(floats[0] * 2)
    fixed = floats[1] * 3
    fixed.flags.writeable = False
    return [*floats, columns, steps, fixed, draw.standard_normal((4, 3))]


def _run(fn: Callable[..., Any], array: Any) -> list[Any]:
    """Results, what the call did to its argument and to the state, and gradients."""
    HELD.__dict__.clear()
    given = array if not array.flags.writeable else copy.deepcopy(array)
    parameters = [W, *MODEL.parameters()]
    for parameter in parameters:
        parameter.grad = None
    result = fn(given)
    leaves, tree = flatten(result)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            torch.autograd.backward(leaf.sum(), retain_graph=True)
    who = [leaf is given for leaf in leaves], [np.shares_memory(given, x) for x in leaves
                                               if isinstance(x, np.ndarray)]  # fmt: skip
    grads = [p.grad for p in parameters]
    return [*leaves, tree, given, dict(HELD.__dict__), *who, *grads]


def _steps(strides: Sequence[int], shape: Sequence[int]) -> list[int]:
    return [step for step, n in zip(strides, shape, strict=True) if n > 1]


def _like(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        assert got.requires_grad == want.requires_grad
        assert _steps(got.stride(), want.shape) == _steps(want.stride(), want.shape)
        torch.testing.assert_close(got, want)
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.flags.writeable == want.flags.writeable
        assert _steps(got.strides, want.shape) == _steps(want.strides, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    elif isinstance(want, (float, np.floating)):
        assert got == pytest.approx(want, rel=1e-5)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for name in want:
            _like(got[name], want[name])
    else:
        assert got == want


def normalises(a: Any) -> Any:
    b = (a - a.mean(0)) / (a.std(axis=0, keepdims=True) + 1e-8)
    c = np.where(b > 0, np.exp(-b), np.maximum(b, -1)) * a.max() + a.sum(-1)[:, None]
    return torch.as_tensor(c, dtype=torch.float32) @ W, a.mean(), a.argmax(1), b.var(ddof=1)


def branches(a: Any) -> Any:
    return torch.as_tensor(a).float() @ W * (2 if (a**2 > 1).any() and a.shape[0] else 3)


def arrays_anew(a: Any) -> Any:
    both = np.array([a[0], a[1]]), np.asarray(a, dtype=np.float32), np.ascontiguousarray(a.T)
    held = a.mean().item() * 2 + np.array([a.sum(), a.max()]).sum()
    return [torch.as_tensor(x) * 1 for x in both], held, a[0, 1]


def bits(a: Any) -> Any:
    kept = ~(a > 0) & (a > -1) | (a > 2)
    return torch.from_numpy(kept).float() @ W, kept.sum(), kept.all(axis=0)


def numbers_meet_tensors(a: Any) -> Any:
    t = torch.as_tensor(a) * a.mean() + a[0, 0]
    u = a.max() - t / (a.std() + 1) + t.clamp(min=a.min(), max=0.5)
    made = torch.full((3,), a.mean()) * 1
    return t, u.float() @ W, made, 2 ** (a.argmax() * 0 + t), torch.tensor(a.sum()), -a.sum() * t


FUNCTIONS = [
    normalises, numbers_meet_tensors, branches, arrays_anew, bits,
    scaled, rows, the_same, views, acts, writes, writes_a_copy, derives, joins, asks, stores, masks,
    clips, copies, goes_and_comes, takes_places, shares,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_as_in_eager_and_compiled(fn: Callable[..., Any]) -> None:
    fast = differentiate(fn, strict=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        warnings.filterwarnings("ignore", "Creating a tensor from a list of numpy.ndarrays")
        for array in _arrays(0) if fn is not writes else _arrays(0)[:5]:
            for got, want in zip(_run(fast, array), _run(fn, array), strict=True):
                _like(got, want)
    assert fast.cache_info().hits >= 3 and fast.cache_info().eager_runs == 0


def reads_a_mean(a: Any) -> Any:
    return torch.as_tensor(a) @ W * float(a.mean())


def sets(a: Any) -> Any:
    a[0] = 1
    return torch.as_tensor(a) @ W


def adds(a: Any) -> Any:
    a += 1
    return torch.as_tensor(a) @ W


def tells(a: Any) -> Any:
    return torch.as_tensor(a) @ W * len(str(a))


def prints(a: Any) -> Any:
    return torch.as_tensor(a) @ W * len(f"{a}")


@pytest.mark.parametrize(
    "fn", [reads_a_mean, sets, adds, tells, prints],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_what_numpy_reads_runs_eagerly(fn: Callable[..., Any]) -> None:
    fast = differentiate(fn)
    for i in range(6):
        array = np.random.default_rng(i).standard_normal((4, 3)).astype(np.float32)
        ours, theirs = array.copy(), array.copy()
        if i:
            got = fast(ours)
        else:
            with pytest.warns(EagerWarning, match="read by numpy"):
                got = fast(ours)
        torch.testing.assert_close(got, fn(theirs))
        np.testing.assert_array_equal(ours, theirs)
    info = fast.cache_info()
    assert info.eager_runs == 6 and info.misses <= 4, "it is not traced at each call"
    with pytest.raises(DataDependentError, match="read by numpy"):
        differentiate(fn, strict=True)(array)


def test_beside_tensors_in_containers_and_twice() -> None:
    def loss(x: Any, batch: Any, other: Any) -> Any:
        seen = torch.as_tensor(batch["obs"]) * x + torch.as_tensor(other)
        return seen.sum() * (2 if batch["obs"] is other else 1), batch["obs"]

    fast = differentiate(loss, strict=True)
    for same in (False, True, False, True):
        array = np.ones(3, np.float32)
        other = array if same else array.copy()
        x = torch.ones(3, requires_grad=True)
        value, given = fast(x, {"obs": array}, other)
        value.backward()
        assert given is array and x.grad is not None
        assert x.grad.tolist() == [2.0 if same else 1.0] * 3


def test_gradients_are_of_tensors() -> None:
    def loss(x: Any, a: Any) -> Any:
        return (torch.as_tensor(a) * x**3).sum()

    x, a = torch.ones(3), np.arange(3.0, dtype=np.float32)
    value, slope = gradof.value_and_grad(loss)(x, a)
    assert value.item() == 3 and slope.tolist() == [0.0, 3.0, 6.0]
    assert gradof.hessian(loss)(x, a).diagonal().tolist() == [0.0, 6.0, 12.0]
    _, pullback = gradof.vjp(loss, x, a)
    of_x, of_a = pullback(torch.tensor(1.0))
    assert of_x.tolist() == [0.0, 3.0, 6.0] and of_a is None
    with pytest.raises(LeafTypeError, match="has no gradient"):
        gradof.grad(loss, argnums=1)(x, a)


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_memory_that_meets_another() -> None:
    """Tensors over parts of one array have storages of their own, which meet."""

    def fn(x: Any, y: Any) -> Any:
        torch.as_tensor(x).mul_(2)
        return (torch.as_tensor(x) * torch.as_tensor(y)).sum()

    def parts(kind: int) -> tuple[Any, Any]:
        whole = np.arange(6.0)
        x, y = whole[:4], whole[2:]
        return [(x, y), (torch.from_numpy(x), torch.from_numpy(y)), (torch.from_numpy(x), y)][kind]

    for kind in range(3):
        for first in (True, False):
            fast = differentiate(fn)
            if first:
                fast(*(copy.deepcopy(x) for x in parts(kind)))
            ours, theirs = parts(kind), parts(kind)
            assert fast(*ours).item() == fn(*theirs).item()
            assert np.asarray(ours[0]).tolist() == np.asarray(theirs[0]).tolist()


def test_a_module_audits_and_prepares() -> None:
    def forward(a: Any) -> Any:
        return MODEL(torch.as_tensor(a)).sum()

    a = np.ones((2, 3), np.float32)
    fast = differentiate(forward, audit=1.0)
    for _ in range(3):
        torch.testing.assert_close(fast(a), forward(a))
    ready = differentiate(forward).prepare(a)
    torch.testing.assert_close(ready(a * 2), forward(a * 2))
    assert "forward" in str(differentiate(forward).explain(a))


def test_numpys_own_functions_stay_numpys() -> None:
    """A function that names torch is numpy's where numpy can trace it."""

    def norm(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return torch.sqrt((x * x).sum())
        return np.sqrt((x * x).sum())

    value, slope = gradof.value_and_grad(norm)(np.array([3.0, 4.0]))
    assert value == 5
    np.testing.assert_allclose(slope, [0.6, 0.8])
    fast = differentiate(norm)
    assert fast(np.array([3.0, 4.0])) == 5 and fast(torch.tensor([3.0, 4.0])).item() == 5
