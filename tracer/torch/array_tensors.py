"""Tensors that a traced torch function makes of numpy's arrays, and arrays of its tensors.

    torch.as_tensor(obs), torch.from_numpy(obs)      # the tensor over the array's memory
    torch.tensor(obs), torch.FloatTensor(obs)        # a copy
    logits.numpy()                                   # the array over the tensor's memory

Arrays are `TracedNumpy`s, or those that the caller gives (`lend`).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from gradof.errors import LeafTypeError
from gradof.tracer.core.lent_arrays import over_memory
from gradof.tracer.torch import numpy_functions  # noqa: F401  # they register themselves
from gradof.tracer.torch.known_calls import FROM_NUMPY
from gradof.tracer.torch.numpy_arrays import (
    TracedNumpy,
    alike,
    cast,
    dtype_of,
    in_index,
    number_of,
    refuse_array,
)
from gradof.tracer.torch.overrides import INDEXING

_KINDS = "biufc"


def lend(array: Any, path: str) -> torch.Tensor:
    """The tensor over the memory of an argument; LeafTypeError where there is none."""
    if type(array) not in (np.ndarray, np.memmap) or array.dtype.kind not in _KINDS:
        raise LeafTypeError(
            f"{path} is a {type(array).__qualname__} of dtype {array.dtype}",
            hint="pass a plain array of numbers, or a tensor",
        )
    if torch.get_default_device().type != "cpu":
        raise LeafTypeError(
            f"{path} is a numpy array, and the default device is another than the CPU",
            hint="convert it: torch.from_numpy(a)",
        )
    try:
        found: torch.Tensor = over_memory(array)
    except (TypeError, ValueError) as error:
        raise LeafTypeError(f"{path} cannot be a tensor: {error}", hint="pass a copy") from None
    return found


def takes_arrays(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether arrays of the trace may be among the arguments of a function of torch's."""
    if func in FROM_NUMPY or func in INDEXING or TracedNumpy in map(type, args):
        return True
    return bool(kwargs) and TracedNumpy in map(type, kwargs.values())


def of_arrays(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any] | None:
    """What such a function gives for arrays of the trace; None where there is none among them.

    Arrays are indices, and become tensors; numbers of numpy's are numbers.
    """
    if func in FROM_NUMPY:
        return _made_of_array(func, args, kwargs)
    given = list(args)
    if func in INDEXING:
        index = args[1] if type(args[1]) is tuple else (args[1],)
        if any(type(part) is TracedNumpy for part in index):
            given[1] = tuple(map(in_index, index))
        if TracedNumpy in map(type, args[2:]):
            refuse_array("one is written into a tensor")  # torch takes some numbers, and not others
    given = list(map(number_of, given))
    by_name = {name: number_of(value) for name, value in kwargs.items()}
    if all(a is b for a, b in zip((*given, *by_name.values()), (*args, *kwargs.values()))):  # noqa: B905
        return None
    return (func(*given, **by_name),)


def _made_of_array(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor] | None:
    at = 1 if func in (torch.Tensor.new_tensor, torch.Tensor.new) else 0
    data = args[at] if len(args) > at else kwargs.get("data", kwargs.get("obj"))
    is_list = type(data) in (list, tuple) and data and all(type(x) is TracedNumpy for x in data)
    if type(data) is not TracedNumpy and not is_list:
        return None
    given = {k: v for k, v in kwargs.items() if k not in ("data", "obj", "pin_memory")}
    options = ("dtype", "device")
    given.update(zip(options, args[at + 1 :], strict=False))
    copy, requires = given.pop("copy", None), given.pop("requires_grad", False)
    if set(given) - {*options} or len(args) > at + 3 or copy is False or func is torch.Tensor.new:
        refuse_array(f"{func.__name__} with {sorted(given)}")
    if at:
        given.setdefault("dtype", args[0].dtype)
    tensor = torch.stack(alike(data)) if is_list else data.tensor.detach()
    made = tensor.to(**{k: v for k, v in given.items() if v is not None}) if given else tensor
    is_copied = copy or (not is_list and data.is_scalar)  # a number has no memory to share
    if is_copied or func in (torch.tensor, torch.Tensor.new_tensor):
        made = made.clone()
    return (made.requires_grad_() if requires else made,)


def array_over(tensor: torch.Tensor, force: bool = False) -> Any:
    """What `Tensor.numpy` gives, or NotImplemented where eager or we refuse."""
    if (tensor.requires_grad and not force) or not tensor.is_cpu or dtype_of(tensor) is None:
        return NotImplemented
    return TracedNumpy(tensor.detach())


_MAKERS = {  # torch's types, which copy an array into a tensor of theirs
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "LongTensor": torch.int64, "IntTensor": torch.int32,
    "ShortTensor": torch.int16, "CharTensor": torch.int8, "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}  # fmt: skip
_IN_ROWS = "ascontiguousarray"
_TORCH: Any = torch  # functions and types of it are replaced while a function is traced


class _Maker:
    """One of torch's types, which takes the arrays of a trace, too."""

    def __init__(self, kind: Any, dtype: torch.dtype) -> None:
        self.kind, self.dtype = kind, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and type(args[0]) is TracedNumpy and not kwargs:
            return _copied_as(args[0], self.dtype)
        return self.kind(*args, **kwargs)

    def __instancecheck__(self, obj: object) -> bool:
        return isinstance(obj, self.kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kind, name)


def _copied_as(array: TracedNumpy, dtype: torch.dtype) -> torch.Tensor:
    wants_floats = dtype.is_floating_point
    if array.is_scalar or array.dtype.kind not in ("biuf" if wants_floats else "biu"):
        refuse_array(f"one of {array.dtype} as {dtype}")
    return array.tensor.detach().to(dtype, copy=True)


def _arrays_of_numpy(here: int) -> dict[str, Any]:
    """What `numpy.array` and its like are, while they take the arrays of a trace."""

    def taking(name: str) -> Any:
        original, copies, in_rows = getattr(np, name), name == "array", name == _IN_ROWS

        @functools.wraps(original)
        def made(*args: Any, **kwargs: Any) -> Any:
            value: Any = args[0] if args else None
            parts = value if type(value) in (list, tuple) and value else ()
            several = all(type(part) is TracedNumpy for part in parts) and bool(parts)
            is_ours = type(value) is TracedNumpy or several
            if not is_ours or threading.get_ident() != here:
                return original(*args, **kwargs)
            dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            if set(kwargs) - {"copy", "dtype"} or len(args) > 2:
                refuse_array(f"numpy.{name} with {sorted(kwargs)}")
            found = TracedNumpy(torch.stack(alike(value))) if several else value
            found = TracedNumpy(found.tensor, found.fixed)  # no number: an array without dims
            if in_rows and not found.ndim:
                found = found.reshape(1)
            fits = not in_rows or found.tensor.is_contiguous()
            if dtype is not None and np.dtype(dtype) != found.dtype:
                return TracedNumpy(cast(found.tensor, np.dtype(dtype)))
            if several or (fits and not kwargs.get("copy", copies)):
                is_itself = not several and not value.is_scalar and found.ndim == value.ndim
                return value if is_itself else found
            return TracedNumpy(found.tensor.clone()) if fits else found.copy()

        return made

    return {name: taking(name) for name in ("array", "asarray", "asanyarray", _IN_ROWS)}


@contextlib.contextmanager
def arrays_taken(among_arguments: bool) -> Iterator[None]:
    """Within it, what torch makes of numpy's memory takes the arrays of a trace in this thread.

    `torch.from_numpy`, and, where arrays are among the arguments, `torch.Tensor` and `numpy.array`,
    and the like: they are in C, and no mode sees them.
    """
    here, of_memory = threading.get_ident(), torch.from_numpy
    make, kinds = torch.Tensor.__new__, {name: getattr(torch, name) for name in _MAKERS}

    def from_numpy(array: Any) -> torch.Tensor:
        if type(array) is TracedNumpy and threading.get_ident() == here:
            if array.is_scalar:
                raise TypeError(f"expected np.ndarray (got {array.__class__.__name__})")
            return array.tensor.detach()
        return of_memory(array)

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        is_array = cls is torch.Tensor and len(args) == 1 and type(args[0]) is TracedNumpy
        if is_array and threading.get_ident() == here:
            return _copied_as(args[0], torch.get_default_dtype())
        return make(cls, *args, **kwargs)

    _TORCH.from_numpy = from_numpy
    ours = _arrays_of_numpy(here) if among_arguments else {}
    numpys = {name: getattr(np, name) for name in ours}
    if among_arguments:
        _TORCH.Tensor.__new__ = staticmethod(new)
        vars(torch).update({name: _Maker(kinds[name], dtype) for name, dtype in _MAKERS.items()})
        vars(np).update(ours)
    try:
        yield
    finally:
        _TORCH.from_numpy = of_memory
        if among_arguments:
            del _TORCH.Tensor.__new__
            vars(torch).update(kinds)
            vars(np).update(numpys)
