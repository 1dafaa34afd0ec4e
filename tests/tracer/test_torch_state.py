"""What a function does outside its results: redone by the graph, or refused, never left over."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from gradof.errors import TraceError
from gradof.tracer.core.result import ConstantOut, InputOut, TensorOut
from gradof.tracer.state.reads import Reads
from gradof.tracer.torch.tracer import trace_torch
from tests.tracer.eager import check, trace

X = torch.randn(4, 3)


class Running(nn.Module):
    seen: Any

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.inplace = inplace

    def forward(self, x: torch.Tensor) -> Any:
        if self.inplace:
            self.seen = self.seen.mul_(0.9).add_(x.detach().mean(0))
        else:
            self.seen = self.seen * 0.9 + x.detach().mean(0)
        return x * self.seen


def test_a_buffer_changed_in_place_is_written_back() -> None:
    module = Running(inplace=True)
    seen = module.seen
    traced = check(module, X.clone().requires_grad_())
    assert [traced.input_names[w.input] for w in traced.writebacks] == ["self.seen"]
    assert module.seen is seen


def test_a_buffer_that_is_replaced_is_stored_by_calls_and_not_by_the_trace() -> None:
    module = Running(inplace=False)
    seen = module.seen
    (store,) = trace_torch(module, (X,), {}).stores
    assert store.mode == "set" and store.place.key == "seen" and store.place.kind == "item"
    assert module.seen is seen and torch.equal(seen, torch.zeros(3))


def test_what_is_stored_elsewhere_is_put_back_and_repeated() -> None:
    module: Any = nn.Module()
    kept, table = [1], {"old": X}
    module.cache = None
    last: Any = None

    def attribute(x: torch.Tensor) -> torch.Tensor:
        module.last = module.cache = x * 2
        return x

    def items(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)  # type: ignore[arg-type]
        kept.append(x * 3)  # type: ignore[arg-type]
        return x

    def replaced(x: torch.Tensor) -> torch.Tensor:
        table["old"] = x * 2
        return x

    def closure(x: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = x * 2
        return x

    found = {
        fn: [(s.mode, len(s.outputs)) for s in trace_torch(fn, (X,), {}).stores]
        for fn in (attribute, items, replaced, closure)
    }
    assert not hasattr(module, "last") and module.cache is None
    assert kept == [1] and table["old"] is X and last is None
    assert found == {
        attribute: [("set", 1), ("set", 1)], items: [("grow", 2)], replaced: [("set", 1)],
        closure: [("set", 1)],
    }  # fmt: skip


def test_state_is_put_back_when_the_function_fails() -> None:
    module = nn.Module()

    def fails(x: torch.Tensor) -> torch.Tensor:
        module.last = x * 2
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace_torch(fails, (X,), {})
    assert not hasattr(module, "last")


def test_spectral_norm_power_iteration() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    assert len(trace(lambda x: layer(x), X).writebacks) == 2
    layer.eval()
    assert not check(lambda x: layer(x), X).writebacks


def test_results_that_are_inputs_or_repeat() -> None:
    w = torch.ones(3)

    def fn(x: torch.Tensor, n: int) -> Any:
        y = x * 2
        return {"same": x, "free": w, "pair": (y, y), "n": n, "shape": x.shape}

    traced = trace(fn, X, 3)
    x, free, first, second, *rest = traced.outputs
    assert (x, free) == (InputOut(0), InputOut(1))
    assert first is second and isinstance(first, TensorOut)
    rebuilt = traced.out_tree.unflatten(traced.leaves(traced.outputs, [X, w], ["y"], {}))
    assert rebuilt == {"same": X, "free": w, "pair": ("y", "y"), "n": 3, "shape": X.shape}
    assert len(rest) == 2


def test_metadata_of_a_free_tensor_makes_no_input() -> None:
    w = torch.ones(3)
    traced = trace(lambda x: x * w.shape[0] * w.numel() * len(w), X)
    assert not traced.origins


def test_formatting_is_no_op_and_printing_is_left_to_eager() -> None:
    texts = []

    def formats(x: torch.Tensor) -> torch.Tensor:
        texts.append(f"{x} {x.sum():.2f}")
        return x * 2

    def prints(x: torch.Tensor) -> torch.Tensor:
        print(formats(x))
        return x

    (store,) = trace_torch(formats, (torch.ones(2),), {}).stores
    assert store.outputs == (ConstantOut("tensor([1., 1.]) 2.00"),) and texts == []
    with pytest.raises(TraceError, match="print is called"):
        trace_torch(prints, (torch.ones(2),), {}, reads=Reads(refuse_effects=True))


@pytest.mark.parametrize("how", ["detach_", "requires_grad_"])
def test_gradients_are_not_switched_off_in_place(how: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if how == "detach_" else x
        getattr(y, how)(*([False] if how == "requires_grad_" else []))
        return y * x

    with pytest.raises(TraceError, match="cut off from its gradient in place"):
        trace_torch(fn, (X.clone().requires_grad_(),), {})


def test_graphs_read_like_the_code(golden: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())

    def loss(x: torch.Tensor, target: torch.Tensor) -> Any:
        hidden = model(x)
        error = hidden - target
        error[0] = 0.0
        with torch.no_grad():
            scale = hidden.abs().mean()
        return (error**2).mean() / scale

    first = loss.__code__.co_firstlineno
    text = str(trace(loss, X, torch.zeros(4, 2)).graph)
    golden(re.sub(r"# \S+:(\d+)", lambda m: f"# line {int(m[1]) - first}", text))


def test_an_ordered_dict_changed_while_tracing_stays_whole() -> None:
    table = OrderedDict(a=1.0, b=2.0, c=3.0)

    def f(x: torch.Tensor) -> torch.Tensor:
        table.move_to_end("a")
        table.popitem(last=False)
        table["z"] = 4.0
        return x * sum(v * i for i, v in enumerate(table.values()))

    trace_torch(f, (X,), {})
    assert list(table.items()) == [("a", 1.0), ("b", 2.0), ("c", 3.0)]
