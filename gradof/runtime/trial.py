"""Whose code a torch function's calls run: ours, or the function as it is, by timing both.

    calls 1 to 1 + WARM      ours: traced, compiled, and what the first calls teach
    the next ones            in turns: eager twice, ours twice; each with its backward is timed
    from then on             whichever was faster; `explain()` says which, and the times

For large convolutions and the like our call can be no faster than the library's own. Then all that
is left to us is what we add to it, and the function runs as it is: nothing is lost by compiling it.

What takes less than `tuning.TRIAL_LEAST` is ours without a trial.

No call runs twice: a turn of eager's is the caller's call, with eager's value, gradient, state and
random numbers, which are ours up to rounding. Where that must not be (`strict`, torch's
deterministic algorithms, GRADOF_AUTOTUNE=0), or something other than time was asked for
(`memory_budget`, `numerics`, `cuda_graph`, `audit`), ours runs without a trial.

Note [Two runs of one call]
`torch.utils.checkpoint` runs a call again in the backward and wants what it saves to be the same.
So under hooks of saved tensors ours runs, before, in and after a trial.

The verdict is kept on disk, by emitted code, processor, torch and number of threads, so that the
next process begins with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gradof import tuning
from gradof.codegen import devices_of
from gradof.codegen.machine.autotune import is_on, now
from gradof.ir import forks
from gradof.runtime.arrays import Call, torch_if_loaded
from gradof.runtime.as_it_is import call_as_it_is
from gradof.runtime.cache import Bound, Cache
from gradof.runtime.fastcall import Fast
from gradof.runtime.given import is_of_state
from gradof.runtime.lengths import MISS
from gradof.runtime.log import log
from gradof.runtime.quickcall import Quick
from gradof.runtime.results import run_call
from gradof.runtime.verdicts import keep_verdict, kept_verdict, verdict_key
from gradof.tracer.core.result import TensorOut
from gradof.tracer.state.source import function_name

if TYPE_CHECKING:
    from gradof.runtime.function import Differentiated


class Verdict(NamedTuple):
    """Seconds of a call with its backward, at best, and whether eager runs from now on.

    `eager` is nan where it was not timed.
    """

    ours: float
    eager: float
    is_eager: bool

    def __str__(self) -> str:
        if self.eager != self.eager:
            return f"compiled code: {1e3 * self.ours:.3g} ms are too few to be compared"
        times = f"{1e3 * self.ours:.3g} ms against {1e3 * self.eager:.3g} ms"
        if self.is_eager:
            return f"torch's own code, as it is: ours took {times}"
        return f"compiled code: it took {times} of torch's own"


def _verdict(ours: float, eager: float) -> Verdict:
    """Eager runs where it is faster by more than what we do in a call that it runs."""
    return Verdict(ours, eager, ours > eager * tuning.TRIAL_MARGIN + tuning.TRIAL_STEP)


class Trial:
    """The calls of one entry until it is decided who runs them, and after. See the module."""

    def __init__(
        self, name: str, cache: Cache, ours: Quick, fast: Fast, call: Call,
        fn: Callable[..., Any], key: str,
    ) -> None:  # fmt: skip
        self.verdict: Verdict | None = None
        self._name, self._cache, self._ours, self._fast, self._fn = name, cache, ours, fast, fn
        self._as_it_is = call_as_it_is(cache, fast, call, fn, ours)
        self._key = key
        self._hooks = torch_if_loaded()._C._autograd._top_saved_tensors_default_hooks
        self._lock = forks.lock()
        self._calls = 0
        # by side, with a backward and without one: seconds
        self._times: dict[tuple[str, bool], list[float]] = {}
        self._open: _Timed | None = None  # a call whose backward has not come

    @property
    def decided(self) -> Quick:
        """What calls of this entry go to: this trial, until it is decided who runs them."""
        if self.verdict is None:
            return self
        return self._as_it_is if self.verdict.is_eager else self._ours

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call of this entry; MISS where it is of another."""
        if self.verdict is not None:
            return self.decided(args, kwargs)
        if self._hooks(False) is not None:  # Note [Two runs of one call]
            return self._ours(args, kwargs)
        self._calls += 1
        turn = self._calls - tuning.TRIAL_WARM
        if turn < 0:
            return self._ours(args, kwargs)
        side = "first" if turn == 0 else "eager" if turn % 4 in (1, 2) else "ours"
        return self._timed(side, args, kwargs)

    def _timed(self, side: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = self._fast.check(args, kwargs)
        if inputs is None:
            return MISS
        if self._open is not None:  # nobody has asked for its gradients
            self._note(self._open, 0.0, gradients=False)
        timed = _Timed(side)
        if side == "eager":
            self._cache.eager.count()
            start = now()
            result = self._fn(*args, **kwargs)
        else:
            start = now()
            result = self._ours(args, kwargs)
            if result is MISS:
                return MISS
        timed.seconds = now() - start
        from gradof.runtime.torch_clock import when_backward_is_done

        if when_backward_is_done(
            result, inputs, lambda more: self._note(timed, more, gradients=True)
        ):
            self._open = timed
        else:
            self._note(timed, 0.0, gradients=False)
        return result

    def _note(self, timed: _Timed, more: float, gradients: bool) -> None:
        with self._lock:
            self._open = None if self._open is timed else self._open
            if timed.is_noted or self.verdict is not None:
                return
            timed.is_noted = True
            seconds = timed.seconds + more
            self._times.setdefault((timed.side, gradients), []).append(seconds)
            if timed.side != "first":
                self._decide(gradients)
            elif seconds < tuning.TRIAL_LEAST:
                self._end(Verdict(seconds, math.nan, False))

    def _decide(self, gradients: bool) -> None:
        ours = self._times.get(("ours", gradients), [])
        eager = self._times.get(("eager", gradients), [])
        counted = min(len(ours), len(eager))
        if counted < 2:
            return
        a, b = min(ours), min(eager)
        is_clear = not 1 / tuning.TRIAL_CLEAR < a / b < tuning.TRIAL_CLEAR
        is_clear = is_clear and max(a, b) > tuning.TRIAL_SHORT
        if counted < tuning.TRIAL_TIMES and not is_clear:
            return
        self._end(_verdict(a, b))
        keep_verdict(self._key, a, b)

    def _end(self, verdict: Verdict) -> None:
        self.verdict = verdict
        quick = self._cache.quick
        self._cache.quick = tuple(self.decided if call is self else call for call in quick)
        log(f"{self._name} runs {verdict}")


class _Timed:
    """One call of a trial."""

    __slots__ = ("is_noted", "seconds", "side")

    def __init__(self, side: str) -> None:
        self.side, self.seconds, self.is_noted = side, 0.0, False


def tried(function: Differentiated, bound: Bound, quick: Quick | None) -> Quick | None:
    """What calls of an entry go to where `quick` is ours: its trial, or who has won it.

    None where there is neither a trial nor `quick`.
    """
    entry, cache = bound.entry, function.cache
    fast = next((f for f in cache.fast if f.entry is entry), None)
    if fast is None or not _may_measure(function, bound):
        return quick
    if entry.trial is None:
        key = verdict_key(entry.plan)
        name = function_name(function.fn)
        ours = quick or _general(cache, fast)
        made = Trial(name, cache, ours, fast, bound.call, function.fn, key)
        kept = kept_verdict(key)
        if kept is not None:
            made.verdict = _verdict(*kept)
        entry.trial = made
    found: Trial = entry.trial
    return found.decided


def _may_measure(function: Differentiated, bound: Bound) -> bool:
    traced = bound.entry.traced
    if traced.library != "torch" or not is_on():
        return False
    wants_more = function.is_strict or function.nan_safe or function.cuda_graph
    if wants_more or function.memory_budget is not None or function.audit is not None:
        return False
    if torch_if_loaded().are_deterministic_algorithms_enabled():
        return False
    # a tensor that one side stores keeps that side's history, which is used up when the other reads
    stored = (out for store in traced.stores for out in store.outputs)
    if any(isinstance(out, TensorOut) and out.requires_grad for out in stored):
        return False
    return devices_of(traced.graph) <= {"cpu"}


def _general(cache: Cache, fast: Fast) -> Quick:
    """A call of an entry that has no generated one, as it writes to arguments or to state."""

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = fast.check(args, kwargs)
        if inputs is None or is_of_state(fast.entry, args, kwargs):
            return MISS
        cache.hits += 1
        return run_call(Bound(fast.entry, inputs, fast.call, given=(args, kwargs)))

    return call
