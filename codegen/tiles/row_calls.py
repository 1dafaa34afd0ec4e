"""Torch's functions of whole rows, of tensors (`tiles/rows` says where they are called).

    softmax(x, out=y)
    softmax_grad(g, y, out=d)
    y, mean, inverse = rows = layer_norm(x, w, b, 1e-5)
    d, dw, _ = layer_norm_grad(g, x, inverse, mean, w, cells=True, sum=True, check=False)

They compute the last axis. Those of layer norms return new tensors: torch has none that write where
they are told to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gradof.codegen.loops.ir import Instr
from gradof.codegen.tiles.calls import Calls
from gradof.codegen.tiles.tensors import Tensors
from gradof.codegen.tiles.torch_calls import row_total
from gradof.codegen.tiles.values import Values


class RowCalls:
    """The statements of instructions that compute whole rows."""

    def __init__(self, values: Values, calls: Calls, tensors: Tensors) -> None:
        self.values = values
        self.calls = calls
        self.tensors = tensors
        self.found: dict[str, str] = {}  # value → the tensors of which it is the first

    def lines(self, i: Instr) -> list[str]:
        """The statements of one of `rows.ROWS`."""
        if i.op == "inverse_deviation":
            return [f"{i.name} = {self.found[str(i.args[0])]}[2].numpy()"]
        name, loc = f"torch_{i.op}", "" if i.loc is None else f"  # {i.loc}"
        self.tensors.functions[name] = row_functions()[i.op]
        args = [self.tensors.of(a) for a in i.args]
        if i.op in ("softmax", "softmax_grad"):
            self.calls.of_torch.add(i.op)
            out = self.values.output(i) or self.values.taken(i)  # torch allows no operand's memory
            args.append(f"out={self.tensors.out(out)}")
            return [f"{name}({', '.join(args)}){loc}", f"{i.name} = {out}"]
        if i.op == "layer_norm":
            self.calls.of_torch.add(i.op)
            args += ["None"] * (3 - len(args)) + [repr(i.attrs["eps"])]
        else:
            self.calls.of_torch.add("layer_norm_sum" if i.attrs["sum"] else i.op)
            rest = iter(args[3:])
            mean, w = (next(rest) if i.attrs[key] else "None" for key in ("mean", "weight"))
            flags = (f"{key}={i.attrs[key]}" for key in ("cells", "sum", "check"))
            args = [*args[:3], mean, w, *flags]
        rows = self.found[i.name] = f"rows_{len(self.found)}"
        lines = [f"{rows} = {name}({', '.join(args)}){loc}"]
        return [*lines, *self.tensors.first(i.name, rows)] if i.attrs.get("cells", True) else lines

    def part(self, i: Instr) -> str:
        """The source of a fold that comes with a value: what a tile adds to it."""
        shape = (*(1 for _ in range(self.values.nest.rows)), -1)
        return f"{self.found[str(i.args[0])]}[{i.attrs['part']}].numpy().reshape({shape})"


@functools.cache
def row_functions() -> Mapping[str, Callable[..., Any]]:
    """The functions above, by their names."""
    import torch

    norm, norm_grad = torch.native_layer_norm, torch.ops.aten.native_layer_norm_backward.default
    softmax_backward = torch._softmax_backward_data

    def softmax(x: Any, *, out: Any) -> None:
        torch.softmax(x, -1, out=out)

    def softmax_grad(g: Any, y: Any, *, out: Any) -> None:
        if out.is_contiguous():
            softmax_backward(g, y, -1, y.dtype, grad_input=out)
        else:  # of which torch 2.13 writes other cells, without an error
            out.copy_(softmax_backward(g, y, -1, y.dtype))

    def layer_norm(x: Any, w: Any, b: Any, eps: float) -> tuple[Any, Any, Any]:
        size = x.shape[-1:]
        # Without them it takes twice as long.
        w = _filled(x.dtype, size, 1) if w is None else w.reshape(size).contiguous()
        b = _filled(x.dtype, size, 0) if b is None else b.reshape(size).contiguous()
        return norm(x, size, w, b, eps)

    def layer_norm_grad(
        g: Any, x: Any, inverse: Any, mean: Any, w: Any, *, cells: bool, sum: bool, check: bool
    ) -> tuple[Any, ...]:
        size = x.shape[-1:]
        if check and not _is_centred(x, inverse, mean):
            return _any_gradient(g, x, inverse, mean, w)
        inverse = inverse.contiguous()  # torch reads rows as if they were
        mean = _filled(x.dtype, inverse.shape, 0) if mean is None else mean.contiguous()
        if w is not None:
            w = w.reshape(size).contiguous()
        elif sum:
            w = _filled(x.dtype, size, 1)  # torch does not give the gradient of none
        found: tuple[Any, ...] = norm_grad(g, x, size, mean, inverse, w, None, (cells, sum, False))
        return found

    return {f.__name__: f for f in (softmax, softmax_grad, layer_norm, layer_norm_grad)}


def _is_centred(x: Any, inverse: Any, mean: Any) -> bool:
    """Whether the mean of x is `mean`, or zero, but for what rounding makes of it.

    By more than some roundings of a number as far from zero as x deviates, the gradient would be
    another. A row that is not finite has none.
    """
    import torch

    eps = torch.finfo(x.dtype).eps
    found = torch.from_numpy(row_total()(x)) / x.shape[-1]  # as a kernel computes `mean`
    if mean is not None:
        return not bool(((found - mean).abs() > 4 * eps * mean.abs()).any())
    return not bool(((found * inverse).abs() > 16 * eps).any())


def _any_gradient(g: Any, x: Any, inverse: Any, mean: Any, w: Any) -> tuple[Any, Any]:
    """What `rows` replaces, where x is not centred by its mean."""
    c = x if mean is None else x - mean
    scaled = g if w is None else g * w
    by_deviation = inverse**3 * (scaled * c).mean(-1, True)
    d = scaled * inverse - c * by_deviation
    return d - d.mean(-1, True), (g * c * inverse).reshape(-1, x.shape[-1]).sum(0)


@functools.lru_cache(maxsize=64)
def _filled(dtype: Any, size: tuple[int, ...], value: float) -> Any:
    import torch

    return torch.full(size, value, dtype=dtype)
