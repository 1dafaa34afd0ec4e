"""Views and constants: other names for registers, or other strides of memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.codegen.whole.elementwise import Elementwise
from gradof.codegen.whole.nests import reshaped
from gradof.codegen.whole.text import constant
from gradof.codegen.whole.values import Held, Mem, is_small, rows, shape_of, tensor
from gradof.ir.attrs import Dense, to_numpy_dtype
from gradof.ir.core import Node
from gradof.ir.extent import Amount, Extent

SAME = frozenset({"detach", "alias", "again"})  # as what they read
VIEWS = frozenset({"reshape", "permute", "expand", "slice", "flip"}) | SAME
CONSTANTS = frozenset({"Constant", "full", "arange", "within"})


class Views(Elementwise):
    """Writes views, which take no instructions, and constants."""

    def view(self, node: Node) -> None:
        """A view, of registers or of memory."""
        source, shape = self.held[node.inputs[0]], shape_of(node.output)
        if source.uniform is not None:
            regs = [source.uniform] * math.prod(shape) if is_small(shape) else None
            uniform = None if regs is not None else source.uniform
            self.define(node.output, Held(shape, source.dtype, regs, None, uniform))
            return
        if source.mem is None and not is_small(shape):  # expanded
            source = replace(source, mem=self.memory(node.inputs[0]))
        mem = regs = None
        if source.mem is not None:
            mem = self.strided(node, source.mem)
        if source.regs is not None and is_small(shape):
            where = _NUMPY[node.kind](np.arange(len(source.regs)).reshape(source.shape), node.attrs)
            regs = [source.regs[k] for k in where.ravel().tolist()]
        self.define(node.output, Held(shape, source.dtype, regs, mem))

    def strided(self, node: Node, mem: Mem) -> Mem:
        """A view of memory; a reshape may take a copy."""
        shape, attrs = shape_of(node.output), node.attrs
        if node.kind in SAME:
            return mem
        if node.kind == "reshape":
            strides = reshaped(mem.shape, mem.strides, shape)
            if strides is None:
                mem = self.copied(mem)
                strides = rows(shape)
            return replace(mem, shape=shape, strides=strides)
        if node.kind == "permute":
            order: Any = attrs["dims"]
            return replace(mem, shape=shape, strides=tuple(mem.strides[d] for d in order))
        if node.kind == "expand":
            lead = len(shape) - len(mem.shape)
            mine = [0 if n == 1 else s for n, s in zip(mem.shape, mem.strides, strict=True)]
            return replace(mem, shape=shape, strides=(0,) * lead + tuple(mine))
        steps, offset = list(mem.strides), mem.offset
        if node.kind == "slice":
            dim: Any = attrs["dim"]
            start: Any = attrs["start"]
            step: Any = attrs["step"]
            offset += start * steps[dim]
            steps[dim] *= step
        else:
            dims: Any = attrs["dims"]
            for d in dims:
                offset += (mem.shape[d] - 1) * steps[d]
                steps[d] = -steps[d]
        return replace(mem, shape=shape, strides=tuple(steps), offset=offset)

    def copied(self, mem: Mem) -> Mem:
        """A contiguous copy that lasts as long as what is in it."""
        made = self.new(mem.shape, mem.dtype)
        self.copy(mem, made)
        return made

    def constant_value(self, node: Node) -> None:
        """A constant: numbers in the code, or an array beside it."""
        value = node.attrs.get("value")
        if node.kind == "Constant" and not isinstance(value, Dense):
            return  # written where it is read
        shape, dtype = shape_of(node.output), tensor(node.output).dtype
        if node.kind == "full":
            follows = isinstance(value, Amount | Extent)  # from lengths
            known: Any = value if follows else np.asarray(value, to_numpy_dtype(dtype)).item()
            one = constant(known, dtype)
            small = is_small(shape)
            regs = [one] * math.prod(shape) if small else None
            self.define(node.output, Held(shape, dtype, regs, None, None if small else one))
            return
        array = _array(node)
        if is_small(shape):
            self.define_regs(node.output, [constant(x, dtype) for x in array.ravel().tolist()])
            return
        at = self.constant_at(np.ascontiguousarray(array).tobytes())
        base = self.text.emit(f"getelementptr i8, ptr %constants, i64 {at}")
        self.define_mem(node.output, Mem(base, shape, rows(shape), dtype))


def _array(node: Node) -> Any:
    value, dtype = node.attrs.get("value"), to_numpy_dtype(tensor(node.output).dtype)
    if isinstance(value, Dense):
        return value.numpy().astype(dtype, copy=False)
    attrs: Any = node.attrs
    if node.kind == "within":
        at = np.arange(math.prod(attrs["shape"])).reshape(attrs["shape"])
        return (at >= attrs["start"]) & (at < attrs["stop"])
    return (attrs["start"] + attrs["step"] * np.arange(attrs["n"])).astype(dtype)


def _slice(a: Any, attrs: Any) -> Any:
    part = slice(attrs["start"], attrs["stop"], attrs["step"])
    return a[(slice(None),) * attrs["dim"] + (part,)]


_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "reshape": lambda a, attrs: a.reshape(attrs["shape"]),
    "permute": lambda a, attrs: a.transpose(attrs["dims"]),
    "expand": lambda a, attrs: np.broadcast_to(a, attrs["shape"]),
    "flip": lambda a, attrs: np.flip(a, attrs["dims"]),
    "slice": _slice, **dict.fromkeys(SAME, lambda a, attrs: a),
}  # fmt: skip
