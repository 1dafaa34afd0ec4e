"""Functions of torch.jit.script inside traced code: their ops are in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradof
from gradof.errors import GradofError, InputError
from gradof.ir.printer import print_graph

# torch.jit.script is to be torch.compile's, says torch
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def _scaled(x: torch.Tensor, k: float = 2.0, turned: bool = False) -> torch.Tensor:
    if turned:
        return -x * k
    if bool(x.sum() > 0):
        return x * k
    return x.sin() * k


def _gates(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (x @ w).chunk(2, 1)
    return torch.tanh(_scaled(a)), torch.sigmoid(b)


def _scripted(fn: Callable[..., Any]) -> Any:
    script: Any = torch.jit.script
    return script(fn)


def _checked(fast: Any, plain: Callable[..., Any], scripted: Any, runs: int) -> None:
    for run in range(runs):
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        w = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
        scripted(x, w)  # torch optimizes it after some calls
        have, want = fast(x, w), plain(x, w)
        torch.testing.assert_close(have, want)
        grads = [torch.autograd.grad(v, [x, w], create_graph=True) for v in (have, want)]
        torch.testing.assert_close(*grads)
        second = [torch.autograd.grad((g[0] ** 2).sum(), [x, w]) for g in grads]
        torch.testing.assert_close(*second)
        assert fast.cache_info().backward_runs >= 2 * (run + 1)


def test_a_function_inside() -> None:
    script = _scripted(_gates)
    fast: Any = gradof.differentiate(lambda x, w: (script(x, w)[0] * script(x, w)[1]).sum())
    _checked(fast, lambda x, w: (_gates(x, w)[0] * _gates(x, w)[1]).sum(), script, 6)
    graph = print_graph(fast.trace(torch.ones(3, 4).double(), torch.ones(4, 4).double()))
    assert "tanh" in graph and "Opaque" not in graph and "Guard" in graph


def test_a_scripted_function_itself() -> None:
    script = _scripted(_loss)
    _checked(gradof.differentiate(script), _loss, script, 4)


def _loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w).sum()


def test_names_and_defaults_of_arguments() -> None:
    script = _scripted(_scaled)
    fast: Any = gradof.differentiate(
        lambda x: script(x, turned=True).sum() + script(x, 3.0).sum() + script(k=0.5, x=x).sum()
    )
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(fast(x), x)[0].tolist() == [1.5] * 3


def test_outside_of_traces_torch_runs_it() -> None:
    script = _scripted(_scaled)
    gradof.differentiate(lambda x: script(x))(torch.ones(3))
    assert script(torch.ones(3)).tolist() == [2.0] * 3 and script.schema.arguments[1].name == "k"


def _picked(x: torch.Tensor, index: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.zeros(3, 4, dtype=x.dtype).index_add(0, index, x) * parts[0]


def test_tensors_from_outside_are_given_as_they_are() -> None:
    script = _scripted(_picked)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("index", torch.tensor([2, 0, 0]))
            self.scale = nn.Parameter(torch.ones(4, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> Any:
            return script(x, self.index, [self.scale])

    net = Net()
    fast: Any = gradof.differentiate(net, strict=True)
    for _ in range(2):
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        have, want = fast(x), net(x)
        torch.testing.assert_close(have, want)
        inputs = [x, net.scale]
        grads = [torch.autograd.grad(y.square().sum(), inputs) for y in (have, want)]
        torch.testing.assert_close(*grads)


def _by_storage(x: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()


def test_an_error_within_is_ours_and_not_of_torchs_interpreter() -> None:
    script = _scripted(_by_storage)
    with pytest.raises(GradofError, match=r"quantize_per_tensor|qint8"):
        gradof.differentiate(lambda x: script(x), strict=True)(torch.ones(3))


def _columns(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[:, index] * x[index][:, :1]


def test_an_index_behind_a_whole_dim() -> None:
    script, index = _scripted(_columns), torch.tensor([1, 2, 0])
    fast: Any = gradof.differentiate(lambda x: script(x, index), strict=True)
    for _ in range(2):  # torch's interpreter gives the index as a wrapper, which ended the process
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        have, want = fast(x), _columns(x, index)
        torch.testing.assert_close(have, want)
        grads = [torch.autograd.grad(y.sin().sum(), x) for y in (have, want)]
        torch.testing.assert_close(*grads)


def _part(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


FORKED = """
def once(x: torch.Tensor):
    a = torch.jit.fork(part, x)
    return torch.jit.wait(a) * 2

def often(x: torch.Tensor):
    futures: List[torch.jit.Future[torch.Tensor]] = []
    for k in range(3):
        futures.append(torch.jit.fork(part, x * k))
    made = torch.zeros_like(x)
    for future in futures:
        made = made * x + torch.jit.wait(future)
    return made

def within(x: torch.Tensor):
    futures = torch.jit.annotate(List[torch.jit.Future[torch.Tensor]], [])
    for row in x:
        futures.append(torch.jit.fork(once, row))
    return torch.stack([torch.jit.wait(future) for future in futures]).sum() + often(x)
"""


@pytest.mark.parametrize("name", ["once", "often", "within"])
def test_forked_parts_run_one_after_the_other(tmp_path: Any, name: str) -> None:
    space: dict[str, Any] = {"torch": torch, "List": list, "__name__": __name__}
    space["part"] = _scripted(_part)
    path = tmp_path / "forked.py"
    path.write_text(FORKED)
    exec(compile(path.read_text(), str(path), "exec"), space)
    for each in ("once", "often", "within"):
        space[each] = _scripted(space[each])
    script = space[name]
    fast: Any = gradof.differentiate(lambda x: script(x), strict=True)
    for _ in range(3):
        x = torch.randn(2, 3, requires_grad=True)
        have, want = fast(x), script(x)
        torch.testing.assert_close(have, want)
        grads = [torch.autograd.grad(y.cos().sum(), x) for y in (have, want)]
        torch.testing.assert_close(*grads)


def _of_numbers(x: torch.Tensor, n: int) -> torch.Tensor:
    scale = torch.stack([torch.tensor(float(i)) for i in range(n)]).sum()
    return torch.gt(x, torch.as_tensor(0.0)).to(x.dtype) * x * scale + torch.tensor(x.size(0))


def _of_lists(x: torch.Tensor, n: int) -> torch.Tensor:
    return x**n * torch.tensor([[1.0, 2.0], [3.0, 4.0]]) + torch.as_tensor([0.5, 1.5])


@pytest.mark.parametrize("plain", [_of_numbers, _of_lists])
def test_tensors_of_numbers_are_constants(plain: Any) -> None:
    script = _scripted(plain)
    fast: Any = gradof.differentiate(lambda x, n: script(x, n), strict=True)
    for n in (2, 3, 2):
        x = torch.randn(2, 2, requires_grad=True)
        have, want = fast(x, n), plain(x, n)
        torch.testing.assert_close(have, want)
        torch.testing.assert_close(*[torch.autograd.grad(y.sin().sum(), x) for y in (have, want)])


def _written_list(x: torch.Tensor) -> torch.Tensor:
    made = torch.tensor([1.0, 2.0], dtype=x.dtype)
    made[0] = 3.0
    return x * made


def _written_number(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(2.0).mul_(3.0)


def _asking(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(2.0, requires_grad=True)


def test_tensors_of_numbers_that_change_are_not_followed() -> None:
    for plain, text in [(_written_list, "makes a tensor of a list"),
                        (_written_number, "which gradof does not know"),
                        (_asking, "appeared from nowhere")]:  # fmt: skip
        script = _scripted(plain)
        with pytest.raises(GradofError, match=text):
            gradof.differentiate(lambda x, s=script: s(x), strict=True)(torch.ones(2))


def test_tensors_that_a_traced_function_keeps_are_read_at_each_call() -> None:
    kept = torch.ones(2)
    trace: Any = torch.jit.trace
    traced = trace(lambda x: x * kept * 2 + 3, torch.ones(2))
    fast: Any = gradof.differentiate(lambda x: traced(x), strict=True)
    for wanted in (5.0, 7.0, 11.0):
        x = torch.ones(2, requires_grad=True)
        value = fast(x)
        assert value.tolist() == traced(x).tolist() == [wanted] * 2
        assert torch.autograd.grad(value.sum(), x)[0].tolist() == [wanted - 3.0] * 2
        with torch.no_grad():
            kept.mul_(2)
    assert fast.cache_info().misses == 1


@pytest.mark.parametrize("made", [gradof.differentiate(_scaled), gradof.differentiate(nn.ReLU())])
def test_what_is_differentiated_is_not_scripted(made: Any) -> None:
    with pytest.raises(InputError, match="a function that is compiled already"):
        torch.jit.script(made)
