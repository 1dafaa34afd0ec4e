"""Passes by name, in a given order, verified between when GRADOF_CHECK=1 (as in the tests).

>>> run_passes(graph, ["expand-composites", "common-subexpression", "eliminate-dead-code"])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

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
from gradof.passes.join_slices import join_slices
from gradof.passes.transpose_products import transpose_products

Pass = Callable[[Graph], bool]

PASSES: dict[str, Pass] = {
    "canonicalize": canonicalize,
    "common-subexpression": common_subexpression,
    "constant-pooling": constant_pooling,
    "eliminate-dead-code": eliminate_dead_code,
    "expand-composites": expand_composites,
    "forget-checkpoints": forget_checkpoints,
    "forget-custom-rules": forget_custom_rules,
    "join-slices": join_slices,
    "transpose-products": transpose_products,
}

CLEAN_UP = ("canonicalize", "common-subexpression", "constant-pooling", "eliminate-dead-code")


def checking() -> bool:
    """Whether graphs are verified between passes."""
    return os.environ.get("GRADOF_CHECK") == "1"


@few_collections()
def run_passes(graph: Graph, names: Sequence[str]) -> bool:
    """Run passes in order; TargetError for an unknown name. Returns whether anything changed."""
    changed = False
    for name in names:
        if name not in PASSES:
            raise TargetError(f"unknown pass {name!r}", hint="known: " + ", ".join(sorted(PASSES)))
        changed |= PASSES[name](graph)
        if checking():
            verify(graph)
    return changed
