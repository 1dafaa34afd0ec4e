"""Drawn programs of numpy: a function with state, its calls, and what is done in between.

A call is one of `value_and_grad`, `grad`, `hessian`, ...; its value, and what state there is after
it, are those of plain Python, and its derivatives are those of differences. For each of these the
program runs anew, up to the call.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import random
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gradof
from gradof.errors import GradofError
from tests.programs import drawn_numpy_parts
from tests.programs.describe import Line, describe, first_difference
from tests.programs.drawn import Drawn, parsed

PARTS = parsed(drawn_numpy_parts.PARTS)
XS = (
    *("np.array([0.3, 0.7, 1.2])",) * 5,
    "np.array([0.5, 1.1, 0.2, 0.9, 1.4, 0.8])[::2]",
    "np.array([0.4, 1.3])",
    "np.array([0.3, 0.9, 0.1, 0.6])",
    "np.array([[0.3, 0.7], [1.2, 0.1], [0.4, 0.2]])[:, 1] + 0.5",
    "np.array([-0.3, 0.7, -1.2])",
)
MODES = ("value_and_grad",) * 4 + ("grad", "value", "hessian", "vjp", "jvp")
BY_DEFAULT = XS[0], MODES[0]
PRELUDE = """\
import collections, contextvars, copy, dataclasses, enum, functools, itertools, random, types
import numpy as np
import scipy.integrate, scipy.interpolate, scipy.linalg, scipy.optimize, scipy.special, scipy.stats
S = types.SimpleNamespace()
"""
STEP, SECOND = 1e-6, 1e-4  # of differences, first and second


def draw(seed: int) -> Drawn:
    """The program of a seed."""
    chosen = random.Random(seed)
    names = chosen.sample(sorted(PARTS), chosen.choice([1, 1, 2, 2, 3]))
    own = [action for name in names for action in PARTS[name].actions]
    steps, usual = [], chosen.choice(XS)
    for i in range(chosen.randint(2, 7)):
        several = chosen.choice([1, 1, 2]) if i and own and chosen.random() < 0.65 else 0
        actions = tuple(chosen.choice(own) for _ in range(several))
        x = usual if chosen.random() < 0.6 else chosen.choice(XS)
        if chosen.random() < 0.5:
            x = f"({x}) * {chosen.choice([0.5, 0.9, 1.3, 1.7])}"
        steps.append((actions, x, chosen.choice(MODES)))
    return Drawn(tuple(names), tuple(steps), "function")


def source(drawn: Drawn) -> str:
    """The program's module."""
    lines = "\n".join(PARTS[name].body for name in drawn.parts).split("\n")
    own = [line for line in lines if line.startswith("global ")]
    body = [*own, "h = x * 1.0", *(line for line in lines if line not in own)]
    body.append("return (h * np.arange(1.0, 1.0 + h.size)).sum() + 0.1 * (x ** 2).sum()")
    before = [PARTS[name].before for name in drawn.parts]
    return "\n".join([PRELUDE, *before, "def f(x):", textwrap.indent("\n".join(body), "    "), ""])


class World:
    """The module of a program, with generators of its own."""

    def __init__(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self.module = types.ModuleType("drawn_program")
        self.names: dict[str, Any] = vars(self.module)
        self.printed = io.StringIO()
        self._generators: Any = np.random.RandomState(0).get_state(), random.Random(0).getstate()
        text, file = source(drawn), "/programs/drawn_numpy.py"
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        with self.entered():
            exec(compile(PRELUDE, file, "exec"), self.names)
            self._hidden = {*self.names, "f"} - {"S"}
            exec(compile(text, file, "exec"), self.names)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """While this module is the program, and numpy's and Python's generators are its own."""
        outer = np.random.get_state(), random.getstate(), sys.modules.get("drawn_program")
        sys.modules["drawn_program"] = self.module
        np.random.set_state(self._generators[0])
        random.setstate(self._generators[1])
        try:
            with contextlib.redirect_stdout(self.printed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            self._generators = np.random.get_state(), random.getstate()
            np.random.set_state(outer[0])
            random.setstate(outer[1])
            if outer[2] is not None:
                sys.modules["drawn_program"] = outer[2]

    def step(self, i: int, call: Callable[[Any, str], Any]) -> Any:
        """What a step's call gives, or the error it raises."""
        actions, x, mode = self.drawn.steps[i]
        with self.entered():
            try:
                for action in actions:
                    exec(compile(action, "/programs/drawn_step.py", "exec"), self.names)
                return call(eval(x, self.names), mode)
            except Exception as error:
                return error

    def seen(self) -> list[Line]:
        """All that the program can name, and what it has drawn and printed."""
        names = {k: v for k, v in self.names.items() if not k.startswith("_")}
        shown = {k: v for k, v in names.items() if k not in self._hidden}
        numpys, pythons = self._generators
        drawn: dict[str, Any] = {"drawn": (numpys[1].tolist(), pythons[1])}
        drawn["printed"] = self.printed.getvalue()
        return describe(shown | drawn, "drawn_program")


def plainly(drawn: Drawn, last: int, moved: Any = 0.0) -> tuple[World, Any]:
    """The program as it is, up to a step whose argument is moved, and what that gives."""
    world, found = World(drawn), None
    for i in range(last + 1):
        by = moved if i == last else 0.0
        found = world.step(i, functools.partial(_called, world.names["f"], by))
    return world, found


def _called(f: Callable[[Any], Any], moved: Any, x: Any, mode: str) -> Any:
    return f(x + moved)


def judge(drawn: Drawn) -> tuple[str, str]:
    """The kind of outcome, and how it is wrong."""
    world = World(drawn)
    f = world.names["f"]
    compiled = {
        "value": gradof.differentiate(f), "grad": gradof.grad(f), "hessian": gradof.hessian(f),
        "value_and_grad": gradof.value_and_grad(f),
    }  # fmt: skip

    def call(x: Any, mode: str) -> Any:
        before = x.copy()
        if mode == "vjp":
            value, pullback = gradof.vjp(f, x)
            found: Any = value, pullback(np.float64(1.0))
        elif mode == "jvp":
            found = gradof.jvp(f, (x,), (along(x),))
        else:
            found = compiled[mode](x)
        assert np.array_equal(x, before), "the argument has changed"
        return found

    for i, (_, _, mode) in enumerate(drawn.steps):
        plain, expected = plainly(drawn, i)
        found = world.step(i, call)
        where = f"step {i}, {mode}: "
        if isinstance(found, Exception) or isinstance(expected, Exception):
            if isinstance(found, GradofError) and not isinstance(expected, Exception):
                return "refused", where + str(found)
            if isinstance(expected, Exception) and isinstance(found, type(expected)):
                return "raises", ""  # what was done before it may be done or not: no more is said
            return "error", f"{where}{expected!r}, and ours {found!r}"
        wrong = _differs(drawn, i, mode, expected, found)
        wrong = wrong or first_difference(plain.seen(), world.seen(), 1e-7)
        if wrong:
            return "wrong", where + wrong
    return "equal", ""


def along(x: Any) -> Any:
    """A tangent."""
    return np.linspace(1, 2, x.size).reshape(x.shape)


def _differs(drawn: Drawn, i: int, mode: str, expected: Any, found: Any) -> str | None:
    value, slope = None, found
    if mode == "value":
        value = found
    elif mode not in ("grad", "hessian"):
        value, slope = found
    if value is not None and not np.allclose(value, expected, 1e-9, 1e-9, equal_nan=True):
        return f"the value is {expected}, and ours {value}"
    if mode == "value":
        return None
    x = np.asarray(World(drawn).step(i, lambda x, _: x))
    if mode == "hessian":
        wanted, got, tolerance = second_differences(drawn, i, x), np.asarray(found), 5e-3
    else:
        wanted, got, tolerance = differences(drawn, i, x), np.asarray(slope), 2e-4
    if mode == "jvp":
        wanted = (wanted * along(x)).sum()
    close = np.allclose(got, wanted, tolerance, tolerance * (1 + np.abs(wanted).max()))
    return None if close else f"differences give {wanted.tolist()}, and ours is {got.tolist()}"


def differences(drawn: Drawn, i: int, x: Any) -> Any:
    """The slope of a step's value."""
    def at(moved: Any) -> Any:
        return float(plainly(drawn, i, moved)[1])

    return np.array([(at(e) - at(-e)) / (2 * STEP) for e in np.eye(x.size) * STEP])


def second_differences(drawn: Drawn, i: int, x: Any) -> Any:
    """The Hessian of a step's value."""
    def at(moved: Any) -> Any:
        return float(plainly(drawn, i, moved)[1])

    axes = np.eye(x.size) * SECOND
    return np.array([
        [(at(a + b) - at(a - b) - at(b - a) + at(-a - b)) / (4 * SECOND**2) for b in axes]
        for a in axes
    ])  # fmt: skip
