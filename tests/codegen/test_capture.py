"""CUDA graphs without CUDA: a stand-in that replays over fixed memory, as a graph does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.codegen.host.cuda_graph import CapturedExecutable, checked_device
from gradof.codegen.host.torch_emit import emit_torch
from gradof.errors import CodegenError, DeviceError, GradofError
from gradof.ir.parser import parse_graph
from gradof.runtime import plan as plans

TEXT = """graph f(%x : f32[3]@cuda:0, %w : f32[3]@cuda:0):
  %a : f32[3]@cuda:0 = mul(%x, %w)
  %y : f32[3]@cuda:0 = tanh(%a)
  return (%y, %a)"""


class Replayed:
    """What a CUDA graph does: the same work from the same memory to the same memory."""

    made: list[Replayed]

    def __init__(self, run: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> None:
        self.run, self.inputs = run, inputs
        self.outputs = run(*inputs)
        self.log: list[str] = []
        self.made.append(self)

    def before(self) -> None:
        self.log.append("before")

    def replay(self) -> None:
        self.log.append("replay")
        for mine, new in zip(self.outputs, self.run(*self.inputs), strict=True):
            mine.copy_(new)

    def after(self) -> None:
        self.log.append("after")


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Replayed]:
    found: list[Replayed] = []
    monkeypatch.setattr(Replayed, "made", found, raising=False)
    return found


def captured(text: str = TEXT) -> CapturedExecutable:
    """The graph's code for CPU tensors, captured as the graph on its device would be."""
    here = emit_torch(parse_graph(text.replace("@cuda:0", "")), fused=False)
    return CapturedExecutable(here, parse_graph(text), Replayed)


def test_the_first_call_runs_the_second_records_the_others_replay(made: list[Replayed]) -> None:
    run = captured()
    results = []
    for k in range(4):
        x, w = torch.randn(3), torch.randn(3)
        results.append((run(x, w), (torch.tanh(x * w), x * w)))
        assert len(made) == (k > 0)
        for have, want in results:  # the earlier ones, too: nothing of theirs was written to
            torch.testing.assert_close(have, want)
    assert made[0].log == ["replay", "after", *["before", "replay", "after"] * 2]


def test_no_memory_of_the_graph_is_handed_out_or_read_later(made: list[Replayed]) -> None:
    run = captured()
    x, w = torch.randn(3), torch.randn(3)
    run(x, w)
    have = run(x, w)
    own = {t.data_ptr() for t in (*made[0].inputs, *made[0].outputs)}
    assert not own & {t.data_ptr() for t in (x, w, *have)}
    have[0].zero_()
    torch.testing.assert_close(run(x, w)[0], torch.tanh(x * w))


def test_operands_of_any_strides_are_copied_in() -> None:
    run = captured(TEXT.replace("f32[3]", "f32[3,3]"))
    x = torch.randn(3, 3)
    for given in (x, x.T, x[:1].expand(3, 3), x):
        torch.testing.assert_close(run(given, x)[1], given * x)


def test_operands_that_require_grad_are_not_recorded() -> None:
    run = captured()
    x, w = torch.randn(3, requires_grad=True), torch.randn(3)
    for _ in range(3):
        with torch.no_grad():
            assert not any(t.requires_grad for t in run(x, w))


def test_what_fails_to_be_captured_says_so() -> None:
    def refuse(run: Any, inputs: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    here = emit_torch(parse_graph(TEXT.replace("@cuda:0", "")), fused=False)
    run = CapturedExecutable(here, parse_graph(TEXT), refuse)
    run(torch.ones(3), torch.ones(3))
    with pytest.raises(CodegenError, match="f cannot be captured in a CUDA graph: operation not"):
        run(torch.ones(3), torch.ones(3))


BAD: dict[str, tuple[str, type[GradofError], str]] = {
    "the CPU": (
        "graph f(%x : f32[3]):\n %y : f32[3] = tanh(%x)\n return (%y)", DeviceError,
        "the tensors of f are on the CPU",
    ),
    "a number": (
        "graph f(%x : f32[3]@cuda:0, %lr : f32[]):\n %m : f32[]@cuda:0 = "
        "to_device[device='cuda:0'](%lr)\n %y : f32[3]@cuda:0 = mul(%x, %m)\n return (%y)",
        CodegenError, "%lr of f is on the CPU",
    ),
    "a guard": (
        "graph f(%x : f32[]@cuda:0):\n Guard[value=1.0, number=0](%x)\n return (%x)",
        CodegenError, "Guard cannot be part of a CUDA graph: its value is read by Python",
    ),
    "an opaque op": (
        "graph f(%x : f32[3]@cuda:0):\n %y : f32[3]@cuda:0 = Opaque[name='aten::cumprod', "
        "call=(('t', 0), 0, ('dict',)), types=((f32, (3,)),), vjps=()](%x)\n return (%y)",
        CodegenError, "aten::cumprod cannot be part of a CUDA graph",
    ),
    "a seed": (
        "graph f(%x : f32[3]@cuda:0):\n random_seed[seed=3]()\n return (%x)",
        CodegenError, "random_seed cannot be part",
    ),
    "two devices": (
        "graph f(%x : f32[3]@cuda:0):\n %y : f32[3]@cuda:1 = to_device[device='cuda:1'](%x)\n"
        " return (%y)", CodegenError, "f computes on cuda:0 and cuda:1",
    ),
    "a move to the CPU": (
        "graph f(%x : f32[3]@cuda:0):\n %y : f32[3] = to_device[device='cpu'](%x)\n return (%y)",
        CodegenError, "moved to the CPU",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_captured_is_named(what: str) -> None:
    text, error, message = BAD[what]
    with pytest.raises(error, match=message):
        checked_device(parse_graph(text))


def test_constants_moved_once_may_be_captured() -> None:
    graph = parse_graph("""graph f(%x : f32[2]@cuda:0):
      %c : f32[2] = Constant[value=dense<f32[2]>[1.0, 2.0]]()
      %d : f32[2]@cuda:0 = to_device[device='cuda:0'](%c)
      %y : f32[2]@cuda:0 = mul(%x, %d)
      return (%y)""")
    assert checked_device(graph) == "cuda:0"


def test_cpu_tensors_are_refused_before_anything_is_returned() -> None:
    compiled = differentiate(lambda x: x.tanh(), cuda_graph=True)
    for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
        with pytest.raises(DeviceError, match=r"cuda_graph=True, but the tensors of .* on the CPU"):
            compiled(x)
    import numpy as np

    with pytest.raises(DeviceError, match="on the CPU"):
        differentiate(lambda x: np.tanh(x), cuda_graph=True)(np.ones(3))


def test_gradients_accumulate_and_saved_values_stay(
    monkeypatch: pytest.MonkeyPatch, made: list[Replayed]
) -> None:
    def on_the_cpu(run: Any, graph: Any) -> CapturedExecutable:
        stand_in = CapturedExecutable.__new__(CapturedExecutable)
        monkeypatch.setattr("gradof.codegen.host.cuda_graph.checked_device", lambda graph: "cpu")
        stand_in.__init__(run, graph, Replayed)  # type: ignore[misc]
        return stand_in

    monkeypatch.setattr(plans, "CapturedExecutable", on_the_cpu)
    monkeypatch.setattr(
        plans, "compile_graph",
        lambda graph, library, name, shown, consumed: emit_torch(graph, name, fused=False),
    )

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * w).exp()

    compiled = differentiate(loss, cuda_graph=True)
    w = torch.randn(4)
    mine, theirs = w.clone().requires_grad_(), w.clone().requires_grad_()
    xs = [torch.randn(4) for _ in range(6)]
    for x in xs:
        compiled(x, mine).sum().backward()
        loss(x, theirs).sum().backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert len(made) == 2  # f and df
    several = [compiled(x, mine) for x in xs]  # forwards first, then the backwards
    others = [loss(x, theirs) for x in xs]
    for value, other in zip(reversed(several), reversed(others), strict=True):
        torch.testing.assert_close(value, other)
        got = torch.autograd.grad(value.sum(), mine, retain_graph=True)
        torch.testing.assert_close(got, torch.autograd.grad(other.sum(), theirs))
        torch.testing.assert_close(torch.autograd.grad(value.sum(), mine), got)
    assert len(made) == 2


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_training_on_a_device(dropout: float) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(torch.tanh(x @ w), (16,))
        return torch.nn.functional.dropout(y, dropout).exp().mean() * 100

    w = torch.randn(8, 16, device="cuda")
    mine, theirs = w.clone().requires_grad_(), w.clone().requires_grad_()
    compiled = differentiate(loss, cuda_graph=True)
    for step in range(6):
        x = torch.randn(32, 8, device="cuda")
        stream: Any = torch.cuda.Stream() if step == 4 else torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            torch.cuda.synchronize()
            for call, weights in ((compiled, mine), (loss, theirs)):
                torch.manual_seed(step)
                call(x, weights).backward()
            torch.cuda.synchronize()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)
    with pytest.raises(CodegenError, match="on the CPU"):
        differentiate(lambda x, n: x * n, cuda_graph=True)(x, torch.tensor(2.0))
