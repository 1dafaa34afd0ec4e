"""What cannot be traced runs as it is, under torch's own autograd, and says so once.

    @differentiate
    def loss(x):
        print(x.tolist())          # EagerWarning, once: the cause, this line, what to change
        return (x ** 2).sum()

    loss(x).backward()             # eager's value and eager's gradient

`differentiate(..., strict=True)` makes it the error that the trace ended with. numpy has no
gradients of its own, so there it is always an error.

Note [Tried again]
A signature that could not be traced is tried again when the Python state that the failed trace had
read is another one (`model.eval()`, a hook that was removed), or a small tensor of it whose value
it went by (a buffer `initialized`). But at most MAX_TRIES times: from then on it runs eagerly, so
that state that changes at every call costs no traces. Where as many signatures in a row ended at
the same line (`step(batch, i)`, which logs), with one state or each with another, another one
waits, as one beyond `limits.shapes` does.

Note [What was done before it]
A trace that ends with an error leaves Python's state and the arguments as they were. Where the
function itself ends so (`if calls.n > limit: raise`, a singular matrix), its caller finds what was
done before: the function runs again as it is, to the same error, if anything was put back.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from gradof.errors import (
    CallError,
    EagerWarning,
    GradofError,
    InputError,
    OpaqueOpWarning,
    RetraceWarning,
)
from gradof.runtime.arrays import is_array, is_tensor, names_torch, torch_if_loaded
from gradof.runtime.shapes import NotYet
from gradof.runtime.state import StateGuard
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.failed_run import is_of_program
from gradof.tracer.state.origins import Origins
from gradof.tracer.state.source import (
    function_loc,
    function_name,
    own_line,
    traceback_loc,
    warn_user,
)

MAX_TRIES = 3  # traces of one signature that may fail
# What a mistake in a program ends with; from a line of gradof's it is gradof's own.
_DEFECTS = (
    AttributeError, TypeError, KeyError, IndexError, NameError, UnboundLocalError, AssertionError,
    SyntaxError, ZeroDivisionError, RecursionError,
)  # fmt: skip
_LOOKED_AT = 1000  # objects behind an iterator in which a tensor is looked for
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
MAX_SIGNATURES = 1024  # remembered; the one that was not used for the longest time goes


@dataclass
class Failure:
    """Why a signature runs eagerly; `state` is what the failed trace had read.

    `is_of_values`: the program itself has raised it, as it may for what it was given alone.
    """

    error: Exception
    state: StateGuard | None
    loc: Any  # these as in Failed
    defect: str | None
    tries: int = 1
    moved: bool = False  # the state was another one than at the failure before, which is like it
    is_of_values: bool = False
    found: int = 0  # by later calls
    decided: Sequence[Any] = ()  # the state's tensors whose values the trace went by
    quick: Any = None  # their generated call (gradof.runtime.eager_call)

    def is_like(self, other: Failure) -> bool:
        """Whether another signature ended at the same line, by an error of the same class."""
        if self.loc is None and str(self.error) != str(other.error):
            return False
        return type(self.error) is type(other.error) and bool(self.loc == other.loc)

    def holds(self, fn: Any) -> bool:
        """Whether another trace would fail again, or is not to be tried."""
        if self.is_of_values and self.tries < MAX_TRIES:
            return False
        if self.tries >= MAX_TRIES or self.state is None:
            return True
        return self.state.check() and not any(each.is_other(fn) for each in self.decided)


class EagerRuns:
    """The signatures of one function that run eagerly."""

    def __init__(self) -> None:
        self.failures: OrderedDict[Any, Failure] = OrderedDict()
        self._alike: list[Failure] = []  # the latest, which ended at the same line
        self.cold: dict[Any, int] = {}  # signatures that ended with ColdCache, how often in a row
        self.counted = ctypes.c_int64()  # native code adds to it (gradof.runtime.as_it_is)
        self.is_told = False
        self.undone = False  # whether the latest trace, which failed, has put something back

    @property
    def runs(self) -> int:
        """How many calls have run eagerly."""
        return self.counted.value

    def count(self) -> None:
        """Note one."""
        self.counted.value += 1

    def known(self, key: Any, fn: Any) -> Failure | None:
        """Why a call of `fn` with this signature runs eagerly, if it does."""
        failure = self.failures.get(key)
        if failure is None or not failure.holds(fn):
            return None
        self.failures.move_to_end(key)
        return failure

    def note(
        self, key: Any, error: Exception, state: StateGuard | None, decided: Sequence[Any] = (),
    ) -> None:
        """A trace of this signature failed."""
        before = self.failures.pop(key, None)
        tries = 1 if before is None else before.tries + 1
        failure = Failure(error, state, _line(error), _defect(error), tries, decided=decided)
        self.failures[key] = failure
        if before is None:
            alike = [other for other in self._alike if other.is_like(failure)]
            last = alike[-1].state if alike else None
            failure.moved = last is not None and not last.check()
            self._alike = [*alike[1 - MAX_TRIES :], failure]
        if len(self.failures) > MAX_SIGNATURES:
            self.failures.popitem(last=False)

    def traced(self) -> None:
        """A trace of some signature did not fail."""
        self._alike.clear()

    def fail_alike(self, fn: Any) -> bool:
        """Whether a signature that was not met before would fail, as the latest did."""
        if len(self._alike) < MAX_TRIES or any(each.is_of_values for each in self._alike):
            return False
        moves = all(each.moved for each in self._alike[1:])  # and it made no difference
        return moves or self._alike[-1].holds(fn)

    def refuse(
        self, fn: Callable[..., Any], error: Exception, args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> NoReturn:  # fmt: skip
        """The caller gets the error; Note [What was done before it]."""
        self.forget(error)
        if self.undone and is_of_program(error):
            try:
                fn(*args, **kwargs)
            except Exception as own:
                _tell_once(own, error)
                raise
        raise error

    def forget(self, error: Exception) -> None:
        """An error that the caller gets; kept, it would keep the arguments alive."""
        for key in [key for key, failure in self.failures.items() if failure.error is error]:
            del self.failures[key]
        self._alike = [failure for failure in self._alike if failure.error is not error]

    def failed(self, fn: Callable[..., Any], error: Exception) -> Failed:
        """What is kept of the error that a trace ended with, now or at another call."""
        last = next(reversed(self.failures.values()), None)
        if last is not None and last.error is error:
            loc, defect = last.loc, last.defect
        else:
            loc, defect = _line(error), _defect(error)
        return Failed(error.with_traceback(None), loc or function_loc(fn), defect)

    def may_warm(self, key: Any) -> bool:
        """Whether an eager run may fill the caches that a trace found empty."""
        if len(self.cold) > MAX_SIGNATURES:
            self.cold.clear()
        self.cold[key] = self.cold.get(key, 0) + 1
        return self.cold[key] <= MAX_TRIES

    def run(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        failed: Failed, in_parts: bool = True,
    ) -> Any:  # fmt: skip
        """`fn(*args, **kwargs)` as it is; its own error, told by ours where that says the same.

        With `in_parts` the modules that it calls are compiled, unless another call will be traced.
        """
        error = failed.error
        self.count()
        fails = not isinstance(error, NotYet) or error.fails
        try:
            with _parts(in_parts and fails) as parts:
                result = _clocked(fn, error)(*args, **kwargs)
        except Exception as eagers:
            if isinstance(error, type(eagers)) and type(error) is not type(eagers):
                raise error from eagers
            for failure in self.failures.values() if type(error) is type(eagers) else ():
                failure.is_of_values |= failure.error is error
            raise
        if not self.is_told and not isinstance(error, NotYet):
            self.is_told = True
            warn_user(_text(fn, failed, bool(parts)), EagerWarning)
        return result

    def instead(
        self, fn: Callable[..., Any], error: Exception, args: tuple[Any, ...],
        kwargs: dict[str, Any], strict: bool, run: Callable[[], Any],
    ) -> Any:  # fmt: skip
        """What `run` makes of `fn` by torch's autograd, for a call that ended with `error`.

        Raises the error itself where there is nothing to fall back on.
        """
        if not may_run_eagerly(None, error, args, kwargs, strict):
            self.refuse(fn, error, args, kwargs)
        named = functools.update_wrapper(lambda: run(), fn, updated=())
        return self.run(named, (), {}, self.failed(fn, error), in_parts=False)


def _tell_once(own: BaseException, error: Exception) -> None:
    """Take the trace's error, which says the same, from those that `own` was raised after."""
    while own.__context__ is not None and own.__context__ is not error:
        own = own.__context__
    own.__context__ = None


def may_run_eagerly(
    fn: Callable[..., Any] | None, error: Exception, args: tuple[Any, ...],
    kwargs: dict[str, Any], strict: bool,
) -> bool:  # fmt: skip
    """Whether a call that could not be traced has torch's autograd to fall back on.

    One without tensors has what `fn` reads or makes, if that is torch's and there is a gradient of
    it; one without arguments has nothing to derive.
    """
    wrong_use = isinstance(error, CallError) or type(error) is InputError
    if isinstance(error, (RetraceWarning, OpaqueOpWarning)):  # by the user's own filter
        return False
    if strict or wrong_use or torch_if_loaded() is None:
        return False
    leaves, _ = flatten((args, kwargs))
    if not leaves or any(is_tensor(leaf) or _holds_tensors(leaf) for leaf in leaves):
        return True
    return fn is not None and names_torch(fn)


def _holds_tensors(leaf: Any) -> bool:
    """Whether a leaf that is no tensor leads to one: an object, or an iterator with one left."""
    if isinstance(leaf, (str, bytes, int, float, type(None))) or is_array(leaf):
        return False
    if Origins(leaf, is_tensor).any():
        return True
    stack, seen = [leaf], set[int]()
    while stack and len(seen) < _LOOKED_AT:
        obj = stack.pop(0)
        if is_tensor(obj):
            return True
        if id(obj) not in seen and (isinstance(obj, (*_CONTAINERS, FrameType, Iterator))):
            seen.add(id(obj))
            stack += gc.get_referents(obj)
    return False


@dataclass
class Failed:
    """A trace that failed: its error, without the traceback, which would keep arguments alive.

    `loc` is the user's line that it is about; `defect` the line of gradof's that is to blame.
    """

    error: Exception
    loc: Any
    defect: str | None


def _line(error: Exception) -> Any:
    own = error.loc if isinstance(error, GradofError) else None
    return own or traceback_loc(error.__traceback__)


def _defect(error: Exception) -> str | None:
    return own_line(error.__traceback__) if type(error) in _DEFECTS else None


def _parts(are_compiled: bool) -> AbstractContextManager[set[str]]:
    """Within it, modules are compiled; the names of those that were are given."""
    if not are_compiled:
        return nullcontext(set())
    from gradof.runtime.torch_parts import modules_compiled  # numpy users may have no torch

    return modules_compiled()


def _clocked(fn: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """`fn`, timed where that decides when the call is traced."""
    if not isinstance(error, NotYet) or error.told is None:
        return fn
    from gradof.runtime.torch_clock import clocked

    return clocked(fn, error.told)


def _text(fn: Callable[..., Any], failed: Failed, has_parts: bool) -> str:
    name, error = function_name(fn), failed.error
    cause = error.message if isinstance(error, GradofError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, GradofError) else None
    if failed.defect is not None:
        cause = f"a defect of gradof's, at {failed.defect}: {cause}"
        hint = "please report it, with the function"
    lines = [f"{name} is not compiled, it runs under torch's own autograd: {cause}"]
    lines += [f"  at {failed.loc}"] if failed.loc is not None else []
    lines += [f"  hint: {hint}"] if hint else []
    if has_parts:
        lines.append("  the modules that it calls are compiled by themselves, where they can be")
    lines.append("  (strict=True makes this an error)")
    return "\n".join(lines)
