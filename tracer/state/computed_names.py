"""Objects of which code may read any attribute, as its names are computed: `getattr(obj, name)`.

    id(obj) in everything           whether any attribute of it counts; `Reads.everything` is one
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from gradof.tracer.state.code_facts import TAKES_APART, Facts
from gradof.tracer.state.kinds import ATOMS, HEAP, led_to
from gradof.tracer.state.lookup_code import says_itself


class Everything(dict[int, Any]):
    """The objects by id, kept alive; with `of_all` every object there is counts as one of them."""

    of_all = False

    def __contains__(self, key: object) -> bool:
        return self.of_all or super().__contains__(key)


def note(everything: dict[int, Any], value: Any, by_name: bool = True) -> None:
    """Any attribute of an object may be read, one of its class among them.

    `by_name`: as `getattr` does, of which a class may know by itself (`asked_names`).
    """
    if by_name and says_itself(type(value)):
        return
    everything[id(value)] = value
    if type(value).__flags__ & HEAP:
        everything[id(type(value))] = type(value)


def _follow(everything: dict[int, Any], value: Any, facts: Facts, depth: int) -> None:
    """Note what the names in code lead to from an object: `vars(run.context)`."""
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict:
        return
    parts = [attributes[name] for name in facts.reads & attributes.keys()]
    children = attributes.get("_modules")
    if type(children) is dict:  # `getattr(self.block, name)` of an nn.Module
        parts += [children[name] for name in facts.reads & children.keys()]
    for part in parts:
        if type(part) in ATOMS or id(part) in everything or type(part) is ModuleType:
            continue
        note(everything, part, by_name=False)
        if type(part) in (tuple, list):  # `for each in run.parts: vars(each)`
            parts += part
        elif type(part) is dict:
            parts += part.values()
        if depth:
            _follow(everything, part, facts, depth - 1)


def note_given(everything: dict[int, Any], value: Any, facts: Facts, depth: int = 2) -> None:
    """Note an object that code with these facts is given, where it computes names."""
    if facts.dynamic:
        note(everything, value, "__getattribute__" not in facts.reads)
        if depth and type(value) in (tuple, list, dict):  # `getattr(*pair)`
            for part in value.values() if type(value) is dict else value:
                if type(part) not in ATOMS and id(part) not in everything:
                    note_given(everything, part, facts, depth - 1)
    if not TAKES_APART.isdisjoint(facts.reads):
        _follow(everything, value, facts, depth)
    if facts.reduces:
        everything.update((id(obj), obj) for obj in led_to(value))
