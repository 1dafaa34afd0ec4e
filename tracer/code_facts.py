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
        dynamic=not _COMPUTED.isdisjoint(reads) or _asks_by_computed_name(code),
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
_CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"  # takes the arguments off the stack
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


def _asks_by_computed_name(code: CodeType) -> bool:
    """Whether a call of `getattr` and its like has anything but a constant for a name."""
    depth = 0
    steps: list[tuple[int, Instruction]] = []  # with the depth of the stack before each
    for here in instructions(code):
        op = dis.opmap[here.opname]
        arg = _argument(code, here.offset) if op >= dis.HAVE_ARGUMENT else None
        if here.opname != "EXTENDED_ARG":
            steps.append((depth, here))
            depth += dis.stack_effect(op, arg, jump=False)
    return any(
        not _has_constant_name(steps[at + 1 :])
        for at, (_, here) in enumerate(steps)
        if here.argval in _BY_NAME and "LOAD" in here.opname
    )


def _argument(code: CodeType, offset: int) -> int:
    """The argument of the instruction there, EXTENDED_ARGs in front of it included."""
    raw, shift = code.co_code, 0
    arg = raw[offset + 1]
    while offset >= 2 and raw[offset - 2] == dis.EXTENDED_ARG:
        offset, shift = offset - 2, shift + 8
        arg |= raw[offset + 1] << shift
    return arg


def _has_constant_name(steps: list[tuple[int, Instruction]]) -> bool:
    """Whether the second of the arguments that follow is one constant string, and no more.

    Jumps among them are not followed: the depths do not fit then, and the answer is no.
    """
    steps = [s for s in steps if s[1].opname == _CALL or s[1].opname not in _NO_OPS]
    if not steps:
        return False
    base = steps[0][0]  # with the function on the stack
    call = next((n for n, (d, i) in enumerate(steps) if _is_call_from(d, i, base)), None)
    if call is None:
        return False
    end = call
    if steps[call][1].argval == 3:
        end = max((n for n in range(call) if steps[n][0] == base + 2), default=0)
    start = max((n for n in range(end) if steps[n][0] == base + 1), default=None)
    name = None if start is None or end - start != 1 else steps[start][1]
    return name is not None and name.opname == "LOAD_CONST" and isinstance(name.argval, str)


def _is_call_from(depth: int, here: Instruction, base: int) -> bool:
    return here.opname == _CALL and here.argval in (2, 3) and depth == base + here.argval
