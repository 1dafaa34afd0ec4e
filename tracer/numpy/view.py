"""Views of traced arrays: Note [Views are re-read] in `array`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.ops.expr import Expr

Read = Callable[[Expr], Expr]
Write = Callable[[Expr, Expr], Expr]


class View:
    """How a view is read from its parent and written into it."""

    __slots__ = ("parent", "read", "shape", "version", "write")

    def __init__(self, parent: Any, read: Read, write: Write) -> None:
        self.parent = parent
        self.read = read
        self.write = write
        self.version = parent.version
        self.shape = parent.memory.shape  # which code may set anew: the elements stay in order

    def current(self) -> Expr:
        """The parent's value, in the shape that it had when the view was made."""
        value: Expr = self.parent.expr
        return value if value.shape == self.shape else value.reshape(self.shape)

    def written(self, source: Expr) -> Expr:
        """The parent's value after a write into the view."""
        value = self.write(self.current(), source)
        shape = self.parent.memory.shape
        return value if value.shape == shape else value.reshape(shape)


class Elements(View):
    """The same of `array.flat`, of which any part that is taken is a copy."""

    __slots__ = ()
