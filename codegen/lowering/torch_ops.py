"""One op of a graph as a torch expression: what runs beside kernels, because no kernel has it.

>>> torch_expression(node, ["x", "w"], "x.device")          # %h = mm(%x, %w)
'torch.mm(x, w)'
>>> torch_expression(node, ["g"], "g.device")               # %y = sum[dims=(0,), keepdims=True](%g)
'g.sum(dim=(0,), keepdim=True)'

Operands are names of tensors, or Python numbers as text where the graph has weak scalars. An op
that is in none of the tables, and whose op statement has no `torch=`, is a CodegenError that names
it. `HELPERS` are functions that expressions call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gradof.errors import CodegenError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.core import Node
from gradof.ir.opinfo import OPS
from gradof.ir.types import BOOL, I64, DType, ScalarType, TensorType
from gradof.ops.registry import Op

MAX_CONSTANT = 4096  # elements; a file with more is no longer one to read
_DTYPES = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32", "f64": "float64", "c32": "complex32", "c64": "complex64",
    "c128": "complex128",
}  # fmt: skip

# --- what takes Python numbers as well as tensors -------------------------------------------------

_INFIX = {
    "add": "+", "AutogradAdd": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "eq": "==",
    "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "bitwise_and": "&",
    "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip

# --- tensors only: numbers among the operands become tensors --------------------------------------

# `torch.NAME`, of ops that no function of aten maps to as it is; with such a function that is it.
_CALLS = frozenset({
    "complex", "hypot", "logical_and", "logical_or", "logical_xor", "nextafter",
})  # fmt: skip
_TEMPLATES = {
    "alias": "{x}", "again": "{x}", "detach": "{x}", "copy": "{x}.clone()",
    "real": "{x}.real", "imag": "{x}.imag", "conj": "{x}.conj().resolve_conj()",
    "clamp": "{x}.clamp(min={low}, max={high})",
    "zero_unreached": "torch.where(({seed} == 0) & ~torch.isfinite({grad}), 0.0, {grad})",
    "adjugate": "adjugate({x})",
    "reshape": "{x}.reshape({shape})", "expand": "{x}.expand({shape})",
    "flip": "{x}.flip({dims})",
    "cat": "torch.cat(({xs},), dim={dim})", "tril": "{x}.tril({diagonal})",
    "triu": "{x}.triu({diagonal})",
    "slice_scatter": "torch.slice_scatter({x}, {src}, {dim}, {start}, {stop}, {step})",
    "gather": "{x}.gather({dim}, {index})", "index_select": "{x}.index_select({dim}, {index})",
    "index_add": "{x}.index_add({dim}, {index}, {src})",
    "scatter": "{x}.scatter({dim}, {index}, {src})",
    "scatter_add": "{x}.scatter_add({dim}, {index}, {src})",
    "argmax": "{x}.argmax(dim={dim}, keepdim={keepdims})",
    "argmin": "{x}.argmin(dim={dim}, keepdim={keepdims})",
    "full": "torch.full({shape}, {value}, dtype={dtype}, device={device})",
    "window_sum": "window_sum({x}, {kernel}, {stride}, {out})",
    "window_spread": "window_spread({x}, {kernel}, {stride}, {space})",
    "scatter_maxima": "scatter_maxima({g}, {indices}, {space})",
}  # fmt: skip
RANDOM_STATE = frozenset({  # ops on generators, not draws from them
    "random_seed", "random_state", "set_random_state",
    "cuda_random_seed", "cuda_random_state", "set_cuda_random_state",
})  # fmt: skip
HELPERS = {
    "adjugate": '''def adjugate(x):
    """det(x) inv(x); of singular matrices by their singular values."""
    det = torch.linalg.det(x)[..., None, None]
    product = det * torch.linalg.inv_ex(x).inverse
    if not ((det == 0) & x.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)).any():
        return product  # waits for the device
    u, s, vh = torch.linalg.svd(torch.where(det == 0, x, 0.0).nan_to_num())
    alone = torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    others = torch.where(alone, 1.0, s[..., None, :]).prod(-1)
    turn = (torch.linalg.det(u) * torch.linalg.det(vh))[..., None, None]
    return torch.where(det == 0, (turn * vh.mH * others[..., None, :]) @ u.mH, product)
''',
    "in_range": '''def in_range(index, size, wraps, error):
    """The index in [0, size); where it wraps, negative entries count from the end."""
    if ((index < (-size if wraps else 0)) | (index >= size)).any():  # waits for the device
        raise error(f"an index is out of bounds for a dimension of size {size}")
    return torch.where(index < 0, index + size, index)
''',
    "windows": '''def windows(kernel, stride, out):
    """Every place within a window, as the slices that take it from all windows at once."""
    for at in torch.cartesian_prod(*(torch.arange(k) for k in kernel)).reshape(-1, len(kernel)):
        yield (..., *(slice(int(a), int(a) + (n - 1) * s + 1, s)
                      for a, s, n in zip(at, stride, out)))
''',
    "window_sum": '''def window_sum(x, kernel, stride, out):
    """Sums over windows of the trailing dims."""
    first, *others = (x[where] for where in windows(kernel, stride, out))
    return sum(others, first)
''',
    "scatter_maxima": '''def scatter_maxima(g, indices, space):
    """Each value added to its place, a flat index in a plane of the dims `space`."""
    result = g.new_zeros((*g.shape[: -len(space)], *space)).flatten(-len(space))
    flat = g.flatten(-len(space)), indices.flatten(-len(space))
    return result.scatter_add_(-1, flat[1], flat[0]).unflatten(-1, space)
''',
    "window_spread": '''def window_spread(x, kernel, stride, space):
    """Each value added to all of its window: the adjoint of window_sum."""
    result = x.new_zeros((*x.shape[: -len(kernel)], *space))
    for where in windows(kernel, stride, x.shape[-len(kernel):]):
        result[where] += x
    return result
''',
}  # fmt: skip


def dtype_text(dtype: DType) -> str:
    """A dtype as torch spells it: `torch.float32`."""
    return f"torch.{_DTYPES[dtype.name]}"


def literal(value: Attr) -> str:
    """An attribute as Python source; CodegenError for an array."""
    if isinstance(value, DType):
        return dtype_text(value)
    if isinstance(value, Dense):
        raise CodegenError("an array is no attribute of a torch call")
    if isinstance(value, tuple):
        inner = ", ".join(literal(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):  # its repr loses signed zeros
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    return repr(value)


def torch_expression(node: Node, operands: Sequence[str], device: str) -> str:
    """The expression that computes a node; a tuple where it has several outputs.

    `device` is the source of the device on which new tensors are made. CodegenError for an op, or
    a use of one, that has no torch form here.
    """
    special = _SPECIAL.get(node.kind)
    if special is not None:
        return special(node, list(operands), device)
    if node.kind in _INFIX:
        if not any(isinstance(v.type, TensorType) for v in node.inputs):
            raise _none(node, "of numbers only")
        a, b = operands
        return f"{_bracketed(a)} {_INFIX[node.kind]} {_bracketed(b)}"
    operands = _as_tensors(node, operands, device)
    record = OPS.get(node.kind)
    template = _template(record) if isinstance(record, Op) else None
    if template is None or not isinstance(record, Op) or node.kind in RANDOM_STATE:
        raise _none(node)
    if "{" not in template:
        return f"{template}({', '.join(operands)})"
    return _filled(record, template, operands, node.attrs, device)


def _template(record: Op) -> str | None:
    """A call, or a template, of torch's for an op."""
    own = _TEMPLATES.get(record.name, record.torch)
    if own is not None or record.is_composite:
        return own
    served = any(name.split(".")[:2] == ["aten", record.name] for name in record.names)
    return f"torch.{record.name}" if served or record.name in _CALLS else None


def has_form(kind: str) -> bool:
    """Whether an op has an expression of its own here."""
    record = OPS.get(kind)
    return kind in TABLES or (isinstance(record, Op) and _template(record) is not None)


def needed_helpers(source: str) -> list[str]:
    """The helpers that some source calls, with those they call."""
    found = {name for name in HELPERS if f"{name}(" in source}
    found |= {"windows"} if found & {"window_sum", "window_spread"} else set()
    return [name for name in HELPERS if name in found]


def _none(node: Node, what: str = "") -> CodegenError:
    of_torch = node.kind == "Opaque" or node.kind.startswith("library_")
    name = f"{node.kind} ({node.attrs['name']})" if of_torch else node.kind
    return CodegenError(
        f"{name}{' ' if what else ''}{what} has no torch form", loc=node.loc,
        hint="write it with other ops, or keep this part in gradof",
    )  # fmt: skip


def _filled(
    record: Op, template: str, operands: Sequence[str], attrs: Mapping[str, Attr], device: str
) -> str:
    values = {name: literal(value) for name, value in attrs.items()}
    values["device"] = device
    if record.variadic:
        values[record.inputs[0]] = ", ".join(operands)
    else:
        values.update(zip(record.inputs, operands, strict=True))
    return template.replace("to_torch({dtype})", "{dtype}").format(**values)


def _bracketed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def _as_tensors(node: Node, operands: Sequence[str], device: str) -> list[str]:
    """Operands with every number among them as a tensor of the dtype of the others."""
    types = [v.type for v in node.inputs]
    dtypes = [t.dtype for t in types if isinstance(t, TensorType)]
    found = []
    for text, type_ in zip(operands, types, strict=True):
        if isinstance(type_, ScalarType):
            if not dtypes:
                raise _none(node, "of numbers only")
            text = _number(text, dtypes[0], device)
        found.append(text)
    return found


def _number(text: str, dtype: DType, device: str) -> str:
    return f"torch.full((), {text}, dtype={dtype_text(dtype)}, device={device})"


def _result(node: Node) -> TensorType:
    type_ = node.outputs[0].type
    if not isinstance(type_, TensorType) or type_.shape is None:
        raise _none(node, "of a shape known at run time only")
    return type_


def _constant(node: Node, operands: list[str], device: str) -> str:
    value = node.attrs["value"]
    if not isinstance(value, Dense):
        return literal(value)
    array = value.numpy()
    if array.size > MAX_CONSTANT:
        raise CodegenError(
            f"a constant has {array.size} elements", loc=node.loc, hint="pass it as an argument"
        )
    inner = ", ".join(literal(v) for v in array.reshape(-1).tolist())
    shaped = "" if array.ndim == 1 else f".reshape({literal(tuple(array.shape))})"
    return f"torch.tensor([{inner}], dtype={dtype_text(value.dtype)}, device={device}){shaped}"


def _cast(node: Node, operands: list[str], device: str) -> str:
    dtype = node.attrs["dtype"]
    assert isinstance(dtype, DType)
    if isinstance(node.inputs[0].type, ScalarType):
        return _number(operands[0], dtype, device)
    return f"{operands[0]}.to({dtype_text(dtype)})"


def _where(node: Node, operands: list[str], device: str) -> str:
    kinds = [isinstance(v.type, TensorType) for v in node.inputs]
    if not kinds[0]:
        raise _none(node, "with a number as its condition")
    if not any(kinds[1:]):  # torch would make them float32
        operands[1] = _number(operands[1], _result(node).dtype, device)
    return f"torch.where({', '.join(operands)})"


def _reduction(node: Node, operands: list[str], device: str) -> str:
    (x,), dims = operands, node.attrs["dims"]
    assert isinstance(dims, tuple)
    dtype = _result(node).dtype
    if not dims:  # torch reads no dims as all of them
        return f"{x} != 0" if node.kind in ("any", "all") else f"{x}.clone()"
    keep = literal(node.attrs["keepdims"])
    whole = "" if dtype.is_inexact else f", dtype={dtype_text(dtype)}"  # torch widens integers
    if node.kind == "prod":
        for d in sorted((d for d in dims if isinstance(d, int)), reverse=True):
            x = f"{x}.prod(dim={d}, keepdim={keep}{whole})"
        return x
    whole = whole if node.kind == "sum" else ""
    return f"{x}.{node.kind}(dim={literal(dims)}, keepdim={keep}{whole})"


def _running(node: Node, operands: list[str], device: str) -> str:
    dtype = _result(node).dtype
    whole = "" if dtype.is_inexact or dtype == I64 else f", dtype={dtype_text(dtype)}"
    return f"{operands[0]}.{node.kind}(dim={literal(node.attrs['dim'])}{whole})"


def _slice(node: Node, operands: list[str], device: str) -> str:
    dim, start, stop, step = (node.attrs[k] for k in ("dim", "start", "stop", "step"))
    assert isinstance(dim, int)
    text = f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}"
    return f"{operands[0]}[{':, ' * dim}{text}]"


def _permute(node: Node, operands: list[str], device: str) -> str:
    dims = node.attrs["dims"]
    return f"{operands[0]}.T" if dims == (1, 0) else f"{operands[0]}.permute({literal(dims)})"


def _unslice(node: Node, operands: list[str], device: str) -> str:
    (g,), made = operands, _result(node)
    zeros = f"{g}.new_zeros({literal(made.shape)})"
    where = ", ".join(literal(node.attrs[k]) for k in ("dim", "start", "stop", "step"))
    return f"torch.slice_scatter({zeros}, {g}, {where})"


def _pad(node: Node, operands: list[str], device: str) -> str:
    pads, value = node.attrs["pads"], node.attrs["value"]
    assert isinstance(pads, tuple)
    flat = tuple(n for pair in reversed(pads) if isinstance(pair, tuple) for n in pair)
    if _result(node).dtype == BOOL:
        value = bool(value)
    return f"torch.nn.functional.pad({operands[0]}, {literal(flat)}, value={literal(value)})"


def _arange(node: Node, operands: list[str], device: str) -> str:
    n, start, step, dtype = (node.attrs[k] for k in ("n", "start", "step", "dtype"))
    whole = isinstance(start, int) and isinstance(step, int)
    wide = "torch.int64" if whole else "torch.float64"  # as numpy computes it, rounded at the end
    text = f"torch.arange({n}, dtype={wide}, device={device})"
    if (start, step) != (0, 1):
        text = f"({literal(start)} + {literal(step)} * {text})"
    own = dtype_text(dtype) if isinstance(dtype, DType) else ""
    return text if own == wide else f"{text}.to({own})"


def _within(node: Node, operands: list[str], device: str) -> str:
    shape, dim, start, stop = (node.attrs[k] for k in ("shape", "dim", "start", "stop"))
    assert isinstance(shape, tuple) and isinstance(dim, int)
    at = f"torch.arange({shape[dim]}, device={device})"
    return f"(({at} >= {start}) & ({at} < {stop})).reshape({literal(shape)})"


_ERRORS = {
    "index": "IndexError", "runtime": "RuntimeError",
    "divisor": "lambda _: RuntimeError('ZeroDivisionError')",
}


def _in_range(node: Node, operands: list[str], device: str) -> str:
    size, wraps = node.attrs["size"], node.attrs["wraps"]
    error = _ERRORS[str(node.attrs["error"])]
    return f"in_range({operands[0]}, {size}, wraps={wraps}, error={error})"


_SPECIAL: dict[str, Callable[[Node, list[str], str], str]] = {
    "Constant": _constant, "cast": _cast, "where": _where, "sum": _reduction, "prod": _reduction,
    "amax": _reduction, "amin": _reduction, "any": _reduction, "all": _reduction,
    "cumsum": _running, "cumprod": _running, "slice": _slice, "permute": _permute,
    "unslice": _unslice, "pad": _pad,
    "arange": _arange, "in_range": _in_range, "within": _within,
}  # fmt: skip
TABLES = frozenset({*_INFIX, *_CALLS, *_TEMPLATES, *_SPECIAL})
