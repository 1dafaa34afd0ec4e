"""Names that are not there, and would be read if they came: `getattr(step, "count", 0)`.

    def step(x):
        step.count = getattr(step, "count", 0) + 1      # no attribute at the first call
        return x * step.count

>>> lacking(step, reads)
frozenset({"count"})

What instances lack, `StateGuard` finds with what they have.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from gradof.tracer.state.changes import MISSING
from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.kinds import HEAP, is_users, module_of
from gradof.tracer.state.reads import Reads


def lacking(obj: Any, reads: Reads) -> frozenset[str]:
    """Attributes that a function, module or tensor has not got at entry, and may get.

    Those are what code that ran stores, and, of the user's objects, what it may ask for.
    """
    attributes = getattr(obj, "__dict__", None)
    if type(attributes) is not dict:
        return frozenset()
    names = frozenset[str](reads.stored)
    if isinstance(obj, FunctionType) or is_users(obj):
        names |= reads.probes
    if isinstance(obj, ModuleType):
        entry = reads.held.name_entry
        return frozenset(name for name in names if entry(attributes, name) is MISSING)
    return names - frozenset(reads.entry(attributes))


def lacking_globals(reads: Reads) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """Globals that code which ran may make, or ask for by computed names, and has not got."""
    entry = reads.held.name_entry
    for code, space in reads.codes.items():
        facts = facts_of(code)
        names = facts.globals_stored | (facts.probes if facts.asks_globals else frozenset())
        missing = {name for name in names if entry(space, name) is MISSING}
        if missing := missing - vars(builtins).keys():
            yield space, missing


def lacking_in_bases(
    cls: type, reads: Reads
) -> Iterator[tuple[Mapping[str, Any], frozenset[str], str]]:
    """What a class and its earlier bases lack, of names that would be read there if they came."""
    found: set[str] = set(reads.probes)
    every = id(cls) in reads.everything
    for meta in type.mro(type(cls))[:-2]:  # what a metaclass gives its classes
        found |= reads.names & vars(meta).keys()
    for base in reversed(cls.__mro__):
        space = vars(base)
        if is_heard(module_of(base)) and (missing := found - space.keys()):
            yield space, frozenset(missing), f"class {base.__qualname__}"
        found |= space.keys() if every else reads.names & space.keys()


def may_come(cls: type, reads: Reads) -> frozenset[str]:
    """Names that code has read, and that an instance may get though the class knows of them.

    Where the class makes up what an instance lacks (`__getattr__`), these are all names.
    """
    own = (base for base in cls.__mro__ if base.__flags__ & HEAP and is_heard(module_of(base)))
    if any("__getattr__" in vars(base) for base in own):
        return frozenset(reads.names) | reads.probes
    return frozenset(
        name for base in cls.__mro__ for name, value in vars(base).items()
        if name in reads.names and not hasattr(type(value), "__set__")
    ) | reads.probes  # fmt: skip
