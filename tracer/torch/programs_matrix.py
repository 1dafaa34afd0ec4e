"""Programs for products of reflectors and for distances; see `torch_programs`."""

from __future__ import annotations

import torch

from gradof.tracer.torch.programs import Programs

Tensor = torch.Tensor
_ATEN = torch.ops.aten
PROGRAMS = Programs()


def _reflector(a: Tensor, i: int) -> Tensor:
    """The i-th Householder vector [..., m, 1]: zeros, a one, and what stands below the diagonal."""
    column = a[..., i + 1 :, i : i + 1]
    one = a.new_ones((*a.shape[:-2], 1, 1))
    zeros = a.new_zeros((*a.shape[:-2], i, 1))
    return torch.cat([zeros, one, column], -2)


def _reflected(a: Tensor, tau: Tensor, i: int, x: Tensor) -> Tensor:
    v = _reflector(a, i)
    return x - tau[..., i, None, None] * (v @ (v.mH @ x))


@PROGRAMS.of(_ATEN.linalg_householder_product.default)
def _householder_product(a: Tensor, tau: Tensor) -> Tensor:
    m, n = a.shape[-2:]
    q = torch.eye(m, dtype=a.dtype, device=a.device)[:, :n].expand(a.shape)
    for i in reversed(range(tau.shape[-1])):  # the first i columns have zeros where it has not
        q = torch.cat([q[..., :i], _reflected(a, tau, i, q[..., i:])], -1)
    return _in_columns(q)


@PROGRAMS.of(_ATEN.ormqr.default)
def _ormqr(
    a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    if not a.numel():  # torch has no gradients of nothing
        a, tau = a.detach(), tau.detach()
    x = other if left else other.mH
    # Q = H0 H1 ...: Q x applies the last first, Q^H x the first, and x Q is (Q^H x^H)^H
    adjoint = transpose == left
    tau = tau.conj() if adjoint else tau
    order = range(tau.shape[-1])
    for i in order if adjoint else reversed(order):
        x = _reflected(a, tau, i, x)
    return _in_columns(x if left else x.mH)


def _in_columns(x: Tensor) -> Tensor:
    """The same as LAPACK leaves it in memory, so that the transposed is in rows."""
    return x.mT.contiguous().mT


@PROGRAMS.of(_ATEN._cdist_forward.default)
def _cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    gap = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == 0:
        count = (gap != 0).to(a.dtype).sum(-1)
        return count + (torch.where(gap.isfinite(), gap, 0.0) * 0.0).sum(-1)  # a gradient of zeros
    if gap.shape[-1] == 0:
        return gap.sum(-1)
    if p == float("inf"):  # every largest entry has the whole gradient
        size = gap.abs()
        largest = size.amax(-1)
        chosen = (size.detach() == largest.detach().unsqueeze(-1)) & (size.detach() > 0)
        whole = torch.where(chosen, size, 0.0).sum(-1)
        step = whole - whole.detach()  # of an infinite one a nan
        return largest.detach() + torch.where(whole.detach().isfinite(), step, 0.0)
    norm: Tensor = torch.linalg.vector_norm(gap, p, -1)
    return norm


@PROGRAMS.of(_ATEN._euclidean_dist.default)
def _euclidean_dist(a: Tensor, b: Tensor) -> Tensor:
    """Of more than 25 rows, by a product; where none is left of a distance, it has no gradient."""
    mine, others = a.square().sum(-1, True), b.square().sum(-1, True)
    left = torch.cat([a * -2, mine, torch.ones_like(mine)], -1)
    squares = left @ torch.cat([b, torch.ones_like(others), others], -1).mT
    none = squares <= 0
    return torch.where(none, 0.0, torch.where(none, 1.0, squares).sqrt())


@PROGRAMS.of(_ATEN._pdist_forward.default)
def _pdist(a: Tensor, p: float = 2.0) -> Tensor:
    first, second = torch.triu_indices(a.shape[0], a.shape[0], 1, device=a.device)
    rows = a.index_select(0, first).unsqueeze(1), a.index_select(0, second).unsqueeze(1)
    distances: Tensor = _cdist(*rows, p)
    return distances[:, 0, 0]
