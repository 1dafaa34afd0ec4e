"""Third derivatives of every op of torch's table, against torch autograd nested three times.

Where eager is no judge: its third derivatives of layer, batch and instance norm disagree with those
of the formula, because its second backward treats saved statistics as constants; ours agree, which
the second test holds.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

from gradof import differentiate
from gradof.runtime.function import Differentiated
from gradof.runtime.thread import calling_plain
from gradof.testing.torch_samples import Sample, entries, samples, seed
from tests.runtime.compare import assert_compiled

Tensor = torch.Tensor
WRONG_IN_EAGER = frozenset(
    {"native_layer_norm", "native_batch_norm", "_native_batch_norm_legit",
     "_batch_norm_with_update", "nn_functional_layer_norm", "nn_functional_batch_norm",
     "nn_functional_instance_norm"}
)  # fmt: skip
PARTS = 8
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own table warns as it is read
    ENTRIES = entries()


def third(run: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """Gradients of gradients of gradients under random cotangents; None where there are none."""
    generator = torch.Generator().manual_seed(1)
    seed(0)
    wanted = [t for t in tensors if t.requires_grad]
    outs: list[Tensor] = list(run(tensors))
    for order in range(3):
        double = [torch.complex128 if t.is_complex() else torch.float64 for t in outs]
        seeds = [torch.randn(t.shape, generator=generator, dtype=d)
                 for t, d in zip(outs, double, strict=True)]  # fmt: skip
        pairs = [(t, s.to(t.dtype)) for t, s in zip(outs, seeds, strict=True) if t.requires_grad]
        if not pairs:
            return None
        live, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(live, wanted, given, create_graph=order < 2, allow_unused=True)
        outs = [torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)]
    return outs


def suitable(sample: Sample) -> bool:
    """Small, with something to differentiate."""
    some = any(t.requires_grad and t.numel() for t in sample.tensors)
    return some and sum(t.numel() for t in sample.tensors) <= 400


def _run(sample: Sample, tensors: Sequence[Tensor]) -> list[Tensor]:
    return sample.run(tensors)


def compare(entry: Any) -> bool:
    """The first samples that have a third derivative; whether there was one."""
    for sample in list(samples(entry, "f64"))[:12]:
        if not suitable(sample):
            continue
        try:
            with calling_plain():
                want = third(sample.run, sample.fresh())
        except (RuntimeError, NotImplementedError):
            continue  # torch has no such derivative
        if want is None:
            continue
        have = third(Differentiated(functools.partial(_run, sample)), sample.fresh())
        numbers = [w[~torch.isnan(w)].abs().max().item() for w in want if w.isfinite().any()]
        scale = max([*numbers, 1e-3])
        if have is None:
            assert scale == 1e-3, f"{sample.label}: nothing is left to differentiate"
            return True
        for mine, theirs in zip(have, want, strict=True):
            mine = torch.where(torch.isnan(theirs), theirs, mine)  # eager's nan is no judge
            torch.testing.assert_close(
                mine, theirs, rtol=1e-7, atol=1e-7 * scale, equal_nan=True,
                msg=functools.partial("{}: {}".format, sample.label),
            )  # fmt: skip
        return True
    return False


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "part", [k if k % 3 == 0 else pytest.param(k, marks=pytest.mark.long) for k in range(PARTS)]
)
def test_third_derivatives_are_eagers(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [e.formatted_name for e in ENTRIES[part::PARTS]
                 if e.formatted_name not in WRONG_IN_EAGER and compare(e)]  # fmt: skip
    assert len(names) > 15, "most ops are linear, or have no third derivative, but not so many"


def layer(x: Tensor, w: Tensor, b: Tensor, dim: int) -> Tensor:
    centred = x - x.mean(dim, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dim, keepdim=True) + 1e-5) * w + b


NORMS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "layer": (lambda x, w, b: functional.layer_norm(x, (6,), w, b),
              lambda x, w, b: layer(x, w, b, -1)),
    "batch": (lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
              lambda x, w, b: layer(x, w, b, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_third_derivatives_of_norms_are_those_of_the_formula(name: str) -> None:
    library, formula = NORMS[name]
    torch.manual_seed(0)
    args = [torch.randn(s, dtype=torch.float64) for s in ((4, 6), (6,), (6,))]

    def fresh() -> list[Tensor]:
        return [a.clone().requires_grad_() for a in args]

    exact = third(lambda tensors: [formula(*tensors)], fresh())
    compiled = differentiate(library)
    ours = third(lambda tensors: [compiled(*tensors)], fresh())
    assert_compiled([compiled(*fresh())])
    eager = third(lambda tensors: [library(*tensors)], fresh())
    assert exact is not None and ours is not None and eager is not None
    for mine, right in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-11)
    apart = max((a - b).abs().max().item() for a, b in zip(eager, exact, strict=True))
    assert apart > 0.1, "torch's third derivative is right now: take it out of WRONG_IN_EAGER"
