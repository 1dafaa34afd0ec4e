"""differentiate(module): the same parameters, hooks, state and modes, compiled."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradof import differentiate, errors
from tests.runtime.compare import assert_compiled, close


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5, bias=False)  # a bias before a norm has gradient 0
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 2)
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.norm(self.first(x)))) * self.scale
        return out


def pair() -> tuple[Any, Net]:
    torch.manual_seed(0)
    net = Net().double()
    return differentiate(copy.deepcopy(net)), net


def data(n: int = 8) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def same_gradients(ours: Any, theirs: Net, x: Tensor) -> None:
    got, want = ours(x), theirs(x)
    close(got, want)
    assert_compiled([got])
    got.square().sum().backward()
    want.square().sum().backward()
    names = dict(theirs.named_parameters())
    assert dict(ours.named_parameters()).keys() == names.keys()
    for name, parameter in ours.named_parameters():
        close(parameter.grad, names[name].grad, name)
        assert parameter.grad is not None


def test_gradients_and_running_statistics() -> None:
    ours, theirs = pair()
    for n in (8, 8, 5):
        same_gradients(ours, theirs, data(n))
        for name, buffer in theirs.named_buffers():
            close(dict(ours.named_buffers())[name], buffer, name)
    assert not ours.norm.running_mean.requires_grad
    assert ours.cache_info()[:2] == (1, 2)


def test_the_same_module_in_a_new_class() -> None:
    net = Net()
    ours = differentiate(net)
    assert isinstance(ours, Net)
    assert ours.first is net.first
    assert ours.state_dict().keys() == net.state_dict().keys()
    assert next(iter(ours.parameters())) is next(net.parameters())
    assert type(ours).__name__ == "Net"
    with pytest.raises(errors.InputError, match="already"):
        differentiate(ours)


def test_train_and_eval_are_two_traces() -> None:
    ours, theirs = pair()
    for train in (True, False, True, False):
        ours.train(train)
        theirs.train(train)
        same_gradients(ours, theirs, data())
    assert ours.cache_info()[:2] == (2, 2)


def test_load_state_dict() -> None:
    ours, _ = pair()
    ours(data())
    other = Net().double()
    ours.load_state_dict(other.state_dict())
    same_gradients(ours, other, data())
    assert ours.cache_info()[:2] == (1, 1)


def test_replaced_parameters_layers_and_attributes() -> None:
    ours, theirs = pair()
    ours(data())
    theirs(data())
    weight = torch.randn(2, 5, dtype=torch.float64)
    for net in (ours, theirs):
        net.last.weight = nn.Parameter(weight.clone())
    same_gradients(ours, theirs, data())
    assert ours.cache_info().misses == 1
    for net in (ours, theirs):
        net.scale = 5.0
    same_gradients(ours, theirs, data())
    for net in (ours, theirs):
        net.last = nn.Identity()
    same_gradients(ours, theirs, data())
    assert ours.cache_info().misses == 3


def test_frozen_parameters() -> None:
    ours, theirs = pair()
    same_gradients(ours, theirs, data())
    for net in (ours, theirs):
        net.first.requires_grad_(False)
        net.zero_grad()
    for net in (ours, theirs):
        net(data()).sum().backward()
    assert ours.first.weight.grad is None
    close(ours.last.weight.grad, theirs.last.weight.grad)


def test_changing_the_dtype() -> None:
    ours, theirs = pair()
    ours(data())
    theirs(data())
    same_gradients(ours.float(), theirs.float(), data().float())


def test_forward_hooks_run_at_every_call() -> None:
    ours, _ = pair()
    calls: list[str] = []
    ours.register_forward_pre_hook(lambda *_: calls.append("before"))
    handle = ours.register_forward_hook(lambda m, a, out: calls.append("after") or out * 2)  # type: ignore[func-returns-value]
    ours.eval()
    doubled = ours(data())
    doubled = ours(data())
    assert calls == ["before", "after"] * 2
    handle.remove()
    close(doubled, 2 * ours(data()))


def test_hooks_on_submodules_are_traced() -> None:
    ours, theirs = pair()
    ours.eval()
    theirs.eval()
    same_gradients(ours, theirs, data())
    for net in (ours, theirs):
        net.first.register_forward_hook(lambda m, a, out: out * 3)
        net.zero_grad()
    same_gradients(ours, theirs, data())


def test_a_hook_that_holds_a_tensor() -> None:
    """As those that put a layer's output in for an attribution; it is read at every call."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    ours = differentiate(net, strict=True)
    held = [torch.randn(2, 4, requires_grad=True)]
    net[0].register_forward_hook(lambda *_: held[0])
    for _ in range(3):
        held[0] = torch.randn(2, 4, requires_grad=True)
        found, want = (torch.autograd.grad(f(torch.ones(2, 3)).sum(), held[0]) for f in (ours, net))
        close(found[0], want[0])
    assert ours.cache_info().misses == 1


def test_deepcopy_and_pickle() -> None:
    ours, theirs = pair()
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert twin.first is not ours.first
        same_gradients(twin, copy.deepcopy(theirs), data())
        assert twin.cache_info().forward_runs == 1
    assert ours.cache_info().forward_runs == 0


def test_inside_another_module_and_an_optimiser() -> None:
    def train(wrap: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(wrap(Net().double()), nn.Tanh())
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(4):
            optimiser.zero_grad()
            model(data()).square().sum().backward()
            optimiser.step()
        return model.state_dict()

    want = train(lambda net: net)
    got = train(differentiate)
    assert got.keys() == want.keys()
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=1e-7, atol=1e-9, msg=name)


def test_a_function_of_a_module() -> None:
    ours, theirs = pair()

    def loss(net: Any, x: Tensor) -> Tensor:
        out: Tensor = net(x).square().mean()
        return out

    compiled = differentiate(lambda x: loss(ours, x))  # traced through the compiled module
    got, want = compiled(data()), loss(theirs, data())
    close(got, want)
    assert_compiled([got])
    grads = torch.autograd.grad(got, list(ours.parameters()))
    for grad, expected in zip(
        grads, torch.autograd.grad(want, list(theirs.parameters())), strict=True
    ):
        close(grad, expected)


def test_inspection() -> None:
    ours, _ = pair()
    graph = ours.trace(data())
    assert {"mm", "relu"} <= {n.kind for n in graph.nodes()}
    assert [v.hint for v in graph.inputs][:2] == ["x", "weight"]
    report = str(ours.explain(data()))
    assert "written back: " in report
    assert "self.norm.running_mean" in report


def test_a_parameter_is_one_inside() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        is_one = isinstance(x, torch.nn.Parameter) and type(x) is torch.nn.Parameter
        return (x * x).sum() * (2 if is_one else 3)

    free = torch.nn.Parameter(torch.ones(3))

    def of_a_free_one(x: torch.Tensor) -> torch.Tensor:
        return (x * free).sum() * isinstance(free, torch.nn.Parameter)

    compiled = differentiate(fn)
    plain, frozen = torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3), False)
    for x in (plain, free, plain, frozen, plain.detach()):
        assert compiled(x).item() == fn(x).item()
    assert differentiate(of_a_free_one)(plain).item() == 3
    (slope,) = torch.autograd.grad(compiled(free), free)
    assert torch.equal(slope, torch.full((3,), 4.0))


@pytest.mark.filterwarnings("ignore:.*Lazy modules are a new feature:UserWarning")
def test_lazy_modules_are_compiled_once_they_have_their_shapes() -> None:
    def made() -> Any:
        return nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(2))

    x = data()
    for make in (lambda: nn.LazyLinear(4), made):
        ours: Any = differentiate(make().double(), strict=True)
        for _ in range(3):
            ours(x).square().sum().backward()
        theirs = copy.deepcopy(ours._gradof_original)
        assert type(ours).__name__ == type(theirs).__name__ != "LazyLinear"
        close(ours(x), theirs(x))
        assert ours.cache_info().misses == 1 and ours.cache_info().backward_runs == 2
        assert_compiled([ours(x)])
        assert type(copy.deepcopy(ours)).__name__ == type(theirs).__name__
