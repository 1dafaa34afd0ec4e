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
read: `getattr(self, "width")`; as a global, where code `asks_globals`: `globals()["width"]`. Where
`getattr`, `vars`, `__dict__` and their like are used with names that are computed, the code is
`dynamic`: any attribute may be read.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from gradof.tracer.state.bytecode import Instruction, instructions
from gradof.tracer.state.lookup_code import known_to

GROWS = frozenset({"append", "extend", "appendleft", "extendleft", "add"})
TAKES_APART = frozenset({
    "vars", "dir", "__dict__", "getmembers", "asdict", "astuple", "attrgetter", "methodcaller",
    "getattr_static", "__getattribute__",
})  # fmt: skip
_COMPUTED = frozenset({
    "vars", "dir", "globals", "locals", "eval", "exec", "__dict__", "attrgetter", "methodcaller",
    "getattr_static", "getmembers", "asdict", "astuple", "__slots__",
})  # fmt: skip
_GIVES_GLOBALS = frozenset({
    "globals", "__globals__", "f_globals", "eval", "exec", "import_module", "__import__",
})  # fmt: skip
BY_NAME = frozenset({
    "getattr", "setattr", "hasattr", "delattr", "__setattr__", "__getattr__", "__getattribute__",
})  # fmt: skip
_SETS = frozenset({"setattr", "__setattr__"})
_BUILDS = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING",
                     "BINARY_OP"})  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """See the module docstring; `imports`: modules imported inside, ".a" of `from .a import b`."""

    reads: frozenset[str]
    stores: frozenset[str]
    only_grown: frozenset[str]  # read for nothing but `.append(...)` and its like
    grown_keys: frozenset[str]  # constant keys of which that holds: `log["loss"].append(...)`
    keyed: frozenset[tuple[str, str]]  # (name, key): `name["key"]` is read or written
    whole: frozenset[str]  # names that are read for more than items under constant keys
    globals_read: frozenset[str]  # by their names in the code
    globals_stored: frozenset[str]
    cells_stored: frozenset[str]
    probes: frozenset[str]  # names that may be asked for and not be there
    imports: tuple[str, ...]
    dynamic: bool
    asks_globals: bool  # whether it may read globals by names that are texts
    builds: bool  # whether it puts names together
    reduces: bool  # whether `functools.reduce` may follow such names
    compared: frozenset[str | None]  # outer names that `is` compares with; None: something else
    opened: frozenset[str]  # names that are read for more than `in` and `.add`
    asks: frozenset[str] | None = None  # the texts that a lookup of attributes has: `asked_names`


@lru_cache(maxsize=8192)
def facts_of(code: CodeType) -> Facts:
    """The facts of a code object and of the functions nested in it."""
    found = _Found()
    listed = [i for i in instructions(code) if i.opname not in _NO_OPS]
    found.read(listed, code.co_freevars)
    for nested in _nested(code):
        found.join(facts_of(nested), code.co_freevars)
    if not _SETS.isdisjoint(found.reads):
        found.stores |= found.constants
    asks = known_to(code)
    if asks is not None:
        found.reads.discard("__getattribute__")
    return Facts(
        reads=frozenset(found.reads | found.constants), stores=frozenset(found.stores),
        only_grown=frozenset(found.grown - found.used - found.constants),
        grown_keys=frozenset(found.keys[True] - found.keys[False]),
        keyed=frozenset(found.keyed), whole=frozenset(found.whole),
        globals_read=frozenset(found.globals_read),
        globals_stored=frozenset(found.globals), cells_stored=frozenset(found.cells),
        probes=frozenset(found.constants), imports=tuple(dict.fromkeys(found.imports)),
        dynamic=asks is None and (
            not _COMPUTED.isdisjoint(found.reads) or _asks_by_computed_name(code)
        ),
        asks_globals=(
            not _GIVES_GLOBALS.isdisjoint(found.reads) or {"sys", "modules"} <= found.reads
        ),
        builds=asks is None and any(i.opname in _BUILDS for i in listed),
        reduces="reduce" in found.reads and not BY_NAME.isdisjoint(found.reads),
        compared=frozenset(found.compared), opened=frozenset(found.opened | found.constants),
        asks=asks,
    )  # fmt: skip


class _Found:
    """What has been found so far; the fields of Facts are made of it."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.stores: set[str] = set()
        self.grown: set[str] = set()
        self.used: set[str] = set()
        self.opened: set[str] = set()
        self.globals: set[str] = set()
        self.globals_read: set[str] = set()
        self.cells: set[str] = set()
        self.constants: set[str] = set()
        self.imports: list[str] = []
        self.keys: dict[bool, set[str]] = {True: set(), False: set()}  # by whether it is grown
        self.keyed: set[tuple[str, str]] = set()
        self.whole: set[str] = set()
        self.compared: set[str | None] = set()

    def read(self, listed: list[Instruction], freevars: tuple[str, ...]) -> None:
        """Note the instructions of one code object."""
        following = [*listed[1:], None]
        for at, (here, after) in enumerate(zip(listed, following, strict=True)):
            kind, name = here.opname, here.argval
            if after is not None and after.opname == "IS_OP" and kind != "LOAD_CONST":
                free = kind == "LOAD_DEREF" and name in freevars
                self.compared.add(name if free or kind == "LOAD_GLOBAL" else None)
            if kind == "LOAD_CONST":
                self.constants.update(_identifiers(name))
                if isinstance(name, str) and after is not None and after.opname == "BINARY_SUBSCR":
                    self.keys[_is_grown(following[at + 1])].add(name)
                continue
            if kind == "IMPORT_NAME":
                level = listed[at - 2].argval if at > 1 else 0  # `from ..a import b`: 2
                self.imports.append("." * (level if type(level) is int else 0) + name)
                continue
            if not isinstance(name, str) or kind not in _NAMED:
                continue
            if kind.startswith(("STORE_", "DELETE_")):
                self._store(kind, name, freevars)
            elif kind not in _LOCAL:
                self.reads.add(name)
                if kind in _GLOBAL:
                    self.globals_read.add(name)
                (self.grown if _is_grown(after) else self.used).add(name)
                if after is None or not (_is_grown(after) or after.opname == "CONTAINS_OP"):
                    self.opened.add(name)
                key = _constant_key(listed[at + 1 : at + 6])
                if key is None:
                    self.whole.add(name)
                else:
                    self.keyed.add((name, key))

    def _store(self, kind: str, name: str, freevars: tuple[str, ...]) -> None:
        if kind.endswith("_ATTR"):
            self.stores.add(name)
        elif kind.endswith("_GLOBAL"):
            self.stores.add(name)
            self.globals.add(name)
        elif kind.endswith("_DEREF") and name in freevars:
            self.cells.add(name)

    def join(self, inner: Facts, freevars: tuple[str, ...]) -> None:
        """Add what a nested function's code mentions."""
        self.reads |= inner.reads
        self.stores |= inner.stores
        self.grown |= inner.only_grown
        self.used |= inner.reads - inner.only_grown
        self.opened |= inner.opened
        self.globals |= inner.globals_stored
        self.globals_read |= inner.globals_read
        self.cells |= inner.cells_stored & set(freevars)
        self.constants |= inner.probes
        self.keyed |= inner.keyed
        self.whole |= inner.whole
        self.keys[True] |= inner.grown_keys
        self.keys[False] |= inner.probes - inner.grown_keys
        self.imports += inner.imports


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
_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
_CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"  # takes the arguments off the stack
_FREE = frozenset(dis.opname[op] for op in dis.hasfree)
_LOCAL = frozenset(dis.opname[op] for op in dis.haslocal)
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
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
        if here.argval in BY_NAME and "LOAD" in here.opname
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

    Jumps among them are not followed: the answer is no.
    """
    steps = [s for s in steps if s[1].opname == _CALL or s[1].opname not in _NO_OPS]
    if not steps:
        return False
    base = steps[0][0]  # with the function on the stack
    call = next((n for n, (d, i) in enumerate(steps) if _is_call_from(d, i, base)), None)
    if call is None or any(dis.opmap[i.opname] in _JUMPS for _, i in steps[:call]):
        return False
    end = call
    if steps[call][1].argval == 3:
        end = max((n for n in range(call) if steps[n][0] == base + 2), default=0)
    start = max((n for n in range(end) if steps[n][0] == base + 1), default=None)
    name = None if start is None or end - start != 1 else steps[start][1]
    return name is not None and name.opname == "LOAD_CONST" and isinstance(name.argval, str)


def _is_call_from(depth: int, here: Instruction, base: int) -> bool:
    return here.opname == _CALL and here.argval in (2, 3) and depth == base + here.argval
