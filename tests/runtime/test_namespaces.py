"""Objects of C's that hold the user's state: namespaces, partials and weak references.

Each program is a line of setup that defines `f`, and what happens before each call.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate

SETUP = """
class Thing: pass
class Own: pass
def used(z, k=1.0, j=2.0): return z * k * j
config = {cls}
config.a, config.b = 1.0, 2.0
half = functools.partial(used, k=2.0)
half.w = 2.0
thing = Thing(); thing.k = 2.0
ref, table = weakref.ref(thing), weakref.WeakValueDictionary(a=thing)
def over(x, pairs):
    for _, value in pairs: x = x * value
    return x
"""
CONFIG = ("", "config.c = 0.5", "", "vars(config).pop('b')", "config.a = 3.0", "del config.c")
PARTIAL = ("", "half.keywords['j'] = 3.0", "half.keywords.pop('j')", "half.keywords['k'] = 5.0",
           "half.keywords['j'] = 7.0",
           "half.__setstate__((used, (), {'k': 9.0}, {'w': 1.0}))")  # fmt: skip
WEAK = ("", "thing = Thing(); thing.k = 4.0", "",
        "ref = weakref.ref(thing); table['a'] = thing", "", "del thing", "")  # fmt: skip
PROGRAMS = {
    "vars": ("over(x, vars(config).items())", CONFIG),
    "sorted vars": ("over(x, sorted(config.__dict__.items()))", CONFIG),
    "dir": ("over(x, [(k, getattr(config, k)) for k in dir(config) if k[0] != '_'])", CONFIG),
    "unpacked": ("over(x, {**vars(config)}.items())", CONFIG),
    "length": ("x * len(vars(config))", CONFIG),
    "in": ("x * (5.0 if 'c' in vars(config) else 1.0)", CONFIG),
    "get": ("x * vars(config).get('c', 1.0)", CONFIG),
    "getattr": ("x * getattr(config, 'c', 1.0)", CONFIG),
    "hasattr": ("x * (2.0 if hasattr(config, 'c') else 3.0)", CONFIG),
    "keywords": ("half(x)", PARTIAL),
    "attribute of a partial": ("half(x) * half.w", (*PARTIAL, "half.w = 3.0", "half.z = 1")),
    "of torch": ("clamped(x)", ("", "clamped.keywords['max'] = 0.75", "clamped.keywords.pop('max')",
                                "clamped.keywords['max'] = 0.6")),
    "weak reference": ("x * (ref().k if ref() is not None else 10.0)", WEAK),
    "weak dictionary": ("x * (table['a'].k if 'a' in table else 10.0)", WEAK),
}  # fmt: skip


@pytest.mark.parametrize("cls", ["types.SimpleNamespace()", "Own()"])
@pytest.mark.parametrize(("name", "library"), [
    (name, library) for name in PROGRAMS for library in ("torch", "numpy")
    if (name, library) != ("of torch", "numpy")
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
def test_what_changes_is_seen(name: str, library: str, cls: str) -> None:
    source, actions = PROGRAMS[name]

    def run(compiled: bool) -> list[float]:
        world: dict[str, Any] = {
            "functools": functools, "types": types, "weakref": weakref,
            "clamped": functools.partial(torch.clamp, min=0.5),
        }  # fmt: skip
        exec(SETUP.format(cls=cls), world)
        exec(f"def f(x): return {source}", world)
        g = differentiate(world["f"]) if compiled else world["f"]
        found = []
        for action in actions:
            exec(action, world)
            x: Any = torch.ones(2, requires_grad=True) if library == "torch" else np.ones(2)
            found.append(round(g(x)[0].item(), 6))
        return found

    assert run(compiled=True) == run(compiled=False)
