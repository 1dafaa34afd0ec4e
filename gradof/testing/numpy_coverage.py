"""What of numpy is right, and to which order: every case of the table, tried.

    for row in numpy_rows():
        print(row.name, row.first, row.second, row.worst, row.reason)

A case is compiled by gradof and compared with plain numpy: its value; its gradient, for random
cotangents, with finite differences of numpy's own function; the gradient of that gradient, in the
cotangents too, with finite differences of the gradient; and single with double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import GradofError
from gradof.runtime.functional import hvp
from gradof.runtime.pullback import vjp
from gradof.testing.closeness import floats_of
from gradof.testing.numpy_samples import Case
from gradof.testing.numpy_table import CASES
from gradof.tracer.core.pytree import flatten

Array = NDArray[Any]
STEP = 2e-3  # of the widest difference; three of them extrapolate to O(step ** 6)
VALUE, DERIVATIVE = 1e-12, 1e-9  # allowed errors in float64, relative to the size of the terms
SINGLE = 300.0  # allowed error in float32, in units of its last place


@dataclass(frozen=True)
class NumpyRow:
    """The result of one case. `reason` says why something is not right, or is empty."""

    name: str
    source: str
    value: bool
    first: bool
    second: bool
    single: bool
    worst: float  # the largest relative error of a derivative in float64
    zero: bool  # the gradient is zero wherever it is defined: floor, sign, argsort
    reason: str

    @property
    def ok(self) -> bool:
        """Whether everything is right."""
        return self.value and self.first and self.second and self.single


def numpy_rows(
    progress: Callable[[NumpyRow], None] | None = None, cases: Sequence[Case] = CASES
) -> list[NumpyRow]:
    """Try every case; `progress` is called with each row as it is done."""
    rows = []
    for case in cases:
        row = try_case(case)
        if progress is not None:
            progress(row)
        rows.append(row)
    return rows


def differentiable_names(rows: Sequence[NumpyRow]) -> list[str]:
    """Names all of whose cases are right to second order and whose gradient is not just zero."""
    bad = {row.name for row in rows if not row.ok}
    return sorted({row.name for row in rows if row.ok and not row.zero} - bad)


def try_case(case: Case) -> NumpyRow:
    """Try one case. What gradof or numpy raises is the row's reason."""
    trial = _Trial(case)
    try:
        with np.errstate(all="ignore"):
            trial.run()
    except (GradofError, TypeError, ValueError, IndexError, AttributeError) as error:
        trial.reasons.append(f"{type(error).__name__}: {error}".splitlines()[0])
    done = trial.done
    return NumpyRow(
        case.name, case.source, "value" in done, "first" in done, "second" in done,
        "single" in done, trial.worst, trial.zero, "; ".join(trial.reasons),
    )  # fmt: skip


def has_gradient(case: Case) -> bool:
    """Whether the gradient of a case is not just zero; the quick part of trying it."""
    trial = _Trial(case)
    with np.errstate(all="ignore"):
        trial.start()
    return not trial.zero


class _Trial:
    """The state of one case being tried."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.done: set[str] = set()
        self.reasons: list[str] = []
        self.worst = 0.0
        self.zero = False
        self.broken = False
        self.rng = np.random.default_rng(7)

    def run(self) -> None:
        fn, args, weights, grads = self.start()
        self.strided(fn, args, weights, grads)
        self.first(fn, args, weights, grads)
        self.single(fn, args, weights, grads)
        self.second(fn, args, weights)

    def start(self) -> tuple[Any, Sequence[Array], list[Any], list[Any]]:
        """The function, its arguments, random cotangents and the gradients for them."""
        fn = self.case.compile()
        args = self.case.arguments()
        want = fn(*_copies(args))
        value, pullback = vjp(fn, *_copies(args))
        self.note("value", _value_error(value, want), VALUE)
        weights = [self.rng.standard_normal(np.shape(o)) for o in floats_of(want)]
        grads = _gradients(pullback, value, weights)
        self.zero = not any(np.any(g) for g in grads)
        return fn, args, weights, grads

    def note(self, what: str, error: float, allowed: float) -> None:
        """`what` is right if the error is no larger than allowed (nan never is)."""
        if what in ("first", "second") and not error <= self.worst:
            self.worst = error
        if error <= allowed and not (what == "first" and self.broken):
            self.done.add(what)
        else:
            self.reasons.append(f"{what}: error {error:.1e}")

    def strided(self, fn: Any, args: Sequence[Array], weights: Any, grads: Any) -> None:
        """Operands that are views with gaps give the same gradients."""
        value, pullback = vjp(fn, *(np.repeat(a[..., None], 2, -1)[..., 0] for a in args))
        for mine, right in zip(_gradients(pullback, value, weights), grads, strict=True):
            error = _error(mine, right)
            if not error <= VALUE:
                self.reasons.append(f"strided operands: error {error:.1e}")
                self.broken = True

    def first(self, fn: Any, args: Sequence[Array], weights: Any, grads: Any) -> None:
        worst = 0.0
        for i, grad in zip(_float_places(args), grads, strict=True):
            direction = self.direction(args[i])

            def along(t: float, i: int = i, direction: Array = direction) -> float:
                moved = [a + t * direction if k == i else a for k, a in enumerate(_copies(args))]
                return _total(weights, floats_of(fn(*moved)))

            worst = _worse(worst, _distance(grad, direction, _difference(along)))
        self.note("first", worst, DERIVATIVE)

    def second(self, fn: Any, args: Sequence[Array], weights: list[Array]) -> None:
        """The Hessian of `sum(weights * fn(args))` in weights and floating arguments."""
        n = len(weights)

        def weighted(*inputs: Any) -> Any:
            # hvp takes floats, so integers and masks come as floats that stay where they are
            given = [x.astype(a.dtype) for x, a in zip(inputs[n:], args, strict=True)]
            outputs = floats_of(fn(*given))
            parts = [np.sum(w * o) for w, o in zip(inputs[:n], outputs, strict=True)]
            return sum(parts[1:], parts[0])

        def gradient(t: float) -> list[Array]:
            moved = [a + t * d for a, d in zip(primals, tangents, strict=True)]
            shifted = [x.astype(a.dtype) for x, a in zip(moved[n:], args, strict=True)]
            value, pullback = vjp(fn, *shifted)
            return [*map(np.asarray, floats_of(value)), *_gradients(pullback, value, moved[:n])]

        primals = [*weights, *(a.astype(np.float64) for a in args)]
        moving = [True] * n + [a.dtype.kind == "f" for a in args]
        tangents = [
            self.direction(a) if m else np.zeros_like(a)
            for a, m in zip(primals, moving, strict=True)
        ]
        hessian = hvp(weighted, _copies(primals), tangents)
        ours = [h for h, m in zip(hessian, moving, strict=True) if m]
        probes = [self.direction(h) for h in ours]
        # one gradient serves all its parts: the differences are of all of them at once
        wanted = _difference(
            lambda t: np.array([_total([p], [g]) for p, g in zip(probes, gradient(t), strict=True)])
        )
        worst = 0.0
        for mine, probe, want in zip(ours, probes, wanted, strict=True):
            worst = _worse(worst, _distance(mine, probe, float(want)))
        self.note("second", worst, DERIVATIVE)

    def single(self, fn: Any, args: Sequence[Array], weights: Any, grads: Any) -> None:
        narrow = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in args]
        rough = fn(*_copies(narrow))
        value, pullback = vjp(fn, *_copies(narrow))
        # how well conditioned the function is, plain numpy's own error in float32 tells
        loss = _value_error(floats_of(rough), floats_of(fn(*_copies(args))), dtypes=False)
        eps = float(np.finfo(np.float32).eps)
        allowed = SINGLE * eps + 10 * loss
        error = _value_error(value, rough)
        for mine, exact in zip(_gradients(pullback, value, weights), grads, strict=True):
            if mine.dtype != np.float32:
                self.reasons.append(f"a float32 argument has a gradient of {mine.dtype}")
                error = np.inf
            error = _worse(error, _error(mine, exact))
        self.note("single", error, allowed)

    def direction(self, like: Array) -> Array:
        drawn = self.rng.standard_normal(np.shape(like))
        return np.asarray(drawn / max(1.0, float(np.max(np.abs(drawn), initial=0.0))))


def _copies(args: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(np.array(a) for a in args)


def _float_places(args: Sequence[Array]) -> list[int]:
    return [i for i, a in enumerate(args) if a.dtype.kind == "f"]


def _gradients(pullback: Any, value: Any, weights: Sequence[Array]) -> list[Array]:
    leaves, tree = flatten(value)
    supply = iter(weights)
    seeds = [
        np.asarray(next(supply), dtype=x.dtype) if floats_of(x) else x for x in leaves
    ]  # fmt: skip
    return [np.asarray(g) for g in flatten(pullback(tree.unflatten(seeds)))[0] if g is not None]


def _worse(error: float, other: float) -> float:
    """The larger of two errors; what is no number is the worst, which `max` may pass over."""
    return error if other <= error else other


def _total(weights: Sequence[Array], values: Sequence[Any]) -> float:
    """The weighted sum; elements that are no numbers stay out, as their gradients do."""
    parts = [np.sum(np.where(np.isfinite(v), v, 0) * w)
             for w, v in zip(weights, values, strict=True)]  # fmt: skip
    return float(sum(parts))


def _difference(along: Callable[[float], Any]) -> Any:
    """The derivative at 0 from central differences at three widths, extrapolated."""
    a, b, c = ((along(h) - along(-h)) / (2 * h) for h in (STEP, STEP / 2, STEP / 4))
    return (64 * c - 20 * b + a) / 45


def _distance(grad: Array, direction: Array, want: float) -> float:
    terms = np.where(np.isfinite(direction), grad * direction, 0)
    return float(abs(np.sum(terms) - want) / (1 + np.sum(np.abs(terms))))


def _value_error(have: Any, want: Any, dtypes: bool = True) -> float:
    """The largest relative error of any leaf; inf for another structure, dtype or shape."""
    mine, right = flatten(have)[0], flatten(want)[0]
    if len(mine) != len(right):
        return np.inf
    worst = 0.0
    for a, b in zip(mine, right, strict=True):
        if dtypes and (np.asarray(a).dtype != np.asarray(b).dtype or np.shape(a) != np.shape(b)):
            return np.inf
        worst = _worse(worst, _error(np.asarray(a), np.asarray(b)))
    return worst


def _error(have: Array, want: Array) -> float:
    if have.shape != want.shape:
        return np.inf
    finite = np.isfinite(want)
    if not np.array_equal(have[~finite], want[~finite], equal_nan=have.dtype.kind == "f"):
        return np.inf
    mine, right = have[finite].astype(np.float64), want[finite].astype(np.float64)
    scale = max(float(np.max(np.abs(right), initial=0.0)), 1e-6)
    return float(np.max(np.abs(mine - right), initial=0.0)) / scale
