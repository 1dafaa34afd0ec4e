"""Every layer of torch.nn that takes tensors, at three sizes, for benchmarks/programs.py.

    for name in layers(): model, inputs = make_layer(name)     # name: "Conv2d, 65536"

Arguments and inputs come from the kind of layer, by its name; none is chosen for what it takes.
`LEFT_OUT` says of the rest why they are no layers of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SIZES = (1 << 12, 1 << 16, 1 << 20)  # elements of the input, about
_LEFT_OUT = {
    r"Lazy|^Container$|DataParallel|Module|Sequential|Parameter|Buffer|Base$|^_|ModuleList":
        "made of others",
    r"SyncBatchNorm": "needs a process group",
    r"CrossMapLRN2d|NLLLoss2d": "deprecated",
    r"MaxUnpool|AdaptiveLogSoftmax|TripletMarginWithDistance|LinearCrossEntropy":
        "takes what another layer gives, or a function",
    r"^Transformer(Encoder|Decoder)?$": "stacks of its layers",
    r"FeatureAlphaDropout|AlphaDropout|RReLU|Fractional": "draws in an order of its own",
}  # fmt: skip
LEFT_OUT = {re.compile(pattern): why for pattern, why in _LEFT_OUT.items()}
Made = tuple[nn.Module, dict[str, Tensor]]


def layer_names() -> list[str]:
    """The classes of torch.nn that are layers, in torch's order."""
    found = {name: getattr(nn, name) for name in sorted(dir(nn))}
    names = [n for n, c in found.items() if isinstance(c, type) and issubclass(c, nn.Module)]
    return [n for n in names if not any(p.search(n) for p in LEFT_OUT)]


def layers() -> list[str]:
    """Each layer at each size."""
    return [f"{name}, {size}" for name in layer_names() for size in SIZES]


def make_layer(name: str) -> Made:
    """The layer and its inputs."""
    kind, size = name.split(", ")
    for pattern, make in _KINDS:
        if re.fullmatch(pattern, kind):
            layer, inputs = make(kind, int(size))
            return layer, dict(zip("abcd", inputs, strict=False))
    raise LookupError(f"torch.nn.{kind} is of no kind that program_layers knows")


def _space(kind: str, size: int) -> tuple[int, ...]:
    """[N, C, *space] of about `size` elements; as many dims as the name of the layer says."""
    rank = int(found[0]) if (found := re.findall(r"(\d)d$", kind)) else 2
    lead = {1: (8, 32), 2: (8, 16), 3: (4, 8)}[rank]
    side = round((size / (lead[0] * lead[1])) ** (1 / rank))
    return (*lead, *(max(4, side // 4 * 4),) * rank)


def _of(kind: str, *args: Any, **kwargs: Any) -> nn.Module:
    made: nn.Module = getattr(nn, kind)(*args, **kwargs)
    return made


def _rows(size: int, columns: int = 128) -> Tensor:
    return torch.randn(size // columns, columns)


def _spatial(*args: Any, channels: int = 0, **kwargs: Any) -> Callable[[str, int], Any]:
    """A layer over images: its channels first, `channels` times, then the arguments."""
    def make(kind: str, size: int) -> Any:
        shape = _space(kind, size)
        return _of(kind, *(shape[1],) * channels, *args, **kwargs), [torch.randn(shape)]

    return make


def _pointwise(*args: Any) -> Callable[[str, int], Any]:
    return lambda kind, size: (_of(kind, *args), [_rows(size)])


def _loss(*targets: str) -> Callable[[str, int], Any]:
    """A loss of rows; `targets` says what each further argument is."""
    def make(kind: str, size: int) -> Any:
        x = _rows(size)
        others = {
            "same": lambda: torch.randn_like(x), "shares": lambda: torch.rand_like(x),
            "signs": lambda: torch.randint(2, x.shape) * 2.0 - 1.0,
            "classes": lambda: torch.randint(128, (len(x),)),
            "sign": lambda: torch.randint(2, (len(x),)) * 2.0 - 1.0,
            "labels": lambda: torch.randint(128, x.shape),
            "bits": lambda: torch.randint(2, x.shape).float(),
        }
        x = x.sigmoid() if kind in ("BCELoss", "KLDivLoss") else x
        return _of(kind), [x, *(others[t]() for t in targets)]

    return make


def _steps(size: int) -> int:
    return max(4, size // (8 * 64))


def _recurrent(kind: str, size: int) -> Any:
    return _of(kind, 64, 64), [torch.randn(_steps(size), 8, 64)]


def _cell(kind: str, size: int) -> Any:
    x = torch.randn(size // 64, 64)
    return _of(kind, 64, 64), [x]


def _attention(kind: str, size: int) -> Any:
    x = torch.randn(8, max(8, size // (8 * 64)) if size < 1 << 20 else 512, 64)
    return _of(kind, 64, 4, batch_first=True), [x, x.clone(), x.clone()]


def _transformer(kind: str, size: int) -> Any:
    x = torch.randn(8, max(8, size // (8 * 64)) if size < 1 << 20 else 512, 64)
    return _of(kind, 64, 4, 128, batch_first=True), [x] * (2 if "Decoder" in kind else 1)


def _ctc(kind: str, size: int) -> Any:
    t = size // (8 * 32)
    lengths = torch.full((8,), t), torch.full((8,), t // 4)
    x = torch.randn(t, 8, 32).log_softmax(-1)
    return _of(kind), [x, torch.randint(1, 32, (8, t // 4)), *lengths]


def _embedding(kind: str, size: int) -> Any:
    return _of(kind, 1000, 64), [torch.randint(1000, (8, size // (8 * 64)))]


def _two(kind: str, size: int) -> Any:
    x = _rows(size)
    made = _of(kind, 128, 128, 16) if kind == "Bilinear" else _of(kind)
    return made, [x, torch.randn_like(x)] + ([torch.randn_like(x)] if "Triplet" in kind else [])


def _fold(kind: str, size: int) -> Any:
    n, c, h, w = _space("2d", size)
    if kind == "Unfold":
        return nn.Unfold(3), [torch.randn(n, c, h, w)]
    return nn.Fold((h, w), 2, stride=2), [torch.randn(n, 4 * c, h * w // 4)]


def _ranking(kind: str, size: int) -> Any:
    one = torch.randn(size)
    return _of(kind), [one, torch.randn(size), torch.randint(2, (size,)) * 2.0 - 1.0]


_KINDS: list[tuple[str, Callable[[str, int], Any]]] = [
    (r"Conv(Transpose)?\dd", _spatial(3, padding=1, channels=2)),
    (r"(Batch|Instance)Norm\dd", _spatial(channels=1)),
    (r"GroupNorm", lambda k, n: (nn.GroupNorm(4, 16), [torch.randn(_space("2d", n))])),
    (r"(Layer|RMS)Norm", _pointwise(128)),
    (r"(Avg|Max)Pool\dd", _spatial(2)),
    (r"LPPool\dd", _spatial(2.0, 2)),
    (r"LocalResponseNorm|PixelShuffle|PixelUnshuffle|ChannelShuffle", _spatial(2)),
    (r"Adaptive(Avg|Max)Pool\dd", _spatial(2)),
    (r"(Reflection|Replication|Zero|Circular)Pad\dd", _spatial(1)),
    (r"ConstantPad\dd", _spatial(1, 0.5)),
    (r"Upsample|UpsamplingNearest2d|UpsamplingBilinear2d", _spatial(scale_factor=2)),
    (r"Dropout\dd|Softmax2d", _spatial()),
    (r"RNN|LSTM|GRU", _recurrent), (r"(RNN|LSTM|GRU)Cell", _cell),
    (r"Embedding(Bag)?", _embedding), (r"MultiheadAttention", _attention),
    (r"Transformer(En|De)coderLayer", _transformer), (r"CTCLoss", _ctc),
    (r"Linear", _pointwise(128, 128)), (r"Bilinear|PairwiseDistance|CosineSimilarity", _two),
    (r"TripletMarginLoss", _two), (r"Unfold|Fold", _fold), (r"MarginRankingLoss", _ranking),
    (r"CosineEmbeddingLoss", _loss("same", "sign")),
    (r"(L1|MSE|SmoothL1|Huber)Loss", _loss("same")), (r"KLDivLoss|BCELoss", _loss("shares")),
    (r"BCEWithLogitsLoss|MultiLabelSoftMarginLoss", _loss("bits")),
    (r"(SoftMargin|HingeEmbedding)Loss", _loss("signs")),
    (r"NLLLoss|CrossEntropyLoss|MultiMarginLoss", _loss("classes")),
    (r"MultiLabelMarginLoss", _loss("labels")), (r"PoissonNLLLoss", _loss("shares")),
    (r"GaussianNLLLoss", _loss("same", "shares")),
    (r"(Log)?Softm(ax|in)", lambda k, n: (_of(k, -1), [_rows(n)])),
    (r"Threshold", _pointwise(0.1, 0.2)), (r"Unflatten", _pointwise(1, (4, 32))),
    (r"Flatten", _spatial()), (r"Dropout", _pointwise()),
    (r"[A-Za-z]\w*", _pointwise()),  # activations: no arguments but x
]
