"""What a backward of the user's reads: in eager it runs later, when the state may be another.

    class Scaled(torch.autograd.Function):
        @staticmethod
        def backward(ctx, g): return g * SCALE      # a backward is compared with the call's SCALE

        def backward(ctx, g): Scaled.runs += 1      # TraceError: the call itself does not write it

Note [State of a backward]
The rule is traced in the call, with the state that is there then. What its code can read is noted,
so that the compiled backward sees whether it is still so (`gradof.runtime.late`). Where it is known
to change, by a `global` statement, or code that stores to a name, the function is not traced. A
container that it can reach is compared after it has run with what it held before.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.state.changes import copy_of, differences
from gradof.tracer.state.code_facts import Facts, facts_of
from gradof.tracer.state.source import user_loc

_STDLIB = frozenset(sys.stdlib_module_names) - {"__main__"}  # whose globals stay as they are
_TORCHS = frozenset({"torch", "torch._ops", "torch.jit"})  # of dtypes, ops, scripted functions
_FIXED = (type, ModuleType, FunctionType, BuiltinFunctionType, logging.Logger)
_ATOMS = (
    int, float, complex, str, bytes, tuple, slice, range, frozenset, type(None), type(...),
)  # fmt: skip
_CONTAINERS = (list, dict, set, deque, bytearray)


class BackwardReads:
    """The backwards that a trace has recorded, and what their code reads."""

    def __init__(self) -> None:
        self.running = 0
        self.rules: list[tuple[Any, dict[str, Any]]] = []  # backward, what its context keeps
        self.codes: dict[CodeType, dict[str, Any]] = {}  # → the globals it ran with
        self.names: set[str] = set()
        self.probes: set[str] = set()
        self._runner: FrameType | None = None  # which calls the backward that runs
        self._reached: dict[int, tuple[str, Any, Any, Loc | None]] = {}  # containers, and copies

    @contextmanager
    def of(self, backward: Any, ctx: Any) -> Iterator[None]:
        """Within it, the code that runs is this backward's."""
        self.rules.append((backward, dict(vars(ctx))))
        self.running += 1
        before, self._runner = self._runner, sys._getframe(2)  # beyond this one's __enter__
        try:
            yield
            self._refuse_changes()
        finally:
            self._runner = before
            self.running -= 1
            if not self.running:
                self._reached.clear()

    def enter(self, frame: FrameType, facts: Facts) -> None:
        """Code runs; TraceError for what it reads or writes that is known to change."""
        self.codes[frame.f_code] = frame.f_globals
        self.names |= facts.reads
        self.probes |= facts.probes
        _refuse_reads(frame, facts, self._made_within)
        for name, container in _containers(frame, facts):
            if id(container) not in self._reached:
                copy = copy_of(container)
                self._reached[id(container)] = name, container, copy, user_loc(frame)

    def _refuse_changes(self) -> None:
        for name, container, before, loc in self._reached.values():
            changes = list(differences(container, before))
            for change in changes:
                change.undo()
            if changes:
                raise _error(name, loc)

    def _made_within(self, frame: FrameType, name: str, value: object) -> bool:
        """Whether a variable that a function closes over is one of the backward's own code."""
        at = frame.f_back
        while at is not None and at is not self._runner:
            if name in at.f_code.co_cellvars and at.f_locals.get(name) is value:
                return True
            at = at.f_back
        return False


def _refuse_reads(
    frame: FrameType, facts: Facts, is_own: Callable[[FrameType, str, object], bool]
) -> None:
    space, cells = frame.f_globals, frame.f_locals
    if str(space.get("__name__", "")).partition(".")[0] in _STDLIB | {"torch"}:
        return  # as a Sequential of the user's, which goes through its `_modules`
    found = [
        n for n in facts.reads & space.keys()
        if not isinstance(space[n], _FIXED)
        and not (isinstance(space[n], _ATOMS) and not _is_rebound(n, space))
    ]
    found += [n for n in frame.f_code.co_freevars if not isinstance(cells.get(n), _FIXED + _ATOMS)]
    for name in found:
        value = space[name] if name in space else cells.get(name)
        if hasattr(value, "dtype") or type(value).__module__ in _TORCHS:
            continue  # tensors are inputs
        if name not in space and is_own(frame, name, value):
            continue
        raise TraceError(
            f"a backward reads {name}, which may be another when it runs", loc=user_loc(frame),
            hint="give it to the forward, and keep it on ctx",
        )
    _refuse_writes(frame, facts)


def _is_rebound(name: str, space: dict[str, Any]) -> bool:
    """Whether a function of a module, or a method, has a `global` statement that rebinds a name."""
    there = [f for f in space.values() if isinstance(f, (FunctionType, type))]
    methods = [f for cls in there if isinstance(cls, type) for f in vars(cls).values()]
    plain = [f.__func__ if isinstance(f, (staticmethod, classmethod)) else f for f in methods]
    return any(
        name in facts_of(f.__code__).globals_stored
        for f in (*there, *plain) if isinstance(f, FunctionType) and f.__globals__ is space
    )


def _refuse_writes(frame: FrameType, facts: Facts) -> None:
    """What a backward writes is not written by the call, nor by a call without a backward."""
    written = {*facts.globals_stored, *facts.cells_stored}
    for there in _seen_by(frame, facts):
        written |= facts.stores & there.keys()
    for name in sorted(written):
        raise _error(name, user_loc(frame))


def _error(name: str, loc: Loc | None) -> TraceError:
    return TraceError(
        f"a backward may write {name}, which the call itself does not", loc=loc,
        hint="do it in a hook, or outside",
    )


def _containers(frame: FrameType, facts: Facts) -> Iterator[tuple[str, Any]]:
    """The containers that code reads off objects, and those in them, by the attributes' names."""
    for there in _seen_by(frame, facts):
        for name in facts.reads & there.keys():
            for part in _within(there[name]):
                if type(part) in _CONTAINERS:
                    yield name, part


def _seen_by(frame: FrameType, facts: Facts) -> Iterator[dict[str, object]]:
    """The attributes of the user's objects that code has at hand, or finds in containers of theirs,
    those that a context keeps among them.
    """
    space, seen = frame.f_globals, set[int]()
    todo: list[object] = [*frame.f_locals.values(), *(space[n] for n in facts.reads & space.keys())]
    while todo:
        owner = todo.pop()
        if id(owner) in seen or isinstance(owner, (int, float)):  # a traced number says so, too
            continue
        seen.add(id(owner))
        if _is_context(owner):
            todo += vars(owner).values()
        elif not hasattr(owner, "dtype"):
            there = _attributes(owner)
            yield there
            for name in facts.reads & there.keys():
                todo += [part for part in _within(there[name]) if type(part) not in _CONTAINERS]


def _within(value: object) -> Iterator[object]:
    """What is in a container, and in those in it; and these."""
    todo: list[Any] = [value] if type(value) in _CONTAINERS else []
    seen = set[int]()
    while todo:
        part = todo.pop()
        if id(part) in seen or isinstance(part, (str, bytes)):
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, (list, tuple, set, frozenset, deque)):
            todo += part


def _is_context(obj: object) -> bool:
    return hasattr(type(obj), "mark_dirty")


def _attributes(owner: object) -> dict[str, object]:
    """What may be written of an object, a class or a module of the user's."""
    name = str(getattr(owner, "__name__", "") if isinstance(owner, ModuleType) else
               getattr(owner if isinstance(owner, type) else type(owner), "__module__", ""))
    if name.partition(".")[0] in _STDLIB | {"torch", "numpy"}:
        return {}
    return dict(getattr(owner, "__dict__", {}))
