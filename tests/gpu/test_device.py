"""What only CUDA devices have: streams, current devices, waiting, memory, 2**31 elements."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from gradof import differentiate
from gradof.errors import DeviceError
from tests.gpu.judge import fresh, judge

pytestmark = [
    pytest.mark.gpu,
    # said once, by whichever thread of autograd multiplies first
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]
Tensor = torch.Tensor
BILLIONS = 2**31


def norm(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(torch.tanh(x), (x.shape[-1],), w)


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(64, 96, device="cuda", requires_grad=True)
    return x, torch.randn(96, device="cuda", requires_grad=True)


def strict(fn: Callable[..., Any]) -> Any:
    """Compiled; what cannot be is an error, and not eager's business."""
    return differentiate(fn, strict=True)


def gradients(call: Callable[..., Any], x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    out = call(x, w)
    return (out, *torch.autograd.grad(out, (x, w), torch.ones_like(out)))


def test_nothing_waits_for_the_device(pair: tuple[Tensor, Tensor]) -> None:
    compiled = differentiate(norm)
    for _ in range(3):
        want = gradients(compiled, *pair)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        have = gradients(compiled, *pair)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(have, want)


def test_a_number_that_varies_is_handed_over_without_waiting() -> None:
    compiled = differentiate(lambda x, lr: (x * lr).tanh().exp())
    x = torch.randn(64, device="cuda", requires_grad=True)
    for lr in (0.5, 0.25, 0.125):
        compiled(x, lr)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        have = compiled(x, 0.75)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(have, (x * 0.75).tanh().exp())


def test_an_index_is_checked_without_waiting() -> None:
    table = torch.randn(50, 8, device="cuda", requires_grad=True)
    places = torch.arange(20, device="cuda") % 50
    compiled = differentiate(lambda t, i: F.embedding(i, t).exp().sum())
    want = torch.autograd.grad(compiled(table, places), table)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        have = torch.autograd.grad(compiled(table, places), table)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(have, want)


OUT_OF_RANGE = """
import torch
from gradof import differentiate
x = torch.randn(64, 512, device="cuda", requires_grad=True)
target = torch.randint(512, (64,), device="cuda")
loss = differentiate(torch.nn.functional.cross_entropy)
loss(x, target).backward()
torch.cuda.synchronize()
print("in range", flush=True)
target[3] = 600
loss(x, target)
torch.cuda.synchronize()
print("not stopped")
"""


def test_an_index_that_a_kernel_picks_by_stops_the_device() -> None:
    """As in eager; in a process of its own, because the device is of no use to it afterwards."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OUT_OF_RANGE], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.split("\n") == ["in range", ""], done.stderr[-2000:]
    assert "device-side assert" in done.stderr


def test_kernels_are_queued_on_the_current_stream(pair: tuple[Tensor, Tensor]) -> None:
    compiled = differentiate(norm)
    want = gradients(norm, *pair)
    compiled(*pair)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    for _ in range(3):
        x, w = fresh(pair)
        slow = torch.randn(4096, 4096, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                slow = slow @ slow * 1e-3
            x = (x.detach() + slow[:1, :1] * 0).requires_grad_()  # ready only behind the products
            have = gradients(compiled, x, w)
        torch.cuda.current_stream().wait_stream(stream)
        for mine, theirs in zip(have, want, strict=True):
            mine.record_stream(torch.cuda.current_stream())
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_a_backward_runs_on_the_stream_of_its_forward(pair: tuple[Tensor, Tensor]) -> None:
    compiled = differentiate(norm)
    gradients(compiled, *pair)
    x, w = fresh(pair)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        loss = compiled(x, w).square().sum()
    loss.backward()
    torch.cuda.synchronize()
    other = fresh(pair)
    norm(*other).square().sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close((x.grad, w.grad), (other[0].grad, other[1].grad),
                               rtol=1e-4, atol=1e-4)  # fmt: skip


def test_constants_are_there_for_every_stream() -> None:
    table = torch.randn(64, 96)
    compiled = differentiate(lambda x: (x * table.to(x.device)).tanh().exp())
    x = torch.randn(64, 96, device="cuda")
    first = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(first):
        torch.cuda._sleep(200_000_000)  # type: ignore[no-untyped-call]  # before the constants
        compiled(x)
    have = compiled(x)  # on another stream
    torch.testing.assert_close(have, (x * table.cuda()).tanh().exp())


def test_a_caller_may_capture_what_has_run() -> None:
    table = torch.randn(64, 96, device="cuda")
    compiled = differentiate(lambda x: (x * table).tanh().exp())
    x = torch.randn(64, 96, device="cuda")
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        compiled(x)
        compiled(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        have = compiled(x)
    x.fill_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(have, (x * table).tanh().exp())


needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@needs_two
def test_the_device_of_the_tensors_is_used_and_not_the_current_one() -> None:
    compiled = differentiate(norm)
    x = torch.randn(8, 96, device="cuda:1", requires_grad=True)
    w = torch.randn(96, device="cuda:1", requires_grad=True)
    with torch.cuda.device(0):
        have = gradients(compiled, x, w)
        assert torch.cuda.current_device() == 0
    assert all(t.device == torch.device("cuda:1") for t in have)
    torch.testing.assert_close(have, gradients(norm, x, w), rtol=1e-4, atol=1e-4)
    first = gradients(compiled, x.detach().to("cuda:0").requires_grad_(),
                      w.detach().to("cuda:0").requires_grad_())  # fmt: skip
    assert all(t.device == torch.device("cuda:0") for t in first)


@needs_two
def test_two_devices_are_refused() -> None:
    with pytest.raises(DeviceError, match=r"on cuda:0, .* on cuda:1"):
        strict(norm)(torch.ones(2, 3, device="cuda:0"), torch.ones(3, device="cuda:1"))


def test_a_device_and_the_cpu_are_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        differentiate(norm)(torch.ones(2, 3, device="cuda"), torch.ones(3))


def test_what_the_function_moves_to_the_device() -> None:
    table = torch.randn(3)
    compiled = strict(lambda x, y: x * table.to(x.device) + y.to(x.device).exp())
    x = torch.randn(2, 3, device="cuda", requires_grad=True)
    y = torch.randn(3, requires_grad=True)
    found = []
    for call in (compiled, lambda x, y: x * table.cuda() + y.cuda().exp()):
        out = call(x, y)
        found.append((out, *torch.autograd.grad(out, (x, y), torch.ones_like(out))))
    torch.testing.assert_close(*found)
    assert found[0][2].device.type == "cpu"


def test_the_cpu_and_the_device_have_traces_of_their_own(pair: tuple[Tensor, Tensor]) -> None:
    compiled = differentiate(norm)
    there = compiled(*pair)
    here = compiled(*(t.detach().cpu() for t in pair))
    assert (there.device.type, here.device.type) == ("cuda", "cpu")
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)
    assert compiled.cache_info().misses == 2
    compiled(*pair)
    assert compiled.cache_info().misses == 2


def test_the_explanation_says_where_it_runs(pair: tuple[Tensor, Tensor]) -> None:
    text = str(differentiate(norm).explain(*pair))
    assert "torch and Triton backend" in text and "f32[64,96]@cuda:0" in text
    assert "(triton, over " in text


def test_out_of_memory_says_where_and_what_to_do() -> None:
    def grow(x: Tensor) -> Tensor:
        return torch.tanh(x.expand(1 << 22, x.shape[0])).exp()

    compiled = differentiate(grow)
    x = torch.ones(64, device="cuda")
    compiled(x)  # traced and compiled while there is room
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.memory.set_per_process_memory_fraction((200 << 20) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            compiled(x)
    finally:
        torch.cuda.memory.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    (note,) = caught.value.__notes__
    assert "out of memory in grow, at: " in note and "test_device.py:" in note


def _forked(x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        y = x + torch.rand_like(x)
    return y * torch.rand_like(x)


def _checkpointed(x: Tensor) -> Tensor:
    def part(x: Tensor) -> Tensor:
        return F.dropout(x.sin(), 0.5)

    found: Tensor = checkpoint(part, x, use_reentrant=False)
    return found * torch.rand_like(x)


def _seeded(x: Tensor) -> Tensor:
    torch.cuda.manual_seed(9)
    return x * torch.rand_like(x)


@pytest.mark.parametrize("fn", [_forked, _checkpointed, _seeded])
def test_the_state_of_a_device_generator(fn: Callable[[Tensor], Tensor]) -> None:
    compiled = strict(fn)
    for seed in (1, 1, 2):
        found = []
        for call in (compiled, fn):
            x = torch.linspace(-1, 1, 64, device="cuda", requires_grad=True)
            torch.manual_seed(seed)
            out = call(x)
            (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
            found.append((out, grad, torch.rand(3, device="cuda")))
        torch.testing.assert_close(*found)
    assert compiled.cache_info().backward_runs == 3


def test_a_generator_of_its_own() -> None:
    generator = torch.Generator("cuda")

    def fn(x: Tensor) -> Tensor:
        return x + torch.rand(3, generator=generator, device="cuda")

    x, compiled = torch.ones(3, device="cuda"), strict(fn)
    generator.manual_seed(4)
    have = [compiled(x) for _ in range(3)]
    generator.manual_seed(4)
    torch.testing.assert_close(have, [fn(x) for _ in range(3)], rtol=0, atol=0)


def test_layers_of_cudnn_are_traced_in_parts() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 4, 3),
    ).cuda()  # fmt: skip
    enabled = torch.backends.cudnn.enabled
    judge_net = differentiate(lambda x: net(x).square())
    x = torch.randn(2, 3, 8, 8, device="cuda", requires_grad=True)
    torch.testing.assert_close(judge_net(x), net(x).square(), rtol=1e-3, atol=1e-3)
    assert torch.backends.cudnn.enabled == enabled


def _room(nbytes: int) -> None:
    free, _ = torch.cuda.mem_get_info()
    if free < nbytes:
        pytest.skip(f"needs {nbytes >> 30} GiB of free memory")


def test_more_than_2_to_the_31_elements() -> None:
    _room(40 << 30)
    n = BILLIONS + 4096
    x = torch.zeros(n, dtype=torch.bfloat16, device="cuda")
    ends = slice(0, 8), slice(BILLIONS - 8, BILLIONS + 8), slice(n - 8, n)
    for k, end in enumerate(ends):
        x[end] = torch.arange(x[end].numel(), device="cuda").to(torch.bfloat16) / 8 + k
    x.requires_grad_()
    out = differentiate(lambda x: torch.tanh(x) * x)(x)
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
    for end in ends:
        part = x[end].detach().requires_grad_()
        want = torch.tanh(part) * part
        (slope,) = torch.autograd.grad(want, part, torch.ones_like(want))
        torch.testing.assert_close((out[end], grad[end]), (want, slope), rtol=0.02, atol=0.02)
    assert not out[8:1000].any()


def test_rows_that_lie_more_than_2_to_the_31_elements_apart() -> None:
    _room(30 << 30)
    whole = torch.zeros(3, BILLIONS // 2 + 64, dtype=torch.bfloat16, device="cuda")
    x = whole[:, :96]
    x.copy_(torch.randn(3, 96, device="cuda"))
    w = torch.randn(96, device="cuda").to(torch.bfloat16).requires_grad_()
    have = differentiate(norm)(x, w)
    torch.testing.assert_close(have, norm(x.contiguous(), w), rtol=0.05, atol=0.05)


def test_every_stream_and_thread_may_call(pair: tuple[Tensor, Tensor]) -> None:
    import threading

    compiled, found, errors = differentiate(norm), [], []
    want = gradients(norm, *pair)

    def work() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                found.append(gradients(compiled, *fresh(pair)))
                torch.cuda.current_stream().synchronize()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for have in found:
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


def test_bits_are_the_same_from_run_to_run(pair: tuple[Tensor, Tensor]) -> None:
    compiled = differentiate(norm)
    first = gradients(compiled, *pair)
    for _ in range(5):
        for a, b in zip(gradients(compiled, *pair), first, strict=True):
            assert torch.equal(a, b)
    judge(norm, *pair)
