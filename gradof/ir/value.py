"""Value and Use: what a node computes or a block is given, and who reads it; see `core`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gradof.ir.types import TensorType, Type

if TYPE_CHECKING:
    from gradof.ir.core import Block, Node


class Use(NamedTuple):  # a tuple, which is made and hashed in C: there is one per operand
    """Operand `index` of `node`."""

    node: Node
    index: int  # type: ignore[assignment]  # tuple has a method of this name


use_of: Callable[[tuple[Node, int]], Use] = partial(tuple.__new__, Use)  # made in C


class Value:
    """One SSA value: output `index` of `node`, or param `index` of a block (`node` None)."""

    __slots__ = ("_uses", "block", "hint", "index", "node", "type")

    def __init__(
        self, type_: Type, node: Node | None, index: int, hint: str | None, block: Block | None
    ) -> None:
        self.type = type_
        self.node = node
        self.index = index
        self.hint = hint
        self.block = block  # the block a param belongs to; None for node outputs
        self._uses: dict[Use, None] = {}

    @property
    def is_inexact(self) -> bool:
        """Whether it is a tensor of floating or complex numbers, which gradients flow through."""
        return isinstance(self.type, TensorType) and self.type.dtype.is_inexact

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a tensor, None where it is known at run time only; () of a number."""
        return self.type.shape if isinstance(self.type, TensorType) else ()

    @property
    def known_shape(self) -> tuple[int, ...]:
        """The shape of a value that was checked to have a known one."""
        shape = self.shape
        assert shape is not None, f"{self!r} has no known shape"
        return shape

    @property
    def uses(self) -> list[Use]:
        """A snapshot of the uses, in the order they were made."""
        return list(self._uses)

    @property
    def has_uses(self) -> bool:
        """Whether anything reads this value."""
        return bool(self._uses)

    @property
    def owning_block(self) -> Block:
        """The block in which this value is defined."""
        block = self.block if self.node is None else self.node.block
        assert block is not None, "the defining node is not inserted"
        return block

    def replace_all_uses_with(self, other: Value) -> None:
        """Given `y = f(x)`; after `x.replace_all_uses_with(z)`: `y = f(z)`."""
        if other is self:
            return
        for use in self.uses:
            use.node.replace_input(use.index, other)
        if other.hint is None:
            other.hint = self.hint

    def __repr__(self) -> str:
        return f"<Value %{self.hint or '?'} : {self.type}>"
