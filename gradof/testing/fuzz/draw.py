"""A program while it grows: every statement is run as it is drawn, so that what it gives is known.

    draw = Draw(world, seed=7)
    draw.add(Form("torch.tanh({x})"))       True: it runs, and its values are fit to go on
    draw.program()                          what came of it

A statement that the library refuses is left out, and so is one whose values are not finite or far
too large: what follows would be nothing but nan.
"""

from __future__ import annotations

import math
import random
import re
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gradof.testing.fuzz.forms import Form
from gradof.testing.fuzz.places import PLACES, Context
from gradof.testing.fuzz.program import FuzzProgram, Library, Setting, texts
from gradof.testing.shrinking import Call

_NAME = re.compile(r"\b[xv]\d+\b")
Shape = tuple[int, ...]
SIZES = ("small", "middle", "large", "loops")
KEPT = {"small": 3000, "loops": 20_000, "middle": 60_000, "large": 400_000}  # elements of a result


class Unfit(Exception):
    """What was drawn is too large."""


class World(Protocol):
    """What of a library the drawing needs."""

    library: Library
    space: dict[str, Any]

    def is_array(self, value: Any) -> bool:
        """Whether it is a dense array."""

    def kind(self, value: Any) -> str:
        """f, c, i or b."""

    def shape(self, value: Any) -> Shape:
        """Its shape."""

    def dtype(self, value: Any) -> str:
        """Its dtype as source."""

    def make(self, drawn: Any, dtype: str) -> Any:
        """An array of these numbers."""

    def laid_out(self, value: Any, rng: random.Random) -> Any:
        """The same shape in another layout of memory."""

    def live(self, value: Any) -> Any:
        """A copy to run the program on."""

    def kept(self, value: Any) -> Any:
        """A copy of a value as it is now."""

    def fit(self, value: Any) -> bool:
        """Whether there is anything to go on with."""

    def owned(self, value: Any, inputs: Sequence[Any]) -> bool:
        """Whether no input would be changed with it."""

    def dtypes(self, kind: str) -> Sequence[tuple[str, float]]:
        """Dtypes of a kind, by weight."""

    def run(self, code: Any, space: dict[str, Any]) -> None:
        """Run a statement of the library's."""


class Draw:
    """See the module."""

    def __init__(self, world: World, seed: int, size: str) -> None:
        self.world = world
        self.seed = seed
        self.size = size
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.space: dict[str, Any] = dict(world.space)
        self.values: dict[str, Any] = {}  # as they were when they were made
        self.live: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.grads: set[str] = set()
        self.calls: list[Call] = []
        self.forms: list[str] = []
        self.main = self.pick(world.dtypes("f"))
        self.shape = self.base_shape()
        self.special = self.rng.random() < 0.02  # inputs with nan, infinities and huge numbers

    # --- drawing ----------------------------------------------------------------------------

    def pick(self, weighted: Sequence[tuple[Any, float]]) -> Any:
        """One of these by weight."""
        return self.rng.choices([v for v, _ in weighted], [w for _, w in weighted])[0]

    def base_shape(self) -> Shape:
        """The shape most inputs of the program have, or are broadcast to."""
        rng = self.rng
        if self.size in ("small", "loops"):
            rank = self.pick([(0, 4), (1, 20), (2, 40), (3, 25), (4, 11)])
            sizes = [rng.choice((1, 2, 3, 3, 4, 5, 7)) for _ in range(rank)]
            return tuple(0 if rng.random() < 0.01 else n for n in sizes)
        least, most = (4096, 20_000) if self.size == "middle" else (32_769, 120_000)
        cells = int(math.exp(rng.uniform(math.log(least), math.log(most))))
        rank = self.pick([(1, 20), (2, 45), (3, 25), (4, 10)])
        sizes = []
        for left in range(rank - 1, 0, -1):
            n = max(1, min(rng.choice((1, 2, 3, 8, 16, 31, 64, 130, 257)), cells // 4**left))
            sizes.append(n)
            cells = -(-cells // n)
        sizes.append(cells)
        rng.shuffle(sizes)
        return tuple(sizes)

    def fresh(
        self, shape: Shape, kind: str = "f", dtype: str | None = None, drawn: Any = None,
        plain: bool = False, has_gradient: bool = True,
    ) -> str:  # fmt: skip
        """The name of a new input."""
        rng = self.rng
        if math.prod(shape) > KEPT[self.size]:
            raise Unfit
        if dtype is None:
            dtype = self.main if kind == "f" and rng.random() < 0.88 else None
        if dtype is None:
            dtype = self.pick(self.world.dtypes(kind))
        if drawn is None:
            drawn = self.drawn(shape, kind)
        value = self.world.make(drawn, dtype)
        if not plain and rng.random() < 0.35:
            value = self.world.laid_out(value, rng)
        return self.enter(value, has_gradient)

    def enter(self, value: Any, has_gradient: bool = True) -> str:
        """The name of a new input with this value, which may get a gradient."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.values[name] = value
        if self.world.kind(value) in "fc" and has_gradient and self.rng.random() < 0.88:
            self.grads.add(name)
        self.space[name] = self.live[name] = self.world.live(value)
        if name in self.grads and self.world.library == "torch":
            self.space[name].requires_grad_()
        return name

    def drawn(self, shape: Shape, kind: str) -> Any:
        """Numbers: normal ones, small integers, booleans."""
        if kind == "i":
            return self.numbers.integers(-3, 7, shape)
        if kind == "b":
            return self.numbers.random(shape) < 0.5
        values = self.numbers.standard_normal(shape)
        if kind == "c":
            return values + 1j * self.numbers.standard_normal(shape)
        if self.special and values.size:
            flat = values.reshape(-1)
            many = self.rng.choice([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30,
                                    6e4, 3e38, 0.5, 2.0])  # fmt: skip
            flat[self.numbers.integers(0, flat.size, max(1, flat.size // 5))] = many
        elif self.rng.random() < 0.04:
            values = np.round(values * 2) / 2  # ties
        return values

    # --- statements ---------------------------------------------------------------------------

    def add(self, form: Form) -> bool:
        """Draw a statement of this form and keep it if it is fit."""
        known = len(self.inputs)
        context = Context(self, form)
        try:
            if context.subject_text() is None:
                return False
            body = "".join(
                literal + (PLACES[place](context, spec) if place is not None else "")
                for literal, place, spec in form.parts
            )
            found = self.run(form, body, context.writes)
        except Unfit:
            found = False
        if not found:
            self.discard(known)
        return found

    def discard(self, known: int) -> None:
        """Forget the inputs from this number on, drawn for a statement that is not kept."""
        for name in self.inputs[known:]:
            for table in (self.values, self.live, self.space):
                table.pop(name, None)
            self.grads.discard(name)
        del self.inputs[known:]

    def run(self, form: Form, body: str, writes: tuple[str, ...]) -> bool:
        """Run a statement; keep it, and what it makes, if it is fit."""
        if form.block:
            code = body
        else:
            names = ", ".join(writes) + ("," if form.outputs != 1 and len(writes) == 1 else "")
            code = f"{names} = {body}"
        space = dict(self.space)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.world.run(compile(code, "<statement>", "exec"), space)
        except Exception:  # whatever the library refuses is no program
            return False
        made = [space[n] for n in writes]
        if any(not self.world.is_array(v) for v in made):
            return False
        limit = KEPT[self.size]
        if any(math.prod(self.world.shape(v)) > limit for v in made):
            return False
        if not self.special and not all(map(self.world.fit, made)):
            return False
        self.space.update((n, space[n]) for n in writes)
        self.live.update((n, space[n]) for n in writes)
        self.values.update((n, self.world.kept(space[n])) for n in writes)
        self.grads.update(n for n in writes if self.world.kind(space[n]) in "fc")
        reads = dict.fromkeys(n for n in _NAME.findall(body) if n in self.space)
        reads = {n: None for n in reads if n not in writes}
        unpack = form.outputs != 1 and not form.block
        self.calls.append(Call(texts(textwrap.dedent(body)), tuple(reads), writes, "", unpack,
                               form.block))  # fmt: skip
        self.forms.append(form.title)
        return True

    def names(self, count: int) -> tuple[str, ...]:
        """Names for what a statement makes."""
        start = sum(1 for n in self.live if n[0] == "v")
        return tuple(f"v{start + i}" for i in range(count))

    # --- the whole ------------------------------------------------------------------------------

    def program(self, setting: Setting, results: Sequence[str]) -> FuzzProgram:
        """The program with these results."""
        read: set[str] = set()
        for call in self.calls:
            read.update(call.reads)
        return FuzzProgram(
            f"seed {self.seed}", self.world.library, tuple(self.calls), self.values,
            frozenset(self.grads), frozenset(results), order=setting.order, seed=self.seed,
            setting=setting,
        )  # fmt: skip
