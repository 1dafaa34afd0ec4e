"""A kernel's call for one set of shapes and strides: what is left is memory, and the launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.triton.blocks import fold_blocks
from gradof.codegen.triton.direct import ALIGNMENT, ROOM, Memory, Step, direct
from gradof.codegen.triton.fold_source import folds_of
from gradof.codegen.triton.named import wide
from gradof.codegen.triton.ops import NAMES


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
        self.direct: Callable[..., Any] | None = None  # once the kernels are compiled

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Launch; fresh outputs."""
        if self.direct is not None:
            found: tuple[Any, ...] | None = self.direct(*tensors)
            if found is not None:
                return found
        device = self.device
        if (elsewhere := _elsewhere(device)) is not None:
            with elsewhere:
                return self(tensors)
        outputs = self._own(device)
        partials = {k: t for f in self.folds for k, t in f.partials(device).items()}
        arguments = list(self.arguments)
        given = [*tensors, *(t for t in outputs if t is not None),
                 *(partials[k] for k in range(len(partials)))]  # fmt: skip
        for place, tensor in zip(self.places, given, strict=True):
            arguments[place] = tensor
        compiled = []
        if all(self.grid):
            compiled.append(self.kernel[self.grid](*arguments, **self.constants))
        for fold in self.folds:
            made, found = fold([partials[k] for k in fold.numbers])
            compiled += [found] if all(fold.grid) else []
            for k, total in zip(fold.outputs, made, strict=True):
                outputs[k] = total
        if self.direct is None and compiled and all(c is not None for c in compiled):
            if not any(t.data_ptr() % ALIGNMENT for t in (*given, *outputs)):
                self.direct = self._direct(compiled, outputs)
        return tuple(outputs)

    def _own(self, device: Any) -> list[Any]:
        """Memory for what the kernel makes itself; None in the places of folds."""
        import torch

        return [
            None if made is None else torch.empty(made[0], dtype=made[1], device=device)
            for made in self.outputs
        ]

    def results(self) -> list[Any]:
        """Meta tensors like the outputs."""
        outputs = self._own("meta")
        for fold in self.folds:
            for k, made in zip(fold.outputs, fold.empty("meta"), strict=True):
                outputs[k] = made
        return outputs

    def compile(self, operands: Sequence[Any]) -> list[Any]:
        """Have triton compile the kernels for operands of these dtypes; nothing is launched."""
        if (elsewhere := _elsewhere(self.device)) is not None:
            with elsewhere:
                return self.compile(operands)
        partials = {k: d for f in self.folds for k, d in zip(f.numbers, f.dtypes, strict=True)}
        made = [o[1] for o in self.outputs if o is not None]
        arguments = list(self.arguments)
        dtypes = [*operands, *made, *(partials[k] for k in range(len(partials)))]
        for place, dtype in zip(self.places, dtypes, strict=True):
            arguments[place] = dtype
        begun = []
        if all(self.grid):
            begun.append(self.kernel.warmup(*arguments, grid=self.grid, **self.constants))
        return begun + [f.compile() for f in self.folds if all(f.grid)]

    def _direct(self, compiled: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Any]:
        """The call without triton's JIT, once that has compiled its kernels."""
        import torch

        memory = [Memory(tuple(t.shape), t.stride(), t.dtype) for t in outputs]
        own = [k for k, made in enumerate(self.outputs) if made is not None]
        operands = len(self.places) - len(own) - sum(len(f.numbers) for f in self.folds)
        partials: dict[int, int] = {}  # pointers by the numbers of folds
        if self.folds:
            room = 0
            offsets: list[int] = []
            for f in self.folds:
                for k, nbytes in f.nbytes().items():
                    partials[k] = operands + len(memory) + len(offsets)
                    offsets.append(room)
                    room += -(-nbytes // ROOM) * ROOM
            memory.append(Memory((room,), (1,), torch.uint8, tuple(offsets)))
        pointers = [*range(operands), *(operands + k for k in own),
                    *(partials[k] for k in range(len(partials)))]  # fmt: skip
        arguments = list(self.arguments)
        for place, number in zip(self.places, pointers, strict=True):
            arguments[place] = (number,)
        todo = list(compiled)
        steps = []
        if all(self.grid):
            steps.append(Step(todo.pop(0), self.grid, [*arguments, *_parameters(self.constants)]))
        for f in self.folds:
            if all(f.grid):
                given = [(partials[k],) for k in f.numbers] + [(operands + k,) for k in f.outputs]
                numbers = [f.parts, f.columns, *_parameters(f.constants)]
                steps.append(Step(todo.pop(0), f.grid, [*given, *numbers]))
        name = getattr(self.kernel, "__name__", "kernel")
        return direct(name, self.device, operands, memory, steps, range(len(outputs)))


def _elsewhere(device: Any) -> Any:
    """The context in which a device is the current one, as triton wants it; None if it is."""
    import torch

    if device.type != "cuda" or torch.cuda.current_device() == device.index:
        return None
    return torch.cuda.device(device)


def _parameters(constants: Mapping[str, Any]) -> list[Any]:
    """The parameters of a kernel among what it is called with, in order."""
    return [v for name, v in constants.items() if name.isupper()]


class FoldGroup:
    """The second kernel of folds: it adds the partial results of all programs, in order."""

    def __init__(
        self, nest: LoopNest, numbers: Sequence[int], function: Any, parts: int, columns: int,
        sizes: Sequence[int], outputs: Sequence[Any], units: int,
    ) -> None:  # fmt: skip
        import torch

        folds = [folds_of(nest)[k] for k in numbers]
        self.numbers, self.function, self.parts = numbers, function, parts
        self.outputs = [f.buffer for f in folds]
        self.columns = columns if folds[0].level == "cell" else 1
        self.dtypes = [getattr(torch, NAMES[wide(f.dtype)]) for f in folds]
        self.made = [_memory(nest.outputs[k], outputs[k], sizes) for k in self.outputs]
        blocks = fold_blocks(self.columns, len(folds), units)
        self.grid = (-(-self.columns // blocks.columns), len(folds))
        self.constants = {"BP": blocks.rows, "BC": blocks.columns, "num_warps": blocks.warps,
                          "enable_fp_fusion": True}  # fmt: skip

    def partials(self, device: Any) -> dict[int, Any]:
        """Memory for a partial result of each program, by the numbers of folds."""
        import torch

        shape = (self.parts, self.columns)
        return {
            k: torch.empty(shape, dtype=dtype, device=device)
            for k, dtype in zip(self.numbers, self.dtypes, strict=True)
        }

    def compile(self) -> Any:
        """Have triton compile it."""
        made = [dtype for _, _, dtype in self.made]
        given = (*self.dtypes, *made, self.parts, self.columns)
        return self.function.warmup(*given, grid=self.grid, **self.constants)

    def empty(self, device: Any) -> list[Any]:
        """Memory for the outputs."""
        import torch

        return [
            torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype in self.made
        ]

    def nbytes(self) -> dict[int, int]:
        """Bytes of the partial results of each fold."""
        n = self.parts * self.columns
        return {k: n * d.itemsize for k, d in zip(self.numbers, self.dtypes, strict=True)}

    def __call__(self, partials: Sequence[Any]) -> tuple[list[Any], Any]:
        """The outputs, and what the JIT compiled."""
        made = self.empty(partials[0].device)
        compiled = None
        if all(self.grid):
            given = (*partials, *made, self.parts, self.columns)
            compiled = self.function[self.grid](*given, **self.constants)
        return made, compiled


def _memory(buffer: Buffer, output: Any, sizes: Sequence[int]) -> tuple[Any, Any, Any]:
    """Shape, strides and dtype of an output whose memory has the order of the nest's axes."""
    import torch

    named = [a for a, d in enumerate(buffer.dims) if d is not None]
    order = sorted(range(len(named)), key=lambda p: buffer.dims[named[p]] or 0)
    flat = torch.empty([sizes[a] for a in named], device="meta")
    made = flat.permute(order).reshape(output.shape)
    return made.shape, made.stride(), output.dtype


class PlannedParts:
    """A nest in two (`split_reductions`): the call of the first, then of the second."""

    def __init__(
        self, first: Any, second: Any, given: Sequence[int],
        made: Sequence[int],
    ) -> None:  # fmt: skip
        self.first, self.second, self.given, self.made = first, second, given, made
        self.direct = None  # its parts have theirs

    def rehearse(self, tensors: Sequence[Any], device: str, found: list[Any]) -> list[Any]:
        """As `TritonKernel.rehearse`."""
        made = list(self.first.rehearse(tensors, device, found))
        if self.second is not None:
            pool = [*tensors, *made]
            made += self.second.rehearse([pool[k] for k in self.given], device, found)
        return [made[k] for k in self.made]

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Launch both; fresh outputs."""
        found = self.first(*tensors)
        if self.second is not None:
            pool = [*tensors, *found]
            found = (*found, *self.second(*(pool[k] for k in self.given)))
        return tuple(found[k] for k in self.made)
