"""Containers whose classes have methods of their own: what is in them is read past those."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import gradof


class Names(tuple[Any, ...]):
    """As e3nn's: a length that nobody may ask for."""

    def __len__(self) -> int:
        raise NotImplementedError


def test_a_tuple_that_tells_no_length() -> None:
    names = Names([1.0, torch.tensor(2.0)])

    def fn(x: Any) -> Any:
        return x * names[0] * names[1]

    assert gradof.differentiate(fn, strict=True)(torch.ones(2)).tolist() == [2.0, 2.0]

    def plain(x: Any) -> Any:
        return (x * names[0]).sum()

    assert gradof.grad(plain)(np.ones(2)).tolist() == [1.0, 1.0]
