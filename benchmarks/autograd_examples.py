"""HIPS autograd's own examples, on autograd and with its import replaced by gradof's.

    python benchmarks/autograd_examples.py [NAME ...] [--steps 5] [--limit 600]

Both run the same files, whose optimizers take `--steps` steps, in processes of their own, one after
the other. What they print is compared number by number, and of what they plot the sums of squares.
A whole run writes the section on examples of docs/autograd.md.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.autograd_page import write
from benchmarks.autograd_suite import BUILD, VERSION, environment, sources, unpacked

# All but data and data_mnist, which the others import. Those of MNIST are given random images.
EXAMPLES = (
    "bayesian_neural_net", "bayesian_optimization", "black_box_svi", "convnet",
    "deep_gaussian_process", "define_gradient", "dot_graph", "fixed_points", "gaussian_process",
    "generative_adversarial_net", "gmm", "gplvm", "hmm_em", "ica", "logistic_regression", "lstm",
    "mixture_variational_inference", "natural_gradient_black_box_svi",
    "negative_binomial_maxlike", "neural_net", "neural_net_regression", "ode_net", "print_trace",
    "rkhs", "rnn", "rosenbrock", "sinusoid", "tanh", "variational_autoencoder",
    "fluidsim/fluidsim", "fluidsim/wing",
)  # fmt: skip
# What autograd itself cannot run with today's Python and numpy, mended on both sides; a print in a
# function that is differentiated, which a trace runs once for all calls; samples of a singular
# normal distribution, whose signs are those of rounding errors; weights that nobody seeds; an
# integrator's tolerance of a hundredth, to which autograd's gradient holds as well (ours does not).
MENDED = (
    ("        ax.plot(plot_xs, sampled_funcs.T)\n", ""),
    ('        print(i, end=" ")\n', ""),
    ("num=n_data / 2", "num=n_data // 2"),
    ("d1.items() + d2.items()", "[*d1.items(), *d2.items()]"),
    ("rs = npr.RandomState()\n", "rs = npr.RandomState(0)\n"),
    ('    print("Running simulation...")\n', ""),
    ("rtol=0.01", "rtol=1e-9"),
)
# Differences that are none of numbers.
TOLD = {"print_trace": "the steps of a gradient are named vjp_of_... and counted as ours are"}
RELATIVE = 1e-6  # of two numbers that are printed; sums are taken in another order
NUDGED = 10  # times what autograd's own results move by, where its points are an ulp off
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf")
_TYPE = re.compile(r"(?:np\.float64|array)\(([^()\[\]]*)\)")  # a number either way
_ADDRESS = re.compile(r"node_\d{6,}")
_STEPS = re.compile(
    r"\b(num_iters|maxiter|n_iter|simulation_timesteps|num_epochs)(\"?\s*[=:]\s*)(\d+)\b"
)
_UNTIL = "while different(x0, x1):"  # hundreds of steps, some of a minute


@dataclass(frozen=True)
class Ran:
    """Processor seconds, what an example prints, its last line of errors ("" at the end)."""

    seconds: float
    printed: str
    error: str


@dataclass(frozen=True)
class Row:
    """One example: processor seconds of both, and how they compare."""

    name: str
    theirs: float
    ours: float
    outcome: str
    good: bool


def texts(root: Path, steps: int) -> Path:
    """A copy of the examples whose optimizers take few steps."""
    made = root.parent / f"{root.name}-{steps}-steps"
    for path in (root / "examples").glob("**/*.py"):
        text = path.read_text(encoding="utf-8")
        for old, new in MENDED:
            text = text.replace(old, new)
        text = _STEPS.sub(lambda m: f"{m[1]}{m[2]}{min(int(m[3]), steps)}", text)
        text = text.replace(_UNTIL, f"for _ in range({steps}):")
        target = made / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return made


@dataclass(frozen=True)
class Side:
    """A library and its copy of the examples."""

    folder: Path
    path: Path
    pristine: Path

    def run(self, name: str, steps: int, limit: float, *nudged: str) -> Ran:
        """Run one example."""
        file = self.folder / "examples" / f"{name}.py"
        script = Path(__file__).with_name("autograd_run.py")
        command = [sys.executable, str(script), str(file), str(steps), str(self.pristine), *nudged]
        before = _of_children()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=file.parent,
                timeout=limit, env={**environment(), "PYTHONPATH": str(self.path)},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Ran(_of_children() - before, "", f"not at its end after {limit:.0f} s")
        error = done.stderr.strip().split("\n")[-1] if done.returncode else ""
        return Ran(_of_children() - before, done.stdout, error)


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def difference(first: str, second: str) -> float | None:
    """The largest difference of two numbers of two prints; None where the text differs.

    Relative, of numbers below 1e-8 as if they were 1e-8.
    """
    first, second = (_numbered(_TYPE.sub(r"\1", text)) for text in (first, second))
    if _NUMBER.sub("", first).split() != _NUMBER.sub("", second).split():
        return None
    worst = 0.0
    for a, b in zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True):
        x, y = float(a), float(b)
        if x != y and not (x != x and y != y):
            error = abs(x - y) / max(abs(x), abs(y), 1e-8)
            worst = worst if error <= worst else error  # nan is the worst
    return worst


def _numbered(text: str) -> str:
    """The text, objects that are named by their address numbered as they come."""
    seen: dict[str, str] = {}
    return _ADDRESS.sub(lambda m: seen.setdefault(m[0], f"node_{len(seen)}"), text)


def compare(name: str, theirs: Side, ours: Side, steps: int, limit: float) -> Row:
    """Run an example on both sides; where they differ, on autograd's once more, nudged."""
    expected, found = (side.run(name, steps, limit) for side in (theirs, ours))
    if found.error or expected.error:
        who = f"fails: {found.error}" if found.error else f"autograd fails: {expected.error}"
        return Row(name, expected.seconds, found.seconds, who[:150], False)
    apart = difference(expected.printed, found.printed)
    if apart is not None and apart <= RELATIVE:
        return Row(name, expected.seconds, found.seconds, f"equal, to {apart:.0e}", True)
    own = difference(expected.printed, theirs.run(name, steps, limit, "nudged").printed)
    text = f"{_told(apart)}; autograd an ulp off: {_told(own)}"
    text += f"; {TOLD[name]}" if name in TOLD else ""
    good = apart is not None and own is not None and apart <= NUDGED * own
    return Row(name, expected.seconds, found.seconds, text, good)


def _told(apart: float | None) -> str:
    return "another text" if apart is None else f"{apart:.1e} apart"


def main() -> None:
    """Run both sides, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one example")
    parser.add_argument("--sdist", type=Path, help="the source distribution, if it is there")
    options = parser.parse_args()
    pristine = unpacked(options.sdist, BUILD / "theirs") / f"autograd-{VERSION}"
    texts_of = pristine / "examples"
    root = Path(__file__).parents[1]
    ours = Side(texts(sources(options.sdist), options.steps), root, texts_of)
    theirs = Side(texts(pristine, options.steps), pristine, texts_of)
    rows = []
    for name in options.names or EXAMPLES:
        row = compare(name, theirs, ours, options.steps, options.limit)
        rows.append(row)
        print(f"{name:32} {row.theirs:6.1f} s  {row.ours:6.1f} s  {row.outcome}", flush=True)
    print(f"{sum(row.good for row in rows)} of {len(rows)} as autograd's own")
    if not options.names:
        write("examples", {"steps": options.steps, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
