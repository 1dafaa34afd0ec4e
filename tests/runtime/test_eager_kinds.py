"""Kinds of tensors and modules that no trace holds: they run as they are, with one warning.

Value and gradients are eager's, those of sparse layout included; strict=True says what it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gradof
from gradof.errors import EagerWarning, GradofError, OpaqueOpWarning

# torch's own: of layouts it calls new, and of torch.jit
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(Sparse CSR|nested tensors|Nested Tensor)"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]
Case = tuple[Callable[..., Any], Sequence[Any], Sequence[torch.Tensor]]


def _x(*shape: int) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def _adjacency() -> torch.Tensor:
    a = torch.eye(4, dtype=torch.float64)
    a[0, 1] = 2.0
    return a


class Graph(nn.Module):
    """A graph convolution over a sparse adjacency matrix."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3).double()
        self.register_buffer("a", getattr(_adjacency(), layout)())

    def forward(self, x: torch.Tensor) -> Any:
        a: Any = self.a
        return torch.relu(a @ self.layer(x))


class Packed(nn.Module):
    """A recurrent network over sequences of several lengths."""

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.cell = kind(3, 4, batch_first=True).double()

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed: Any = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.cell(packed)[0], batch_first=True)[0]


class Marked(torch.Tensor):
    """A subclass of tensors without anything of its own."""


def _graph(layout: str) -> Case:
    x, module = _x(4, 3), Graph(layout)
    return module, (x,), (x, *module.parameters())


def _packed(kind: type[Any]) -> Case:
    x, module = _x(3, 5, 3), Packed(kind)
    return module, (x, torch.tensor([5, 2, 4])), (x, *module.parameters())


def _sparse_argument() -> Case:
    x, w = _x(4, 3), _x(3, 3)
    a = _adjacency().to_sparse()
    return lambda a, x, w: torch.sparse.mm(a, torch.tanh(x @ w)), (a, x, w), (x, w)


def _sparse_made() -> Case:
    x = _x(4, 4)

    def fn(x: torch.Tensor) -> Any:
        at = torch.tensor([[0, 1], [1, 2]])
        return torch.sparse.mm(torch.sparse_coo_tensor(at, torch.tanh(x[0, :2]), (4, 4)), x)

    return fn, (x,), (x,)


def _embedding() -> Case:
    layer = nn.Embedding(5, 3, sparse=True).double()
    return lambda i: torch.tanh(layer(i)), (torch.tensor([0, 2, 2]),), (layer.weight,)


def _bag() -> Case:
    layer = nn.EmbeddingBag(5, 3, mode="sum", sparse=True).double()
    given = torch.tensor([0, 2, 2, 4]), torch.tensor([0, 3])
    return lambda i, offsets: torch.tanh(layer(i, offsets)), given, (layer.weight,)


def _gathered() -> Case:
    x, at = _x(4, 3), torch.tensor([[1, 0, 1], [2, 2, 0]])
    return lambda x: torch.tanh(torch.gather(x, 0, at, sparse_grad=True)), (x,), (x,)


class Counting(nn.Module):
    """One that keeps a number of its own, which torch.jit has."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.layer = 0, nn.Linear(3, 3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.tanh(self.layer(x))


def _scripted_module() -> Case:
    script: Any = torch.jit.script
    module, x = script(Counting()), _x(4, 3)
    return module, (x,), (x, *module.parameters())


def _subclass() -> Case:
    w = _x(3, 3)
    return lambda x, w: x @ w, (_x(4, 3).detach().as_subclass(Marked), w), (w,)


def _nested() -> Case:
    w = _x(3, 3)
    parts = [_x(2, 3).detach(), _x(4, 3).detach()]
    made = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return lambda n, w: (n @ w).values(), (made, w), (w,)


def _array_beside() -> Case:
    x = _x(4, 3)
    return lambda x, a: x * torch.from_numpy(a * np.median(a)), (x, np.arange(3.0)), (x,)


CASES: dict[str, Callable[[], Case]] = {
    "sparse buffer": lambda: _graph("to_sparse"),
    "csr buffer": lambda: _graph("to_sparse_csr"),
    "sparse argument": _sparse_argument,
    "sparse within": _sparse_made,
    "sparse gradient": _embedding, "sparse bag": _bag, "sparse gather": _gathered,
    **{f"packed {k.__name__}": lambda k=k: _packed(k) for k in (nn.LSTM, nn.GRU)},  # type: ignore[misc]
    "scripted module": _scripted_module,
    "subclass": _subclass,
    "nested": _nested,
    "array beside": _array_beside,
}  # fmt: skip


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


@pytest.mark.parametrize("name", CASES)
def test_as_in_eager_with_one_warning(name: str) -> None:
    fn, args, wanted = CASES[name]()
    fast: Any = gradof.differentiate(fn)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", EagerWarning)
        warnings.simplefilter("ignore", OpaqueOpWarning)
        for _ in range(3):
            have, want = fast(*args), fn(*args)
            torch.testing.assert_close(have, want)
            grads = [torch.autograd.grad(v.tanh().sum(), wanted) for v in (have, want)]
            for a, b in zip(*grads, strict=True):
                assert a.layout == b.layout
                torch.testing.assert_close(_dense(a), _dense(b))
    info = fast.cache_info()
    assert info.eager_runs == 3 and info.forward_runs == 0
    assert sum(issubclass(w.category, EagerWarning) for w in seen) == 1


@pytest.mark.parametrize("name", CASES)
def test_strict_says_what_it_is(name: str) -> None:
    fn, args, _ = CASES[name]()
    with pytest.raises((GradofError, RuntimeError, TypeError)):
        gradof.differentiate(fn, strict=True)(*args)


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_what_packed_sequences_are_told(kind: type[Any]) -> None:
    fn, args, _ = _packed(kind)
    with pytest.warns(EagerWarning, match="of a packed sequence"):
        gradof.differentiate(fn)(*args)


def test_functions_without_arguments() -> None:
    """What they read is torch's, and it is an input as ever."""
    p = _x(3)
    fast: Any = gradof.differentiate(lambda: (p**2).sum(), strict=True)
    for _ in range(3):
        (grad,) = torch.autograd.grad(fast(), p, create_graph=True)
        torch.testing.assert_close(grad, 2 * p)
        assert torch.autograd.grad(grad.sum(), p)[0].tolist() == [2.0] * 3
        with torch.no_grad():
            p += 1
    info = fast.cache_info()
    assert info.misses == 1 and info.backward_runs >= 6 and info.eager_runs == 0


def test_lbfgs_with_a_closure_around_ours_and_of_ours() -> None:
    x = _x(8, 3).detach()

    def train(inside: bool, outside: bool) -> tuple[list[torch.Tensor], Any]:
        torch.manual_seed(0)
        model = nn.Linear(3, 1).double()

        def loss() -> Any:
            return (model(x) - x[:, :1]).pow(2).mean()

        value: Any = gradof.differentiate(loss) if inside else loss
        optimizer: Any = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

        def closure() -> Any:
            optimizer.zero_grad()
            found = value()
            found.backward()
            return found

        step: Any = gradof.differentiate(closure) if outside else closure
        for _ in range(2):
            optimizer.step(step)
        return [p.detach() for p in model.parameters()], value

    want, _ = train(False, False)
    have, loss = train(True, False)
    torch.testing.assert_close(have, want)
    assert loss.cache_info().misses == 1 and loss.cache_info().backward_runs > 2
    with pytest.warns(EagerWarning, match="closure"):
        have, _ = train(False, True)
    torch.testing.assert_close(have, want)


def test_what_has_no_tensors_is_run() -> None:
    with pytest.warns(EagerWarning, match="without any array"):
        assert gradof.differentiate(lambda: 3.0)() == 3.0
