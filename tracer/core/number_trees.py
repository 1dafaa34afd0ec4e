"""Traced numbers in nests of Python's containers, and in what a function can reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.tracer.core.number import TracedNumber
from gradof.tracer.state.origins import Origin, Origins, put_back


def plain(tree: Any) -> Any:
    """`tree` with its numbers as they are, pinned; tuples, lists, dicts and slices searched."""
    if type(tree) is TracedNumber:
        return tree.pin()
    if type(tree) in (tuple, list):
        return type(tree)([plain(x) for x in tree])
    if type(tree) is dict:
        return {k: plain(v) for k, v in tree.items()}
    if type(tree) is slice:
        return slice(plain(tree.start), plain(tree.stop), plain(tree.step))
    return tree


def has_number(tree: Any) -> bool:
    """Whether a nest of tuples, lists, dicts and slices holds a traced number."""
    if type(tree) is TracedNumber:
        return True
    if type(tree) in (tuple, list):
        return any(map(has_number, tree))
    if type(tree) is dict:
        return any(map(has_number, tree.values()))
    if type(tree) is slice:
        return has_number((tree.start, tree.stop, tree.step))
    return False


def settle(fn: Callable[..., Any]) -> None:
    """Numbers that the run left in what `fn` can reach are plain again, and pinned."""
    while left := Origins(fn, lambda o: type(o) is TracedNumber).all():
        for number, origin in left:
            holder = Origin(origin.steps[:-1]).read(fn)
            put_back(holder, origin.steps[-1], number.pin())
