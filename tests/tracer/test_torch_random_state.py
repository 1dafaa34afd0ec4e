"""Functions that seed torch's generator themselves draw eager's numbers, call after call."""

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import dropout

from gradof import differentiate
from gradof.errors import LeafTypeError, TraceError, UnsupportedOpError
from gradof.tracer.torch.functional import functionalization
from gradof.tracer.torch.random import recorded_seeds
from gradof.tracer.torch.recorder import Recorder

Tensor = torch.Tensor


def _seeded(x: Tensor) -> Tensor:
    noise = torch.rand_like(x)
    torch.manual_seed(7)
    return dropout(x, 0.5) + noise


def _forked(x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        inside = x * torch.randn(x.shape)
    return inside + torch.rand(x.shape)


def _restored(x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    first = dropout(x, 0.3)
    torch.set_rng_state(state)
    return first * 2.0 + dropout(x, 0.3)


@pytest.mark.parametrize("fn", [_seeded, _forked, _restored])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_seed_inside_is_part_of_the_trace(
    fn: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    compiled = differentiate(fn)
    for seed in (0, 1, 2):
        data = torch.randn(5, 7, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        cotangent = torch.randn(5, 7, dtype=dtype, generator=torch.Generator().manual_seed(9))
        ours, theirs = data.clone().requires_grad_(), data.clone().requires_grad_()
        torch.manual_seed(seed)
        expected = fn(theirs)
        after = torch.rand(4)  # what the program draws next
        torch.manual_seed(seed)
        result = compiled(ours)
        assert torch.equal(torch.rand(4), after)
        assert torch.equal(result, expected)
        (mine,) = torch.autograd.grad(result, ours, cotangent)
        torch.testing.assert_close(mine, *torch.autograd.grad(expected, theirs, cotangent))
    (plan,) = compiled.plans()
    assert ("random_seed" in str(plan.graph)) == (fn is not _restored)


def test_tracing_moves_nothing_and_leaves_torch_as_it_was() -> None:
    module: Any = torch.random
    generator = module.default_generator
    torch.manual_seed(11)
    state = torch.get_rng_state()
    differentiate(_seeded).trace(torch.ones(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert module.default_generator is torch.default_generator is generator


def test_a_state_from_elsewhere_and_a_fresh_seed_are_refused() -> None:
    state = torch.get_rng_state()

    def from_elsewhere(x: Tensor) -> Tensor:
        torch.set_rng_state(state)
        return dropout(x, 0.5)

    def fresh(x: Tensor) -> Tensor:
        torch.seed()
        return dropout(x, 0.5)

    with pytest.raises(UnsupportedOpError, match="random state is set to a tensor"):
        differentiate(from_elsewhere, strict=True)(torch.ones(3))
    with pytest.raises(UnsupportedOpError, match="cannot be traced"):
        differentiate(fresh, strict=True)(torch.ones(3))


@pytest.mark.parametrize("source", ["array", "bits", "generator", "argument"])
def test_numbers_that_a_trace_would_bake_in_are_refused(source: str) -> None:
    generator = np.random.default_rng(0)

    def fn(x: torch.Tensor, rng: Any = None) -> torch.Tensor:
        draws: dict[str, Callable[[], float]] = {
            "array": lambda: float(np.random.rand(2)[0]),
            "bits": lambda: random.getrandbits(3),
            "generator": generator.random, "argument": lambda: float(rng.random()),
        }  # fmt: skip
        return (x * draws[source]()).sum()

    x = torch.ones(3, requires_grad=True)
    rng = random.Random(1)
    states = random.getstate(), generator.bit_generator.state, rng.getstate()
    given = (rng,) if source == "argument" else ()
    with pytest.raises((TraceError, LeafTypeError), match=r"random|Random"):
        differentiate(fn, strict=True)(x, *given)
    assert (random.getstate(), generator.bit_generator.state, rng.getstate()) == states


def test_the_text_of_a_module_is_not_asked_for() -> None:
    class Drawn(torch.nn.Module):
        def __repr__(self) -> str:
            return f"Drawn({torch.rand(1)})"

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.rand(3)

    module, compiled = Drawn(), differentiate(Drawn())
    x = torch.ones(3, requires_grad=True)
    for seed in range(3):
        torch.manual_seed(seed)
        want, after = module(x), torch.rand(1)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), want)
        assert torch.equal(torch.rand(1), after)
    assert compiled.cache_info().forward_runs == 3
    torch.manual_seed(0)
    compiled.explain(x)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))


def test_what_other_threads_tell_the_generator_is_not_recorded() -> None:
    recorder, made = Recorder("f"), list[torch.Tensor]()

    def other() -> None:
        torch.manual_seed(5)
        torch.set_rng_state(torch.get_rng_state())
        made.append(torch.ones(2))

    before = torch.get_rng_state()
    with functionalization(), recorded_seeds(recorder):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert not list(recorder.graph.nodes())
    assert not torch._is_functional_tensor(made[0])
    assert recorder.seeded_elsewhere.keys() == {torch.default_generator}
    torch.set_rng_state(before)


def test_threads_that_seed_while_another_traces() -> None:
    for seed in range(5):
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        fast, found = differentiate(model), dict[int, tuple[torch.Tensor, torch.Tensor]]()

        def run(k: int, fast: Any = fast, found: Any = found) -> None:
            torch.manual_seed(k)
            x = torch.full((4, 6), float(k))
            found[k] = x, fast(x)

        threads = [threading.Thread(target=run, args=(seed + k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for x, y in found.values():
            assert not torch._is_functional_tensor(x)
            torch.testing.assert_close(y, model(x))
