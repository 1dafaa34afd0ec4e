"""Free arrays of a trace, after the run: inputs that a path leads to, or constants after all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.ir.attrs import Dense
from gradof.ir.builder import Builder
from gradof.tracer.numpy.recorder import Array, Recorder
from gradof.tracer.numpy.sight import Sight
from gradof.tracer.state.origins import Origin
from gradof.tracer.state.tested import name_of


def origins_of(
    fn: Callable[..., Any], recorder: Recorder, sight: Sight, varying: Sequence[Any]
) -> tuple[list[Origin], tuple[tuple[Origin, int], ...]]:
    """The origins of the free arrays, and of those baked in; see Note [Baked constants].

    Those that are `varying` were inputs from the start: the run has not seen them, unless it knows
    them under another name, too. An array without a path was the run's own after all: it becomes a
    constant.
    """
    paths = sight.paths(fn, [array for array, _ in recorder.free.values()])
    for key, (array, lifted) in list(recorder.free.items()):
        if key in paths:
            index = recorder.places[id(lifted)][0]
            recorder.graph.block.params[index].hint = paths[key][1].name
        else:
            _bake(recorder, array)
    origins = [paths[key][1] for key in recorder.free]
    seen = sight.arrays
    names = {name_of(s.key) for _, origin in paths.values() for s in origin.steps
             if type(s.key) in (str, tuple)}  # fmt: skip
    decides = functools.cache(lambda: sight.reads.decisions.tested(
        sight.reads.codes, lambda array: id(array) in seen, names
    ))  # fmt: skip
    baked = tuple(
        (origin, sight.checksum(array)) for key, (array, origin) in paths.items()
        if (recorder.baked or key not in recorder.free or decides().has(array, origin.steps))
        and not (key not in seen and any(array is value for value in varying))
    )  # fmt: skip
    return origins, baked


def _bake(recorder: Recorder, array: Array) -> None:
    """An array that was lifted becomes a constant; see Note [Baked constants]."""
    _, lifted = recorder.free.pop(id(array))
    index, _ = recorder.places.pop(id(lifted))
    block = recorder.graph.block
    value = block.params[index]
    first = next(block.nodes(), block.returns)
    constant = Builder(block, first).constant(Dense.of(np.ascontiguousarray(array)))
    value.replace_all_uses_with(constant)
    block.remove_params([index])
    del recorder.given[index]
    if lifted.expr.value is value:
        lifted.assign(recorder.emitter.wrap(constant))
    recorder.places = {k: (i - (i > index), made) for k, (i, made) in recorder.places.items()}
    moved = ((i - (i > index), x) for i, x in recorder.layouts.items() if i != index)
    recorder.layouts = {i: replace(x, input=i) for i, x in moved}
    recorder.baked = True
