"""What a function reads of Python's state is part of its trace, of every kind; what it does not
read is not.

Each program is called, its state is changed, it is called, and the change is undone: that is two
traces, with eager's value each time.
"""

from __future__ import annotations

import contextvars
import gc
import os
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import EagerWarning

# name → (source of f(x), a change, what undoes it)
PROGRAMS: dict[str, tuple[str, str, str]] = {
    "Python of an operator": (
        "import torch\nscale = [2.0]\nlib = torch.library.Library('gradof_reads', 'FRAGMENT')\n"
        "if not hasattr(torch.ops.gradof_reads, 'scaled'):\n"
        "    lib.define('scaled(Tensor x) -> Tensor')\n"
        "def python(x): return x * len(scale) * 1.5\n"
        "lib.impl('scaled', python, 'CompositeImplicitAutograd')\n"
        "def f(x): return torch.ops.gradof_reads.scaled(x)",
        "scale.append(1.0)", "scale.pop()",
    ),
    "set": ("s = {1}\ndef f(x): return x * (2 in s)", "s.add(2)", "s.remove(2)"),
    "set of one size": ("s = {1, 2}\ndef f(x): return x * (2 in s)", "s ^= {2, 3}", "s ^= {2, 3}"),
    "deque": (
        "import collections\nd = collections.deque([2.0, 3.0])\ndef f(x): return x * d[0]",
        "d.rotate()", "d.rotate()",
    ),
    "order of a dict": (
        "d = dict(a=2.0, b=3.0)\ndef f(x):\n    for v in d.values(): x = x * v + 1\n    return x",
        "d['a'] = d.pop('a')", "d['b'] = d.pop('b')",
    ),
    "slot": (
        "class Box:\n    __slots__ = ('mode',)\nb = Box(); b.mode = 'a'\n"
        "def f(x): return x * len(b.mode)", "b.mode = 'ab'", "b.mode = 'a'",
    ),
    "enumeration": (
        "import enum\nclass Mode(enum.Enum): A, B = 1, 2\nmode = Mode.A\n"
        "def f(x): return x * 2 if mode is Mode.A else -x", "mode = Mode.B", "mode = Mode.A",
    ),
    "array of the standard library": (
        "from array import array\na = array('d', [2.0])\ndef f(x): return x * a[0]",
        "a[0] = 3.0", "a[0] = 2.0",
    ),
    "numpy array": (
        "import numpy as np\na = np.array([2.0])\ndef f(x): return x * float(a[0])",
        "a[0] = 3.0", "a[0] = 2.0",
    ),
    "property": (
        "class Box:\n    @property\n    def width(self): return len(self.size)\n"
        "b = Box(); b.size = 'a'\ndef f(x): return x * b.width", "b.size = 'abc'", "b.size = 'a'",
    ),
    "name that is computed": (
        "class Box: pass\nb = Box(); b.mode_1 = 'a'\n"
        "def f(x): return x * len(getattr(b, 'mode_' + str(x.dim())))",
        "b.mode_1 = 'ab'", "b.mode_1 = 'a'",
    ),
    "computed name with a default": (
        "class Box: pass\nb = Box(); b.one = 'a'\n"
        "def g(x, name): return x * len(getattr(b, name, 'none'))\n"
        "def f(x): return g(x, 'ENO'.lower()[::-1])", "del b.one", "b.one = 'a'",
    ),
    "environment": (
        "import os\ndef f(x): return x * len(os.environ.get('GRADOF_TEST_MODE', ''))",
        "os.environ['GRADOF_TEST_MODE'] = 'ab'", "os.environ['GRADOF_TEST_MODE'] = 'a'",
    ),
    "context variable": (
        "MODE.set('a')\ndef f(x): return x * len(MODE.get())", "MODE.set('ab')", "MODE.set('a')",
    ),
    "import inside": (
        "def f(x):\n    import gradof_test_settings as settings\n    return x * len(settings.mode)",
        "SETTINGS.mode = 'ab'", "SETTINGS.mode = 'a'",
    ),
    "replaced code": (
        "def g(x): return x * 2\ndef h(x): return x * 3\ntwo, three = g.__code__, h.__code__\n"
        "def f(x): return g(x)", "g.__code__ = three", "g.__code__ = two",
    ),
    "own code": (
        "def f(x): return x * 2\ndef h(x): return x * 3\ntwo, three = f.__code__, h.__code__\n",
        "f.__code__ = three", "f.__code__ = two",
    ),
    "method of a class": (
        "class Box:\n    def scale(self): return 2\nb = Box()\n"
        "two = Box.scale\ndef three(self): return 3\ndef f(x): return x * b.scale()",
        "Box.scale = three", "Box.scale = two",
    ),
    "switch of torch": (
        "def f(x): return x * (2 if torch.are_deterministic_algorithms_enabled() else 3)",
        "torch.use_deterministic_algorithms(True)", "torch.use_deterministic_algorithms(False)",
    ),
}  # fmt: skip
MODE: contextvars.ContextVar[str] = contextvars.ContextVar("MODE", default="a")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_change_is_another_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = types.ModuleType("gradof_test_settings")
    settings.mode = "a"
    monkeypatch.setitem(sys.modules, "gradof_test_settings", settings)
    monkeypatch.setenv("GRADOF_TEST_MODE", "a")
    assert "GRADOF_TEST_MODE" in os.environ
    source, change, undo = PROGRAMS[name]
    space: dict[str, Any] = {
        "torch": torch, "__name__": "program", "MODE": MODE, "SETTINGS": settings
    }
    exec(source, space)
    fast = gradof.differentiate(space["f"])
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerWarning)
        for step in ("pass", change, undo, change, undo):
            exec(step, space)
            x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
            value, eagers = fast(x), space["f"](x)
            torch.testing.assert_close(value, eagers)
            mine, want = (torch.autograd.grad(v.sum(), x)[0] for v in (value, eagers))
            torch.testing.assert_close(mine, want)
            values.append(value.tolist())
    assert values[0] != values[1], "the change is one that counts"
    info = fast.cache_info()
    assert info.misses == 2 and info.eager_runs == 0 and info.backward_runs == 5, info


def test_what_is_not_read_is_not_part_of_the_trace() -> None:
    class Settings:
        scale, title, history = 2.0, "a", []  # type: ignore[var-annotated]

    settings = Settings()
    fast = gradof.differentiate(lambda x: (x * settings.scale).sum())
    x = torch.ones(3)
    for n in range(4):
        settings.title = "a" * n
        settings.history = [n]
        settings.other = n  # type: ignore[attr-defined]
        assert fast(x).item() == 6.0
    assert fast.cache_info().misses == 1


def test_what_the_garbage_collector_calls_is_not_what_the_function_does() -> None:
    """`gc.callbacks` of other libraries ask the clock and keep counts, at any moment of a trace."""
    counts: list[float] = []

    def collected(phase: str, info: dict[str, int]) -> None:
        counts.append(time.perf_counter())

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        gc.collect()  # as it may happen between any two lines
        return (y * x).sum()

    compiled = gradof.differentiate(f, strict=True)
    x = torch.ones(3, requires_grad=True)
    hook, before = sys.getprofile(), list(gc.callbacks)
    gc.callbacks.append(collected)
    try:
        for _ in range(3):
            compiled(x).backward()
    finally:
        gc.callbacks.remove(collected)
    assert counts and compiled.cache_info().misses == 1
    assert sys.getprofile() is hook and gc.callbacks == before
    assert x.grad is not None and x.grad.tolist() == [12.0, 12.0, 12.0]


def test_the_body_of_a_module_that_is_imported_first_is_not_what_the_function_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs once in eager, too: what it registers and prints is no reason for another trace."""
    registry, plugin = tmp_path / "gradof_lazy_registry.py", tmp_path / "gradof_lazy_plugin.py"
    registry.write_text("KNOWN = {}\ndef scale(): return len(KNOWN)\n")
    plugin.write_text(
        "import time\nfrom gradof_lazy_registry import KNOWN\n"
        "KNOWN['here'] = time.perf_counter()\nSCALE = 3.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def f(x: torch.Tensor) -> torch.Tensor:
        import gradof_lazy_plugin as plugin  # type: ignore[import-not-found]
        import gradof_lazy_registry as registry  # type: ignore[import-not-found]

        scale: float = plugin.SCALE * registry.scale()
        return (x * scale).sum()

    compiled = gradof.differentiate(f, strict=True)
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        assert compiled(x).item() == 9.0
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("names", ["getattr(*PAIR)", "getattr(ROWS[0][0], ROWS[0][1])"])
def test_an_object_in_a_tuple_is_read_by_a_computed_name(names: str) -> None:
    class Holder:
        scale = 0.0

    held = Holder()
    held.scale = 2.0
    pair = held, "scale"
    space: dict[str, Any] = {"PAIR": pair, "ROWS": [pair], "getattr": getattr}
    exec(f"def f(x):\n    return (x * {names}).sum()", space)
    compiled = gradof.differentiate(space["f"])
    for scale in (2.0, 2.0, 5.0):
        held.scale = scale
        assert float(compiled(torch.ones(3))) == 3 * scale


def test_a_computed_name_may_be_that_of_a_class() -> None:
    class Base:
        scale = 2.0

    class Holder(Base):
        pass

    held = Holder()
    pairs, ask = [(held, "scale")], getattr

    def spread(x: Any) -> Any:
        return np.sum(x * getattr(*pairs[0]))

    def renamed(x: Any) -> Any:
        return np.sum(x * ask(*pairs[0]))

    compiled = [gradof.grad(spread), gradof.grad(renamed)]
    for scale, holder in enumerate((Base, Base, Holder, held)):
        holder.scale = 2.0 + scale  # type: ignore[attr-defined]
        for gradient in compiled:
            assert gradient(np.ones(2)).tolist() == [held.scale] * 2
