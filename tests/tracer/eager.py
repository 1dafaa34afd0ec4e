"""Traces against torch eager: values, gradients, structure, and what tracing must not touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gradof.autodiff.compose import pullback_graph
from gradof.codegen import compile_graph
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.passes.pipeline import run_passes
from gradof.tracer.core.pytree import flatten
from gradof.tracer.core.result import InputOut, TensorOut, Traced
from gradof.tracer.torch.tracer import trace_torch

SEED = 7
Arrays = list[np.ndarray[Any, Any]]


def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """A verified trace whose text parses back to the same graph."""
    traced = trace_torch(fn, args, kwargs)
    verify(traced.graph)
    assert parse_graph(str(traced.graph)) == traced.graph
    return traced


def graph_inputs(traced: Traced, fn: Any, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The real tensors behind the graph's inputs."""
    leaves, _ = flatten((args, {}))
    return [leaves[i] for i in traced.arg_leaves] + [o.read(fn) for o in traced.origins]


def run(graph: Graph, arrays: Arrays) -> Arrays:
    """Run a graph on copies of numpy arrays."""
    run_passes(graph, ("expand-composites",))
    verify(graph)
    torch.manual_seed(SEED)
    results = compile_graph(graph, library="torch")(*[a.copy() for a in arrays])
    return [np.asarray(r) for r in results]


def check(fn: Callable[..., Any], *args: Any, rtol: float = 2e-5, atol: float = 2e-6) -> Traced:
    """Values and gradients of a trace equal eager's; no input is changed by tracing."""
    traced = trace(fn, *args)
    real = graph_inputs(traced, fn, args)
    before = [t.detach().clone() for t in real]
    again = trace(fn, *args)
    assert again.graph == traced.graph, "tracing twice gives two graphs"
    assert all(torch.equal(a, b) for a, b in zip(real, before, strict=True)), "tracing changed data"
    arrays = [t.detach().numpy().copy() for t in real]
    results = run(again.graph, arrays)
    torch.manual_seed(SEED)
    wants = [w for w in flatten(fn(*args))[0] if isinstance(w, torch.Tensor)]
    outs = [o for o in traced.outputs if isinstance(o, (TensorOut, InputOut))]
    assert len(wants) == len(outs)
    seeds: dict[int, torch.Tensor] = {}
    for out, want in zip(outs, wants, strict=True):
        if isinstance(out, InputOut):
            assert any(want is t for t in real)
            continue
        got = results[out.index]
        assert (got.shape, got.dtype) == (tuple(want.shape), want.detach().numpy().dtype)
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=rtol, atol=atol)
        assert out.requires_grad == want.requires_grad
        if want.requires_grad:
            seeds[out.index] = want
    for back in traced.writebacks:
        now = real[back.input].detach().numpy()
        np.testing.assert_allclose(results[back.output], now, rtol=rtol, atol=atol)
    changed = {back.input for back in traced.writebacks}
    for i, (tensor, old) in enumerate(zip(real, before, strict=True)):
        assert i in changed or torch.equal(tensor, old), "eager changed an input, the trace did not"
    if seeds:
        check_gradients(traced, real, arrays, seeds)
    return traced


def check_gradients(
    traced: Traced, real: list[torch.Tensor], arrays: Arrays, seeds: dict[int, torch.Tensor]
) -> None:
    """The pullback of the trace, with random cotangents, equals torch.autograd.grad."""
    wrt = [i for i, t in enumerate(real) if t.requires_grad]
    assert wrt, "nothing to differentiate by"
    generator = torch.Generator().manual_seed(3)
    cotangents = [torch.randn(s.shape, generator=generator, dtype=s.dtype) for s in seeds.values()]
    wants = torch.autograd.grad(
        list(seeds.values()), [real[i] for i in wrt], cotangents, allow_unused=True
    )
    pullback = pullback_graph(traced.graph, wrt, list(seeds))
    grads = run(pullback, [*arrays, *(c.numpy() for c in cotangents)])
    for i, got, want in zip(wrt, grads, wants, strict=True):
        expected = np.zeros_like(got) if want is None else want.numpy()
        np.testing.assert_allclose(
            got, expected, rtol=2e-4, atol=2e-5, err_msg=f"gradient of {traced.input_names[i]}"
        )
