"""What a run reads and writes of Python's state, noted while it runs.

    with Reads() as reads:
        fn(x)
    reads.codes         the code objects of the user's that ran
    reads.names         the names that this code reads off objects
    reads.entry(d)      what a container held when code that can see it first ran
    reads.held.changes()  what the run has written

A profile hook sees every call before it runs. What the called code can see, through its arguments,
its globals and the attributes it names, is copied then, one level of each container, once. So what
is compared later is the state at entry, whatever the run has written since; and what the run has
written is the difference.

Note [What code can see]
Of a container all items; of an object the attributes that the code which ran mentions; of a
function its cells and globals, if its code ran. What `getattr` is given counts as mentioned
(`lookups`); other names that are computed make all attributes of the objects at hand count
(`Facts.dynamic`). That is more than was read, by little, and never less, but for what C code reads
by itself.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from types import CodeType, FrameType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from gradof.ir.core import Loc
from gradof.tracer.state.asked_names import AskedNames
from gradof.tracer.state.backward_reads import BackwardReads
from gradof.tracer.state.bound import BoundNames
from gradof.tracer.state.changes import MISSING
from gradof.tracer.state.code_facts import BY_NAME, GROWS, Facts, facts_of
from gradof.tracer.state.cold import Misses
from gradof.tracer.state.computed_names import Everything, note, note_given
from gradof.tracer.state.copied_generators import CopiedGenerators
from gradof.tracer.state.effects import SHAPING, effect_error, effect_of, in_reach, is_performed
from gradof.tracer.state.failed_run import FailedRun
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.held import Held
from gradof.tracer.state.kinds import ATOMS
from gradof.tracer.state.lookups import LENT, RUNNING
from gradof.tracer.state.messages import TELLING, message_of
from gradof.tracer.state.places import Place
from gradof.tracer.state.renewable import NOWHERE, Renewed
from gradof.tracer.state.source import user_loc
from gradof.tracer.state.surroundings import (
    asks_again,
    decimal_context,
    environment,
    is_switch,
    outside_of,
    switch_of,
)
from gradof.tracer.state.tested import Decisions
from gradof.tracer.state.unheard import Listening, is_listening
from gradof.tracer.state.variables import is_tensor_in

WRITES = "code that writes to attributes and variables of others"
# nn.Module's own plumbing: hooks and attributes are looked at by themselves, and so is `forward`,
# which may be an instance's own.
_PLUMBING = frozenset({"_call_impl", "_wrapped_call_impl", "__getattr__", "inner"})


def _of_modules_setattr(frame: FrameType, facts: Facts) -> Facts:
    """Of its `__dict__` nn.Module's reads three tables alone, and writes a name that is known."""
    of_torch = frame.f_globals.get("__name__") == "torch.nn.modules.module"
    return replace(facts, dynamic=False) if of_torch else facts


class Reads:
    """See the module docstring."""

    def __init__(
        self, *, refuse_effects: bool = False, renewed: Renewed = NOWHERE,
        handed: Mapping[int, tuple[Any, Place]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.refuse_effects = refuse_effects  # torch's, which then runs eagerly
        self.renewed = renewed  # places whose objects are other ones at each call
        self.handed = handed  # by id, objects among the arguments that are in such places
        self.performs: tuple[str, Loc | None] | None = None  # the first that numpy's performs
        self.codes: dict[CodeType, dict[str, Any]] = {}  # → the globals it ran with
        self.names, self.stored = set[str](), set[str]()
        self.probes: set[str] = set()
        self.keyed: dict[str, set[str]] = {}  # names of dicts → constant keys under them
        self.whole = set[str]()  # names that are read for more than such items
        self.used, self.used_keys = set[str](), set[str]()  # read for more than to append
        self.opened = set[str]()  # names that are read for more than `in`, too
        self.grown_names, self.grown_keys = set[str](), set[str]()  # appended to, if nothing else
        self.grown: dict[int, tuple[Any, int]] = {}  # containers that were appended to, how often
        self.everything = Everything()  # objects read by computed names
        self.asked = AskedNames(self.everything)
        self.environment: dict[Any, Any] = {}  # keys of os.environ → raw value, None if absent
        self.variables: dict[Any, Any] = {}  # context variables → value
        self.switches: dict[Any, Any] = {}  # functions without arguments → what they gave
        self.effects: list[tuple[str, Loc | None]] = []  # what each call would do again, and where
        self.module_names: set[str] = set()  # looked up in sys.modules
        self.failed = FailedRun()
        self.files: Callable[[], list[Any]] = list  # that the run has opened itself
        self.asks_globals = False  # whether texts may be names of globals
        self.asks = False  # whether objects are compared by identity that may be tensors
        self.hashed = False  # whether tensors are looked up in sets and dicts
        self.of_backwards = BackwardReads()  # what rules of the user's read, which run later
        self.held = Held(copies_arrays=refuse_effects)
        self.misses = Misses(self.held, refuse_effects)
        self.copied = CopiedGenerators(all_states=refuse_effects)
        self.decisions = Decisions()
        self._facts: dict[int, Facts | None] = {}  # by the id of the code: its hash takes long
        self._codes: list[CodeType] = []  # so that ids stay theirs
        self.lends: dict[str, Any] = dict(LENT)  # what builtins are for the user's code
        self._lent: list[tuple[dict[str, Any], str]] = []  # the globals that have it
        self.called: list[set[Any]] = []  # are told of functions in C, and modules not heard
        self.before_c: Callable[[Any], None] | None = None  # is told of them before they run
        self._globals: dict[int, tuple[BoundNames, int]] = {}  # by facts: what was seen of them
        self._told: set[int] = set()  # ids of code that logs and warns
        self._listening = Listening(self._note)

    # --- the hook -------------------------------------------------------------------------------

    def __enter__(self) -> Reads:
        for space, name in self._lent:  # by a run before this one
            space.setdefault(name, self.lends[name])
        RUNNING.reads.append(self)
        self._listening.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.stop()
        RUNNING.reads.remove(self)
        for space, name in self._lent:
            if space.get(name) is self.lends[name]:
                del space[name]
                self.held.correct("item", space, name, MISSING)  # nor was it there before

    def _note(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if id(code) not in self._facts:
                self._codes.append(code)
                self._facts[id(code)] = self._first(frame)
                if asks_again(code, frame.f_globals, self.hashed):
                    del self._facts[id(code)]  # the next call may be the user's, or for another key
            facts = self._facts.get(id(code))
            if facts is not None:
                self._enter(frame, facts)
            elif id(code) in self._told and not self.misses.is_any:
                if (message := message_of(frame, self.facts_at)) is not None:
                    self.effect(message, frame)
            elif self.called and self._of_caller(frame) is not None:
                for called in self.called:
                    called.add(str(frame.f_globals.get("__name__")))
        elif event == "c_call":
            caller = self._facts.get(id(frame.f_code))
            if caller is not None:
                self._of_c(frame, arg)
        elif event == "return" and self.misses.running(frame):
            self.misses.end(frame, arg)
        elif event == "return" and arg is not None:
            if self._facts.get(id(frame.f_code)) is not None:
                caller = self._of_caller(frame)
                if caller is not None:
                    self.held.see(arg, caller, given=True)
                    note_given(self.everything, arg, caller)

    def _first(self, frame: FrameType) -> Facts | None:
        """The facts of code that runs for the first time; None for code without state."""
        code = frame.f_code
        module = str(frame.f_globals.get("__name__", ""))
        what = outside_of(frame, guards_files=not self.refuse_effects)
        if what is not None and self._of_caller(frame) is not None:
            self.effect(what, frame)
        if module == "os":
            self._environ(frame)
            return None
        if code.co_name == "__hash__" and module == "torch._tensor":
            asking = "" if frame.f_back is None else str(frame.f_back.f_globals.get("__name__"))
            users = not asking.startswith("torch.") and self._of_caller(frame) is not None
            self.hashed = users and self.misses.is_traced(frame.f_locals.get("self"))
            self.asks |= self.hashed
        self._switch(switch_of(frame))
        if code.co_name == TELLING.get(module):
            self._told.add(id(code))
        self.copied.runs(module, code.co_name, code.co_names)
        if not is_heard(module):
            return None
        if code.co_name in _PLUMBING and module.startswith("torch.nn.modules"):
            self.names.add("forward")
            return None
        facts = facts_of(code)
        for name in self.lends.keys() & facts.globals_read - frame.f_globals.keys():
            frame.f_globals[name] = self.lends[name]
            self._lent.append((frame.f_globals, name))
        for name in facts.stores & SHAPING if not module.startswith(("torch.", "scipy.")) else ():
            self.effect(f"the setter of {name}", frame)
        self.codes[code] = frame.f_globals
        self.names |= facts.reads
        if "modules" in facts.reads:
            self.module_names.update(c for c in code.co_consts if isinstance(c, str))
        if not facts.reads.isdisjoint(("decimal", "Decimal", "getcontext")):
            self._switch(decimal_context)
        self.stored |= facts.stores
        self.probes |= facts.probes
        self.asks_globals |= facts.asks_globals
        for name, key in facts.keyed:
            self.keyed.setdefault(name, set()).add(key)
        self.whole |= facts.whole
        self.used |= facts.reads - facts.only_grown
        self.opened |= facts.opened
        self.grown_names |= facts.only_grown
        self.grown_keys |= facts.grown_keys
        self.used_keys |= facts.probes - facts.grown_keys
        self.asks |= any(name is None or is_tensor_in(frame, name) for name in facts.compared)
        return facts

    def _enter(self, frame: FrameType, facts: Facts) -> None:
        """A call of the user's code: what it can see is as it is at entry."""
        if frame.f_code.co_name == "__setattr__" and frame.f_locals.get("name") in self.stored:
            facts = _of_modules_setattr(frame, facts)
        seen = self.held
        space = frame.f_globals
        if facts.stores or facts.cells_stored or facts.globals_stored:
            for called in self.called:
                called.add(WRITES)
        if self.of_backwards.running:
            self.of_backwards.enter(frame, facts)
        for name in facts.globals_stored:
            seen.name(space, name)
        free = frame.f_code.co_freevars
        for name, value in frame.f_locals.items():
            seen.see(value, facts, given=name not in free)
            self.decisions.given(frame.f_code, name, value)
            note_given(self.everything, value, facts)
        if facts.asks is not None:
            self.asked.note(frame, facts.asks)
        seen.cells_of(frame, facts)
        self._see_globals(space, facts)
        if seen.names:
            for names in self.kinds_of_names():
                names |= seen.names
        if seen.caches:
            self.misses.note(frame)
        iterator, seen.iterator = seen.iterator, None
        if iterator is not None and (what := in_reach(iterator, facts, seen.names, frame)):
            self.effect(what, frame)

    def globals_of(self, facts: Facts) -> frozenset[str]:
        """The names of the globals that code may read."""
        return facts.reads if self.asks_globals else facts.globals_read

    def _see_globals(self, space: dict[str, Any], facts: Facts) -> None:
        names: Set[str] = self.globals_of(facts)
        if facts.asks_globals:  # by texts that its callers have given
            names |= self.names
        if facts.dynamic:
            for name in names & space.keys():
                note_given(self.everything, space[name], facts)
            for name in names - facts.globals_read:
                self.held.name(space, name)
        known, count = self._globals.get(id(facts)), len(self.held.names)
        if known is None or known[1] != count or not known[0].holds(space):
            self.held.globals_of(space, names, facts)
            self._globals[id(facts)] = BoundNames(space, names), len(self.held.names)

    def _by_name(self, frame: FrameType) -> None:
        """A name is looked up that may be computed, of an object that a loop may have come to."""
        facts = self._facts[id(frame.f_code)]
        if facts is None:
            return
        if BY_NAME.isdisjoint(facts.reads):  # `getattr` has another name here
            self.everything.of_all = True
            facts = self._facts[id(frame.f_code)] = replace(facts, dynamic=True)
            self._enter(frame, facts)
        if facts.dynamic:
            for value in frame.f_locals.values():
                if type(value) not in ATOMS and id(value) not in self.everything:
                    note(self.everything, value)
                    self.held.see(value, facts, given=True)

    def _of_c(self, frame: FrameType, function: Any) -> None:
        owner: Any = getattr(function, "__self__", None)
        name = function.__name__
        self.copied.calls(owner, name)
        for called in self.called:
            called.add(function)
        if self.before_c is not None:
            self.before_c(function)
        if type(owner) is bytearray or isinstance(owner, (list, dict, set, deque)):
            self.held.container(owner)
            if name in GROWS:
                found = self.grown.get(id(owner))
                self.grown[id(owner)] = owner, 1 if found is None else found[1] + 1
        elif is_switch(function):
            self._switch(function)
        elif isinstance(owner, ModuleType) and owner.__name__ == "builtins" and name in BY_NAME:
            self._by_name(frame)
        elif (what := effect_of(owner, name)) is not None:
            if not isinstance(owner, io.IOBase) or not self._is_own(owner):
                self.effect(what, frame)
        elif type(owner).__name__ == "ContextVar" and owner.name != "numpy.ufunc.extobj":
            value = self.variables.setdefault(owner, owner.get(None))
            if (facts := self._facts[id(frame.f_code)]) is not None:
                self.held.see(value, facts)

    def effect(self, what: str, frame: FrameType) -> None:
        """Something that each call would do again; it is not done while tracing, if refused."""
        loc = user_loc(frame)
        self.effects.append((what, loc))
        if self.refuse_effects or not is_performed(what):
            self.misses.refuse_effect(frame)
            raise effect_error(what, loc)
        if self.performs is None and not what.startswith("a "):
            self.performs = what, loc

    def _is_own(self, file: io.IOBase) -> bool:
        """Whether the run has opened a file itself, or made a StringIO; torch asks no more."""
        made = isinstance(file, (io.StringIO, io.BytesIO)) and not self.refuse_effects
        new = made and not self.held.met.get(id(file), False)
        return new or any(file is other for other in self.files())

    def _of_caller(self, frame: FrameType) -> Facts | None:
        back = frame.f_back
        return None if back is None else self._facts.get(id(back.f_code))

    def _switch(self, function: Any) -> None:
        if function is not None and function not in self.switches:
            self.switches[function] = function()

    def _environ(self, frame: FrameType) -> None:
        key, name = frame.f_locals.get("key"), frame.f_code.co_name
        raw = getattr(frame.f_locals.get("self"), "_data", {})
        if name == "__getitem__" and isinstance(key, str):
            self.environment.setdefault(key, raw.get(key.encode()))
        elif name in ("__iter__", "__len__", "copy"):
            self._switch(environment)

    # --- afterwards -----------------------------------------------------------------------------

    def entry(self, container: Any) -> Any:
        """What a list, dict, set, deque or namespace held at entry, as a copy or itself."""
        return self.held.entry(container)

    def facts_at(self, code: CodeType) -> Facts | None:
        """The facts of code that ran and is the user's."""
        return self._facts.get(id(code))

    def hears(self, code: CodeType) -> bool:
        """Whether calls that this code makes are noted."""
        return self.facts_at(code) is not None and is_listening()

    def ran(self, fn: FunctionType) -> bool:
        """Whether the function's code ran."""
        return fn.__code__ in self.codes

    def progress(self) -> int:
        """A number that grows as more is read."""
        caches = sum(sum(c.cache_info()[:2]) for c, _ in self.held.caches.values())
        return len(self.codes) + self.asked.count + caches

    def names_of(self, obj: Any) -> Set[str]:
        """The names that code which ran may have read off an object."""
        return self.asked.of(obj, self.names, self.stored)

    def reads_name(self, name: Any) -> bool:
        """Whether code that ran reads this name off an object, or the key of a container."""
        return not isinstance(name, str) or name in self.names

    def is_only_grown(self, container: Any, key: Any) -> bool:
        """Whether a container under this name is appended to at most, and not read."""
        if not isinstance(key, str):
            return False
        if key in self.grown_keys and key not in self.used_keys:
            return id(container) in self.grown
        return key in self.grown_names and key not in self.used

    def is_only_searched(self, name: Any) -> bool:
        """Whether what is under this name is asked for what is in it, and no more."""
        return isinstance(name, str) and name in self.names and name not in self.opened

    def kinds_of_names(self) -> tuple[set[str], ...]:
        """Those of names that may be read for anything."""
        return self.names, self.probes, self.whole, self.used, self.opened

    def keys_of(self, name: Any) -> set[str] | None:
        """The constant keys that are all that is used of a dict under this name; None: any."""
        if not isinstance(name, str) or name in self.whole or name in self.probes:
            return None  # what is no name may be any object, which leads there
        return self.keyed.get(name)
