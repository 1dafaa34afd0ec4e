"""What a module of torch.jit holds: torch has it, and Python's attributes are ways to it.

    scripted = torch.jit.script(Net())
    scripted.training, scripted.weight      # of `scripted._c`, as every attribute is
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Mapping
from typing import Any

from gradof.tracer.state.edges import ATOMS, Edge
from gradof.tracer.state.origins import Origin, Step
from gradof.tracer.state.places import Place, read_place


def is_scripted(attributes: Mapping[str, Any]) -> bool:
    """Whether these are the attributes of a module of torch.jit.script or torch.jit.trace."""
    held, inner = attributes.get("_c"), attributes.get("_actual_script_module")
    return type(held).__name__ == "ScriptModule" or type(inner).__name__ == "RecursiveScriptModule"


def filled_in(attributes: Mapping[str, Any]) -> frozenset[str]:
    """The names that torch gives a module of its own as they are first asked for."""
    return frozenset({"forward"}) if is_scripted(attributes) else frozenset()


def edges_of_scripted(
    attributes: Mapping[str, Any], names: Container[str] | None
) -> Iterator[Edge]:
    """The modules within one, and its tensors and plain values, of these `names` or of all.

    A list is read as a tuple.
    """
    inner = attributes.get("_actual_script_module")  # of torch.jit.trace
    if inner is not None:
        yield Edge(Step("attr", "_actual_script_module"), inner, Place("fixed", attributes, None))
        return
    held = attributes["_c"]
    for name, module in attributes["_modules"].items():
        yield Edge(Step("attr", name), module, Place("fixed", attributes, None))
    kind = attributes.get("_concrete_type")
    if kind is None:  # of a frozen one
        kind = sys.modules["torch"]._C.ConcreteModuleType.from_jit_type(held._type())
    for name in kind.get_attributes():
        if names is not None and name not in names:
            continue
        place = Place("script", held, name)
        value = read_place(place)
        if are_tensors(value) or is_plain(value):
            yield Edge(Step("attr", name), value, place)


class Constant:
    """A tensor that a graph of torch's keeps: always the same, whose elements others may write."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getitem__(self, _: str) -> Any:
        return self._tensor

    def origin(self) -> Origin:
        """Where it is read at each call."""
        place = Place("item", self, "constant")
        return Origin((Step("handed", place),), place)


def are_tensors(value: Any) -> bool:
    """Whether it is a tensor, or a tuple of tensors."""
    if type(value) is tuple:
        return all(map(are_tensors, value))
    return hasattr(value, "dtype")


def is_plain(value: Any) -> bool:
    """Whether it is a number, a text, None or a tuple of such."""
    return type(value) in ATOMS or (type(value) is tuple and all(map(is_plain, value)))
