"""Modules, functions and objects of any class as arguments of torch functions."""

from __future__ import annotations

import copy
import functools
import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradof
from gradof.errors import EagerWarning, LeafTypeError, RetraceWarning
from tests.runtime.compare import close


class Batch:
    def __init__(self, seed: int = 0) -> None:
        self.x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        self.weight, self.seen = 2.0, 0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5))
        self.scale, self.calls = 1.0, 0
        self.double()  # a bias before a norm has no gradient but rounding

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.layers(x) * self.scale
        return out


def loss(model: Any, x: Tensor) -> Tensor:
    return model(x).square().mean()  # type: ignore[no-any-return]


def penalty(model: nn.Module) -> Tensor:
    return sum((p.square().sum() for p in model.parameters()), torch.zeros(()))


def slope(model: Any, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    found, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return found.square().sum()


def adversarial(model: nn.Module, other: Any, x: Tensor) -> Tensor:
    judge = functools.partial(loss, other)
    return judge(model.layers[0](x)[:, :3]) if other is not model else loss(model, x)  # type: ignore[index,operator]


def cached(model: Any, x: Tensor) -> Tensor:
    model.last = model(x)
    return model.last.sum()  # type: ignore[no-any-return]


def nothing(model: Net) -> None:
    pass


CHANGES: dict[str, Callable[[Net], Any]] = {
    "nothing": nothing,
    "eval": lambda m: m.eval(),
    "a number": lambda m: setattr(m, "scale", m.scale + 0.5),
    "a layer": lambda m: m.layers.__setitem__(2, nn.Sigmoid()),
    "a weight": lambda m: setattr(m.layers[0], "weight", nn.Parameter(torch.ones(4, 3).double())),
    "a hook": lambda m: m.layers[0].register_forward_hook(lambda _, __, out: out * 2),
    "no gradient": lambda m: m.layers[0].requires_grad_(False),
    "a step": lambda m: torch.optim.SGD(m.parameters(), lr=0.1).step(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fn", [loss, penalty, slope, adversarial, cached])
def test_a_module_that_changes_between_calls(fn: Any, change: str) -> None:
    theirs, ours, other = Net(), Net(), nn.Linear(3, 1).double()
    compiled = gradof.differentiate(fn)
    for call in range(6):
        x = torch.randn(4, 3).double()
        more: tuple[Any, ...] = () if fn is penalty else (x,)
        if fn is adversarial:
            more = (other, x)
        if call == 3:
            CHANGES[change](theirs)
            CHANGES[change](ours)
        values = []
        for run, model in ((fn, theirs), (compiled, ours)):
            torch.manual_seed(call)
            model.zero_grad()
            value = run(model, *more)
            value.backward()
            values.append((value, torch.rand(1)))
        close(values[1][0], values[0][0])
        assert torch.equal(values[1][1], values[0][1])
        for (name, p), q in zip(theirs.named_parameters(), ours.parameters(), strict=True):
            close(q.grad, p.grad, f"{name} in call {call}")
        for a, b in zip(theirs.buffers(), ours.buffers(), strict=True):
            close(b, a)
        assert theirs.calls == ours.calls
    info = compiled.cache_info()
    assert info.eager_runs == 0 and info.misses <= 3, info


def test_the_same_module_twice_is_one() -> None:
    model, x = Net(), torch.randn(4, 3).double()
    compiled = gradof.differentiate(adversarial)
    for other in (model, copy.deepcopy(model), model):
        torch.manual_seed(0)
        found = compiled(model, other, x)
        torch.manual_seed(0)
        close(found, adversarial(model, other, x))
    assert compiled.cache_info().misses == 2


def test_transforms_of_functions_of_modules() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(4, 3)

    def energy(x: Tensor, model: nn.Module) -> Tensor:
        return loss(model, x)

    for _ in range(2):
        close(gradof.grad(energy)(x, model), torch.func.grad(energy)(x, model))
        curvature = torch.func.jacrev(torch.func.grad(energy))(x, model)
        close(gradof.hessian(energy)(x, model), curvature)


def test_an_object_that_comes_again_and_has_changed() -> None:
    def total(model: nn.Module, batch: Batch) -> Tensor:
        batch.seen += 1
        return model(batch.x).sum() * batch.weight  # type: ignore[no-any-return]

    model, batch = nn.Linear(3, 2), Batch()
    compiled = gradof.differentiate(total)
    for call in range(6):
        batch.weight = 2.0 + call // 2
        batch.x.add_(1)
        close(compiled(model, batch), total(model, batch))
        batch.seen -= 1
    assert batch.seen == 6
    info = compiled.cache_info()
    assert (info.eager_runs, info.misses) == (0, 2)


def test_an_object_that_counts_itself_is_traced_when_it_comes_again() -> None:
    def total(batch: Batch) -> Tensor:
        return batch.x.sum() * (2.0 if batch is known[0] else 3.0)

    batch, known = Batch(), [Batch()]
    known.append(batch)
    compiled = gradof.differentiate(total)
    for _ in range(4):
        close(compiled(batch), total(batch))
    info = compiled.cache_info()
    assert (info.eager_runs, info.misses) == (1, 2)  # a trace has found out


def test_objects_that_count_themselves_are_not_kept_and_are_told() -> None:
    def total(batch: Batch) -> Tensor:
        return batch.x.sum() * (2.0 if batch is latest[0] else 3.0)

    compiled, alive, latest = gradof.differentiate(total), [], [Batch()]
    with pytest.warns(RetraceWarning, match=r"args\[0\].*Batch") as told:
        for i in range(2 * gradof.limits.shapes):
            latest[0] = batch = Batch(i)
            close(compiled(batch), total(batch))
            alive.append(weakref.ref(batch))
    del batch
    latest.clear()
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)
    assert len(told) == 1 and compiled.cache_info().misses == 1


def test_functions_made_for_each_call_are_not_traced_for_ever() -> None:
    model = nn.Linear(3, 2)
    compiled = gradof.differentiate(loss)
    with pytest.warns(RetraceWarning, match="values of what is no tensor"):
        for i in range(2 * gradof.limits.shapes):
            x = torch.randn(4, 3)
            close(compiled(lambda x, i=i: model(x) * i, x), loss(lambda x, i=i: model(x) * i, x))
    assert compiled.cache_info().misses == gradof.limits.shapes


def test_a_differentiated_module_and_a_bound_method() -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    compiled = gradof.differentiate(loss)
    for given in (gradof.differentiate(model), model.forward, model.forward):
        close(compiled(given, x), loss(model, x))
    assert compiled.cache_info().misses == 2 and compiled.cache_info().eager_runs == 0


def test_a_module_of_torch_jit_is_one_as_others() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted: Any = torch.jit.trace(nn.Linear(3, 2), torch.randn(4, 3))  # type: ignore[no-untyped-call]
    compiled, x = gradof.differentiate(loss), torch.randn(4, 3)
    for _ in range(2):
        close(compiled(scripted, x), loss(scripted, x))
    assert compiled.cache_info().misses == 1 and compiled.cache_info().eager_runs == 0


def test_what_cannot_be_followed_runs_eagerly() -> None:
    x = torch.randn(4, 3)
    taken = gradof.differentiate(lambda rows, x: next(rows) * x)
    with pytest.warns(EagerWarning, match="an iterator"):
        close(taken(iter([x]), x), x * x)
    with pytest.raises(LeafTypeError, match="an iterator"):
        gradof.differentiate(lambda rows, x: x, strict=True)(iter([x]), x)


def test_a_trace_that_fails_leaves_the_object_as_it_was() -> None:
    def talks(model: Net, x: Tensor) -> Tensor:
        model.scale = model.scale * 2
        print(end="")
        return loss(model, x)

    model, x = Net().eval(), torch.randn(4, 3).double()
    compiled = gradof.differentiate(talks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        for n in (1, 2):
            compiled(model, x)
            assert (model.scale, model.calls) == (2.0**n, n)


class Handler(functools.partial):  # type: ignore[type-arg]
    """As pyro's: a slot in the place of `func`, which is set once the object is there."""

    __slots__ = ("func",)

    def __init__(self, func: Any) -> None:
        self.func = func  # type: ignore[misc]


def test_a_partial_that_has_another_func() -> None:
    weight = torch.ones(2, requires_grad=True)
    outer = Handler(lambda x: (x * weight).sum())
    compiled = gradof.differentiate(lambda x: outer(x) + Handler(torch.sum)(x), strict=True)
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    for grads in (torch.autograd.grad(compiled(x), (x, weight)) for _ in range(2)):
        assert [g.tolist() for g in grads] == [[2.0, 2.0], [2.0, 3.0]]
    assert compiled.cache_info().misses == 1


def test_a_view_of_a_dict_beside_a_comparison_by_identity() -> None:
    class Kept:
        def __init__(self) -> None:
            self.sizes = {"a": {"b": 1.0}}.values()  # leads to a dict, which is no name
            self.weight = self.tied = torch.ones(3)

    kept = Kept()
    x = torch.ones(3, requires_grad=True)
    compiled = gradof.differentiate(
        lambda x: x.sum() * len(kept.sizes) if kept.weight is kept.tied else x.prod(), strict=True
    )
    close(compiled(x), torch.tensor(3.0))
    kept.tied = torch.ones(3)
    close(compiled(x), torch.tensor(1.0))
