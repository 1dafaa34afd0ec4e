"""The op registry: importing this package registers every op."""

from gradof.ops import (
    activation,
    conv,
    elementwise,
    index,
    linalg,
    norm,
    pool,
    reduction,
    shape,
    softmax,
    sort,
    structural,
)

__all__ = [
    "activation",
    "conv",
    "elementwise",
    "index",
    "linalg",
    "norm",
    "pool",
    "reduction",
    "shape",
    "softmax",
    "sort",
    "structural",
]
