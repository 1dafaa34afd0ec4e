"""Eager with every result of arithmetic moved by some ulps: what rounding can do to a program.

    with Noise(seed=1, ulps=1):
        ...                    # forward and backward

What only picks, moves or compares elements stays exact: which element is the largest is no
rounding, and neither is the mask that a gradient takes from it.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

_EXACT = re.compile(
    r"(a?max|a?min|argm\w+|sort|topk|kthvalue|n?a?n?median|cum(max|min)|gather|take|index\w*|mode|"
    r"clone|copy|cat|where|scatter(?!_add)\w*|relu\w*|clamp\w*|threshold|hardtanh|abs|neg|sgn|sign|"
    r"round|floor|ceil|trunc|frac|maximum|minimum|f(max|min|mod)|remainder|masked\w+|slice\w*|"
    r"select\w*|_to_copy|zeros\w*|ones\w*|full\w*|fill|stack|repeat\w*|flip|roll|\w*pad\w*|embedding|"
    r"\w*max_pool\w*|unfold\w*|tril|triu|one_hot|eq|ne|lt|le|gt|ge|new_\w+|empty\w*|scalar_tensor|"
    r"arange|linspace|rand\w*|bernoulli|normal|uniform|diag\w*|as_strided\w*|view\w*|detach|alias|"
    r"nonzero\w*|histc|bucketize|searchsorted|floor_divide|heaviside|nextafter|ldexp|frexp|"
    r"lift\w*|_local_scalar_dense|isnan|isinf|real|imag|conj\w*|complex|eye|logical\w*|bitwise\w*)_?"
    r"(_backward\w*)?"
)


class Noise(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__
    """See the module."""

    def __init__(self, seed: int, ulps: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ulps = ulps
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        if schema.name == "aten::_efficientzerotensor":  # torch cannot take it through a mode
            return torch.zeros(*args, **{k: v for k, v in kwargs.items() if k == "dtype"})
        if any(out.alias_info is not None for out in schema.returns):
            return func(*args, **kwargs)
        if _EXACT.fullmatch(schema.name.split("::")[1]):
            return func(*args, **kwargs)
        args = tree_map_only(torch.Tensor, self._moved, args)  # what is added up inside rounds, too
        return tree_map_only(torch.Tensor, self._moved, func(*args, **kwargs))

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor._is_zerotensor() or not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        ways = torch.randint(-self.ulps, self.ulps + 1, tensor.shape, generator=self.generator)
        eps = torch.finfo(tensor.dtype).eps
        return tensor * (1 + eps * ways.double()).to(tensor.real.dtype)
