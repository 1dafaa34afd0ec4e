"""Python that reads values: each path is traced once, and every call takes the right one."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate, grad, hvp, limits, value_and_grad
from gradof.errors import DataDependentError, EagerWarning, RetraceWarning
from gradof.ir.parser import parse_graph
from gradof.ops.guard import same_number

Tensor = torch.Tensor
Array = np.ndarray[Any, Any]
ROWS = [[1.0, 2.0, -3.0], [4.0, 1.0, 2.0], [-1.0, -2.0, -0.5], [0.5, -4.0, 9.0], [1.5, 2.5, -3.0]]


def branch(x: Tensor) -> Tensor:
    y = x * x
    return y.exp().sum() if x.sum() > 0 else (y * x).sin().sum()


def loop(x: Tensor) -> Tensor:
    y = x
    while y.abs().sum() > 1:
        y = y * 0.5 + torch.tanh(y) * 0.1
    return (y * x).sum()


def masked(x: Tensor) -> Tensor:
    kept = x[x > 0.7]
    return (kept**3).sum() * len(kept)


def several_masks(x: Tensor) -> Tensor:
    table = x[:, None] * x[None, :]
    return (table[x > 0][:, x < 2] ** 2).sum() + torch.masked_select(x, x.abs() > 1).prod()


def item(x: Tensor) -> Tensor:
    return x.sum() ** 2 * round(x.max().item())


def largest_index(x: Tensor) -> Tensor:
    return x[int(x.argmax())] ** 3 + x[x.argmin()].exp()


def python_max(x: Tensor) -> Tensor:
    return max(x[0], x[1]) ** 2 * sorted(x)[0]  # type: ignore[no-any-return]


def compared(x: Tensor) -> Tensor:
    if torch.equal(x > 0, x.abs() > 0):
        return (x**2).sum()
    return (x**3).sum() if torch.allclose(x[0], x[0] + 0) else x.sum()


def places(x: Tensor) -> Tensor:
    where = torch.nonzero(x[None] > 0)
    return (x[where[:, 1]] ** 2).sum() * where.shape[0]


def classes(x: Tensor) -> Tensor:
    hot = torch.nn.functional.one_hot(x.detach().abs().long())
    return (hot * x[:, None] ** 2).sum() * hot.shape[1]


def repeated(x: Tensor) -> Tensor:
    times = x.detach().abs().long()
    return (x.repeat_interleave(times) ** 2).sum()


def after_dropout(x: Tensor) -> Tensor:
    y = torch.nn.functional.dropout(x, 0.5, training=True)
    z = y.exp() if y.sum() > 0 else y * y * y
    return (z * torch.rand(3)).sum()


def counted(x: Tensor) -> Tensor:
    places = x.detach().abs().long()
    counts = torch.bincount(places) * torch.bincount(places, x.detach()).sum()
    return (x.exp() * torch.bincount(places, minlength=3)[:3]).sum() + x.sum() * counts.sum()


TORCH = [branch, loop, masked, several_masks, item, largest_index, python_max, compared, places,
         classes, repeated, counted, after_dropout]  # fmt: skip


def second(fn: Callable[[Tensor], Tensor], row: list[float], dtype: torch.dtype) -> list[Tensor]:
    x = torch.tensor(row, dtype=dtype, requires_grad=True)
    torch.manual_seed(7)
    value = fn(x)
    (first,) = torch.autograd.grad(value, x, torch.tensor(1.7, dtype=dtype), create_graph=True)
    (again,) = torch.autograd.grad(
        first, x, torch.tensor([0.3, -1.1, 0.8], dtype=dtype), allow_unused=True
    )
    return [value, first, torch.zeros_like(x) if again is None else again, torch.rand(1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("fn", TORCH, ids=lambda fn: fn.__name__)
def test_every_path_of_torch(fn: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    compiled = differentiate(fn)
    for row in (*ROWS, *reversed(ROWS)):
        ours, eager = second(compiled, row, dtype), second(fn, row, dtype)
        tol = 2e-5 if dtype is torch.float32 else 1e-12
        for mine, theirs in zip(ours, eager, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=tol, atol=tol)
    info = compiled.cache_info()
    least = 1 if fn in (loop, item, largest_index) else 2  # of any number of steps, or row
    assert least <= info.entries < len(ROWS) + 1 and info.forward_runs == 2 * len(ROWS)
    assert info.misses == info.entries  # no path was traced twice


def np_branch(x: Array) -> Any:
    return np.exp(x).sum() if x.sum() > 0 else (x**3).sum()


def np_newton(x: Array) -> Any:
    guess, n = x, 0
    while np.any(np.abs(guess * guess - np.abs(x)) > 1e-9):
        guess = 0.5 * (np.abs(guess) + np.abs(x) / np.abs(guess))
        n += 1
    return (guess * x).sum() + 0 * n


def np_slices(x: Array) -> Any:
    y = np.zeros(3)
    err, n = 1.0, 0
    while err > 0.2:
        y[n % 3] = x[n % 3] * 0.5 + y[(n + 1) % 3] ** 2 * 0.01
        y[1:] += x[:2] * 0.1
        err = err / (1 + abs(x[0]))
        n += 1
    return (y**2).sum()


def np_masked(x: Array) -> Any:
    kept = x[x > 0.7]
    return (kept**3).sum() * len(kept)


def np_assigned(x: Array) -> Any:
    y = x * 1.0
    y[x > 0] = x[x > 0] ** 3
    y[np.nonzero(x < -1)] *= 2
    return (y * x).sum()


def np_selected(x: Array) -> Any:
    kept = np.extract(x > 0, x) if np.any(x > 0) else x
    table = np.compress(x > -1, np.outer(x, x), axis=1) if np.any(x > -1) else np.outer(x, x)
    spots = np.argwhere(x < 3)[:, 0]
    flat = np.flatnonzero(np.abs(x) > 1)
    return (kept**2).sum() + table.sum() + x[spots].prod() + (x[flat] ** 3).sum()


def np_unique(x: Array) -> Any:
    both = np.concatenate([x, x * (x > 0)])
    return (np.unique(both) ** 3).sum() + np.where(x > 0)[0].sum() * x[0]


def np_python(x: Array) -> Any:
    return max(x[0], x[1]) * sorted(x)[0] * (2 if 1.0 in x else 3) + x[int(np.argmax(x))] ** 3


def np_int(x: Array) -> Any:
    return (x**2).sum() * int(x[0]) + range(np.argmax(np.abs(x)) + 1)[-1] * x[1]


NUMPY = [np_branch, np_newton, np_slices, np_masked, np_assigned, np_selected, np_unique,
         np_python, np_int]  # fmt: skip


@pytest.mark.parametrize("fn", NUMPY, ids=lambda fn: fn.__name__)
def test_every_path_of_numpy(fn: Callable[[Array], Any]) -> None:
    compiled = value_and_grad(fn)
    way = np.array([0.3, -1.1, 0.8])
    for row in (*ROWS, *reversed(ROWS)):
        x = np.add(row, [0.013, 0.026, 0.039])  # off the jumps
        value, gradient = compiled(x)
        assert math.isclose(value, fn(x.copy()), rel_tol=1e-13, abs_tol=1e-13)
        for i in range(3):
            step = np.zeros(3)
            step[i] = 1e-6
            slope = (fn(x + step) - fn(x - step)) / 2e-6
            assert math.isclose(gradient[i], slope, rel_tol=1e-6, abs_tol=1e-6)
        change = (compiled(x + 1e-6 * way)[1] - compiled(x - 1e-6 * way)[1]) / 2e-6
        np.testing.assert_allclose(hvp(fn, (x,), (way,))[0], change, rtol=1e-5, atol=1e-5)
    info = compiled.base.cache_info()
    least = 1 if fn in (np_newton, np_slices) else 2  # loops that count themselves
    assert least <= info.entries == info.misses <= len(ROWS)


def test_guards_are_part_of_the_text() -> None:
    compiled = differentiate(branch)
    graph = compiled.trace(torch.tensor(ROWS[0], requires_grad=True))
    text = str(graph)
    assert "Guard[value=False, number=0](" in text or "Guard[value=True, number=0](" in text
    assert str(parse_graph(text)) == text


def test_a_loop_checks_its_guards_before_the_work() -> None:
    compiled = differentiate(masked)
    for row in ROWS:
        compiled(torch.tensor(row))
    (first, *_), call = compiled.plans(), compiled.bind((torch.tensor(ROWS[0]),), {}).call
    decisions = compiled.paths(call)[0]
    assert decisions.nodes and len(decisions.graph.block) < len(first.graph.block)
    assert "pow" not in str(decisions.graph)


def test_explain_shows_the_tree() -> None:
    compiled = differentiate(loop)
    for row in ROWS:
        compiled(torch.tensor(row, requires_grad=True))
    text = str(compiled.explain(torch.tensor(ROWS[0], requires_grad=True)))
    assert "values read by Python" in text and "test_paths.py" in text and "True" in text


def many_numbers(x: Any) -> Any:
    return x.sum() * int(x.sum())


def many_sizes(x: Any) -> Any:
    return x.sum() * len(range(int(x.sum())))  # numpy's `int(x)` is read where its value is needed


def test_too_many_paths_run_eagerly_in_torch_and_name_the_line() -> None:
    compiled = differentiate(many_numbers)
    with pytest.warns(EagerWarning, match=r"64 calls: .*test_paths.py:\d+ \(64 values\)"):
        for n in range(140):  # each comes again
            x = torch.full((2,), float(n // 2), requires_grad=True)
            compiled(x).backward()
            assert x.grad is not None and x.grad.tolist() == [2.0 * (n // 2)] * 2
    info = compiled.cache_info()
    assert info.entries == 64 and info.eager_runs == 12


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_too_many_paths_where_nothing_runs_eagerly_go_on(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "paths", 4)
    fn = many_sizes if library == "numpy" else many_numbers
    compiled = differentiate(fn, strict=True)

    def call(n: int) -> float:
        x = np.full(2, float(n))
        return float(compiled(torch.from_numpy(x) if library == "torch" else x))

    with pytest.warns(RetraceWarning, match=r"4 calls: .*test_paths.py:\d+ \(\d values\)"):
        for n in range(6):
            assert call(n) == 4.0 * n * n
    for n in range(6, 10):
        assert call(n) == 4.0 * n * n
    assert call(6) == 144.0  # the one that was taken longest ago is now tried first
    assert compiled.cache_info()[1:3] == (10, 4)
    assert call(10) == 400.0 and call(6) == 144.0
    assert compiled.cache_info()[1:3] == (11, 4)
    assert call(7) == 196.0
    assert compiled.cache_info()[1:3] == (12, 4)


def test_a_number_that_would_lose_its_gradient_is_refused() -> None:
    with pytest.raises(DataDependentError, match="lose its gradient"):
        grad(lambda x: (float,)[0](x[0]) * x.sum())(np.ones(3))


def test_threads_share_the_paths() -> None:
    compiled, wrong = differentiate(loop), []

    def work(shift: float) -> None:
        for row in ROWS:
            x = torch.tensor(row, dtype=torch.float64) + shift
            if not torch.allclose(compiled(x), loop(x)):
                wrong.append(row)

    threads = [threading.Thread(target=work, args=(0.1 * (n % 2),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    info = compiled.cache_info()
    assert not wrong and info.misses == info.entries


def test_numbers_are_the_same_bit_for_bit() -> None:
    assert same_number(float("nan"), float("nan")) and same_number(1, 1)
    assert not same_number(0.0, -0.0) and not same_number(True, 1) and not same_number(1, 1.0)


def test_where_every_call_takes_a_new_path_eager_runs() -> None:
    def f(x: Tensor) -> Tensor:
        return x.sum() * int(x.detach().sum())

    compiled, told = differentiate(f), 0
    for n in range(2 * limits.new_paths):
        x = torch.full((2,), float(n), requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled(x).backward()
        told += sum(w.category is EagerWarning for w in caught)
        assert x.grad is not None and x.grad.tolist() == [2.0 * n] * 2
    info = compiled.cache_info()
    assert (info.misses - 1, info.eager_runs) == (limits.new_paths, limits.new_paths)
    assert info.entries == 0 and told == 1


def test_paths_that_come_again_are_kept() -> None:
    def f(x: Tensor) -> Tensor:
        return x.sum() * int(x.detach().sum())

    compiled = differentiate(f)
    for n in range(2 * limits.new_paths):
        for m in (n, n, 0):
            assert compiled(torch.full((2,), float(m))).item() == 4.0 * m * m
    info = compiled.cache_info()
    assert info.eager_runs == 0 and info.entries == 2 * limits.new_paths


def test_a_count_whose_length_is_bounded_is_one_trace() -> None:
    compiled = differentiate(lambda x, i: (x * torch.bincount(i, minlength=4)).sum(), strict=True)
    for places in ([0, 1, 1], [3, 3, 3], [2, 0, 0]):
        x = torch.ones(4, requires_grad=True)
        compiled(x, torch.tensor(places)).backward()
        assert x.grad is not None and x.grad.tolist() == [places.count(k) for k in range(4)]
    assert compiled.cache_info().misses == 1
    with pytest.raises(RuntimeError, match="non-negative"):
        compiled(torch.ones(4), torch.tensor([0, -1, 2]))
