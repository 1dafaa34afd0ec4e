"""What passes erase is freed at once: no cycle leads from an erased node back to it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from gradof.ir.core import Node
from gradof.ir.parser import parse_graph


class _Node(Node):
    """One that can be asked for."""

    __slots__ = ("__weakref__",)


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("blocks", [0, 2])
@pytest.mark.parametrize("many", [False, True])
def test_an_erased_node_is_gone(many: bool, blocks: int) -> None:
    graph = parse_graph("graph f(%x : f32[3]): return (%x)")
    node: Any = _Node("exp", [graph.inputs[0]])
    node.add_output(graph.inputs[0].type)
    for _ in range(blocks):
        block = node.add_block()
        inner = Node("exp", [block.add_param(graph.inputs[0].type)])
        block.returns.set_inputs([inner.add_output(graph.inputs[0].type)])
        block.append(inner)
        del block, inner
    graph.block.append(node)
    gone = weakref.ref(node)
    if many:
        graph.block.erase_all([node])
    else:
        node.erase()
    del node
    assert gone() is None
    assert str(graph) == "graph f(%x : f32[3]):\n  return (%x)\n"
