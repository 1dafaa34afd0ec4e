"""Steps that are alike as one function of machine code, which is compiled once.

Given   %3 = getelementptr i8, ptr %arena, i64 64      and again, of %7 and %8
        br label %loop4 ...                            (a loop that reads %2 and writes %3)
the result is
        %3 = getelementptr i8, ptr %arena, i64 64      and later  call void @alike0(ptr %7, ptr %8)
        call void @alike0(ptr %2, ptr %3)

A network of 200 layers has 200 times the same loops over other memory, and LLVM takes some 40 us
for each line. So what a step takes from outside are arguments of its function. A step stays where
it is if it leaves something in registers, if it can fail, or if a size in it follows from lengths.

Then most of what is left are calls, thousands of them, and addresses that are read at their end as
at their beginning: for one block of so many LLVM takes far longer than for its parts. So calls that
follow one another are functions in turn, which compute the addresses that they hand on:
        define internal void @part0(ptr noalias %io, ptr noalias %arena, ptr noalias %constants)
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradof import tuning

_LOCAL = re.compile(r"(%[\w.]+|^[a-z]+\d+(?=:))", re.MULTILINE)  # the name of a value or a block
_DEFINED = re.compile(r"^  (%[\w.]+) = ", re.MULTILINE)
_LABEL = re.compile(r"^([a-z]+\d+):", re.MULTILINE)
_TYPED = re.compile(r"(ptr|i\d+|float|double|<\d+ x (?:i\d+|float|double)>) (%[\w.]+)")
_ADDRESS = re.compile(r"  (%[\w.]+) = getelementptr i8, ptr %(?:arena|constants), i64 \d+$")
_ENTRY = re.compile(r"  (%[\w.]+) = getelementptr ptr, ptr %io, i64 \d+$")  # its place in a table
_GIVEN = re.compile(r"  (%[\w.]+) = load ptr, ptr (%[\w.]+)$")
_PARAMETERS = "ptr noalias %io, ptr noalias %arena, ptr noalias %constants"


@dataclass(eq=False)
class _Piece:
    """Lines of a step, or of what is between two."""

    lines: Sequence[str]
    before: str  # the label of the block it begins in
    addresses: list[str]  # in the arena: they differ where all else is alike
    text: str  # the other lines
    between: tuple[str, ...]  # what is between the names of the text
    names: list[str]


def outline(
    lines: Sequence[str], steps: Sequence[tuple[int, int]]
) -> tuple[list[str], list[str]]:  # fmt: skip
    """The lines with calls for steps that are alike, and the functions that are called.

    `steps` are where each begins and ends among the lines.
    """
    pieces: list[_Piece] = []
    latest: dict[str, int] = {}
    alike: dict[tuple[str, ...], list[int]] = {}
    block, whole = "entry", set(steps)
    for first, end in itertools.pairwise(sorted({0, len(lines), *itertools.chain(*steps)})):
        piece = _piece(lines[first:end], block)
        block = _last_label(piece.lines, block)
        latest.update(dict.fromkeys(piece.names, len(pieces)))
        if (first, end) in whole and end - first >= tuning.ALIKE_LINES:
            alike.setdefault(piece.between, []).append(len(pieces))
        pieces.append(piece)
    functions: dict[str, str] = {}  # their names
    calls: dict[int, _Call] = {}
    for places in alike.values():
        if len(places) < 2:
            continue
        known: _Known = {}
        made = {k: _function(pieces[k], k, latest, known) for k in places}
        counts = Counter(each[0] for each in made.values() if each is not None)
        for k, each in made.items():
            if each is not None and counts[each[0]] > 1:
                name = functions.setdefault(each[0], f"alike{len(functions)}")
                calls[k] = _Call(name, each[1])
    texts = [f"define internal void @{name}({text}" for text, name in functions.items()]
    written = _Calls(pieces, calls)
    return written.run(), [*texts, *written.parts]


def _piece(lines: Sequence[str], before: str) -> _Piece:
    addresses: list[str] = []
    others: list[str] = []
    for line in lines:
        (addresses if _is_address(line) else others).append(line)
    text = "\n".join(others)
    split = _LOCAL.split(text)
    return _Piece(lines, before, addresses, text, tuple(split[::2]), split[1::2])


def _is_address(line: str) -> bool:
    return " = getelementptr i8, ptr %" in line and _ADDRESS.match(line) is not None


def _last_label(lines: Sequence[str], before: str) -> str:
    return next((line[:-1] for line in reversed(lines) if line.endswith(":")), before)


@dataclass(frozen=True)
class _Function:
    """What is behind a function's name, and what it takes and makes, as places among names."""

    text: str
    given: Sequence[tuple[str, int]]  # with types
    made: Sequence[int]


_Known = dict[tuple[tuple[int, ...], int | None], _Function | None]


def _function(
    piece: _Piece, k: int, latest: Mapping[str, int], known: _Known
) -> tuple[str, list[tuple[str, str]]] | None:  # fmt: skip
    """What is behind a function's name, names by number, and its arguments with their types.

    None if it has to stay. `known` are the functions of pieces with the same text between names:
    those whose names come again in the same order are one.
    """
    if "%fail" in piece.names:
        return None
    numbers: dict[str, int] = {}  # of names without the mark, which labels have not
    marked = {
        name: numbers.setdefault(name.lstrip("%"), len(numbers))
        for name in dict.fromkeys(piece.names)
    }  # fmt: skip
    ids = tuple(map(marked.__getitem__, piece.names))
    key = ids, numbers.get(piece.before)
    if key not in known:
        known[key] = _function_of(piece, ids, numbers)
    found = known[key]
    if found is None or any(latest[piece.names[at]] > k for at in found.made):
        return None
    return found.text, [(kind, f"%{piece.names[at].lstrip('%')}") for kind, at in found.given]


def _function_of(
    piece: _Piece, ids: Sequence[int], numbers: Mapping[str, int]
) -> _Function | None:  # fmt: skip
    if '%"' in piece.text:
        return None
    made = _DEFINED.findall(piece.text)
    types = {name[1:]: kind for kind, name in _TYPED.findall(piece.text)}
    inside = {*(name[1:] for name in made), *_LABEL.findall(piece.text), piece.before}
    given = [name for name in numbers if name not in inside]
    if any(name not in types for name in given):
        return None
    written = [
        f"%n{number}" if name[0] == "%" else f"n{number}"
        for name, number in zip(piece.names, ids, strict=True)
    ]
    parts = itertools.zip_longest(piece.between, written, fillvalue="")
    body = "".join(itertools.chain.from_iterable(parts))
    start = f"n{numbers[piece.before]}" if piece.before in numbers else "start"
    parameters = ", ".join(f"{types[name]} %n{numbers[name]}" for name in given)
    return _Function(
        f"{parameters}) {{\n{start}:\n{body}\n  ret void\n}}",
        [(types[name], ids.index(numbers[name])) for name in given],
        [piece.names.index(name) for name in made],
    )


@dataclass(frozen=True)
class _Call:
    function: str
    arguments: Sequence[tuple[str, str]]  # types and names

    def line(self) -> str:
        given = ", ".join(f"{kind} {name}" for kind, name in self.arguments)
        return f"  call void @{self.function}({given})"


class _Calls:
    """Writes all lines, with calls for pieces, each in the block that the piece begins in."""

    def __init__(self, pieces: Sequence[_Piece], calls: Mapping[int, _Call]) -> None:
        self.pieces, self.calls = pieces, calls
        self.parts: list[str] = []
        self._addresses = dict(_addresses(pieces))
        self._lines: list[str] = []
        self._waiting: list[_Call] = []  # calls for which any function can compute the addresses
        self._anywhere = {*self._addresses, "%io", "%arena", "%constants"}

    def run(self) -> list[str]:
        """The lines."""
        renamed: dict[str, str] = {}  # blocks that are in a function now: which one calls it
        block, gone = "entry", self._addresses.keys() - self._needed()
        for k, piece in enumerate(self.pieces):
            call = self.calls.get(k)
            if call is not None:
                self._write([line for line in piece.addresses if _made(line) not in gone])
                self._call(call)
                renamed[f"%{_last_label(piece.lines, block)}"] = f"%{block}"
                continue
            self._write([
                _LOCAL.sub(lambda found: renamed.get(found[0], found[0]), line)
                if " = phi " in line else line for line in piece.lines if _made(line) not in gone
            ])  # fmt: skip
            block = _last_label(piece.lines, block)
        self._end_part()
        return self._lines

    def _needed(self) -> set[str]:
        """Names that lines outside of parts read, and what addresses among them are made of."""
        names = {
            name for k, piece in enumerate(self.pieces) if k not in self.calls
            for line in piece.lines if _made(line) not in self._addresses
            for name in _LOCAL.findall(line)
        }  # fmt: skip
        names.update(
            name for call in self.calls.values() if not self._is_apart(call)
            for _, name in call.arguments
        )  # fmt: skip
        lines = [line for name in names for line in self._addresses.get(name, ())]
        return names.union(*map(_LOCAL.findall, lines))

    def _is_apart(self, call: _Call) -> bool:
        return all(name in self._anywhere for _, name in call.arguments)

    def _write(self, lines: Sequence[str]) -> None:
        if any(_made(line) not in self._addresses for line in lines):
            self._end_part()
        self._lines += lines

    def _call(self, call: _Call) -> None:
        if not self._is_apart(call):
            self._end_part()
            self._lines.append(call.line())
            return
        self._waiting.append(call)
        if len(self._waiting) == tuning.ALIKE_CALLS:
            self._end_part()

    def _end_part(self) -> None:
        """The calls that wait as a function, and its call."""
        if not self._waiting:
            return
        names = dict.fromkeys(name for call in self._waiting for _, name in call.arguments)
        made = [line for name in names for line in self._addresses.get(name, ())]
        body = "\n".join([*made, *(call.line() for call in self._waiting)])
        name = f"part{len(self.parts)}"
        self.parts.append(
            f"define internal void @{name}({_PARAMETERS}) {{\nentry:\n{body}\n  ret void\n}}"
        )
        self._lines.append(f"  call void @{name}(ptr %io, ptr %arena, ptr %constants)")
        self._waiting = []


def _addresses(pieces: Sequence[_Piece]) -> Iterator[tuple[str, list[str]]]:
    """Names of what any function computes from its three parameters, and the lines that do."""
    entries: dict[str, str] = {}
    for line in itertools.chain.from_iterable(piece.lines for piece in pieces):
        if " = getelementptr i8, ptr %" in line and (found := _ADDRESS.match(line)):
            yield found[1], [line]
        elif " = getelementptr ptr, ptr %io, " in line and (found := _ENTRY.match(line)):
            entries[found[1]] = line
            yield found[1], [line]
        elif " = load ptr, ptr %" in line and (found := _GIVEN.match(line)) and found[2] in entries:
            yield found[1], [entries[found[2]], line]


def _made(line: str) -> str | None:
    """The name that a line is the value of."""
    return line[2 : line.index(" = ")] if line.startswith("  %") and " = " in line else None
