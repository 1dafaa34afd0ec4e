"""Parameters, modules and deep copies that a torch function makes are its own at each call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradof import differentiate
from tests.runtime.compare import all_close

Model = nn.Sequential
Loss = Callable[[Any, Any], Any]


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    """What functions make is float64, so that rounding hides nothing."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _model() -> Model:
    torch.manual_seed(3)
    return Model(nn.Linear(3, 4), nn.Dropout(0.2), nn.Tanh(), nn.Linear(4, 1))


def _parameter(model: Any, x: Any) -> Any:
    low, high = nn.Parameter(torch.randn(3, 2) * 0.1), nn.Parameter(torch.ones(2, 3))
    loss = model(x + x @ low @ high).sum()
    grads = torch.autograd.grad(loss, [low, high], create_graph=True)
    return loss + sum((g.square().sum() for g in grads), torch.zeros(()))


def _steps_of_a_copy(model: Any, x: Any) -> Any:
    fast = copy.deepcopy(model)
    weights = list(fast.parameters())
    for _ in range(2):
        grads = torch.autograd.grad(fast(x).square().mean(), weights)
        with torch.no_grad():
            for weight, grad in zip(weights, grads, strict=True):
                weight -= 0.1 * grad
    return fast(x).sum() + model(x).sum()


def _by_data(model: Any, x: Any) -> Any:
    weight = nn.Parameter(torch.zeros(3))
    for _ in range(3):
        (grad,) = torch.autograd.grad((weight - x.detach()).square().sum(), weight)
        weight.data = weight.data - 0.1 * grad
    return (weight * x).sum() + model(x).sum()


def _frozen_copy(model: Any, x: Any) -> Any:
    target = copy.deepcopy(model).requires_grad_(False).eval()
    return (model(x) - target(x)).square().sum() + model(x).sum()


def _frozen_when_used(model: Any, x: Any) -> Any:
    other = copy.deepcopy(model)
    before = other(x).sum()
    other.requires_grad_(False)
    return before * other(x).sum() + model(x).sum()


def _frozen_in_part(model: Any, x: Any) -> Any:
    other = copy.deepcopy(model)
    other[0].requires_grad_(False)
    grads = torch.autograd.grad(
        other(x).sum(), [p for p in other.parameters() if p.requires_grad], create_graph=True
    )
    return sum((g.square().sum() for g in grads), model(x).sum())


def _average(model: Any, x: Any) -> Any:
    target = copy.deepcopy(model)
    for parameter in target.parameters():
        parameter.requires_grad = False
    with torch.no_grad():
        for mine, theirs in zip(target.parameters(), model.parameters(), strict=True):
            mine.lerp_(2 * theirs, 0.5)
    return (model(x) - target(x)).square().sum()


def _layers(model: Any, x: Any) -> Any:
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
    for layer in layers:
        assert isinstance(layer, nn.Linear) and isinstance(layer.weight, nn.Parameter)
        nn.init.orthogonal_(layer.weight)  # writes through a view
        x = layer(x).relu()
    return x.sum() + model(x).sum()


def _embedding(model: Any, x: Any) -> Any:
    table = nn.Embedding(5, 3, padding_idx=0)
    return (table(torch.tensor([0, 1, 2])) * x).sum() + model(x).sum()


def _norm(model: Any, x: Any) -> Any:
    layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    made = layers(x * torch.arange(15.0).reshape(5, 3).cos())
    statistics = layers[1].running_mean
    assert isinstance(statistics, Tensor)
    return made.sin().sum() + statistics.sum() + model(x).sum()


def _parametrized(model: Any, x: Any) -> Any:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    other = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    return (layer(x) * other(x)).sum() + model(x).sum()


def _recurrent(model: Any, x: Any) -> Any:
    return nn.GRU(3, 4, batch_first=True)(x.expand(1, 5, 3))[0].sum() + model(x).sum()


def _loaded(model: Any, x: Any) -> Any:
    other = Model(nn.Linear(3, 4), nn.Dropout(0.2), nn.Tanh(), nn.Linear(4, 1))
    other.load_state_dict(model.state_dict())
    return other(x).sum() * model(x).sum()


def _converted(model: Any, x: Any) -> Any:
    return copy.deepcopy(model).float().double()(x).sum() * model(x).sum()


def _from_a_vector(model: Any, x: Any) -> Any:
    other = copy.deepcopy(model)
    vector = nn.utils.parameters_to_vector(other.parameters())
    nn.utils.vector_to_parameters(2 * vector, other.parameters())
    return other(x).sum() * model(x).sum()


def _of_written(model: Any, x: Any) -> Any:
    start = torch.empty(3).uniform_()
    weight = nn.Parameter(start)
    with torch.no_grad():
        weight.mul_(0.1)
    return (weight * x).sum() + model(x).sum()


def _of_an_argument(model: Any, x: Any) -> Any:
    h = 2 * x
    h.mul_(3)
    weight = nn.Parameter(h.detach())
    (grad,) = torch.autograd.grad((weight.square() * x).sum(), weight, create_graph=True)
    return (weight * x * grad).sum() + model(x).sum()


def _copied_tensors(model: Any, x: Any) -> Any:
    rows = torch.ones(1, 3).expand(2, 3)
    old = {"whole": x.detach(), "part": x.detach()[1:], "same": rows}
    new = copy.deepcopy({**old, "again": rows})
    assert new["same"] is new["again"] and new["same"].stride() == (0, 1)
    new["whole"].mul_(3)  # which the part shares, and x does not
    return (new["part"] * x[1:]).sum() + (new["same"] * x).sum() + model(x).sum()


FUNCTIONS: list[Loss] = [
    _parameter, _steps_of_a_copy, _by_data, _frozen_copy, _frozen_when_used, _frozen_in_part,
    _average, _layers, _embedding, _norm, _parametrized, _recurrent, _loaded, _converted,
    _from_a_vector, _of_written, _of_an_argument, _copied_tensors,
]  # fmt: skip


def _calls(fn: Loss, compiled: bool) -> tuple[list[Any], Any]:
    model, found = _model(), list[Any]()

    def loss(x: Any) -> Any:
        return fn(model, x)

    called: Any = differentiate(loss) if compiled else loss
    for n in range(3):
        model.zero_grad()
        x = (torch.arange(3.0) + n).requires_grad_()
        value = called(x)
        value.backward()
        found += [value.detach(), x.grad, *(p.grad for p in model.parameters())]
    return found, called


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__.strip("_"))
def test_they_are_made_anew_at_each_call_as_in_eager(fn: Loss) -> None:
    want, _ = _calls(fn, compiled=False)
    found, compiled = _calls(fn, compiled=True)
    all_close(found, want)
    info = compiled.cache_info()
    assert info.misses == 1 and info.eager_runs == 0 and info.backward_runs == 3


def _both_changed(x: Tensor) -> Any:
    start = torch.zeros(3).add_(2)
    weight = nn.Parameter(start)
    with torch.no_grad():
        weight.mul_(3)
    return (x * weight + start).sum()


def _original_changed(x: Tensor) -> Any:
    start = torch.zeros(3).add_(2)
    weight = nn.Parameter(start)
    start.mul_(3)
    return (x * weight).sum()


def _siblings(x: Tensor) -> Any:
    start = torch.zeros(3).add_(2)
    weight, other = nn.Parameter(start), nn.Parameter(start)
    with torch.no_grad():
        weight.mul_(3)
    return (x * other).sum()


def _returned(x: Tensor) -> Any:
    start = torch.zeros(3).add_(2)
    weight = nn.Parameter(start)
    return (x * weight).sum(), start, weight.detach()


@pytest.mark.parametrize("fn", [_both_changed, _original_changed, _siblings, _returned])
@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_parameters_of_written_memory_that_is_changed_run_eagerly(fn: Any) -> None:
    compiled = differentiate(fn)
    found = [call(torch.arange(3.0, requires_grad=True)) for call in (fn, compiled)]
    torch.testing.assert_close(found[1], found[0])
    assert compiled.cache_info().eager_runs == 1


def test_a_copy_of_what_was_computed_is_the_error_of_eager() -> None:
    def fn(x: Tensor) -> Tensor:
        return (copy.deepcopy(2 * x) * x).sum()

    with pytest.raises(RuntimeError, match="graph leaves"):
        differentiate(fn)(torch.ones(3, requires_grad=True))


def test_tensors_that_have_become_one_are_copied_as_one() -> None:
    state: dict[str, Tensor] = {"a": torch.ones(3), "b": torch.zeros(3)}

    def fn(x: Any) -> Any:
        copied = copy.deepcopy(state)
        copied["a"] += 1
        return (x * copied["b"]).sum()

    compiled, found = differentiate(fn), list[float]()
    for _ in range(3):
        found.append(compiled(torch.ones(3, requires_grad=True)).item())
        state["b"] = state["a"]
    assert found == [0.0, 6.0, 6.0]
    assert compiled.cache_info().eager_runs == 0
