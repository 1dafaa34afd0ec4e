"""No op makes an array of more elements than a few times its inputs and results: none is n by n.

Every value of f, df and the gradient of both is looked at, for ops that work along a dim of 3 000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradof
from gradof.autodiff.compose import pullback_graph
from gradof.ir.core import Graph
from gradof.ir.types import TensorType
from gradof.passes.expand_composites import expand_composites

N = 3000
FACTOR = 4  # times the elements of all inputs and results
F = torch.nn.functional
X = torch.linspace(-1, 1, N)
INDEX = torch.arange(N) * 7 % N
LENGTHS = torch.arange(N) % 4
SEGMENTS = torch.full((N // 3,), 3)

OPS: dict[str, Callable[[Any, Any], Any]] = {
    "scatter_reduce sum": lambda x, y: x.scatter_reduce(0, INDEX, y, "sum"),
    "scatter_reduce prod": lambda x, y: x.scatter_reduce(0, INDEX, y, "prod"),
    "scatter_reduce mean": lambda x, y: x.scatter_reduce(0, INDEX, y, "mean"),
    "scatter_reduce amax": lambda x, y: x.scatter_reduce(0, INDEX, y, "amax"),
    "scatter_reduce amin": lambda x, y: x.scatter_reduce(0, INDEX, y, "amin"),
    "index_reduce prod": lambda x, y: x.index_reduce(0, INDEX, y, "prod"),
    "index_reduce amax": lambda x, y: x.index_reduce(0, INDEX, y, "amax"),
    "segment_reduce": lambda x, y: torch.segment_reduce(x * y, "max", lengths=SEGMENTS),
    "index_add": lambda x, y: x.index_add(0, INDEX, y),
    "index_copy": lambda x, y: x.index_copy(0, INDEX, y),
    "scatter": lambda x, y: x.scatter(0, INDEX, y),
    "gather": lambda x, y: x.gather(0, INDEX) * y,
    "index_put": lambda x, y: x.index_put((INDEX,), y, accumulate=True),
    "masked_scatter": lambda x, y: x.masked_scatter(x > 0, y),
    "masked_select": lambda x, y: x[x > 0] * 2 + y.sum(),
    "take": lambda x, y: x.take(INDEX) * y,
    "adaptive_avg_pool1d": lambda x, y: F.adaptive_avg_pool1d(x[None], N // 3 - 1).sum() * y,
    "adaptive_max_pool1d": lambda x, y: F.adaptive_max_pool1d(x[None], N // 3 - 1).sum() * y,
    "avg_pool1d": lambda x, y: F.avg_pool1d(x[None], 3, 2).sum() * y,
    "max_pool1d": lambda x, y: F.max_pool1d(x[None], 3, 2).sum() * y,
    "interpolate linear": lambda x, y: F.interpolate(
        x[None, None], size=2 * N + 1, mode="linear").sum() * y,
    "repeat_interleave": lambda x, y: torch.repeat_interleave(x, 3).sum() * y,
    "repeat_interleave by a tensor": lambda x, y: torch.repeat_interleave(x, LENGTHS).sum() * y,
    "sort": lambda x, y: x.sort().values * y,
    "topk": lambda x, y: x.topk(N // 2).values.sum() * y,
    "kthvalue": lambda x, y: x.kthvalue(N // 3).values * y,
    "median": lambda x, y: x.median() * y,
    "nanmedian": lambda x, y: x.nanmedian() * y,
    "quantile": lambda x, y: torch.quantile(x, 0.3) * y,
    "cumsum": lambda x, y: x.cumsum(0) * y,
    "cumprod": lambda x, y: (1 + x / N).cumprod(0) * y,
    "cummax": lambda x, y: x.cummax(0).values * y,
    "cummin": lambda x, y: x.cummin(0).values * y,
    "logcumsumexp": lambda x, y: x.logcumsumexp(0) * y,
    "prod": lambda x, y: (1 + x / N).prod() * y,
    "renorm": lambda x, y: x[None].renorm(2, 0, 1.0)[0] * y,
    "trapezoid": lambda x, y: torch.trapezoid(x, y),
    "diff": lambda x, y: x.diff().sum() * y,
    "roll": lambda x, y: x.roll(5) * y,
    "flip": lambda x, y: x.flip(0) * y,
    "std": lambda x, y: x.std() * y,
    "logsumexp": lambda x, y: x.logsumexp(0) * y,
    "norm": lambda x, y: x.norm(3) * y,
    "embedding": lambda x, y: F.embedding(INDEX, x[:, None])[:, 0] * y,
    "conv1d": lambda x, y: F.conv1d(x[None, None], y[None, None, :5])[0, 0],
    "fft": lambda x, y: torch.fft.fft(x).abs() * y,
    "cross_entropy": lambda x, y: F.cross_entropy(x[None], torch.tensor([3])) * y,
    "dist": lambda x, y: torch.dist(x, y),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, 0),
}  # fmt: skip


def _elements(value: Any) -> int:
    return value.type.size if isinstance(value.type, TensorType) else 1


def _largest(graph: Graph) -> tuple[int, str]:
    return max((_elements(v), node.kind) for node in graph.walk() for v in node.outputs)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", OPS)
def test_no_value_is_quadratic(name: str) -> None:
    fn = OPS[name]
    x, y = X.clone().requires_grad_(), X.roll(9).clone().requires_grad_()
    graph = gradof.differentiate(fn, strict=True).trace(x, y)
    bound = FACTOR * (sum(map(_elements, graph.inputs)) + sum(map(_elements, graph.outputs)))
    expand_composites(graph)
    for _ in range(3):  # f, f and df, and the gradient of both
        size, kind = _largest(graph)
        assert size <= bound, f"{kind} makes {size} elements"
        graph = pullback_graph(graph, [0, 1], [0])


@pytest.mark.parametrize("shape", [(3, 0), (0, 3, 0)])
def test_an_expanded_tensor_without_elements_may_be_changed(shape: tuple[int, ...]) -> None:
    x = torch.zeros(1, 0, requires_grad=True)
    out = gradof.differentiate(lambda x: (x * 1).expand(shape).add_(1), strict=True)(x)
    assert out.shape == shape and out.requires_grad
