"""`stop_gradient` and `value_of`: values that leave the derivative, and that leave the trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.runtime.arrays import is_tensor
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.pytree import flatten
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.state.source import user_loc


def stop_gradient(tree: Any) -> Any:
    """The same values, which no gradient goes through; of arrays, tensors and nests of them."""
    leaves, structure = flatten(tree)
    return structure.unflatten([_stopped(leaf) for leaf in leaves])


def _stopped(leaf: Any) -> Any:
    if is_tensor(leaf):
        return leaf.detach()
    if not isinstance(leaf, TracedArray) or leaf.dtype.kind not in "fc":
        return leaf
    recorder = leaf.recorder
    recorder.enter()
    return recorder.wrap(recorder.numpy(np.copy, leaf), F.detach(leaf.expr))


def value_of(tree: Any) -> Any:
    """What arrays and numbers are now, to be shown: plain copies, without a gradient.

    What a numpy function does with them (plots, tables, texts) is done at each call: the function
    itself runs beside its graph. They must not decide what the function returns, which is an
    error. Tensors are detached; elsewhere the values come back as they are.
    """
    leaves, structure = flatten(tree)
    return structure.unflatten([_value(leaf) for leaf in leaves])


def _value(leaf: Any) -> Any:
    if is_tensor(leaf):
        return leaf.detach()
    if type(leaf) is TracedNumber:
        return leaf.value
    if not isinstance(leaf, TracedArray):
        return leaf
    value = leaf.concrete[()] if leaf.is_scalar else np.array(leaf.concrete)
    leaf.recorder.told.perform("gradof.value_of", user_loc())
    leaf.recorder.told.values[id(value)] = value, _stopped(leaf)  # each call stores its own
    return value
