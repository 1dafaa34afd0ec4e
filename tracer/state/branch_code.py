"""What the bytecode says of a branch in a loop: where it leads, and what is still read from there.

    while far(x) > tol and k < most:      branch_at(frame.f_code, frame.f_lasti), as one is decided
        x = step(x)                       .site: one for the test before the loop and that at its
        k += 1                                   end, as they lead to the same code
    return x, k                           .live == {"x", "tol", "k", "most"}

A `Loop` here is a range of instructions that jumps back. Where the stack of values holds more at a
branch than as the loop begins, or what holds state that cannot be seen, there is no `Branch`.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_NEWLOCALS, CO_OPTIMIZED
from types import CodeType
from typing import NamedTuple

from gradof.ir.forks import cached_property
from gradof.tracer.state.loop_code import UNSEEN

_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_FUNCTION = CO_OPTIMIZED | CO_NEWLOCALS
_TESTS = ("POP_JUMP",)
BEFORE_TESTS = frozenset({"TO_BOOL", "COMPARE_OP", "UNARY_NOT", "CACHE"})
_ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD_NO_INTERRUPT")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


class ForLoop(NamedTuple):
    """A `for`: where it asks for items, and the instructions of its steps."""

    head: int
    end: int


class Branch(NamedTuple):
    """See the module docstring.

    `site`: equal for branches that lead to the same code; `loop`: the innermost loop it is in;
    `stays`: of the outcomes those whose way is inside that loop; `around`: the `for` loops around
    the branch, outermost first; `iterates`: whether the innermost loop is the last of them;
    `leaves_by_it`: whether the loop is left for other loops by this branch alone.
    """

    site: int
    loop: tuple[int, int]
    stays: frozenset[bool]
    around: tuple[ForLoop, ...]
    iterates: bool
    leaves_by_it: bool
    live: frozenset[str]


@lru_cache(maxsize=4096)
def branch_at(code: CodeType, offset: int) -> Branch | None:
    """The branch that is decided at this instruction; None for any other, or outside of loops."""
    if code.co_flags & _SUSPENDS or code.co_flags & _FUNCTION != _FUNCTION:
        return None
    return flow_of(code).branch(offset)


@lru_cache(maxsize=4096)
def after_call(code: CodeType, offset: int, name: str) -> int:
    """The instruction after a call of what has this name, which may test what that gives.

    -1 where the call is another's: `all(map(np.allclose, xs, ys))` calls it many times.
    """
    flow = flow_of(code)
    k = flow.at.get(offset, len(flow.listed))
    if k + 1 >= len(flow.listed) or not flow.listed[k].opname.startswith("CALL"):
        return -1
    call, ours = flow.listed[k].positions, False
    if call is None or call.col_offset is None:
        return -1
    for each in flow.listed[:k]:
        at = each.positions
        if at is not None and each.argval == name and each.opname.startswith("LOAD"):
            ours |= at[0] == call[0] and at[2] == call[2] and at[1:4:2] < call[1:4:2]
    return flow.listed[k + 1].offset if ours else -1


@lru_cache(maxsize=512)
def flow_of(code: CodeType) -> Flow:
    """The instructions of a code object, read once."""
    return Flow(code)


class Flow:
    """The instructions of a code object, and what may follow on what."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.listed = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
        self.at = {each.offset: k for k, each in enumerate(self.listed)}
        self.next = [self._following(k) for k in range(len(self.listed))]
        self.depth = self._depths()

    # --- what follows ---------------------------------------------------------------------------

    def _following(self, k: int) -> list[int]:
        each = self.listed[k]
        if each.opname in _ENDS:
            return []
        found = [] if each.opname in _ALWAYS else [k + 1]
        if each.opcode in _JUMPS and each.argval in self.at:
            found.append(self.at[each.argval])
        return [n for n in found if n < len(self.listed)]

    def ways(self, k: int) -> dict[bool, int] | None:
        """Where a test of the top of the stack leads; None for any other instruction."""
        each = self.listed[k]
        if not each.opname.startswith(_TESTS) or "NONE" in each.opname:
            return None
        if each.argval not in self.at or k + 1 == len(self.listed):
            return None
        jumps = each.opname.endswith("TRUE")
        return {jumps: self._settled(self.at[each.argval]), not jumps: self._settled(k + 1)}

    def _settled(self, k: int) -> int:
        """Past jumps that are always taken."""
        seen = set()
        while k not in seen:
            seen.add(k)
            each = self.listed[k]
            if each.opname in _ALWAYS and each.argval in self.at:
                k = self.at[each.argval]
            elif each.opname in ("NOP", "RESUME", "EXTENDED_ARG"):
                k += 1
        return k

    def _depths(self) -> list[int | None]:
        """How many values are on the stack before each instruction; None where it is not told."""
        found: list[int | None] = [None] * len(self.listed)
        if self.listed:
            self.fill_depths(found, 0, 0)
        return found

    def fill_depths(self, found: list[int | None], k: int, depth: int) -> None:
        """The depths of the stack from an instruction on, where they are not told yet."""
        todo = [(k, depth)]
        while todo:
            k, depth = todo.pop()
            if found[k] is not None:
                continue
            found[k] = depth
            each = self.listed[k]
            for n in self.next[k]:
                jumps = n != k + 1 or each.opname in _ALWAYS
                todo.append((n, depth + dis.stack_effect(each.opcode, each.arg, jump=jumps)))

    # --- loops ----------------------------------------------------------------------------------

    @cached_property
    def loops(self) -> list[tuple[int, int]]:
        """Ranges of instructions that jump back, inner ones after those around them."""
        spans = [
            (self.at[each.argval], k) for k, each in enumerate(self.listed)
            if each.opcode in _JUMPS and self.at.get(each.argval, k + 1) <= k
        ]  # fmt: skip
        changed = True
        while changed:
            changed = False
            for i, (a, b) in enumerate(spans):
                for j, (c, d) in enumerate(spans):
                    crosses = a < c <= b < d or (a == c and i != j)
                    if crosses:
                        spans[i] = a, max(b, d)
                        del spans[j]
                        changed = True
                        break
                if changed:
                    break
        return sorted(spans, key=lambda s: s[0] - s[1])

    def innermost(self, k: int) -> tuple[int, int] | None:
        """The smallest loop with this instruction."""
        inside = [s for s in self.loops if s[0] <= k <= s[1]]
        return min(inside, key=lambda s: s[1] - s[0]) if inside else None

    def around(self, k: int) -> tuple[ForLoop, ...]:
        """The `for` loops that an instruction is in, the outermost first."""
        found = []
        for h, each in enumerate(self.listed):
            if each.opname == "FOR_ITER" and each.argval in self.at:
                end = self.at[each.argval]
                if h < k < end or any(s[0] == h and h <= k <= s[1] for s in self.loops):
                    found.append(ForLoop(each.offset, end))
        return tuple(found)

    # --- branches -------------------------------------------------------------------------------

    @cached_property
    def sites(self) -> dict[int, int]:
        """Tests by number of the instruction; those that lead to the same code are one site."""
        found: dict[int, int] = {}
        for k in range(len(self.listed)):
            ways = self.ways(k)
            if ways is None:
                continue
            same = (s for s in dict.fromkeys(found.values()) if self._alike(ways, self.ways(s)))
            found[k] = next(same, k)
        return found

    def _alike(self, a: Mapping[bool, int], b: Mapping[bool, int] | None) -> bool:
        assert b is not None
        seen: set[tuple[int, int]] = set()
        return all(self._same(a[way], b[way], seen) for way in (True, False))

    def _same(self, a: int, b: int, seen: set[tuple[int, int]]) -> bool:
        """Whether the code from two instructions on does the same."""
        while True:
            a, b = self._settled(a), self._settled(b)
            if a == b or (a, b) in seen:
                return True
            seen.add((a, b))
            one, other = self.listed[a], self.listed[b]
            tests, others = self.ways(a), self.ways(b)
            if tests is not None and others is not None:
                return all(self._same(tests[w], others[w], seen) for w in (True, False))
            if one.opname != other.opname or one.argval != other.argval:
                return False
            if one.opname in _ENDS:
                return True
            if one.opcode in _JUMPS:  # its targets are equal, and so is what it falls through to
                return False
            a, b = a + 1, b + 1
            if max(a, b) >= len(self.listed):
                return False

    def branch(self, offset: int) -> Branch | None:
        """See `branch_at`."""
        k = self.at.get(offset)
        if k is None:
            return None
        turned = False
        while self.listed[k].opname in BEFORE_TESTS:
            turned ^= self.listed[k].opname == "UNARY_NOT"
            k += 1
        if k not in self.sites:
            return None
        same = [n for n, site in self.sites.items() if site == self.sites[k]]
        inside = [(n, loop) for n in same if (loop := self.innermost(n)) is not None]
        if not inside:
            return None
        n, loop = min(inside, key=lambda found: found[1][1] - found[1][0])
        depth, here = self.depth[loop[0]], self.depth[n]
        if here is None or self.depth[k] != here or depth != here - 1:
            return None
        if any(each.opname in UNSEEN for each in self.listed[loop[0] : loop[1] + 1]):
            return None
        ways, around, steps = self.ways(n), self.around(n), self._steps(loop)
        assert ways is not None
        stays = [w for w in (True, False) if self._settled(ways[w]) in steps]
        iterates = self.listed[loop[0]].opname == "FOR_ITER"
        return Branch(
            self.sites[k], loop, frozenset(w != turned for w in stays), around, iterates,
            self._leaves_by(same, steps), self.live[k],
        )  # fmt: skip

    def _steps(self, loop: tuple[int, int]) -> set[int]:
        """The instructions from which a loop goes on."""
        found: set[int] = {loop[0]}
        before: dict[int, list[int]] = {}
        for k in range(loop[0], loop[1] + 1):
            for n in self.next[k]:
                before.setdefault(n, []).append(k)
        todo = [loop[0]]
        while todo:
            fresh = [k for k in before.get(todo.pop(), ()) if k not in found]
            found.update(fresh)
            todo += fresh
        return found

    def _leaves_by(self, tests: Sequence[int], steps: set[int]) -> bool:
        """Whether no other instruction leads out of a loop, but to the function's end."""
        ways = [n for k in steps - set(tests) for n in self.next[k] if n not in steps]
        return all(map(self._returns, ways)) and not self.code.co_exceptiontable

    def _returns(self, k: int) -> bool:
        """Whether the function ends from here without another loop."""
        todo, seen = [k], {k}
        while todo:
            at = todo.pop()
            for n in self.next[at]:
                if n <= at:
                    return False
                if n not in seen:
                    seen.add(n)
                    todo.append(n)
        return True

    # --- what is read ---------------------------------------------------------------------------

    @cached_property
    def live(self) -> list[frozenset[str]]:
        """The variables that may be read from each instruction on."""
        code = self.code
        kept = frozenset((*code.co_cellvars, *code.co_freevars))
        if code.co_exceptiontable:  # a handler may read any
            return [kept | frozenset(code.co_varnames)] * len(self.listed)
        live: list[frozenset[str]] = [kept] * len(self.listed)
        told = [list(_mentions(each)) for each in self.listed]
        changed = True
        while changed:
            changed = False
            for k in reversed(range(len(self.listed))):
                after = frozenset[str]().union(kept, *(live[n] for n in self.next[k]))
                for kind, name in reversed(told[k]):
                    after = after | {name} if kind == "LOAD" else after - ({name} - kept)
                if after != live[k]:
                    live[k], changed = after, True
        return live


def _mentions(each: dis.Instruction) -> list[tuple[str, str]]:
    """(STORE or LOAD, name) of local variables, in order; what is not known reads."""
    if "_FAST" not in each.opname:
        return []
    names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
    kinds = [part for part in each.opname.split("_") if part in ("LOAD", "STORE")]
    if len(kinds) != len(names):
        kinds = ["LOAD"] * len(names)
    return list(zip(kinds, names, strict=True))
