"""HIPS autograd's own examples, on autograd and with its import replaced by gradof's.

    python benchmarks/autograd_examples.py [NAME ...] [--steps 10]

Both run the same files, whose optimizers take `--steps` steps. What they print is compared number
by number, and of what they plot the sums of squares.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.autograd_suite import BUILD, VERSION, environment, sources, unpacked

# Examples that download nothing. Not among them: those of MNIST, and two that are about autograd's
# own Node class (dot_graph, print_trace).
EXAMPLES = (
    "bayesian_neural_net", "bayesian_optimization", "black_box_svi", "deep_gaussian_process",
    "define_gradient", "fixed_points", "gaussian_process", "gplvm", "hmm_em", "ica",
    "logistic_regression", "lstm", "mixture_variational_inference",
    "natural_gradient_black_box_svi", "negative_binomial_maxlike", "neural_net_regression",
    "ode_net", "rkhs", "rnn", "rosenbrock", "sinusoid", "tanh",
    "fluidsim/fluidsim", "fluidsim/wing",
)  # fmt: skip
# What autograd itself cannot run with today's Python and numpy, mended on both sides; a print in a
# function that is differentiated, which a trace runs once for all calls; and samples of a singular
# normal distribution, whose signs are those of rounding errors.
MENDED = (
    ("        ax.plot(plot_xs, sampled_funcs.T)\n", ""),
    ('        print(i, end=" ")\n', ""),
    ("num=n_data / 2", "num=n_data // 2"),
    ("d1.items() + d2.items()", "[*d1.items(), *d2.items()]"),
)
RELATIVE = 1e-6  # of two numbers that are printed; sums are taken in another order
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf")
_STEPS = re.compile(r"\b(num_iters|maxiter|n_iter|simulation_timesteps)(\"?\s*[=:]\s*)(\d+)\b")
_RUN = """
import runpy, sys, types, warnings
from unittest.mock import MagicMock
import numpy
class Plots(MagicMock):
    def subplots(self, *a, **k): return Plots(), Plots()
    def imread(self, path):
        shape = (100, 100) if "skull" in path else (50, 50, 3)
        return numpy.random.RandomState(0).rand(*shape)
    def plot(self, *given, **k):
        print(*(numpy.sum(numpy.square(a)) for a in given if not isinstance(a, str)))
for module in ("matplotlib", "matplotlib.pyplot", "matplotlib.animation", "matplotlib.image",
               "matplotlib.mlab", "matplotlib.cm"):
    sys.modules[module] = Plots()
import scipy.optimize
minimize = scipy.optimize.minimize
def few(*args, options=None, **rest):
    return minimize(*args, options={{**(options or {{}}), "maxiter": {steps}}}, **rest)
scipy.optimize.minimize = few
sys.path.insert(0, {folder!r})
numpy.random.seed(0)
runpy.run_path({file!r}, run_name="__main__")
"""


def texts(root: Path, steps: int) -> Path:
    """A copy of the examples whose optimizers take few steps."""
    made = root.parent / f"{root.name}-{steps}-steps"
    for path in (root / "examples").glob("**/*.py"):
        text = path.read_text(encoding="utf-8")
        for old, new in MENDED:
            text = text.replace(old, new)
        text = _STEPS.sub(lambda m: f"{m[1]}{m[2]}{min(int(m[3]), steps)}", text)
        target = made / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return made


def run(folder: Path, name: str, steps: int, path: str) -> tuple[float, str, str]:
    """Seconds, what an example prints, and its last line of errors ("" where it ran to the end)."""
    file = folder / "examples" / f"{name}.py"
    code = _RUN.format(file=str(file), folder=str(file.parent), steps=steps)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=file.parent, timeout=1800, env={**environment(), "PYTHONPATH": path},
    )
    error = done.stderr.strip().split("\n")[-1] if done.returncode else ""
    return time.perf_counter() - began, done.stdout, error


def difference(first: str, second: str) -> str:
    """How two prints differ: "" where all numbers are equal to `RELATIVE`, and all other text."""
    if _NUMBER.sub("", first) != _NUMBER.sub("", second):
        return "the text differs"
    worst = 0.0
    for a, b in zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True):
        x, y = float(a), float(b)
        if x != y and not (x != x and y != y):
            worst = max(worst, abs(x - y) / max(abs(x), abs(y), 1e-8))
    return "" if worst <= RELATIVE else f"numbers differ by {worst:.1e}"


def main() -> None:
    """Run both sides, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--sdist", type=Path, help="the source distribution, if it is there")
    options = parser.parse_args()
    ours = texts(sources(options.sdist), options.steps)
    pristine = unpacked(options.sdist, BUILD / "theirs") / f"autograd-{VERSION}"
    theirs = texts(pristine, options.steps)
    right = 0
    for name in options.names or EXAMPLES:
        seconds, expected, failed = run(theirs, name, options.steps, str(pristine))
        mine, printed, error = run(ours, name, options.steps, str(Path(__file__).parents[1]))
        if error:
            outcome = f"failed: {error[:150]}"
        elif failed:
            outcome = f"autograd fails: {failed[:150]}"
        else:
            outcome = difference(expected, printed) or "equal"
        right += outcome == "equal"
        print(f"{name:32} {seconds:6.1f} s  {mine:6.1f} s  {outcome}", flush=True)
    print(f"{right} of {len(options.names or EXAMPLES)} equal")


if __name__ == "__main__":
    main()
