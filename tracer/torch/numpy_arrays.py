"""numpy arrays in a traced torch function: tensors of the trace, under numpy's names.

    @differentiate
    def loss(batch):                                  # {"obs": np.ndarray, ...}
        obs = torch.as_tensor(batch["obs"][:, :3] / 255.0, dtype=torch.float32)
        return model(obs).mean()

    def act(obs):                                     # an array in, an array out
        return model(torch.from_numpy(obs)).argmax(-1).numpy()

An array among the arguments, and what `Tensor.numpy` gives, is a `TracedNumpy`. It can be indexed,
reshaped, joined, cast and computed with where torch gives numpy's very bits, and it becomes a
tensor. Whatever else numpy would do with its elements is refused: the function is not traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradof.errors import DataDependentError
from gradof.tracer.core.sparse_matrices import Node
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import is_wrapper
from gradof.tracer.torch.memory import address


def dtype_of(tensor: torch.Tensor) -> np.dtype[Any] | None:
    """The dtype of the array over a tensor's memory; None where numpy has none such."""
    name = str(tensor.dtype).removeprefix("torch.")
    return np.dtype(name) if hasattr(np, name) else None


def _in_torch(dtype: Any) -> torch.dtype:
    """torch's name of a dtype of numpy's."""
    found = getattr(torch, np.dtype(dtype).name, None)
    if not isinstance(found, torch.dtype):
        refuse_array(f"a cast to {np.dtype(dtype)}")
    return found


def refuse_array(what: str) -> NoReturn:
    """Raise the error for what is not recorded of an array."""
    raise DataDependentError(
        f"the elements of a traced array are read by numpy: {what}", loc=user_loc(),
        hint="make it a tensor first (torch.as_tensor), and stay in torch inside the function",
    )  # fmt: skip


def _made_of(parts: list[Any], fixed: bool) -> Any:
    """What a call gives for an array: numpy's, over the memory of a tensor."""
    (tensor,) = parts
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if is_wrapper(tensor):
        return TracedNumpy(tensor, fixed)
    made = tensor.detach().numpy()
    if fixed:
        made.flags.writeable = False
    return made


class TracedNumpy(NDArrayOperatorsMixin):
    """See the module docstring. `tensor` has the array's memory; `fixed` cannot be written."""

    __slots__ = ("__weakref__", "fixed", "tensor")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000
    gradof_node = Node(lambda array: ([array.tensor], array.fixed), _made_of)

    def __init__(self, tensor: torch.Tensor, fixed: bool = False) -> None:
        self.tensor = tensor
        self.fixed = fixed

    def moved(self, tensor: torch.Tensor) -> TracedNumpy:
        """The array over a tensor that may be a view of this one's."""
        return TracedNumpy(tensor, self.fixed and address(tensor) == address(self.tensor))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    # --- what it is -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """How many dims it has."""
        return self.tensor.dim()

    @property
    def size(self) -> int:
        """How many elements."""
        return self.tensor.numel()

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's dtype."""
        found = dtype_of(self.tensor)
        assert found is not None
        return found

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    # --- its elements in other places -------------------------------------------------------

    @property
    def T(self) -> TracedNumpy:
        """All dims reversed."""
        return self.transpose()

    def __iter__(self) -> Iterator[TracedNumpy]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> TracedNumpy:
        parts = index if type(index) is tuple else (index,)
        found = self.tensor[tuple(map(in_index, parts))]
        if not found.dim() and not any(part is Ellipsis for part in parts):
            refuse_array("one of them is taken by its index")
        return self.moved(found)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> TracedNumpy:
        """Another shape; a view where there is one."""
        if order != "C" or copy is not None:
            refuse_array("reshape with an order, or copy")
        sizes: Any = shape[0] if len(shape) == 1 else shape
        return self.moved(self.tensor.reshape(tuple(sizes) if _is_several(sizes) else (sizes,)))

    def ravel(self, order: str = "C") -> TracedNumpy:
        """One dim; a view where there is one."""
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> TracedNumpy:
        """One dim, a copy."""
        return self.reshape(-1, order=order).copy()

    def squeeze(self, axis: Any = None) -> TracedNumpy:
        """Without dims of one element."""
        if axis is None:
            return self.moved(self.tensor.squeeze())
        axes = axis if _is_several(axis) else (axis,)
        if any(self.shape[a] != 1 for a in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
        return self.moved(self.tensor.squeeze(tuple(axes)))

    def transpose(self, *axes: Any) -> TracedNumpy:
        """Permuted dims, a view."""
        order = axes[0] if len(axes) == 1 and (axes[0] is None or _is_several(axes[0])) else axes
        return self.moved(self.tensor.permute(tuple(order or range(self.ndim)[::-1])))

    def swapaxes(self, axis1: int, axis2: int) -> TracedNumpy:
        """Two dims swapped, a view."""
        return self.moved(self.tensor.swapaxes(axis1, axis2))

    def copy(self, order: str = "C") -> TracedNumpy:
        """A copy, in rows."""
        if order != "C":
            refuse_array("copy with an order")
        return TracedNumpy(self.tensor.clone(memory_format=torch.contiguous_format))

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> TracedNumpy:
        """Another dtype; with `copy=False` the array itself if it has it."""
        want = np.dtype(dtype)
        if order not in ("K", "C"):
            refuse_array("astype with an order")
        if want == self.dtype:
            return self.copy() if copy else self
        return TracedNumpy(_cast(self.tensor, want))

    def clip(self, min: Any = None, max: Any = None) -> TracedNumpy:
        """Numbers within bounds, of a floating dtype."""
        numbers = all(bound is None or type(bound) in (int, float) for bound in (min, max))
        if not numbers or self.dtype.kind != "f" or not self.ndim:
            refuse_array("clip of whole numbers, or by arrays")
        return TracedNumpy(self.tensor.clamp(min, max))

    # --- numpy's protocols ------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        run = _UFUNCS.get(ufunc)
        if run is None or method != "__call__" or kwargs:
            refuse_array(f"{ufunc.__name__}{'' if method == '__call__' else '.' + method}")
        if any(isinstance(x, torch.Tensor) for x in inputs):
            refuse_array("an array meets a tensor")
        kinds = [type(x) if type(x) in (int, float, complex) else _dtype(x) for x in inputs]
        *loop, _ = ufunc.resolve_dtypes((*kinds, None))
        operands = [_operand(x, dtype) for x, dtype in zip(inputs, loop, strict=True)]
        if not any(operand.dim() for operand in operands):
            refuse_array(f"{ufunc.__name__} of arrays without dims")
        return TracedNumpy(run(*operands))

    def __array_function__(
        self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        run = FUNCTIONS.get(func)
        if run is None:
            refuse_array(f"numpy.{func.__name__}")
        return run(*args, **kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        refuse_array("a function in C, or numpy.array or numpy.asarray")

    def __copy__(self) -> TracedNumpy:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> TracedNumpy:
        return self.copy()

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            refuse_array(f"ndarray.{name}")
        raise AttributeError(f"a numpy array has no attribute {name!r}")


def _refused(name: str) -> Callable[..., NoReturn]:
    def method(self: TracedNumpy, *args: Any, **kwargs: Any) -> NoReturn:
        refuse_array(name)

    return method


for _name in (
    "bool", "int", "float", "complex", "index", "setitem", "delitem", "contains", "repr", "str",
    "format", "reduce_ex", "round",
):
    setattr(TracedNumpy, f"__{_name}__", _refused(f"__{_name}__"))


def _is_several(value: Any) -> bool:
    return isinstance(value, (tuple, list))


def in_index(part: Any) -> Any:
    """A part of an index as torch takes it."""
    if isinstance(part, np.integer):
        return int(part)
    if type(part) is TracedNumpy or type(part) is np.ndarray:
        places = tensor_of(part)
        return places if places.dtype is torch.bool else places.long()
    return part


def _dtype(operand: Any) -> np.dtype[Any]:
    if type(operand) is bool:
        return np.dtype(bool)
    if type(operand) is TracedNumpy or isinstance(operand, (np.ndarray, np.generic)):
        return np.dtype(operand.dtype)
    refuse_array(f"an array meets a {type(operand).__qualname__}")


def tensor_of(value: Any) -> Any:
    """An operand of numpy's as a tensor."""
    return value.tensor if type(value) is TracedNumpy else torch.tensor(value)


def _operand(value: Any, dtype: np.dtype[Any]) -> Any:
    if type(value) is TracedNumpy or type(value) is np.ndarray:
        return _cast(tensor_of(value), dtype)
    return torch.tensor(value, dtype=_in_torch(dtype))


def _cast(tensor: torch.Tensor, dtype: np.dtype[Any]) -> torch.Tensor:
    """The elements as of another dtype, where torch rounds as numpy does."""
    given, want = dtype_of(tensor), _in_torch(dtype)
    if given is None or (given.kind == "c" and dtype.kind != "c") or (
        dtype == np.float16 and given.itemsize > 4  # torch rounds twice
    ):
        refuse_array(f"a cast from {given} to {dtype}")
    return tensor.to(want)


_UFUNCS: dict[Any, Callable[..., torch.Tensor]] = {
    np.add: torch.add, np.subtract: torch.sub, np.multiply: torch.mul, np.divide: torch.div,
    np.negative: torch.neg, np.absolute: torch.abs, np.sqrt: torch.sqrt, np.square: torch.square,
    np.equal: torch.eq, np.not_equal: torch.ne, np.less: torch.lt, np.less_equal: torch.le,
    np.greater: torch.gt, np.greater_equal: torch.ge, np.logical_not: torch.logical_not,
    np.logical_and: torch.logical_and, np.logical_or: torch.logical_or,
    np.isnan: torch.isnan, np.isfinite: torch.isfinite,
}  # fmt: skip


def alike(arrays: Sequence[Any]) -> list[torch.Tensor]:
    """The parts of one array that is joined, of one dtype."""
    dtype = np.result_type(*map(_dtype, arrays))
    return [_cast(tensor_of(array), dtype) for array in arrays]


def _joined(join: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def joined(arrays: Sequence[Any], axis: int = 0) -> TracedNumpy:
        return TracedNumpy(join(alike(list(arrays)), axis))

    return joined


def _joined_along(join: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def joined(arrays: Sequence[Any]) -> TracedNumpy:
        return TracedNumpy(join(alike(list(arrays))))

    return joined


def _method(name: str) -> Callable[..., Any]:
    def method(array: Any, *args: Any, **kwargs: Any) -> Any:
        if type(array) is not TracedNumpy:
            refuse_array(f"numpy.{name}")
        return getattr(array, name)(*args, **kwargs)

    return method


def _of_tensor(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def of(array: Any, *args: Any, **kwargs: Any) -> TracedNumpy:
        if type(array) is not TracedNumpy:
            refuse_array(f"numpy.{function.__name__}")
        return array.moved(function(array.tensor, *args, **kwargs))

    return of


def _expand_dims(tensor: torch.Tensor, axis: Any) -> torch.Tensor:
    axes = axis if _is_several(axis) else (axis,)
    rank = tensor.dim() + len(axes)
    for place in sorted(a % rank for a in axes):
        tensor = tensor.unsqueeze(place)
    return tensor


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.stack: _joined(torch.stack), np.concatenate: _joined(torch.cat),
    np.vstack: _joined_along(torch.vstack), np.hstack: _joined_along(torch.hstack),
    np.dstack: _joined_along(torch.dstack), np.column_stack: _joined_along(torch.column_stack),
    np.reshape: _method("reshape"), np.ravel: _method("ravel"), np.squeeze: _method("squeeze"),
    np.transpose: _method("transpose"), np.swapaxes: _method("swapaxes"), np.copy: _method("copy"),
    np.clip: _method("clip"), np.expand_dims: _of_tensor(_expand_dims),
    np.moveaxis: _of_tensor(lambda x, source, destination: x.movedim(source, destination)),
    np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
}  # fmt: skip


__all__ = ["TracedNumpy", "alike", "dtype_of", "in_index", "refuse_array", "tensor_of"]
