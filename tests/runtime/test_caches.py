"""Functions with `functools.lru_cache`: what they have given is state that a trace reads."""

from __future__ import annotations

import functools
import logging
import uuid
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate, value_and_grad
from gradof.errors import TraceError

X = torch.arange(1.0, 4.0, dtype=torch.float64)


def test_a_cold_cache_is_filled_eagerly() -> None:
    @functools.lru_cache(maxsize=2)
    def mask(n: int) -> torch.Tensor:
        return torch.arange(n, dtype=torch.float64)

    def loss(x: Any) -> Any:
        return (x * x * mask(len(x))).sum()

    compiled = differentiate(loss)
    kept = None
    for _ in range(3):
        x = X.clone().requires_grad_()
        compiled(x).backward()
        assert torch.equal(x.grad, 2 * X * torch.arange(3))  # type: ignore[arg-type]
        assert kept is None or mask(3) is kept
        kept = mask(3)
    info = compiled.cache_info()
    assert (info.eager_runs, info.misses, info.backward_runs) == (1, 1, 2)

    mask(3).fill_(5.0)  # the tensor is an input
    x = X.clone().requires_grad_()
    compiled(x).backward()
    assert torch.equal(x.grad, 10 * X)  # type: ignore[arg-type]
    mask(1), mask(2)  # three calls are too many for the cache
    x = X.clone().requires_grad_()
    compiled(x).backward()
    assert torch.equal(x.grad, 2 * X * torch.arange(3))  # type: ignore[arg-type]
    assert mask(3) is not kept

    mask.cache_clear()
    with pytest.raises(TraceError, match="mask is cached, and computed for the first time"):
        differentiate(loss, strict=True)(X)


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_what_a_logger_says_once_is_said_once(
    library: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As transformers has it: a cached method, set on the library's class."""
    @functools.lru_cache(None)
    def warning_once(self: logging.Logger, text: str) -> None:
        self.warning(text)

    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)
    logger: Any = logging.getLogger("said once")

    def loss(x: Any) -> Any:
        logger.warning_once("no loss type is set")
        return (x * x).sum()

    if library == "numpy":
        gradient = value_and_grad(loss)
        for k in range(3):
            assert np.array_equal(gradient(X.numpy() + k)[1], 2 * (X.numpy() + k))
    else:
        compiled = differentiate(loss)
        for k in range(3):
            x = (X + k).requires_grad_()
            compiled(x).backward()
            assert torch.equal(x.grad, 2 * (X + k))  # type: ignore[arg-type]
        assert compiled.cache_info().eager_runs == 0
    assert [r.message for r in caplog.records] == ["no loss type is set"]


def test_an_entry_whose_place_is_used_again_is_noticed() -> None:
    class Scale:
        k = 1.0

    made = iter([2.0, 3.0, 4.0, 5.0])

    @functools.lru_cache(maxsize=1)
    def scale(name: str) -> Scale:
        found = Scale()
        found.k = made.__next__()
        return found

    scale("a")
    compiled = differentiate(lambda x: (x * scale("a").k).sum())
    assert compiled(X).item() == 12.0
    scale("b"), scale("a")  # its own link, with another result
    assert compiled(X).item() == 24.0
    assert compiled.cache_info().eager_runs == 0


def test_what_is_logged_once_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    @functools.lru_cache
    def warn_once(text: str) -> None:
        logging.getLogger("once").warning(text)

    def loss(x: Any) -> Any:
        warn_once("careful")
        return (x * x).sum()

    compiled = differentiate(loss)
    for _ in range(3):
        x = X.clone().requires_grad_()
        compiled(x).backward()
        assert torch.equal(x.grad, 2 * X)  # type: ignore[arg-type]
    assert [r.message for r in caplog.records] == ["careful"]
    assert compiled.cache_info().backward_runs == 3


class Basis:
    """What scientists cache: tables by their size."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    @functools.lru_cache(maxsize=2)  # noqa: B019
    def nodes(self, n: int, low: float = 0.0) -> dict[str, Any]:
        self.runs.append(n)
        return {"at": np.linspace(low, 1.0, n)}

    @functools.cache  # noqa: B019
    def power(self, n: int) -> Any:
        return np.ones(3) if n == 0 else self.power(n - 1) * np.arange(3.0)


@pytest.mark.parametrize("how", ["position", "keyword", "default", "unpacked", "caught", "fails"])
def test_a_cold_cache_of_arrays_is_filled_plainly(how: str) -> None:
    basis = Basis()
    Basis.nodes.cache_clear()

    def loss(x: Any) -> Any:
        if how == "position":
            at = basis.nodes(3, 0.5)
        elif how == "keyword":
            at = basis.nodes(low=0.5, n=3)
        elif how == "default":
            at = basis.nodes(3)
        elif how == "unpacked":
            at = basis.nodes(**{"n": 3, "low": 0.5})
        else:
            try:
                at = basis.nodes(3)
            except Exception:
                at = {"at": np.zeros(3)} if how == "caught" else {}  # a KeyError, then
        return np.sum(x * x * at["at"])

    want = np.linspace(0.0 if how in ("default", "caught", "fails") else 0.5, 1.0, 3)
    x = np.arange(1.0, 4.0)
    compiled = value_and_grad(loss)
    for _ in range(3):
        value, gradient = compiled(x)
        assert value == np.sum(x * x * want)
        np.testing.assert_array_equal(gradient, 2 * x * want)
    runs = len(basis.runs)
    assert loss(x) == np.sum(x * x * want)  # the same entry serves plain code
    assert len(basis.runs) == runs
    assert runs == 1 or how in ("keyword", "unpacked")  # how it was called is found by trying
    assert type(basis.nodes(3)["at"]) is np.ndarray


def test_a_cached_recursion_and_a_cache_that_changes() -> None:
    basis = Basis()
    Basis.power.cache_clear()
    compiled = value_and_grad(lambda x: np.sum(x * basis.power(4)))
    x = np.ones(3)
    np.testing.assert_array_equal(compiled(x)[1], [0.0, 1.0, 16.0])
    assert basis.power.cache_info().currsize == 5
    basis.power.cache_clear()
    basis.power(4)[...] = 7.0
    np.testing.assert_array_equal(compiled(x)[1], [7.0, 7.0, 7.0])


def test_what_a_cached_function_draws_is_drawn_once() -> None:
    @functools.cache
    def weights(n: int) -> Any:
        return np.random.default_rng(n).standard_normal(n)

    compiled = value_and_grad(lambda x: np.sum(x * weights(3)))
    x = np.ones(3)
    first = compiled(x)[1]
    np.testing.assert_array_equal(first, weights(3))
    np.testing.assert_array_equal(compiled(x)[1], first)


def test_what_a_cached_function_prints_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    @functools.cache
    def scale(n: int) -> float:
        print("scale of", n)
        return 2.0 * n

    compiled = differentiate(lambda x: np.sum(x * scale(3)))
    for _ in range(3):
        assert compiled(np.ones(2)) == 12.0
    assert capsys.readouterr().out == "scale of 3\n"
    assert "runs, too" not in str(compiled.explain(np.ones(2)))


def _parsed(pattern: str, *, parts: int) -> tuple[str, int]:
    return f"{pattern} {uuid.uuid4()}", parts


def test_what_a_cached_partial_does_is_done_once() -> None:
    """As a library that parses patterns, whose first call cannot be traced."""
    parse = functools.cache(functools.partial(_parsed, parts=2))

    def fn(x: Any) -> Any:
        return (x * parse("a b -> b")[1]).sum()

    compiled = differentiate(fn)
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 2.0))
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs, parse.cache_info().currsize) == (1, 1, 1)
    parse.cache_clear()
    np.testing.assert_array_equal(value_and_grad(fn)(np.ones(3))[1], np.full(3, 2.0))
    assert parse.cache_info().currsize == 1


class Quadrature:
    @staticmethod
    @functools.cache
    def nodes(n: int, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """A trace could not hold tensors of numpy's memory that a cache keeps."""
        places, weights = np.polynomial.legendre.leggauss(n)
        return torch.as_tensor(places, **options), torch.as_tensor(weights, **options)

    @staticmethod
    def integral(a: torch.Tensor, n: int) -> torch.Tensor:
        places, weights = Quadrature.nodes(n, dtype=a.dtype, device=a.device)
        return ((a[..., None] * places).exp() * weights).sum(-1)


class _ByFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(a)
        return Quadrature.integral(a, 4)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (a,) = ctx.saved_tensors
        return g * a.exp()


@pytest.mark.parametrize(
    ("fn", "n"), [(lambda a: Quadrature.integral(a, 3), 3), (_ByFunction.apply, 4)]
)
def test_a_cached_static_method_is_filled_eagerly_and_read(fn: Any, n: int) -> None:
    Quadrature.nodes.cache_clear()
    compiled = differentiate(lambda a: fn(a).sum())
    for k in range(3):
        a = torch.full((2,), 0.5 + k, dtype=torch.float64, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        found, wanted = compiled(a), fn(b).sum()
        torch.testing.assert_close(found, wanted)
        (have,), (want,) = torch.autograd.grad(found, a), torch.autograd.grad(wanted, b)
        torch.testing.assert_close(have, want)
    info = compiled.cache_info()
    assert info.eager_runs <= 1 and info.forward_runs >= 2
    assert Quadrature.nodes.cache_info().currsize == 1
