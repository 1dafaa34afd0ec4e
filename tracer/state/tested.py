"""Which of Python's state its decisions follow from, by the bytecode of the code that ran.

    def loss(self, w):                         Tested.names == {"rows", "max", "int", "labels"}
        scale = self.rows.max()
        if scale > 3:                          a test of a variable, which follows from `rows`
            ...
        n = int(self.labels[0])                a number of Python's own
        return np.sum(w * self.weights) * n    `weights` decides nothing

A plain array says nothing when Python reads its elements. So an array that is found under one of
these names is taken to be read, and its elements are guarded; of others only the type is.

What is taken for a decision: what a jump tests, what is made a number or a text of Python's, what
`in` gives, and the number by which an item is picked. What these follow from is found by the names
that the instructions load, through variables, through attributes that the code stores, and into
functions that are called by a name. A parameter counts for the plain arrays it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, Literal, NamedTuple

import numpy as np

from gradof.ir.forks import cached_property
from gradof.tracer.state.branch_code import BEFORE_TESTS, flow_of
from gradof.tracer.state.code_facts import GROWS
from gradof.tracer.state.kinds import is_ours

# Calls that make something of Python's own; a module counts for all its functions.
_MAKES = frozenset({
    "int", "float", "bool", "complex", "str", "repr", "format", "hash", "round", "any", "all",
    "range", "math", "map", "filter",
})  # fmt: skip
_GIVES = frozenset({"item", "tolist", "tobytes", "tostring"})  # methods of arrays that do
_PUTS = GROWS | {"update", "insert", "setdefault", "fill", "put", "__setitem__"}
_TYPES = frozenset({"shape", "ndim", "size", "dtype", "nbytes", "itemsize", "columns"})
_ASKS = frozenset({"len", "isinstance", "issubclass", "callable", "hasattr", "type", "id"})
_DEEP = frozenset({"SWAP", "COPY"})  # reach as far down the stack as their argument says
_TAKES = ("COPY", "SWAP", "UNPACK", "FOR_ITER", "SEND")  # begin with what is on the stack
_OTHERS = (*_TAKES, "STORE_")
_NO_TEST = frozenset({"CHECK_EXC_MATCH", "WITH_EXCEPT_START", "IS_OP"})
# A traced value, one of plain arrays, either traced or of neither, or of neither.
Kind = Literal["traced", "plain", "either", "constant"]
_IN_HANDLER = 1 << 20  # the depth of the stack there is not told: it counts from here


class Given(NamedTuple):
    """What a parameter was given in all calls of a run: plain arrays by id, and other kinds."""

    plain: dict[int, Any]
    kinds: set[Kind]


class Decisions:
    """What a run decides by, noted while it runs."""

    def __init__(self) -> None:
        self._given: dict[tuple[CodeType, str], Given] = {}
        self._traced: dict[CodeType, set[int]] = {}

    def given(self, code: CodeType, name: str, value: Any) -> None:
        """A parameter or outer variable has a value as code begins to run: note what it is."""
        known = self._given.get((code, name))
        if known is None:
            known = self._given[code, name] = Given({}, set())
        nested = type(value) in (list, tuple, dict) and value
        for part in (value.values() if type(value) is dict else value) if nested else (value,):
            cls: Any = type(part)
            if issubclass(cls, (np.ndarray, np.generic)):
                known.plain[id(part)] = part
            known.kinds.add("traced" if is_ours(cls) else "constant")

    def times_given(self, array: Any) -> int:
        """By how many parameters an array is kept."""
        return sum(id(array) in given.plain for given in self._given.values())

    def decided(self, code: CodeType, offset: int) -> None:
        """A traced value decides where the code goes on."""
        self._traced.setdefault(code, set()).add(offset)

    def tested(
        self, codes: Collection[CodeType], is_known: Callable[[Any], bool], leading: Collection[str]
    ) -> Tested:
        """What decided, by the code that ran.

        Arrays that are not known come from others; names that are `leading` lead to arrays.
        """
        search = _Search(codes, self._given, leading)
        for code in codes:
            search.sinks(code, self._traced.get(code, ()))
        given = [self._given[key].plain for key in search.params & self._given.keys()]
        arrays = [array for by_id in given for array in by_id.values()]
        known = {id(array) for array in arrays if is_known(array)}
        return Tested(frozenset(search.names), frozenset(known), len(known) < len(arrays))


class Tested(NamedTuple):
    """Names of state that decides, ids of plain arrays that do, and whether any other may."""

    names: frozenset[str]
    arrays: frozenset[int]
    any_other: bool

    def has(self, array: Any, steps: Iterable[Any]) -> bool:
        """Whether an array, to which steps lead from the function, decides."""
        return self.any_other or id(array) in self.arrays or any(
            type(step.key) in (str, tuple) and name_of(step.key) in self.names for step in steps
        )  # fmt: skip


def name_of(key: Any) -> Any:
    """The name in a step's key, which of a class or a module is the second part."""
    return key[1] if type(key) is tuple and len(key) == 2 and type(key[1]) is str else key


class _Search:
    def __init__(
        self, codes: Collection[CodeType], given: dict[tuple[CodeType, str], Given],
        leading: Collection[str],
    ) -> None:  # fmt: skip
        self.codes = codes
        self.given = given
        self.leading = leading
        self.names: set[str] = set()
        self.params: set[tuple[CodeType, str]] = set()
        self._local: set[tuple[CodeType, str]] = set()
        self._kinds: dict[tuple[CodeType, str], Kind] = {}

    def sinks(self, code: CodeType, guarded: Collection[int]) -> None:
        """Follow all that the code decides by, but for tests of traced values alone."""
        slices = _slices_of(code)
        for k, part in slices.decisions:
            before, test = slices.listed[k - 1], slices.listed[k]
            made = {test.offset, before.offset if before.opname in BEFORE_TESTS else test.offset}
            if made.isdisjoint(guarded) or self._kind(slices, part) == "plain":
                self._follow(slices, part)

    def _follow(self, slices: _Slices, part: range) -> None:
        """Note what a stretch of instructions loads, and what that follows from."""
        code = slices.code
        for kind, name in slices.loads(part):
            if kind == "code":
                inner = _slices_of(name)
                self._follow(inner, range(len(inner.listed)))
            elif kind == "local" or name in code.co_cellvars:
                self._variable(slices, name)
            elif name not in self.names:
                self.names.add(name)
                self._named(name)

    def _variable(self, slices: _Slices, name: str) -> None:
        if (slices.code, name) in self._local:
            return
        self._local.add((slices.code, name))
        if name in slices.params:
            self.params.add((slices.code, name))
        if name == ".0":  # what a comprehension goes through is loaded by the code around it
            for outer in map(_slices_of, self.codes):
                for part in outer.calls_of(slices.code):
                    self._follow(outer, part)
        for part in slices.stores.get(name, ()):
            self._follow(slices, part)

    def _named(self, name: str) -> None:
        """What code stores under a name, in variables of inner functions too, and returns."""
        for slices in map(_slices_of, self.codes):
            for part in slices.stored_names.get(name, ()):
                self._follow(slices, part)
            if name in slices.code.co_cellvars:
                self._variable(slices, name)
            if slices.code.co_name == name:
                for part in slices.returns:
                    self._follow(slices, part)

    def _kind(self, slices: _Slices, part: range) -> Kind:
        """What a stretch of instructions makes, where a traced value has been seen.

        "plain" where it may have been a value of plain arrays another time.
        """
        found: set[Kind] = set()
        for kind, name in slices.loads(part):
            if kind == "code":
                found.add(self._kind(_slices_of(name), range(len(_slices_of(name).listed))))
            elif kind == "local" or name in slices.code.co_cellvars:
                found.add(self._kind_of(slices, name))
            elif name in self.leading or any(s.gives(name) for s in map(_slices_of, self.codes)):
                found.add("plain")
        several = any(slices.listed[n].opname.startswith(_OTHERS) for n in part)  # `a, b = x, y`
        if "plain" in found and ("traced" not in found or several):
            return "plain"
        return next((kind for kind in ("traced", "either") if kind in found), "constant")

    def _kind_of(self, slices: _Slices, name: str) -> Kind:
        """What a variable is, by all that it is set to."""
        key = slices.code, name
        if key in self._kinds:
            return self._kinds[key]
        self._kinds[key] = "constant"  # where it is set to what it was
        given = self.given.get(key)
        found: set[Kind] = set()
        if given is not None:
            found = {"plain"} if given.plain else set(given.kinds)
        found |= {self._kind(slices, part) for part in slices.stores.get(name, ())}
        if len(found) > 1:
            found = {"plain" if "plain" in found else "either"}
        self._kinds[key] = next(iter(found), "constant")
        return self._kinds[key]


@lru_cache(maxsize=512)
def _slices_of(code: CodeType) -> _Slices:
    return _Slices(code)


class _Slices:
    """Of one code object: its decisions, and the instructions that each value is made by."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.flow = flow_of(code)
        self.listed = self.flow.listed
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & 4) + bool(code.co_flags & 8)  # *args, **kwargs
        self.params = frozenset(code.co_varnames[:count])

    @cached_property
    def depth(self) -> list[int]:
        """How many values are on the stack before each instruction, in handlers too."""
        found = list(self.flow.depth)
        for k, known in enumerate(found):
            if known is None:
                self.flow.fill_depths(found, k, _IN_HANDLER)
        return [_IN_HANDLER if d is None else d for d in found]

    @cached_property
    def jumps(self) -> list[tuple[int, int]]:
        """Instructions that lead forward to others than the next."""
        return [(k, n) for k, to in enumerate(self.flow.next) for n in to if n > k + 1]

    def made_by(self, k: int, count: int) -> range:
        """The instructions that the topmost values before an instruction were made by."""
        start = self._back(k, self.depth[k] - count)
        while start > 0:
            inside = [s for s, target in self.jumps if s < start < target <= k]
            deep = (n for n in range(start, k) if self.listed[n].opname in _DEEP)
            deepest = (self._back(n, self.depth[n] - (self.listed[n].arg or 0)) for n in deep)
            if inside:
                start = self._back(min(inside) + 1, self.depth[start])
            elif (lower := min(deepest, default=start)) < start:
                start = lower
            elif self.listed[start].opname.startswith(_TAKES):
                start = self._back(start, self.depth[start] - 1)
            else:
                break
        return range(max(start, 0), k)

    def _back(self, k: int, depth: int) -> int:
        k -= 1
        while k > 0 and self.depth[k] > depth:
            k -= 1
        return k

    def call_of(self, k: int) -> range:
        """A function that was loaded, and what it is called with."""
        for n in range(k + 1, len(self.listed) - 1):
            if self.listed[n].opname.startswith("CALL") and self.depth[n + 1] <= self.depth[k] + 1:
                return range(k, n + 1)
        return range(k, len(self.listed))

    def calls_of(self, inner: CodeType) -> Iterator[range]:
        """The calls of a function that is made in this code."""
        for k, each in enumerate(self.listed):
            if each.argval is inner:
                yield self.call_of(k)

    @cached_property
    def decisions(self) -> list[tuple[int, range]]:
        """Instructions that decide, with what they decide by."""
        found = []
        for k, each in enumerate(self.listed):
            op, name = each.opname, each.argval
            if "JUMP" in op and "_IF_" in op and "NONE" not in op and "EXC" not in op:
                if self.listed[k - 1].opname not in _NO_TEST:
                    found.append((k, self.made_by(k, 1)))
            elif op == "CONTAINS_OP":
                found.append((k, self.made_by(k, 2)))
            elif op in ("LOAD_GLOBAL", "LOAD_NAME") and name in _MAKES:
                found.append((k, self.call_of(k)))
            elif op in ("LOAD_METHOD", "LOAD_ATTR") and name in _GIVES:
                found.append((k, self.made_by(k, 1)))
            elif op in ("BINARY_SUBSCR", "BINARY_OP_SUBSCR") and self._picks(k):
                found.append((k, self.made_by(k, 1)))
        return found

    def _picks(self, k: int) -> bool:
        """Whether an item is taken by a number that was computed, or is one of many."""
        before = self.listed[k - 1]
        if before.opname == "BINARY_SUBSCR":
            return self._is_item(k - 1)
        if not before.opname.startswith("LOAD_FAST"):
            return False
        loaded = before.argval  # of two names the second is on top
        parts = self.stores.get(loaded[-1] if isinstance(loaded, tuple) else loaded, ())
        return any(
            self.listed[n].opname.startswith(("FOR_ITER", "BINARY_SUBSCR", "CALL"))
            and self._is_item(n)
            for part in parts for n in part
        )  # fmt: skip

    def _is_item(self, k: int) -> bool:
        """Whether an instruction may give a number: a slice of an array is an array."""
        return self.listed[k - 1].opname != "BUILD_SLICE"

    @cached_property
    def stores(self) -> dict[str, list[range]]:
        """What variables are set to, and what is put into what they hold."""
        found: dict[str, list[range]] = {}
        for k, each in enumerate(self.listed):
            if each.opname.startswith(("STORE_FAST", "STORE_DEREF")):
                two = isinstance(each.argval, tuple)  # Python 3.13 stores, and loads, two at once
                part = self.made_by(k, 1)
                found.setdefault(each.argval[0] if two else each.argval, []).append(part)
                if each.opname == "STORE_FAST_STORE_FAST":
                    both = self.made_by(k, 2)
                    below = range(both.start, part.start) or both
                    found.setdefault(each.argval[1], []).append(below)
        for kind, name, part in self._puts():
            if kind == "local" or name in self.code.co_cellvars:
                found.setdefault(name, []).append(part)
        return found

    @cached_property
    def stored_names(self) -> dict[str, list[range]]:
        """What attributes, globals and variables of outer functions are set to."""
        found: dict[str, list[range]] = {}
        for k, each in enumerate(self.listed):
            if each.opname in ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"):
                count = 2 if each.opname == "STORE_ATTR" else 1
                found.setdefault(each.argval, []).append(self.made_by(k, count))
        for kind, name, part in self._puts():
            if kind == "name":
                found.setdefault(name, []).append(part)
        return found

    def _puts(self) -> Iterator[tuple[str, str, range]]:
        """`a[i] = x`, `a.append(x)`: what holds it, with the instructions."""
        for k, each in enumerate(self.listed):
            if each.opname == "STORE_SUBSCR":
                part, key = self.made_by(k, 3), self.made_by(k, 1)
                held = [*self.loads(range(self.made_by(key.start, 1).start, key.start))]
            elif each.argval in _PUTS and each.opname in ("LOAD_METHOD", "LOAD_ATTR"):
                part = self.call_of(k)
                held = [*self.loads(self.made_by(k, 1))]
            else:
                continue
            named = [(kind, name) for kind, name in held if kind != "code"]
            if named:
                yield (*named[-1], part)

    def gives(self, name: str) -> bool:
        """Whether the code stores something under a name, or is a function of that name."""
        return name in self.stored_names or self.code.co_name == name

    @cached_property
    def returns(self) -> list[range]:
        """What the function returns, or yields."""
        return [
            self.made_by(k, 1) for k, each in enumerate(self.listed)
            if each.opname in ("RETURN_VALUE", "YIELD_VALUE")
        ]  # fmt: skip

    def loads(self, part: range) -> Iterator[tuple[str, Any]]:
        """What instructions load, but for arrays of which only the type is asked."""
        k = part.start
        while k < part.stop:
            each = self.listed[k]
            after = self.listed[k + 1] if k + 1 < len(self.listed) else each
            k += 1
            op, value = each.opname, each.argval
            if not op.startswith("LOAD_"):
                continue
            if after.opname == "LOAD_ATTR" and after.argval in _TYPES:
                continue
            if op == "LOAD_GLOBAL" and value in _ASKS:
                k = max(k, self.call_of(k - 1).stop)
            elif op == "LOAD_CONST":
                if isinstance(value, CodeType):
                    yield "code", value
                elif isinstance(value, str) and value.isidentifier():
                    yield "name", value
            elif op.startswith("LOAD_FAST"):
                for name in value if isinstance(value, tuple) else (value,):
                    yield "local", name
            elif isinstance(value, str):
                yield "name", value
