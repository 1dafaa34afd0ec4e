"""Python integers beside tensors of narrow integers, which torch takes modulo the dtype's range.

>>> in_range(torch.ops.aten.add.Tensor, (torch.tensor([1], dtype=torch.uint8), -1), {})[0][1]
255

numpy has an error for the one, and for comparisons the answer of integers without a range.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

_NARROW = {
    torch.uint8: (0, 255), torch.int8: (-128, 127), torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}  # fmt: skip
# A number may stand for a tensor, as in `x + 1`; what is a size or a dim has the type int.
_NUMBERS = ("number", "Optional[number]", "Tensor", "Optional[Tensor]")


def in_range(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with its numbers as the tensors beside them have them."""
    given = (*args, *kwargs.values())
    if not any(type(a) is int and not 0 <= a < 128 for a in given):
        return args, kwargs
    dtypes = [a.dtype for a in given if isinstance(a, torch.Tensor) and a.dtype != torch.bool]
    if kwargs.get("dtype") is not None:  # as of full
        dtypes = [kwargs["dtype"]]
    if not dtypes or any(d not in _NARROW for d in dtypes):
        return args, kwargs
    low, high = _NARROW[reduce(torch.promote_types, dtypes)]
    numbers = {a.name for a in func._schema.arguments if str(a.type) in _NUMBERS}

    def wrapped(name: str, value: Any) -> Any:
        if type(value) is not int or name not in numbers:
            return value
        return (value - low) % (high - low + 1) + low

    names = [a.name for a in func._schema.arguments]
    return (tuple(wrapped(n, a) for n, a in zip(names, args, strict=False)),
            {n: wrapped(n, a) for n, a in kwargs.items()})  # fmt: skip
