"""Which attention is recognised and which is not, with the reason; its kernels as PTX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gradof
from gradof.codegen.triton.attention.emit import PARTS, emit_flash
from gradof.codegen.triton.attention.recognise import recognised
from gradof.codegen.triton.attention.replace import with_attention, without_attention

F = torch.nn.functional


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    """Products of float32 in TF32, without which kernels leave them to torch."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


def graph_of(fn: Callable[..., Any], *args: torch.Tensor) -> Any:
    """The traced graph of a call."""
    return gradof.differentiate(fn).bind(args, {}).entry.plan.graph


def made(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, requires_grad=True)


def qkv(head: int = 16, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [made(2, 3, rows, head, dtype=dtype) for rows in (8, 10, 10)]


def soft(s: torch.Tensor) -> torch.Tensor:
    return torch.softmax(s, -1)


UNFIT: dict[str, tuple[Callable[..., Any], list[torch.Tensor], str]] = {
    "returned": (lambda q, k, v: ((p := soft(q @ k.mT)) @ v, p), qkv(),
                 "the probabilities are returned"),
    "scores read": (lambda q, k, v: soft(s := q @ k.mT) @ v + s.sum(), qkv(),
                    r"the scores are read elsewhere, by sum, .*test_attention.py:\d+"),
    "dropout": (lambda q, k, v: F.dropout(soft(q @ k.mT), 0.5) @ v, qkv(),
                r"the probabilities are changed by mul, .*test_attention.py:\d+"),
    "clamp": (lambda q, k, v: soft((q @ k.mT).clamp(-1, 1)) @ v, qkv(),
              r"the scores are changed by clamp, .*test_attention.py:\d+"),
    "bias": (lambda q, k, v, bias: soft(q @ k.mT + bias) @ v, [*qkv(), made(8, 10)],
             r"%bias : f32\[8,10\], which its scores read, has a gradient"),
    "squared": (lambda q, k, v: soft((s := q @ k.mT) * s) @ v, qkv(), "reads the scores twice"),
    "head": (lambda q, k, v: soft(q @ k.mT) @ v, qkv(257), "a head has 257 elements"),
    "f64": (lambda q, k, v: soft(q @ k.mT) @ v, qkv(dtype=torch.float64), "its dtype is f64"),
    "one K": (lambda q, k, v: soft(q @ k.mT) @ v, [made(2, 3, 8, 16), made(10, 16), made(10, 4)],
              "Q and K of unlike batch dims"),
    "three batch dims": (lambda q, k, v: soft(q[None] @ k[None].mT) @ v[None], qkv(),
                         "its batch has 3 dims"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_what_cannot_be_one_kernel_says_why(name: str) -> None:
    fn, args, reason = UNFIT[name]
    graph = graph_of(fn, *args)
    copy, (found,) = with_attention(graph, [True] * len(graph.inputs))
    assert copy is graph
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found.reason)
    assert str(found).split(": ")[0].rpartition(":")[0].endswith("test_attention.py")


@pytest.mark.parametrize("fn", [
    lambda q, k, v: soft(q) @ k.mT,
    lambda q, k, v: soft(q @ k.mT),
    lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v,
    lambda q, k, v: torch.exp(q @ k.mT) @ v,
])  # fmt: skip
def test_other_products_and_softmaxes_are_no_attention(fn: Callable[..., Any]) -> None:
    assert recognised(graph_of(fn, *qkv()))[1] == []


def test_a_bias_without_a_gradient_is_a_step() -> None:
    graph = graph_of(UNFIT["bias"][0], *UNFIT["bias"][1])
    for flags in ((True, True, True, False), None):
        (found,) = with_attention(graph, flags)[1]
        assert not found.reason and found.steps == [("add", ("s", "x0"))]
    assert [v.hint for v in found.extras] == ["bias"]


def test_what_was_copied_scaled_or_widened_for_the_product_is_read_as_it_was() -> None:
    def heads(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)))

    graph = graph_of(heads, *(made(2, 8, 3, 16, dtype=torch.bfloat16) for _ in "qkv"))
    copy, (found,) = with_attention(graph, (True, True, True))
    assert found.safe and [n.kind for n in copy.nodes()].count("attention") == 1
    # the copy is of the result, which lies as torch's kernel lays it
    assert {n.kind for n in copy.nodes()} <= {"alias", "attention", "permute", "copy"}
    assert all(n.kind != "copy" for n in copy.nodes() for v in n.inputs if v.node is None)
    (node,) = [n for n in copy.nodes() if n.kind == "attention"]
    steps: Any = node.attrs["steps"]
    assert steps == (("mul", ("s", pytest.approx(0.25))),)
    plain = without_attention(copy)
    assert "bmm" in {n.kind for n in plain.nodes()} and without_attention(plain) is plain


CAUSAL: dict[str, tuple[Callable[..., Any], int, bool]] = {
    "torch's own": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                    0, True),
    "a mask of its": (lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, torch.ones(8, 10, dtype=torch.bool).tril(2)), 2, True),
    "tril == 0": (lambda q, k, v: soft((q @ k.mT / 4).masked_fill(
        torch.ones(8, 10).tril() == 0, -math.inf)) @ v, 0, True),
    "not tril, scaled afterwards": (lambda q, k, v: soft((q @ k.mT).masked_fill(
        ~torch.ones(8, 10, dtype=torch.bool).tril()[None], -math.inf) * 0.25) @ v, 0, True),
    "triu added": (lambda q, k, v: soft(
        q @ k.mT + torch.full((8, 10), -math.inf).triu(3)) @ v, 2, True),
    "positions": (lambda q, k, v: soft(torch.where(
        torch.arange(8)[:, None] + 2 >= torch.arange(10), q @ k.mT, -math.inf)) @ v, 2, True),
    "positions, the other way": (lambda q, k, v: soft((q @ k.mT).masked_fill(
        torch.arange(10)[None] - torch.arange(8)[:, None] > 1, -math.inf)) @ v, 1, True),
    "two of them": (lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, torch.full((8, 10), -math.inf).triu(2)
        + torch.full((8, 10), -math.inf).triu(4)), -1, False),
    "a finite number": (lambda q, k, v: soft((q @ k.mT).masked_fill(
        torch.ones(8, 10).tril() == 0, -1e9)) @ v, -1, False),
    "a row without keys": (lambda q, k, v: soft((q @ k.mT).masked_fill(
        torch.ones(8, 10).tril(-1) == 0, -math.inf)) @ v, -1, False),
    "negative afterwards": (lambda q, k, v: soft(-(q @ k.mT).masked_fill(
        torch.ones(8, 10).tril() == 0, -math.inf)) @ v, -1, False),
    "what is below": (lambda q, k, v: soft((q @ k.mT).masked_fill(
        torch.ones(8, 10).triu() == 0, -math.inf)) @ v, -1, False),
    "every second": (lambda q, k, v: soft((q @ k.mT).masked_fill(
        2 * torch.arange(8)[:, None] < torch.arange(10), -math.inf)) @ v, -1, False),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_masks_are_a_property(name: str) -> None:
    fn, diagonal, fits = CAUSAL[name]
    graph = graph_of(fn, *qkv())
    copy, (found,) = with_attention(graph, (True, True, True))
    assert not found.reason and found.causal == (diagonal if fits else None)
    assert bool(found.extras) != fits
    kinds = {n.kind for n in copy.nodes()}
    assert not fits or not kinds & {"tril", "triu", "arange", "full", "where"}
    (node,) = [n for n in copy.nodes() if n.kind == "attention"]
    assert node.attrs["causal"] == found.causal


def test_products_of_float32_are_left_to_torch_without_tf32() -> None:
    fn = UNFIT["head"][0]
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    for dtype, fits in ((torch.float32, False), (torch.bfloat16, True)):
        graph = graph_of(fn, *qkv(dtype=dtype))
        copy, (found,) = with_attention(graph, (True, True, True))
        assert (copy is graph) != fits and ("TF32 alone" in found.reason) != fits


def test_what_no_grad_cuts_is_recognised_where_nothing_is_differentiated() -> None:
    q, k, v = qkv()
    with torch.no_grad():
        graph = graph_of(UNFIT["head"][0], q, k, v)
    assert "detach" in {n.kind for n in graph.nodes()}
    copy, (found,) = with_attention(graph)
    assert not found.reason and "attention" in {n.kind for n in copy.nodes()}


def test_explain_lists_it_where_there_are_no_kernels() -> None:
    explanation = gradof.differentiate(lambda q, k, v: soft(q @ k.mT) @ v).explain(*qkv())
    (said,) = explanation.attention
    assert said.endswith(": not a flash kernel: the backend has no Triton kernels")
    assert f"attention, {said}" in str(explanation)


@pytest.mark.parametrize(("capability", "dtype", "head"), [
    (90, "bf16", 64), pytest.param(80, "fp16", 32, marks=pytest.mark.long),
    pytest.param(100, "fp32", 40, marks=pytest.mark.long),
])  # fmt: skip
def test_kernels_are_compiled_for_every_generation(capability: int, dtype: str, head: int) -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
    from tests.codegen.triton_flash import SHAPE, SHARED, ptx_of_flash

    for part in PARTS:
        source = emit_flash(SHAPE, part)
        assert f"def attention_{part}(  # model.py:7" in source and "atomic" not in source
        text, shared = ptx_of_flash(part, capability, dtype, head)
        assert f".target sm_{capability}" in text and shared <= SHARED[capability]
        assert ("wgmma.mma_async" if capability == 90 else "mma") in text, part
