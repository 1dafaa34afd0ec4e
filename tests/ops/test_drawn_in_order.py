"""Random numbers for the result of any op are drawn in the order of eager's memory.

    F.dropout(op(x))      # x by channels, as images are: so is the result, and so is the mask

Where a program stands for an op its result may be laid out otherwise; the seed then gave other
masks than eager's, silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.testing._internal.common_methods_invocations import op_db

from gradof import differentiate

Tensor = torch.Tensor
_DRAWING = ("rand", "drop", "bernoulli")
_OPS = [op for op in op_db if op.supports_autograd and not any(n in op.name for n in _DRAWING)]
_SAMPLES = 3  # of an op
# No sample of theirs begins with a tensor of two dims, has a real result of two, and is traced.
NOTHING_TO_COMPARE: frozenset[str] = frozenset("""
    addmv alias_copy as_strided_partial_views as_strided_scatter broadcast_tensors
    cartesian_prod cat cdouble cfloat chalf column_stack combinations diag dist dot dstack
    einsum fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2
    fft_ihfftn fft_rfft fft_rfft2 fft_rfftn hstack i0 imag inner istft kron linalg_det
    linalg_multi_dot linalg_slogdet linalg_vecdot logdet masked_select max_reduction_no_dim
    meshgrid_list_of_tensors meshgrid_variadic_tensors min_reduction_no_dim mv
    nn_functional_cosine_embedding_loss nn_functional_cross_entropy nn_functional_ctc_loss
    nn_functional_l1_loss nn_functional_linear_cross_entropy_chunked nn_functional_mse_loss
    nn_functional_multi_margin_loss nn_functional_multilabel_margin_loss
    nn_functional_multilabel_soft_margin_loss nn_functional_one_hot nn_functional_pdist
    nn_functional_smooth_l1_loss nn_functional_soft_margin_loss
    nn_functional_triplet_margin_loss nn_functional_triplet_margin_with_distance_loss norm_fro
    norm_inf norm_nuc normal_number_mean outer ravel sparse_mm_reduce sparse_sampled_addmm
    special_entr special_i0e special_i1 special_i1e stack std_mean_unbiased std_unbiased stft
    take to_sparse torch_ops_aten__efficient_attention_forward
    torch_ops_aten__flash_attention_forward trace trapezoid trapz var_mean_unbiased var_unbiased
    vdot view_as_complex view_as_real vstack
""".split())
IMAGE = torch.linspace(-1.0, 1.0, 2 * 6 * 4 * 4).reshape(2, 6, 4, 4)


def _in_columns(x: Tensor) -> Tensor:
    """The same numbers, by channels where they are images, else with the first dim innermost."""
    if x.dim() == 4:
        return x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    order = tuple(reversed(range(x.dim())))
    return x.detach().permute(order).contiguous().permute(order).requires_grad_()


def _masked(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[Tensor], Any]:
    def fn(x: Tensor) -> Any:
        y = op(x, *args, **kwargs)
        y = y if isinstance(y, Tensor) else y[0]
        return functional.dropout(y * 1.0, 0.5)

    return fn


def _assert_masks_agree(fn: Callable[[Tensor], Any], x: Tensor) -> bool:
    """Whether there was anything to compare."""
    torch.manual_seed(0)
    try:
        want = fn(x)
    except (RuntimeError, TypeError, ValueError, IndexError):  # of such an argument
        return False
    if not isinstance(want, Tensor) or want.layout is not torch.strided or want.dim() < 2:
        return False
    torch.manual_seed(0)
    compiled = differentiate(fn)
    have = compiled(x)
    assert torch.equal(have == 0, want == 0)
    return not compiled.cache_info().eager_runs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [pytest.param(op, id=op.formatted_name) for op in _OPS])
def test_a_mask_of_what_an_op_gives_is_eagers(op: Any) -> None:
    compared = 0
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
        x = sample.input
        if compared == _SAMPLES:
            break
        if isinstance(x, Tensor) and x.dim() > 1 and x.layout is torch.strided:
            fn = _masked(op.op, *sample.args, **sample.kwargs)
            compared += _assert_masks_agree(fn, _in_columns(x))
    assert (compared > 0) is (op.formatted_name not in NOTHING_TO_COMPARE)


def _pooled(x: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = functional.max_pool2d(x, 2, return_indices=True)
    return found


@pytest.mark.parametrize(
    "op",
    [
        lambda x: functional.interpolate(x, size=(8, 8)),
        lambda x: functional.interpolate(x, size=(3, 5), mode="bilinear", align_corners=False),
        lambda x: functional.channel_shuffle(x, 2),
        lambda x: functional.pad(x, (5, -4, 0, 1), mode="replicate"),
        lambda x: functional.max_unpool2d(*_pooled(x), (2, 2)),
        lambda x: torch.copysign(x, IMAGE[0, 0]),
    ],
    ids=["nearest", "bilinear", "shuffle", "pad", "unpool", "copysign"],
)
def test_programs_of_images_by_channels(op: Callable[[Tensor], Tensor]) -> None:
    """A decoder of images: what it gave, and the gradient through the mask, were another's."""
    compiled, x = differentiate(_masked(op), strict=True), _in_columns(IMAGE)
    runs = []
    for call in (_masked(op), compiled, compiled):
        torch.manual_seed(1)
        y = call(x)
        runs.append((y, *torch.autograd.grad(y, x, torch.linspace(-2, 1, y.numel()).view_as(y))))
    for run in runs[1:]:
        torch.testing.assert_close(run, runs[0])
    assert compiled.cache_info().backward_runs == 2
