"""Every feature some older system has, row by row: right to second order, with nothing opaque.

The rows are the operations that candle, zyx, ferrotorch, RustyASG or TorchScript differentiate:
arithmetic, reductions, views, gathers, convolutions, pooling, norms, losses and casts. Each runs
several programs against torch eager with random cotangents, in float32 and float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as nnf

from tests.seeds.compare import FLOATS, normal, positive, same, whole

Program = tuple[Callable[..., Any], tuple[Any, ...]]
V, M, N, P = normal(5), normal(4, 3), normal(3, 4), positive(4, 3)
IMAGE, CUBE = normal(2, 4, 7, 6), normal(1, 2, 4, 5, 4)
ROWS: dict[str, dict[str, Program]] = {
    "14 arithmetic": {
        "all": (lambda x, y: (x + y) * (x - y) / (y * y + 1) - (-x), (M, normal(3))),
        "scalars": (lambda x: 2 / (x * x + 1) - 3 * x + (1 - x), (M,)),
    },
    "15 scaled forms": {
        "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0), (normal(4), M, N)),
        "baddbmm": (lambda b, x, y: torch.baddbmm(b, x, y, beta=2, alpha=0.3),
                    (normal(2, 4, 2), normal(2, 4, 3), normal(2, 3, 2))),
        "addmv": (lambda b, x, v: torch.addmv(b, x, v, alpha=2), (normal(4), M, normal(3))),
        "addr": (lambda m, x, y: torch.addr(m, x, y, beta=3), (M, normal(4), normal(3))),
        "addcmul": (lambda a, x, y: torch.addcmul(a, x, y, value=0.5), (M, P, M)),
        "addcdiv": (lambda a, x, y: torch.addcdiv(a, x, y, value=0.5), (M, M, P)),
        "lerp": (lambda x, y, w: torch.lerp(x, y, w), (M, P, normal(3))),
        "lerp scalar": (lambda x, y: torch.lerp(x, y, 0.7), (M, P)),
        "rsub, alpha": (lambda x, y: torch.rsub(x, y, alpha=2) + torch.add(x, y, alpha=3), (M, P)),
    },
    "16 pow": {
        "tensors": (lambda x, y: x**y, (P, M)),
        "constant exponents": (lambda x: x**3 + x**-1.5 + x**2 + x**1 + x**0.5, (P,)),
        "constant base": (lambda y: 2.0**y, (M,)),
        "float_power": (lambda x, y: torch.float_power(x, y).to(x.dtype), (P, M)),
    },
    "17 fmod, remainder": {
        "fmod": (torch.fmod, (M * 5, P)),
        "remainder": (lambda x, y: torch.remainder(x, y) * x, (M * 5, P)),
        "negative divisor": (lambda x, y: torch.remainder(x, -y) + torch.fmod(x, -y), (M * 5, P)),
        "scalar": (lambda x: torch.fmod(x, 0.7) + x % -0.7, (M * 5,)),
    },
    "18 basic functions": {
        "positive": (lambda x: x.log() + x.sqrt() + x.reciprocal() + x.exp(), (P,)),
        "any": (lambda x: x.sin() * x.cos() + x.tanh() - x.abs(), (M,)),
    },
    "19 other functions": {
        "trigonometric": (lambda x: x.tan() + x.atan() + (x / 9).asin() + (x / 9).acos(), (M,)),
        "hyperbolic": (lambda x: x.sinh() + x.cosh() + x.asinh() + (x / 9).atanh(), (M,)),
        "acosh": (lambda x: (x + 1).acosh(), (P,)),
        "logarithms": (lambda x: x.log2() + x.log10() + x.log1p() + x.expm1() + x.exp2(), (P,)),
        "rsqrt, erf": (lambda x: x.rsqrt() + x.erf() - x.erfc() * x.erf(), (P,)),
        "erfinv, gamma": (lambda x: (x / 3).erfinv() + x.lgamma() + x.digamma(), (P,)),
        "steps": (lambda x: x * (x.floor() + x.ceil() + x.round() + x.trunc()) + x.frac(), (M,)),
        "atan2, hypot": (lambda x, y: torch.atan2(x, y) + torch.hypot(x, y), (M, P)),
    },
    "20 activations": {
        "relus": (lambda x: nnf.relu(x) + nnf.leaky_relu(x, 0.2) + nnf.relu6(x * 4) * x, (M,)),
        "elus": (lambda x: nnf.elu(x, 1.3) + nnf.selu(x) + nnf.celu(x, 0.5), (M,)),
        "gelus": (lambda x: nnf.gelu(x) - nnf.gelu(x * 2, approximate="tanh"), (M,)),
        "soft": (lambda x: nnf.softplus(x, 2, 3) + nnf.silu(x) + nnf.mish(x) + nnf.softsign(x),
                 (M,)),
        "hard": (lambda x: nnf.hardsigmoid(x) + nnf.hardswish(x) + nnf.hardtanh(x), (M * 3,)),
        "shrinks": (lambda x: nnf.hardshrink(x) + nnf.softshrink(x) + nnf.tanhshrink(x), (M,)),
        "sigmoids": (lambda x: torch.sigmoid(x) * nnf.logsigmoid(x), (M,)),
        "prelu": (nnf.prelu, (normal(2, 3, 4), normal(3))),
        "glu": (lambda x: nnf.glu(x, 1), (N,)),
    },
    "21 softmax": {
        "softmax": (lambda x: x.softmax(1) + x.softmax(0), (M,)),
        "log_softmax": (lambda x: x.log_softmax(-1), (normal(2, 3, 4),)),
        "logsumexp": (lambda x: x.logsumexp((0, 2), keepdim=True), (normal(2, 3, 4),)),
        "softmin": (lambda x: nnf.softmin(x, 0), (M,)),
    },
    "22 choices": {
        "clamp": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0) - x.clamp(max=0.2), (M,)),
        "clamp by tensors": (lambda x, a, b: torch.clamp(x, a, b), (M, -P, P)),
        "threshold": (lambda x: nnf.threshold(x, 0.1, 20.0) * x, (M,)),
        "where": (lambda x, y: torch.where(x > y, x * y, y), (M, P)),
        "maximum": (lambda x, y: torch.maximum(x, y) * torch.minimum(x, -y), (M, P)),
        "fmax": (lambda x, y: torch.fmax(x, y) * torch.fmin(x, -y), (M, P)),
        "masked_fill": (lambda x: x.masked_fill(x > 0, 2.0) * x, (M,)),
    },
    "23 broadcasting": {
        "[N,1] with [1,M]": (lambda x, y: (x * y + x / (y * y + 1)).tanh(),
                             (normal(4, 1), normal(1, 3))),
        "inside": (lambda x, b: ((x @ x.T) * b).reshape(-1).sin().sum(), (M, normal(4, 1))),
        "0-d": (lambda x, s: (x * s).exp() - s, (M, normal())),
        "expand": (lambda x: x.expand(2, 4, 3) * x, (M,)),
    },
    "24 sums": {
        "sum": (lambda x: (x * x).sum((0, -1)) * x.sum(), (normal(2, 3, 4),)),
        "mean": (lambda x: x.mean(1, keepdim=True) * x.mean(), (M,)),
        "var": (lambda x: x.var(0) + x.var(correction=0), (M,)),
        "std": (lambda x: x.std(1, correction=2) * x.std(), (M,)),
        "var_mean": (lambda x: torch.var_mean(x, 1), (M,)),
        "cumsum": (lambda x: x.cumsum(0) * x, (M,)),
        "norms": (lambda x: x.norm() + x.norm(3, 1) + x.norm(1, 0).sum(), (M,)),
    },
    "25 extrema and products": {
        "max, min": (lambda x: x.max(0)[0] * x.min(1)[0].sum() + x.max() * x.min(), (M,)),
        "amax, amin": (lambda x: x.amax((0, 1)) * x.amin(0), (M,)),
        "prod": (lambda x: x.prod() + x.prod(0) * x.prod(1, keepdim=True), (M,)),
        "prod of zeros": (lambda x: (x * torch.tensor([0.0, 1, 1], dtype=x.dtype)).prod(1), (M,)),
        "cumprod": (lambda x: x.cumprod(1), (M,)),
        "cummax, logcumsumexp": (lambda x: x.cummax(0)[0] * x.logcumsumexp(1), (M,)),
        "sort, topk": (lambda x: x.sort(0)[0] * x.topk(2, 0)[0].sum(), (M,)),
        "median, kthvalue": (lambda x: x.median(0)[0] * x.kthvalue(2, 0)[0], (M,)),
    },
    "26 products": {
        "mm, mv, dot": (lambda x, y, v: (x @ y) @ (y.T @ v) * torch.dot(v, v),
                        (M, N, normal(3))),
        "bmm": (torch.bmm, (normal(2, 3, 4), normal(2, 4, 2))),
        "broadcast matmul": (torch.matmul, (normal(2, 1, 3, 4), normal(3, 4, 2))),
        "linear": (nnf.linear, (normal(2, 3, 4), normal(5, 4), normal(5))),
        "bilinear": (nnf.bilinear, (normal(3, 2), normal(3, 4), normal(5, 2, 4), normal(5))),
        "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y),
                   (normal(2, 3, 4), normal(2, 5, 4))),
        "outer, kron": (lambda v, x: torch.outer(v, v).sum() * torch.kron(x, x), (V, M)),
        "attention": (nnf.scaled_dot_product_attention,
                      (normal(2, 2, 5, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 4))),
        "causal attention": (
            lambda q, k, v: nnf.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
            (normal(2, 5, 4), normal(2, 5, 4), normal(2, 5, 4))),
        "masked attention": (
            lambda q, k, v, m: nnf.scaled_dot_product_attention(q, k, v, m),
            (normal(2, 5, 4), normal(2, 6, 4), normal(2, 6, 4), normal(5, 6))),
    },
    "27 views": {
        "reshape": (lambda x: x.reshape(2, 6).T.reshape(-1) * x.flatten(), (M,)),
        "permute": (lambda x: x.permute(2, 0, 1).sin() * x.transpose(0, 2).movedim(1, 2),
                    (normal(2, 3, 2),)),
        "squeeze": (lambda x: x.unsqueeze(1).squeeze().square() * x.unflatten(0, (4,)), (M,)),
        "expand": (lambda x: x[:1].expand(4, 3) * x.expand_as(x) + x[0].repeat(4, 1), (M,)),
        "diagonal": (lambda x: x.diagonal(1) * x.tril().triu(-1).sum() * x.unfold(0, 2, 1).sum(),
                     (normal(3, 4),)),
    },
    "28 slices and pads": {
        "slice": (lambda x: x[1:, ::2] * x[:-1, 1:].narrow(1, 0, 2), (M,)),
        "pad": (lambda x: nnf.pad(x, (1, 2, 3, 0), value=0.5) ** 2, (M,)),
        "crop": (lambda x: nnf.pad(x * x, (-1, 2, 1, -2)), (M,)),
        "other modes": (lambda x: nnf.pad(x, (2, 1), mode="reflect") * nnf.pad(
            x, (2, 1), mode="replicate") + nnf.pad(x, (1, 2), mode="circular"), (M,)),
        "flip, roll": (lambda x: x.flip(0, 1) * x.roll((1, -1), (0, 1)) + x.rot90(2), (M,)),
    },
    "29 joins": {
        "cat, stack": (lambda x, y: torch.cat([x, y, x]).sum(0) * torch.stack([x, y], 1).prod(1),
                       (M, P)),
        "split, chunk": (lambda x: [a * a for a in x.split([1, 3])] + [x.chunk(2, 1)[1] ** 3],
                         (M,)),
        "unbind": (lambda x: x.unbind(1)[0] * x.unbind(0)[1].sum(), (M,)),
        "meshgrid": (lambda v: torch.stack(torch.meshgrid(v, v * v, indexing="ij")).prod(0), (V,)),
    },
    "30 gathers and scatters": {
        "gather": (lambda x, i: x.gather(1, i) ** 2, (M, whole(3, 4, 5))),
        "scatter": (lambda x, s, i: x.scatter(0, i, s) * x, (M, normal(1, 3), whole(4, 1, 3))),
        "scatter_add": (lambda x, s, i: x.scatter_add(1, i, s) ** 2, (M, P, whole(3, 4, 3))),
        "scatter_reduce": (lambda x, s, i: x.scatter_reduce(0, i, s, "amax") * x,
                           (M, normal(2, 3), whole(4, 2, 3))),
        "index_select": (lambda x, i: x.index_select(0, i) ** 2, (M, whole(4, 6))),
        "index_add": (lambda x, s, i: x.index_add(0, i, s, alpha=2) ** 2,
                      (M, normal(5, 3), whole(4, 5))),
        "index_copy": (lambda x, s: x.index_copy(0, torch.tensor([2, 0]), s) * x,
                       (M, normal(2, 3))),
        "index_fill": (lambda x, i: x.index_fill(1, i, 0.5) * x, (M, whole(3, 1))),
        "x[i, j]": (lambda x, i: x[i, i % 3] * x[i, 1:][:, 0], (M, whole(4, 6))),
        "x[i] += y": (lambda x, y, i: x.index_put((i,), y, accumulate=True) ** 2,
                      (M, normal(5, 3), whole(4, 5))),
        "take": (lambda x, i: x.take(i) ** 2, (M, whole(12, 2, 3))),
        "embedding": (lambda w, i: nnf.embedding(i, w, padding_idx=1) ** 2, (M, whole(4, 2, 5))),
        "masked_select": (lambda x: x[x > 0] ** 2, (M,)),
        "select_scatter": (lambda x, v: x.select_scatter(v, 0, 2) * x, (M, normal(3))),
        "take_along_dim": (lambda x, i: x.take_along_dim(i, 1) ** 2, (M, whole(3, 4, 2))),
    },
    "31 conv2d": {
        "plain": (nnf.conv2d, (IMAGE, normal(3, 4, 3, 2), normal(3))),
        "strided, padded": (lambda x, w, b: nnf.conv2d(x, w, b, (2, 3), (1, 2)),
                            (IMAGE, normal(3, 4, 3, 3), normal(3))),
        "dilated": (lambda x, w: nnf.conv2d(x, w, dilation=(2, 1), padding="same"),
                    (IMAGE, normal(3, 4, 3, 3))),
        "grouped": (lambda x, w, b: nnf.conv2d(x, w, b, groups=2),
                    (IMAGE, normal(6, 2, 2, 3), normal(6))),
        "depthwise": (lambda x, w: nnf.conv2d(x, w, groups=4, stride=2),
                      (IMAGE, normal(4, 1, 3, 3))),
    },
    "32 other convolutions": {
        "1-d": (lambda x, w, b: nnf.conv1d(x, w, b, 2, 1),
                (normal(2, 3, 8), normal(4, 3, 3), normal(4))),
        "1-d grouped, dilated": (lambda x, w: nnf.conv1d(x, w, dilation=2, groups=2),
                                 (normal(2, 4, 9), normal(6, 2, 3))),
        "3-d": (lambda x, w, b: nnf.conv3d(x, w, b, (1, 2, 1), 1),
                (CUBE, normal(3, 2, 2, 3, 2), normal(3))),
        "transposed 1-d": (lambda x, w, b: nnf.conv_transpose1d(x, w, b, 2, 1, 1),
                           (normal(2, 3, 5), normal(3, 2, 3), normal(2))),
        "transposed 2-d": (lambda x, w, b: nnf.conv_transpose2d(x, w, b, (2, 3), 1, (1, 0), 2),
                           (IMAGE, normal(4, 2, 3, 3), normal(4))),
        "transposed 3-d": (lambda x, w: nnf.conv_transpose3d(x, w, stride=2, dilation=(1, 2, 1)),
                           (CUBE, normal(2, 3, 2, 2, 2))),
        "unfold, fold": (lambda x: nnf.fold(nnf.unfold(x, 3, stride=2) ** 2, (7, 6), 3, stride=2),
                         (IMAGE,)),
    },
    "33 pooling": {
        "max": (lambda x: nnf.max_pool2d(x, 3, 2, 1) ** 2, (IMAGE,)),
        "max, ceil": (lambda x: nnf.max_pool2d(x, (3, 2), (2, 3), ceil_mode=True) ** 2, (IMAGE,)),
        "max, dilated": (lambda x: nnf.max_pool2d(x, 2, 1, dilation=2) ** 2, (IMAGE,)),
        "max 1-d, 3-d": (lambda x: nnf.max_pool1d(x[0, 0, 0], 3, 1).sum() * nnf.max_pool3d(x, 2),
                         (CUBE,)),
        "average": (lambda x: nnf.avg_pool2d(x, 3, 2, 1, count_include_pad=False) ** 2, (IMAGE,)),
        "average, ceil": (lambda x: nnf.avg_pool2d(x, 4, 3, ceil_mode=True) ** 2, (IMAGE,)),
        "average, divisor": (lambda x: nnf.avg_pool2d(x, 2, divisor_override=3) ** 2, (IMAGE,)),
        "average 1-d, 3-d": (lambda x: nnf.avg_pool1d(x[0, 0], 3, 1).sum() * nnf.avg_pool3d(x, 2),
                             (CUBE,)),
        "adaptive": (lambda x: nnf.adaptive_avg_pool2d(x, (3, 4)) ** 2, (IMAGE,)),
        "adaptive 1-d, 3-d": (lambda x: nnf.adaptive_avg_pool1d(x[0, 0], 3).sum()
                              * nnf.adaptive_avg_pool3d(x, 2), (CUBE,)),
        "adaptive max": (lambda x: nnf.adaptive_max_pool2d(x, (3, 4)) ** 2, (IMAGE,)),
        "lp": (lambda x: nnf.lp_pool2d(x, 2, 2), (IMAGE.abs() + 0.1,)),
        "unpool": (lambda x: nnf.max_unpool2d(
            *nnf.max_pool2d(x, 2, return_indices=True), (2, 2)) ** 2,
                   (normal(1, 2, 4, 4),)),
        **{f"upsample {mode}": (
            lambda x, mode=mode: nnf.interpolate(x, size=(9, 5), mode=mode) ** 2, (IMAGE,))
           for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")},
        "upsample, aligned": (lambda x: nnf.interpolate(
            x, scale_factor=1.7, mode="bilinear", align_corners=True) ** 2, (IMAGE,)),
        "upsample linear": (lambda x: nnf.interpolate(x, size=7, mode="linear") ** 2,
                            (normal(2, 3, 4),)),
        "upsample trilinear": (lambda x: nnf.interpolate(x, size=(3, 6, 5), mode="trilinear") ** 2,
                               (CUBE,)),
        "pixel shuffle": (lambda x: nnf.pixel_shuffle(x, 2) ** 2, (IMAGE,)),
        "grid sample": (lambda x, g: nnf.grid_sample(x, torch.tanh(g), align_corners=False),
                        (IMAGE, normal(2, 3, 4, 2))),
    },
    "34 norms": {
        "layer": (lambda x, w, b: nnf.layer_norm(x, (3,), w, b), (M, normal(3), P[0])),
        "layer over two dims": (lambda x: nnf.layer_norm(x, (3, 4)), (normal(2, 3, 4),)),
        "rms": (lambda x, w: nnf.rms_norm(x, (3,), w, 1e-5), (M, normal(3))),
        "group": (lambda x, w, b: nnf.group_norm(x, 2, w, b), (IMAGE, normal(4), P[:, 0])),
        "instance": (nnf.instance_norm, (IMAGE,)),
        "batch, training": (lambda x, w, b: nnf.batch_norm(x, None, None, w, b, True),
                            (IMAGE, normal(4), P[:, 0])),
        "batch, evaluating": (
            lambda x, w, b: nnf.batch_norm(x, w.detach() * 0, b.detach(), w, b),
            (IMAGE, normal(4), P[:, 0])),
        "normalize": (lambda x: nnf.normalize(x, dim=1), (M,)),
        "local response": (lambda x: nnf.local_response_norm(x, 2), (IMAGE,)),
    },
    "35 dropout": {
        "training": (lambda x: nnf.dropout(x, 0.4) * x, (M,)),
        "evaluating": (lambda x: nnf.dropout(x, 0.4, training=False) * x, (M,)),
        "channels": (lambda x: nnf.dropout2d(x, 0.4) * x, (IMAGE,)),
        "alpha": (lambda x: nnf.alpha_dropout(x, 0.4, training=True) * x, (M,)),
    },
    "36 losses": {
        "ctc loss": (lambda x: nnf.ctc_loss(
            x.log_softmax(2), torch.tensor([[1, 2, 1], [2, 1, 2]]), torch.tensor([6, 5]),
            torch.tensor([3, 2])),
            (normal(6, 2, 4),)),
        "mse, l1": (lambda x, y: nnf.mse_loss(x, y) + nnf.l1_loss(x, y, reduction="sum"), (M, P)),
        "huber": (lambda x, y: nnf.huber_loss(x, y, delta=0.4) + nnf.smooth_l1_loss(x, y), (M, P)),
        "cross entropy": (lambda x, w, t: nnf.cross_entropy(x, t, w.detach(), ignore_index=1),
                          (M, P[0], whole(3, 4))),
        "smoothed": (lambda x, t: nnf.cross_entropy(x, t, label_smoothing=0.2, reduction="none"),
                     (M, whole(3, 4))),
        "of probabilities": (lambda x, y: nnf.cross_entropy(x, y.softmax(1)), (M, P)),
        "nll": (lambda x, t: nnf.nll_loss(x.log_softmax(1), t), (normal(2, 3, 4), whole(3, 2, 4))),
        "bce": (lambda x, y: nnf.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (M, P)),
        "bce of logits": (lambda x, y, p: nnf.binary_cross_entropy_with_logits(
            x, y.sigmoid(), pos_weight=p.detach()), (M, P, P[0])),
        "kl": (lambda x, y: nnf.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
               (M, P)),
        "poisson": (lambda x, y: nnf.poisson_nll_loss(x, y), (M, P)),
        "gaussian": (lambda x, y, v: nnf.gaussian_nll_loss(x, y, v), (M, P, P + 1)),
        "margins": (lambda x, y: nnf.margin_ranking_loss(x, y, torch.ones(4, 3, dtype=x.dtype), 0.1)
                    + nnf.soft_margin_loss(x, torch.sign(y.detach())), (M, P)),
        "hinge": (lambda x: nnf.hinge_embedding_loss(x, torch.sign(x.detach())), (M,)),
        "triplet": (nnf.triplet_margin_loss, (M, P, normal(4, 3) * 2)),
        "cosine": (lambda x, y: nnf.cosine_embedding_loss(x, y, torch.ones(4, dtype=x.dtype))
                   + nnf.cosine_similarity(x, y).sum(), (M, P)),
        "multi margin": (lambda x, t: nnf.multi_margin_loss(x, t), (M, whole(3, 4))),
        "multi label": (lambda x: nnf.multilabel_soft_margin_loss(x, (x > 0).to(x.dtype)), (M,)),
    },
    "37 casts": {
        "to": (lambda x: (x.float() * 2).double() * x.to(torch.float64), (M,)),
        "type_as": (lambda x, y: (x.float() * 2).type_as(y) * y, (M, P)),
        "device": (lambda x: x.to("cpu").cpu() ** 2, (M,)),
        "mixed": (lambda x, i: x * i + x * (i > 1), (M, whole(3, 4, 3))),
    },
}  # fmt: skip
# Gradients that torch itself has no second order of.
FIRST_ORDER = {"ctc loss", "hard", "attention", "multi margin"}
# Constants that torch rounds to float32 for float64 too, so that its gradients are no reference.
FLOAT32_ALONE = {"hard": "one sixth, in hardsigmoid's backward"}
@pytest.mark.cases(8)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.filterwarnings("ignore:Using a target size:UserWarning")
def test_row(row: str) -> None:
    failures: dict[str, str] = {}
    for name, (fn, args) in ROWS[row].items():
        try:
            dtypes = FLOATS[:1] if name in FLOAT32_ALONE else FLOATS
            same(fn, *args, order=1 if name in FIRST_ORDER else 2, dtypes=dtypes)
        except Exception as error:  # all of a row are tried, and all told
            failures[name] = f"{type(error).__name__}: {str(error)[:300]}"
    assert not failures, "\n".join(f"{n}: {e}" for n, e in failures.items())


def test_every_row_is_there() -> None:
    assert [int(row.split()[0]) for row in ROWS] == list(range(14, 38))
