"""A kernel's call for one set of shapes and strides: what is left is memory, and the launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.codegen.gpu.blocks import fold_blocks
from gradof.codegen.gpu.emit_triton import folds_of
from gradof.codegen.gpu.named import wide
from gradof.codegen.gpu.ops import NAMES
from gradof.codegen.loopnest import Buffer, Instr, LoopNest


class Planned:
    """Memory, the launch, and the launches of the folds."""

    def __init__(
        self, device: Any, outputs: Sequence[tuple[Any, Any] | None], arguments: list[Any],
        places: Sequence[int], kernel: Any, grid: tuple[int, ...], constants: dict[str, Any],
        folds: Sequence[FoldGroup],
    ) -> None:  # fmt: skip
        self.device = device
        self.outputs = outputs  # shape and dtype; None for those that a fold makes
        self.arguments = arguments  # of the kernel, with None in the places of tensors
        self.places = places
        self.kernel = kernel
        self.grid = grid
        self.constants = constants
        self.folds = folds

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Launch; fresh outputs."""
        import torch

        device = self.device
        if device.type == "cuda" and torch.cuda.current_device() != device.index:
            with torch.cuda.device(device):  # triton launches on the current one
                return self(tensors)
        outputs = [
            None if made is None else torch.empty(made[0], dtype=made[1], device=device)
            for made in self.outputs
        ]  # fmt: skip
        partials = [f.partials(device) for f in self.folds]
        by_number = {k: t for f, p in zip(self.folds, partials, strict=True)
                     for k, t in zip(f.numbers, p, strict=True)}  # fmt: skip
        arguments = list(self.arguments)
        given = [*tensors, *(t for t in outputs if t is not None),
                 *(by_number[k] for k in range(len(by_number)))]  # fmt: skip
        for place, tensor in zip(self.places, given, strict=True):
            arguments[place] = tensor
        if all(self.grid):
            self.kernel[self.grid](*arguments, **self.constants)
        for fold, partial in zip(self.folds, partials, strict=True):
            for k, total in zip(fold.outputs, fold(partial), strict=True):
                outputs[k] = total
        return tuple(outputs)


class FoldGroup:
    """The second kernel of folds: it adds the partial results of all programs, in order."""

    def __init__(
        self, nest: LoopNest, numbers: Sequence[int], function: Any, parts: int, columns: int,
        sizes: Sequence[int], outputs: Sequence[Any], units: int,
    ) -> None:  # fmt: skip
        import torch

        folds = [folds_of(nest)[k] for k in numbers]
        self.numbers, self.function, self.parts = numbers, function, parts
        self.outputs = [buffer_of(f) for f in folds]
        self.columns = columns if folds[0].level == "cell" else 1
        self.dtypes = [getattr(torch, NAMES[wide(f.dtype)]) for f in folds]
        self.made = [_memory(nest.outputs[k], outputs[k], sizes) for k in self.outputs]
        blocks = fold_blocks(self.columns, len(folds), units)
        self.grid = (-(-self.columns // blocks.columns), len(folds))
        self.constants = {"BP": blocks.rows, "BC": blocks.columns, "num_warps": blocks.warps,
                          "enable_fp_fusion": True}  # fmt: skip

    def partials(self, device: Any) -> list[Any]:
        """Memory for a partial result of each program."""
        import torch

        shape = (self.parts, self.columns)
        return [torch.empty(shape, dtype=dtype, device=device) for dtype in self.dtypes]

    def __call__(self, partials: Sequence[Any]) -> list[Any]:
        """The outputs."""
        import torch

        made = [
            torch.empty_strided(shape, strides, dtype=dtype, device=partials[0].device)
            for shape, strides, dtype in self.made
        ]
        if self.columns:
            self.function[self.grid](*partials, *made, self.parts, self.columns, **self.constants)
        return made


def buffer_of(fold: Instr) -> int:
    """The output of a fold, by number."""
    k = fold.attrs["buffer"]
    assert isinstance(k, int)
    return k


def _memory(buffer: Buffer, output: Any, sizes: Sequence[int]) -> tuple[Any, Any, Any]:
    """Shape, strides and dtype of an output whose memory has the order of the nest's axes."""
    import torch

    named = [a for a, d in enumerate(buffer.dims) if d is not None]
    order = sorted(range(len(named)), key=lambda p: buffer.dims[named[p]] or 0)
    flat = torch.empty([sizes[a] for a in named], device="meta")
    made = flat.permute(order).reshape(output.shape)
    return made.shape, made.stride(), output.dtype


class PlannedParts:
    """A nest in two (`totals`): the call of the first, then of the second."""

    def __init__(
        self, first: Callable[..., Any], second: Callable[..., Any] | None, given: Sequence[int],
        made: Sequence[int],
    ) -> None:  # fmt: skip
        self.first, self.second, self.given, self.made = first, second, given, made

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Launch both; fresh outputs."""
        found = self.first(*tensors)
        if self.second is not None:
            pool = [*tensors, *found]
            found = (*found, *self.second(*(pool[k] for k in self.given)))
        return tuple(found[k] for k in self.made)
