"""Why a function is traced again: what differs from the trace before.

>>> why_traced(cache, call)
"args[0] is f32[8,3], was f32[4,3]"
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.runtime.arrays import FIRST_LEAF, MODES, MODES_OF_NUMPY, SAME, Call
from gradof.runtime.cache import Cache


def why_traced(cache: Cache, call: Call) -> str:
    """What is different from the last trace, in words."""
    if cache.last is None:
        return "the first call"
    before, entry = cache.last
    if before.key == call.key:
        change = entry.state.first_change()
        if change is not None:
            return change
        if entry.decisions is not None:
            return "Python read other values: another path"
        return "a free array changed its type, or its elements were a constant of the trace"
    if before.library != call.library:
        return f"{call.library} arrays, before it was {before.library}"
    if before.tree != call.tree:
        return "the arguments have another structure"
    n = FIRST_LEAF + len(call.leaves)
    reasons = [
        _leaf(path, new, old)
        for path, new, old in zip(
            call.paths, call.key[FIRST_LEAF:n], before.key[FIRST_LEAF:n], strict=True
        )
        if new != old
    ]
    modes = MODES if call.library == "torch" else MODES_OF_NUMPY
    reasons += [
        f"{name} is {new}, was {old}"
        for name, new, old in zip(modes, call.key[n:], before.key[n:], strict=False)
        if new != old
    ]
    return "; ".join(reasons)


def _leaf(path: str, new: tuple[Any, ...], old: tuple[Any, ...]) -> str:
    if new[1:] == ("any",):
        return f"{path} varies, and is an input from now on"
    shown, was = _shown(new), _shown(old)
    if shown == was and new[:SAME] == old[:SAME] and new[SAME:] != old[SAME:]:
        return f"{path} is the same tensor as {'an' if new[SAME] is None else 'no'}other"
    if shown == was:  # the same type: requires_grad, or being a leaf
        if new[2:4] == old[2:4] and new[5:] != old[5:]:
            return f"{path} is {'a' if new[5] else 'no'} Parameter now"
        flags = "requires grad" if new[2:3] != old[2:3] else "is a leaf"
        return f"{path} {flags} now" if any(new[2:4]) else f"{path} {flags} no more"
    return f"{path} is {shown}, was {was}"


def _shown(part: tuple[Any, ...]) -> str:
    kind, value = part[0], part[1]
    if isinstance(kind, type) and not isinstance(kind, np.dtype):
        return f"any {kind.__name__}" if value == "any" and kind is not str else str(value)
    name = str(kind).removeprefix("torch.")
    device = f"@{part[4]}" if part[4:] and part[4].type != "cpu" else ""
    return f"{name}[{','.join(map(str, value))}]{device}"
