"""The op registry: importing this package registers every op."""

from gradof.ops import (
    activation,
    conv,
    decomposition,
    elementwise,
    index,
    linalg,
    loss,
    norm,
    pool,
    random,
    reduction,
    shape,
    softmax,
    sort,
    special,
    structural,
)

__all__ = [
    "activation",
    "conv",
    "decomposition",
    "elementwise",
    "index",
    "linalg",
    "loss",
    "norm",
    "pool",
    "random",
    "reduction",
    "shape",
    "softmax",
    "sort",
    "special",
    "structural",
]
