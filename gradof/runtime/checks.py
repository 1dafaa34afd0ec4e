"""Checks of the functional API: argnums, outputs, cotangents; each raises before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import numpy as np

from gradof.errors import ArgnumsError, CotangentError, DtypeError, LeafTypeError, OutputError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Graph
from gradof.ir.types import TensorType
from gradof.runtime.arrays import is_array, is_tensor
from gradof.runtime.cache import Bound
from gradof.tracer.core.lent_arrays import lent_leaves
from gradof.tracer.core.pytree import flatten
from gradof.tracer.core.result import ConstantOut, GivenOut, InputOut, Traced
from gradof.tracer.core.spread import spread

Argnums = int | tuple[int, ...]


def check_argnums(argnums: Argnums) -> tuple[int, ...]:
    """argnums as a tuple of distinct non-negative ints; ArgnumsError otherwise."""
    positions = argnums if isinstance(argnums, tuple) else (argnums,)
    for n in positions:
        if type(n) is not int or n < 0:
            raise ArgnumsError(
                f"argnums {argnums!r} must be a non-negative int or a tuple of them",
                hint="argnums counts positional arguments from 0",
            )
    if len(set(positions)) != len(positions) or not positions:
        raise ArgnumsError(
            f"argnums {argnums!r} must name each argument once",
            hint="an int, or a tuple of different ints such as (0, 2)",
        )
    return positions


def lift_floats(args: tuple[Any, ...], positions: Sequence[int]) -> tuple[Any, ...]:
    """Python floats among the differentiated arguments become 0-d float64 arrays.

    `args` itself where there are none, or where there are tensors.
    """
    for n in positions:
        if n >= len(args):
            raise ArgnumsError(
                f"argnums names argument {n}, but there are {len(args)} positional arguments",
                hint="differentiated arguments are passed by position",
            )
    if all(is_array(args[n]) or is_tensor(args[n]) for n in positions):
        return args
    lifted = list(args)
    if any(is_tensor(leaf) for leaf in flatten(args)[0]):
        return args
    for n in positions:
        leaves, tree = flatten(args[n])
        floats = [isinstance(x, float) and not is_array(x) for x in leaves]
        if any(floats):
            pairs = zip(leaves, floats, strict=True)
            lifted[n] = tree.unflatten([np.asarray(x) if is_float else x for x, is_float in pairs])
    return args if all(map(is_, lifted, args)) else tuple(lifted)


def wrt_inputs(bound: Bound, positions: Sequence[int]) -> tuple[int, ...]:
    """Graph inputs that are the leaves of the arguments at `positions`.

    Each must be a float array.
    """
    traced = bound.entry.traced
    children = bound.call.tree.children[0].children
    starts = [0]
    for child in children:
        starts.append(starts[-1] + child.num_leaves)
    input_of = {leaf: i for i, leaf in enumerate(traced.arg_leaves)}
    lent = lent_leaves(traced.in_tree)
    result: list[int] = []
    for n in positions:
        for leaf in range(starts[n], starts[n + 1]):
            path = bound.call.paths[leaf]
            if leaf in lent:
                raise LeafTypeError(
                    f"{path} is a numpy array in a function of torch's, which has no gradient",
                    hint="pass a tensor, or choose other argnums",
                )
            if leaf not in input_of or input_of[leaf] in traced.numbers:
                raise LeafTypeError(
                    f"{path} is a {type(bound.call.leaves[leaf]).__name__}, which has no gradient",
                    hint="choose argnums whose leaves are floating-point arrays",
                )
            type_ = traced.graph.inputs[input_of[leaf]].type
            if not isinstance(type_, TensorType) or not type_.dtype.is_inexact:
                raise DtypeError(
                    f"{path} is {type_}: integers and booleans have no gradient",
                    hint="convert it to a floating-point dtype",
                )
            result.append(input_of[leaf])
    return tuple(result)


def wrt_leaves(traced: Traced) -> tuple[int, ...]:
    """The graph inputs that are floating-point leaves of the arguments.

    Not numpy's arrays of a torch function, through which no gradient flows.
    """
    lent = lent_leaves(traced.in_tree)
    return tuple(
        i for i, (v, leaf) in enumerate(zip(traced.graph.inputs, traced.arg_leaves, strict=False))
        if i not in traced.numbers and isinstance(v.type, TensorType) and v.type.dtype.is_inexact
        and leaf not in lent
    )


def scalar_output(bound: Bound, has_aux: bool) -> int:
    """The graph output to differentiate: one floating-point scalar; OutputError otherwise."""
    traced = bound.entry.traced
    outputs = traced.outputs
    if has_aux:
        tree = traced.out_tree
        if tree.kind != "tuple" or len(tree.children) != 2 or tree.children[0].num_leaves != 1:
            raise OutputError(
                "with has_aux the function must return a pair (scalar, aux)",
                hint="return (loss, aux), or leave has_aux out",
            )
    elif len(outputs) != 1:
        raise OutputError(
            f"the function returns {len(outputs)} leaves, not one scalar",
            hint="return one scalar, or pass has_aux=True for (scalar, aux)",
        )
    out = outputs[0]
    if isinstance(out, InputOut):
        raise OutputError(
            "the function returns one of its inputs as it is",
            hint="return a value computed from it, such as 1.0 * x",
        )
    if isinstance(out, GivenOut):
        raise given_error()
    if isinstance(out, ConstantOut):
        raise OutputError(
            f"the function returns {out.value!r}, which does not depend on any array",
            hint="return an array computed from the arguments",
        )
    type_ = traced.graph.outputs[out.index].type
    if not isinstance(type_, TensorType) or type_.shape is None or type_.size != 1:
        raise OutputError(
            f"the function returns {type_}, not a scalar",
            hint="reduce it with sum() or mean(), or use vjp or jacobian",
        )
    if type_.dtype.is_complex:
        raise OutputError(
            f"the function returns {type_}: a complex number has no direction of steepest ascent",
            hint="return a real number of it, such as abs(z) or z.real, or use vjp",
        )
    if not type_.dtype.is_float:
        raise OutputError(
            f"the function returns {type_}, which is not floating point",
            hint="return a floating-point scalar: counts and truth values have no gradient",
        )
    return out.index


def given_error() -> OutputError:
    """The error for a result that is the caller's own container, changed."""
    return OutputError(
        "the function returns a list, dict or other container of its arguments, which it changes",
        hint="return another one: dict(batch), [*values]",
    )


def is_float(graph: Graph, index: int) -> bool:
    """Whether graph output `index` is floating point."""
    type_ = graph.outputs[index].type
    return isinstance(type_, TensorType) and type_.dtype.is_float


def cotangent_places(traced: Traced) -> tuple[int | None, ...]:
    """Per leaf of the result, the output that takes its cotangent; None if it is no float array.

    Outputs are counted as in `with_inputs_returned`: those of the graph, then its inputs. An input
    that is changed in place and returned has the cotangent of its new value.
    """
    graph = traced.graph
    changed = {back.input: back.output for back in traced.writebacks}
    places: list[int | None] = []
    for out in traced.outputs:
        if isinstance(out, GivenOut):
            raise given_error()
        if isinstance(out, ConstantOut):
            places.append(None)
            continue
        index = out.index
        if isinstance(out, InputOut):
            index = changed.get(out.index, len(graph.outputs) + out.index)
        type_ = (*graph.outputs, *graph.inputs)[index].type
        floating = isinstance(type_, TensorType) and type_.dtype.is_inexact
        places.append(index if floating else None)
    return tuple(places)


def cotangents_for(bound: Bound, cotangents: Any, places: Sequence[int | None]) -> list[Any]:
    """Checked cotangents by rising place, summed where one value is returned several times."""
    traced = bound.entry.traced
    leaves, tree = flatten(cotangents)
    expected, order = spread(traced.out_tree)
    if tree != expected:
        raise CotangentError(
            f"the cotangents have {tree.num_leaves} leaves in another structure than the result's "
            f"{expected.num_leaves}",
            hint="pass cotangents in the structure that the function returns",
        )
    values = (*traced.graph.outputs, *traced.graph.inputs)
    sums: dict[int, Any] = {}
    for place, leaf in zip((places[i] for i in order), leaves, strict=True):
        if place is not None:
            seed = _match(leaf, values[place].type, "the cotangent", bound)
            sums[place] = sums[place] + seed if place in sums else seed
    return [sums[place] for place in sorted(sums)]


def _match(leaf: Any, type_: Any, what: str, bound: Bound) -> Any:
    array = np.asarray(leaf) if bound.entry.traced.library == "numpy" else leaf
    shape = tuple(getattr(array, "shape", ()))
    if shape != type_.shape:
        raise CotangentError(
            f"{what} has shape {list(shape)}, the result {type_}",
            hint="a cotangent has the shape of the result: np.ones_like(out)",
        )
    if bound.entry.traced.library == "torch":
        from gradof.runtime.torch_bridge import cotangent_dtype_matches

        same = cotangent_dtype_matches(array, type_.dtype)
    else:
        same = array.dtype == to_numpy_dtype(type_.dtype)
    if not same:
        found = getattr(array, "dtype", type(array).__name__)
        raise CotangentError(
            f"{what} has dtype {found}, the result {type_}",
            hint="a cotangent has the dtype of the result: cast it",
        )
    if bound.entry.traced.library == "torch" and str(array.device) != type_.device:
        raise CotangentError(
            f"{what} is on {array.device}, the result is {type_} on {type_.device}",
            hint="a cotangent is where the result is: torch.ones_like(out)",
        )
    return array


def match_seeds(leaves: Sequence[Any], likes: Sequence[Any], what: str) -> list[Any]:
    """Checked tangents, one per primal."""
    if len(leaves) != len(likes):
        raise CotangentError(
            f"{len(leaves)} {what} for {len(likes)} primals", hint="pass one for each primal"
        )
    result = []
    for leaf, like in zip(leaves, likes, strict=True):
        array = leaf if is_tensor(leaf) else np.asarray(leaf, dtype=like.dtype)
        if tuple(array.shape) != tuple(like.shape):
            raise CotangentError(
                f"{what} of shape {list(array.shape)} for a primal of shape {list(like.shape)}",
                hint="each has the shape of its primal",
            )
        if is_tensor(leaf) and leaf.device != like.device:
            raise CotangentError(
                f"{what} on {leaf.device} for a primal on {like.device}",
                hint="each is where its primal is: torch.ones_like(x)",
            )
        result.append(array)
    return result


def plain(results: Sequence[Any]) -> list[Any]:
    """Results as the libraries give them: 0-d numpy arrays become numpy scalars."""
    return [r[()] if isinstance(r, np.ndarray) and r.ndim == 0 else r for r in results]


def basis(like: Any, j: int) -> Any:
    """Basis vector j in the shape and dtype of `like`."""
    if is_tensor(like):
        seed = like.detach().new_zeros(like.shape)
        seed.reshape(-1)[j] = 1.0
        return seed
    array = np.zeros(like.shape, like.dtype)
    array.reshape(-1)[j] = 1.0
    return array


def stack(columns: list[Any], like: Any, shape: tuple[int, ...]) -> Any:
    """Rows of a Jacobian as one array of shape `shape + like.shape`."""
    full = (*shape, *like.shape)
    if is_tensor(like):
        if not columns:
            return like.new_zeros(full)
        import torch

        return torch.stack(columns).reshape(full)
    return np.stack(columns).reshape(full) if columns else np.zeros(full, like.dtype)
