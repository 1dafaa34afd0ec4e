"""A program for a seed: the same one on every machine with the same versions.

    program = generate("torch", 7)
    print(program.body(), program.setting)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gradof.testing.fuzz.draw import Draw
from gradof.testing.fuzz.loops import add_loop
from gradof.testing.fuzz.program import FuzzProgram, Library, Setting

SHARES = {"small": 58, "middle": 17, "large": 25}
STATEMENTS = (1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 8, 12)  # most mistakes need two or three
TRIES = 6  # forms that do not fit, for each statement
LOOPS = 0.08  # of programs have a loop; drawn apart, so that other seeds stay what they were


def generate(library: Library, seed: int, size: str | None = None) -> FuzzProgram:
    """The program of a seed; `size` is small, middle, large or loops, and else drawn."""
    rng = random.Random(f"{library} {seed}")
    if size is None and random.Random(f"loops {library} {seed}").random() < LOOPS:
        size = "loops"
    if size is None:
        size = rng.choices(list(SHARES), list(SHARES.values()))[0]
    draw = _draw(library, rng.randrange(1 << 62), size)
    draw.seed = seed
    setting = _setting(rng, size, library)
    _inputs(draw)
    if library == "torch":
        from gradof.testing.fuzz import torch_grow as grow
    else:
        from gradof.testing.fuzz import numpy_grow as grow  # type: ignore[no-redef]
    if size == "loops":
        _tried(lambda: add_loop(draw))
    for _ in range(rng.choice(STATEMENTS) if size != "loops" else rng.choice((0, 0, 0, 1, 2))):
        _tried(lambda: grow.statement(draw))
    results, setting = _results(draw, rng, setting)
    return draw.program(setting, results)


def _tried(statement: Callable[[], bool]) -> None:
    """One more statement, of those that fit."""
    for _ in range(TRIES):
        if statement():
            return


def _draw(library: Library, seed: int, size: str) -> Draw:
    world: Any
    if library == "torch":
        from gradof.testing.fuzz.torch_world import TorchWorld

        world = TorchWorld()
    else:
        from gradof.testing.fuzz.numpy_world import NumpyWorld

        world = NumpyWorld()
    return Draw(world, seed, size)


def _inputs(draw: Draw) -> None:
    """One to three inputs to start with."""
    for _ in range(draw.rng.randint(1, 3)):
        kind = draw.pick([("f", 10), ("c", 0.8 if draw.world.library == "torch" else 0),
                          ("i", 0.7), ("b", 0.3)])  # fmt: skip
        draw.fresh(draw.shape, kind if draw.inputs else "f")
    if not draw.grads & set(draw.inputs):
        draw.grads.add(draw.inputs[0])
        if draw.world.library == "torch":
            draw.space[draw.inputs[0]].requires_grad_()


def _setting(rng: random.Random, size: str, library: Library) -> Setting:
    weights = (90, 4, 3, 3) if size == "loops" else (60, 12, 18, 10)
    backend = rng.choices(("auto", "numpy", "tiles", "native"), weights)[0]
    return Setting(
        backend=backend,
        threads=2 if rng.random() < 0.2 else 1,
        memory_budget=rng.choice((0.0, 0.3, 0.7)) if rng.random() < 0.15 else None,
        numerics="nan_safe" if rng.random() < 0.06 else "eager",
        calls=4 if rng.random() < 0.12 else 1,
        prepare=rng.random() < 0.04,
        order=2,
    )


def _results(draw: Draw, rng: random.Random, setting: Setting) -> tuple[list[str], Setting]:
    """One to three results, the last ones made; sometimes a single number, as of a loss."""
    from gradof.testing.fuzz.forms import Form

    made = [n for n in draw.live if n[0] == "v"]
    floats = [n for n in made if draw.world.kind(draw.space[n]) == "f"]
    if floats and rng.random() < 0.3:
        parts = [f"{n}.sum()" if rng.random() < 0.5 else f"({n} * {n}).mean()"
                 for n in dict.fromkeys((floats[-1], rng.choice(floats)))]  # fmt: skip
        name = draw.names(1)
        if draw.run(Form("loss"), " + ".join(parts), name):
            return list(name), replace(setting, calls=max(setting.calls, rng.choice((1, 4))))
    if not made:
        made = list(draw.live)
    chosen = {made[-1]} | set(rng.sample(made, min(len(made), rng.randint(0, 2))))
    return [n for n in made if n in chosen], setting
