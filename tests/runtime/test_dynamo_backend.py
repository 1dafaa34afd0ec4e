"""torch.compile(fn, backend="gradof"): values and gradients to the second as eager's, by our df."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradof.errors import CustomRuleError, InputError
from gradof.runtime import torch_dynamo_backend
from gradof.runtime.function import Differentiated
from gradof.runtime.torch_dynamo_backend import CapturedGraph, gradof_backend

ROOT = Path(__file__).parents[2]
# Dynamo's own: of what comes out of a graph that ended, and of how it stands for a Function's ctx
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
Graphs = list[CapturedGraph]


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Graphs]:
    """The graphs that were compiled, in order."""
    made: Graphs = []

    class Noted(CapturedGraph):
        def __init__(self, compiled: Differentiated, sized: bool) -> None:
            super().__init__(compiled, sized)
            made.append(self)

    monkeypatch.setattr(torch_dynamo_backend, "CapturedGraph", Noted)
    reset: Any = torch._dynamo.reset
    reset()
    yield made
    reset()


def _compiled(fn: Any, **options: Any) -> Any:
    return torch.compile(fn, backend=gradof_backend, **options)


def _draws(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]


def _derivatives(fn: Callable[..., Any], x: Any, w: Any) -> list[Any]:
    """Value, gradients and second derivatives of fn, whose random numbers begin anew."""
    torch.manual_seed(5)
    value = fn(x, w)
    grads = torch.autograd.grad((value**2).sum(), [x, w], create_graph=True)
    cubes = (grads[0] ** 3).sum() + (grads[1] ** 3).sum()
    return [value, *grads, *torch.autograd.grad(cubes, [x, w])]


def _like_eager(fn: Callable[..., Any], graphs: Graphs, want: Any = None) -> None:
    fast, (x, w) = _compiled(fn), _draws(0, (4, 3), (3, 3))
    for run in range(3):
        have = _derivatives(fast, x, w)
        for a, b in zip(have, _derivatives(want or fn, x, w), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
        assert graphs and all(g.compiled.cache_info().misses == 1 for g in graphs)
        assert all(g.compiled.cache_info().backward_runs >= 3 * (run + 1) for g in graphs)


class Scaled(torch.autograd.Function):
    """exp(x) * k, with a backward that is one of ours to differentiate."""

    @staticmethod
    def forward(ctx: Any, x: Any, k: float) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        ctx.k = k
        return y * k

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * y * ctx.k, None


_SCALED: Any = Scaled.apply


def _no_grad(x: Any, w: Any) -> Any:
    with torch.no_grad():
        z = torch.tanh(x @ w)
    return z * (x @ w)


def _in_place(x: Any, w: Any) -> Any:
    y = (x @ w).clone()
    y[0] = 1.0
    y.mul_(2)
    return y.sin()


def _broken(x: Any, w: Any) -> Any:
    y = (x @ w).tanh()
    torch._dynamo.graph_break()
    return (y @ w).sin()


def _recorded(x: Any, w: Any) -> Any:
    with torch.profiler.record_function("a part"):
        return (x @ w).tanh()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "chain": lambda x, w: torch.tanh(x @ w) * x,
    "attention": lambda x, w: nn.functional.scaled_dot_product_attention(
        (x @ w)[None, None], x[None, None], x[None, None], is_causal=True
    ),
    "dropout": lambda x, w: nn.functional.dropout(torch.tanh(x @ w), 0.5),
    "checkpoint": lambda x, w: checkpoint(
        lambda a, b: nn.functional.dropout(torch.tanh(a @ b), 0.5), x, w, use_reentrant=False
    ),
    "Function": lambda x, w: _SCALED(x @ w * 0.1, 2.0),
    "gradient inside": lambda x, w: torch.autograd.grad(
        ((x @ w) ** 3).sum(), x, create_graph=True
    )[0],
    "no_grad": _no_grad, "in place": _in_place, "graph break": _broken, "recorded": _recorded,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_to_the_second_derivative(name: str, graphs: Graphs) -> None:
    if name == "attention":  # the second derivative of torch's kernel is not implemented
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            _like_eager(FUNCTIONS[name], graphs)
    else:
        _like_eager(FUNCTIONS[name], graphs)


def test_control_flow_has_the_gradient_of_the_branch_taken(graphs: Graphs) -> None:
    """torch's own cond and while_loop lose the second derivative: Python's is the judge."""
    def fn(x: Any, w: Any) -> Any:
        y = torch.cond(x.sum() < 1e9, lambda a: a.sin(), lambda a: a.cos(), (x @ w,))
        loop: Any = torch.while_loop
        return loop(
            lambda i, a: i < 2, lambda i, a: (i + 1, a * a.cos()), (torch.tensor(0), y)
        )[1]

    def python(x: Any, w: Any) -> Any:
        y = (x @ w).sin()
        for _ in range(2):
            y = y * y.cos()
        return y

    _like_eager(fn, graphs, python)


class Once(torch.autograd.Function):
    """The sine, with a gradient that is not to be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x.cos()


_ONCE: Any = Once.apply


def test_a_function_once_differentiable_is_so_within_a_graph() -> None:
    """Dynamo drops the mark; without it the second derivative would be there, or half of it."""
    fast, (x,) = _compiled(lambda x: _ONCE(x) * 2), _draws(0, (3,))
    (grad,) = torch.autograd.grad(fast(x).sum(), x, create_graph=True)
    torch.testing.assert_close(grad, 2 * x.cos())
    with pytest.raises(CustomRuleError, match="once_differentiable"):
        torch.autograd.grad(grad.sum(), x)


def test_a_module_trains_as_in_eager(graphs: Graphs) -> None:
    """Parameters are inputs, buffers are changed, and eval mode is another graph."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 1)
    ).double()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    (x,) = _draws(1, (16, 3))

    def train(run: Any) -> list[torch.Tensor]:
        model.load_state_dict(state)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(2)
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            (run(x) ** 2).mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            return [run(x), *(v.clone() for v in model.state_dict().values())]

    have = train(_compiled(model))
    runs = [g.compiled.cache_info() for g in graphs]
    assert [r.misses for r in runs] == [1, 1] and runs[0].backward_runs == 5
    for a, b in zip(have, train(model), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_arguments_changed_and_handed_back(graphs: Graphs) -> None:
    def fn(x: Any, y: Any) -> Any:
        y.add_(x.detach())
        return (x * y).sum(), y, x, y.t()

    fast, (x, y) = _compiled(fn), _draws(0, (3, 2), (3, 2))
    for _ in range(3):
        mine, others = y.detach().clone(), y.detach().clone()
        have, want = fast(x, mine), fn(x, others)
        torch.testing.assert_close([*have, mine], [*want, others])
        assert have[1] is mine and have[2] is x
        torch.testing.assert_close(*(torch.autograd.grad(v[0], x)[0] for v in (have, want)))
    assert len(graphs) == 1 and graphs[0].compiled.cache_info().backward_runs == 3


def test_sizes_that_vary(graphs: Graphs) -> None:
    """Dynamo opens a size that has changed; each size is traced once."""
    def fn(x: Any, w: Any) -> Any:
        return (torch.tanh(x @ w) / x.shape[0]).reshape(-1)

    fast, (w,) = _compiled(fn), _draws(0, (3, 2))
    for n in (4, 5, 6, 5, 7, 6, 4):
        (x,) = _draws(n, (n, 3))
        have, want = fast(x, w), fn(x, w)
        torch.testing.assert_close(have, want)
        grads = [torch.autograd.grad(v.sum(), [x, w]) for v in (have, want)]
        torch.testing.assert_close(*grads)
    assert len(graphs) == 2, "one of the first size, one of all others"
    assert graphs[1].compiled.cache_info().misses == 4
    assert sum(g.compiled.cache_info().backward_runs for g in graphs) == 7


def test_what_dynamo_guards_is_another_graph(graphs: Graphs) -> None:
    layer = nn.Linear(3, 2).double()
    fast, (x,) = _compiled(layer), _draws(0, (4, 3))
    for _ in range(2):
        layer.weight.requires_grad_(False)
        assert torch.autograd.grad(fast(x).sum(), layer.bias)[0].tolist() == [4.0, 4.0]
        layer.weight.requires_grad_(True)
        assert torch.autograd.grad(fast(x).sum(), layer.weight)[0].shape == (2, 3)
        with torch.no_grad():
            assert not fast(x).requires_grad
        with torch.inference_mode():
            assert fast(x).is_inference()
        strided = torch.randn(3, 4, dtype=torch.float64).t()
        torch.testing.assert_close(fast(strided), layer(strided))
    assert len(graphs) == 5 and all(g.compiled.cache_info().misses == 1 for g in graphs)


def test_calls_after_the_first_are_not_checked_again(graphs: Graphs) -> None:
    """Dynamo has checked them."""
    fast, (x, w) = _compiled(lambda x, w: x @ w), _draws(0, (4, 3), (3, 3))
    for _ in range(4):
        fast(x, w)
    assert graphs[0].compiled.cache_info().hits <= 4
    assert type(graphs[0]._run).__name__ == "Prepared"


def test_a_graph_without_tensors_to_read_is_run() -> None:
    torch.testing.assert_close(_compiled(lambda: torch.eye(3) * 2)(), torch.eye(3) * 2)


def test_options_are_those_of_differentiate(graphs: Graphs) -> None:
    (x,) = _draws(0, (3,))
    fast = _compiled(lambda x: torch.where(x == x, x, x.log()).sum(),
                     options={"numerics": "nan_safe", "memory_budget": 0.5})  # fmt: skip
    assert torch.autograd.grad(fast(x), x)[0].tolist() == [1.0] * 3
    assert graphs[0].compiled.nan_safe
    for wrong in ({"options": {"speed": 1}}, {"mode": "max-autotune"}):
        with pytest.raises(Exception) as caught:  # Dynamo says that the backend refused
            _compiled(torch.sin, **wrong)(x)
        chain = [caught.value, caught.value.__cause__, caught.value.__context__]
        assert any(isinstance(e, InputError) for e in chain)


def test_torch_finds_it_by_name(tmp_path: Path) -> None:
    """The entry point of pyproject.toml, in a distribution as an installer leaves it."""
    group = "torch_dynamo_backends"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    point = project["entry-points"][group]["gradof"]
    info = tmp_path / "gradof_here-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradof-here\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\ngradof = {point}\n")
    code = """
import sys
import torch
assert "gradof" not in sys.modules and "gradof" in torch.compiler.list_backends()
x = torch.ones(3, requires_grad=True)
(g,) = torch.autograd.grad(torch.compile(lambda x: (x**3).sum(), backend="gradof")(x), x,
                           create_graph=True)
print(torch.autograd.grad(g.sum(), x)[0].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
    )  # fmt: skip
    assert done.stdout.strip() == "[6.0, 6.0, 6.0]", done.stderr[-2000:]
