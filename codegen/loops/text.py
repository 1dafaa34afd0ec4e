"""Loop nests as text, and back: `parse_nest(print_nest(nest)) == nest`.

    nest rms over rows (4096,), columns (1024,)
      in 0: x : f32[4096,1024] dims (0, 1)
      in 1: w : f32[1024] dims (None, 0)
      out 0: y : f32[4096,1024] dims (0, 1)
      %x0 = load[buffer=0] : f32 cell 0  # model.py:3
      %q = square %x0 : f32 cell 0
      %s = reduce[kind='sum'] %q : f32 row 1
      ...
      store[buffer=0] %y : f32 cell 1  # model.py:3

Grammar; words are those of graphs (`gradof.ir.parser`), attributes and types too, and line ends do
not matter::

    nest   ::= "nest" name "over" "rows" tuple "," "columns" tuple buffer* instr*
    buffer ::= ("in" | "out") NUMBER ":" name ":" type "dims" tuple
               ["windows" tuple] ["times" tuple] ["reads" NUMBER]
    instr  ::= [VALUE "="] OP [attrs] (VALUE | NUMBER | "True" | "False")* ":" DTYPE LEVEL STAGE
               ["held"] [LOC] ["body" instr* "end"]
    name   ::= NAME | STRING

Raises ParseError with line and column; `verify_nest` checks what the text means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gradof.codegen.loops.ir import LEVELS, Buffer, Instr, Level, LoopNest, Operand
from gradof.ir.attrs import Attr, format_attr
from gradof.ir.core import Loc
from gradof.ir.parser import Parser
from gradof.ir.tokens import as_loc, tokenize
from gradof.ir.types import DType, TensorType, all_dtypes

_DTYPES: dict[str, DType] = {d.name: d for d in all_dtypes()}
_PLAIN = re.compile(r"(?!(inf|nan)\b)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LAST = frozenset({"end", "nest", "end of text"})


# --- printing ------------------------------------------------------------------------------------


def print_nest(nest: LoopNest, *, locs: bool = True) -> str:
    """The text of a nest; `locs=False` leaves the user's lines out."""
    rows, columns = nest.sizes[: nest.rows], nest.sizes[nest.rows :]
    lines = [f"nest {_name(nest.name)} over rows {format_attr(rows)}, "
             f"columns {format_attr(columns)}"]  # fmt: skip
    for k, b in enumerate(nest.inputs):
        reads = f" reads {nest.reads[k]}" if nest.reads else ""
        lines.append(f"  in {k}: {_buffer(b)}{reads}")
    lines += [f"  out {k}: {_buffer(b)}" for k, b in enumerate(nest.outputs)]
    for i in nest.body:
        lines += [f"  {line}" for line in instr_lines(i, i.name in nest.held, locs=locs)]
    return "\n".join(lines) + "\n"


def instr_lines(i: Instr, held: bool = False, *, locs: bool = True) -> Iterator[str]:
    """The lines of an instruction: one, and those of its body."""
    head = f"%{i.name} = " if i.name else ""
    attrs = ", ".join(f"{k}={format_attr(v)}" for k, v in i.attrs.items())
    args = "".join(f" {_operand(a)}" for a in i.args)
    loc = f"  # {i.loc}" if locs and i.loc is not None else ""
    yield (
        f"{head}{i.op}{f'[{attrs}]' if attrs else ''}{args} : {i.dtype} {i.level} {i.stage}"
        f"{' held' if held else ''}{loc}"
    )
    if i.body:
        yield "  body"
        for j in i.body:
            yield from (f"    {line}" for line in instr_lines(j, locs=locs))
        yield "  end"


def _buffer(b: Buffer) -> str:
    shape = ",".join(map(str, b.shape))
    windows = f" windows {format_attr(b.windows)}" if b.windows else ""
    times = f" times {format_attr(b.times)}" if b.times else ""
    return f"{_name(b.name)} : {b.dtype}[{shape}] dims {format_attr(b.dims)}{windows}{times}"


def _operand(arg: Operand) -> str:
    return f"%{arg}" if isinstance(arg, str) else format_attr(arg)


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else format_attr(name)


# --- parsing -------------------------------------------------------------------------------------


def parse_nest(text: str, source: str = "<text>") -> LoopNest:
    """Parse the text of one nest; `source` names it in errors."""
    parser = _NestParser(tokenize(text, source), source)
    nest = parser.nest()
    parser.expect("end", "an instruction, or the end of the text")
    return nest


def parse_nests(text: str, source: str = "<text>") -> list[LoopNest]:
    """Parse the text of one nest or more, one after the other."""
    parser = _NestParser(tokenize(text, source), source)
    nests = [parser.nest()]
    while parser.token.kind != "end":
        nests.append(parser.nest())
    return nests


class _NestParser(Parser):
    """The words of graphs, in the grammar above."""

    def nest(self) -> LoopNest:
        self.held: set[str] = set()
        self.word("nest")
        name = self.label("the nest's name")
        for word in ("over", "rows"):
            self.word(word)
        rows = self.whole_numbers()
        self.punct(",")
        self.word("columns")
        columns = self.whole_numbers()
        self.skip_loc()
        inputs: list[Buffer] = []
        reads: list[int] = []
        outputs: list[Buffer] = []
        while self.token.text in ("in", "out"):
            which = self.take().text
            self.buffer(outputs if which == "out" else inputs, reads, which)
        if reads and len(reads) != len(inputs):
            self.fail("either every input or none says what it reads")
        body = tuple(self.instrs())
        return LoopNest(
            name, (*rows, *columns), len(rows), tuple(inputs), tuple(outputs), body,
            frozenset(self.held), tuple(reads),
        )  # fmt: skip

    def label(self, what: str) -> str:
        """A name, as it is or in quotes."""
        if self.token.kind == "string":
            return str(self.attr())
        return self.expect("name", what)

    def whole_numbers(self) -> tuple[int, ...]:
        """A tuple of sizes."""
        token = self.token
        found = self.attr()
        if not isinstance(found, tuple) or not all(type(n) is int and n >= 0 for n in found):
            self.fail(f"expected a tuple of whole numbers, found {token.text!r}", token)
        return found  # type: ignore[return-value]  # looked at just now

    def buffer(self, found: list[Buffer], reads: list[int], which: str) -> None:
        token = self.token
        if self.expect("number", "the number of the buffer") != str(len(found)):
            self.fail(f"expected number {len(found)}, found {token.text!r}", token)
        self.punct(":")
        name = self.label("the buffer's name, '' if it has none")
        self.punct(":")
        token = self.token
        type_ = self.type()
        if not isinstance(type_, TensorType) or type_.shape is None or type_.device != "cpu":
            self.fail("expected a dtype and a shape", token)
        self.word("dims")
        dims = self.entries(1, (int, type(None)))
        windows = self.entries(3, (int,)) if self.given("windows") else ()
        times = self.entries(2, (int,)) if self.given("times") else ()
        found.append(Buffer(name, type_.dtype, type_.shape, dims, windows, times))
        if which == "in" and self.given("reads"):
            reads.append(int(self.expect("number", "the number of an operand")))
        self.skip_loc()

    def entries(self, width: int, types: tuple[type, ...]) -> Any:
        """A tuple, of tuples where they are to be wider than one entry."""
        token = self.token
        found = self.attr()
        rows = found if width > 1 else (found,)
        if not isinstance(found, tuple) or not isinstance(rows, tuple) or not all(
            isinstance(row, tuple) and all(type(a) in types for a in row)
            and (width == 1 or len(row) == width) for row in rows
        ):  # fmt: skip
            self.fail(f"expected a tuple{f' of {width} numbers each' * (width > 1)}", token)
        return found

    def given(self, word: str) -> bool:
        """Whether a word is next, which is then read."""
        if self.token.kind == "name" and self.token.text == word:
            self.take()
            return True
        return False

    def instrs(self) -> Iterable[Instr]:
        while self.token.text not in _LAST:
            yield self.instr()

    def instr(self) -> Instr:
        name = ""
        if self.token.kind == "value":
            name = self.take().text[1:]
            self.punct("=")
        op = self.expect("name", "an instruction")
        attrs: dict[str, Attr] = self.attrs() if self.token.text == "[" else {}
        args = tuple(self.arguments())
        token = self.token
        dtype = self.expect("name", "a dtype")
        if dtype not in _DTYPES:
            self.fail(f"unknown dtype {dtype!r}", token)
        level, stage = self.level(), self.whole(self.number_token())
        if self.given("held"):
            self.held.add(name)
        loc: Loc | None = as_loc(self.take()) if self.token.kind == "loc" else None
        body: tuple[Instr, ...] = ()
        if self.given("body"):
            with self.nested():
                body = tuple(self.instrs())
            self.word("end")
        return Instr(name, op, args, _DTYPES[dtype], level, stage, attrs, loc, body)

    def level(self) -> Level:
        token = self.token
        found = self.expect("name", "a level")
        for level in LEVELS:
            if found == level:
                return level
        self.fail(f"expected one of {', '.join(LEVELS)}, found {found!r}", token)

    def number_token(self) -> Any:
        token = self.token
        if not token.text.isdigit() or token.kind != "number":
            self.fail(f"expected a stage, found {token.text!r}")
        return self.take()

    def arguments(self) -> Iterable[Operand]:
        while not self.accept(":"):
            token = self.token
            if token.kind == "value":
                yield self.take().text[1:]
                continue
            value = self.attr()
            if not isinstance(value, bool | int | float):
                self.fail(f"expected a value or a number, found {token.text!r}", token)
            yield value
