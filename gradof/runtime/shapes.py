"""A call site whose arguments keep changing: new signatures run eagerly until a trace pays.

    for sentence in corpus:           # every length is another signature, each a trace of a second
        loss(sentence).backward()     # the first `limits.shapes` are traced, others wait

Long traces are fewer: those of a stream of lengths shall not take more than eager would. After
`limits.shape_seconds` of them, with what was compiled, new signatures wait, too.

Note [What a trace costs]
Nobody knows how often a signature will come. One that waits is traced when eager has spent
`tuning.SHAPE_PAYS` times as long on it as a trace and its compilation took so far, in the mean:
then as many calls may be to come, and all traces together take a small part of what eager takes.
Where nothing is timed (GRADOF_AUTOTUNE=0, a device) it is traced when it comes a second time.

A text, a number that cannot be an input, or a list of another length makes a signature as a shape
does.

    experts = choice.unique()         # so do paths, by the values that Python reads: a mixture of
    for e in experts.tolist(): ...    # experts takes another one at almost every call

    loss(model, batch).backward()     # objects are traced at once (`gradof.runtime.handed`); one
                                      # that counts as who it is runs eagerly until it comes again
"""

from __future__ import annotations

import enum
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradof import tuning
from gradof.codegen.machine.autotune import is_on
from gradof.errors import RetraceWarning, TraceError
from gradof.runtime.arrays import FIRST_LEAF, SAME, Call
from gradof.runtime.compiling import Compiling
from gradof.runtime.guards import FEWER_PATHS, Decisions, lines_read
from gradof.runtime.limits import limits
from gradof.tracer.core.exact import Same
from gradof.tracer.state.source import warn_user

_REMEMBERED = 4096  # signatures seen once, objects seen


class NotYet(TraceError):
    """A signature met too seldom, or a new object: it runs eagerly, with no warning of its own.

    `told`, if anything, wants the seconds that its eager call takes, with a backward. `fails` where
    others could not be traced.
    """

    told: Callable[[float], None] | None = None
    fails = False


class Shapes:
    """The signatures one function was called with."""

    def __init__(self, compiling: Compiling) -> None:
        self._compiling = compiling  # what this function's compilations have taken
        # kinds of arguments → seconds of each trace, and of what was compiled of it
        self._traces: dict[Any, list[float]] = {}
        self._latest: list[float] | None = None  # those of the last trace's kinds
        self._waiting: OrderedDict[Any, float] = OrderedDict()  # → seconds of eager's calls
        self._objects: OrderedDict[Any, None] = OrderedDict()
        self._passing = 0  # calls with an object that was met for the first time
        self._warned = False

    def waits(self, call: Call, name: str, fails: bool) -> NotYet | None:
        """Why a torch call is to run eagerly, if its signature may never come again.

        `fails`: others could not be traced, nor could this one.
        """
        if call.library != "torch":
            return None
        if self._has_new_object(call, name):
            return _not_yet(name)
        return self._waits(call, _kinds(call), call.key, name, fails)

    def waits_again(
        self, call: Call, inside: Any, paths: Sequence[Decisions], name: str
    ) -> NotYet | None:
        """The same, of a known signature: by the tensors `inside` the objects among its arguments,
        or because it takes another path than these, as long as calls are timed.
        """
        if inside:
            return self._waits(call, call.key, (call.key, inside), name)
        if not paths or call.library != "torch" or not _is_timed(call):
            return None
        return self._waits(call, call.key, (call.key, "path"), name, paths=paths)

    def took(self, call: Call, seconds: float, is_known: bool) -> None:
        """Note the processor time of a trace, of a call whose signature had one before."""
        self._note_compiled()
        self._latest = self._traces.setdefault(call.key if is_known else _kinds(call), [])
        self._latest.append(seconds)

    def _note_compiled(self) -> None:
        seconds = self._compiling.taken()
        if self._latest:
            self._latest[-1] += seconds

    def _waits(
        self, call: Call, kinds: Any, key: Any, name: str, fails: bool = False,
        paths: Sequence[Decisions] = (),
    ) -> NotYet | None:  # fmt: skip
        self._note_compiled()
        traces = self._traces.get(kinds, [])
        is_quick = sum(traces[1:]) <= limits.shape_seconds
        if len(traces) < limits.shapes and is_quick and not (fails and traces):
            return None
        spent = self._waiting.get(key)
        if spent is not None and (
            not _is_timed(call) or spent >= tuning.SHAPE_PAYS * sum(traces) / len(traces)
        ):
            del self._waiting[key]
            return None
        self._waiting[key] = spent or 0.0
        if len(self._waiting) > _REMEMBERED:
            self._waiting.popitem(last=False)
        if not fails:  # which was told
            self._tell(name, len(traces), "shapes" if is_quick else "shape_seconds", paths)
        reason = _not_yet(name)
        reason.fails = fails
        reason.told = functools.partial(self._ran, key)
        return reason

    def _tell(self, name: str, traces: int, limit: str, paths: Sequence[Decisions]) -> None:
        if paths:
            self._warn(
                f"{name} was traced for {len(paths)} paths, by values it reads: {lines_read(paths)}"
                "; from now on a new one runs under torch's own autograd, and is traced when such "
                f"calls have taken so long that a trace pays; {FEWER_PATHS}, or raise "
                f"gradof.limits.{limit}"
            )
            return
        self._warn(
            f"{name} was traced for {traces} shapes of its arguments, or values of what is no "
            "tensor; from now on a new one runs under torch's own autograd, and is traced when it "
            "has come so often that a trace pays; pad arguments to few sizes, pass tensors, or "
            f"raise gradof.limits.{limit}"
        )

    def _ran(self, key: Any, seconds: float) -> None:
        if key in self._waiting:
            self._waiting[key] += seconds

    def _has_new_object(self, call: Call, name: str) -> bool:
        new = [(path, part) for path, part in _passing(call) if part not in self._objects]
        for _, part in new:
            self._objects[part] = None
            if len(self._objects) > _REMEMBERED:
                self._objects.popitem(last=False)
        if new:
            self._passing += 1
            if self._passing > limits.shapes:
                path, (cls, _) = new[0]
                self._warn(
                    f"{name} was given {self._passing} objects as {path}, of which each runs "
                    "under torch's own autograd until it comes again; pass the tensors of "
                    f"the {cls.__qualname__}, in a tuple, a dict or a dataclass"
                )
        return bool(new)

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn_user(text, RetraceWarning)


def _not_yet(name: str) -> NotYet:
    return NotYet(f"{name} has met such arguments too seldom to be traced for them")


def _is_timed(call: Call) -> bool:
    """Whether eager's calls can be timed: see Note [What a trace costs]."""
    return is_on() and all(leaf.is_cpu for leaf in call.leaves if hasattr(leaf, "is_cpu"))


def _passing(call: Call) -> Iterator[tuple[str, Any]]:
    """Paths and parts of objects that may be made for each call: no modules and functions."""
    parts = call.key[FIRST_LEAF : FIRST_LEAF + len(call.leaves)]
    for path, part, leaf in zip(call.paths, parts, call.leaves, strict=True):
        if type(part[-1]) is Same and not isinstance(leaf, enum.Enum) and not callable(leaf):
            yield path, part


def _kinds(call: Call) -> tuple[Any, ...]:
    """What the signatures of one call site have in common: types, flags and devices, and modes."""
    end = FIRST_LEAF + len(call.leaves)
    kinds = frozenset(
        (part[0], *part[2:SAME]) if hasattr(leaf, "shape") else part[0]
        for part, leaf in zip(call.key[FIRST_LEAF:end], call.leaves, strict=True)
    )
    return (kinds, call.key[end:])
