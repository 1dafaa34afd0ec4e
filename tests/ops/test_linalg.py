"""Matrix products and triangles: numpy forward, torch gradients to second order, both libraries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen.lowering.numpy import Library
from gradof.ops.expr import F
from tests.ops.reference import compare, forward, gradient, randn

SIZES = [(2, 3, 4), (1, 1, 1), (3, 1, 2), (0, 3, 2), (2, 0, 3), (2, 3, 0)]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("n", "k", "m"), SIZES)
def test_mm(n: int, k: int, m: int, library: Library) -> None:
    compare(F.mm, torch.mm, randn(n, k), randn(k, m, seed=1), library=library)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)),
     ((2, 1, 3, 4), (3, 4, 2)), ((0, 2, 3), (0, 3, 2)), ((2, 2), (2, 2))], ids=str,
)  # fmt: skip
def test_bmm_broadcasts_its_leading_dims(
    left: tuple[int, ...], right: tuple[int, ...], library: Library
) -> None:
    compare(F.bmm, torch.matmul, randn(*left), randn(*right, seed=1), library=library)


def test_products_of_a_matrix_with_itself_and_its_transpose() -> None:
    x = randn(3, 3)
    compare(lambda x: x @ x, lambda x: x @ x, x)
    compare(lambda x: x @ x.mT, lambda x: x @ x.mT, x)
    compare(lambda x: F.mm(x.mT, F.mm(x, x)), lambda x: x.mT @ (x @ x), x)


def test_mv_and_dot() -> None:
    compare(F.mv, torch.mv, randn(3, 4), randn(4, seed=1))
    compare(F.dot, torch.dot, randn(4), randn(4, seed=1))
    compare(lambda x: F.dot(x, x), lambda x: torch.dot(x, x), randn(4))
    compare(F.mv, torch.mv, randn(0, 4), randn(4, seed=1))
    compare(F.dot, torch.dot, randn(0), randn(0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_stay_in_their_dtype(dtype: type[np.floating]) -> None:
    a, b = randn(3, 4).astype(dtype), randn(4, 2).astype(dtype)
    (have,) = forward(F.mm, a, b)
    assert have.dtype == dtype
    np.testing.assert_allclose(have, a @ b, rtol=1e-6)
    assert [g.dtype for g in gradient(F.mm, a, b)] == [dtype, dtype]


@pytest.mark.parametrize("diagonal", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 4), (3, 2)], ids=str)
def test_triangles(name: str, diagonal: int, shape: tuple[int, ...]) -> None:
    compare(lambda x: F.sin(F.__getattr__(name)(x, diagonal=diagonal)),
            lambda x: torch.sin(getattr(torch, name)(x, diagonal)), randn(*shape))  # fmt: skip


# Every quotient of a factorisation, of the matrix or of its transpose, is a power of two, so that
# each library finds these singular without rounding.
SINGULAR = {
    "one short": [[1.0, 2.0, 4.0], [2.0, 4.0, 8.0], [0.0, 1.0, 1.0]],
    "ones": [[1.0, 1.0, 1.0]] * 3, "zeros": [[0.0, 0.0, 0.0]] * 3, "two": [[0.0, 2.0], [0.0, 3.0]],
}  # fmt: skip


@pytest.mark.parametrize("name", SINGULAR)
def test_the_determinant_of_a_singular_matrix_has_the_gradient_of_its_minors(name: str) -> None:
    x = np.array(SINGULAR[name])
    other = x + 2 * np.eye(len(x))
    stack = np.stack([x, other])
    found = gradof.grad(lambda x: np.sum(np.linalg.det(x)))(stack)
    for matrix, mine in zip(stack, found, strict=True):
        for i, j in np.ndindex(*matrix.shape):
            minor = np.linalg.det(np.delete(np.delete(matrix, i, 0), j, 1))
            assert abs(mine[i, j] - (-1.0) ** (i + j) * minor) < 1e-12


@pytest.mark.parametrize("name", SINGULAR)
def test_logarithms_of_singular_determinants_run_as_eager_runs_them(name: str) -> None:
    x = torch.tensor(SINGULAR[name], requires_grad=True)
    compiled = gradof.differentiate(lambda x: torch.linalg.slogdet(x)[1], strict=True)
    (mine,) = torch.autograd.grad(compiled(x), x)
    assert compiled(x) == torch.linalg.slogdet(x)[1] == -np.inf
    assert not bool(mine.isfinite().all())
    assert compiled.cache_info().backward_runs == 1
