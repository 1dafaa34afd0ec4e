"""What a code object mentions: names it reads, names it only stores, what it appends to.

>>> def step(self, x):
...     self.count += 1
...     self.last = x
...     self.log.append(x)
>>> facts = facts_of(step.__code__)
>>> sorted(facts.reads), sorted(facts.stores)
(['append', 'count', 'log'], ['count', 'last'])
>>> sorted(facts.only_grown)
['log']

Read off the bytecode, once for each code object. A string constant that is an identifier counts as
read: `getattr(self, "width")`. Where `getattr`, `vars`, `__dict__` and their like are used with
names that are computed, the code is `dynamic`: any attribute may be read.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from gradof.tracer.bytecode import Instruction, instructions

GROWS = frozenset({"append", "extend", "appendleft", "extendleft", "add"})
_COMPUTED = frozenset({
    "vars", "dir", "globals", "locals", "eval", "exec", "__dict__", "attrgetter", "methodcaller",
    "getattr_static", "getmembers", "asdict", "astuple", "__slots__",
})  # fmt: skip
_BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr", "__setattr__", "__getattr__"})
_BUILDS = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING",
                     "BINARY_OP"})  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """See the module docstring; `imports` are (module, names) of imports inside the function."""

    reads: frozenset[str]
    stores: frozenset[str]
    only_grown: frozenset[str]  # read for nothing but `.append(...)` and its like
    grown_keys: frozenset[str]  # constant keys of which that holds: `log["loss"].append(...)`
    keyed: frozenset[tuple[str, str]]  # (name, key): `name["key"]` is read or written
    whole: frozenset[str]  # names that are read for more than items under constant keys
    globals_stored: frozenset[str]
    cells_stored: frozenset[str]
    probes: frozenset[str]  # names that may be asked for and not be there
    imports: tuple[str, ...]
    dynamic: bool
    builds: bool  # whether it puts names together


@lru_cache(maxsize=8192)
def facts_of(code: CodeType) -> Facts:
    """The facts of a code object and of the functions nested in it."""
    reads: set[str] = set()
    stores: set[str] = set()
    grown: set[str] = set()
    used: set[str] = set()
    globals_: set[str] = set()
    cells: set[str] = set()
    constants: set[str] = set()
    imports: list[str] = []
    keys: dict[bool, set[str]] = {True: set(), False: set()}
    keyed: set[tuple[str, str]] = set()
    whole: set[str] = set()
    listed = [i for i in instructions(code) if i.opname not in _NO_OPS]
    following = [*listed[1:], None]
    for at, (here, after) in enumerate(zip(listed, following, strict=True)):
        kind, name = here.opname, here.argval
        if kind == "LOAD_CONST":
            constants.update(_identifiers(name))
            if isinstance(name, str) and after is not None and after.opname == "BINARY_SUBSCR":
                keys[_is_grown(following[at + 1])].add(name)
            continue
        if kind == "IMPORT_NAME":
            imports.append(name)
            continue
        if not isinstance(name, str) or kind not in _NAMED:
            continue
        if kind.startswith(("STORE_", "DELETE_")):
            if kind.endswith("_ATTR"):
                stores.add(name)
            elif kind.endswith("_GLOBAL"):
                stores.add(name)
                globals_.add(name)
            elif kind.endswith("_DEREF") and name in code.co_freevars:
                cells.add(name)
        elif kind not in _LOCAL:
            reads.add(name)
            (grown if _is_grown(after) else used).add(name)
            key = _constant_key(listed[at + 1 : at + 6])
            if key is None:
                whole.add(name)
            else:
                keyed.add((name, key))
    for nested in _nested(code):
        inner = facts_of(nested)
        reads |= inner.reads
        stores |= inner.stores
        grown |= inner.only_grown
        used |= inner.reads - inner.only_grown
        globals_ |= inner.globals_stored
        cells |= inner.cells_stored & set(code.co_freevars)
        constants |= inner.probes
        keyed |= inner.keyed
        whole |= inner.whole
        keys[True] |= inner.grown_keys
        keys[False] |= inner.probes - inner.grown_keys
        imports += inner.imports
    return Facts(
        reads=frozenset(reads | constants), stores=frozenset(stores),
        only_grown=frozenset(grown - used - constants),
        grown_keys=frozenset(keys[True] - keys[False]),
        keyed=frozenset(keyed), whole=frozenset(whole),
        globals_stored=frozenset(globals_), cells_stored=frozenset(cells),
        probes=frozenset(constants), imports=tuple(dict.fromkeys(imports)),
        dynamic=not _COMPUTED.isdisjoint(reads) or _asks_by_computed_name(listed),
        builds=any(i.opname in _BUILDS for i in listed),
    )  # fmt: skip


def _is_grown(after: Instruction | None) -> bool:
    """Whether what was just loaded is only asked for a method that appends."""
    return after is not None and after.argval in GROWS and "LOAD" in after.opname


def _constant_key(after: list[Instruction]) -> str | None:
    """The key, where what was just loaded is only subscripted by a constant string."""
    if not after or after[0].opname != "LOAD_CONST" or not isinstance(after[0].argval, str):
        return None
    for step in after[1:]:
        if step.opname in ("BINARY_SUBSCR", "STORE_SUBSCR"):
            return after[0].argval
        if not step.opname.startswith("COPY"):
            return None
    return None


_NO_OPS = frozenset({"CACHE", "PRECALL", "RESUME", "NOP", "EXTENDED_ARG", "PUSH_NULL"})
_FREE = frozenset(dis.opname[op] for op in dis.hasfree)
_LOCAL = frozenset(dis.opname[op] for op in dis.haslocal)
_NAMED = frozenset(dis.opname[op] for op in dis.hasname) | _FREE


def _nested(code: CodeType) -> Iterator[CodeType]:
    return (const for const in code.co_consts if isinstance(const, CodeType))


def _identifiers(const: object) -> Iterator[str]:
    if isinstance(const, str):
        if const.isidentifier():
            yield const
        elif const.replace(".", "_").isidentifier():  # attrgetter("a.b")
            yield from const.split(".")
    elif isinstance(const, (tuple, frozenset)):
        for item in const:
            yield from _identifiers(item)


def _asks_by_computed_name(listed: list[Instruction]) -> bool:
    """Whether a call of `getattr` and its like has no constant for a name."""
    for at, here in enumerate(listed):
        if here.argval not in _BY_NAME or "LOAD" not in here.opname:
            continue
        constant = built = False
        for step in listed[at + 1 :]:
            constant |= step.opname == "LOAD_CONST" and isinstance(step.argval, str)
            built |= step.opname in _BUILDS
            if step.opname.startswith("CALL"):
                break
        if built or not constant:
            return True
    return False
