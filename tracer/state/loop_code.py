"""What the bytecode says of a `for` loop: which variables its steps begin by setting.

    for z in seen:                loop_at(frame.f_code, frame.f_lasti), as it asks for an item
        off = z - level           .set_first == {"z", "off"}: no step reads what they were before it
        level = level + 0.1 * off
    return level, off             .read_outside == {"level", "off"}
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_NEWLOCALS, CO_OPTIMIZED
from types import CodeType
from typing import NamedTuple

_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_FUNCTION = CO_OPTIMIZED | CO_NEWLOCALS
# What changes an object on the stack of values, which nobody else can see, leaves the frame, or
# writes to what is not the frame's.
UNSEEN = frozenset({
    "LIST_APPEND", "SET_ADD", "MAP_ADD", "YIELD_VALUE", "RETURN_GENERATOR", "STORE_ATTR",
    "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME",
})  # fmt: skip
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "RETURN", "RAISE", "RERAISE")
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


class LoopCode(NamedTuple):
    """Local variables that each step sets before it reads them; those read outside of the loop."""

    set_first: frozenset[str]
    read_outside: frozenset[str]


@lru_cache(maxsize=4096)
def loop_at(code: CodeType, offset: int) -> LoopCode | None:
    """The loop whose next item is asked for at this instruction.

    None where it is not that of a `for`, or where its steps have state that no variable holds.
    """
    if code.co_flags & _SUSPENDS or code.co_flags & _FUNCTION != _FUNCTION:
        return None
    listed = list(dis.get_instructions(code))
    head = next((i for i in listed if i.offset == offset), None)
    if head is None or head.opname != "FOR_ITER" or not isinstance(head.argval, int):
        return None
    body = [i for i in listed if offset < i.offset < head.argval]
    if any(i.opname in UNSEEN for i in body):
        return None
    inside = {i.offset for i in body}
    read = frozenset(
        name for each in listed if each.offset not in inside
        for kind, name in _mentions(each) if kind != "STORE"
    )  # fmt: skip
    kept = {*code.co_cellvars, *code.co_freevars}
    if code.co_exceptiontable:  # a handler may read what was to be set before
        kept |= read
    return LoopCode(frozenset(_set_first(body)) - kept, read)


def _set_first(body: Sequence[dis.Instruction]) -> set[str]:
    """Variables that a step sets, and that no way through the step reads before."""
    at = {each.offset: k for k, each in enumerate(body)}
    told = [list(_mentions(each)) for each in body]
    stored = {name for each in told for kind, name in each if kind == "STORE"}
    following = [_following(k, each, at) for k, each in enumerate(body)]
    return {name for name in stored if not _is_read(name, told, following)}


def _following(k: int, each: dis.Instruction, at: Mapping[int, int]) -> list[int]:
    """The instructions of the body that may come next; a further step does not count."""
    found = [] if each.opname.startswith(_ENDS) else [k + 1]
    if each.opcode in _JUMPS and each.argval in at:
        found.append(at[each.argval])
    return [n for n in found if n < len(at)]


def _is_read(
    name: str, told: Sequence[Sequence[tuple[str, str]]], following: Sequence[Sequence[int]]
) -> bool:
    todo, seen = [0], {0}
    while todo:
        k = todo.pop()
        kind = next((kind for kind, each in told[k] if each == name), None)
        if kind is not None and kind != "STORE":
            return True
        if kind is None:
            fresh = [n for n in following[k] if n not in seen]
            seen.update(fresh)
            todo += fresh
    return False


def _mentions(each: dis.Instruction) -> Iterator[tuple[str, str]]:
    """(STORE or LOAD or DELETE, name) of local variables, in order."""
    if "_FAST" in each.opname:
        names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
        kinds = [part for part in each.opname.split("_") if part in _KINDS]
        if len(kinds) != len(names):  # what is not known reads
            kinds = ["LOAD"] * len(names)
        yield from zip(kinds, names, strict=True)


_KINDS = frozenset({"LOAD", "STORE", "DELETE"})


@lru_cache(maxsize=4096)
def is_looped_over(code: CodeType, offset: int) -> bool:
    """Whether a `for` loops over what the call at this instruction gives, or asks for items here.

    Then nothing else has the iterator, nor stands between it and the loop, as `zip` would.
    """
    names = [i.opname for i in dis.get_instructions(code) if i.offset >= offset][:3]
    return names[:2] == ["GET_ITER", "FOR_ITER"] or names[1:] == ["GET_ITER", "FOR_ITER"]


@lru_cache(maxsize=4096)
def handles_errors(code: CodeType) -> bool:
    """Whether an `except`, `finally` or `with` lets an error decide what runs next.

    `np.errstate` does not: it lets all errors pass.
    """
    listed = list(dis.get_instructions(code)) if code.co_exceptiontable else []
    passing = [i for i in listed if i.opname.startswith("LOAD_") and i.argval == "errstate"]
    return [i.opname for i in listed].count("PUSH_EXC_INFO") > len(passing)
