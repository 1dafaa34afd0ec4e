"""Every way to compute a convolution gives the same numbers, and the quickest is taken."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate
from gradof.codegen.lowering import convolutions
from gradof.codegen.machine.object_cache import object_cache

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((2, 3, 8, 7), (4, 3, 3, 3), {"padding": 1}),
    "stride": ((2, 3, 8, 9), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "stride that leaves two": ((2, 3, 10, 10), (4, 3, 3, 3), {"stride": 4}),
    "dilation": ((2, 3, 9, 9), (4, 3, 3, 3), {"dilation": 2}),
    "groups": ((2, 4, 6, 6), (8, 2, 3, 3), {"groups": 2}),
    "per channel": ((2, 4, 6, 6), (4, 1, 5, 5), {"groups": 4, "padding": 2}),
    "1x1": ((2, 3, 5, 6), (4, 3, 1, 1), {}),
    "1x1 with stride": ((2, 3, 5, 6), (4, 3, 1, 1), {"stride": 2}),
    "one dim": ((2, 3, 9), (4, 3, 3), {"padding": 1}),
    "one dim, 1": ((2, 3, 9), (4, 3, 1), {}),
    "three dims": ((1, 2, 4, 5, 4), (3, 2, 3, 3, 3), {"padding": 1}),
}


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """`trials(**seconds)`: ways are timed, and take so long; the ways that ran, in order."""
    monkeypatch.setenv("GRADOF_AUTOTUNE", "1")
    monkeypatch.setenv("GRADOF_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(convolutions, "_CHOICES", {})
    object_cache.cache_clear()
    real, ran = convolutions._Choice.took, list[str]()

    def begin(**seconds: float) -> list[str]:
        def took(choice: Any, way: str, _: float) -> None:
            ran.append(way)
            real(choice, way, seconds[way.partition(" ")[0]])

        monkeypatch.setattr(convolutions._Choice, "took", took)
        return ran

    yield begin
    object_cache.cache_clear()


@pytest.mark.parametrize("case", CASES)
def test_every_way_gives_eagers_gradients(trials: Any, case: str) -> None:
    ran = trials(rows=1.0, channels=1.0, product=1.0)
    shape, weight, settings = CASES[case]
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(weight, dtype=torch.float64, requires_grad=True)
    convolve = getattr(torch.nn.functional, f"conv{len(shape) - 2}d")

    def loss(x: Any, w: Any) -> Any:
        return convolve(x, w, **settings).sin().sum()

    fast = differentiate(loss)
    wanted = torch.autograd.grad(loss(x, w), [x, w])
    for _ in range(3):
        torch.testing.assert_close(torch.autograd.grad(fast(x, w), [x, w]), wanted)
    assert fast.cache_info().backward_runs == 3
    assert ("product" in ran) == ("1x1" == case or case == "one dim, 1")
    assert ("channels last" in ran) == (len(shape) > 3)


@pytest.mark.parametrize("settings", [
    {"stride": 2, "output_padding": 1}, {"dilation": 3, "output_padding": 2}, {"padding": 1},
])  # fmt: skip
def test_transposed_ones_are_eagers(trials: Any, settings: dict[str, Any]) -> None:
    trials(rows=1.0, channels=1.0, product=1.0)
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 4, 3, 3, dtype=torch.float64, requires_grad=True)

    def loss(x: Any, w: Any) -> Any:
        return torch.nn.functional.conv_transpose2d(x, w, **settings).sin().sum()

    fast = differentiate(loss)
    wanted = torch.autograd.grad(loss(x, w), [x, w])
    for _ in range(3):
        torch.testing.assert_close(torch.autograd.grad(fast(x, w), [x, w]), wanted)
    assert fast.cache_info().backward_runs == 3


def _forward() -> None:
    x, w = np.ones((1, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32)
    one = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "output_padding": (0, 0)}
    convolutions.convolution(x, w, **one, transposed=False, groups=1)


@pytest.mark.parametrize(("rows", "channels", "best", "tries"), [
    (1.0, 0.5, "channels last", 6), (1.0, 0.99, "rows", 6), (1.0, 1.2, "rows", 6),
    (1.0, 5.0, "rows", 5),
])  # fmt: skip
def test_the_quickest_is_taken_and_kept(
    trials: Any, rows: float, channels: float, best: str, tries: int
) -> None:
    ran = trials(rows=rows, channels=channels)
    for _ in range(9):
        _forward()
    (choice,) = convolutions._CHOICES.values()
    assert choice.best == best and len(ran) == tries  # a hopeless one is tried twice
    convolutions._CHOICES.clear()
    _forward()
    assert len(ran) == tries  # another process would not try either
    assert next(iter(convolutions._CHOICES.values())).best == best


def test_without_timing_it_is_the_usual_way(trials: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = trials(rows=1.0, channels=0.1)
    monkeypatch.setenv("GRADOF_AUTOTUNE", "0")
    _forward()
    assert not ran and not convolutions._CHOICES


@pytest.mark.parametrize("number", [1.0, math.nan])
def test_a_way_that_gives_other_numbers_is_not_taken(
    trials: Any, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    """Note [Ways that are wrong]."""
    calls = 0

    def wrong(x: Any, w: Any, *settings: Any) -> Any:
        nonlocal calls
        calls += 1
        made = convolutions._FORWARD["rows"](x, w, *settings)
        made[:, 0] = number  # as if it were left as its memory was
        return made

    monkeypatch.setitem(convolutions._FORWARD, "channels last", wrong)
    ran = trials(rows=1.0, channels=0.1)
    conv = torch.nn.Conv2d(2, 3, 3)
    fast = differentiate(conv)
    x = torch.randn(1, 2, 5, 5)
    for _ in range(8):
        with torch.no_grad():
            torch.testing.assert_close(fast(x), conv(x))
    assert calls == 1 and set(ran) == {"rows"}
    (choice,) = convolutions._CHOICES.values()
    assert choice.best == "rows"


def test_numbers_without_end_say_nothing_of_a_way(trials: Any) -> None:
    ran = trials(rows=1.0, channels=0.1)
    conv = torch.nn.Conv2d(2, 3, 3)
    fast = differentiate(conv)
    x, overflown = torch.randn(1, 2, 5, 5), torch.full((1, 2, 5, 5), math.inf)
    with torch.no_grad():
        for given in (x, overflown, overflown, x, x, x, x, x, x, x):
            torch.testing.assert_close(fast(given), conv(given), equal_nan=True)
    (choice,) = convolutions._CHOICES.values()
    assert choice.best == "channels last" and ran.count("channels last") == 3


def test_gradients_by_weights_in_space_have_one_layout(trials: Any) -> None:
    """With channels last oneDNN leaves planes of some unwritten; trying it would harm, too."""
    trials(rows=1.0, channels=0.1)
    conv = torch.nn.Conv3d(2, 2, 3, stride=2, padding=1)
    fast = differentiate(conv)
    x = torch.randn(1, 2, 5, 7, 7, requires_grad=True)
    for _ in range(4):
        torch.testing.assert_close(
            torch.autograd.grad(fast(x).square().sum(), [x, conv.weight]),
            torch.autograd.grad(conv(x).square().sum(), [x, conv.weight]),
        )
    kinds = [kind for kind, *_ in convolutions._CHOICES]
    assert "transposed" in kinds and "conv_weight_grad" not in kinds
