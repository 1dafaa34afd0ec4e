"""scipy.integrate.solve_ivp with events: their times are roots, with derivatives of their own.

    def lands(t, y): return y[0]
    lands.terminal = True
    found = solve_ivp(flight, (0, 10), y0, events=lands, args=(drag,))
    found.t_events[0]; found.y_events[0]; found.y[:, -1]      # d y0, d drag

scipy solves and finds the events whenever the graph runs: times and values are its own. How many
there are is read by Python, so a trace is for one number of each. At an event g(t, y(t)) = 0, so
that its time has the derivatives of a chord step, t - g(t, y(t)) / (dg/dt), of which two give them
to second order (`implicit`); y(t) is the solution at a time that moves (`odes`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import real
from gradof.tracer.scipy.closures import taken_apart
from gradof.tracer.scipy.implicit import anchored, args_of, constant
from gradof.tracer.scipy.odes import Equation, Slope, beside, solution
from gradof.tracer.scipy.sensitivities import checked
from gradof.tracer.scipy.transforms import transforms

Function = Callable[..., Any]
_NAME = "scipy.integrate.solve_ivp"
_STEPS = 2  # derivatives up to the second


class _Event:
    """One of the user's, of t and y alone, with what scipy reads of it."""

    def __init__(self, fn: Function, args: tuple[Any, ...]) -> None:
        self._fn, self._args = fn, args
        self.terminal = getattr(fn, "terminal", None)
        self.direction = getattr(fn, "direction", 0)

    def __call__(self, t: Any, y: Any) -> Any:
        return self._fn(t, y, *self._args)


class _Problem:
    """An equation with events; `solve(arrays, start)` is what scipy finds, for numbers."""

    def __init__(
        self, original: Function, fun: Any, events: Sequence[Any], args: Any, span: Any,
        times: Any, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.arrays, self._fill = taken_apart((fun, list(events), args))
        self.original, self.options = original, options
        self.span, self.times = span, times
        self._last = threading.local()

    def parts(self, arrays: Sequence[Any]) -> tuple[Function, list[_Event]]:
        """The right hand side and the events, of t and y, with these arrays."""
        fn, events, args = self._fill(arrays)
        return lambda t, y: fn(t, y, *args), [_Event(e, args) for e in events]

    def slope(self) -> Slope:
        """The right hand side, as `odes` has it; `of` keeps the arrays for `solve`."""

        def of(arrays: Sequence[Any]) -> Any:
            return _WithArrays(self.parts(arrays)[0], arrays)

        def row(y: Any, t: Any, *arrays: Any) -> Any:
            return np.reshape(as_array(self.parts(arrays)[0](t, y)) * 1.0, -1)

        return Slope(of, row)

    def solve(self, arrays: Sequence[Any], start: Any) -> Any:
        """What scipy finds; the last is kept, as several parts of a graph ask for the same."""
        key = [np.asarray(a).tobytes() for a in (start, *arrays)]
        last = self._last.__dict__.get("found")
        if last is None or last[0] != key:
            fn, events = self.parts(arrays)
            with transforms().alone():
                found = checked(self.original(
                    fn, self.span, start, t_eval=self.times, events=events, **self.options
                ))  # fmt: skip
            last = self._last.found = key, found
        return last[1]

    def rates(self, arrays: Sequence[Any], start: Any) -> Any:
        """dg/dt along the solution, at each event, by central differences."""
        found = self.solve(arrays, start)
        fn, events = self.parts(arrays)
        rates = []
        with transforms().alone():
            for event, times, rows in zip(events, found.t_events, found.y_events, strict=True):
                for t, y in zip(times, rows, strict=True):
                    step = 6e-6 * max(1.0, abs(t))
                    move = step * np.reshape(np.asarray(fn(t, y)), -1)
                    ahead, behind = event(t + step, y + move), event(t - step, y - move)
                    rates.append(float(ahead - behind) / (2 * step))
        return np.array(rates)

    def at_events(self, f: Any, start: Any, at: Any) -> Any:
        """Rows for the start and the events, in the order of their times."""
        found = self.solve(f.arrays, start)
        rows = np.concatenate([rows for rows in found.y_events if len(rows)])
        order = self.order(np.concatenate(found.t_events))
        return np.concatenate([start[None], rows[order]])

    def at_samples(self, f: Any, start: Any, at: Any) -> Any:
        """Rows for the start and the times that scipy gives."""
        return np.concatenate([start[None], self.solve(f.arrays, start).y.T])

    def order(self, times: Any) -> Any:
        """From the start on."""
        return np.argsort(-times if self.span[1] < self.span[0] else times, kind="stable")


class _WithArrays:
    def __init__(self, fn: Function, arrays: Sequence[Any]) -> None:
        self._fn, self.arrays = fn, arrays

    def __call__(self, t: Any, y: Any) -> Any:
        return self._fn(t, y)


def with_events(
    original: Function, fun: Any, t_span: Any, y0: Any, times: Any, events: Any, args: Any,
    method: str, options: dict[str, Any],
) -> Any:  # fmt: skip
    """What solve_ivp gives, with derivatives. `options` are scipy's further ones."""
    listed = tuple(events) if isinstance(events, (list, tuple)) else (events,)
    span = tuple(float(end) for end in t_span)
    problem = _Problem(original, fun, listed, () if args is None else args_of(args), span, times,
                       options)  # fmt: skip
    start = np.reshape(as_array(y0), -1).astype(np.float64)
    now = problem.solve([real(a) for a in problem.arrays], real(start))
    return _Found(problem, start, method).told(now)


class _Found:
    """The parts of one solution, as they are recorded."""

    def __init__(self, problem: _Problem, start: Any, method: str) -> None:
        self.problem, self.start = problem, start
        self.given = (start, list(problem.arrays))
        traced = (start, *problem.arrays)
        self.recorder = next(x for x in traced if type(x) is TracedArray).recorder
        self._equations = [
            Equation(_NAME, problem.slope(), solve, _plain_times(problem), method, True)
            for solve in (problem.at_events, problem.at_samples)
        ]

    def told(self, unsaid: Any) -> Any:
        """scipy's result with traced times and rows; `t` and `y` when they are read."""
        counts = self._box("counts", lambda found: np.array(
            [found.status, *map(len, found.t_events)]
        ))  # fmt: skip
        status, *events = (int(counts[i]) for i in range(1 + len(unsaid.t_events)))
        at, rows = self._events(events) if sum(events) else (np.zeros(0), np.zeros((0, 0)))
        kind: Any = type(unsaid)
        made = _read_late(kind)(unsaid)
        made["status"], made["t_events"], made["y_events"], i = status, [], [], 0
        for count in events:
            made["t_events"].append(at[i : i + count] if count else np.zeros(0))
            made["y_events"].append(rows[i : i + count] if count else np.zeros(0))
            i += count
        made.tell_late(lambda: self._samples(at if status == 1 else None))
        return made

    def _events(self, counts: Sequence[int]) -> tuple[Any, Any]:
        """The times of all events, one kind after the other, and their rows."""
        times = self._box("times", lambda found: np.concatenate(found.t_events))
        rates = self._asked("rates", self.problem.rates)
        order = self.problem.order(times)
        place, at = np.argsort(order), times

        def rows() -> Any:
            return np.take(self._solution(0, np.take(at, order)), place, axis=0)

        for _ in range(_STEPS):
            at = anchored(times, at - self._residuals(at, rows(), counts) / rates)
        return at, rows()

    def _samples(self, ends: Any) -> dict[str, Any]:
        """The times that scipy gives, the last of which may be that of an event, and rows."""
        count = int(self._box("samples", lambda found: np.int64(len(found.t))))
        times = self._box("samples", lambda found: np.array(found.t))
        if ends is not None and self.problem.times is None:
            last = ends[int(self.problem.order(ends)[-1])]
            times = np.concatenate([times[: count - 1], np.reshape(last, (1,))])
        return {"t": times, "y": np.swapaxes(self._solution(1, times), 0, 1)}

    def _box(self, what: str, of: Callable[[Any], Any]) -> Any:
        return self._asked(what, lambda arrays, start: of(self.problem.solve(arrays, start)))

    def _asked(self, what: str, of: Callable[[Any, Any], Any]) -> Any:
        """What scipy found, without a derivative."""

        def run(start: Any, arrays: Any) -> Any:
            return of(arrays, start)

        name = f"{_NAME}: {what}"
        return constant(call_black_box(self.recorder, name, run, self.given, None, None))

    def _solution(self, which: int, times: Any) -> Any:
        """Rows at the times, which are in order."""
        every = np.concatenate([np.full((1,), self.problem.span[0]), times])
        return solution(self._equations[which], self.start, every, self.problem.arrays)[1:]

    def _residuals(self, at: Any, rows: Any, counts: Sequence[int]) -> Any:
        """What each event is at its times."""
        _, events = self.problem.parts(self.problem.arrays)
        values, i = [], 0
        for event, count in zip(events, counts, strict=True):
            for _ in range(count):
                values.append(np.reshape(as_array(event(at[i], rows[i])), ()))
                i += 1
        return np.stack(values)


# What shows a result as a whole, or copies it: `dict(found)` asks for `__iter__`.
_OF_ALL = ("__iter__", "__repr__", "copy", "get", "items", "keys", "pop", "popitem", "values")


@functools.cache
def _read_late(result: Any) -> Any:
    """scipy's class of results, whose times and rows are computed when they are first read."""

    class OdeResult(result):  # type: ignore[misc]
        _late = None

        def tell_late(self, late: Callable[[], dict[str, Any]]) -> None:
            object.__setattr__(self, "_late", late)

        def _tell(self) -> None:
            late: Any = getattr(self, "_late", None)
            if late is not None:
                object.__setattr__(self, "_late", None)
                self.update(late())

        def __getitem__(self, name: str) -> Any:
            if name in ("t", "y"):
                self._tell()
            return super().__getitem__(name)

        def __getattr__(self, name: str) -> Any:
            if name not in self:
                raise AttributeError(name)
            return self[name]

    for name in _OF_ALL:
        setattr(OdeResult, name, _told_first(OdeResult, name))
    return OdeResult


def _told_first(cls: Any, name: str) -> Callable[..., Any]:
    method = getattr(cls, name)

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._tell()
        return method(self, *args, **kwargs)

    return run


def _plain_times(problem: _Problem) -> Function:
    """How equations beside this one are solved, as those of a tangent: at times, without events."""

    def solve(f: Function, start: Any, at: Any) -> Any:
        options = beside(problem.options)
        distinct, rows = np.unique(at, return_inverse=True)
        if at[-1] < at[0]:
            distinct, rows = distinct[::-1], len(distinct) - 1 - rows
        found = problem.original(f, (at[0], at[-1]), start, t_eval=distinct, **options)
        return checked(found).y.T[rows]

    return solve
