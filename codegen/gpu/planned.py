"""A kernel's call for one set of shapes and strides: what is left is memory, and the launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.codegen.gpu.emit_triton import wide
from gradof.codegen.gpu.ops import NAMES
from gradof.codegen.loopnest import Instr, LoopNest


class Planned:
    """Memory, the launch, and the launches of the folds."""

    def __init__(
        self, device: Any, outputs: Sequence[tuple[Any, Any] | None], arguments: list[Any],
        places: Sequence[int], kernel: Any, programs: int, constants: dict[str, Any],
        folds: Sequence[Fold],
    ) -> None:  # fmt: skip
        self.device = device
        self.outputs = outputs  # shape and dtype; None for those that a fold makes
        self.arguments = arguments  # of the kernel, with None in the places of tensors
        self.places = places
        self.kernel = kernel
        self.programs = programs
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
        partials = [
            torch.empty(f.partial, dtype=f.dtype, device=device) for f in self.folds
        ]  # fmt: skip
        arguments = list(self.arguments)
        given = [*tensors, *(t for t in outputs if t is not None), *partials]
        for place, tensor in zip(self.places, given, strict=True):
            arguments[place] = tensor
        if self.programs:
            self.kernel[(self.programs,)](*arguments, **self.constants)
        for fold, partial in zip(self.folds, partials, strict=True):
            outputs[fold.output] = fold(partial)
        return tuple(outputs)


class Fold:
    """The second kernel of a fold: it adds the partial results of all programs, in order."""

    def __init__(
        self, nest: LoopNest, fold: Instr, function: Any, programs: int, n_columns: int,
        sizes: Sequence[int], outputs: Sequence[Any],
    ) -> None:  # fmt: skip
        import torch

        k = fold.attrs["buffer"]
        assert isinstance(k, int)
        self.output, self.function = k, function
        buffer, made = nest.outputs[k], outputs[k]
        self.partial = (programs, n_columns if fold.level == "cell" else 1)
        self.dtype = getattr(torch, NAMES[wide(fold.dtype)])
        self.own_dtype, self.shape = made.dtype, made.shape
        named = [a for a, d in enumerate(buffer.dims) if d is not None]
        self.sizes = [sizes[a] for a in named]
        self.order = sorted(range(len(named)), key=lambda p: buffer.dims[named[p]] or 0)

    def __call__(self, partial: Any) -> Any:
        """The output."""
        import torch

        parts, n = self.partial
        flat = torch.empty(n, dtype=self.own_dtype, device=partial.device)
        if n:
            self.function[(-(-n // 64),)](partial, flat, parts, n, BP=32, BC=64,
                                          enable_fp_fusion=True)  # fmt: skip
        return flat.reshape(self.sizes).permute(self.order).reshape(self.shape)


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
