"""Float32 products of torch callers: whose they are, and that both are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen.lowering import products

Make = Callable[[int, int], Any]


def plain(rows: int, columns: int) -> Any:
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)


def transposed(rows: int, columns: int) -> Any:
    return plain(columns, rows).T


def sliced(rows: int, columns: int) -> Any:
    return plain(2 * rows, columns + 3)[::2, 1:-2]


def flipped(rows: int, columns: int) -> Any:
    return plain(rows, columns)[::-1]


def one_row(rows: int, columns: int) -> Any:
    return np.broadcast_to(plain(1, columns), (rows, columns))


@pytest.fixture(params=["MKL", "oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "oneDNN" and not torch._C._has_mkldnn:
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "float32_library", lambda: name)
    monkeypatch.setattr(products, "has_native", lambda: False)
    return name


@pytest.mark.parametrize("make", [plain, transposed, sliced, flipped, one_row])
@pytest.mark.parametrize(
    "sizes", [(128, 70, 90), (1, 5000, 3), (65, 1, 65), (300, 17, 1), (7, 9, 5), (512, 128, 10)]
)
def test_products_are_as_near_to_float64_as_torchs(
    library: str, make: Make, sizes: tuple[int, int, int]
) -> None:
    m, k, n = sizes
    a, b = make(m, k), make(k, n)
    before = a.copy(), b.copy()
    found = products.mm(a, b)
    assert found.dtype == np.float32 and found.flags.writeable
    exact = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(found - exact) <= 2 * np.finfo(np.float32).eps * np.sqrt(k) * scale).all()
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


@pytest.mark.parametrize("sizes", [(0, 4, 3), (4, 0, 3), (4, 3, 0)])
def test_without_elements(library: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    found = products.mm(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
    np.testing.assert_array_equal(found, np.zeros((m, n), np.float32))


def test_infinity_and_nan_go_through(library: str) -> None:
    a, b = plain(70, 70), plain(70, 70)
    a[0, 0], a[1, 1] = np.inf, np.nan
    np.testing.assert_array_equal(np.isfinite(products.mm(a, b)), np.isfinite(a @ b))


def test_float64_keeps_its_precision(library: str) -> None:
    a, b = plain(70, 80).astype(np.float64), plain(80, 90).astype(np.float64)
    np.testing.assert_allclose(products.mm(a, b), a @ b, rtol=1e-13, atol=1e-13)


def test_autocast_outside_rounds_nothing(library: str) -> None:
    a, b = plain(128, 128), plain(128, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = products.mm(a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)


def test_gradients_of_a_product_come_from_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[int, ...]] = []
    original = products.mm

    def counting(a: Any, b: Any) -> Any:
        counted.append(a.shape)
        return original(a, b)

    monkeypatch.setattr(products, "mm", counting)
    fn = gradof.differentiate(lambda a, b: (a @ b).square().sum())
    given = [torch.from_numpy(plain(128, 70)).requires_grad_() for _ in range(1)]
    given.append(torch.from_numpy(plain(70, 128)).requires_grad_())
    found = torch.autograd.grad(fn(*given), given)
    expected = torch.autograd.grad((given[0] @ given[1]).square().sum(), given)
    for mine, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-3)
    assert len(counted) == 3


def test_the_choice_is_the_processors() -> None:
    assert products.float32_library() in ("MKL", "oneDNN")
