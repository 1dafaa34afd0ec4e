"""Forms of torch programs that tables have: our table of ops, and torch's own, `op_db`.

From `op_db` come single statements with the operands of one of torch's samples, which are inputs,
or where they fit, what the program has made so far.
"""

from __future__ import annotations

import functools
import random
import warnings
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from gradof.ops.registry import Op, all_ops
from gradof.testing.fuzz.draw import Draw
from gradof.testing.fuzz.forms import Form
from gradof.testing.torch_samples import SEED, seed

# Of op_db, what is no function of its operands alone, or no dense tensor.
LEFT_OUT = frozenset({
    "empty_like", "empty", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "to_sparse", "sparse.mm", "sparse.sampled_addmm", "resize_", "resize_as_", "item", "tolist",
    "equal", "allclose", "cauchy", "exponential", "geometric", "log_normal", "uniform", "normal",
    "native_layer_norm", "native_group_norm", "native_batch_norm", "matrix_power",
    "torch.ops.aten._efficient_attention_forward", "torch.ops.aten._flash_attention_forward",
})  # fmt: skip
# Whose gradient in eager contradicts finite differences, where ours does not: op -> when.
WRONG_IN_EAGER = {
    "as_strided_scatter": "gradients for elements that were replaced",
    "cholesky_solve": "gradients for the half of the factor that is not read",
    "polar": "a negative absolute value changes the sign of its gradient",
    "scatter_reduce": "amax and amin with include_self=False, where the element itself is as large",
    "index_reduce": "the same",
    "logcumsumexp": "second derivatives where a cotangent is zero, as that of amax is",
}
# The same where an argument is set: op -> the argument. eager's backward of a bag counts how often
# another index occurs (`counts[indices_data[i]]` for the i-th of the different indices).
WRONG_WHERE = {"nn.functional.embedding_bag": "scale_grad_by_freq"}
# Tried in their domain alone: op -> why, and which it is.
WITHIN = {
    "op polar": "eager's gradient of a negative absolute value has the wrong sign",
}
# Ops that read a sign: that of a nan is the processor's, and the library's of C, to choose.
_OF_SIGNS = {"signbit": "{x}", "copysign": "{y:a}"}
DOMAINS = {"polar": ((0.2, 2.0), (-2.0, 2.0))}
_WORDS = ("None", "True", "False")
_LITERALS = (bool, int, float, complex, str, slice)


@functools.cache
def elementwise() -> tuple[Form, ...]:
    """Every elementwise op of our table that torch has a function for."""
    found = []
    for op in all_ops():
        if "elementwise" not in op.traits or not 1 <= len(op.inputs) <= 2:
            continue
        names = {n.split(".")[1] for n in op.names if n.startswith("aten.")} or {op.name}
        for name in sorted(names):
            path = _path(name)
            if path:
                found.append(_form(path, op))
    return tuple(found)


def _path(name: str) -> str:
    if name.startswith("_"):
        return ""
    if name.startswith("special_"):
        return "torch.special." + name.removeprefix("special_")
    for prefix in ("torch", "torch.special", "torch.nn.functional"):
        if hasattr(_resolve(prefix), name):
            return f"{prefix}.{name}"
    return ""


def _resolve(path: str) -> Any:
    found: Any = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _form(path: str, op: Op) -> Form:
    """The function on what the program has; `squash` is how to bring it into the domain."""
    operands = "{x}" if len(op.inputs) == 1 else "{x}, {y:a}"
    if op.name in _OF_SIGNS:
        read = _OF_SIGNS[op.name]
        operands = operands.replace(read, f"torch.nan_to_num({read})")
    return Form(f"{path}({operands})", name=f"op {op.name}", squash=DOMAINS.get(op.name, op.domain))


def squashed(form: Form) -> Form:
    """The form with its operands brought into the op's domain by a sigmoid."""
    text = form.text
    places = ("{x}", "{y:a}")
    for place, (low, high) in zip(places, form.squash, strict=False):
        inside = f"torch.sigmoid({place}) * {round(high - low, 6)} + {round(low, 6)}"
        text = text.replace(place, inside, 1)
    return Form(text, name=form.name)


@functools.cache
def entries() -> tuple[Any, ...]:
    """The entries of op_db that can be written as a call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return tuple(
        e for e in op_db
        if e.name not in LEFT_OUT and e.name not in WRONG_IN_EAGER and "jiterator" not in e.name
        and (callable(_resolve(f"torch.{e.name}")) or callable(getattr(torch.Tensor, e.name, None)))
    )  # fmt: skip


@functools.lru_cache(maxsize=2000)
def _samples(number: int, dtype: torch.dtype) -> list[Any]:
    entry = entries()[number]
    state = torch.default_generator.get_state()
    seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = list(entry.sample_inputs_func(entry, "cpu", dtype, False))
    except Exception:  # some samples cannot be made by themselves; there are plenty
        found = []
    torch.default_generator.set_state(state)
    return found[:: max(1, len(found) // 24)]


def add_sample(draw: Draw) -> bool:
    """A call of op_db's, with the operands of a sample or what the program has in their place."""
    rng = draw.rng
    number = rng.randrange(len(entries()))
    entry = entries()[number]
    main = getattr(torch, draw.main.removeprefix("torch."))
    wanted = main if rng.random() < 0.9 else rng.choice((torch.complex64, torch.int64, torch.bool))
    if wanted not in entry.dtypes:
        wanted = torch.float32
    if wanted not in entry.dtypes:
        return False
    found = _samples(number, wanted)
    if not found:
        return False
    sample = rng.choice(found)
    if sample.kwargs.get(WRONG_WHERE.get(entry.name)):
        return False
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    wrapped = getattr(entry, "gradcheck_wrapper", None)
    if _is_special(sample.output_process_fn_grad) or _is_special(wrapped):
        return False
    known = len(draw.inputs)
    shown = []
    for leaf in leaves:
        text = _operand(draw, leaf)
        if text is None:
            draw.discard(known)
            return False
        shown.append(text)
    tensors = [text for text in shown if text.isidentifier() and text not in _WORDS]
    if "_norm" in entry.name and len(set(tensors)) < len(tensors):
        draw.discard(known)  # a weight that is its own running mean: eager's gradient is of the new
        return False
    first, args, kwargs = pytree.tree_unflatten([_Text(t) for t in shown], tree)
    operands = [repr(a) for a in args] + [f"{k}={v!r}" for k, v in kwargs.items()]
    if callable(_resolve(f"torch.{entry.name}")) and rng.random() < 0.9:
        text = f"torch.{entry.name}({', '.join([repr(first), *operands])})"
    else:
        text = f"{first!r}.{entry.name}({', '.join(operands)})"
    form = Form(text, name=f"op_db {entry.formatted_name}")
    if draw.run(form, text, draw.names(1)):
        return True
    several = Form(text, outputs=_results(draw, text), name=form.name)
    if several.outputs > 1 and draw.run(several, text, draw.names(several.outputs)):
        return True
    draw.discard(known)
    return False


class _Text(str):
    """Source that is shown as it is."""

    def __repr__(self) -> str:
        return str(self)


def _is_special(function: Any) -> bool:
    """Whether it does more than to give back its argument, or call the op."""
    name = getattr(function, "__name__", "")
    return function is not None and name not in ("<lambda>", "identity")


def _results(draw: Draw, text: str) -> int:
    """How many tensors a call gives; 0 where it gives anything else."""
    space = dict(draw.space)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            draw.world.run(compile(f"result = {text}", "<statement>", "exec"), space)
    except Exception:  # what torch refuses is no program
        return 0
    result = space["result"]
    if isinstance(result, (tuple, list)) and all(isinstance(t, torch.Tensor) for t in result):
        return len(result)
    return 0


def _operand(draw: Draw, leaf: Any) -> str | None:
    if isinstance(leaf, torch.Tensor):
        return _tensor(draw, leaf)
    if isinstance(leaf, (torch.dtype, torch.memory_format, torch.layout)):
        return repr(leaf)
    if isinstance(leaf, torch.device):
        return "torch.device('cpu')"
    if leaf is Ellipsis:
        return "..."
    return repr(leaf) if leaf is None or isinstance(leaf, _LITERALS) else None


def _tensor(draw: Draw, leaf: torch.Tensor) -> str | None:
    if leaf.layout is not torch.strided or leaf.numel() > 4000:
        return None
    for name in reversed(draw.live):
        value = draw.space[name]
        if value.dtype != leaf.dtype or value.numel() < leaf.numel():
            continue
        if not leaf.is_floating_point():
            continue
        if draw.rng.random() < 0.4:
            if value.shape == leaf.shape:
                return str(name)
            taken = f"{name}.reshape(-1)[:{leaf.numel()}].reshape({tuple(leaf.shape)})"
            return taken if value.numel() > leaf.numel() else f"{name}.reshape({tuple(leaf.shape)})"
    return draw.enter(leaf.detach().clone() if leaf.is_contiguous() else leaf.detach())
