"""What a backward keeps, and what becomes of it: released, packed by hooks, guarded by versions."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import gradof
from gradof.runtime import torch_backward
from gradof.runtime.torch_run import consumed
from tests.runtime.compare import grad_nodes


def network(x: Tensor, w: Tensor) -> Tensor:
    return (torch.exp(x @ w).sin() * x).sum()


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize("retains", [False, True])
def test_what_f_has_computed_goes_while_the_backward_runs(
    retains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in eager, where each node lets go what it saved, unless the graph is to stay."""
    def deep(x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.cumsum(torch.sort(x, dim=0)[0], 0).sin() @ x.mT
        return x.sum()

    taken: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def watched(plan: Any, operands: list[Any]) -> Any:
        taken.extend(weakref.ref(a) for a in operands if not isinstance(a, Tensor))
        function = plan.executable.function

        def ends(frame: Any, event: str, _: Any) -> None:
            if event == "return" and frame.f_code is function.__code__:
                alive.append(sum(r() is not None for r in taken))

        sys.setprofile(ends)
        try:
            return consumed(plan, operands)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(torch_backward, "consumed", watched)
    compiled = gradof.differentiate(deep)
    x = torch.randn(160, 160, requires_grad=True)
    result = compiled(x)
    found = torch.autograd.grad(result, x, retain_graph=retains)[0]
    assert len(taken) > 4
    if retains:
        assert alive.pop() == len(taken)
        assert torch.equal(torch.autograd.grad(result, x)[0], found)
    assert alive.pop() == 0


def test_a_backward_that_ended_with_an_error_has_freed_what_it_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As eager's nodes have, such as where there was no memory for a gradient."""
    def fails(plan: Any, operands: list[Any]) -> Any:
        raise MemoryError

    x = torch.randn(4, 4, requires_grad=True)
    result = gradof.differentiate(lambda x: (torch.cumsum(x.exp(), 0).sin() @ x).sum())(x)
    with monkeypatch.context() as patched:
        patched.setattr(torch_backward, "consumed", fails)
        with pytest.raises(MemoryError):
            result.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()


def leaves() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    return x, w


def message(fn: Callable[[Tensor, Tensor], Tensor], act: Callable[..., None]) -> str:
    """The first sentence of the error that `act` raises on the function's result."""
    x, w = leaves()
    with pytest.raises(RuntimeError) as caught:
        act(fn(x, w), x, w)
    return str(caught.value).partition(":")[0].partition("(")[0]


@pytest.mark.parametrize("n", [4, 1 << 17])
def test_nothing_is_computed_again_from_what_the_function_overwrites(n: int) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        y = (x * w.float().exp() * w.float()).sum()
        w.zero_()
        return y

    x, compiled = torch.randn(n, requires_grad=True), gradof.differentiate(fn)
    w = torch.randn(n, dtype=torch.bfloat16)
    for _ in range(2):
        mine, theirs = w.clone(), w.clone()
        (have,) = torch.autograd.grad(compiled(x, mine), x)
        (want,) = torch.autograd.grad(fn(x, theirs), x)
        torch.testing.assert_close(have, want)
        assert not mine.any()
    assert compiled.cache_info().backward_runs == 2


def twice(y: Tensor, x: Tensor, w: Tensor) -> None:
    torch.autograd.grad(y, [x, w])
    torch.autograd.grad(y, [x, w])


def changed(y: Tensor, x: Tensor, w: Tensor) -> None:
    with torch.no_grad():
        w.mul_(2.0)
    torch.autograd.grad(y, [x, w])


@pytest.mark.parametrize("act", [twice, changed])
def test_eagers_error(act: Callable[..., None]) -> None:
    compiled = gradof.differentiate(network)
    assert message(compiled, act) == message(network, act)
    assert compiled.cache_info().forward_runs == 1


def test_a_graph_that_is_retained_gives_the_same_again() -> None:
    x, w = leaves()
    y = gradof.differentiate(network)(x, w)
    first = torch.autograd.grad(y, [x, w], retain_graph=True)
    again = torch.autograd.grad(y, [x, w])
    torch.testing.assert_close(first, again, rtol=0.0, atol=0.0)


def test_saved_tensors_go_with_the_backward() -> None:
    x, w = leaves()
    alive: list[weakref.ref[Tensor]] = []

    def pack(tensor: Tensor) -> Tensor:
        copy = tensor.clone()
        alive.append(weakref.ref(copy))
        return copy

    with saved_tensors_hooks(pack, lambda t: t):
        y = gradof.differentiate(network)(x, w)
    assert alive and all(ref() is not None for ref in alive)
    torch.autograd.grad(y, [x, w])
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)
    assert y.grad_fn is not None, "the node lives on, without what it saved"


def cubed(x: Tensor) -> Tensor:
    """Of which df reads the tanh alone, and not x."""
    t = torch.tanh(x)
    return t * t * t


def test_what_f_computed_for_df_goes_with_the_backward() -> None:
    x, w = leaves()
    y: Any = gradof.differentiate(network)(x, w)
    assert len(y.grad_fn.values) > 0
    first = torch.autograd.grad(y, [x, w], retain_graph=True)
    assert len(y.grad_fn.values) > 0
    torch.testing.assert_close(torch.autograd.grad(y, [x, w]), first, rtol=0.0, atol=0.0)
    assert y.grad_fn.values is None
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(y, [x, w])


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("hooks", [False, True])
def test_any_derivative_by_an_input_that_df_does_not_read(order: int, hooks: bool) -> None:
    compiled = gradof.differentiate(cubed)
    found = []
    for fn in (compiled, cubed):
        leaf = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4).requires_grad_()
        x = leaf * 1.5
        context: Any = saved_tensors_hooks(Tensor.clone, lambda t: t) if hooks else nullcontext()
        with context:
            y = fn(x)
        with torch.no_grad():
            x.zero_()  # nobody reads it any more
        for _ in range(order):
            (y,) = torch.autograd.grad(y.square().sum(), leaf, create_graph=True)
        found.append(y)
    torch.testing.assert_close(found[0], found[1])
    assert compiled.cache_info().backward_runs > 0


def test_the_memory_of_an_input_that_df_does_not_read_is_free() -> None:
    x: Any = torch.rand(3, 4, requires_grad=True) * 1.5
    alive = weakref.ref(x)
    y = gradof.differentiate(cubed)(x)
    del x
    gc.collect()
    assert alive() is None and y.requires_grad


def test_a_leaf_that_is_written_to_keeps_its_history() -> None:
    found = []
    for fn in (gradof.differentiate(cubed), cubed):
        leaf = torch.linspace(-1, 1, 12, dtype=torch.float64).requires_grad_()
        y = fn(leaf)
        with torch.no_grad():
            leaf += 1
        (slope,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(slope.sum(), leaf)[0])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_second_derivative_through_values_that_numpy_has_no_dtype_for(
    dtype: torch.dtype,
) -> None:
    x = torch.linspace(-1, 1, 12).to(dtype).requires_grad_()
    seconds = []
    for fn in (gradof.differentiate(cubed), cubed):
        (slope,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(slope.sum(), x)[0])
    torch.testing.assert_close(seconds[0], seconds[1], rtol=0.05, atol=0.05)


def test_hooks_pack_and_unpack_what_is_saved() -> None:
    x, w = leaves()
    compiled = gradof.differentiate(network)
    packed: list[Tensor] = []
    unpacked: list[int] = []

    def pack(tensor: Tensor) -> int:
        packed.append(tensor.detach().clone())
        return len(packed) - 1

    def unpack(index: int) -> Tensor:
        unpacked.append(index)
        return packed[index]

    with saved_tensors_hooks(pack, unpack):
        y = compiled(x, w)
    gradient = compiled.gradient(x, w)
    captures = [*gradient.df_input_captured_inputs, *gradient.df_input_captured_outputs]
    assert len(packed) == len(captures) and not unpacked
    ours = torch.autograd.grad(y, [x, w])
    assert sorted(unpacked) == list(range(len(packed)))
    torch.testing.assert_close(ours, torch.autograd.grad(network(x, w), [x, w]))


def large(x: Tensor, b: Tensor) -> Tensor:
    """A pointwise chain: eager saves an array for nearly every op."""
    z = x * x + b
    return (torch.where(z > 0, z, -z) * z - b).sum()


def saved_bytes(fn: Callable[..., Tensor], *args: Tensor) -> int:
    """Bytes of the distinct storages saved beyond the arguments."""
    own = {t.untyped_storage().data_ptr() for t in args}
    found: dict[int, int] = {}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda t: t):
        fn(*args)
    return sum(found.values())


def test_bytes_against_eager_and_the_ledger() -> None:
    x = torch.randn(256, 256, requires_grad=True)
    b = torch.randn(256, requires_grad=True)
    compiled = gradof.differentiate(large)
    ours, eager = saved_bytes(compiled, x, b), saved_bytes(large, x, b)
    assert ours == compiled.explain(x, b).saved_bytes
    assert ours < eager


def test_the_ledger_says_why() -> None:
    def layers(x: Tensor, w: Tensor) -> Tensor:
        h = torch.nn.functional.dropout(torch.tanh(x @ w), 0.5)
        return torch.tanh(torch.tanh(h @ w) @ w) @ w

    x, w = leaves()
    full = gradof.differentiate(layers).explain(x, w)
    assert {s.why for s in full.saved} == {"there anyway", "least cost"}
    assert all("test_saved_tensors.py" in s.loc for s in full.saved if s.kind == "a temporary")
    half = gradof.differentiate(layers, memory_budget=0.6).explain(x, w)
    assert "within the budget of 0.6" in str(half)
    assert half.saved_bytes < full.saved_bytes
    none = gradof.differentiate(layers, memory_budget=0.0).explain(x, w)
    (mask,) = [s for s in none.saved if s.why != "there anyway"]
    assert "cannot be computed again" in mask.why and mask.nbytes == 9 * 8


class Stateful(torch.nn.Module):
    """A layer whose state of the call before is read for its shape alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.state = torch.nn.Linear(3, 3), torch.zeros(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(self.state)
        for _ in range(3):
            state = torch.tanh(self.layer(x) + state)
        self.state = state
        return state


def test_a_state_that_begins_anew_does_not_keep_the_calls_before_alive() -> None:
    model = Stateful()
    compiled, counts = gradof.differentiate(model), []
    for _ in range(6):
        y = compiled(torch.ones(2, 3))
        y.sum().backward()
        counts.append(len(list(grad_nodes(y))))
    assert len(set(counts[1:])) == 1, counts
    model(torch.ones(2, 3)).sum().backward()  # eagerly, and compiled after it
    compiled(torch.ones(2, 3)).sum().backward()
    assert compiled.cache_info().eager_runs == 0
