"""The op registry: importing this package registers every op."""

from gradof.ops import (
    activation,
    conv,
    elementwise,
    linalg,
    norm,
    pool,
    reduction,
    shape,
    softmax,
    structural,
)

__all__ = [
    "activation",
    "conv",
    "elementwise",
    "linalg",
    "norm",
    "pool",
    "reduction",
    "shape",
    "softmax",
    "structural",
]
