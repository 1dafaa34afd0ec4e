"""Running an `Opaque` node: torch's op on the same memory, under torch's own autograd.

`run_opaque` is for numpy arrays over torch's memory, `run_on_tensors` for tensors of any device.
Imported only where torch's arrays are run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gradof.errors import DataDependentShapeError
from gradof.ops.opaque import constant_operands


def run_opaque(
    *arrays: Any, name: str, call: tuple[Any, ...], types: Any, vjps: tuple[tuple[bool, ...], ...],
    held: Mapping[int, str] | None = None,
) -> Any:  # fmt: skip
    """The results of the op, or of its vjp nested as `vjps` says; see `gradof.ops.opaque`.

    `held` names the dtypes of operands that numpy holds in wider arrays.

    Whatever torch raises for the op, or for a derivative it does not have, passes through.
    """
    import torch

    tensors = [torch.from_numpy(readable(a)) for a in arrays]
    narrow = {"bf16": torch.bfloat16, "c32": torch.complex32}
    for i, name_ in (held or {}).items():
        tensors[i] = tensors[i].to(narrow[name_])
    fresh = run_on_tensors(tensors, name, call, tuple(shape for _, shape in types), vjps)
    wide = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
    fresh = [r.to(wide.get(r.dtype, r.dtype)) for r in fresh]
    out = tuple(r.resolve_conj().resolve_neg().numpy() for r in fresh)
    return out[0] if len(types) == 1 else out


def run_on_tensors(
    tensors: Sequence[Any], name: str, call: tuple[Any, ...], shapes: tuple[Any, ...],
    vjps: tuple[tuple[bool, ...], ...],
) -> list[Any]:  # fmt: skip
    """The same on tensors; results of these shapes, in memory of their own."""
    import torch

    kinds = {"cpu", *(t.device.type for t in tensors)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        for kind in kinds:
            stack.enter_context(torch.autocast(kind, enabled=False))
        leaves = [t.detach() for t in tensors]
        if vjps:
            constant = constant_operands(call)
            leaves = [t if i in constant else leaf_of(t) for i, t in enumerate(leaves)]
        if len(vjps) > 1:  # fused kernels have no second derivative
            stack.enter_context(_without("mkldnn"))
            stack.enter_context(_without("cudnn"))
            stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        with torch.set_grad_enabled(bool(vjps)):
            results = _evaluate(name, call, vjps, leaves, create_graph=False)
    found = [tuple(r.shape) for r in results]
    if found != [tuple(shape) for shape in shapes]:
        raise DataDependentShapeError(
            f"{name} gave results of shapes {found}, which depend on values, and not "
            f"{[tuple(shape) for shape in shapes]} as when it was traced",
            hint="call it outside of the compiled function",
        )
    own = {t.untyped_storage().data_ptr() for t in tensors}
    return [
        r.detach().clone() if r.untyped_storage().data_ptr() in own else r.detach()
        for r in results
    ]  # fmt: skip


@contextlib.contextmanager
def _without(library: str) -> Iterator[None]:
    """Inside, torch does not use it: `mkldnn` or `cudnn`."""
    import torch

    ask = getattr(torch._C, f"_get_{library}_enabled")
    tell = getattr(torch._C, f"_set_{library}_enabled")
    before = ask()
    tell(False)
    try:
        yield
    finally:
        tell(before)


def readable(array: Any) -> Any:
    """An array that torch can read in place; a copy where it cannot."""
    array = np.asarray(array)
    if not array.flags.writeable or min(array.strides, default=0) < 0:
        return array.copy()
    return array


def leaf_of(tensor: Any) -> Any:
    """A leaf over the same memory, which requires grad if it can."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.detach().requires_grad_()
    return tensor


def _evaluate(
    name: str, call: tuple[Any, ...], vjps: Sequence[tuple[bool, ...]], inputs: Sequence[Any],
    create_graph: bool,
) -> list[Any]:  # fmt: skip
    import torch

    if not vjps:
        return run_call(name, call, inputs)
    *before, given = vjps
    count = len(inputs) - sum(given)
    primals, seeds = inputs[:count], inputs[count:]
    results = _evaluate(name, call, before, primals, create_graph=True)
    pairs = [
        (result, seed)
        for result, seed in zip((r for r, g in zip(results, given, strict=True) if g), seeds,
                                strict=True)
        if result.requires_grad
    ]  # fmt: skip
    wanted = [p for p in primals if p.requires_grad]
    if not pairs or not wanted:
        return [torch.zeros_like(p) for p in wanted]
    outputs, weights = zip(*pairs, strict=True)
    grads = torch.autograd.grad(
        outputs, wanted, weights, create_graph=create_graph, allow_unused=True
    )
    return [torch.zeros_like(p) if g is None else g for p, g in zip(wanted, grads, strict=True)]


def run_call(name: str, call: tuple[Any, ...], tensors: Sequence[Any]) -> list[Any]:
    """One call of the op `name` ("aten::foo.overload"); its tensors in a list."""
    import torch

    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    func = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    *args, kwargs = (_decode(a, tensors) for a in call)
    return flat_tensors(func(*args, **kwargs))


def flat_tensors(result: Any) -> list[Any]:
    """The tensors of a result, through nested tuples and lists."""
    import torch

    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in flat_tensors(part)]
    return []


def _decode(value: Any, tensors: Sequence[Any]) -> Any:
    import torch

    if not isinstance(value, tuple):
        return value
    tag, *rest = value
    if tag in ("t", "c"):
        return tensors[rest[0]]
    if tag == "list":
        return [_decode(v, tensors) for v in rest]
    if tag == "dict":
        return {k: _decode(v, tensors) for k, v in rest}
    if tag == "device":
        return torch.device(rest[0])
    assert tag == "torch", f"unknown tag {tag!r} in the arguments of an Opaque node"
    return getattr(torch, rest[0])
