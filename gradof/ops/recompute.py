"""What marks a computation that is done again for the gradient.

Equal nodes are merged; a value computed again so as not to be kept would be merged with the one
kept. `again` stands between: what is computed from `again[region=1](x)` equals nothing else.
"""

from __future__ import annotations

from gradof.ops.families import same_as_first
from gradof.ops.registry import op

op("again(x; region) -> y", family=same_as_first(), numpy="{x}", vjp={"x": lambda g: g},
   traits={"view", "linear"},
   doc="The value, to compute from it again what was not saved.")  # fmt: skip
