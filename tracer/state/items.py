"""What is in a list, tuple, set or deque, past the methods that a class of it defines.

>>> class Named(tuple):
...     def __len__(self): raise NotImplementedError
>>> items_of(Named("ab"))
['a', 'b']
"""

from __future__ import annotations

from collections import deque
from typing import Any

SEQUENCES = (list, tuple, set, frozenset, deque)


def items_of(obj: Any) -> list[Any]:
    """The items of an instance of one of `SEQUENCES`."""
    base: Any = next(b for b in SEQUENCES if isinstance(obj, b))
    return list(base.__iter__(obj))


def count_of(obj: Any) -> int:
    """How many there are."""
    base: Any = next(b for b in SEQUENCES if isinstance(obj, b))
    return int(base.__len__(obj))
