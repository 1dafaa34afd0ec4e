"""What functions with `functools.lru_cache` have given: code reads it without running them.

>>> @functools.lru_cache
... def table(n):
...     return [n]
>>> before = table.cache_info()
>>> table(3)
[3]
>>> used_since(table, before)
[(3, [3])]

What a run used is guarded (`CacheGuard`), and a tensor among it is an input, read by its key.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Hashable, Set
from operator import is_
from typing import Any

LRU: type[Any] = type(functools.lru_cache(len))


def entries(cached: Any) -> list[tuple[Hashable, Any]]:
    """Arguments and result of each call that is kept, the least recently used first."""
    found = gc.get_referents(cached)
    info = cached.cache_info()
    if info.maxsize is None:
        return list(_table(found).items())
    # its class, then of each entry the key, the result, and the class of what holds them
    return [(found[at], found[at + 1]) for at in range(1, 3 * info.currsize, 3)]


def wrapped_by(cached: Any) -> Any:
    """The function that is cached; None where nothing says."""
    return getattr(cached, "__wrapped__", None)


def caches_of(cls: Any, names: Set[str]) -> list[Any]:
    """The methods of a class that are cached, and that code of these names may call."""
    spaces = [vars(base) for base in cls.__mro__]
    return [space[name] for space in spaces for name in names & space.keys()
            if type(space[name]) is LRU]  # fmt: skip


def _table(referents: list[Any]) -> dict[Hashable, Any]:
    table: dict[Hashable, Any] = next(x for x in referents if type(x) is dict)
    return table


def used_since(cached: Any, before: Any) -> list[tuple[Hashable, Any]]:
    """The entries that were used after `cache_info()` was `before`, and maybe some more."""
    now = cached.cache_info()
    if now.misses < before.misses or (now.maxsize is None and now[:2] != before[:2]):
        return entries(cached)
    n = now.hits - before.hits + now.misses - before.misses
    return entries(cached)[-n:] if n else []


def read_cached(cached: Any, key: Hashable) -> Any:
    """The result under a key; LookupError if it is not there any more."""
    found = gc.get_referents(cached)
    info = cached.cache_info()
    if info.maxsize is None:
        return _table(found)[key]
    for at in range(1, 3 * info.currsize, 3):
        if found[at] is key:
            return found[at + 1]
    raise LookupError("the result is not cached any more")


class CacheGuard:
    """Whether a function would give what it gave, for the entries that a run used."""

    def __init__(self, cached: Any, used: list[tuple[Hashable, Any]]) -> None:
        self.cached = cached
        info = cached.cache_info()
        self._is_bounded = info.maxsize is not None
        found = gc.get_referents(cached)
        self._table = _table(found[1 + 3 * info.currsize :] if self._is_bounded else found)
        self._keys = [key for key, _ in used]
        self._values = [value for _, value in used]
        self._held = [self._table[key] for key in self._keys]  # links, if it is bounded
        # links are used again from here on
        self._first_eviction = info.misses + (info.maxsize or 0) - info.currsize

    def __call__(self) -> bool:
        """Compare the entries."""
        if not all(map(is_, map(self._table.get, self._keys), self._held)):
            return False
        if not self._is_bounded or self.cached.cache_info()[1] <= self._first_eviction:
            return True
        try:
            return all(
                read_cached(self.cached, key) is value
                for key, value in zip(self._keys, self._values, strict=True)
            )
        except LookupError:
            return False
