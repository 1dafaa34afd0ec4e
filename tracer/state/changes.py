"""What a run wrote to Python's state: one Change for each place, which can be undone.

>>> log = [1]
>>> change = Change("all", log, None, [], [1])
>>> change.undo()
>>> log
[]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MISSING: Any = type("MISSING", (), {"__repr__": lambda self: "nothing"})()


@dataclass(frozen=True)
class Change:
    """`container[key]` was `before` and is `after`; MISSING stands for no item.

    `kind` says how it is written: "item" of a dict, "attr" of a class or an object with slots,
    "cell", or "all", the whole content of a list, set, deque or bytearray.
    """

    kind: str
    container: Any
    key: Any
    before: Any
    after: Any

    @property
    def at(self) -> tuple[str, int, Any]:
        """What tells the place from others, while its container lives."""
        key = self.key if isinstance(self.key, str) else id(self.key)
        return self.kind, id(self.container), key

    def undo(self) -> None:
        """Make the place as it was."""
        write(self, self.before)


def write(change: Change, value: Any) -> None:
    """Put a value into the place of a change; MISSING takes it away."""
    container, key = change.container, change.key
    if change.kind == "item":
        if value is MISSING:
            dict.pop(container, key, None)
        else:
            dict.__setitem__(container, key, value)
    elif change.kind == "cell":
        if value is MISSING:
            del container.cell_contents
        else:
            container.cell_contents = value
    elif change.kind == "attr":
        if value is MISSING:
            delattr(container, key)
        else:
            setattr(container, key, value)
    elif isinstance(container, (list, bytearray)):
        container[:] = value
    elif isinstance(container, dict):  # another order
        items = list(value.items())
        dict.clear(container)
        dict.update(container, items)
    else:
        container.clear()
        container.update(value) if isinstance(container, set) else container.extend(value)


def differences(container: Any, before: Any) -> Iterator[Change]:
    """The places of a container that are not as in its copy."""
    if isinstance(container, dict):
        same = [*dict.keys(container)] == [*before]
        for key, value in list(dict.items(container)):  # other threads may write to it
            old = before.get(key, MISSING)
            if old is not value:
                yield Change("item", container, key, old, value)
                same = same or old is MISSING
        gone = [key for key in before if key not in container]
        for key in gone:
            yield Change("item", container, key, before[key], MISSING)
        kept = [key for key in before if key in container]
        if not same and [key for key in container if key in before] != kept:
            yield Change("all", container, None, before, dict(container))
    elif isinstance(container, (set, bytearray)):
        if container != before:
            yield Change("all", container, None, before, copy_of(container))
    elif len(container) != len(before) or any(
        a is not b for a, b in zip(container, before, strict=True)
    ):
        yield Change("all", container, None, before, list(container))


def copy_of(container: Any) -> Any:
    """A copy, one level deep, of a list, dict, set, deque or bytearray."""
    if isinstance(container, dict):
        return dict(dict.items(container))
    if isinstance(container, (list, deque)):
        return list(container)
    return set(container) if isinstance(container, set) else bytes(container)
