"""Is a numpy program right? Beside plain numpy and float64, gradients by finite differences.

    judge(program, inputs, Setting(backend="tiles"), seed=3)      # inputs() gives fresh arguments

It is the harness's own judgement (`gradof.testing.numpy_check`) of a function compiled in a
setting, and besides of dtypes, shapes and of what is left of the arguments.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.errors import GradientMismatchError, GradofError
from gradof.runtime.function import Differentiated
from gradof.runtime.functional import hvp
from gradof.runtime.pullback import vjp
from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import FACTOR, distance
from gradof.testing.fuzz.numpy_unrolled import unlike_unrolled
from gradof.testing.fuzz.program import Setting
from gradof.testing.fuzz.verdict import Verdict, compiling_for
from gradof.testing.numpy_check import check_numpy
from gradof.testing.report import Report, Row
from gradof.tracer.core.pytree import flatten

# What scipy itself loses beside what it is by definition: its cotangent adds up 1e-14 of an angle.
ROUGH_IN_SCIPY = {"cotdg": 1e-13, "tandg": 1e-13}
_LOOP = re.compile(r"\b(for|while) |gradof\.(scan|fori_loop|while_loop)\(")


def judge(
    fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], setting: Setting, seed: int = 0
) -> Verdict:
    """See the module. What gradof refuses to trace is counted as run eagerly."""
    verdict = Verdict()
    with warnings.catch_warnings(), np.errstate(all="ignore"), compiling_for(setting):
        warnings.simplefilter("ignore")
        args = inputs()
        try:
            with calling_plain():
                plain = flatten(fn(*args))[0]
        except Exception as error:  # whatever numpy refuses is no program
            verdict.refused = f"{type(error).__name__}: {error}"
            return verdict
        verdict.compiled = Differentiated(
            fn, memory_budget=setting.memory_budget, numerics=setting.numerics
        )
        try:
            for _ in range(setting.calls):
                _values(verdict, verdict.compiled, inputs, plain, args)
            if not verdict.wrong:
                _gradients(verdict, inputs, setting, seed)
            if not verdict.wrong and _LOOP.search(inspect.getsource(fn)):
                verdict.wrong += unlike_unrolled(fn, inputs, setting.order, seed)
        except GradientMismatchError as error:
            verdict.wrong.append(f"runs {error}")
        except GradofError as error:
            verdict.eager = f"{type(error).__name__}: {error}"
        except Exception as error:  # any other error of ours is a finding
            text = str(error).strip().splitlines()
            verdict.wrong.append(f"error {type(error).__name__}: {text[0][:300] if text else ''}")
    return verdict


def _values(
    verdict: Verdict, compiled: Differentiated, inputs: Callable[[], tuple[Any, ...]],
    plain: list[Any], left: tuple[Any, ...],
) -> None:  # fmt: skip
    """Shapes and dtypes of the results, and what is left of the arguments."""
    args = inputs()
    ours = flatten(compiled(*args))[0]
    if len(ours) != len(plain):
        verdict.wrong.append(f"output {len(ours)} results, numpy has {len(plain)}")
        return
    for i, (a, b) in enumerate(zip(ours, plain, strict=True)):
        mine, other = np.asarray(a), np.asarray(b)
        if mine.dtype != other.dtype or mine.shape != other.shape:
            verdict.wrong.append(
                f"output {i}: {mine.dtype} {mine.shape}, numpy {other.dtype} {other.shape}"
            )
        elif mine.dtype.kind in "iub" and not np.array_equal(mine, other):
            verdict.wrong.append(f"output {i}: other numbers")
    for i, (a, b) in enumerate(zip(args, left, strict=True)):
        if not np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc"):
            verdict.wrong.append(f"input {i} is changed")


def without_noise(
    rows: list[Row], derived: Callable[[tuple[Any, ...]], dict[str, Any]],
    inputs: Callable[[], tuple[Any, ...]], seed: int,
) -> list[Row]:  # fmt: skip
    """The rows, but for values and gradients that move as far when inputs are moved by an ulp.

    `derived` gives both by the names that rows have.
    """
    rng = np.random.default_rng(seed)
    first, noise = derived(inputs()), dict[str, float]()
    for _ in range(4):
        moved = [x + x * rng.uniform(-1, 1, x.shape) * np.finfo(x.dtype).eps
                 if x.dtype.kind == "f" else x for x in inputs()]  # fmt: skip
        again = derived(tuple(m.astype(x.dtype) for m, x in zip(moved, inputs(), strict=True)))
        for name, value in first.items():
            noise[name] = max(noise.get(name, 0.0), distance(value, again[name]))
    def moves(row: Row) -> float:
        along_a_line = row.reference == "finite differences"  # of as many elements, each moved
        return noise[row.what] * (np.size(first[row.what]) ** 0.5 if along_a_line else 1.0)

    return [row for row in rows if row.ok or row.what not in noise
            or row.error > row.allowed + FACTOR * moves(row)]  # fmt: skip


def _derived(
    fn: Callable[..., Any], args: tuple[Any, ...], order: int, seed: int
) -> dict[str, Any]:
    """Results, gradients, and a product with the Hessian, by the names that rows have."""
    value, pullback = vjp(fn, *args)
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    cotangents: list[Any] = []
    leaves, tree = flatten(value)
    for leaf in leaves:
        if np.asarray(leaf).dtype.kind != "f":
            cotangents.append(leaf)
            continue
        found[f"output {len(found)}"] = leaf
        weight = rng.standard_normal(np.shape(leaf))
        cotangents.append(np.asarray(weight, np.asarray(leaf).dtype))
    grads, structure = flatten(pullback(tree.unflatten(cotangents)))
    for path, grad in zip(structure.paths(), grads, strict=True):
        if grad is not None:
            found[f"gradient of args{path}"] = grad
    if order > 1 and all(np.asarray(x).dtype.kind == "f" for x in args):
        lines = tuple(rng.standard_normal(np.shape(x)) for x in args)
        wide = tuple(np.asarray(x, np.float64) for x in args)
        for i, product in enumerate(flatten(hvp(weighted_by(fn, cotangents), wide, lines))[0]):
            found[f"second gradient of leaf {i}"] = product
    return found


def weighted_by(fn: Callable[..., Any], cotangents: list[Any]) -> Callable[..., Any]:
    """The sum of the floating results of a function, each times its cotangent."""

    def weighted(*args: Any) -> Any:
        pairs = zip(cotangents, flatten(fn(*args))[0], strict=True)
        return sum(np.sum(w * x) for w, x in pairs if np.asarray(w).dtype.kind == "f")

    return weighted


def _gradients(
    verdict: Verdict, inputs: Callable[[], tuple[Any, ...]], setting: Setting, seed: int
) -> None:
    report = check_numpy(verdict.compiled, inputs(), setting.order, seed)
    if any(not row.ok for row in report.rows):
        fn = verdict.compiled.fn
        report.rows = _allowing_for_scipy(report.rows, inspect.getsource(fn))
        report.rows = without_noise(
            report.rows, lambda args: _derived(fn, args, setting.order, seed), inputs, seed
        )
        if _is_at_a_kink(report.rows, verdict.compiled, inputs, setting, seed):
            report.rows = [row for row in report.rows if row.ok]
            verdict.at_kink = True
    report_rows(verdict, report)
    verdict.orders = 1 if verdict.at_kink else verdict.orders


def _is_at_a_kink(
    rows: list[Row], compiled: Differentiated, inputs: Callable[[], tuple[Any, ...]],
    setting: Setting, seed: int,
) -> bool:  # fmt: skip
    """Whether all that is wrong are second derivatives, and only at zeros or ties of the inputs.

    `abs(x) ** 2` at 0: rules have one slope of `abs` there, differences of a gradient have both.
    Beside such points, twice, all has to be right.
    """
    off = [row for row in rows if not row.ok]
    if not off or any(row.what.split()[0] != "second" for row in off):
        return False
    if not any(_has_ties(np.asarray(x)) for x in inputs()):
        return False
    rng = np.random.default_rng(seed)
    for _ in range(2):
        moved = tuple(_beside(x, rng) for x in inputs())
        if not check_numpy(compiled, moved, setting.order, seed).ok:
            return False
    return True


def _has_ties(array: Any) -> bool:
    if array.dtype.kind != "f":
        return False
    return bool((array == 0).any()) or np.unique(array).size < array.size


def _beside(x: Any, rng: np.random.Generator) -> Any:
    """Floats that are off by up to a hundredth, with the strides of the argument."""
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f" or not x.flags.writeable:
        return x
    x += (rng.uniform(0.001, 0.01, x.shape) * np.where(np.isfinite(x), 1, 0)).astype(x.dtype)
    return x


def _allowing_for_scipy(rows: list[Row], text: str) -> list[Row]:
    rough = max((r for name, r in ROUGH_IN_SCIPY.items() if name in text), default=0.0)
    return [replace(row, allowed=row.allowed + rough * row.scale) for row in rows]


def report_rows(verdict: Verdict, report: Report) -> None:
    """Say in the verdict which orders were compared, and what is wrong."""
    said = {row.what.split()[0] for row in report.rows}
    verdict.orders = 2 if "second" in said else 1 if "gradient" in said else 0
    verdict.wrong += [
        f"{row.what}, against {row.reference}: off by {row.error:.2e}, allowed {row.allowed:.2e}, "
        f"largest {row.scale:.2e}"
        for row in report.rows if not row.ok
    ]  # fmt: skip
