"""ctc_loss against torch: lengths as numbers and as tensors, repeats, impossible targets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gradof import differentiate

Tensor = torch.Tensor
TARGETS = torch.tensor([[1, 1, 2], [3, 2, 1], [2, 2, 2]])
LENGTHS = [(6, 5, 4), (3, 2, 0)]


def _logits(dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 3, 4, dtype=dtype, generator=generator)


def _loss(x: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
    return F.ctc_loss(x, targets, steps, lengths, reduction="none", zero_infinity=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("steps", [(6, 5, 4), (6, 1, 4)])  # two labels in one step: impossible
def test_ctc_loss(dtype: torch.dtype, flat: bool, steps: tuple[int, ...]) -> None:
    lengths = torch.tensor(LENGTHS[1])
    targets = torch.cat([TARGETS[0], TARGETS[1, :2]]) if flat else TARGETS
    given = torch.tensor(steps)
    compiled = differentiate(_loss)
    cotangent = torch.tensor([0.7, -1.3, 2.1], dtype=dtype)
    grads = []
    for fn in (_loss, compiled, compiled):
        x = _logits(dtype).requires_grad_()  # no log_softmax: torch's gradient assumes one
        value = fn(x, targets, given, lengths)
        grads.append((value.detach(), *torch.autograd.grad(value, x, cotangent)))
    for ours in grads[1:]:
        for mine, theirs in zip(ours, grads[0], strict=True):
            torch.testing.assert_close(mine, theirs)
    (plan,) = compiled.plans()
    assert plan.gradients, "nothing of gradof ran"


def test_the_second_derivative_that_torch_lacks() -> None:
    steps, lengths = map(torch.tensor, LENGTHS)

    @differentiate
    def fn(x: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(-1), TARGETS, steps, lengths, reduction="sum")

    x = _logits(torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(fn, x)


def test_other_lengths_are_another_path() -> None:
    compiled = differentiate(_loss)
    x = _logits(torch.float64)
    for steps in ((6, 5, 4), (5, 6, 4)):
        args = TARGETS, torch.tensor(steps), torch.tensor(LENGTHS[1])
        torch.testing.assert_close(compiled(x, *args), _loss(x, *args))


def test_what_torch_refuses_is_refused() -> None:
    steps, lengths = torch.tensor((9, 5, 4)), torch.tensor(LENGTHS[1])
    for fn in (_loss, differentiate(_loss)):
        with pytest.raises(RuntimeError, match="input_lengths"):
            fn(_logits(torch.float64), TARGETS, steps, lengths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_steps_are_one_call_of_torchs(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradof.tuning.CTC_STEPS", 5)
    steps, lengths = map(torch.tensor, LENGTHS)
    compiled = differentiate(_loss, strict=True)
    cotangent = torch.tensor([0.7, -1.3, 2.1], dtype=dtype)
    for _ in range(2):
        found = []
        for fn in (_loss, compiled):
            x = _logits(dtype).requires_grad_()
            value = fn(x.log_softmax(-1), TARGETS, steps, lengths)
            found.append((value.detach(), torch.autograd.grad(value, x, cotangent)[0]))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
    (plan,) = compiled.plans()
    assert "library_call" in {node.kind for node in plan.graph.walk()}
    x = _logits(dtype).log_softmax(-1).requires_grad_()
    (slope,) = torch.autograd.grad(
        compiled(x, TARGETS, steps, lengths).sum(), x, create_graph=True
    )
    with pytest.raises((RuntimeError, NotImplementedError), match="_ctc_loss_backward"):
        torch.autograd.grad(slope.sum(), x)
