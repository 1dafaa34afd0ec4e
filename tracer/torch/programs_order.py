"""Programs for ops that choose, order, scatter and reduce by index; see `torch_programs`."""

from __future__ import annotations

import math

import torch

from gradof.errors import UnsupportedOpError
from gradof.tracer.torch.programs import Programs

Tensor = torch.Tensor
_ATEN = torch.ops.aten
PROGRAMS = Programs()


# --- elementwise ----------------------------------------------------------------------------------


@PROGRAMS.of(_ATEN.fmax.default)
def _fmax(a: Tensor, b: Tensor) -> Tensor:
    a, b = _promoted(a, b)
    return torch.where((a >= b) | torch.isnan(b), a, b)  # a tie's gradient goes to the first


@PROGRAMS.of(_ATEN.fmin.default)
def _fmin(a: Tensor, b: Tensor) -> Tensor:
    a, b = _promoted(a, b)
    return torch.where((a <= b) | torch.isnan(b), a, b)


def _promoted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.result_type(a, b)
    return a.to(dtype), b.to(dtype)


@PROGRAMS.of(_ATEN.copysign.Tensor, _ATEN.copysign.Scalar)
def _copysign(x: Tensor, y: Tensor | float) -> Tensor:
    # at 0 the gradient is 0, and that of y, a step, is 0 everywhere
    dtype = torch.result_type(x, y)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    x = x.to(dtype)
    if isinstance(y, Tensor):
        sign = torch.where(y == 0, 1 / y, y) < 0  # -0.0 is negative
        return torch.where(sign, -x.abs(), x.abs())
    return x.abs() if math.copysign(1.0, y) > 0 else -x.abs()


@PROGRAMS.of(_ATEN.angle.default)
def _angle(x: Tensor) -> Tensor:
    # a step, with a gradient of zero; nan at nan
    plain = torch.where(x < 0, torch.pi, torch.sign(x) * 0.0)
    return torch.where(torch.isnan(x), x.detach(), plain)


# --- order ----------------------------------------------------------------------------------------


@PROGRAMS.of(_ATEN.nanmedian.default)
def _nanmedian(x: Tensor) -> Tensor:
    flat = x.reshape(-1)
    middle = torch.nanmedian(flat, 0).values.detach()
    if not flat.is_floating_point():
        return middle
    # equal elements share the gradient, as they do in the greatest of them
    return torch.where((flat == middle) | torch.isnan(middle), flat, -torch.inf).amax()


@PROGRAMS.of(_ATEN.nanmedian.dim)
def _nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    ordered, order = torch.sort(x, dim=dim, stable=True)  # nans come last
    count = torch.isnan(x).logical_not().sum(dim, keepdim=True)
    middle = (count - 1).clamp(min=0) // 2
    values, index = ordered.gather(dim, middle), order.gather(dim, middle)
    return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))


# --- scatter --------------------------------------------------------------------------------------


@PROGRAMS.of(_ATEN.masked_scatter.default)
def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    flat = mask.reshape(-1)
    place = (flat.to(torch.int64).cumsum(0) - 1).clamp(min=0)
    values = source.reshape(-1)
    if not source.numel():  # nothing is taken, but its gradient is zeros and not None, as in eager
        values = torch.cat([values, values.new_zeros(1)])
    taken = values[place]
    return torch.where(flat, taken, x.reshape(-1)).reshape(x.shape)


@PROGRAMS.of(_ATEN.put.default)
def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat, index = x.reshape(-1), index.reshape(-1)
    index = torch.where(index < 0, index + flat.shape[0], index)
    values = source.reshape(-1)
    if accumulate:
        return flat.index_add(0, index, values).reshape(x.shape)
    return flat.index_copy(0, index, values).reshape(x.shape)


@PROGRAMS.of(_ATEN.scatter_reduce.two)
def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if src.shape != index.shape:
        src = src[tuple(slice(n) for n in index.shape)]
    if not index.numel():
        return x.scatter_add(dim, index, src)

    def added(values: Tensor, start: Tensor) -> Tensor:
        return start.scatter_add(dim, index, values)

    ones = torch.ones_like(src)
    hits = added(ones.detach(), torch.zeros_like(x).detach())
    kept = x if include_self else torch.where(hits > 0, 0, x)
    if reduce == "sum":
        return added(src, kept)
    if reduce == "mean":
        count = (hits + 1 if include_self else hits.clamp(min=1)).detach()
        whole = None if x.dtype.is_floating_point else "floor"
        return torch.div(added(src, kept), count, rounding_mode=whole)
    if reduce == "prod":
        return _scatter_prod(x, dim, index, src, include_self).to(x.dtype)  # of truths, too
    return _scatter_extreme(x, dim, index, src, hits, include_self, reduce)


def _scatter_extreme(
    x: Tensor, dim: int, index: Tensor, src: Tensor, hits: Tensor, include_self: bool, reduce: str
) -> Tensor:
    """Ties share the gradient evenly, as in eager; the choice itself is a step.

    Where the best is a nan, as one source or the element itself is, so are the gradients of all
    that it was chosen from: eager divides by the number of those equal to it, which is none.
    """
    best = _extreme(x.detach(), dim, index, src.detach(), include_self, reduce)
    best = _back(best, x.detach(), dim, index)
    if not x.dtype.is_floating_point:
        return best
    lost = torch.isnan(best)
    mine = (src.detach() == best.gather(dim, index)) | lost.gather(dim, index)
    own = ((x.detach() == best) | lost) & ((hits == 0) | include_self)
    ties = own.to(x.dtype).scatter_add(dim, index, mine.to(x.dtype)).clamp(min=1)
    ties = torch.where(lost, torch.nan, ties)
    chosen = torch.where(mine, src, 0.0) / ties.gather(dim, index)
    shares = (torch.where(own, x, 0.0) / ties).scatter_add(dim, index, chosen)
    # they may add up to a little less or more than the best itself, which is the value
    step = shares - shares.detach()
    return torch.where(shares.detach().isfinite(), best + step, shares)


def _extreme(
    x: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool, reduce: str
) -> Tensor:
    """[..., targets]: the largest or smallest source of each target, side by side when sorted."""
    targets, sources, there, count = _grouped(x, dim, index, src)
    # sorted, nan comes last: of floats the least is looked for as the largest of -x
    flips = reduce == "amin" and x.dtype.is_floating_point
    if flips:
        targets, sources = -targets, -sources
    sources, order = torch.sort(sources, dim=-1)
    _, groups = torch.sort(there.gather(-1, order), dim=-1, stable=True)
    ends = count.cumsum(-1)
    first = reduce == "amin" and not flips
    chosen = (ends - count if first else ends - 1).clamp(0, sources.shape[-1] - 1)
    best = sources.gather(-1, groups).gather(-1, chosen)
    if include_self:
        best = torch.minimum(best, targets) if first else torch.maximum(best, targets)
    best = torch.where(count == 0, targets, best)
    return -best if flips else best


def _grouped(
    x: Tensor, dim: int, index: Tensor, src: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Targets, sources and their index along the last dim, and how many sources a target has."""
    inner = tuple(slice(None) if d == dim % x.dim() else slice(n)
                  for d, n in enumerate(index.shape))  # fmt: skip
    targets, there = x[inner].movedim(dim, -1), index.movedim(dim, -1)
    none = torch.zeros(targets.shape, dtype=torch.int64, device=x.device)
    count = none.scatter_add(-1, there, torch.ones_like(there))
    return targets, src.movedim(dim, -1), there, count


def _back(reduced: Tensor, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The reduced targets in place of x's; x's own where the index does not reach."""
    part = reduced.movedim(-1, dim)
    if part.shape == x.shape:
        return part
    widths = [w for n, m in zip(reversed(x.shape), reversed(part.shape), strict=True)
              for w in (0, n - m)]  # fmt: skip
    inside = torch.nn.functional.pad(torch.ones_like(part, dtype=torch.bool), widths)
    return torch.where(inside, torch.nn.functional.pad(part, widths), x)


def _scatter_prod(
    x: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool
) -> Tensor:
    """By doubling: after step k each source is the product of the 2^k before it in its group."""
    targets, sources, there, count = _grouped(x, dim, index, src)
    there, groups = torch.sort(there, dim=-1, stable=True)
    running = sources.gather(-1, groups)
    step = 1
    while step < running.shape[-1]:
        same = there[..., step:] == there[..., :-step]
        before = torch.where(same, running[..., :-step], 1)
        running = torch.cat([running[..., :step], running[..., step:] * before], -1)
        step *= 2
    ends = (count.cumsum(-1) - 1).clamp(min=0)
    product = torch.where(count == 0, 1, running.gather(-1, ends))
    keep = torch.where((count == 0) | include_self, targets, 1)
    return _back(product * keep, x, dim, index)


@PROGRAMS.of(_ATEN.index_reduce.default)
def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    spread = index.view(shape).expand(source.shape)
    result: Tensor = _scatter_reduce(x, dim, spread, source, reduce, include_self=include_self)
    return result


@PROGRAMS.of(_ATEN.segment_reduce.default)
def _segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:  # fmt: skip
    if offsets is not None:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    else:
        assert lengths is not None
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    axis, n, segments = axis % data.dim(), data.shape[axis % data.dim()], ends.shape[-1]
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -torch.inf, "min": torch.inf}[reduce]
    start = neutral if initial is None else initial
    # an element is in the segment that as many others end before; past the last is one more
    none = ends.new_zeros((*ends.shape[:-1], n + 1))
    segment = none.scatter_add(-1, ends.clamp(max=n), torch.ones_like(ends)).cumsum(-1)[..., :n]
    before = torch.arange(n, device=data.device) < starts[..., :1]
    segment = torch.where(before, segments, segment.clamp(max=segments))
    rest = (1,) * (data.dim() - axis - 1)
    index = segment.reshape(*segment.shape, *rest).expand(data.shape)
    shape = (*data.shape[:axis], segments + 1, *data.shape[axis + 1 :])
    how = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}[reduce]
    reduced: Tensor = _scatter_reduce(data.new_full(shape, start), axis, index, data, how)
    total = reduced.narrow(axis, 0, segments)
    if reduce != "mean":
        return total
    count = (ends - starts).reshape(*ends.shape, *rest).to(data.dtype)
    empty = torch.nan if initial is None else initial
    return torch.where(count == 0, empty, total / count.clamp(min=1))


@PROGRAMS.of(_ATEN.embedding_renorm.default)
def _embedding_renorm(
    weight: Tensor, indices: Tensor, max_norm: float, norm_type: float
) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(weight, norm_type, dim=1, keepdim=True)
    read = torch.zeros(len(weight), dtype=torch.int64, device=weight.device)
    read = read.index_fill(0, indices.reshape(-1), 1)[:, None]
    long = (read > 0) & (norm > max_norm)
    return torch.where(long, weight * (max_norm / (norm + 1e-7)), weight)


@PROGRAMS.of(_ATEN._embedding_bag.default, _ATEN._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    if sparse:
        raise UnsupportedOpError("embedding_bag with sparse gradients: a program's are dense")
    with torch.utils._python_dispatch._disable_current_modes():
        _, *rest = _ATEN._embedding_bag.default(
            weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
            include_last_offset, padding_idx,
        )
    starts = offsets[:-1] if include_last_offset else offsets
    places = torch.arange(len(indices), device=indices.device)
    bag = (places[:, None] >= starts[None, :]).sum(1) - 1
    rows = weight[indices]
    if scale_grad_by_freq:
        often = (indices[:, None] == indices[None, :]).sum(1).to(weight.dtype)[:, None]
        rows = rows.detach() + (rows - rows.detach()) / often
    used = (indices != padding_idx)[:, None]
    bags, width = len(starts), weight.shape[1]
    if mode == 2:
        inside = (bag[None, :] == torch.arange(bags, device=bag.device)[:, None])[..., None] & used
        table = torch.where(inside, rows, -torch.inf)
        if not len(indices):
            return (weight.new_zeros((bags, width)), *rest)
        best = table.amax(1)
        return (torch.where(inside.any(1), best, 0.0), *rest)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    total = weight.new_zeros((bags, width)).index_add(0, bag, torch.where(used, rows, 0.0))
    if mode == 1:
        count = torch.zeros(bags, dtype=torch.int64, device=bag.device)
        count = count.index_add(0, bag, used[:, 0].to(torch.int64))
        total = total / count.clamp(min=1).to(weight.dtype)[:, None]
    return (total, *rest)


@PROGRAMS.of(_ATEN.multilabel_margin_loss_forward.default)
def _multilabel_margin(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    # torch's own program counts what is behind the first -1 as labels of class 0 (2.13)
    rows, labels = (t.reshape(1, -1) if t.dim() < 2 else t for t in (x, target))
    classes = torch.arange(rows.shape[1], device=x.device)
    counts = (labels == -1).to(torch.int64).cumsum(1) == 0  # ahead of the first -1
    wanted = torch.where(counts, labels, 0)
    is_target = ((wanted[:, :, None] == classes) & counts[:, :, None]).any(1)
    gap = 1.0 - rows.gather(1, wanted)[:, :, None] + rows[:, None, :]
    kept = counts[:, :, None] & ~is_target[:, None, :] & (gap > 0)
    loss = torch.where(kept, gap, 0.0).sum((1, 2)) / rows.shape[1]
    if reduction:
        loss = loss.mean() if reduction == 1 else loss.sum()
    loss = loss.reshape(()) if x.dim() < 2 else loss
    return loss, is_target.to(x.dtype).reshape(target.shape)
