"""Which globals a trace depends on: those that code names, and by texts where it asks for them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate, value_and_grad

loss: Any = None  # what a script has, and the functions below have as keys and attributes
total: Any = []
real: Any = []


def keyed(x: Any) -> Any:
    out = {"loss": (x**2).sum(), "total": x.real.sum()}
    return out["loss"] + out["total"]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_keys_and_attributes_are_no_globals(library: str, monkeypatch: Any) -> None:
    run: Any = value_and_grad(keyed) if library == "numpy" else differentiate(keyed, strict=True)
    for k in range(5):
        x = np.arange(3.0) + k
        value = run(x)[0] if library == "numpy" else run(torch.from_numpy(x))
        assert float(value) == float(keyed(x))
        for name in ("loss", "total", "real"):
            monkeypatch.setitem(globals(), name, [value] * k)
    assert run.cache_info().misses == 1


FACTOR: Any = [1.0]


def by_name(name: str) -> Any:
    return globals()[name]


READ: list[Callable[[], Any]] = [
    lambda: FACTOR,
    lambda: by_name("FACTOR"),
    lambda: globals().get("FACTOR"),
    lambda: eval("FACTOR"),
    lambda: eval("by_name(name)", globals(), {"name": "FACTOR"}),
    lambda: vars(sys.modules[__name__])["FACTOR"],
    lambda: getattr(sys.modules[__name__], "FACTOR"),  # noqa: B009  # by a text
    lambda: sys.modules[__name__].FACTOR,
    lambda: by_name.__globals__["FACTOR"],
    lambda: sys._getframe().f_globals["FACTOR"],
    lambda: importlib.import_module(__name__).FACTOR,
]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("way", ["another", "written"])
def test_globals_by_any_name(read: Any, way: str, library: str, monkeypatch: Any) -> None:
    def fn(x: Any) -> Any:
        return (x**2).sum() * read()[0]

    run: Any = value_and_grad(fn) if library == "numpy" else differentiate(fn)
    monkeypatch.setitem(globals(), "FACTOR", [1.0])
    for k in range(1, 3):
        if way == "written":
            FACTOR[0] = float(k)
        else:
            monkeypatch.setitem(globals(), "FACTOR", [float(k)])
        x = np.arange(3.0)
        value = run(x)[0] if library == "numpy" else run(torch.from_numpy(x))
        assert float(value) == 5.0 * k
