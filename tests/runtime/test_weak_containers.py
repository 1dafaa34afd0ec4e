"""Containers of the standard library whose own code reads what they hold."""

from __future__ import annotations

import configparser
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof


class Key:
    """What a weak container may hold."""

    scale = 2.0


def by_weak_key() -> tuple[Callable[[Any], Any], Callable[[float], Any]]:
    key, held = Key(), weakref.WeakKeyDictionary[Key, float]()
    held[key] = 2.0
    return lambda x: (x * held[key]).sum(), lambda v: held.__setitem__(key, v)


def by_weak_value() -> tuple[Callable[[Any], Any], Callable[[float], Any]]:
    key, held = Key(), weakref.WeakValueDictionary[str, Key]()
    held["a"] = key
    return lambda x: (x * held["a"].scale).sum(), lambda v: setattr(key, "scale", v)


def by_parser() -> tuple[Callable[[Any], Any], Callable[[float], Any]]:
    parser = configparser.ConfigParser()
    parser["run"] = {"scale": "2.0"}
    return (
        lambda x: (x * float(parser["run"]["scale"])).sum(),
        lambda v: parser["run"].__setitem__("scale", str(v)),
    )


@pytest.mark.parametrize("made", [by_weak_key, by_weak_value, by_parser])
def test_what_they_hold_is_guarded(made: Any) -> None:
    for library in ("torch", "numpy"):
        fn, change = made()
        x: Any = torch.ones(2, requires_grad=True) if library == "torch" else np.ones(2)
        compiled: Any = gradof.differentiate(fn) if library == "torch" else gradof.grad(fn)
        for value in (2.0, 2.0, 4.0, 4.0):  # a third trace would warn
            change(value)
            found = torch.autograd.grad(compiled(x), x)[0] if library == "torch" else compiled(x)
            assert list(map(float, found)) == [value, value], library
