"""What an op costs beside reading and writing its arrays: who fuses and who recomputes asks."""

from __future__ import annotations

# Tens of instructions per element; the others are a few.
EXPENSIVE = frozenset(
    {"exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "tanh", "sigmoid", "erf", "erfc",
     "sin", "cos", "tan", "pow", "atan2", "asin", "acos", "atan", "sinh", "cosh", "softplus",
     "log_sigmoid", "logaddexp", "fmod", "remainder"}
)  # fmt: skip
