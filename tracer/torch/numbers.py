"""Traced numbers that meet tensors: in arithmetic they become 0-d tensors of the result's dtype.

    x * lr      lr : f64[] of the graph, x : f32[3]      →      mul(%x, cast[f32](%lr))

A 0-d tensor of the dtype that torch promotes a Python number to changes no dtype. Every other use
of a number in a call of torch pins it (Note [Pinned numbers] in `tracer.number`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import torch

from gradof.errors import DataDependentError
from gradof.ir.core import Loc
from gradof.ir.types import F64, I64
from gradof.ops.expr import F
from gradof.tracer.aten.types import from_torch_dtype
from gradof.tracer.core.math_numbers import ufunc_of_numbers
from gradof.tracer.core.number import LARGEST, Number, Numbers, TracedNumber
from gradof.tracer.core.number_trees import has_number, plain
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.dropout import DROPS, dropped
from gradof.tracer.torch.functional import inner, scalar, wrap
from gradof.tracer.torch.overrides import cells_of
from gradof.tracer.torch.recorder import Recorder
from gradof.tracer.torch.written_numbers import WRITTEN, written

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def _named(*names: str) -> frozenset[Any]:
    """The functions of these names and methods of these names, in place and reflected too."""
    found = [getattr(torch, n, None) for n in names]
    for n in names:
        for form in (n, f"{n}_", f"__{n}__", f"__r{n}__", f"__i{n}__"):
            found.append(getattr(torch.Tensor, form, None))
    return frozenset(f for f in found if f is not None)


_OPERANDS = _named(
    "add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "truediv", "true_divide",
    "floor_divide", "floordiv", "remainder", "mod", "fmod", "pow", "float_power", "copysign",
    "eq", "ne", "lt", "le", "gt", "ge", "greater", "less", "greater_equal", "less_equal",
    "not_equal", "lerp", "xlogy",
)  # fmt: skip
_EXACT = _named("mul", "multiply", "div", "divide", "truediv", "true_divide", "floordiv")
_ADDS = _named("add", "sub", "subtract")
_LERPS = _named("lerp")
_CLAMPS = _named("clamp", "clip", "clamp_min", "clamp_max")
_SCALED = _named("addcmul", "addcdiv")  # value * the second and third operand
_CHOOSES = _named("where", "masked_fill")
_FILLS = frozenset({torch.Tensor.fill_, torch.Tensor.__setitem__, torch.full_like})
_NORMS = frozenset({torch.nn.functional.batch_norm})
_SOFTENS = frozenset({torch.nn.functional.gumbel_softmax})
READS = frozenset({
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__, torch.Tensor.__int__,
})  # fmt: skip
MOST_READ = 64  # elements that tolist() may read
_MAKES = frozenset({
    torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.asarray, torch.Tensor.new_tensor,
})  # fmt: skip
_SPREADS = frozenset({torch.full, torch.Tensor.new_full})


_HALVES = (torch.float16, torch.bfloat16)


def _rounds_once(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether half precision is computed with a number that no tensor of a call could stand for."""
    if not any(isinstance(a, torch.Tensor) and a.dtype in _HALVES for a in args):
        return False
    return func in _LERPS or func in _SCALED or (func in _ADDS and "alpha" in kwargs)


_NUMBERS = frozenset({
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8,
})  # fmt: skip


def _shape_of(data: Any) -> tuple[int, ...] | None:
    """The shape of lists in lists; None where they are not as long as one another."""
    if type(data) not in (list, tuple):
        return ()
    shapes = {_shape_of(part) for part in data}
    if len(shapes) > 1:
        return None
    inner = shapes.pop() if shapes else ()
    return None if inner is None else (len(data), *inner)


def _shaped(cells: list[torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    return torch.stack(cells).reshape(shape)


class TorchNumbers:
    """How one trace of a torch function treats its numbers."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.numbers = Numbers(recorder, recorder.varying.add)
        self.numbers.ufunc = ufunc_of_numbers

    @property
    def active(self) -> bool:
        """Whether there are traced numbers."""
        return self.numbers.active

    def resolve(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The call with its traced numbers as tensors where that means the same, else pinned."""
        if not has_number(args) and not has_number(kwargs):
            return func, args, kwargs
        for functions, treat in _TREATMENTS:
            if func in functions:
                return treat(self, func, args, kwargs)
        return self.pinned(func, args, kwargs)

    def written(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call gives whose number is no operand; NotImplemented where it is to be pinned."""
        if func not in DROPS and func not in WRITTEN:
            return NotImplemented
        if not (has_number(args) or has_number(kwargs)):
            return NotImplemented
        if func in DROPS:
            return dropped(self.recorder, *args, **kwargs)
        return written(func, args, kwargs)

    def read(self, func: Any, tensor: torch.Tensor, frame: FrameType) -> Any:
        """A number that Python reads of a tensor: of the graph, or NotImplemented."""
        if func is torch.Tensor.item:
            return self.item(tensor, user_loc(frame))
        if func is torch.Tensor.tolist:
            return self.listed(tensor, user_loc(frame))
        self.numbers.converted(frame)
        return NotImplemented

    def item(self, tensor: torch.Tensor, loc: Loc | None) -> Any:
        """`tensor.item()` as a number of the graph; NotImplemented where it is read for good.

        What is not known before the call (it follows from no input) is the plain number.
        """
        held = inner(tensor)
        if held.numel() != 1 or held.dtype not in _NUMBERS:
            return NotImplemented
        value = self.recorder.value(held, loc)
        if value not in self.recorder.varying:
            return NotImplemented
        with self.recorder.pause():
            number = held.item()
        if isinstance(number, int) and abs(number) >= LARGEST:
            return NotImplemented
        dtype = F64 if held.dtype.is_floating_point else I64
        expr = self.numbers.emit(
            lambda: F.reshape(F.detach(self.recorder.emitter.wrap(value)), shape=()).cast(dtype)
        )
        return self.numbers.element(number, expr.value)

    def listed(self, tensor: torch.Tensor, loc: Loc | None) -> Any:
        """`tensor.tolist()`, of which each number is read for itself."""
        if tensor.numel() > MOST_READ:
            raise DataDependentError(
                f"tolist() reads {tensor.numel()} elements of a traced tensor, more than "
                f"{MOST_READ}", loc=loc, hint="stay in torch inside the function, or do it outside",
            )  # fmt: skip
        if tensor.dim() > 0:
            return [self.listed(part, loc) for part in tensor.unbind()]
        number = self.item(tensor, loc)
        return tensor.item() if number is NotImplemented else number

    def pinned(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The call with plain numbers."""
        return func, plain(args), plain(kwargs)

    def tensor(self, number: Any, dtype: torch.dtype) -> torch.Tensor:
        """A number as a 0-d tensor; plain ones are constants."""
        if type(number) is not TracedNumber:
            return torch.tensor(number, dtype=dtype)
        if dtype in (torch.int8, torch.uint8, torch.int16):
            return torch.tensor(number.pin(), dtype=dtype)  # it may not fit, which is an error
        expr = number.cast(from_torch_dtype(dtype))
        with self.recorder.pause():
            wrapper = wrap(scalar(number.value, dtype))
        self.recorder.bind(inner(wrapper), expr.value)
        return wrapper

    def beside(self, number: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
        """A number as the operand of an op with these tensors."""
        value: Number = number.value if type(number) is TracedNumber else number
        dtypes = [torch.result_type(t, value) for t in tensors]
        dtype = functools.reduce(torch.promote_types, dtypes) if dtypes else torch.float64
        return self.tensor(number, dtype)

    def operands(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Arithmetic and comparisons: each number is an operand."""
        if _rounds_once(func, args, kwargs):
            return self.pinned(func, args, kwargs)
        if func in _ADDS and "alpha" in kwargs and len(args) == 2:
            rest = {k: v for k, v in kwargs.items() if k != "alpha"}
            args = (args[0], kwargs["alpha"] * args[1])
            return self.operands(func, args, rest)
        if has_number(kwargs):
            return self.pinned(func, args, kwargs)
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if func is torch.Tensor.__rtruediv__ and isinstance(args[0], torch.Tensor):
            func, args = torch.Tensor.mul, (args[0].reciprocal(), *args[1:])  # as it is written
        beside = self.exactly if func in _EXACT else self.beside
        new = tuple(beside(a, tensors) if type(a) is TracedNumber else a for a in args)
        return func, new, kwargs

    def exactly(self, number: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
        """As `beside`, not rounded to the half precision of arrays (see `aten_half`)."""
        if any(t.dtype in _HALVES and t.dim() for t in tensors) and all(
            t.dtype in _HALVES or not t.dtype.is_floating_point for t in tensors
        ):
            return self.tensor(number, torch.float32)
        return self.beside(number, tensors)

    def clamps(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Both bounds are tensors, or neither is."""
        x = args[0]

        def bound(b: Any) -> Any:
            return b if b is None or isinstance(b, torch.Tensor) else self.beside(b, [x])

        limits = {k: bound(v) if k in ("min", "max") else v for k, v in kwargs.items()}
        return func, (x, *map(bound, args[1:])), limits

    def scaled(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """`value * a * b` as `(value * a) * b`."""
        if len(args) != 3 or set(kwargs) != {"value"} or _rounds_once(func, args, kwargs):
            return self.pinned(func, args, kwargs)
        return func, (args[0], kwargs["value"] * args[1], args[2]), {}

    def chooses(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """`where` and `masked_fill`: the mask has no say in the dtype."""
        if len(args) != 3 or kwargs:
            return self.pinned(func, args, kwargs)
        rest = [a for a in args if isinstance(a, torch.Tensor) and a.dtype is not torch.bool]
        rest = rest or [torch.empty(0)]  # two numbers: the default dtype
        new = tuple(self.beside(a, rest) if type(a) is TracedNumber else a for a in args)
        return func, new, kwargs

    def fills(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The number takes the dtype of what is filled."""
        *before, value = args
        if kwargs or has_number(tuple(before)) or type(value) is not TracedNumber:
            return self.pinned(func, args, kwargs)
        x = args[0]
        if func is torch.full_like:
            made = self.tensor(value, x.dtype)
            return torch.Tensor.expand_as, (made if x.is_cpu else made.to(x.device), x), {}
        return func, (*before, self.tensor(value, x.dtype)), kwargs

    def makes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """`torch.tensor(n)`, and of lists of any depth with numbers in them."""
        like = args[0] if func is torch.Tensor.new_tensor else None
        given = args if like is None else args[1:]
        place = torch.get_default_device() if like is None else like.device
        here = torch.device(kwargs.get("device") or place).type == "cpu"
        here &= set(kwargs) <= {"dtype", "device"}
        shape = _shape_of(given[0]) if len(given) == 1 else None
        cells = [] if shape is None else cells_of(given[0])
        if not here or not all(type(x) in (TracedNumber, float, int) for x in cells) or not cells:
            return self.pinned(func, args, kwargs)
        inferred = torch.float64  # of numpy's numbers, which have a dtype
        if not any(isinstance(x, np.float64) for x in cells):
            real = any(isinstance(x, float) for x in cells)
            inferred = torch.get_default_dtype() if real else torch.int64
        dtype = kwargs.get("dtype") or (inferred if like is None else like.dtype)
        made = [self.tensor(x, dtype) for x in cells]
        return (_shaped, (made, shape), {}) if shape else (torch.clone, (made[0],), {})

    def spreads(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """`torch.full(size, n)` and `x.new_full(size, n)`."""
        like = args[0] if func is torch.Tensor.new_full else None
        names = ("size", "fill_value")
        given = dict(zip(names, args if like is None else args[1:], strict=False)) | kwargs
        number, size = given.pop("fill_value", None), given.get("size")
        place = torch.get_default_device() if like is None else like.device
        here = torch.device(given.pop("device", None) or place).type == "cpu"
        here &= set(given) <= {"size", "dtype"} and not has_number(given)
        if type(number) is not TracedNumber or not here:
            return self.pinned(func, args, kwargs)
        inferred = torch.get_default_dtype() if isinstance(number.value, float) else torch.int64
        dtype = given.get("dtype") or (inferred if like is None else like.dtype)
        sizes = size if isinstance(size, (tuple, list)) else (size,)
        return torch.clone, (self.tensor(number, dtype).expand(tuple(sizes)),), {}

    def norms(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """A batch norm whose momentum varies, as that of a cumulative average does."""
        given = _arguments(func, args, kwargs)
        momentum, mean, var = (given.pop(k) for k in ("momentum", "running_mean", "running_var"))
        if has_number(given):
            return self.pinned(func, args, kwargs)
        if given["training"] and mean is not None:
            with torch.no_grad():
                x = given["input"].detach().to(mean.dtype)
                dims = [0, *range(2, x.dim())]
                new = x.mean(dims), x.var(dims)
                for kept, value in zip((mean, var), new, strict=True):
                    share = self.beside(momentum, [kept])
                    kept.mul_(1 - share).add_(share * value)
            mean = var = None
        given |= {"running_mean": mean, "running_var": var}
        return func, (given.pop("input"),), given

    def softens(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """A softmax whose temperature varies: the logits are divided by it."""
        given = _arguments(func, args, kwargs)
        logits, tau = given.pop("logits"), given.pop("tau")
        if has_number(given):
            return self.pinned(func, args, kwargs)
        return func, (logits,), {**given, "tau": self.beside(tau, [logits])}


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


Treat = Callable[[TorchNumbers, Any, tuple[Any, ...], dict[str, Any]], Call]
_TREATMENTS: tuple[tuple[frozenset[Any], Treat], ...] = (
    (_CLAMPS, TorchNumbers.clamps), (_SCALED, TorchNumbers.scaled),
    (_CHOOSES, TorchNumbers.chooses), (_FILLS, TorchNumbers.fills),
    (_MAKES, TorchNumbers.makes), (_OPERANDS, TorchNumbers.operands),
    (_SPREADS, TorchNumbers.spreads), (_NORMS, TorchNumbers.norms),
    (_SOFTENS, TorchNumbers.softens),
)  # fmt: skip
