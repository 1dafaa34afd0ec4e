"""The op registry: importing this package registers every op."""

from gradof.ops import elementwise, linalg, reduction, shape, structural

__all__ = ["elementwise", "linalg", "reduction", "shape", "structural"]
