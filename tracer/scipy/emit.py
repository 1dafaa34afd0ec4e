"""One op of the graph on numpy arrays, for adaptors that are written in numpy otherwise.

    y = emit("solve_triangular", a, b, lower=True)     # a traced array, with scipy's numbers in it
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.ops.registry import get_op
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, traced_all
from gradof.tracer.numpy.recorder import real


def float_dtype(*arrays: Any) -> np.dtype[Any]:
    """The dtype that scipy computes in: single precision only where all floats are."""
    kinds = [np.dtype(a.dtype) for a in map(as_array, arrays) if a.dtype.kind in "fc"]
    dtype = np.result_type(*kinds) if kinds else np.dtype(np.float64)
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def in_double(array: Any) -> Any:
    """An array of single precision in double, for what is solved to more digits than it has."""
    single = as_array(array).dtype.kind == "f" and as_array(array).dtype != np.float64
    return as_array(array).astype(np.float64) if single else array


def emit(kind: str, *operands: Any, **attrs: Any) -> Any:
    """A result, or a tuple of them, of an op of floating operands (integers stay as they are)."""
    operands = tuple(map(as_array, operands))
    if not any(isinstance(o, TracedArray) for o in operands):
        return _lowered(kind, operands, attrs)
    dtype = float_dtype(*operands)
    arrays = traced_all(*operands)
    recorder = arrays[0].recorder
    target = recorder.ir_dtype(dtype)
    exprs: list[Expr] = [a.expr if a.dtype.kind in "iub" else a.expr.cast(target) for a in arrays]
    given = [real(a) if a.dtype.kind in "iub" else real(a).astype(dtype) for a in arrays]
    concrete = recorder.numpy(_lowered, kind, tuple(given), attrs)
    results = getattr(F, kind).multiple(*exprs, **attrs)
    if len(results) == 1:
        return recorder.wrap(concrete, results[0])
    return tuple(recorder.wrap(c, e) for c, e in zip(concrete, results, strict=True))


def _lowered(kind: str, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    lowering = get_op(kind).numpy
    assert callable(lowering)
    return lowering(*operands, **attrs)
