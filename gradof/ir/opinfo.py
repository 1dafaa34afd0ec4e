"""What the IR knows of an op: a name, traits and a type rule. The table is filled by `gradof.ops`.

The IR itself knows no op names; the builder and the verifier look them up here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import Type


class OpInfo(Protocol):
    """The part of an op record that the IR asks for."""

    @property
    def name(self) -> str:
        """The name the IR uses."""
        ...

    @property
    def traits(self) -> frozenset[str]:
        """What passes may assume."""
        ...

    def infer(self, inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        """Result types; raises InferenceError."""
        ...


OPS: dict[str, OpInfo] = {}

# Kinds whose outputs cannot be inferred from their inputs alone: their blocks say it.
STRUCTURAL = frozenset({"GradOf", "FusionGroup", "Stretch"})

# Kinds that hold a block to be shown, and give no results: the reverse beside its forward.
DISPLAY = frozenset({"Reverse"})


def lookup(kind: str) -> OpInfo:
    """The record of an op; InferenceError if it is not registered."""
    info = OPS.get(kind)
    if info is None:
        raise InferenceError(
            f"unknown op {kind!r}", hint="`gradof ops` lists the registered ops"
        )
    return info


def has_trait(kind: str, trait: str) -> bool:
    """Whether the op is registered with the trait."""
    info = OPS.get(kind)
    return info is not None and trait in info.traits
