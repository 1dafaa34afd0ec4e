"""Small caches of a fixed size, first in, first out.

A call may look a key up without a lock, so that there is no order of use to keep.
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def keep(cache: dict[K, V], key: K, value: V, most: int) -> V:
    """Store under a key, and drop the oldest entries beyond `most`; returns the value."""
    cache[key] = value
    if len(cache) > most:
        for old in list(cache)[: len(cache) - most]:
            cache.pop(old, None)  # another thread may have been quicker
    return value
