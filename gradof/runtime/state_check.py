'''The check of one StateGuard as straight-line code: mostly every value is the very object it was.

    def check():
        try:
            if not (d0['scale'] is v1 and c2.cell_contents is v3 and len(d4) == 12): return slow()
            return True
        except GONE: return False

Where one is not, `slow` compares values.
'''

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import MappingProxyType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

from gradof import tuning
from gradof.codegen.machine.same_objects import Places, same_objects
from gradof.runtime.state_extras import Functions
from gradof.runtime.state_values import Checked, are_equal, is_same, read_at
from gradof.tracer.state.origins import Step
from gradof.tracer.state.places import Place, built, read_place

if TYPE_CHECKING:
    from gradof.runtime.state import StateGuard

GONE = (LookupError, AttributeError, ValueError)  # ValueError: an empty closure cell
_CHUNK = 64  # terms of one statement


def compile_check(guard: StateGuard, by_length: bool) -> Callable[[], bool]:
    """The check of a guard; `by_length`: that no name came is told by the length of its dict."""
    writer = _Writer()
    terms = [*writer.natively(guard, by_length), *writer.terms(guard, by_length)]
    writer.names.update(slow=guard.compare, GONE=GONE)
    lines = ["def check():", "    try:"]
    for at in range(0, len(terms), _CHUNK):
        chunk = " and ".join(terms[at : at + _CHUNK])
        lines.append(f"        if not ({chunk}): return slow()")
    lines += ["        return True", "    except GONE: return False"]
    exec(compile("\n".join(lines), "<gradof state>", "exec"), writer.names)
    check: Callable[[], bool] = writer.names["check"]
    return check


class _Writer:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._known: dict[int, str] = {}
        self._native: set[int] = set()  # by id, rows that are compared natively

    def bind(self, value: Any) -> str:
        """A name for an object; one for each."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"v{len(self._known)}"
            self.names[name] = value
        return name

    def natively(self, guard: StateGuard, by_length: bool) -> Iterator[str]:
        """The condition that has most of them, where they are many; `terms` leaves these out."""
        places, there = Places(), self._native
        for row in guard.items:
            container = _dict_of(row[0])
            if places.add_item(container, row[1], row[2]):
                there.add(id(row))
        for size in guard.lengths:
            if places.add_size(size[0], size[1]):
                there.add(id(size))
        for absent in guard.absent if by_length else ():
            if places.add_size(_dict_of(absent[0]), len(absent[0])):
                there.add(id(absent))
        for space, names in guard.builtin.values():
            for name in names:
                places.add_absent(space, name)
        for content in guard.contents:
            if places.add_order(content[0], content[1]):
                there.add(id(content))
        for hooks in guard.empty:
            if places.add_size(hooks, 0):
                there.add(id(hooks))
        for more in guard.more:
            if isinstance(more[0], Functions):
                for item in more[0].items:
                    places.add_item(*item)
                there.add(id(more))
        for pair in guard.types:
            places.types.append(pair)
            there.add(id(pair))
        for code in guard.codes:
            places.codes.append(code)
            there.add(id(code))
        same = same_objects(places) if len(places) >= tuning.NATIVE_GUARDS else None
        if same is None:
            there.clear()  # too few, or there is no native code
        else:
            yield f"{self.bind(same)}()"

    def key(self, key: Any) -> str:
        """The code of a key."""
        return repr(key) if type(key) in (str, int) else self.bind(key)

    def terms(self, guard: StateGuard, by_length: bool) -> Iterator[str]:
        """The conditions, those that differ most often first."""
        left = self._left
        for container, key, value, _ in left(guard.items):
            yield f"{self.bind(container)}[{self.key(key)}] is {self.bind(value)}"
        for cell, _, value, _ in guard.cells:
            yield f"{self.bind(cell)}.cell_contents is {self.bind(value)}"
        for container, n, _ in left(guard.lengths):
            yield f"len({self.bind(container)}) == {n}"
        for obj, cls in left(guard.types):
            yield f"type({self.bind(obj)}) is {self.bind(cls)}"
        if guard.own_type is not None:
            yield f"type({self.bind(guard.own_type[0])}()) is {self.bind(guard.own_type[1])}"
        for fn, code in left(guard.codes):
            yield f"{self.bind(fn)}.__code__ is {self.bind(code)}"
        if empty := [hooks for hooks in guard.empty if id(hooks) not in self._native]:
            yield f"not any({self.bind(empty)})"
        for attributes, names, _ in left(guard.absent):
            if by_length:
                yield f"len({self.bind(attributes)}) == {len(attributes)}"
            else:
                yield f"{self.bind(attributes)}.keys().isdisjoint({self.bind(names)})"
        for space, names in () if self._native else guard.builtin.values():
            yield f"{self.bind(space)}.keys().isdisjoint({self.bind(names)})"
        for container, expected, _ in left(guard.contents):
            now = self.bind(container)
            now = f"tuple({now})" if isinstance(container, dict) else now
            yield f"{now} == {self.bind(expected)}"
        yield from self.others(guard.others)
        for holds, _ in left(guard.more):
            yield f"{self.bind(holds)}()"
        if guard.shared:
            yield f"{self.bind(guard.inputs_are_shared)}()"
        if guard.arrays or guard.data:
            yield f"{self.bind(guard.arrays_are_same)}()"
        if guard.environment or guard.switches or guard.variables:
            yield f"{self.bind(guard.surroundings_are_same)}()"

    def _left(self, rows: list[Any]) -> Iterator[Any]:
        return (row for row in rows if id(row) not in self._native)

    def others(self, checked: list[Checked]) -> Iterator[str]:
        """What is read by a step or in a slot: defaults of a function all at once."""
        left: list[Checked] = []
        defaults: dict[int, Any] = {}
        for item in checked:
            fn, step, value, _ = item
            if isinstance(step, Step) and step.kind == "default" and _is_default(fn, step, value):
                defaults[id(fn)] = fn
            elif isinstance(fn, Place) and isinstance(step, type):
                cls = "tuple" if step is tuple else self.bind(step)
                yield f"type({self.place(fn)}) is {cls} and len({self.place(fn)}) == {value}"
            elif isinstance(fn, Place) and fn.kind == "script":
                yield self.of_torch(fn, value)
            elif isinstance(fn, Place):
                yield f"{self.place(fn)} is {self.bind(value)}"
            elif type(step) is MemberDescriptorType:
                yield f"{self.bind(step.__get__)}({self.bind(fn)}) is {self.bind(value)}"
            else:
                left.append(item)
        for fn in defaults.values():
            yield f"{self.bind(fn)}.__defaults__ is {self.bind(fn.__defaults__)}"
            yield f"{self.bind(fn)}.__code__ is {self.bind(fn.__code__)}"  # the names of them
        if left:
            yield f"{self.bind(are_equal)}({self.bind(left)}, {self.bind(read_at)})"

    def of_torch(self, place: Place, value: Any) -> str:
        """An attribute that torch has, as a new object of one type; zeros are compared by sign."""
        found = f"{self.bind(place.container.getattr)}({self.key(place.key)})"
        if value is None or type(value) is bool:
            return f"{found} is {value}"
        if 0.0 in (value if type(value) is tuple else (value,)):
            return f"{self.bind(is_same)}({self.place(place)}, {self.bind(value)})"
        return f"{found} == {self.bind(list(value) if type(value) is tuple else value)}"

    def place(self, place: Place) -> str:
        """The code that reads a place."""
        kind, container, key = place
        if kind == "index":
            return f"{self.place(container)}[{key}]"
        if kind == "cell":
            return f"{self.bind(container)}.cell_contents"
        if kind == "item":
            return f"{self.bind(container)}[{self.key(key)}]"
        if kind == "attr":
            return f"{self.place(container)}.__dict__[{self.key(key)}]"
        if kind == "entry":
            return f"{self.bind(built)}({self.place(container)})[{self.key(key)}]"
        return f"{self.bind(read_place)}({self.bind(place)})"


def _dict_of(container: Any) -> Any:
    """The dict itself of what shows a class's, so that it can be asked natively."""
    if type(container) is not MappingProxyType:
        return container
    behind = gc.get_referents(container)
    return behind[0] if len(behind) == 1 else container


def _is_default(fn: Any, step: Step, value: Any) -> bool:
    try:
        return step.read(fn) is value
    except GONE:
        return False
