"""One module or function of a package: run eagerly, and with gradients that gradof derived.

`compare(name, thing)` gives an `Outcome`. Two copies of the module go through the same calls, one
eager and one wrapped: training, training with other sizes, evaluation. Values, gradients of inputs
and parameters for random cotangents, second derivatives, errors' classes, random numbers drawn,
buffers and attributes afterwards are compared by Note [Closeness].
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch

import gradof
from gradof.testing.closeness import FACTOR, distance, rows
from tests.models.compare import tensors
from tests.packages.build import built
from tests.packages.inputs import candidates, make
from tests.packages.run import Case, Run, call, run_once, said, seed, where

CALLS, TIMED, WARM = 5, 15, 30
LARGEST = 5_000_000


@dataclass
class Outcome:
    """What came of one object; `status` as in tests/models/compare.py."""

    name: str
    status: str = "killed"
    reason: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    traces: int = 0
    eager_runs: int = 0
    backward_runs: int = 0
    ours: float = 0.0
    eager: float = 0.0
    first: float = 0.0  # seconds of processor time to the first gradient
    warned: list[str] = field(default_factory=list)


def compare(name: str, thing: Any) -> Outcome:
    outcome = Outcome(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = runnable(thing, outcome)
        if case is not None:
            _against_eager(case, outcome)
    return outcome


def runnable(thing: Any, outcome: Outcome) -> Case | None:
    """The first object and inputs that eager runs, twice, and that have a gradient."""
    reasons: list[str] = []
    modules = built(thing) if isinstance(thing, type) else iter([thing])
    start = time.perf_counter()
    for module in modules:
        if isinstance(module, Exception):
            reasons.append(f"not built: {said(module)}")
            continue
        if isinstance(module, torch.nn.Module) and sum(
            p.numel() for p in module.parameters() if not hasattr(p, "materialize")
        ) > LARGEST:
            continue
        function = module.forward if isinstance(module, torch.nn.Module) else module
        for recipe in candidates(function):
            if time.perf_counter() - start > 15:
                break
            for grad in (True, False):
                try:
                    case = Case(copy.deepcopy(module), recipe, grad)
                    run = run_once(case.thing, case, 0)
                except Exception as error:
                    reasons.append(f"not run: {said(error)}")
                    if "leaf" not in str(error):
                        break
                    continue
                if run.error is None and any(g is not None for g in run.gradients.values()):
                    return Case(module, recipe, grad)
                reasons.append(said(run.error) if run.error else "no gradient")
                break
    outcome.status = "noeager"
    reasons = reasons or ["no arguments by rule"]
    outcome.reason = reasons[-1 if reasons[-1] == "no gradient" else 0]
    return None


# number of the call, other first size, second derivative, training
PLAN = (
    [(i, None, i == 3, True) for i in range(CALLS)] + [(5, 3, False, True), (6, 5, False, True)]
    + [(i, None, i == 8, False) for i in (7, 8, 9)] + [(10, None, False, True)]
)  # fmt: skip


def _against_eager(case: Case, outcome: Outcome) -> None:
    outcome.inputs = {k: [v.what, list(v.shape)] for k, v in case.recipe.items()}
    theirs, ours = case.thing, copy.deepcopy(case.thing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compiled = gradof.differentiate(ours)
            wrong = _sequence(case, theirs, ours, compiled, outcome)
            if not wrong:
                _time(case, theirs, ours, compiled, outcome)
        except Exception as error:
            outcome.status, outcome.reason = "error", where(error)
            return
        finally:
            outcome.warned = sorted({
                f"{w.category.__name__}: {' '.join(str(w.message).split())[:400]}" for w in caught
                if "gradof" in w.category.__module__
            })  # fmt: skip
    info = compiled.cache_info()
    outcome.traces, outcome.backward_runs = info.misses, info.backward_runs
    outcome.eager_runs = info.eager_runs
    outcome.status = "wrong" if wrong else "equal"
    if any(" error " in w for w in wrong):
        outcome.status = "error"
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    outcome.reason = "; ".join(wrong[:3]) + more
    if not wrong and any(w.startswith("EagerWarning") for w in outcome.warned):
        outcome.status = "fallback"
        outcome.reason = next(w for w in outcome.warned if w.startswith("EagerWarning"))


def _sequence(
    case: Case, theirs: Any, ours: Any, compiled: Any, outcome: Outcome
) -> list[str]:
    first = copy.deepcopy(case.thing)
    for i, step in enumerate(PLAN):
        number, batch, second, training = step
        _mode((theirs, ours), training)
        expected = run_once(theirs, case, number, batch, second)
        start = time.process_time()
        found = run_once(compiled, case, number, batch, second, ours)
        outcome.first = outcome.first or time.process_time() - start
        if second and expected.error is not None and found.error is None:
            continue  # eager has no second derivative
        what = f"call {number}" + ("" if batch is None else f" of {batch}")
        what += "" if training else " eval"
        wrong = list(differences(expected, found))
        if wrong and any(" is off by " in text for text in wrong):
            wrong = list(differences(expected, found, [
                run for run in (_again(first, case, i, ulp=True), _again(first, case, i, wide=True))
                if run.error is None
            ]))  # fmt: skip
        if wrong:
            return [f"{what}: {text}" for text in wrong]
    return []


def _mode(modules: Sequence[Any], training: bool) -> None:
    for module in modules:
        if isinstance(module, torch.nn.Module):
            module.train(training)


def _again(first: Any, case: Case, last: int, ulp: bool = False, wide: bool = False) -> Run:
    """Eager's run of the last of these calls, from the first object on: on inputs moved by an ulp,
    or in float64.
    """
    first = copy.deepcopy(first)
    if wide and isinstance(first, torch.nn.Module):
        first.double()
    for number, batch, second, training in PLAN[: last + 1]:
        _mode((first,), training)
        run = run_once(first, case, number, batch, second, ulp=ulp, wide=wide)
    return run


def differences(expected: Run, found: Run, others: Sequence[Run] = ()) -> Iterator[str]:
    if expected.error is not None or found.error is not None:
        if expected.error is None:
            yield f"our error {where(found.error)}"
        elif found.error is None:
            yield f"no error where eager has {said(expected.error)}"
        elif not isinstance(found.error, type(expected.error)):
            yield f"our error {where(found.error)} where eager has {said(expected.error)}"
        else:
            yield from _state(expected.state, found.state)
        return
    for key in expected.flags:
        theirs, mine = expected.flags[key], found.flags.get(key)
        if key.startswith("value") and mine is not None and theirs[0] == mine[0] and mine[1]:
            continue  # rows where eager has none: what takes eager's takes them, too
        if theirs != mine:
            yield f"{key} is {found.flags.get(key)}, eager's {expected.flags[key]}"
    for group in ("values", "gradients", "second"):
        again = [getattr(run, group) for run in others]
        yield from _group(group, getattr(expected, group), getattr(found, group), again)
    yield from _state(expected.state, found.state)


def _state(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    plain = {k for k in expected if not isinstance(expected[k], torch.Tensor)}
    for key in sorted(expected.keys() ^ found.keys()):
        yield f"state {key} is only in {'eager' if key in expected else 'ours'}"
    for key in sorted(plain & found.keys()):
        a, b = expected[key], found[key]
        same = type(a) is type(b) and (a == b or (isinstance(a, float) and (
            abs(a - b) <= 1e-4 * max(abs(a), 1e-3) or a != a)))  # fmt: skip
        if not same:
            yield f"state {key} is {b!r}, eager's {a!r}"[:200]
    both = {k for k in expected if k in found and k not in plain}
    yield from _group("state", {k: expected[k] for k in both}, {k: found[k] for k in both})


def _group(
    group: str, expected: dict[str, Any], found: dict[str, Any],
    others: Sequence[dict[str, Any]] = (),
) -> Iterator[str]:  # fmt: skip
    if expected.keys() != found.keys() and group != "second":
        yield f"{group} {sorted(found)}, eager's {sorted(expected)}"
        return
    if group == "second":  # with no history at all, eager has nothing to derive
        names = list(expected.keys() | found.keys())
        expected = {n: expected.get(n) for n in names}
        found = {n: found.get(n) for n in names}
    names = list(expected)
    for name in names:
        a, b = expected[name], found[name]
        if group == "second" and (a is None or b is None) and not any(
            x is not None and x.count_nonzero() for x in (a, b)
        ):
            expected[name] = found[name] = None  # eager has zeros where a way leads nowhere
            continue
        if (a is None) != (b is None):
            yield f"{group} {name} is {'None' if b is None else 'there'}, eager's is not"
            return
        if a is not None and (a.shape != b.shape or a.dtype != b.dtype):
            yield f"{group} {name} is {b.dtype}{list(b.shape)}, eager's {a.dtype}{list(a.shape)}"
            return
    whole = [n for n in names if expected[n] is not None
             and not expected[n].is_floating_point() and not expected[n].is_complex()]  # fmt: skip
    for name in whole:
        if not torch.equal(expected[name], found[name]):
            yield f"{group} {name} differs"
    names = [n for n in names if n not in whole]
    arrays = [_array(found[n]) for n in names], [_array(expected[n]) for n in names]
    for row in rows(names, *arrays, None, [np.float32 for _ in names]):
        theirs = _array(expected[row.what])
        again = [] if theirs is None else [
            a for o in others if (a := _array(o.get(row.what))) is not None
            and a.shape == theirs.shape]  # fmt: skip
        # rounding of eager's own; of values however large, as there may be no kink to be at
        own = [distance(theirs, a) for a in again]
        allowed = row.allowed + FACTOR * max(own, default=0.0)
        if not row.error <= allowed:
            yield f"{group} {row.what} is off by {row.error:.1e} (allowed {row.allowed:.1e})"


def _array(tensor: Any) -> Any:
    if tensor is None:
        return None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def _time(case: Case, theirs: Any, ours: Any, compiled: Any, outcome: Outcome) -> None:
    def once(function: Any, module: Any, number: int) -> float:
        inputs = make(case.recipe, 0, case.grad)
        leaves = [v for v in inputs.values() if isinstance(v, torch.Tensor) and v.requires_grad]
        if isinstance(module, torch.nn.Module):
            leaves += [p for p in module.parameters() if p.requires_grad]
        seed(number)
        start = time.thread_time()  # others may hold the core
        found = [v for _, v in tensors(call(function, case, inputs)) if v.requires_grad]
        torch.autograd.grad(found, leaves, [torch.ones_like(v) for v in found], allow_unused=True)
        return time.thread_time() - start

    try:
        once(theirs, theirs, 0)
        once(theirs, theirs, 1)
    except Exception:  # eager itself cannot be called so often on end
        return
    once(compiled, ours, 0)
    once(compiled, ours, 1)
    for i in range(WARM):
        once(theirs, theirs, i)
        once(compiled, ours, i)
    pairs = [(once(theirs, theirs, i), once(compiled, ours, i)) for i in range(TIMED)]
    outcome.eager, outcome.ours = median(a for a, _ in pairs), median(b for _, b in pairs)
