"""How one op is called in emitted source: a ufunc, a template, or a function bound by name.

>>> lowering(get_op("tanh"), "numpy")
Lowering(kind='call', text='np.tanh', function=None, writes='in place')
>>> lowering(get_op("rsqrt"), "numpy")
Lowering(kind='template', text='1 / np.sqrt({x})', function=None, writes='never')
>>> lowering(get_op("mm"), "torch")     # worth torch's own code where the arrays are torch's
Lowering(kind='function', text='mm', function=<function mm>, writes='never')
"""

from __future__ import annotations

import functools
import math
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gradof import tuning
from gradof.codegen.lowering.by_shape import (
    adds_many,
    are_stacks,
    is_pooled_by_torch,
    picks_columns,
    running,
)
from gradof.errors import CodegenError
from gradof.ir.attrs import Attr, to_numpy_dtype
from gradof.ir.core import Node, Value
from gradof.ir.opinfo import OPS
from gradof.ir.types import BF16, C32, F16, F32, F64, DType, ScalarType, TensorType
from gradof.ops.registry import Op

Library = Literal["numpy", "torch"]
# What a result may be written over: its own operands too, only arrays it does not read, or nothing.
Writes = Literal["in place", "elsewhere", "never"]
_CALL = re.compile(r"np\.(\w+)\(([^()]*)\)")


@dataclass(frozen=True)
class Lowering:
    """`call`: a dotted name; `template`: text with places; `function`: bound by name.

    `writes` says whether `out=` may be added to the call, and what it may name.
    """

    kind: Literal["call", "template", "function"]
    text: str
    function: Callable[..., Any] | None = None
    writes: Writes = "never"
    torch: bool = False  # runs in torch, and may be told of bfloat16
    scalars: bool = False  # takes numpy scalars, for which an array without dimensions is slow


def supported(node: Node) -> Op:
    """The record of a node numpy can run; CodegenError for another op, dtype or device."""
    record = OPS.get(node.kind)
    if not isinstance(record, Op):
        raise CodegenError(
            f"{node.kind} cannot be emitted", loc=node.loc,
            hint="only registered primitives can; GradOf blocks are lifted into df first",
        )  # fmt: skip
    for value in (*node.inputs, *node.outputs):
        if isinstance(value.type, TensorType):
            if value.type.device != "cpu":
                raise CodegenError(
                    f"the numpy backend runs on the CPU, not on {value.type.device}",
                    loc=node.loc, hint="move the arrays with .cpu()",
                )  # fmt: skip
    return record


def _native_function(node: Node, record: Op, library: Library) -> Callable[..., Any] | None:
    if node.kind in ("bernoulli", "bernoulli_by") and library == "torch":
        from gradof.codegen.lowering.draws import native_draw

        return native_draw(node)
    if record.numpy != "np.matmul" or record.torch not in ("torch.mm", "torch.matmul"):
        return None
    from gradof.codegen.lowering.products import native_product

    return native_product(node, library)


def lowering_of(node: Node, record: Op, library: Library, native: bool = False) -> Lowering:
    """The lowering of a node: its op's, or a better call for its operands; `native` code, too."""
    if node.kind == "cast" and isinstance(node.inputs[0].type, ScalarType):
        return Lowering("template", "{dtype}({x})")  # Python numbers have no astype
    if node.kind in _OF_SCALARS and all(map(_is_scalar, (*node.inputs, node.output))):
        # Python's operators take a sixth of the time of a ufunc for the same bits
        names = dict(zip("xy", record.inputs, strict=False))
        return Lowering("template", _OF_SCALARS[node.kind].format(**names), scalars=True)
    if node.kind in _OF_LIBRARY and library == "numpy":
        raise CodegenError(
            f"{node.attrs['name']} is torch's own, with torch's own backward, and cannot run "
            "without it",
            hint="call the function with torch tensors, or write this part with other ops",
        )
    if node.kind == "slice":
        return Lowering("template", _slice(**node.attrs))  # type: ignore[arg-type]
    if library == "numpy" and (function := running(node)) is not None:
        return Lowering("function", node.kind, function)
    if node.kind == "pow" and _number(node.inputs[1]) == 2:
        # x**2 is x*x in numpy and in torch; np.power(x, 2.0) is not, and takes four times as long
        return Lowering("template", "np.square({a})", writes="in place")
    if node.kind in _PRODUCTS and all(map(_is_small, node.inputs)):
        return lowering(record, "numpy")
    if library == "torch" and node.kind in POOLING and is_pooled_by_torch(node):
        from gradof.codegen.lowering import pooling

        return Lowering("function", node.kind, getattr(pooling, node.kind))
    if library == "torch" and node.kind in _CONVOLUTIONS:
        from gradof.codegen.lowering import convolutions

        return Lowering("function", node.kind, getattr(convolutions, node.kind))
    if node.kind in ("mm", "bmm") and library == "torch" and is_f16(node.output):
        from gradof.codegen.lowering.half_products import mm_f16, multiplies

        if not multiplies("fp16"):
            return Lowering("function", "mm_f16", mm_f16)
    if native and (function := _native_function(node, record, library)) is not None:
        return Lowering("function", node.kind, function)
    if library == "torch" and writes_zeros(node):
        function = _torch_function(record, _INTO_ZEROS[node.kind])
        return Lowering("function", f"{node.kind}_", function, torch=True)
    if node.kind == "bmm" and library == "torch" and are_stacks(*(v.type for v in node.inputs)):
        from gradof.codegen.lowering.products import bmm

        return Lowering("function", "bmm", bmm)
    if record.torch == "torch.mm" and library == "torch" and not _is_half(node.output):
        from gradof.codegen.lowering.products import dot, mm

        name, function = ("dot", dot) if node.output.shape == (1, 1) else ("mm", mm)
        return Lowering("function", name, function)
    if node.kind == "sum" and library == "torch" and adds_many(node):
        function = _torch_function(record, "torch.sum({x}, {dims}, {keepdims})")
        return Lowering("function", "sum", function, torch=True)
    if node.kind == "index_select" and library == "torch" and picks_columns(node):
        return lowering(record, "numpy")
    return lowering(record, library)


_CONVOLUTIONS = frozenset({"convolution", "conv_weight_grad"})
POOLING = frozenset({"window_sum", "window_spread", "scatter_maxima"})


_INTO_ZEROS = {
    "index_add": "{x}.index_add_({dim}, {index}.long(), {src})",
    "scatter_add": "{x}.scatter_add_({dim}, {index}.long(), {src})",
}


def _slice(dim: int, start: int, stop: int, step: int) -> str:
    """The template of a slice, as it is written."""
    return f"{{x}}[{':, ' * dim}{start}:{stop}{f':{step}' if step != 1 else ''}]"


_OF_SCALARS = {
    "add": "{{{x}}} + {{{y}}}", "sub": "{{{x}}} - {{{y}}}", "mul": "{{{x}}} * {{{y}}}",
    "div": "{{{x}}} / {{{y}}}", "neg": "-{{{x}}}", "square": "{{{x}}} * {{{x}}}",
}  # fmt: skip


def _is_scalar(value: Value) -> bool:
    """Whether it is one float, or a Python number."""
    type_ = value.type
    if isinstance(type_, TensorType):
        return type_.shape == () and type_.dtype in (F32, F64)
    return is_number(value)


_PRODUCTS = frozenset({"mm", "mv", "dot"})


def _is_small(value: Value) -> bool:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.dtype not in (F32, F64):
        return False
    return type_.size <= tuning.TORCH_MATMUL_CELLS


def _is_half(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in (F16, BF16, C32)


def is_number(value: Value) -> bool:
    """Whether a value is a Python number, which takes on the dtype of the tensors beside it."""
    return isinstance(value.type, ScalarType)


def is_f16(value: Value) -> bool:
    """Whether a value is a tensor of float16."""
    return isinstance(value.type, TensorType) and value.type.dtype == F16


def _number(value: Value) -> object:
    node = value.node
    return node.attrs["value"] if node is not None and node.kind == "Constant" else None


@functools.cache
def lowering(record: Op, library: Library) -> Lowering:
    """The lowering of an op for arrays of a library; CodegenError if it has none."""
    if record.name in _OF_TORCH and library == "torch":
        return Lowering("function", record.name, _of_torch(record.name))
    if library == "torch" and record.torch is not None:
        return Lowering("function", record.name, _torch_function(record), torch=True)
    if record.numpy is None:
        raise CodegenError(
            f"{record.name} cannot be emitted",
            hint="expand composites and specialise symbolic zeros first",
        )
    if callable(record.numpy):
        # a number in the source is written as Python's complex(...), which the op must not hide
        name = "complex_" if record.name == "complex" else record.name
        return Lowering("function", name, record.numpy)
    text = record.numpy
    if "{" not in text:
        return Lowering("call", text, writes=_writes(text.removeprefix("np.")))
    match = _CALL.fullmatch(text)
    return Lowering("template", text, writes="never" if match is None else _writes(match[1]))


_OF_LIBRARY = frozenset({"library_call", "library_gradient"})
_OF_TORCH = _OF_LIBRARY | {"Opaque"}


def _of_torch(name: str) -> Callable[..., Any]:
    """What runs an op that torch alone has."""
    from gradof.codegen.lowering.library import library_call, library_gradient
    from gradof.codegen.lowering.opaque import run_opaque

    found: dict[str, Callable[..., Any]] = {
        "Opaque": run_opaque, "library_call": library_call, "library_gradient": library_gradient,
    }  # fmt: skip
    return found[name]


def writes_zeros(node: Node) -> bool:
    """Whether an op that adds to its first operand may do so in place, for torch callers.

    What a gradient is scattered into is mostly an array of zeros that nobody else reads.
    """
    if node.kind not in ("index_add", "scatter_add"):
        return False
    made = node.inputs[0].node
    return made is not None and made.kind == "full" and len(node.inputs[0].uses) == 1


# numpy (2.4) writes anything where their `out` is not contiguous and there are 512-bit vectors.
_WRITE_WRONGLY = frozenset({"isnan", "isinf", "isfinite", "signbit"})


def _writes(name: str) -> Writes:
    function = getattr(np, name, None)
    if not isinstance(function, np.ufunc) or name in _WRITE_WRONGLY:
        return "never"
    return "in place" if function.signature is None else "elsewhere"


def literal(value: Attr) -> str:
    """An attribute as Python source."""
    if isinstance(value, DType):
        return f"np.{to_numpy_dtype(value).name}" if value.name != "bool" else "np.bool_"
    if isinstance(value, tuple):
        inner = ", ".join(literal(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    if isinstance(value, complex):  # its repr loses signed zeros, and is no source for inf and nan
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    return repr(value)


def fill(record: Op, template: str, operands: list[str], attrs: Mapping[str, Attr]) -> str:
    """A template with its places filled."""
    values = {name: literal(value) for name, value in attrs.items()}
    if record.variadic:
        values[record.inputs[0]] = ", ".join(operands)
    else:
        values.update(zip(record.inputs, operands, strict=True))
    return template.format(**values)


def call(record: Op, low: Lowering, operands: list[str], attrs: Mapping[str, Attr]) -> str:
    """The expression that computes an op, without `out=`."""
    if low.kind == "template":
        return fill(record, low.text, operands, attrs)
    if low.kind == "function":
        operands = [*operands, *(f"{k}={_given(v, low.torch)}" for k, v in attrs.items())]
    return f"{low.text}({', '.join(operands)})"


def _given(value: Attr, torch: bool) -> str:
    """An attribute of a call; torch has dtypes that numpy has not."""
    if torch and isinstance(value, DType) and value in TORCH_NAMES:
        return repr(TORCH_NAMES[value])
    return literal(value)


TORCH_NAMES = {BF16: "bfloat16", C32: "complex32"}


def as_tensor(array: Any) -> Any:
    """A torch tensor over a numpy array, copied only where torch cannot read it in place."""
    import torch

    if type(array) is not np.ndarray:  # results of no dimension are numpy scalars
        array = np.asarray(array)
    strides = array.strides
    if strides and min(strides) < 0:
        return _forwards(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _forwards(array: Any) -> Any:
    """A tensor of an array that is read backwards along some dims, which no tensor is."""
    import torch

    if array.dtype.kind != "f" or not array.flags.writeable:
        return torch.from_numpy(array.copy())
    back = tuple([k for k, step in enumerate(array.strides) if step < 0])
    return torch.from_numpy(np.flip(array, back)).flip(back)  # torch copies on all cores


def as_array(result: Any) -> Any:
    """The numpy view of a tensor, or of each tensor of a tuple; no results where there are none."""
    if result is None:
        return ()
    if isinstance(result, (tuple, list)):
        return tuple(as_array(r) for r in result)
    name = str(result.dtype)
    if name == "torch.bfloat16":
        result = result.float()
    elif name == "torch.complex32":
        result = result.cfloat()
    return result.numpy()


@functools.cache
def _torch_function(record: Op, text: str | None = None) -> Callable[..., Any]:
    """A function of numpy arrays and keyword attributes: torch's own, or what `text` says."""
    names = [*record.inputs, *record.attrs]
    text = record.torch if text is None else text
    assert text is not None
    if "{" not in text:
        text += "(" + ", ".join(f"{{{n}}}" for n in record.inputs) + ")"
    places = {field for _, field, _, _ in string.Formatter().parse(text) if field}
    unknown = places - set(names)
    if unknown:
        raise CodegenError(f"the torch lowering of {record.name} names {sorted(unknown)}")
    body = text.format(**{n: n for n in names})
    star = "*" if record.variadic else ""
    marker = ["*"] if record.attrs and not star else []  # attributes are keywords
    head = ", ".join([*(star + n for n in record.inputs), *marker, *record.attrs])
    wraps = "".join(
        f"    {n} = [as_tensor(v) for v in {n}]\n" if star else f"    {n} = as_tensor({n})\n"
        for n in record.inputs
    )
    again = ", ".join([star + n for n in record.inputs] + [f"{n}={n}" for n in record.attrs])
    # What autocast does was recorded as casts; applied again it would round twice.
    source = (
        f"def {record.name}({head}):\n"
        "    if torch.is_autocast_enabled('cpu'):\n"
        "        with torch.autocast('cpu', enabled=False):\n"
        f"            return {record.name}({again})\n"
        f"{wraps}    return as_array({body})\n"
    )
    import torch

    namespace: dict[str, Any] = {
        "torch": torch, "np": np, "as_tensor": as_tensor, "as_array": as_array,
        "to_torch": _to_torch_dtype,
    }  # fmt: skip
    exec(compile(source, f"<gradof torch lowering of {record.name}>", "exec"), namespace)
    function: Callable[..., Any] = namespace[record.name]
    return function


def _to_torch_dtype(dtype: Any) -> Any:
    import torch

    return getattr(torch, dtype if isinstance(dtype, str) else np.dtype(dtype).name)
