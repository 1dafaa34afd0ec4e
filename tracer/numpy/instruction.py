"""What the instruction that runs in a frame does, and which names it reads.

    reads_of(code, lasti)     [LOAD_FAST X, LOAD_ATTR T, LOAD_FAST w] where `X.T.dot(w)` is called
    stores(frame)             whether it is `b[0] = ...`
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

from gradof.tracer.state.bytecode import Instruction, instructions

LOCALS = frozenset({
    "LOAD_FAST", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_FAST_CHECK",
    "LOAD_FAST_LOAD_FAST", "LOAD_FROM_DICT_OR_DEREF",
})  # fmt: skip
CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
STORES = frozenset({"STORE_SUBSCR", "STORE_SLICE"})
_REMAINDERS = (6, 19)  # the arguments of BINARY_OP for % and %=


def stores(frame: FrameType) -> bool:
    """Whether the instruction that runs in a frame stores into a container."""
    return opname_at(frame.f_code, frame.f_lasti) in STORES


def asks(frame: FrameType, method: str) -> bool:
    """Whether the instruction that runs calls a method by its name."""
    found = [i for i in instructions(frame.f_code) if i.offset <= frame.f_lasti]
    if found[-1].opname != "CALL":
        return False
    start: Any = list(frame.f_code.co_positions())
    at = start[found[-1].offset // 2]
    return any(
        i.argval == method and i.opname in ATTRIBUTES and start[i.offset // 2][::2] == at[::2]
        for i in found
    )


def formats(frame: FrameType) -> bool:
    """Whether the instruction that runs is `text % values`: of arrays it would be a method."""
    found = [i for i in instructions(frame.f_code) if i.offset <= frame.f_lasti][-1]
    return found.opname == "BINARY_OP" and found.argval in _REMAINDERS


def is_raised(code: CodeType, offset: int) -> bool:
    """Whether the instruction there is a `raise`."""
    return opname_at(code, offset) == "RAISE_VARARGS"


def variables(frame: FrameType, load: Instruction) -> Any:
    """Where the name that is loaded is: the globals, or the locals."""
    return frame.f_globals if load.opname == "LOAD_GLOBAL" else frame.f_locals


def names_of(load: Instruction) -> tuple[str, ...]:
    """The names that an instruction loads, one or two."""
    return load.argval if isinstance(load.argval, tuple) else (load.argval,)


def opname_at(code: CodeType, offset: int) -> str:
    """The name of the instruction there."""
    return [i.opname for i in instructions(code) if i.offset <= offset][-1]


def reads_of(code: CodeType, lasti: int) -> list[Instruction]:
    """The loads of names that an instruction's own expression consists of, in order.

    Python 3.13 loads `a` and `t` of `a + t[i]` by one instruction, whose place is that of `a`.
    """
    positions = list(code.co_positions())
    at: Any = positions[lasti // 2]
    if None in at:
        return []
    read: list[Instruction] = []
    pair = None  # the load of two that is right before
    last = None  # the same, of `view` in `view[0] = p`: only a constant may come after it
    for load in instructions(code):
        if load.offset < lasti and load.opname != "LOAD_CONST":
            last = load if load.opname == "LOAD_FAST_LOAD_FAST" else None
        if load.opname not in LOCALS | ATTRIBUTES | {"LOAD_GLOBAL"} or load.offset > lasti:
            pair = None
            continue
        p: Any = positions[load.offset // 2]
        if None not in p and (at[0], at[2]) <= (p[0], p[2]) and (p[1], p[3]) <= (at[1], at[3]):
            if not read and pair is not None and (p[0], p[2]) != (at[0], at[2]):
                read.append(Instruction(pair.offset, "LOAD_FAST", pair.argval[1]))
            read.append(load)
        pair = load if load.opname == "LOAD_FAST_LOAD_FAST" else None
    if not read and last is not None:
        read.append(Instruction(last.offset, "LOAD_FAST", last.argval[1]))
    return read
