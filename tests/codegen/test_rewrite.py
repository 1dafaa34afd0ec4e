"""What is rewritten for a device keeps its numbers: graphs by chance, beside numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradof import tuning
from gradof.autodiff.compose import pullback_graph
from gradof.codegen import compile_graph
from gradof.codegen.host.torch_emit import emit_torch
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LoopNest
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Value
from gradof.ir.types import F64, TensorType
from gradof.passes.pipeline import CLEAN_UP, run_passes

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
SIZES = (2, 3, 4, 6)


class Reference:
    """A kernel that is the loop nest's reference."""

    source = ""

    def __init__(self, nest: LoopNest, device: str) -> None:
        self.nest = nest

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = run_nest(self.nest, [t.numpy(force=True) for t in tensors])
        return tuple(torch.from_numpy(np.array(a)) for a in made)


class _Growing:
    """A graph of what is rewritten, node by node: views, parts, sums, and cells between them."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.graph = draw, Graph("f")
        self.builder = Builder(self.graph.block)
        shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=3)))
        self.pool: list[Value] = []
        for k in range(3):
            mine = shape[draw(st.integers(0, 1)) :] if k else shape
            self.pool.append(self.graph.block.add_param(TensorType(F64, mine), f"x{k}"))

    def shape(self, value: Value) -> tuple[int, ...]:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        return value.type.shape

    def cells(self, x: Value) -> Value:
        if self.draw(st.booleans()):
            return self.builder.emit(self.draw(st.sampled_from(["tanh", "neg", "copy"])), x)
        fits = [
            v for v in self.pool if len(self.shape(v)) <= len(self.shape(x)) and all(
                a in (1, b) for a, b in zip(self.shape(v)[::-1], self.shape(x)[::-1], strict=False)
            )
        ]  # fmt: skip
        kind = self.draw(st.sampled_from(["add", "mul", "sub"]))
        return self.builder.emit(kind, x, self.draw(st.sampled_from(fits)))

    def sum(self, x: Value) -> Value:
        rank = len(self.shape(x))
        dims = self.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank))
        kind = self.draw(st.sampled_from(["sum", "sum", "amax"]))
        keep = self.draw(st.booleans())
        return self.builder.emit(kind, x, dims=tuple(sorted(dims)), keepdims=keep)

    def view(self, x: Value) -> Value:
        shape = self.shape(x)
        if self.draw(st.booleans()):
            order = self.draw(st.permutations(range(len(shape))))
            return self.builder.emit("permute", x, dims=tuple(order))
        n = int(np.prod(shape))
        first = self.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
        return self.builder.emit("reshape", x, shape=(first, n // first))

    def part(self, x: Value) -> Value:
        shape = self.shape(x)
        dim = self.draw(st.integers(0, len(shape) - 1))
        n = shape[dim]
        kind = self.draw(st.sampled_from(["slice", "unslice", "pad", "cat", "slice_scatter"]))
        start = self.draw(st.integers(0, n - 1))
        stop = self.draw(st.integers(start + 1, n))
        where = {"dim": dim, "start": start, "stop": stop, "step": 1}
        if kind == "slice":
            return self.builder.emit("slice", x, **where)
        if kind == "unslice":
            longer = tuple(n + 2 if k == dim else m for k, m in enumerate(shape))
            start = min(start, 2)
            where |= {"start": start, "stop": start + n}
            return self.builder.emit("unslice", x, shape=longer, **where)
        if kind == "pad":
            pads = tuple((start, 1) if k == dim else (0, 0) for k in range(len(shape)))
            return self.builder.emit("pad", x, pads=pads, value=0.5)
        if kind == "cat":
            like = [v for v in self.pool if self.shape(v) == shape]
            others = self.draw(st.lists(st.sampled_from(like), min_size=1, max_size=2))
            return self.builder.emit("cat", x, *others, dim=dim)
        src = self.builder.emit("tanh", self.builder.emit("slice", x, **where))
        return self.builder.emit("slice_scatter", x, src, **where)


@st.composite
def rewritten(draw: Any) -> Graph:
    """A graph with three inputs, of which some steps in a row are rewritten."""
    made = _Growing(draw)
    for _ in range(draw(st.integers(3, 9))):
        source = draw(st.sampled_from(made.pool[-3:]))
        if not made.shape(source):
            continue
        step = draw(st.sampled_from([made.cells, made.cells, made.sum, made.view, made.part]))
        new = step(source)
        if np.prod(made.shape(new)) <= 2000:
            made.pool.append(new)
    results = [v for v in made.pool[-3:] if v.node is not None]
    made.graph.set_outputs(results or [made.builder.emit("tanh", made.pool[0])])
    return made.graph


def values(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(v.type.shape) for v in graph.inputs]  # type: ignore[union-attr]


def agree(graph: Graph, given: Sequence[Any]) -> None:
    run_passes(graph, ("expand-composites", *CLEAN_UP))
    want = compile_graph(graph, backend="numpy")(*given)
    have = emit_torch(graph, make_kernel=Reference)(*map(torch.from_numpy, given))
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backward", [False, True])
@settings(max_examples=60, suppress_health_check=SLOW, deadline=None)
@given(graph=rewritten())
def test_numbers_stay(backward: bool, graph: Graph) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "SPLIT_CELLS", 2)
        if backward:
            every = range(len(graph.inputs)), range(len(graph.outputs))
            graph = pullback_graph(graph, *every)
        agree(graph, values(graph))
