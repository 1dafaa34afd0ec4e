"""The arguments of a call: which library owns them, what of them is traced, what is static.

>>> call = inspect_call(fn, (np.ones(3), 2, "sum"), {}, static_argnames=())
>>> call.library, call.key
('numpy', (..., ('float64', (3,)), (int, 2), (str, 'sum')))
"""

from __future__ import annotations

import enum
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, ModuleType
from typing import Any, Literal

import numpy as np

from gradof.codegen.machine.content_hash import content_hash
from gradof.errors import DtypeError, LeafTypeError
from gradof.ir import contents
from gradof.ir.attrs import from_numpy_dtype
from gradof.ir.forks import cached_property
from gradof.tracer.core.exact import Same, exact
from gradof.tracer.core.lent_arrays import with_nodes
from gradof.tracer.core.numpy_errors import raised
from gradof.tracer.core.pytree import TreeDef, flatten_call, shares_containers, thaw
from gradof.tracer.state.frames import is_frame
from gradof.tracer.state.handed import Handed
from gradof.tracer.state.origins import Origins
from gradof.tracer.state.renewable import has_attributes_alone
from gradof.tracer.state.source import function_name

Library = Literal["numpy", "torch"]
MODES = (  # what `_modes` lists
    "grad mode", "inference mode", "autocast", "the dtype of autocast", "autocast on CUDA devices",
    "the default dtype", "anomaly mode",
)
MODES_OF_NUMPY = ("what np.errstate raises",)
# Where the part of a tensor says which leaf it is the same object as, or, if it is an input of its
# own, the complement of that.
SAME = 6
HANDED = "handed"  # in the key of an object that is in a place (`gradof.runtime.handed`)
FIRST_LEAF = 2  # where the parts of the leaves begin in a key
# Functions without arguments that read tensors, by themselves or by what they are bound to.
_STATELESS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, enum.Enum, type, ModuleType,
    BuiltinFunctionType, np.ufunc, np.dtype,
)  # fmt: skip
_FREE: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
_GOOD_DTYPES: set[np.dtype[Any]] = set()  # those that passed check_array
contents.lend(content_hash)


@dataclass(frozen=True)
class Call:
    """One call, flattened: leaves, structure, paths, the owning library, the cache key.

    `numbers` are the leaves that are Python numbers and inputs of the graph; `key` leaves their
    values out, `plain_key` has them.

    Note [Who is who]
    `f(x, x)` is another signature than `f(x, y)`: the key of a tensor says which leaf before it is
    the same object. Such leaves are one input, and one object while tracing, so that `a is b`, sets
    and keys are as in eager. Where places are differentiated (`gradof.grad`), each is an input.
    """

    library: Library
    leaves: tuple[Any, ...]
    tree: TreeDef
    paths: tuple[str, ...]
    key: tuple[Any, ...]
    plain_key: tuple[Any, ...]
    numbers: frozenset[int] = frozenset()
    handed: frozenset[int] = frozenset()  # leaves that are objects in places, of
    room: Handed | None = None

    @cached_property
    def objects(self) -> dict[str, Any]:
        """The arguments that are objects with state of their own, by path: it is guarded.

        Not those that are in places.
        """
        found = enumerate(map(thaw, self.leaves))
        return {
            self.paths[i]: leaf for i, leaf in found if i not in self.handed and has_state(leaf)
        }

    def same_leaves(self) -> dict[int, int]:
        """Leaves that are the same tensor as an earlier one, which is the input."""
        parts = self.key[FIRST_LEAF : FIRST_LEAF + len(self.leaves)]
        found = {i: part[SAME] for i, part in enumerate(parts) if len(part) > SAME}
        return {i: first for i, first in found.items() if first is not None and first >= 0}


def has_state(leaf: Any) -> bool:
    """Whether a leaf that is not traced may lead to what changes."""
    return not (is_array(leaf) or isinstance(leaf, _STATELESS) or is_tensor(leaf))


def torch_if_loaded() -> Any:
    """The torch module if the process has imported it, else None: no tensor exists without it."""
    return sys.modules.get("torch")


def is_tensor(leaf: Any) -> bool:
    """Whether a leaf is a torch tensor; never imports torch."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(leaf, torch.Tensor)


def write_back(target: Any, value: Any, with_history: bool) -> None:
    """Change a tensor in place, by what autograd records or behind its back."""
    if with_history:
        target.copy_(value)
        return
    with torch_if_loaded().no_grad():
        target.copy_(value)


def guard_of(parameters: list[Any]) -> Any:
    """torch's guard of these tensors; None for none, or where this torch has another."""
    if not parameters:
        return None
    try:
        from torch._C._dynamo.guards import TensorGuards  # no public name; torch._dynamo stays out
    except ImportError:
        return None
    sizes, strides = [list(p.shape) for p in parameters], [list(p.stride()) for p in parameters]
    make: Any = TensorGuards  # its stub has another type for these than torch gives
    return make(*parameters, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)


def is_array(leaf: Any) -> bool:
    """Whether a leaf is a numpy array or numpy scalar."""
    return isinstance(leaf, (np.ndarray, np.generic))


def is_data(value: Any) -> bool:
    """Whether a value is a tensor, or an array of anything but objects."""
    return is_tensor(value) or (isinstance(value, np.ndarray) and value.dtype != np.object_)


def without_arrays(call: Call) -> Call:
    """The call with None for its arrays and objects in places, to be kept."""
    leaves = tuple(
        None if i in call.handed or is_tensor(x) or is_array(x) else x
        for i, x in enumerate(call.leaves)
    )
    return replace(call, leaves=leaves)


def inspect_call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static_argnames: Sequence[str],
    default: Library | None = None,
    apart: bool = False,
    lends: bool = False,
) -> Call:
    """Flatten and check the arguments of a call.

    A tensor that comes several times is one input of the graph, but with `apart`, where each place
    has a gradient of its own; see Note [Who is who]. With `lends`, beside tensors, and where the
    function is a module's, numpy arrays are tensors (`gradof.tracer.core.lent_arrays`).

    Raises TraceError where something of torch's sees each op, LeafTypeError for leaves that are
    neither arrays nor hashable, and for arrays that no tensor can be made of,
    DtypeError and DeviceError for arrays no backend can read, InputError for a call without any
    array unless `default` names the library, or the function or an object can reach tensors.
    """
    leaves, tree, paths = flatten_call(fn, args, kwargs, static_argnames)
    torch = torch_if_loaded()
    tensors = torch is not None and any(isinstance(leaf, torch.Tensor) for leaf in leaves)
    if tensors:
        _refuse_observers()  # before anything is asked of a tensor
    if tensors or lends or _is_module(fn):
        leaves, tree, paths = _lent(leaves, tree, paths)
    tensor, array, number = None, None, None  # the path of the first of each
    parts: list[tuple[Any, ...]] = []
    places: dict[int, int] = {}  # by id of a tensor, its first leaf
    for i, (leaf, path) in enumerate(zip(leaves, paths, strict=True)):
        same: tuple[int | None, ...] = ()
        if torch is not None and isinstance(leaf, torch.Tensor):
            tensor = tensor or path
            first = places.setdefault(id(leaf), i)
            same = (None if first == i else ~first if apart else first,)
        elif isinstance(leaf, np.generic):
            number = number or path
            parts.append(exact(leaf))  # to torch a number
            continue
        elif isinstance(leaf, np.ndarray):
            array = array or path
        parts.append((*leaf_key(leaf, path), *same))
    library: Library = "torch"
    if not tensor:
        library = _library_of(fn, leaves, array, number, default)
    if tensor and not apart:
        _refuse_shared(args, kwargs, tree)
    if number and library == "numpy":  # to numpy an array without dims
        for i in (i for i, leaf in enumerate(leaves) if isinstance(leaf, np.generic)):
            parts[i] = leaf_key(leaves[i], paths[i])
    key = (library, tree, *parts, *_modes(library))  # the leaves begin at FIRST_LEAF
    return Call(library, tuple(leaves), tree, paths, key, key)


def _library_of(
    fn: Callable[..., Any], leaves: Sequence[Any], array: str | None, number: str | None,
    default: Library | None,
) -> Library:
    """The library of a call without a tensor; `array` and `number` are paths of numpy's."""
    if array or (number and default is None and not _is_module(fn)):
        return "numpy"
    if default is None and _leads_to_tensors(fn, leaves):
        _refuse_observers()
        return "torch"
    if default is None:
        name = function_name(fn, "__name__")
        raise LeafTypeError(
            f"{name} was called without any array argument",
            hint="pass torch tensors or numpy arrays; lists of numbers are not arrays",
        )
    return default


def _lent(
    leaves: list[Any], tree: TreeDef, paths: tuple[str, ...]
) -> tuple[list[Any], TreeDef, tuple[str, ...]]:
    """Leaves, structure and paths of a call where arrays are tensors."""
    lent = [not x.flags.writeable if isinstance(x, np.ndarray) else None for x in leaves]
    if all(fixed is None for fixed in lent):
        return leaves, tree, paths
    from gradof.tracer.torch.array_tensors import lend  # numpy users may have no torch

    _refuse_observers()
    made: dict[int, Any] = {}  # an array that comes several times is one tensor
    found = [
        leaf if fixed is None
        else made.setdefault(id(leaf), None if id(leaf) in made else lend(leaf, path))
        for leaf, path, fixed in zip(leaves, paths, lent, strict=True)
    ]
    return found, with_nodes(tree, lent), paths


def _refuse_observers() -> None:
    from gradof.tracer.torch.functional import refuse_observers  # numpy users may have no torch

    refuse_observers()


def _leads_to_tensors(fn: Callable[..., Any], leaves: Sequence[Any]) -> bool:
    """Whether a call without arrays is torch's: the function leads to tensors, or an object."""
    objects = [leaf for leaf in map(thaw, leaves) if has_state(leaf)]
    return any(map(has_free_tensors, (fn, *objects)))


def _refuse_shared(args: tuple[Any, ...], kwargs: dict[str, Any], tree: TreeDef) -> None:
    """A trace makes containers of its own: of one that comes twice it would make two."""
    nested = any(child.kind != "leaf" for part in tree.children for child in part.children)
    if nested and shares_containers((args, kwargs)):
        raise LeafTypeError(
            "a list or dict is among the arguments twice", hint="pass a copy as one of them"
        )


def has_free_tensors(fn: Callable[..., Any]) -> bool:
    """Whether a function or object can reach torch tensors: without an array, a call is torch's."""
    if torch_if_loaded() is None:
        return False
    owner = getattr(fn, "__self__", fn)
    function = None if owner is fn else getattr(fn, "__func__", fn)  # which would keep itself
    try:
        known = _FREE.setdefault(owner, set())
    except TypeError:  # no weak reference to it, or it is not hashable
        known = set()
    if function not in known and Origins(fn, is_tensor).any():
        known.add(function)
    return function in known


def _is_module(fn: Callable[..., Any]) -> bool:
    torch = torch_if_loaded()
    return torch is not None and isinstance(getattr(fn, "__self__", fn), torch.nn.Module)


def names_torch(fn: Callable[..., Any]) -> bool:
    """Whether a function can reach torch tensors or torch itself, which may make some."""
    torch = torch_if_loaded()
    return torch is not None and Origins(fn, lambda x: x is torch or is_tensor(x)).any()


def leaf_key(leaf: Any, path: str) -> tuple[Any, ...]:
    """What of a leaf the trace depends on: an array's type, a static value itself."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        if leaf.dtype not in _GOOD_DTYPES:
            check_array(leaf, path)
            _GOOD_DTYPES.add(leaf.dtype)
        if isinstance(leaf, np.generic):  # which is never changed in place
            return (leaf.dtype, (), "number")
        return (leaf.dtype, leaf.shape)
    if is_tensor(leaf):
        from gradof.runtime.torch_bridge import check_tensor

        check_tensor(leaf, path)
        requires_grad = leaf.requires_grad
        leafy = requires_grad and leaf.is_leaf
        is_parameter = type(leaf) is torch_if_loaded().nn.Parameter
        return (leaf.dtype, leaf.shape, requires_grad, leafy, leaf.device, is_parameter)
    value = thaw(leaf)
    try:
        return exact(value)
    except TypeError:
        if is_frame(type(value)) or has_attributes_alone(value):  # what is read of it is guarded
            return type(value), Same(value)
        raise LeafTypeError(
            f"{path} is a {type(value).__name__}: neither an array nor hashable",
            hint="pass arrays, numbers, strings, or tuples, lists, dicts, dataclasses of them",
        ) from None


def check_array(array: Any, path: str) -> None:
    """Refuse numpy dtypes without an IR dtype, and foreign byte order."""
    try:
        from_numpy_dtype(array.dtype)
    except KeyError:
        raise LeafTypeError(
            f"{path} is an array of dtype {array.dtype}", hint="convert it: a.astype(np.float64)"
        ) from None
    if not array.dtype.isnative:
        raise DtypeError(
            f"{path} is not in native byte order",
            hint="convert it: a.astype(a.dtype.newbyteorder('='))",
        )


def _modes(library: Library) -> tuple[Any, ...]:
    if library == "numpy":
        return (raised(),)
    torch = torch_if_loaded()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None,
        torch.get_default_dtype(),
        torch.is_anomaly_enabled(),
    )


def as_numpy(value: Any) -> Any:
    """A tensor or array of a call as numpy computes with it."""
    if not is_tensor(value):
        return np.asarray(value)
    from gradof.runtime.torch_arrays import to_numpy

    return to_numpy(value)
