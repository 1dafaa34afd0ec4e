"""How one op is called in emitted source: a ufunc, a template, or a function bound by name.

>>> lowering(get_op("tanh"), "numpy")
Lowering(kind='ufunc', text='np.tanh')
>>> lowering(get_op("mm"), "torch")     # worth torch's own code where the arrays are torch's
Lowering(kind='function', text='mm', function=<wrapper of torch.mm>)
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gradof.errors import CodegenError
from gradof.ir.attrs import Attr, to_numpy_dtype
from gradof.ir.types import DType
from gradof.ops.registry import Op

Library = Literal["numpy", "torch"]


@dataclass(frozen=True)
class Lowering:
    """`ufunc`: dotted name taking `out=`; `template`: text with places; `function`: bound by name."""

    kind: Literal["ufunc", "template", "function"]
    text: str
    function: Callable[..., Any] | None = None


@functools.cache
def lowering(record: Op, library: Library) -> Lowering:
    """The lowering of an op for arrays of a library; CodegenError if it has none."""
    if library == "torch" and record.torch is not None:
        return Lowering("function", record.name, _torch_function(record))
    if record.numpy is None:
        raise CodegenError(
            f"{record.name} cannot be emitted",
            hint="expand composites and specialise symbolic zeros first",
        )
    if callable(record.numpy):
        return Lowering("function", record.name, record.numpy)
    if "{" in record.numpy:
        return Lowering("template", record.numpy)
    return Lowering("ufunc", record.numpy)


def literal(value: Attr) -> str:
    """An attribute as Python source."""
    if isinstance(value, DType):
        return f"np.{to_numpy_dtype(value).name}" if value.name != "bool" else "np.bool_"
    if isinstance(value, tuple):
        inner = ", ".join(literal(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not np.isfinite(value):
        return "np.nan" if np.isnan(value) else "np.inf" if value > 0 else "-np.inf"
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
        operands = [*operands, *(f"{k}={literal(v)}" for k, v in attrs.items())]
    return f"{low.text}({', '.join(operands)})"


def as_tensor(array: Any) -> Any:
    """A torch tensor over a numpy array, copied only where torch cannot read it in place."""
    import torch

    array = np.asarray(array)
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def as_array(result: Any) -> Any:
    """The numpy view of a tensor, or of each tensor of a tuple."""
    if isinstance(result, (tuple, list)):
        return tuple(as_array(r) for r in result)
    return result.detach().numpy()


def _torch_function(record: Op) -> Callable[..., Any]:
    """A function of numpy arrays and keyword attributes that runs torch's own."""
    assert record.torch is not None
    names = [*record.inputs, *record.attrs]
    text = record.torch
    if "{" not in text:
        text += "(" + ", ".join(f"{{{n}}}" for n in record.inputs) + ")"
    places = {field for _, field, _, _ in string.Formatter().parse(text) if field}
    unknown = places - set(names)
    if unknown:
        raise CodegenError(f"the torch lowering of {record.name} names {sorted(unknown)}")
    body = text.format(**{n: n for n in names})
    star = "*" if record.variadic else ""
    head = ", ".join([star + n for n in record.inputs] + (["*"] if record.attrs and not star else [])
                     + list(record.attrs))  # fmt: skip
    wraps = "".join(
        f"    {n} = [as_tensor(v) for v in {n}]\n" if star else f"    {n} = as_tensor({n})\n"
        for n in record.inputs
    )
    source = f"def {record.name}({head}):\n{wraps}    return as_array({body})\n"
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

    return getattr(torch, np.dtype(dtype).name)
