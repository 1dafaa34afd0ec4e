"""What a run wrote to Python's state: one Change for each place, which can be undone.

>>> log = [1]
>>> change = Change("all", log, None, [], [1])
>>> change.undo()
>>> log
[]
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MISSING: Any = type("MISSING", (), {"__repr__": lambda self: "nothing"})()


@dataclass(frozen=True)
class Change:
    """`container[key]` was `before` and is `after`; MISSING stands for no item.

    `kind` says how it is written: "item" of a dict, "attr" of a class or an object with slots,
    "cell", or "all", the whole content of a list, set, deque or bytearray, or a dict's order.
    `order` names a dict's keys at entry where an item that is put back would stand elsewhere.
    """

    kind: str
    container: Any
    key: Any
    before: Any
    after: Any
    order: tuple[Any, ...] | None = None

    @property
    def at(self) -> tuple[str, int, Any]:
        """What tells the place from others, while its container lives."""
        key = self.key if isinstance(self.key, str) else id(self.key)
        return self.kind, id(self.container), key

    @property
    def what(self) -> Any:
        """What tells the value that is there now from others, while it lives."""
        if self.kind != "all":
            return id(self.after)
        if isinstance(self.after, bytes):
            return self.after
        ids = map(id, self.after)  # the whole content is a copy of its own each time
        return frozenset(ids) if isinstance(self.after, set) else tuple(ids)

    def undo(self) -> None:
        """Make the place as it was."""
        write(self, self.before)
        if self.order is not None:
            _sort(self.container, self.order)


def _sort(container: dict[Any, Any], order: tuple[Any, ...]) -> None:
    """Give a dict's items their places; those that the order does not name stay behind them."""
    items = copy_of(container)
    raw_dict(container).clear(container)
    for key in dict.fromkeys((*(key for key in order if key in items), *items)):
        raw_dict(container).__setitem__(container, key, items[key])


def write(change: Change, value: Any) -> None:
    """Put a value into the place of a change; MISSING takes it away."""
    container, key = change.container, change.key
    if change.kind == "item":
        if value is MISSING:
            raw_dict(container).pop(container, key, None)
        else:
            raw_dict(container).__setitem__(container, key, value)
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
        raw_dict(container).clear(container)
        raw_dict(container).update(container, items)
    else:
        container.clear()
        container.update(value) if isinstance(container, set) else container.extend(value)


def differences(container: Any, before: Any) -> Iterator[Change]:
    """The places of a container that are not as in its copy."""
    if isinstance(container, dict):
        now = copy_of(container)
        for key, value in now.items():  # other threads may write to it
            old = before.get(key, MISSING)
            if old is not value:
                yield Change("item", container, key, old, value)
        gone = [key for key in before if key not in now]
        stayed = [key for key in now if key in before]
        order = None if [*stayed, *gone] == [*before] else tuple(before)
        for key in gone:
            yield Change("item", container, key, before[key], MISSING, order)
        if stayed != [key for key in before if key in now]:
            yield Change("all", container, None, before, now)
    elif isinstance(container, (set, bytearray)):
        if container != before:
            yield Change("all", container, None, before, copy_of(container))
    elif len(container) != len(before) or any(
        a is not b for a, b in zip(container, before, strict=True)
    ):
        yield Change("all", container, None, before, list(container))


def raw_dict(container: dict[Any, Any]) -> type[dict[Any, Any]]:
    """The class whose methods reach the stored items, whatever a subclass of it defines.

    An OrderedDict keeps an order of its own, which dict's methods do not see, and break.
    """
    return OrderedDict if isinstance(container, OrderedDict) else dict


def size_of(container: Any) -> int:
    """How many items a list, dict, set, deque or bytearray has; of a dict, as a dict."""
    return dict.__len__(container) if isinstance(container, dict) else len(container)


def copy_of(container: Any) -> Any:
    """A copy, one level deep, of a list, dict, set, deque or bytearray."""
    if isinstance(container, dict):
        return dict(raw_dict(container).items(container))
    if isinstance(container, (list, deque)):
        return list(container)
    return set(container) if isinstance(container, set) else bytes(container)
