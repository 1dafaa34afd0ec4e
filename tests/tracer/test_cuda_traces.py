"""Traces of CUDA tensors, without a device: torch's fake tensors have its types and no data.

A trace on a device is the CPU's, but for devices and for what is moved to it. Fake tensors do not
require grad here: torch's autograd asks the device for a stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen.host.torch_emit import TorchExecutable, emit_torch
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.targets.choose import devices_of
from gradof.errors import DeviceError, UnsupportedOpError
from gradof.ir.attrs import Dense
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.passes.pipeline import CLEAN_UP, run_passes
from gradof.tracer.aten import types as torch_types
from gradof.tracer.torch import modes as torch_modes
from gradof.tracer.torch import random as torch_random
from gradof.tracer.torch import recorder as torch_recorder
from gradof.tracer.torch import tracer as torch_tracer
from gradof.tracer.torch.device import OneDevice
from gradof.tracer.torch.tracer import trace_torch

PREPARE = ("forget-checkpoints", "forget-custom-rules", "expand-composites", *CLEAN_UP)
Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, tensors are fake, and a trace takes them for plain ones."""
    plain = torch_modes.AtenMode._dispatch

    def dispatch(self: Any, func: Any, args: Any, kwargs: Any, site: Any) -> Any:
        if func is torch.ops.prim.device.default:  # how a fake tensor tells its device
            return func(*args, **kwargs)
        return plain(self, func, args, kwargs, site)

    def dense_of(tensor: Tensor) -> Dense:
        with unset_fake_temporarily():
            return torch_types.dense_of(tensor)

    monkeypatch.setattr(torch_recorder, "dense_of", dense_of)
    monkeypatch.setattr(torch_modes.AtenMode, "_dispatch", dispatch)
    monkeypatch.setattr(torch_tracer, "check_leaves", lambda *_: None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def traced(fn: Callable[..., Any], shapes: Any, device: str, dtype: torch.dtype) -> Graph:
    """The verified graph of a call with tensors of these shapes on a device."""
    args = tuple(torch.empty(shape, dtype=dtype, device=device) for shape in shapes)
    graph = trace_torch(fn, args, {}).graph
    verify(graph)
    return graph


class NoKernel:
    source = ""

    def __init__(self, nest: LoopNest, device: str) -> None:
        self.nest, self.device = nest, device


def code(graph: Graph) -> TorchExecutable:
    graph = clone_graph(graph)
    run_passes(graph, PREPARE)
    return emit_torch(graph, make_kernel=NoKernel)


def without_devices(graph: Graph) -> list[str]:
    """What the graph computes, line by line, without devices and moves."""
    text = re.sub(r"@cuda:0|#.*", "", str(graph)).replace("cuda:0", "cpu")
    named: dict[str, str] = {}
    lines = []
    for line in text.splitlines():
        move = re.match(r"\s*(%\S+) : \S+ = to_device\[device='cpu'\]\((%\S+)\)", line)
        if move is not None:
            named[move[1]] = named.get(move[2], move[2])
            continue
        for new, old in named.items():
            line = re.sub(rf"{re.escape(new)}(?![\w.])", old, line)
        lines.append(line)
    return _numbered(lines)


def _numbered(lines: list[str]) -> list[str]:
    seen: dict[str, str] = {}
    return [
        re.sub(r"%[\w.]+", lambda m: seen.setdefault(m[0], f"%{len(seen)}"), line).strip()
        for line in lines
    ]


def _in_place(x: Tensor, w: Tensor) -> Tensor:
    y = x * 2
    y.add_(w).mul_(torch.tensor(3.0))
    y.T.relu_()
    return y


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "mlp": (lambda x, w: torch.tanh(x @ w).sum(), ((4, 3), (3, 2))),
    "softmax": (lambda x: F.softmax(x * 2.5, -1), ((4, 3),)),
    "layer norm": (lambda x, w: F.layer_norm(x, (3,), w, w), ((4, 3), (3,))),
    "batch norm": (lambda x, w: F.batch_norm(x, None, None, w, training=True), ((4, 3), (3,))),
    "group norm": (lambda x: F.group_norm(x, 2), ((2, 4, 3),)),
    "cross-entropy": (
        lambda x: F.cross_entropy(x, torch.arange(4, device=x.device) % 3), ((4, 3),)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), ((2, 3, 5, 5), (4, 3, 3, 3))),
    "max pool": (lambda x: F.max_pool2d(x, 2), ((2, 3, 4, 4),)),
    "attention": (lambda q, k: F.softmax(q @ k.T / 8**0.5, -1) @ k, ((4, 8), (5, 8))),
    "a CPU number": (lambda x: x * torch.tensor(2.0) + torch.tensor([1, 2]).sum(), ((4, 3),)),
    "a CPU constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0]).to(x.device), ((4, 3),)),
    "in place": (_in_place, ((4, 3), (3,))),
    "scan": (lambda x: x.cumsum(0) * x.logcumsumexp(1), ((4, 3),)),
    "gather": (lambda x: x.gather(1, x.argmax(1, keepdim=True)), ((4, 3),)),
    "dropout": (lambda x: torch.native_dropout(x, 0.5, True)[0], ((4, 3),)),
    "linalg": (lambda x: torch.linalg.solve(x @ x.mT + 1, x).logsumexp(0), ((3, 3),)),
    "fft": (lambda x: torch.fft.rfft(x).abs().sum(), ((4, 8),)),
    "special": (lambda x: torch.lgamma(x) + torch.special.ndtri(x).erf(), ((4, 3),)),
    "branches of where": (lambda x: torch.where(x > 0, x, torch.zeros(())), ((4, 3),)),
}  # fmt: skip


# Called by other names, or made of other parts, where torch is built for CUDA. A build for the CPU
# alone shows less.
ON_CUDA: dict[str, tuple[Callable[..., Any], Any]] = {
    "rms norm": (lambda x, w: F.rms_norm(x, (3,), w, 1e-6), ((4, 3), (3,))),
    "rms norm, eps by the dtype": (lambda x: F.rms_norm(x, (3,)), ((4, 3),)),
    "LSTM cell": (
        lambda x, h, c, w, u, b: torch.lstm_cell(x, (h, c), w, u, b, b),
        ((2, 3), (2, 4), (2, 4), (16, 3), (16, 4), (16,))),
    "batch norm, given statistics": (
        lambda x, m, v, w: F.batch_norm(x, m, v, w, w), ((4, 3, 5), (3,), (3,), (3,))),
    "torch's attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v), ((1, 2, 8, 16),) * 3),
    "torch's dropout": (lambda x: F.dropout(x, 0.3), ((4, 3),)),
    "embedding": (lambda w: F.embedding(torch.arange(3, device=w.device), w), ((4, 3),)),
    "transposed convolution": (lambda x, w: F.conv_transpose2d(x, w), ((1, 2, 5, 5), (2, 3, 3, 3))),
    "index_fill": (
        lambda x: x.index_fill(0, torch.arange(2, device=x.device), 1.0), ((4, 3),)),
    "LU": (lambda x: torch.linalg.lu(x)[2], ((3, 3),)),
    "weight norm": (lambda v, g: torch._weight_norm(v, g, 0), ((4, 3), (4, 1))),
    "linear and gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), ((4, 3), (5, 3), (5,))),
}  # fmt: skip
SINGLE = ("linalg", "fft", "special")  # torch has them in single precision at least


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, torch.float32) for n in FUNCTIONS]
    + [(n, torch.bfloat16) for n in FUNCTIONS if n not in SINGLE],
)
def test_a_trace_on_a_device_is_the_cpus(name: str, dtype: torch.dtype) -> None:
    fn, shapes = FUNCTIONS[name]
    there = traced(fn, shapes, "cuda:0", dtype)
    here = traced(fn, shapes, "cpu", dtype)
    assert all(v.type.device == "cuda:0" for v in there.outputs if isinstance(v.type, TensorType))
    assert devices_of(here) == {"cpu"}
    assert without_devices(there) == without_devices(here)


@pytest.mark.parametrize("name", ON_CUDA)
def test_what_cuda_builds_call_otherwise_has_rules(name: str) -> None:
    fn, shapes = ON_CUDA[name]
    graph = traced(fn, shapes, "cuda:0", torch.float32)  # an opaque op would be a warning
    assert not [node for node in graph.nodes() if node.kind.startswith("Opaque")]
    code(graph)


def _layers(x: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    """Two layers, both directions."""
    y, last = torch.gru(x, h, list(weights), True, 2, 0.0, True, True, True)
    return y.tanh() + last.mean()


LAYERS = ((2, 5, 3), (4, 2, 4), *((12, 3), (12, 4), (12,), (12,)) * 2,
          *((12, 8), (12, 4), (12,), (12,)) * 2)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_of_a_recurrent_network_are_one_call(dtype: torch.dtype) -> None:
    """On the device; what is kept for the backward is a number of the CPU's."""
    graph = traced(_layers, LAYERS, "cuda:0", dtype)
    (call,) = [n for n in graph.nodes() if n.kind == "library_call"]
    assert [str(v.type).partition("@")[2] for v in call.outputs] == ["cuda:0", "cuda:0", ""]
    gradient = differentiate(graph, [True] * len(graph.inputs))
    df = specialize_autograd_zero(
        gradient.df, (True,) * len(gradient.df_input_vjps), (True,) * len(gradient.df_output_vjps)
    )
    backward = [n for n in df.graph.walk() if n.kind == "library_gradient"]
    assert len(backward) == 1 and all("cuda:0" in str(v.type) for v in backward[0].outputs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_f_and_df_stay_on_the_device(name: str) -> None:
    fn, shapes = FUNCTIONS[name]
    graph = traced(fn, shapes, "cuda:0", torch.float32)
    gradient = differentiate(graph, [True] * len(graph.inputs))
    df = specialize_autograd_zero(
        gradient.df, (True,) * len(gradient.df_input_vjps), (True,) * len(gradient.df_output_vjps)
    ).graph
    for half in (gradient.f, df):
        run = code(half)
        assert all(kernel.device == "cuda:0" for kernel in run.kernels)
        body = run.source.partition(f"def {run.name}(")[2]
        assert ".to(cuda_0" not in body, "moved at every call, and not once"
    assert {v.type.device for v in df.outputs if isinstance(v.type, TensorType)} == {"cuda:0"}


def test_the_gradient_of_a_cpu_number_goes_back_to_the_cpu() -> None:
    x, n = torch.empty(3, device="cuda:0"), torch.empty(())
    graph = trace_torch(lambda x, n: (x * n).sum(), (x, n), {}).graph
    gradient = differentiate(graph, [True, True])
    df = specialize_autograd_zero(gradient.df, (True,), (True, True)).graph
    devices = [v.type.device for v in df.outputs if isinstance(v.type, TensorType)]
    assert devices == ["cuda:0", "cpu"]
    assert ".to(cpu)" in code(df).source  # waits: the CPU reads it next
    assert ".to(cuda_0, non_blocking=True)" in code(gradient.f).source


def test_what_the_function_moves_is_moved() -> None:
    graph = traced(lambda x: (x.cpu().exp().to(x.device), x.double().cpu()), ((3,),), "cuda:0",
                   torch.float32)  # fmt: skip
    kinds = [node.kind for node in graph.nodes()]
    assert kinds.count("to_device") == 3 and "copy" not in kinds
    assert devices_of(graph) == {"cpu", "cuda:0"}


def test_tensors_on_two_devices_are_one_clear_error() -> None:
    x, y = torch.empty(3, device="cuda:0"), torch.empty(3, device="cuda:1")
    with pytest.raises(DeviceError) as caught:
        trace_torch(lambda x, y: x.sum(), (x, y), {})
    text = str(caught.value)
    assert "args[0] is on cuda:0, args[1] on cuda:1" in text
    assert "hint: move one of them with .to(device)" in text


def test_tensors_of_the_cpu_that_the_function_moves() -> None:
    x, y = torch.empty(4, 3, device="cuda:0"), torch.empty(3)
    graph = trace_torch(lambda x, y: x * y.exp().to(x.device) + y.to(x.device), (x, y), {}).graph
    verify(graph)
    assert [node.kind for node in graph.nodes()].count("to_device") == 2
    assert [v.type.device for v in graph.outputs if isinstance(v.type, TensorType)] == ["cuda:0"]
    code(graph)


def test_a_free_tensor_on_another_device_is_named() -> None:
    table = torch.empty(3, device="cuda:1")
    devices = OneDevice(test_a_free_tensor_on_another_device_is_named)
    devices.admit(torch.empty(3, device="cuda:0"), "args[0]")
    devices.admit(torch.empty(()), "args[1]")  # a number
    with pytest.raises(DeviceError, match="the closure variable table on cuda:1"):
        devices.admit(table, "the closure variable table")


def test_a_device_that_no_backend_serves() -> None:
    with pytest.raises(DeviceError, match=r"args\[0\] is on xpu:0; compiled functions run on"):
        OneDevice(print).admit(torch.empty(3, device="xpu:0"), "args[0]")


def test_what_a_cuda_generator_is_told_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    with unset_fake_temporarily():  # that a CPU's stands for
        plain = torch.Generator()
        recorder = torch_recorder.Recorder("fn")
        monkeypatch.setattr(torch_random, "_index", lambda generator: 0)
        monkeypatch.setattr(torch_random.RecordedGenerator, "_settle", lambda self: None)
        monkeypatch.setattr(torch.cuda, "default_generators", (plain,), raising=False)
        generator = torch_random.RecordedGenerator(plain, recorder)
        assert generator.manual_seed(3).initial_seed() == 3
        state = generator.get_state()
        generator.set_state(state)
        with pytest.raises(UnsupportedOpError, match="not what get_rng_state gave"):
            generator.set_state(state.clone())
        with pytest.raises(UnsupportedOpError, match="seed of torch's random generator"):
            generator.seed()
    kinds = [node.kind for node in recorder.graph.nodes()]
    assert kinds == ["cuda_random_seed", "cuda_random_state", "set_cuda_random_state"]
