"""Passes by name, in a given order, verified between when GRADOF_CHECK=1 (as in the tests).

>>> run_passes(graph, ["expand-composites", "common-subexpression", "eliminate-dead-code"])
>>> with watching(lambda name, graph, changed: print(name, changed)):
...     run_passes(graph, PREPARE)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from gradof.errors import TargetError
from gradof.ir.core import Graph
from gradof.ir.garbage import few_collections
from gradof.ir.verify import verify
from gradof.passes.canonicalize import canonicalize
from gradof.passes.common_subexpression import common_subexpression
from gradof.passes.constant_pooling import constant_pooling
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.expand_composites import expand_composites
from gradof.passes.forget_checkpoints import forget_checkpoints
from gradof.passes.forget_custom_rules import forget_custom_rules
from gradof.passes.hoist_slices import hoist_slices
from gradof.passes.join_slices import join_slices
from gradof.passes.open_calls import open_calls
from gradof.passes.roll_loops import roll_loops
from gradof.passes.transpose_products import transpose_products
from gradof.passes.unroll_loops import unroll_loops
from gradof.passes.write_in_place import write_in_place

Pass = Callable[[Graph], bool]

PASSES: dict[str, Pass] = {
    "canonicalize": canonicalize,
    "common-subexpression": common_subexpression,
    "constant-pooling": constant_pooling,
    "eliminate-dead-code": eliminate_dead_code,
    "expand-composites": expand_composites,
    "forget-checkpoints": forget_checkpoints,
    "forget-custom-rules": forget_custom_rules,
    "hoist-slices": hoist_slices,
    "join-slices": join_slices,
    "open-calls": open_calls,
    "roll-loops": roll_loops,
    "transpose-products": transpose_products,
    "unroll-loops": unroll_loops,
    "write-in-place": write_in_place,
}

CLEAN_UP = ("canonicalize", "common-subexpression", "constant-pooling", "eliminate-dead-code")
# What is done to f, and to df, before a target is chosen: primitives only, each value once.
PREPARE = (
    "forget-checkpoints", "open-calls", "forget-custom-rules", "expand-composites", *CLEAN_UP,
    "join-slices", "transpose-products", "write-in-place",
)  # fmt: skip

Watcher = Callable[[str, Graph, bool], None]  # a pass by name, its graph, and whether it changed it
_WATCHER: ContextVar[Watcher | None] = ContextVar("gradof_watcher", default=None)


def checking() -> bool:
    """Whether graphs are verified between passes."""
    return os.environ.get("GRADOF_CHECK") == "1"


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` after each pass of this thread, whatever runs it."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def is_watched() -> bool:
    """Whether `watching` is on in this thread."""
    return _WATCHER.get() is not None


def after_pass(name: str, graph: Graph, changed: bool) -> None:
    """What follows each pass: the graph is verified, if that is asked for, and shown."""
    if checking():
        verify(graph)
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(name, graph, changed)


@few_collections()
def run_passes(graph: Graph, names: Sequence[str]) -> bool:
    """Run passes in order; TargetError for an unknown name. Returns whether anything changed."""
    changed = False
    for name in names:
        if name not in PASSES:
            raise TargetError(f"unknown pass {name!r}", hint="known: " + ", ".join(sorted(PASSES)))
        here = PASSES[name](graph)
        after_pass(name, graph, here)
        changed |= here
    return changed
