"""numpy arrays in a traced torch function: tensors of the trace, under numpy's names.

    @differentiate
    def loss(batch):                                  # {"obs": np.ndarray, ...}
        obs = torch.as_tensor(batch["obs"][:, :3] / 255.0, dtype=torch.float32)
        return model(obs).mean()

    def act(obs):                                     # an array in, an array out
        return model(torch.from_numpy(obs)).argmax(-1).numpy()

An array among the arguments, and what `Tensor.numpy` gives, is a `TracedNumpy`. It can be indexed,
reshaped, joined, cast and computed with (`numpy_functions`), and it becomes a tensor. Whatever else
numpy would do with its elements is refused: the function is not traced. A number of numpy's, as
`a.mean()` gives, is one without dims, that `is_scalar`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradof.errors import DataDependentError, GradofError
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.sparse_matrices import Node
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import is_wrapper
from gradof.tracer.torch.memory import address
from gradof.tracer.torch.refusals import note


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
    error = DataDependentError(
        f"the elements of a traced array are read by numpy: {what}", loc=user_loc(),
        hint="make it a tensor first (torch.as_tensor), and stay in torch inside the function",
    )  # fmt: skip
    note(error)
    raise error


def _made_of(parts: list[Any], kind: tuple[bool, bool]) -> Any:
    """What a call gives for an array: numpy's, over the memory of a tensor."""
    (tensor,), (fixed, is_scalar) = parts, kind
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if is_wrapper(tensor):
        return TracedNumpy(tensor, fixed, is_scalar)
    made = tensor.detach().numpy()
    if fixed:
        made.flags.writeable = False
    return made[()] if is_scalar else made


# What is done for a ufunc, a function of numpy's and a method: `numpy_functions` fills them.
UFUNCS: dict[Any, Callable[..., torch.Tensor]] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}


class TracedNumpy(NDArrayOperatorsMixin):
    """See the module docstring. `tensor` has the array's memory; `fixed` cannot be written."""

    __slots__ = ("__weakref__", "fixed", "is_scalar", "tensor")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000
    gradof_node = Node(lambda array: ([array.tensor], (array.fixed, array.is_scalar)), _made_of)

    def __init__(
        self, tensor: torch.Tensor, fixed: bool = False, is_scalar: bool = False
    ) -> None:
        self.tensor = tensor
        self.fixed = fixed
        self.is_scalar = is_scalar

    def moved(self, tensor: torch.Tensor) -> TracedNumpy:
        """The array over a tensor that may be a view of this one's."""
        fixed = self.fixed and address(tensor) == address(self.tensor)
        return TracedNumpy(tensor, fixed, self.is_scalar and not tensor.dim())

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.dtype.type if self.is_scalar else np.ndarray

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
            return TracedNumpy(found.clone(), is_scalar=True)
        return self.moved(found)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> TracedNumpy:
        """Another shape; a view where there is one."""
        if order != "C" or copy is not None:
            refuse_array("reshape with an order, or copy")
        sizes: Any = shape[0] if len(shape) == 1 else shape
        return self.moved(self.tensor.reshape(tuple(sizes) if _is_several(sizes) else (sizes,)))

    def ravel(self, order: str = "C") -> TracedNumpy:
        """One dim, in rows; a view where there is one."""
        return self.moved(self.reshape(-1, order=order).tensor.contiguous())

    def flatten(self, order: str = "C") -> TracedNumpy:
        """One dim, a copy."""
        return self.reshape(-1, order=order).copy()

    def squeeze(self, axis: Any = None) -> TracedNumpy:
        """Without dims of one element."""
        if axis is None and 1 not in self.shape:
            return self
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
        if not self.ndim:
            refuse_array("swapaxes of an array without dims")
        return self.moved(self.tensor.swapaxes(axis1, axis2))

    def copy(self, order: str = "C") -> TracedNumpy:
        """A copy, in rows."""
        if order != "C":
            refuse_array("copy with an order")
        return self.moved(self.tensor.clone(memory_format=torch.contiguous_format))

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> TracedNumpy:
        """Another dtype; with `copy=False` the array itself if it has it."""
        want = np.dtype(dtype)
        if order not in ("K", "C"):
            refuse_array("astype with an order")
        if want == self.dtype:
            return self.copy() if copy else self
        return self.moved(cast(self.tensor, want))

    # --- numpy's protocols ------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if self.is_scalar and kwargs.get("out") == (self,):
            kwargs = {}  # `m += 1` makes another number
        run = UFUNCS.get(ufunc)
        if run is None or method != "__call__" or kwargs:
            refuse_array(f"{ufunc.__name__}{'' if method == '__call__' else '.' + method}")
        if any(isinstance(x, torch.Tensor) for x in inputs):
            combine: Callable[..., Any] = _OPERATORS.get(ufunc, run)
            return combine(*map(number_of, inputs))
        kinds = [kind_of_operand(x) for x in inputs]
        loop = ufunc.resolve_dtypes((*kinds, None))[:-1]
        operands = [_operand(x, dtype) for x, dtype in zip(inputs, loop, strict=True)]
        return computed(f"numpy.{ufunc.__name__}", run, *operands)

    def __array_function__(
        self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        run = FUNCTIONS.get(func)
        if run is None:
            refuse_array(f"numpy.{func.__name__}")
        return run(*args, **kwargs)

    def __bool__(self) -> bool:
        if self.size != 1:
            refuse_array("__bool__ of several")
        return bool(self.tensor.reshape(()))

    def item(self) -> Any:
        """The number of an array of one."""
        if self.size != 1:
            refuse_array("item of several")
        return self.tensor.item()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        # torch asks only whether there is such a method; the mode of the trace comes first
        raise NotImplementedError(f"{func} of a traced array outside the trace's mode")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        refuse_array("a function in C")

    def __copy__(self) -> TracedNumpy:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> TracedNumpy:
        return self.copy()

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return functools.partial(METHODS[name], self)
        if not name.startswith("_") and hasattr(np.ndarray, name):
            refuse_array(f"ndarray.{name}")
        raise AttributeError(f"a numpy array has no attribute {name!r}")


def _refused(name: str) -> Callable[..., NoReturn]:
    def method(self: TracedNumpy, *args: Any, **kwargs: Any) -> NoReturn:
        refuse_array(name)

    return method


for _name in (
    "int", "float", "complex", "index", "setitem", "delitem", "contains", "repr", "str",
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


def number_of(value: Any) -> Any:
    """An argument of torch's: a number of numpy's as Python's, and what is no array as it is."""
    if type(value) is not TracedNumpy:
        return value
    if not value.is_scalar:
        refuse_array("an array meets a tensor")
    if value.dtype.kind == "b":  # which torch takes for a float
        refuse_array("a truth value meets a tensor")
    return value.item()


# With a tensor: numpy leaves them to torch's own.
_OPERATORS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul,
    np.divide: operator.truediv, np.power: operator.pow,
}  # fmt: skip


def kind_of_operand(operand: Any) -> Any:
    """What numpy promotes by: a dtype, or the type of a Python number, which is weak."""
    weak = type(operand) in (int, float, complex, TracedNumber)
    return operand.__class__ if weak else dtype_of_operand(operand)


def dtype_of_operand(operand: Any) -> np.dtype[Any]:
    """The dtype of an operand that is no weak number."""
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
        return cast(tensor_of(value), dtype)
    if type(value) is TracedNumber:
        return torch.full((), value, dtype=_in_torch(dtype))  # type: ignore[call-overload]
    return torch.tensor(value, dtype=_in_torch(dtype))


def cast(tensor: torch.Tensor, dtype: np.dtype[Any]) -> torch.Tensor:
    """The elements as of another dtype, where torch rounds as numpy does."""
    given, want = dtype_of(tensor), _in_torch(dtype)
    if given is None or (given.kind == "c" and dtype.kind != "c") or (
        dtype == np.float16 and given.itemsize > 4  # torch rounds twice
    ):
        refuse_array(f"a cast from {given} to {dtype}")
    return tensor.to(want)


def computed(name: str, run: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> TracedNumpy:
    """The array, or the number, that torch computes; refused where torch has no such function.

    numpy then runs, and raises its own error where it has none either.
    """
    try:
        found = run(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError) as error:
        if isinstance(error, GradofError):
            raise
        refuse_array(f"{name}, of which torch says: {error}")
    return TracedNumpy(found, is_scalar=not found.dim())


def alike(arrays: Sequence[Any]) -> list[torch.Tensor]:
    """The parts of one array that is joined, of one dtype."""
    dtype = np.result_type(*map(dtype_of_operand, arrays))
    return [cast(tensor_of(array), dtype) for array in arrays]


__all__ = [
    "FUNCTIONS", "METHODS", "UFUNCS", "TracedNumpy", "alike", "cast", "computed", "dtype_of",
    "dtype_of_operand", "in_index", "number_of", "refuse_array", "tensor_of",
]  # fmt: skip
