"""Which `__getattribute__` looks up no names but those it is given, or knows: see `asked_names`.

    def __getattribute__(self, name):
        table = super().__getattribute__("__dict__").get("_table")      # names that it knows
        if name in super().__getattribute__("attribute_map"):
            name = super().__getattribute__("attribute_map")[name]      # what stands in a table
        return super().__getattribute__(name)                           # the name that it is given
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from gradof.tracer.state.bytecode import Instruction, instructions
from gradof.tracer.state.heard import is_heard

_ASKS = "__getattribute__"
_NO_OPS = frozenset({"CACHE", "PRECALL", "RESUME", "NOP", "EXTENDED_ARG", "PUSH_NULL"})
_TAKES_ANY = 0x04 | 0x08  # *args, **kwargs
_LOADS = frozenset({"LOAD_METHOD", "LOAD_ATTR", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"})
# Builtins and attributes that lead to attributes by other ways.
_OTHER_WAYS = frozenset({
    "getattr", "setattr", "hasattr", "delattr", "vars", "dir", "locals", "eval", "exec",
    "__dict__", "__getattr__", "__setattr__", "attrgetter", "methodcaller", "getmembers",
})  # fmt: skip


@lru_cache(maxsize=1024)
def known_to(code: CodeType) -> frozenset[str] | None:
    """The texts that a lookup has of its own; None for code that is no lookup as above."""
    if code.co_name != _ASKS or code.co_argcount != 2 or code.co_flags & _TAKES_ANY:
        return None
    if any(isinstance(const, CodeType) for const in code.co_consts):
        return None
    steps = [step for step in instructions(code) if step.opname not in _NO_OPS]
    if not all(_is_plain(steps, at, *code.co_varnames[:2]) for at in range(len(steps))):
        return None
    return frozenset(const for const in code.co_consts if isinstance(const, str))


def says_itself(cls: Any) -> bool:
    """Whether all lookups of attributes of a class's objects are such calls."""
    if cls.__getattribute__ is object.__getattribute__:
        return False
    found = [vars(base)[_ASKS] for base in cls.__mro__[:-1] if _ASKS in vars(base)]
    return bool(found) and all(map(_is_told, found))


def _is_told(lookup: Any) -> bool:
    """Whether its calls are noted, and say all."""
    if not isinstance(lookup, FunctionType) or known_to(lookup.__code__) is None:
        return False
    return is_heard(str(lookup.__globals__.get("__name__")))


def _is_plain(steps: list[Instruction], at: int, obj: str, name: str) -> bool:
    """Whether an instruction takes no attribute of the object that is neither asked nor known."""
    opname, argval = steps[at].opname, steps[at].argval
    if opname in _LOADS and argval == _ASKS:
        return _asks_plainly(steps[at + 1 : at + 6], name)
    touched = argval if isinstance(argval, tuple) else (argval,)
    if opname in _VARIABLES and obj in touched:  # for `super()` alone
        return opname == "LOAD_FAST" and steps[at + 1].opname.startswith("LOAD_SUPER")
    if opname.startswith("STORE_") and name in touched:
        return opname == "STORE_FAST" and steps[at - 1].opname == "BINARY_SUBSCR"
    return not (opname in _NAMES and argval in _OTHER_WAYS)


_VARIABLES = frozenset(dis.opname[op] for op in (*dis.haslocal, *dis.hasfree)) | {
    "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "LOAD_FAST_AND_CLEAR",
}  # fmt: skip
_NAMES = frozenset(dis.opname[op] for op in dis.hasname)


def _asks_plainly(steps: list[Instruction], name: str) -> bool:
    """Whether the name of a lookup is the one that was given, or a text, of what is in a table."""
    asked, called = steps[0], steps[1]
    if called.opname != "CALL":
        return False
    if asked.opname == "LOAD_FAST":
        return bool(asked.argval == name)
    if asked.opname != "LOAD_CONST" or not isinstance(asked.argval, str):
        return False
    if asked.argval != "__dict__":
        return True
    kinds = [step.opname for step in steps[2:4]]
    gets = kinds[0] in _LOADS and steps[2].argval == "get" and kinds[1] == "LOAD_CONST"
    return gets or kinds == ["LOAD_CONST", "BINARY_SUBSCR"]
