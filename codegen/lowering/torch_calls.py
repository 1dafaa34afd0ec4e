"""Ops as statements over torch tensors: what `torch_ops` has, and what needs gradof beside it.

>>> statement(node, ["x"], "cuda_0")            # Guard[value=True, number=0](%x)
'check_guard(x, value=True, number=0)'

That is: guards, ops that torch's autograd runs, the random state, checks that do not wait for the
device, and functions that an exported file would not have. `namespace` is what statements call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradof.codegen.lowering.library import call_on_tensors, gradient_on_tensors, read_of
from gradof.codegen.lowering.opaque import run_on_tensors
from gradof.codegen.lowering.philox import philox_kept, philox_state, position
from gradof.codegen.lowering.torch_ops import HELPERS, literal, torch_expression
from gradof.ir.core import Node
from gradof.ops.custom import refuse_second_derivative
from gradof.ops.guard import check_guard

_TEMPLATES = {
    "once_differentiable": "{0}",
    "second_derivative": "refuse_second_derivative({0}, None, None, {deepest})",
    "random_seed": "torch.manual_seed({seed})",
    "random_state": "torch.get_rng_state()",
    "set_random_state": "torch.set_rng_state({0})",
    "cuda_random_seed": "torch.cuda.default_generators[{generator}].manual_seed({seed})",
    "cuda_random_state": "torch.cuda.default_generators[{generator}].get_state()",
    "set_cuda_random_state": "torch.cuda.default_generators[{generator}].set_state({0})",
    "frexp": "torch.frexp({0})",
    "fft_c2c": "torch._fft_c2c({0}, {dims}, {scale}, {forward})",
    "fft_r2c": "torch._fft_r2c({0}, {dims}, {scale}, {onesided})",
    "fft_c2r": "torch._fft_c2r({0}, {dims}, {scale}, {last})",
    "lu_unpivoted": "lu_unpivoted({0})", "pivot_order": "pivot_order({0}, {n})",
    "svd_rest": "svd_rest({0})",
    "philox_state": "philox_state({cells}, {width}, {dtype}, {device})",
    "philox_kept": "philox_kept({0}, {1}, {2}, p={p}, width={width}, cells={cells})",
    "position": "position({shape}, {device})",
}  # fmt: skip
_FFT_SCALES = {"none": "0", "root_n": "1", "n": "2"}  # at::native::fft_norm_mode


def statement(node: Node, operands: Sequence[str], device: str) -> str:
    """The expression that computes a node; CodegenError naming an op that has none."""
    if node.kind == "Guard":
        value, number = node.attrs["value"], node.attrs["number"]
        return f"check_guard({operands[0]}, value={literal(value)}, number={number})"
    if node.kind == "to_device":
        # to a device from memory of the caller's: CUDA takes a copy of it before it returns
        late = "" if node.attrs["device"] == "cpu" else ", non_blocking=True"
        return f"{operands[0]}.to({device}{late})"
    if node.kind == "Opaque":
        return _opaque(node, operands)
    if node.kind.startswith("library_"):
        attrs = ", ".join(f"{k}={literal(v)}" for k, v in node.attrs.items() if k != "types")
        text = f"{node.kind}(({', '.join(operands)},), {attrs}, {read_of(node)})"
        return text if len(node.outputs) != 1 else f"{text}[0]"
    template = _TEMPLATES.get(node.kind)
    if template is None:
        return torch_expression(node, operands, device)
    values = {name: literal(value) for name, value in node.attrs.items()}
    values["device"] = device
    if node.kind.startswith("fft_"):
        values["scale"] = _FFT_SCALES[str(node.attrs["scale"])]
    return template.format(*operands, **values)


def _opaque(node: Node, operands: Sequence[str]) -> str:
    attrs = node.attrs
    types = attrs["types"]
    assert isinstance(types, tuple)
    shapes = tuple(pair[1] for pair in types if isinstance(pair, tuple))
    text = (
        f"run_opaque(({', '.join(operands)},), {attrs['name']!r}, {literal(attrs['call'])}, "
        f"{shapes!r}, {literal(attrs['vjps'])})"
    )
    return text if len(node.outputs) != 1 else f"{text}[0]"


def namespace() -> dict[str, Any]:
    """What statements call, by name; each time a new dict."""
    import torch

    found: dict[str, Any] = {"torch": torch}
    exec("\n".join(HELPERS[name] for name in HELPERS if name != "in_range"), found)
    del found["__builtins__"]
    own = (check_guard, in_range, lu_unpivoted, pivot_order, svd_rest, refuse_second_derivative,
           philox_state, philox_kept, position)
    found.update({f.__name__: f for f in own})
    found["run_opaque"] = run_on_tensors
    found.update(library_call=call_on_tensors, library_gradient=gradient_on_tensors)
    return found


def in_range(index: Any, size: int, wraps: bool, error: type[Exception]) -> Any:
    """The index in [0, size); where it wraps, negative entries count from the end.

    On the CPU an entry out of bounds raises `error`. A device checks it when it comes to it, as in
    eager: nothing waits, and the process cannot use the device afterwards.
    """
    import torch

    inside = ((index >= (-size if wraps else 0)) & (index < size)).all()
    if index.is_cpu:
        if not inside:
            raise error(f"an index is out of bounds for a dimension of size {size}")
    else:
        torch._assert_async(inside)
    return torch.where(index < 0, index + size, index) if wraps else index


def lu_unpivoted(x: Any) -> Any:
    """L below the diagonal (its ones left out), U above; of rows in order."""
    import torch

    if x.is_cuda:
        return torch.linalg.lu_factor_ex(x, pivot=False)[0]
    lu = x.clone()  # torch has it on CUDA devices alone
    for k in range(lu.shape[-1] - 1):
        pivot = lu[..., k, None, k]
        # LAPACK leaves the column below a zero pivot as it is, which is zero in pivoted order
        lu[..., k + 1 :, k] /= torch.where(pivot == 0, 1, pivot)
        lu[..., k + 1 :, k + 1 :] -= lu[..., k + 1 :, k, None] * lu[..., k, None, k + 1 :]
    return lu


def pivot_order(pivots: Any, n: int) -> Any:
    """LAPACK's row exchanges as the order of rows."""
    import torch

    if not pivots.numel():  # argmax has no dim of size 0
        return torch.arange(n, device=pivots.device).expand(*pivots.shape[:-1], n).contiguous()
    like = torch.empty((*pivots.shape[:-1], n, pivots.shape[-1]), device=pivots.device)
    return torch.lu_unpack(like, pivots, unpack_data=False)[0].argmax(-2)


def svd_rest(x: Any) -> tuple[Any, Any]:
    """What full_matrices=True adds to the reduced vectors."""
    import torch

    u, s, vh = torch.linalg.svd(x, full_matrices=True)
    k = s.shape[-1]
    return u[..., k:].contiguous(), vh[..., k:, :].contiguous()
