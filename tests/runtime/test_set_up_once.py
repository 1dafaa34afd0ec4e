"""Layers that set themselves up by their first batch, in a way that cannot be traced."""

# mypy: disable-error-code="no-untyped-call, no-any-return"
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from gradof import differentiate

Tensor = torch.Tensor


class Scaled(torch.nn.Module):
    """As normalising flows have it: the data of parameters are assigned to, once."""

    initialized: Tensor

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
        flag = torch.tensor(False) if kind == "truth" else torch.zeros(1)
        self.register_buffer("initialized", flag)
        self.is_ready, self.kind = False, kind
        self.first = flag  # which stays as it is, where another takes its place

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.ready():
            with torch.no_grad():
                self.scale.data = 1 / x.std(0)
                if self.kind == "replaced":
                    self.initialized = torch.ones(1)
                elif self.kind == "attribute":
                    self.is_ready = True
                else:
                    self.initialized.data = torch.ones_like(self.initialized)
        return x * self.scale

    def ready(self) -> bool:
        if self.kind == "attribute":
            return self.is_ready
        return bool(self.initialized.item() > 0 if self.kind == "number" else self.initialized)


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize("kind", ["truth", "number", "attribute", "replaced"])
def test_only_the_call_that_sets_it_up_runs_eagerly(kind: str) -> None:
    model = Scaled(kind)
    other = copy.deepcopy(model)
    compiled = differentiate(other)
    for n in range(6):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(n))
        for each, net in ((model, model), (compiled, other)):
            net.zero_grad()
            each(x).square().sum().backward()
        torch.testing.assert_close(other.scale, model.scale)
        torch.testing.assert_close(other.scale.grad, model.scale.grad)
    info = compiled.cache_info()
    assert (info.eager_runs, info.backward_runs) == (1, 5)


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_a_count_that_changes_at_each_call_costs_three_traces() -> None:
    class Counted(torch.nn.Module):
        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            if self.count.item() > 0:
                self.scale.data = torch.ones(3)
            return x * self.scale

    compiled = differentiate(Counted())
    for _ in range(8):
        compiled(torch.ones(2, 3)).sum().backward()
    info = compiled.cache_info()
    assert info.eager_runs == 8 and info.misses == 3


@pytest.mark.parametrize("no_grad", [False, True])
def test_a_parameter_whose_data_was_changed_is_given_as_it_is(no_grad: bool) -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, p)
            return x * p

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            x, p = ctx.saved_tensors
            return g * p, g * x

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.p = (torch.nn.Parameter(torch.full((3,), v)) for v in (1.0, 0.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.set_grad_enabled(not no_grad):
                self.p.data.copy_(self.w * 0.5)  # as a first batch sets variational parameters
            return Scale.apply(x, self.p).sum()

    model, x = Model(), torch.tensor([1.0, 2.0, 3.0])
    compiled = differentiate(model)
    for _ in range(2):
        model.zero_grad()
        compiled(x).backward()
        assert model.p.grad is not None and model.p.grad.tolist() == [1.0, 2.0, 3.0]
        assert model.w.grad is None or model.w.grad.tolist() == [0.0, 0.0, 0.0]
    assert compiled.cache_info().eager_runs == 0
