"""Loops of Python's that go on while a value says so, recorded as loops that count themselves.

    while np.abs(x * x - a) > tol:      # each test asks `Whiles.decide`
        x = 0.5 * (x + a / x)

Each time a branch in a loop is decided `Whiles` looks where the run stands. If it stands where it
stood a step before, up to the elements of arrays and the numbers that vary, all further steps do
what that one did for as long as its Guards hold (Note [Steps that are alike] in `standing`). So
loops are recorded that run until one would not (`gradof.passes.roll.ways`), the variables become
what they carry out, and Python goes on from there: to the end of the loop, or to a branch of its
body that was not seen, which becomes a branch of the loops. What was guarded step by step is not
guarded any more. Where that cannot be known, the loop runs on, and its count is a path of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np

from gradof import tuning
from gradof.errors import InferenceError
from gradof.ir.attrs import Dense
from gradof.ir.core import Graph, Node, Value
from gradof.ops.expr import F
from gradof.passes.roll.build import Unfit
from gradof.passes.roll.ways import Way, fork_of, moves_little, way_of
from gradof.passes.roll.whiles import While, add_while
from gradof.tracer.core.counted import Counted
from gradof.tracer.core.heads import Arrays, Become, Head
from gradof.tracer.core.loop_notes import Place
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.standing import Standing, Unknown
from gradof.tracer.state.branch_code import Branch, branch_at
from gradof.tracer.state.unheard import unheard
from gradof.tracer.state.variables import set_locals


class _Site:
    """A branch that was asked about, in one run of a function's code."""

    def __init__(self, frame: FrameType, branch: Branch) -> None:
        self.frame, self.branch = frame, branch
        self.place: Place = frame.f_code, branch.site
        self.heads: list[Head] = []
        self.ways: list[Way] = []
        self.in_place: set[int] = set()  # of the state, what steps change in place
        self.known: dict[object, tuple[list[Way], set[int]]] = {}  # by standing, of earlier rounds
        self.called: set[Any] = set()
        self.rolled = self.given_up = False

    def leave(self) -> None:
        """The loop is over, or begins anew."""
        if self.rolled and self.heads:
            self.known[_shown(self.heads[0].key)] = self.ways, self.in_place
        self.heads, self.ways, self.in_place, self.rolled = [], [], set(), False


class Whiles:
    """The branches of one trace; see the module docstring."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.recorder = arrays.recorder
        self.loops = arrays.recorder.loops
        self.sites: dict[tuple[FrameType, tuple[int, int]], _Site] = {}

    @unheard
    def decide(
        self, frame: FrameType, offset: int, value: Value, outcome: bool
    ) -> tuple[Value, bool]:
        """A branch comes out so: the same, or what it is after all steps that were recorded."""
        branch = branch_at(frame.f_code, offset)
        if branch is None or self.recorder.closed or not self.arrays.records():
            return value, outcome
        site = self._site(frame, branch)
        if site is None or site.given_up or not self.loops.reads.hears(frame.f_code):
            return value, outcome
        counters = self._counters(frame, branch)
        if counters is None:
            site.given_up = True
            return value, outcome
        found = self._visit(site, counters, value, outcome)
        if found[1] not in branch.stays:
            site.leave()
        return found

    def _site(self, frame: FrameType, branch: Branch) -> _Site | None:
        """The site of a branch that is the first in its loop; None for any other."""
        site = self.sites.get((frame, branch.loop))
        if site is None:
            site = self.sites[frame, branch.loop] = _Site(frame, branch)
            self.loops.reads.called.append(site.called)
        if site.branch.site != branch.site:
            return None
        first, last = branch.loop
        for (other, inner), each in self.sites.items():
            if other is frame and first <= inner[0] and inner[1] <= last and each is not site:
                each.leave()
        return site

    def _counters(self, frame: FrameType, branch: Branch) -> list[Counted] | None:
        """The `for` loops that count as values; None where one is out of sight."""
        found = []
        for k, each in enumerate(branch.around):
            steps = self.loops.running.get((frame, each.head))
            own = branch.iterates and k == len(branch.around) - 1
            if steps is not None and steps.is_counted:
                found.append(steps)
            elif own:
                place = frame.f_code, each.head
                if steps is not None and place not in self.loops.varying.refused:
                    self.loops.varying.fresh |= place not in self.loops.varying.counted
                    self.loops.varying.counted.add(place)
                return None
            elif steps is None and not branch.leaves_by_it:
                return None
        return found

    # --- where it stands ------------------------------------------------------------------------

    def _visit(
        self, site: _Site, counters: Sequence[Counted], value: Value, outcome: bool
    ) -> tuple[Value, bool]:
        self._vary(site)
        try:
            head = self._head(site, counters, value, outcome)
        except Unknown:
            site.leave()
            return value, outcome
        before = site.heads[-1] if site.heads else None
        known = self.arrays.are_known(site.called)
        site.called.clear()
        if before is not None and (not known or before.marks != head.marks):
            before = None
        if before is None or before.key != head.key:
            if before is not None:
                self._note_changes(site, before, head)
            site.leave()
            site.heads = [head]
            found = site.known.get(_shown(head.key))
            if found is None:
                return value, outcome
            site.ways, site.in_place = found
            site.heads.append(head)
            rolled = self._roll(site, head, counters)
        else:
            rolled = self._step(site, before, head, counters)
        return rolled or (value, outcome)

    def _head(
        self, site: _Site, counters: Sequence[Counted], value: Value, outcome: bool
    ) -> Head:
        recorder = self.recorder
        standing = self.arrays.standing()
        standing.at_branch(site.frame, site.branch, self.loops.reads.held, counters)
        others = []
        for each in site.branch.around:
            steps = self.loops.running.get((site.frame, each.head))
            if steps is not None and steps not in counters:
                others.append(steps.given)
        state = [value, *standing.values]
        tested = next((k for k, v in enumerate(standing.values) if v is value), None)
        return Head(
            recorder.emitter.body.anchor._prev, standing, state, (standing.key, others, tested),
            self.arrays.marks(), recorder.guards, outcome,
        )  # fmt: skip

    def _step(
        self, site: _Site, before: Head, head: Head, counters: Sequence[Counted]
    ) -> tuple[Value, bool] | None:
        """A step is over that has led from one head to another like it."""
        site.heads.append(head)
        nodes = between(before.last, head.last, self.recorder.graph)
        try:
            way = way_of(nodes, before.state, head.state)
        except Unfit:
            site.given_up = True
            return None
        changed = [i for i, end in enumerate(way.ends) if end != i and i > 0]
        if any(head.standing.is_constant(i - 1) for i in changed):
            self._note_changes(site, before, head)
            site.heads, site.ways = [head], []
            return None
        if not all(self._counts(way, i, head.standing) for i in changed):
            site.given_up = True
            return None
        site.in_place |= {
            i for i in changed if before.standing.arrays[i - 1] is head.standing.arrays[i - 1]
        }
        again = any(way.key == other.key for other in site.ways)
        if not again:
            if len(site.ways) == tuning.WHILE_WAYS or not fork_of(site.ways, way):
                site.given_up = True
                return None
            site.ways = [*site.ways, way]
        elif site.rolled:  # it would have gone on by itself
            site.given_up = True
            return None
        if (not again and not site.rolled) or before.standing.firm != head.standing.firm:
            return None
        found = self._roll(site, head, counters)
        site.given_up = found is None
        return found

    def _counts(self, way: Way, i: int, standing: Standing) -> bool:
        """Whether a whole number of Python's, if it is one, stays within 64 bits however long."""
        leaf = standing.arrays[i - 1]
        if type(leaf) is not TracedNumber or type(leaf.value) is not int:
            return True
        leaves = list(enumerate(standing.arrays, 1))
        numbers = [k for k, x in leaves if type(x) is TracedNumber and type(x.value) is int]
        places = [k for k, x in leaves if isinstance(x, Counted)]
        return not leaf.leaves and moves_little(way, i, numbers, places)

    # --- the loops ------------------------------------------------------------------------------

    def _roll(
        self, site: _Site, head: Head, counters: Sequence[Counted]
    ) -> tuple[Value, bool] | None:
        """Record the loops from the first head on, and let everything be as it is after them."""
        recorder, first = self.recorder, site.heads[0]
        changed = [i for i in range(len(first.state)) if any(w.ends[i] != i for w in site.ways)]
        become = Become(self.arrays, head.standing, site.in_place)
        if not become.may(changed, site.heads[-2].standing):
            return None
        made = self._add(site, first, changed)
        if made is None:
            return None
        found, values = made
        for node in between(first.last, head.last, recorder.graph):
            if node.kind == "Guard":
                node.erase()
        recorder.guards = first.guards
        room = F.lt(recorder.emitter.wrap(found.times), found.loops[0].steps).value
        self.arrays.added(first, head, [room, found.times], {i: found.finals[i] for i in changed})
        recorder.guard(room, True)
        set_locals(site.frame, become.run(found.finals, values))
        outcome = bool(values.get(0, head.outcome))
        after = self._head(site, counters, found.finals[0], outcome)
        site.heads, site.rolled = [first, after], True
        varying = self.loops.varying
        varying.rolled.add(site.place)
        varying.rolled.update((site.frame.f_code, each.head) for each in site.branch.around)
        self.loops.looked_at.append(True)
        if found.ended:
            return recorder.emitter.body.constant(Dense.of(np.array(outcome))), outcome
        return found.finals[0], outcome

    def _add(
        self, site: _Site, first: Head, changed: Sequence[int]
    ) -> tuple[While, dict[int, Any]] | None:
        """The loops with room enough, and what they carry out in this run."""
        recorder, room = self.recorder, tuning.WHILE_ROOM
        recorder.enter()
        while room <= tuning.WHILE_MOST_ROOM:
            before = recorder.emitter.body.anchor._prev
            try:
                found = add_while(recorder.graph, site.ways, first.state, room, recorder.loc)
            except (Unfit, InferenceError):
                return None
            wanted = [found.times, *(found.kept[i] for i in changed)]
            count, *values = self.arrays.evaluate(first, wanted)
            if int(count) < room:
                return found, dict(zip(changed, values, strict=True))
            while recorder.emitter.body.anchor._prev is not before:
                node = recorder.emitter.body.anchor._prev
                assert node is not None
                node.erase()
            room *= 4
        return None

    # --- what varies ----------------------------------------------------------------------------

    def _note_changes(self, site: _Site, before: Head, now: Head) -> None:
        """Variables that have changed from one head to the next: Note [Numbers that vary]."""
        varying = self.loops.varying
        if site.place in varying.refused:
            return
        names = varying.names.setdefault(site.place, {})
        for name in now.standing.variables:
            found = self.arrays.varies(before, now, name)
            if found and names.get(name, ()) != found[0]:
                names[name] = found[0]
                varying.fresh = True
        if not names:
            del varying.names[site.place]

    def _vary(self, site: _Site) -> None:
        """Let the variables that a loop changes vary from now on."""
        names = self.loops.varying.names.get(site.place)
        if not names:
            return
        found, made = site.frame.f_locals, {}
        for name, dtype in names.items():
            value = self.arrays.varied(found.get(name), dtype)
            if value is not None:
                made[name] = value
        if made:
            set_locals(site.frame, made)


def between(first: Node | None, last: Node | None, graph: Graph) -> list[Node]:
    """The nodes after one up to another, without constants."""
    block = graph.block
    node = block._head if first is None else first._next
    found: list[Node] = []
    while node is not None and node is not block.returns:
        if node.kind != "Constant":
            found.append(node)
        if node is last:
            break
        node = node._next
    return found


def _shown(key: Any) -> object:
    """A key of standings that can be looked up; without where loops around this one stand."""
    standing, _, tested = key
    return repr(standing[0]), tuple(standing[1]), tested
