"""Which graphs are computed as one native function.

All of a graph or nothing: what one node cannot be, the others wait for in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradof import tuning
from gradof.codegen.lowering.numpy import Library
from gradof.codegen.whole.elementwise import DTYPES, is_elementwise, supports_elementwise
from gradof.codegen.whole.indexing import INTO, MOVES
from gradof.codegen.whole.library_products import is_large, takes_library
from gradof.codegen.whole.loops import DYNAMIC
from gradof.codegen.whole.reductions import WORDS
from gradof.codegen.whole.systems import SYSTEMS
from gradof.codegen.whole.values import in_registers, is_number
from gradof.codegen.whole.views import CONSTANTS, VIEWS
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import BOOL, F32, F64, I32, I64, TensorType


def reason_against(graph: Graph, library: Library) -> str | None:
    """Why a graph is no single function, in a few words; None if it is one."""
    work, loops = 0, any(node.kind == "Loop" for node in graph.nodes())
    most = tuning.WHOLE_LOOP_CELLS if loops else tuning.WHOLE_CELLS
    for value in graph.inputs:
        if not _fits(value, max(most, tuning.WHOLE_ARGUMENT)):
            return f"the argument {value.hint or value.index} is {value.type}"
    for node in graph.walk():
        why = reason_against_node(node, library, most)
        if why:
            return why
        work += not (node.kind in VIEWS or node.kind in CONSTANTS)
    if any(is_number(v) for v in graph.outputs):
        return "a result is no array"
    if work > tuning.WHOLE_MOST:
        return f"{work} ops take long to compile"
    worth = (loops or work >= tuning.WHOLE_LEAST) if graph.whole is None else graph.whole
    return None if worth else f"{work} ops are no work"


def is_worth_a_function(graph: Graph) -> bool:
    """Whether a traced function has so many ops that native code of all of it pays.

    It is asked once, as the function is traced, so that its value alone and with its gradients are
    computed alike, bit for bit. Whether its ops and arrays are such that there is native code is
    asked of each graph.
    """
    work = 0
    for node in graph.nodes():
        work += not (node.kind in VIEWS or node.kind in CONSTANTS)
        if work >= tuning.WHOLE_LEAST or node.kind == "Loop":
            return True
    return False


def reason_against_node(node: Node, library: Library, most: int) -> str | None:
    """Why a node is not in such a function, whose arrays have `most` cells."""
    if node.kind == "sign" and library == "torch":
        return "sign: that of nan is torch's"
    if node.kind in ("mm", "bmm") and is_large(*node.inputs) and library != "torch":
        return f"{node.kind} is for numpy's threads"
    return _against(node, most)


def _against(node: Node, most: int) -> str | None:
    if node.kind == "Constant" and is_number(node.output):
        value = node.attrs["value"]
        return None if isinstance(value, (bool, int, float)) else f"the number {value}"
    supported = _SUPPORTED.get(node.kind, supports_elementwise if is_elementwise(node) else None)
    if supported is None or not supported(node):
        return f"{node.kind} on {', '.join(str(v.type) for v in node.inputs)}"
    if node.kind in _MOVES_NOTHING and most >= 0:
        most = max(most, tuning.WHOLE_ARGUMENT)
    for k, v in enumerate((*node.inputs, *node.outputs)):
        number = is_number(v) and v.node is not None and v.node.kind == "Constant"
        picked = k == 0 and node.kind == "index_select" and most >= 0
        if not number and not _fits(v, tuning.WHOLE_ARGUMENT if picked else most):
            return f"{node.kind} has an operand or a result {v.type}"
    return None


def _fits(value: Value, most: int) -> bool:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape is None or type_.device != "cpu":
        return False
    return type_.dtype in DTYPES and type_.size <= most


def _any(node: Node) -> bool:
    return True


def _tensors(node: Node) -> list[TensorType]:
    return [v.type for v in node.inputs if isinstance(v.type, TensorType)]


def _reduces(node: Node) -> bool:
    (x,) = _tensors(node)
    assert x.shape is not None
    dims: Any = node.attrs["dims"]
    if node.kind in ("amax", "amin") and any(x.shape[d] == 0 for d in dims):
        return False  # an error of numpy's
    return (x.dtype is BOOL) == (node.kind in ("any", "all"))


def _indexes(node: Node) -> bool:
    if node.kind in ("index_add", "scatter_add") and _tensors(node)[0].dtype is BOOL:
        return False  # a sum of booleans is no add
    return len(_tensors(node)) == len(node.inputs) and _tensors(node)[1].dtype in (I32, I64)


def _decides(node: Node) -> bool:
    """Of numbers with a fraction, 0.0 and -0.0 differ and nan does not: they are Python's."""
    (x,) = _tensors(node)
    return x.dtype in (BOOL, I32, I64) and x.size == 1


def _multiplies(node: Node) -> bool:
    a, b = _tensors(node)
    assert a.shape is not None and b.shape is not None
    if a.dtype not in (F32, F64) or (a.shape[:-2] != b.shape[:-2] and in_registers(node)):
        return False
    return not is_large(*node.inputs) or takes_library(node)


# what takes as long as it multiplies, whatever the sizes are, and what is no work
_MOVES_NOTHING = frozenset({"mm", "bmm", *(VIEWS - {"reshape"})})  # which may be a copy

_SUPPORTED: Mapping[str, Callable[[Node], bool]] = {
    **dict.fromkeys((*VIEWS, *CONSTANTS, *MOVES), _any),
    **dict.fromkeys(WORDS, _reduces),
    **dict.fromkeys(("index_select", "gather", *(INTO - {"slice_scatter"})), _indexes),
    "in_range": _any, "math_result": _any, "Guard": _decides,
    "cumsum": lambda node: _tensors(node)[0].dtype is not BOOL, "cumprod": _any,
    "sort": lambda node: _tensors(node)[0].dtype is BOOL,
    "argmax": lambda node: _tensors(node)[0].dtype is not BOOL,
    "argmin": lambda node: _tensors(node)[0].dtype is not BOOL,
    "mm": _multiplies, "bmm": _multiplies, "Loop": _any, **dict.fromkeys(DYNAMIC, _any),
    **SYSTEMS,
}  # fmt: skip
