"""Global names and what they were bound to: where they still are, there is nothing new to see.

>>> space = {"w": [1.0]}
>>> bound = BoundNames(space, {"w"})
>>> bound.holds(space)
True
>>> space["w"] = [1.0]
>>> bound.holds(space)
False
"""

from __future__ import annotations

from collections.abc import Collection
from operator import is_
from typing import Any


class BoundNames:
    """What the globals of some names were: where they still are, there is nothing new to see."""

    __slots__ = ("_names", "_space", "_values")

    def __init__(self, space: dict[str, Any], names: Collection[str]) -> None:
        self._space = space
        self._names = tuple(names)
        self._values = [space.get(name) for name in self._names]

    def holds(self, space: dict[str, Any]) -> bool:
        """Whether these globals have the same objects under the names."""
        return space is self._space and all(
            map(is_, map(space.get, self._names), self._values)
        )
