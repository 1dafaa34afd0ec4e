"""Attention on torch tensors: the launches of the kernels that `emit` prints.

    run = Flash(shape, "cuda:0")
    o, l = run.forward(q, kt, v, bias)
    dq, dkt, dv = run.backward(q, kt, v, l, g, delta, bias)

Strides are arguments, so no operand is copied. Sizes of blocks follow from the size of a head.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradof.codegen.machine.executable import loaded
from gradof.codegen.triton.attention.blocks import Blocks, blocks_for, padded
from gradof.codegen.triton.attention.emit import (
    FlashShape,
    arguments,
    axes_of,
    emit_flash,
    is_described,
)
from gradof.codegen.triton.direct import ALIGNMENT
from gradof.codegen.triton.interpreted import interpret, require_interpreter
from gradof.codegen.triton.interpreter import complete, is_interpreting
from gradof.codegen.triton.launch import interprets
from gradof.ir.core import Node
from gradof.ops.families import known_shape, tensor

_LOCK = threading.Lock()


class Flash:
    """One attention of a graph, or its backward. Thread-safe."""

    emitter = "triton, flash attention"

    def __init__(
        self, shape: FlashShape, device: str, parts: Sequence[str], sizes: tuple[int, ...]
    ) -> None:
        if device == "cpu":
            require_interpreter()
        self.shape, self.device, self.parts = shape, device, tuple(parts)
        self.name, self.sizes = shape.name, sizes
        self._made: dict[tuple[str, bool], Any] = {}
        self._planned: dict[Any, PlannedFlash] = {}

    @property
    def nest(self) -> Flash:
        """What reports read `name` and `sizes` of, as of a loop nest."""
        return self

    @property
    def source(self) -> str:
        """The Triton source of every part."""
        return "\n\n".join(emit_flash(self.shape, part) for part in self.parts)

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Fresh results on the device of the operands; queued on its current stream."""
        run = self.forward if self.parts == ("forward",) else self.backward
        if interprets():
            return interpret(run, tensors)
        return run(*tensors)

    def forward(self, q: Any, kt: Any, v: Any, *extras: Any) -> tuple[Any, ...]:
        """o, and per row the log of the sum of exponentials."""
        import torch

        rows = q.shape[:-1]
        o = v.new_empty((*rows, v.shape[-1]))
        sums = torch.empty(rows, dtype=torch.float32, device=q.device)
        self.launch("forward", [q, kt, v, *self.framed(q, kt, extras), o, sums])
        return o, sums

    def backward(
        self, q: Any, kt: Any, v: Any, sums: Any, g: Any, delta: Any, *extras: Any
    ) -> tuple[Any, ...]:
        """Gradients of q, kt and v; None for those that no part computes."""
        read = [q, kt, v, sums, g, delta, *self.framed(q, kt, extras)]
        dq = dkt = dv = None
        if "queries" in self.parts:
            dq = q.new_empty(q.shape)
            self.launch("queries", [*read, dq])
        if "keys" in self.parts:
            dkt, dv = kt.new_empty(kt.mT.shape).mT, v.new_empty(v.shape)
            self.launch("keys", [*read, dkt, dv])
        return dq, dkt, dv

    def framed(self, q: Any, kt: Any, extras: Sequence[Any]) -> list[Any]:
        """Tensors that steps read, in the shape of the scores, without copies."""
        frame = (*q.shape[:-1], kt.shape[-1])
        return [x.expand(frame) for x in extras]

    def launch(self, part: str, tensors: Sequence[Any]) -> None:
        """Run a kernel on tensors in the order of its arguments."""
        import torch

        q, kt, v = tensors[:3]
        device = q.device
        if device.type == "cuda" and torch.cuda.current_device() != device.index:
            with torch.cuda.device(device):  # triton launches on the current one
                return self.launch(part, tensors)
        ahead = (q, tensors[4]) if part == "keys" else (kt, v)
        aligned = not (ahead[0].data_ptr() | ahead[1].data_ptr()) % 16
        precision = "tf32" if q.dtype == torch.float32 and allows_tf32() else "ieee"
        strides = tuple(x.stride() for x in tensors)
        key = (part, aligned, precision, q.shape, kt.shape, v.shape, strides)
        planned = self._planned.get(key)
        if planned is None:
            described = aligned and describes(part, tensors)
            planned = self._planned[key] = self.plan(part, tensors, described, precision)
        planned(tensors)
        return None

    def plan(
        self, part: str, tensors: Sequence[Any], described: bool, precision: str
    ) -> PlannedFlash:
        """What sizes and strides decide of a launch."""
        read, written = arguments(self.shape, part)
        q, kt, v = tensors[:3]
        batch = q.dim() - 2
        m, d, n, e = q.shape[-2], q.shape[-1], kt.shape[-1], v.shape[-1]
        heads = q.shape[1] if batch == 2 else q.shape[0] if batch else 1
        extras = [x.element_size() for x in tensors[len(read) - len(self.shape.extras) : len(read)]]
        blocks = blocks_for(
            part, d, e, q.element_size(), shared_memory(q.device), extras, plain=self.shape.plain,
            causal=self.shape.causal is not None, described=described,
        )  # fmt: skip
        tiles = -(-n // blocks.BN) if part == "keys" else -(-m // blocks.BM)
        along, size = (m, blocks.BM) if part == "keys" else (n, blocks.BN)
        pairs = list(zip((*read, *written), tensors, strict=True))
        constants = {
            **blocks.constants, "D": d, "E": e, "TAIL": along % size != 0, "PRECISION": precision,
            "INDEX": index_of(pairs, blocks), "enable_fp_fusion": True,
        }  # fmt: skip
        shape = replace(self.shape, described=blocks.described)
        given: list[Any] = []
        for name, x in pairs:
            given.append(None)
            if is_described(shape, part, name):
                width = padded(d if name in "qk" else e)
                given[-1] = Described.of(x.mT if name == "k" else x, size, width)
            else:
                given += [*([0] * (2 - batch)), *x.stride()]
        return PlannedFlash(
            self.kernel(part, blocks.described), (tiles * q.shape[:batch].numel(),),
            [*given, heads, m, n], constants,
        )  # fmt: skip

    def kernel(self, part: str, described: bool) -> Any:
        """The compiled kernel."""
        with _LOCK:
            if (part, described) not in self._made:
                shape = replace(self.shape, described=described)
                self._made[part, described] = compile_flash(shape, part)
            return self._made[part, described]


@dataclass(frozen=True)
class Described:
    """How a tensor is loaded in blocks of rows: what a descriptor says beside where it is."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]

    @classmethod
    def of(cls, x: Any, rows: int, columns: int) -> Described:
        """Of a matrix or a batch of them: two batch dims, of which one element is a block."""
        missing = 4 - x.dim()
        shape = (*[1] * missing, *x.shape)
        strides = (*[x.stride(-2)] * missing, *x.stride())
        # along an axis of one element strides say nothing, but have to be multiples of 16 bytes
        even = [x.stride(-2) if n == 1 else s for n, s in zip(shape[:2], strides[:2], strict=True)]
        return cls(shape, (*even, *strides[2:]), (1, 1, rows, columns))

    def __call__(self, x: Any) -> Any:
        """The descriptor of a tensor."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(x, list(self.shape), list(self.strides), list(self.block))


class PlannedFlash:
    """A kernel's call for one set of sizes and strides."""

    def __init__(
        self, kernel: Any, grid: tuple[int], arguments: Sequence[Any], constants: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.kernel, self.grid = kernel, grid
        self.arguments = arguments  # None in the places of tensors, or how one is described
        self.places = [
            k for k, given in enumerate(arguments) if given is None or isinstance(given, Described)
        ]
        self.constants = constants
        self.rest = [constants[name] for name in kernel.arg_names[len(arguments) :]]
        self.compiled: Any = None  # for addresses divisible by 16, once the JIT has run

    def __call__(self, tensors: Sequence[Any]) -> None:
        """Launch it on the current stream; see Note [Launches past triton's JIT]."""
        given = list(self.arguments)
        for place, x in zip(self.places, tensors, strict=True):
            given[place] = x if given[place] is None else given[place](x)
        aligned = not any(x.data_ptr() % ALIGNMENT for x in tensors)
        if self.compiled is None or not aligned or _has_hooks():
            compiled = self.kernel[self.grid](*given, **self.constants)
            if aligned:
                self.compiled = compiled  # None from the interpreter
            return
        from triton.runtime import driver

        compiled, device = self.compiled, tensors[0].device
        compiled.run(
            *self.grid, 1, 1, driver.active.get_current_stream(device.index or 0),
            compiled.function, compiled.packed_metadata, None, None, None, *given, *self.rest,
        )  # fmt: skip


def _has_hooks() -> bool:
    """Whether something is to run at each launch, as profilers have it."""
    from triton import knobs

    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    return any(hook is not None and getattr(hook, "calls", True) for hook in hooks)


def flash_of(node: Node, name: str) -> Flash:
    """The kernels of an `attention` or `attention_backward` node; of the latter those that count.

    CodegenError where its device is the CPU and nothing interprets.
    """
    q, kt = (tensor(v.type) for v in node.inputs[:2])
    made = {"forward": node.outputs} if node.kind == "attention" else {
        "queries": node.outputs[:1], "keys": node.outputs[1:]
    }  # fmt: skip
    parts = [part for part, values in made.items() if any(v.has_uses for v in values)]
    sizes = (*known_shape(q)[:-1], known_shape(kt)[-1])
    return Flash(shape_of(node, name), q.device, parts, sizes)


def shape_of(node: Node, name: str) -> FlashShape:
    """What the source of such a node depends on."""
    steps: Any = node.attrs["steps"]
    extras = node.inputs[3 if node.kind == "attention" else 6 :]
    causal: Any = node.attrs["causal"]
    heads = {"d": node.inputs[0], "e": node.inputs[2]}
    sizes = {axis: known_shape(tensor(v.type))[-1] for axis, v in heads.items()}
    return FlashShape(
        name, steps, tuple(tensor(v.type).dtype for v in extras), bool(node.attrs.get("safe")),
        str(node.loc or ""), causal, "".join(a for a, n in sizes.items() if padded(n) != n),
    )  # fmt: skip


def compile_flash(shape: FlashShape, part: str) -> Any:
    """Triton's function of a part."""
    if is_interpreting():
        complete()
    text = emit_flash(shape, part)
    name = f"{shape.name}_{part}"
    return loaded(text, name, shape.name)[name]


def describes(part: str, tensors: Sequence[Any]) -> bool:
    """Whether the device can be asked for whole blocks of the heads that a loop runs along.

    From sm_90 on, where the elements of a head lie side by side and all else on 16 bytes.
    """
    import torch

    q, kt, v = tensors[:3]
    if q.device.type != "cuda" or torch.cuda.get_device_capability(q.device)[0] < 9:
        return False
    for x in (q, tensors[4]) if part == "keys" else (kt.mT, v):
        *others, last = x.stride()
        if last != 1 or any(n <= 0 or n * x.element_size() % 16 for n in others):
            return False
    return True


def index_of(read: Sequence[tuple[str, Any]], blocks: Blocks) -> Any:
    """The dtype of positions inside of a block: int32 where all of them fit."""
    import triton.language as tl

    sizes = {"m": blocks.BM, "n": blocks.BN, "d": blocks.BD, "e": blocks.BE}
    for name, x in read:
        axes = axes_of(name)
        strides = x.stride()[x.dim() - len(axes) :]
        if sum(sizes[a] * s for a, s in zip(axes, strides, strict=True)) >= 2**31:
            return tl.int64
    return tl.int32


def shared_memory(device: Any) -> int:
    """Bytes that a program may have: the device's; an H100's where the interpreter runs it."""
    import torch

    if device.type != "cuda":
        return 227 << 10
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


def allows_tf32() -> bool:
    """Whether torch may multiply float32 in TF32."""
    import torch

    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
