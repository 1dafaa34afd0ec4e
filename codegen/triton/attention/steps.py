"""The steps by which scores are changed, and their gradients, as Triton expressions of float32.

    plan_of((("mul", ("s", 0.25)), ("add", ("s", "x0")), ("div", ("s", 2.0))))
    Plan(steps=(("mul", ("s", 0.25)), ("add", ("s", "x0"))), last=0.5 * LOG2E, all=0.125)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradof.codegen.triton.ops import expression, literal
from gradof.ir.types import F32
from gradof.ops.attention import Step

LOG2E = math.log2(math.e)


@dataclass(frozen=True)
class Plan:
    """Steps that are computed one by one, and the numbers that are not."""

    steps: tuple[Step, ...]
    last: float  # what scores are multiplied by before they are an exponent of two
    all: float | None  # what their gradient is multiplied by in the end; None: step by step

    def pulled_back(self, j: int) -> str | None:
        """The gradient of the operand of step j, of that of its result; None: the same."""
        name, args = self.steps[j]
        if self.all is not None and _factor(self.steps[j]) is not None:
            return None
        others = [_named(a, "") for a in args if a != "s"]
        if name == "where":
            kept = ("ds", "0.0") if args[1] == "s" else ("0.0", "ds")
            return _expression("where", [others[0], *kept])
        if name in ("mul", "div"):
            return f"ds {'*' if name == 'mul' else '/'} {others[0]}"
        if name == "tanh":
            return f"ds * (1.0 - s{j + 1} * s{j + 1})"
        if name == "neg" or (name == "sub" and args[0] != "s"):
            return "-ds"
        assert name in ("add", "sub"), name
        return None


def plan_of(steps: Sequence[Step]) -> Plan:
    """The steps left when numbers are gathered; Note [Powers of two] in `triton/attention/emit`."""
    left = [_multiplied(step) for step in steps]
    factors = [f for f in map(_factor, left) if f is not None]
    everything = math.prod(factors)
    if not all(_is_factor(f) for f in (*factors, everything)):
        return Plan(tuple(steps), LOG2E, None)
    last = LOG2E
    while left and (factor := _factor(left[-1])) is not None and factor > 0:
        last *= factor
        left.pop()
    return Plan(tuple(left), last, everything)


def changed(step: Step, score: str) -> str:
    """What a step makes of the scores."""
    name, args = step
    return _expression(name, [_named(a, score) for a in args])


def _multiplied(step: Step) -> Step:
    """A step; where it is a quotient by a number, the product with its reciprocal."""
    name, args = step
    if name == "div" and not isinstance(args[1], str) and _is_factor(args[1]):
        return "mul", ("s", 1.0 / args[1])
    return step


def _factor(step: Step) -> float | None:
    """The number that a step multiplies the scores by."""
    name, args = step
    if name != "mul":
        return None
    (other,) = (a for a in args if a != "s")
    return None if isinstance(other, str) else float(other)


def _is_factor(number: float) -> bool:
    """Whether float32 has a number, its reciprocal, and room for what it is multiplied by."""
    return 2.0**-64 < abs(number) < 2.0**64


def _named(arg: str | int | float, score: str) -> str:
    if isinstance(arg, str):
        return score if arg == "s" else arg
    return literal(float(arg))


def _expression(name: str, args: Sequence[str]) -> str:
    return expression(name, F32, args, [F32] * sum(a.isidentifier() for a in args), {})
