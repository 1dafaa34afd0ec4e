"""One draw of a generator, or one reading of a clock: what the graph asks at every call.

    draw(recorder, rng, "standard_normal", (3,))
        →  %z : f64[3] = python_draw[function='a random draw: standard_normal']()

A twin of the generator draws while the trace runs, the generator itself in calls of the graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gradof.ops.python_call import DRAWS
from gradof.tracer.numpy.black_box import call
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.state.unheard import quietly

By = Callable[..., Any]


def draw(
    recorder: Recorder, generator: Any, name: str, args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = MappingProxyType({}), by: By | None = None,
) -> Any:  # fmt: skip
    """Record a call of a generator's method, or of what draws `by` a generator that it is given."""
    if name == "seed" and not (args or kwargs):
        recorder.enter()
        raise recorder.unsupported("seed() without a number", "give it one, or leave it out")
    _, twin = recorder.generators.setdefault(
        id(generator), (generator, quietly(copy.deepcopy, generator))
    )

    def of(source: Any) -> Callable[[Any, Any], Any]:
        def run(given: Any, named: Any) -> Any:
            if by is not None:
                return by(source, *given, **named)
            found = getattr(source, name)(*given, **named)
            return 0 if name == "seed" else found

        return run

    found = call(
        recorder, DRAWS + name, of(generator), (args, dict(kwargs)), of(twin), None, generator
    )
    return None if name == "seed" else found
