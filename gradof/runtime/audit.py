"""`differentiate(..., audit=0.001)`: while a program trains, some of its calls are held to eager.

    step = differentiate(loss, audit=0.001)
    ...                          # AuditWarning where a call differs: the first op, and its line
    step.audit_info()            # AuditInfo(calls=120000, checked=41, skipped=0, wrong=0, ...)

A call that is due is checked before it runs, on copies of its arguments, by the harness that is
`gradof.testing.check`: value and gradients beside eager and float64. At most that share of calls is
checked, and at most that share of the time is spent on it, so what costs much is checked less.

The harness stands above the runtime, which is why it is found by its name, when a call is due.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any, NamedTuple

from gradof.errors import AuditWarning, GradientMismatchError, GradofError, InputError
from gradof.runtime.arrays import torch_if_loaded
from gradof.tracer.state.source import warn_user


class AuditInfo(NamedTuple):
    """Calls so far, those that were checked, those that could not be, those that were wrong.

    `seconds` is what the checks took; `reason` says why the last of the skipped calls was.
    """

    calls: int
    checked: int
    skipped: int
    wrong: int
    seconds: float
    reason: str = ""


class Audit:
    """Which calls of one function are checked, and what came of it."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.calls = self.checked = self.skipped = self.wrong = 0
        self.seconds = 0.0
        self.reason = ""
        self._first: float | None = None  # when the first call came
        self._checking = False
        self._said: set[str] = set()

    def call(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call is about to run: check it if it is due."""
        if self._checking:  # the harness calls the function itself
            return
        self.calls += 1
        now = time.perf_counter()
        if self._first is None:
            self._first = now
        if self.checked + self.skipped >= self.share * self.calls:
            return
        if self.seconds > self.share * (now - self._first):
            return
        self._checking = True
        try:
            self._check(compiled, args, kwargs)
        finally:
            self._checking = False
            self.seconds += time.perf_counter() - now

    def _check(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reason = _cannot_be_checked(compiled, args, kwargs)
        if not reason:
            try:
                import_module("gradof.testing").check(compiled, args, kwargs)
            except GradientMismatchError as error:
                self.wrong += 1
                self._say(str(error))
            except GradofError as error:  # what cannot be compared, and says so
                reason = f"{type(error).__name__}: {error.message}"
            except Exception as error:  # of the function's own, on copies: the call tells of it
                reason = f"{type(error).__name__}: {error}"
        self.skipped += bool(reason)
        self.checked += not reason
        self.reason = reason or self.reason

    def _say(self, text: str) -> None:
        """Warn of a mismatch; of each kind once."""
        kind = "".join(c for c in text if not c.isdigit())
        if kind not in self._said:
            self._said.add(kind)
            warn_user(f"an audited call differs from eager. {text}", AuditWarning)

    def info(self) -> AuditInfo:
        """The counts so far."""
        return AuditInfo(
            self.calls, self.checked, self.skipped, self.wrong, self.seconds, self.reason
        )


def _cannot_be_checked(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why running the function again would be seen, or there is nothing to compare."""
    torch = torch_if_loaded()
    if torch is not None and not torch.is_grad_enabled():
        return "the call is under no_grad"
    try:
        bound = compiled.bind(args, kwargs, eager=True)
    except Exception as error:  # the call itself comes to it again, and may run eagerly
        return f"{type(error).__name__}: {error}"
    if bound.entry.traced.writes:
        return "the function writes to Python state"
    drawn_from = bound.entry.traced.generators  # of which the harness puts torch's back
    if any(torch is None or not isinstance(g, torch.Generator) for g in drawn_from):
        return "the function draws from Python's or numpy's generators"
    if any(getattr(x, "_backward_hooks", None) for x in bound.inputs):
        return "a hook of a tensor would run"
    return ""


def checked_audit(share: Any) -> Audit | None:
    """An audit of this share of calls; InputError unless it is a number from 0 to 1."""
    if isinstance(share, (int, float)) and not isinstance(share, bool) and 0 <= share <= 1:
        return Audit(float(share)) if share else None
    raise InputError(
        f"audit is {share!r}", hint="the share of calls that is checked, from 0 (none) to 1 (all)"
    )
