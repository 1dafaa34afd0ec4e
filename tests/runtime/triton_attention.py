"""Attention in Triton's interpreter: `python -m tests.runtime.triton_attention` prints what it saw.

Each case runs in a process of its own environment (GRADOF_BACKEND=triton TRITON_INTERPRET=1):
values, gradients and second gradients against the same function in float64, half precision against
eager's own distance from float64.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

import gradof
from gradof.codegen.triton.attention import kernel as flash
from gradof.codegen.triton.attention.blocks import Blocks, blocks_for, padded
from tests import sample

ROWS, KEYS, HEAD, WIDTH = 37, 29, 24, 40  # no size is a power of two
F = torch.nn.functional
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A function of q, k, v and what else it reads, and the shapes of q, k, v."""

    fn: Callable[..., torch.Tensor]
    batch: tuple[int, ...] = (2, 3)
    others: tuple[torch.Tensor, ...] = ()
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)


def _softmax(s: torch.Tensor) -> torch.Tensor:
    return torch.softmax(s, dim=-1)


def plain(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.transpose(-1, -2) / HEAD**0.5) @ v


def shifted(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.mT
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v


def capped(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> Any:
    s = 5.0 * torch.tanh((0.2 * (q @ k.mT) - bias) / 5.0)
    return _softmax(s.masked_fill(mask, float("-inf"))) @ v


def divided(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> Any:
    s = -(1.0 - q @ k.mT * bias) / (1.0 + bias * bias)
    return _softmax(torch.where(mask, -1e9, s)) @ v


def own(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)


def heads(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def summed(q: Any, k: Any, v: Any) -> Any:
    weights = _softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.25)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


ALL = (torch.float32, torch.float16, torch.bfloat16)
_GEN = torch.Generator().manual_seed(0)
BIAS = torch.randn(ROWS, KEYS, generator=_GEN)
MASK = torch.rand(3, 1, KEYS, generator=_GEN) < 0.2
DEAD = torch.rand(ROWS, KEYS, generator=_GEN) < 0.8
DEAD[3] = False  # torch's own attention gives 0 for such a row
CASES = {
    "plain": Case(plain, dtypes=ALL),
    "matrices": Case(plain, ()),
    "one batch dim": Case(plain, (4,)),
    "by hand": Case(shifted),
    "soft-cap, bias and mask": Case(capped, others=(BIAS, MASK), dtypes=ALL),
    "divided by a tensor": Case(divided, others=(BIAS, MASK)),
    "torch's own, causal": Case(own),
    "torch's own, a row without keys": Case(masked, others=(DEAD,), dtypes=ALL),
    "einsum": Case(summed),
}  # fmt: skip


def operands(case: Case, dtype: torch.dtype) -> Tensors:
    """q, k and v, none of them contiguous, with gradients; then the others, without."""
    gen = torch.Generator().manual_seed(1)

    def made(rows: int, columns: int) -> torch.Tensor:
        x = torch.randn(*case.batch, columns, rows, generator=gen).to(dtype)
        return x.mT.requires_grad_()

    others = [x.to(dtype) if x.is_floating_point() else x for x in case.others]
    return [made(ROWS, HEAD), made(KEYS, HEAD), made(KEYS, WIDTH), *others]


def small_blocks(part: str, d: int, e: int, *_: Any, **__: Any) -> Blocks:
    """Small ones, so that there are several, whole ones and a last one in part."""
    return Blocks(32, 16, padded(d), padded(e), 4, 1)


def choose_blocks(choose: Callable[..., Blocks]) -> None:
    """Have launches cut into blocks in another way."""
    vars(flash)["blocks_for"] = choose


def gradients(fn: Callable[..., Any], given: Tensors, *, second: bool) -> Tensors:
    """The value, its gradients for a fixed cotangent, and the gradients of their squares."""
    qkv = given[:3]
    out = fn(*given)
    seed = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out.dtype)
    first = torch.autograd.grad(out, qkv, seed, create_graph=second)
    if not second:
        return [out, *first]
    squares = torch.stack([(g * g).sum() for g in first]).sum()
    return [out, *first, *torch.autograd.grad(squares, qkv)]


def worst(found: Tensors, right: Tensors) -> list[float]:
    """The distance of each tensor from the right one, by norm."""
    return [
        ((x.double() - y).norm() / y.norm()).item() for x, y in zip(found, right, strict=True)
    ]


def run(case: Case, dtype: torch.dtype) -> dict[str, Any]:
    """What a case is judged by."""
    second = dtype == torch.float32
    compiled = gradof.differentiate(case.fn)
    given = operands(case, dtype)
    exact = [
        x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x
        for x in given
    ]
    right = gradients(case.fn, exact, second=second)
    explanation = compiled.explain(*given)
    with torch.no_grad():
        value = compiled(*given)
    return {
        "ours": worst(gradients(compiled, given, second=second), right),
        "eager": worst(gradients(case.fn, given, second=second), right),
        "value": worst([value], right[:1]),
        "said": explanation.attention, "saved": explanation.saved_bytes,
        "source": explanation.source, "runs": compiled.cache_info().forward_runs,
    }  # fmt: skip


def settings(large: Any) -> dict[str, Any]:
    """Runs that get to the kernels by other ways: budget, one run, parts of the gradient."""
    given = operands(CASES["plain"], torch.float32)
    exact = [x.detach().double().requires_grad_() for x in given]
    right = gradients(plain, exact, second=False)
    found: dict[str, Any] = {}
    spare = gradof.differentiate(plain, memory_budget=0.0)
    found["budget"] = worst(gradients(spare, given, second=False), right)
    again = gradof.differentiate(lambda *xs: torch.utils.checkpoint.checkpoint(
        plain, *xs, use_reentrant=False))  # fmt: skip
    found["checkpoint"] = worst(gradients(again, given, second=False), right)
    for k, name in enumerate("qkv"):
        alone = [x.detach().requires_grad_(j == k) for j, x in enumerate(given)]
        out = gradof.differentiate(plain)(*alone)
        seed = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
        found[name] = worst(list(torch.autograd.grad(out, alone[k], seed)), right[k + 1 : k + 2])
    total = gradof.differentiate(lambda *xs: plain(*xs).square().sum())
    wanted = torch.autograd.grad(plain(*exact).square().sum(), exact)
    for _ in range(4):  # the last of them as one run with the value
        got = torch.autograd.grad(total(*given), given)
    found["together"] = worst(list(got), list(wanted))
    assert total.explain(*given).together
    value = gradof.differentiate(heads)
    turned = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in given]
    found["heads"] = worst(
        gradients(value, turned, second=False),
        gradients(heads, [x.detach().double().requires_grad_() for x in turned], second=False),
    )
    found["grouped"] = grouped_heads()
    found["nan"] = rows_without_keys()
    whole = [torch.randn(2, n, 16, requires_grad=True) for n in (32, 48, 48)]
    whole_exact = [x.detach().double().requires_grad_() for x in whole]
    for name, fn in (("whole blocks", plain), ("whole blocks, causal", own)):
        found[name] = worst(
            gradients(gradof.differentiate(fn), whole, second=False),
            gradients(fn, whole_exact, second=False),
        )
    choose_blocks(lambda *args, **_: replace(small_blocks(*args[:3]), described=True))
    found["tensor descriptors"] = worst(
        gradients(gradof.differentiate(plain), whole, second=False),
        gradients(plain, whole_exact, second=False),
    )
    ends = [x.detach()[:, :-5].contiguous().requires_grad_() for x in whole]
    found["tensor descriptors, causal"] = worst(
        gradients(gradof.differentiate(own), ends, second=False),
        gradients(own, [x.detach().double().requires_grad_() for x in ends], second=False),
    )
    choose_blocks(large)
    found["large blocks"] = worst(
        gradients(gradof.differentiate(plain), given, second=False), right
    )
    found["heads saved"] = value.explain(*turned).saved_bytes
    return found


def grouped_heads() -> list[float]:
    """Keys and values that two heads share, and one tensor that is Q, K and V."""
    def fn(q: Any, x: Any) -> Any:
        return F.scaled_dot_product_attention(q, x, x, enable_gqa=True) + _softmax(x @ x.mT) @ x

    gen = torch.Generator().manual_seed(3)
    q = torch.randn(2, 4, 9, 16, generator=gen, requires_grad=True)
    x = torch.randn(2, 1, 9, 16, generator=gen, requires_grad=True)
    compiled = gradof.differentiate(fn)
    assert [" run as " in said for said in compiled.explain(q, x).attention] == [True, True]
    results = []
    for call, given in ((compiled, [q, x]), (fn, [q.detach().double(), x.detach().double()])):
        leaves = [g.detach().requires_grad_() for g in given]
        out = call(*leaves)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    return worst(*results)


def rows_without_keys() -> list[bool]:
    """Where all scores are -inf, softmax and its gradients are nan, as eager's: in each result."""
    q, k, v = (torch.ones(5, 16).requires_grad_() for _ in "qkv")
    rows = torch.tensor([False, False, True, False, False])[:, None]

    def fn(q: Any, k: Any, v: Any) -> Any:
        return _softmax((q @ k.mT).masked_fill(rows, float("-inf"))) @ v

    pairs = []
    for call in (gradof.differentiate(fn), fn):
        out = call(q, k, v)
        pairs.append([t.isnan() for t in (out, *torch.autograd.grad(out.sum(), (q, k, v)))])
    assert pairs[1][0].sum() == 16
    return [torch.equal(a, b) for a, b in zip(*pairs, strict=True)]


def main() -> None:
    """All cases as one line of JSON."""
    torch.backends.cuda.matmul.allow_tf32 = True  # else kernels leave float32 to torch
    choose_blocks(small_blocks)
    rows = {
        f"{name}, {str(dtype).removeprefix('torch.')}": run(case, dtype)
        for name, case in sample.part(CASES.items()) for dtype in case.dtypes
    }  # fmt: skip
    others = settings(blocks_for) if len(sample.part(CASES)) == len(CASES) else {}
    print(json.dumps({"cases": rows, "settings": others}))


if __name__ == "__main__":
    main()
