"""Linear systems and decompositions: first and second derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.codegen.host.evaluate import interpret
from gradof.errors import VerifyError
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify

N = 3
RNG = np.random.default_rng(0)
A = RNG.standard_normal((N, N))
SPD = A @ A.T + N * np.eye(N)
B = RNG.standard_normal((N, 2))


def symmetric(x: Any) -> Any:
    return (x + x.T) / 2


CASES: dict[str, Callable[[Any], Any]] = {
    "inv": lambda x: np.sum(np.sin(np.linalg.inv(x))),
    "solve": lambda x: np.sum(np.linalg.solve(x, B) ** 2),
    "solve_right": lambda x: np.sum(np.linalg.solve(SPD, x) ** 3),
    "det": lambda x: np.log(np.linalg.det(x)),
    "slogdet": lambda x: np.linalg.slogdet(x)[1] ** 2,
    "cholesky": lambda x: np.sum(np.cos(np.linalg.cholesky(symmetric(x)))),
    "eigh": lambda x: np.sum(np.linalg.eigh(symmetric(x))[0] ** 3),
    "eigh_vectors": lambda x: np.sum(np.linalg.eigh(symmetric(x))[1] ** 4),
    "log_likelihood": lambda x: (
        np.linalg.slogdet(symmetric(x))[1] + B[:, 0] @ np.linalg.solve(symmetric(x), B[:, 0])
    ),
}


def differences(fn: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    """Central differences along every element of x, stacked in front of fn's shape."""
    rows = []
    for at in np.ndindex(x.shape):
        d = np.zeros_like(x)
        d[at] = step
        rows.append((np.asarray(fn(x + d)) - np.asarray(fn(x - d))) / (2 * step))
    return np.stack(rows)


@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives(name: str) -> None:
    fn = CASES[name]
    value, gradient = gradof.value_and_grad(fn)(SPD)
    np.testing.assert_allclose(value, fn(SPD), rtol=1e-12)
    want = differences(fn, SPD).reshape(N, N)
    np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-7)
    hessian = gradof.hessian(fn)(SPD).reshape(N * N, N * N)
    second = differences(gradof.grad(fn), SPD).reshape(N * N, N * N)
    np.testing.assert_allclose(hessian, second, rtol=1e-4, atol=1e-6)


GRAPHS = {
    "inv": "%y : f64[3,3] = inv(%x) return (%y)",
    "det": "%y : f64[] = det(%x) return (%y)",
    "cholesky": "%y : f64[3,3] = cholesky(%x) return (%y)",
    "eigh": "%w : f64[3], %v : f64[3,3] = eigh(%x) return (%w, %v)",
    "slogdet": "%s : f64[], %l : f64[] = slogdet(%x) return (%s, %l)",
    "solve": "%y : f64[3,3] = solve(%x, %x) return (%y)",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_torch_lowering_agrees(name: str) -> None:
    graph = parse_graph(f"graph f(%x : f64[3,3]): {GRAPHS[name]}")
    mine, theirs = (interpret(graph, [SPD], library=lib) for lib in ("numpy", "torch"))
    for got, want in zip(mine, theirs, strict=True):
        # eigenvectors are defined up to their sign
        got, want = (np.abs(got), np.abs(want)) if name == "eigh" else (got, want)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "graph f(%x : f64[3,2]): %y : f64[3,2] = inv(%x) return (%y)",
        "graph f(%x : i64[3,3]): %y : i64[3,3] = inv(%x) return (%y)",
        "graph f(%x : f64[3,3], %b : f64[2,3]): %y : f64[2,3] = solve(%x, %b) return (%y)",
        "graph f(%x : f64[3,3], %b : f32[3,3]): %y : f32[3,3] = solve(%x, %b) return (%y)",
    ],
)
def test_operands_that_do_not_fit(text: str) -> None:
    graph = parse_graph(text)
    with pytest.raises(VerifyError, match=r"square matrices|cannot divide"):
        verify(graph)


def test_stacks_and_broadcasting() -> None:
    stack = np.stack([SPD, SPD + np.eye(N)])

    def fn(a: Any, b: Any) -> Any:
        return np.sum(np.linalg.solve(a, b) ** 2) + np.sum(np.linalg.inv(a) @ a[0])

    ga, gb = gradof.grad(fn, argnums=(0, 1))(stack, B)
    assert (ga.shape, gb.shape) == (stack.shape, B.shape)
    want = differences(lambda a: fn(a, B), stack).reshape(stack.shape)
    np.testing.assert_allclose(ga, want, rtol=1e-5, atol=1e-7)
    want = differences(lambda b: fn(stack, b), B).reshape(B.shape)
    np.testing.assert_allclose(gb, want, rtol=1e-5, atol=1e-7)


def test_single_precision_stays_single() -> None:
    small = SPD.astype(np.float32)
    for fn in CASES.values():
        gradient = gradof.grad(lambda x, fn=fn: fn(x).astype(np.float32))(small)
        assert gradient.dtype == np.float32
        want = gradof.grad(fn)(SPD)
        np.testing.assert_allclose(gradient, want, rtol=2e-3, atol=2e-3)


def test_a_singular_matrix_is_numpys_error() -> None:
    singular = gradof.differentiate(lambda x: np.linalg.inv(x))
    singular(SPD)
    with pytest.raises(np.linalg.LinAlgError):
        singular(np.zeros((N, N)))
