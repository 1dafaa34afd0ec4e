"""Bytes that the kernels and torch calls of f and df move, over the least; no GPU is needed.

    python benchmarks/gpu_bytes.py [--only NAME,NAME] [--dtypes bf16,f32] [--sizes 1] [--each]

Workloads are traced with torch's fake CUDA tensors, in full size and without memory; what is
emitted runs on meta tensors, with kernels that compute nothing. A kernel reads each operand as
often as its source loads it and writes its results; a torch call reads what it is given and writes
what it makes; views cost nothing. What programs share of an operand, and partial results of folds,
are not counted. The least is that of Note [Bytes] in gpu_workloads. `--each` lists all launches.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from gpu_workloads import DTYPES, GpuWorkload, Size, label, selected
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gradof import tuning
from gradof.codegen.host.torch_emit import TorchExecutable, emit_torch
from gradof.codegen.loops.interpret import nest_sizes
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.lowering.torch_ops import dtype_text
from gradof.codegen.triton.emit import emit_triton, form_of
from gradof.codegen.triton.kernel import _empty
from gradof.runtime.plan import GraphPlan, RunCounts
from gradof.tracer.aten import types as torch_types
from gradof.tracer.torch import modes as torch_modes
from gradof.tracer.torch import recorder as torch_recorder
from gradof.tracer.torch import tracer as torch_tracer
from gradof.tracer.torch.tracer import trace_torch

Tensor = torch.Tensor
META = torch.device("meta")
FRESH = {"new_zeros", "zeros", "full", "bernoulli_", "fill_", "zero_", "arange"}  # write alone
PICKING = {"gather", "index_select"}  # read as much of their first operand as they give


@dataclass
class Traffic:
    """What one run of emitted code moves: name, bytes, and types of each launch."""

    source: str = ""
    launches: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Of all launches."""
        return sum(n for _, n, _ in self.launches)

    def add(self, name: str, reads: Sequence[tuple[Tensor, int]], made: Sequence[Tensor]) -> None:
        """Count a launch; an operand comes with the number of times it is read."""
        by_memory: dict[int, list[tuple[int, int]]] = {}
        for t, times in reads:
            whole = t.untyped_storage()
            by_memory.setdefault(whole._cdata, []).append((times * memory(t), whole.nbytes()))
        moved = sum(map(memory, made))
        for parts in by_memory.values():  # parts of one tensor at a time are in the cache
            most = max(n for n, _ in parts)
            moved += max(most, min(sum(n for n, _ in parts), parts[0][1]))
        given = ", ".join(f"{k} * {typed(t)}" if k != 1 else typed(t) for t, k in reads)
        self.launches.append((name, moved, f"{given} -> {', '.join(map(typed, made))}"))


def memory(t: Tensor) -> int:
    """Bytes of a tensor's elements, those that are one place in memory counted once."""
    n = t.element_size()
    for size, stride in zip(t.shape, t.stride(), strict=True):
        n *= size if stride else min(size, 1)
    return n


def typed(t: Tensor) -> str:
    """Such as bfloat16[4,3]."""
    return f"{str(t.dtype).removeprefix('torch.')}[{','.join(map(str, t.shape))}]"


class Calls(TorchDispatchMode):
    """Counts torch calls that move bytes; kernels are counted by `kernel`."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()
        self.inside = False

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Inside, torch calls are not counted."""
        before, self.inside = self.inside, True
        yield
        self.inside = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        given = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        if self.inside or func.is_view or name.startswith(("empty", "new_empty", "_unsafe_view")):
            return result
        if func.namespace != "aten" or not any(t.device == META for t in (*given, *made)):
            return result
        reads = [] if name in FRESH else given
        if name in PICKING:
            reads = [*made, *given[1:]]
        self.traffic.add(name, [(t, 1) for t in reads], made)
        return result

    def kernel(self, nest: LoopNest, device: str) -> Callable[..., tuple[Tensor, ...]]:
        """The stand-in of a nest's kernel."""

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            sizes = nest_sizes(nest, tensors)
            columns = 1
            for n in sizes[nest.rows :]:
                columns *= n
            form = form_of(nest)
            form = "looped" if form == "persistent" and columns > tuning.ROW_BLOCK else form
            text = emit_triton(nest, form)
            with self.uncounted():
                made = tuple(_empty(b, sizes, META) for b in nest.outputs)
            reads = [len(re.findall(rf"tl\.load\(in{k}\b", text)) for k in range(len(tensors))]
            self.traffic.add(nest.name, list(zip(tensors, reads, strict=True)), made)
            return made

        run.source = ""  # type: ignore[attr-defined]  # as kernels have
        return run

    def flash(self, node: Any, name: str) -> Callable[..., tuple[Tensor, ...]]:
        """The stand-in of attention."""

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            with self.uncounted():
                made = tuple(tensor_of(v) for v in node.outputs)
            self.traffic.add(name, [(t, 1) for t in tensors], made)
            return made

        run.source = ""  # type: ignore[attr-defined]
        return run


def tensor_of(value: Any) -> Tensor:
    """A meta tensor of a value's type."""
    dtype = eval(dtype_text(value.type.dtype), {"torch": torch})
    return torch.empty(value.type.shape, dtype=dtype, device=META)


def _state(*_: Any) -> tuple[Tensor, Tensor]:
    """Two numbers, from a generator that is not there."""
    seed, place = (torch.full((), 0, dtype=torch.int64, device=META) for _ in range(2))
    return seed, place


def traffic_of(plan: GraphPlan, calls: Calls | None = None) -> Traffic:
    """What one run of a plan's code moves; `calls` stands in for kernels."""
    calls = calls or Calls()
    with mock.patch("gradof.codegen.host.torch_emit.flash_of", calls.flash):
        run: TorchExecutable = emit_torch(
            plan.prepared, make_kernel=calls.kernel, shown=plan.shown
        )
    space = run.function.__globals__
    space |= {name: META for name, value in space.items() if isinstance(value, torch.device)}
    space["philox_state"] = _state
    with unset_fake_temporarily():
        run._constants()
        tensors = [tensor_of(v) for v in plan.prepared.inputs]
        with calls:
            run.function(*tensors)
    calls.traffic.source = run.source
    return calls.traffic


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Inside, tensors are fake, and a trace takes them for plain ones of a CUDA device."""
    plain = torch_modes.AtenMode._dispatch

    def dispatch(self: Any, func: Any, args: Any, kwargs: Any, site: Any) -> Any:
        if func is torch.ops.prim.device.default:  # how a fake tensor tells its device
            return func(*args, **kwargs)
        return plain(self, func, args, kwargs, site)

    def dense_of(tensor: Tensor) -> Any:
        with unset_fake_temporarily():
            return torch_types.dense_of(tensor)

    with (
        mock.patch.object(torch_recorder, "dense_of", dense_of),
        mock.patch.object(torch_modes.AtenMode, "_dispatch", dispatch),
        mock.patch.object(torch_tracer, "check_leaves", lambda *_: None),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        yield


def plans(
    w: GpuWorkload, size: Size, dtype: torch.dtype
) -> tuple[GraphPlan, GraphPlan, list[bool]]:
    """f, df, and which arguments require grad; to be called within `fake_cuda`."""

    def draw(
        *shape: int, grad: bool = True, scale: float = 1.0, like: str = "normal",
        dtype: torch.dtype = dtype,
    ) -> Tensor:  # fmt: skip
        return torch.empty(shape, dtype=dtype).requires_grad_(grad)

    leaves = w.make(draw, *size)
    args = tuple(torch.empty(a.shape, dtype=a.dtype, device="cuda:0") for a in leaves)
    plan = GraphPlan(trace_torch(w.fn, args, {}).graph, "torch", RunCounts())
    flags = [a.requires_grad for a in leaves]
    gradient = plan.gradient(flags)
    defined = tuple(k < gradient.real_outputs for k in gradient.output_vjps)
    df = gradient.df(defined, (True,) * len(gradient.input_vjps))
    return gradient.f, df.plan, flags


def measure(
    w: GpuWorkload, size: Size, dtype: torch.dtype
) -> tuple[Traffic, Traffic, dict[str, int]]:
    """Traffic of f and of df, and the least bytes of each."""
    with fake_cuda():
        f, df, flags = plans(w, size, dtype)
        found = traffic_of(f), traffic_of(df)
    args = [tensor_of(v) for v in f.graph.inputs]
    for a, flag in zip(args, flags, strict=True):
        a.requires_grad_(flag)
    outputs = [tensor_of(v) for v in f.graph.outputs[: len(w.outputs)]]
    return *found, w.nbytes(args, outputs)


def row(
    w: GpuWorkload, dtype: str, size: Size, f: Traffic, df: Traffic, least: dict[str, int]
) -> str:
    """One line of the table."""
    shares = f.nbytes / least["forward"], df.nbytes / least["backward"]
    return (f"{w.name:32} {dtype:5} {label(size):>14} {shares[0]:7.2f} {len(f.launches):3}"
            f" {shares[1]:7.2f} {len(df.launches):3}")  # fmt: skip


HEAD = f"{'workload':32} {'dtype':5} {'size':>14} {'f':>7} {'n':>3} {'df':>7} {'n':>3}"


def main() -> None:
    """Print the table: bytes over the least, and launches, of f and of df."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default="bf16,f32")
    parser.add_argument("--sizes", type=int, help="how many sizes of each workload; all by default")
    parser.add_argument("--each", action="store_true", help="list all launches")
    parser.add_argument("--source", action="store_true", help="show what is emitted")
    given = parser.parse_args()
    print(HEAD)
    for w in selected(given.only):
        for dtype in (d for d in given.dtypes.split(",") if d in w.dtypes):
            for size in w.sizes[: given.sizes]:
                f, df, least = measure(w, size, DTYPES[dtype])
                print(row(w, dtype, size, f, df, least), flush=True)
                for which, traffic in (("f", f), ("df", df)):
                    for name, n, types in traffic.launches if given.each else ():
                        print(f"    {which:3}{n / 1e6:10.1f} MB  {name}: {types}")
                    if given.source:
                        print(traffic.source)


if __name__ == "__main__":
    main()
