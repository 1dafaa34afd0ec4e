"""What keys of `templates` are told of an array, as one number."""

from __future__ import annotations

import itertools
from typing import Any

from gradof import tuning

_kinds: dict[Any, int] = {}
_numbers = itertools.count()


def kind_of(type_: Any) -> int:
    """The number of what `templates` are told of an array; of two kinds it is never the same."""
    found = _kinds.get(type_)
    if found is None:
        if len(_kinds) >= tuning.TEMPLATES:
            _kinds.clear()
        found = _kinds[type_] = next(_numbers)
    return found
