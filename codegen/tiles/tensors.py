"""The values of a tile as torch sees them: tensors over the memory of arrays.

    tensors = Tensors(values, functions, lines)
    tensors.call("torch_mul", torch.mul, ("x", "r"))      # "torch_mul(tensor_x, t0)"
    tensors.out("s1")                                     # "t1", the tensor over scratch array s1

Making one takes half as long as a small call of torch's. Those over scratch arrays are made with
these, those over what is the same for all tiles before the first of them, others where they are
first read, by a line of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.codegen.loops.ir import Instr, Operand
from gradof.codegen.tiles.torch_calls import of_torch
from gradof.codegen.tiles.values import Values

_MAYBE_VIEWS = frozenset({"load", "copy", "cast", "reduce", "pick"})  # of what is read-only


class Tensors:
    """The tensors of the emitted source `lines`, which calls `functions` by name."""

    def __init__(self, values: Values, functions: dict[str, Any], lines: list[str]) -> None:
        self.values = values
        self.functions = functions
        self.lines = lines
        self.borrowed: set[str] = set()  # values that may be an input's memory
        self.twins: list[str] = []  # the tensors over scratch arrays
        self.made: set[str] = set()  # the values that have another
        self.once: dict[str, str] = {}  # tensors for all tiles, and their sources

    def call(
        self, name: str, function: Callable[..., Any], args: Sequence[Operand], more: str = ""
    ) -> str:
        """The source of a call of torch's function of values and numbers."""
        self.functions[name] = function
        return f"{name}({', '.join(map(self.of, args))}{more})"

    def of(self, name: Operand) -> str:
        """The name of the tensor over a value's memory, made before what first reads it."""
        if not isinstance(name, str):
            return f"number({float(name)!r})"
        if name in self.values.holds and name not in self.borrowed:
            return self.out(self.values.scratch(self.values.made[name]))
        whole = self.whole(self.values.made[name])
        if whole is not None:
            self.once[f"tensor_{name}"] = f"tensor({whole})"
        elif name not in self.made:
            self.made.add(name)
            self.lines.append(f"tensor_{name} = {self.maker(name)}({name})")
        return f"tensor_{name}"

    def out(self, place: str) -> str:
        """The tensor over a scratch array, or over what an output's source is."""
        if place[0] != "s":
            return f"tensor({place})"
        name = f"t{place[1:]}"
        if name not in self.twins:
            self.twins.append(name)
        return name

    def first(self, name: str, tensors: str) -> list[str]:
        """The lines of a value that is the first of some tensors."""
        self.made.add(name)
        return [f"tensor_{name} = {tensors}[0]", f"{name} = tensor_{name}.numpy()"]

    def whole(self, made: Instr) -> str | None:
        """The array of a value that is the same for all tiles."""
        if made.level == "once":
            return made.name
        if made.op != "load":
            return None
        array = f"in{made.buffer}"
        tile = self.values.tile(array, self.values.nest.inputs[made.buffer])
        return array if tile == array else None

    def maker(self, name: str) -> str:
        """What makes a tensor over an array: faster of one that torch can surely read in place."""
        made = self.values.made[name]
        if name in self.borrowed or made.op in _MAYBE_VIEWS:
            return "tensor"
        self.functions["from_numpy"] = of_torch("from_numpy")
        return "from_numpy"
