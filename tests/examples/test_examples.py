"""Every example runs and reaches what it claims: an example that breaks fails the suite."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradof.cli.target import load_target
from gradof.runtime.function import Differentiated
from gradof.testing import check

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> Any:
    """The module of an example, as the command line loads it."""
    return load_target(f"{EXAMPLES / name}.py:main")[1]


def test_digits() -> None:
    """The demo: accuracy, and gradients equal to eager's."""
    figures = load("digits").main([])
    assert figures["test_accuracy"] >= 0.97
    assert figures["difference_f32"] <= 1e-4
    assert figures["difference_f64"] <= 1e-10


def test_mlp() -> None:
    """The loss falls as it does with torch eager, step by step.

    In float64: Adam divides by a gradient's own size, so it lets float32's rounding grow.
    """
    module = load("mlp")
    compiled = module.loss
    try:
        torch.set_default_dtype(torch.float64)
        ours = module.main(["--steps", "60"])
        module.loss = compiled.fn
        eager = module.main(["--steps", "60"])
    finally:
        torch.set_default_dtype(torch.float32)
        module.loss = compiled
    assert compiled.cache_info().backward_runs >= 60
    np.testing.assert_allclose(ours, eager, rtol=1e-9)


def test_gaussian_process() -> None:
    """The likelihood that scikit-learn's own gradients reach, or a larger one."""
    figures = load("gaussian_process").main(["--train", "50"])
    assert figures["ours"] >= figures["theirs"] - 1e-3 * abs(figures["theirs"])
    assert figures["r2"] > figures["r2_theirs"] - 0.01


def test_inverse_problem() -> None:
    """The image is closer than that of damped least squares; the gradient is right."""
    module = load("inverse_problem")
    figures = module.main(["--side", "2", "--angles", "12"])
    assert figures["error"] < 0.9 * figures["least_squares"]
    x, A, b, weight = module.example_inputs()
    x = x + np.random.default_rng(1).uniform(size=x.shape)
    slope = module.value_and_grad(module.objective)(x, A, b, weight)[1]
    along = np.random.default_rng(2).normal(size=x.shape)
    ends = [module.objective(x + h * along, A, b, weight) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope @ along, (ends[0] - ends[1]) / 2e-6, rtol=1e-5)


def test_cnn() -> None:
    """LeNet with batch norm learns what it is shipped to learn."""
    assert load("cnn").main([]) >= 0.97


def test_cnn_trains_as_eager() -> None:
    """Losses and running statistics of twenty steps of Adam equal eager's, in float64."""
    module = load("cnn")
    images, _, labels, _ = module.load_images()
    torch.manual_seed(0)
    net = module.lenet().double()
    twin = copy.deepcopy(net)
    compiled = module.differentiate(net)
    ours, eager = (adam_losses(m, module, images.double(), labels) for m in (compiled, twin))
    assert compiled.cache_info().backward_runs >= len(ours) >= 20
    np.testing.assert_allclose(ours, eager, rtol=1e-10)
    for (name, a), b in zip(net.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10, msg=name)


def adam_losses(model: Any, module: Any, images: Tensor, labels: Tensor) -> list[float]:
    """The losses of one epoch in train mode."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    losses = []
    for x, y in module.batches(images, labels, 0):
        optimizer.zero_grad()
        value: Any = torch.nn.functional.cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def test_rosenbrock() -> None:
    """Both minimisers reach the minimum."""
    distances = load("rosenbrock").main(["--n", "10"])
    assert distances["L-BFGS-B"] < 1e-3
    assert distances["Newton-CG"] < 1e-4


def test_logistic_regression() -> None:
    """The classifier generalises."""
    assert load("logistic_regression").main([]) >= 0.95


def test_black_scholes() -> None:
    """All greeks equal their closed forms."""
    assert load("black_scholes").main([]) < 1e-12


def test_lstm() -> None:
    """The forecast halves the error of repeating last month or last year."""
    torch.manual_seed(0)
    errors = load("lstm").main(["--steps", "200"])
    assert errors["error"] < 0.5 * min(errors["month"], errors["year"])


@pytest.mark.parametrize(
    "target", ["digits:loss", "mlp:loss", "rosenbrock:rosenbrock", "logistic_regression:loss",
               "black_scholes:call"],
)  # fmt: skip
def test_example_inputs_check(target: str) -> None:
    """What `gradof check examples/...` runs."""
    name, _, function = target.partition(":")
    fn, module = load_target(f"{EXAMPLES / name}.py:{function}")
    plain = fn.fn if isinstance(fn, Differentiated) else fn
    assert check(plain, module.example_inputs()).ok


def test_examples_are_all_tested() -> None:
    """A new example needs a test above."""
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    source = Path(__file__).read_text()
    assert names
    assert {n for n in names if f"def test_{n}(" in source} == names


def test_force_matching() -> None:
    """Forces are gradients inside the loss."""
    trains_as_eager("force_matching")


def test_pinn() -> None:
    """Second derivatives inside the loss."""
    trains_as_eager("pinn")


def trains_as_eager(name: str) -> None:
    """The same losses as eager's, step by step."""
    module = load(name)
    module.main(steps=4)  # what a reader runs
    try:
        torch.set_default_dtype(torch.float64)
        ours, _ = module.train(compiled=True, steps=6)
        eager, _ = module.train(compiled=False, steps=6)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_allclose(ours, eager, rtol=1e-8)
    assert ours[-1] < ours[0]


def test_checkpointing() -> None:
    """Bytes saved and the measured peak fall with the budget; the gradients stay."""
    rows = load("checkpointing").main([])
    saved, peaks = [r.saved for r in rows], [r.peak for r in rows]
    assert saved == sorted(set(saved), reverse=True) and saved[-1] == 0.0
    for higher, lower in itertools.pairwise(peaks):
        assert lower <= 1.02 * higher, "a fiftieth for what is no array"
    assert peaks[-1] < 0.4 * peaks[0]
    for row in rows:
        for mine, first in zip(row.gradients, rows[0].gradients, strict=True):
            np.testing.assert_allclose(mine, first, rtol=1e-10, atol=1e-14)


@pytest.mark.long  # tests/runtime/test_distributed.py has what it shows
def test_distributed() -> None:
    """Two processes, started as a user starts them, end with the parameters of one."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(EXAMPLES / "distributed.py"),
    ]  # fmt: skip
    root = EXAMPLES.parent
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 processes, 20 steps: parameters differ from one process by" in done.stdout


def test_survival() -> None:
    """The likelihood and the coefficients of lifelines' fit of the same model."""
    figures = load("survival").main(8)
    assert figures["log_likelihood"] == pytest.approx(-679.917, abs=2e-3)
    assert figures["financial_aid"] == pytest.approx(0.272, abs=2e-3)
    assert figures["error_of_it"] == pytest.approx(0.138, abs=2e-3)
    assert 0.05 < figures["bootstrap_of_it"] < 0.3
