"""The sizes that follow from lengths, in the code of a graph for any length (`gradof.ir.extent`).

The lengths are the first numbers of the constants; what the code names is computed from them as the
function begins:

    %"n" = load i64, ptr %constants
    %"3*n+2" = ...
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradof.ir.core import Block, Graph
from gradof.ir.extent import Atom, Extent, Form, Lengths, Unsized
from gradof.ir.types import TensorType

_NAME = re.compile(r'%"[^"]*"')


def lengths_of(graph: Graph) -> Lengths | None:
    """The lengths that sizes of a graph follow from; None where it is of one length."""
    return next((n.lengths for n in _sizes(graph.block) if isinstance(n, Extent)), None)


def _sizes(block: Block) -> list[int]:
    types = [v.type for v in block.params]
    types += [v.type for node in block.walk() for v in node.outputs]
    return [n for t in types if isinstance(t, TensorType) for n in t.shape or ()]


def header(values: Sequence[int], line: int) -> bytes:
    """The lengths as the constants begin with them, in whole lines."""
    data = b"".join(n.to_bytes(8, "little") for n in values)
    return data + bytes(-len(data) % line)


def definitions(lengths: Lengths, body: str, functions: Sequence[str]) -> str:
    """What computes the sizes that a body names."""
    if any(_NAME.search(text) for text in functions):
        raise Unsized("a size within a function of its own")
    writer = _Writer(lengths)
    for name in dict.fromkeys(_NAME.findall(body)):
        writer.define(name, *lengths.named[name])
    return "\n".join(writer.lines)


class _Writer:
    def __init__(self, lengths: Lengths) -> None:
        self.lengths, self.lines = lengths, list[str]()
        self.known: dict[str, str] = {}
        for k, name in enumerate(sorted(lengths.values)):
            self.lines += [
                f"  %length.{k} = getelementptr i64, ptr %constants, i64 {k}",
                f'  %"{name}" = load i64, ptr %length.{k}',
            ]
            self.known[f'%"{name}"'] = f'%"{name}"'

    def define(self, name: str, kind: str, form: Form) -> None:
        """The value of a name."""
        if name in self.known:
            return
        self.known[name] = name
        if kind != "i64":
            self.lines.append(f"  {name} = sitofp i64 {self.value(form)} to {kind}")
            return
        self.lines.append(f"  {name} = add i64 {self.sum(form)}, {form.constant}")

    def value(self, form: Form) -> str:
        """A formula, as an operand."""
        name = self.lengths.name(form)
        self.define(name, "i64", form)
        return name

    def sum(self, form: Form) -> str:
        """The terms of a formula added up."""
        total = "0"
        for atom, times in form.terms:
            one = self.atom(atom)
            if times != 1:
                one = self.fresh(f"mul i64 {one}, {times}")
            total = one if total == "0" else self.fresh(f"add i64 {total}, {one}")
        return total

    def atom(self, atom: Atom) -> str:
        """A length, or a quotient."""
        if isinstance(atom, str):
            return f'%"{atom}"'
        return self.fresh(f"udiv i64 {self.value(atom.form)}, {atom.by}")

    def fresh(self, text: str) -> str:
        """The result of an instruction."""
        name = f"%size.{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name
