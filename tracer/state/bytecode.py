"""The instructions of a code object, with what their arguments stand for: a small, quick `dis`.

    instructions(step.__code__)    [Instruction(2, 'LOAD_FAST', 'self'), ...]

`dis` finds positions, jump targets and texts as well, and takes ten times as long; hundreds of code
objects are read when a model is traced.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any, NamedTuple


class Instruction(NamedTuple):
    """One instruction; `argval` is a name, a constant, two names, or the bare argument."""

    offset: int
    opname: str
    argval: Any


_EXTENDED = dis.opmap["EXTENDED_ARG"]
_SKIPPED = frozenset({dis.opmap["CACHE"]}) if "CACHE" in dis.opmap else frozenset({0})
_CONSTANTS, _NAMES = frozenset(dis.hasconst), frozenset(dis.hasname)
_VARIABLES = frozenset(dis.haslocal) | frozenset(dis.hasfree)
_PAIRS = frozenset(
    op for name, op in dis.opmap.items()
    if name in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST")
)  # fmt: skip
# Bits of an argument that are no part of the index: flags of the instruction.
_SHIFTS: dict[int, int] = {dis.opmap["LOAD_GLOBAL"]: 1}
if "LOAD_SUPER_ATTR" in dis.opmap:  # Python 3.12
    _SHIFTS |= {dis.opmap["LOAD_ATTR"]: 1, dis.opmap["LOAD_SUPER_ATTR"]: 2}


def instructions(code: CodeType) -> list[Instruction]:
    """All instructions but cache entries, in order; EXTENDED_ARG is one of its own, as in `dis`."""
    # One loop without calls of Python functions: a profile hook may be watching.
    found: list[Instruction] = []
    raw, names, constants = code.co_code, code.co_names, code.co_consts
    variable: Any = code._varname_from_oparg  # type: ignore[attr-defined]
    opname = dis.opname
    new: Any = tuple.__new__
    extended = 0
    for offset in range(0, len(raw), 2):
        op = raw[offset]
        if op in _SKIPPED:
            continue
        arg = raw[offset + 1] | extended
        extended = arg << 8 if op == _EXTENDED else 0
        value: Any = arg
        if op in _NAMES:
            value = names[arg >> _SHIFTS.get(op, 0)]
        elif op in _CONSTANTS:
            value = constants[arg]
        elif op in _PAIRS:
            value = variable(arg >> 4), variable(arg & 15)
        elif op in _VARIABLES:
            value = variable(arg)
        found.append(new(Instruction, (offset, opname[op], value)))
    return found
