"""Traced numbers in nests of Python's containers, and in what a function can reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.tracer.core.number import TracedNumber
from gradof.tracer.state.origins import MISSING, Origin, Origins, Step


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
            _put_back(holder, origin.steps[-1], number.pin())


def _put_back(holder: Any, step: Step, old: Any) -> None:
    """Take the step to `old` from now on; with MISSING, nowhere."""
    if step.kind in ("item", "global"):
        table = holder.__globals__ if step.kind == "global" else holder
        if old is MISSING:
            del table[step.key]
        else:
            table[step.key] = old
    elif step.kind == "closure":
        cell = holder.__closure__[holder.__code__.co_freevars.index(step.key)]
        if old is MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = old
    elif old is MISSING:
        delattr(holder, step.key)
    else:
        setattr(holder, step.key, old)
