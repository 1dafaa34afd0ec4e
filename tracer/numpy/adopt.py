"""Plain arrays that a run writes traced values into, and methods of plain arrays that take them.

    b = base * 1.0      # made by an operator that no trace sees
    b[0] = x[0]         # numpy's C code asks x[0] for its number: the run is given up, and
                        # the next one takes `b` into the trace before this line
    X.dot(w)            # so does it here; the next run lends X's name to a traced array

How the array was made does not matter: `np.array(base)`, a copy, a product, a method, a library.

Note [Adopted arrays]
Where a traced value is to go into a plain array, C code holds the array and asks the value for its
number; neither knows the other. But the instruction that runs names the array (`b[0] = ...`). So
the place is noted, the run fails, and what it wrote to Python's state is put back. The next run has
a trace function, as debuggers have, that stops before that instruction's target is read and puts a
traced array in the variable's place: a constant that can be written to. Nothing else may refer to
the plain array then, or it would not see what is written; that is asked of its reference count. An
array that a caller also holds is adopted there, at the call, in the run after.

An array whose method is called (`X.dot(w)`), or that is indexed by traced integers (`TABLE[i]`), is
only lent, if it cannot be adopted: the variable is itself again at the next instruction. So are the
names of what makes numbers where it is called: `float`, types of numpy's, functions of `math` that
code has imported (`callees`).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradof.errors import UnsupportedOpError
from gradof.tracer.numpy.callees import (
    Callee,
    Calls,
    Giving,
    callees,
    drawing,
    lend,
    making,
    put_back,
)
from gradof.tracer.numpy.instruction import (
    ATTRIBUTES,
    CALLS,
    STORES,
    names_of,
    opname_at,
    reads_of,
    variables,
)
from gradof.tracer.numpy.references import measured, others
from gradof.tracer.state.bytecode import Instruction
from gradof.tracer.state.source import user_loc

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

INTO_PLAIN = (
    "a traced value is assigned into a plain array, where its gradient would be lost",
    "write into an array that is the function's own, a copy of it if need be, or collect the "
    "values in a list and np.stack it"
)
_DEPTH = 3  # of containers and objects around an array


@dataclass(frozen=True)
class _Stop:
    """What to do before an instruction: adopt arrays under these names, and lend others."""

    names: frozenset[str] = frozenset()
    lent: frozenset[str] = frozenset()
    callee: Callee | None = None  # what makes numbers of traced values
    gives: str = ""  # the name of what gives a plain array whose method is called


class _Loan(NamedTuple):
    """A plain array whose name stood for a traced one; the version of that, and the line."""

    array: Any
    traced: Any
    version: int
    loc: Any


Stops = dict[CodeType, dict[int, _Stop]]
_KNOWN: dict[Any, Stops] = {}  # by the traced function's code: later traces need no second run


class Adoptions:
    """The places of one function's runs where plain arrays are to be taken into the trace."""

    def __init__(self, fn: Any, known: dict[Any, Stops] = _KNOWN) -> None:
        self.stops = known.setdefault(getattr(fn, "__code__", type(fn)), {})
        self.fresh = False  # whether this run has found a place that was not known
        self.written: list[Any] = []  # plain arrays that a failed instruction may have written to
        self.lent: list[_Loan] = []  # of this run
        self.calls: Calls = {}  # what this run makes of calls

    def note(self, frame: FrameType | None, failed: bool = False) -> None:
        """The instruction that runs in a frame was to take a traced value in C code.

        Nothing is noted where it names no plain array, and no call of `callees`; where it has
        `failed`, a plain array may be given by what it names.
        """
        while frame is not None and _is_ours(frame):
            frame = frame.f_back
        if frame is None:
            return
        code = frame.f_code
        read = reads_of(code, frame.f_lasti)
        found: dict[int, _Stop] = {}
        names = frozenset(n for i in read if i.opname != "LOAD_GLOBAL" for n in names_of(i))
        if any(_holds_array(frame.f_locals.get(n), names, _DEPTH) for n in names):
            found[read[0].offset] = _Stop(names)
        opname = opname_at(code, frame.f_lasti)
        for name in {n for i in read if i.opname not in ATTRIBUTES for n in names_of(i)}:
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            self.written += _arrays_in(value, frozenset(n for i in read for n in names_of(i)))
        if opname == "BINARY_SUBSCR" and read and read[0].opname not in ATTRIBUTES:
            table = names_of(read[0])[0]
            if type(variables(frame, read[0]).get(table)) is np.ndarray:
                before = found.get(read[0].offset, _Stop())
                found[read[0].offset] = replace(before, lent=frozenset({table}))
        if opname not in STORES:
            for load, after in itertools.pairwise(read):
                method = after.opname in ATTRIBUTES and load.opname not in ATTRIBUTES
                if method and type(variables(frame, load).get(load.argval)) is np.ndarray:
                    before = found.get(load.offset, _Stop())
                    found[load.offset] = replace(before, lent=frozenset(names_of(load)))
        found |= _conversions(frame, read, self.calls, failed)
        if failed and not found and read and (opname in CALLS or opname == "BINARY_SUBSCR"):
            found[read[0].offset] = _Stop(gives=names_of(read[0])[0])
        if not self._add(code, found) and opname in STORES:
            self._note_made(frame)

    def note_conversion(self, frame: FrameType | None) -> None:
        """The instruction that runs in a frame makes a number of a traced value.

        Nothing is noted where it calls none of `callees`.
        """
        while frame is not None and _is_ours(frame):
            frame = frame.f_back
        if frame is None:
            return
        read = reads_of(frame.f_code, frame.f_lasti)
        self._add(frame.f_code, _conversions(frame, read, self.calls, failed=False))

    def note_draws(self, codes: Mapping[CodeType, dict[str, Any]]) -> None:
        """The code that ran has drawn random numbers where numpy's names were left alone."""
        for code, space in codes.items():
            found = drawing(code, space, self.calls)
            self._add(code, {callee.offset: _Stop(callee=callee) for callee in found})

    def _note_made(self, frame: FrameType | None) -> None:
        """An array that is stored into was not adopted: packages make theirs traced from now on.

        A view of it, say, was passed to the function that runs. Arrays that are made by `np.empty`
        and its like, in a function that waits for this one or in it, can be written to.
        """
        while frame is not None and not _is_tracers(frame):
            found = making(frame, self.calls)
            self._add(frame.f_code, {callee.offset: _Stop(callee=callee) for callee in found})
            frame = frame.f_back

    def _add(self, code: CodeType, found: dict[int, _Stop]) -> bool:
        """Note these places; whether there are new ones."""
        known = self.stops.get(code, {})
        new = {offset: stop for offset, stop in found.items() if offset not in known}
        if new:
            self.stops.setdefault(code, {}).update(new)
            self.fresh = True
        return bool(new)

    def _check(self) -> None:
        """Raise UnsupportedOpError where a run has changed an array that it was only lent.

        What reads the plain array by its own name would not see the change. It can be an input,
        where Python's state leads to it.
        """
        for array, traced, version, loc in self.lent:
            if traced.version != version:
                self.written.append(array)
                raise UnsupportedOpError(INTO_PLAIN[0], loc=loc, hint=INTO_PLAIN[1])

    @contextmanager
    def at_work(self, recorder: Any, calls: Calls) -> Iterator[None]:
        """While the function runs, arrays are adopted at the places that are known.

        Raises UnsupportedOpError at the end: see `_check`.
        What the trace makes of `calls` is lent where they are (`callees`).
        """
        self.fresh, self.lent, self.calls = False, [], calls
        if not self.stops:
            yield
            return
        outer, here = sys.gettrace(), sys._getframe()
        here.f_trace_opcodes = True  # of Python 3.12, settrace asks whether a frame ever wanted any
        here.f_trace_opcodes = False
        sys.settrace(_Following(self, recorder).call)
        try:
            yield
        finally:
            sys.settrace(outer)
        self._check()


class _Following:
    """The trace function of one run."""

    def __init__(self, adoptions: Adoptions, recorder: Recorder) -> None:
        self.adoptions = adoptions
        self.recorder = recorder
        self.counts = measured()

    def call(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A function is called: only code with places is followed."""
        stops = self.adoptions.stops.get(frame.f_code)
        if stops is None:
            return None
        frame.f_trace_lines = False
        lent: list[tuple[bool, str, Any]] = []

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            stop = stops.get(frame.f_lasti) if event == "opcode" else None
            if stop is None and not lent:
                return step
            local: Any = frame.f_locals  # asked for once: before Python 3.13 it is a copy
            while lent:
                is_local, name, before = lent.pop()
                put_back(local if is_local else frame.f_globals, name, before)
            if stop is not None:
                self._adopt(frame, local, stop.names)
                lent.extend(self._lend(frame, local, stop.lent))
                if stop.gives:
                    lent.extend(self._lend_giving(frame, local, stop.gives))
                if stop.callee is not None:
                    lent.extend(lend(frame, local, stop.callee, self.adoptions.calls))
            return step

        frame.f_trace = step  # Python 3.13 asks for opcodes only where there is one
        frame.f_trace_opcodes = True
        return step

    def _lend(
        self, frame: FrameType, local: Any, names: frozenset[str]
    ) -> Iterator[tuple[bool, str, Any]]:
        """Put traced arrays under these names; yields what was there."""
        for name in names:
            is_local = name in local
            space = local if is_local else frame.f_globals
            array = space.get(name)
            if type(array) is np.ndarray and array.dtype.kind in "biufc":
                yield is_local, name, array
                traced: Any = self.recorder.traced(array)
                space[name] = traced
                self.adoptions.lent.append(_Loan(array, traced, traced.version, user_loc()))

    def _lend_giving(
        self, frame: FrameType, local: Any, name: str
    ) -> Iterator[tuple[bool, str, Any]]:
        space = local if name in local else frame.f_globals
        value = space.get(name)
        if value is not None and not isinstance(value, (Giving, np.ndarray, np.generic)):
            yield name in local, name, value
            space[name] = Giving(value, self.recorder.traced)

    def _adopt(self, frame: FrameType, local: Any, names: frozenset[str]) -> None:
        for name in names.intersection(local):  # from Python 3.13 on its keys are a list
            value = local[name]
            if type(value) is np.ndarray:
                traced = self._adopted(value, frame, self.counts.of_local)
                if traced is not None:
                    local[name] = traced
            else:
                self._inside(value, names, frame, _DEPTH)

    def _inside(self, value: Any, names: frozenset[str], frame: FrameType, depth: int) -> None:
        """Adopt the arrays in a list or dict of the run's, or in attributes that are named."""
        for key, item in _items(value, names):
            if type(item) is np.ndarray:
                traced = self._adopted(item, frame, self.counts.of_item)
                if traced is None:
                    continue
                if isinstance(value, (list, dict)):
                    value[key] = traced
                else:
                    setattr(value, key, traced)
            elif depth > 1:
                self._inside(item, names, frame, depth - 1)

    def _adopted(self, array: Any, frame: FrameType, expected: int) -> Any:
        """A traced array in place of a plain one; None where others would not see its changes."""
        recorder = self.recorder
        if array.dtype.kind not in "biufc" or id(array) in recorder.old:
            return None
        base: Any = array.base
        while base is not None:
            if type(base) is not np.ndarray or sys.getrefcount(base) > self.counts.of_base:
                return None
            base = base.base
        surplus = sys.getrefcount(array) - expected
        if surplus > 0 and others(array, surplus, frame, recorder):
            self._at_the_caller(array, frame)
            return None
        recorder.baked = True
        return recorder.own(np.array(array))

    def _at_the_caller(self, array: Any, frame: FrameType) -> None:
        back = frame.f_back
        if back is not None and any(v is array for v in back.f_locals.values()):
            self.adoptions.note(back)


def _conversions(
    frame: FrameType, read: list[Instruction], calls: Calls, failed: bool
) -> dict[int, _Stop]:
    """Where code calls what makes numbers, if an instruction that reads these does so."""
    if not read:
        return {}
    offsets = {i.offset for i in read}
    found = {callee.offset: _Stop(callee=callee) for callee in callees(frame, calls, failed)}
    return found if offsets & found.keys() else {}


def _is_tracers(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "gradof.tracer.numpy.tracer"


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in ("gradof", "numpy")


def _items(value: Any, names: frozenset[str]) -> list[tuple[Any, Any]]:
    if type(value) is dict:
        return list(value.items())
    if type(value) is list:
        return list(enumerate(value))
    held = getattr(value, "__dict__", None)
    if type(held) is not dict or isinstance(value, (type, ModuleType)):
        return []
    return [(n, held[n]) for n in names & held.keys()]


def _holds_array(value: Any, names: frozenset[str], depth: int) -> bool:
    if type(value) is np.ndarray:
        return bool(value.dtype.kind in "biufc")
    return depth > 0 and any(
        _holds_array(item, names, depth - 1) for _, item in _items(value, names)
    )


def _arrays_in(value: Any, names: frozenset[str], depth: int = _DEPTH) -> Iterator[Any]:
    if type(value) is np.ndarray:
        while type(value) is np.ndarray:  # it may be a view of one that Python's state leads to
            yield value
            value = value.base
    elif depth > 0:
        for _, item in _items(value, names):
            yield from _arrays_in(item, names, depth - 1)
