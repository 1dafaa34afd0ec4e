"""Steps that are alike as one function of machine code, which is compiled once.

Given   %3 = getelementptr i8, ptr %arena, i64 64      and again, of %7 and %8
        br label %loop4 ...                            (a loop that reads %2 and writes %3)
the result is
        %3 = getelementptr i8, ptr %arena, i64 64      and later  call void @alike0(ptr %7, ptr %8)
        call void @alike0(ptr %2, ptr %3)

A network of 200 layers has 200 times the same loops over other memory, and LLVM takes some 40 us
for each line. So what a step takes from outside are arguments of its function. A step stays where
it is if it leaves something in registers, if it can fail, or if a size in it follows from lengths.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradof import tuning

_LOCAL = re.compile(r"(%[\w.]+|^[a-z]+\d+(?=:))", re.MULTILINE)  # the name of a value or a block
_DEFINED = re.compile(r"^  (%[\w.]+) = ", re.MULTILINE)
_LABEL = re.compile(r"^([a-z]+\d+):", re.MULTILINE)
_TYPED = re.compile(r"(ptr|i\d+|float|double|<\d+ x (?:i\d+|float|double)>) (%[\w.]+)")
_ADDRESS = re.compile(r"  %[\w.]+ = getelementptr i8, ptr %(?:arena|constants), i64 \d+$")


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
    calls: dict[int, str] = {}
    for places in alike.values():
        made = {k: _function(pieces[k], k, latest) for k in places} if len(places) > 1 else {}
        counts = Counter(each[0] for each in made.values() if each is not None)
        for k, each in made.items():
            if each is not None and counts[each[0]] > 1:
                name = functions.setdefault(each[0], f"alike{len(functions)}")
                calls[k] = f"  call void @{name}({each[1]})"
    texts = [f"define internal void @{name}({text}" for text, name in functions.items()]
    return _with_calls(pieces, calls), texts


def _piece(lines: Sequence[str], before: str) -> _Piece:
    addresses = [line for line in lines if _ADDRESS.match(line)]
    text = "\n".join([line for line in lines if not _ADDRESS.match(line)])
    split = _LOCAL.split(text)
    return _Piece(lines, before, addresses, text, tuple(split[::2]), split[1::2])


def _last_label(lines: Sequence[str], before: str) -> str:
    return next((line[:-1] for line in reversed(lines) if line.endswith(":")), before)


def _function(piece: _Piece, k: int, latest: Mapping[str, int]) -> tuple[str, str] | None:
    """What is behind a function's name, names by number, and arguments; None if it has to stay."""
    made = _DEFINED.findall(piece.text)
    if '%"' in piece.text or "%fail" in piece.names or any(latest[name] > k for name in made):
        return None
    numbers: dict[str, int] = {}
    ids = [numbers.setdefault(name.lstrip("%"), len(numbers)) for name in piece.names]
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
    arguments = ", ".join(f"{types[name]} %{name}" for name in given)
    return f"{parameters}) {{\n{start}:\n{body}\n  ret void\n}}", arguments


def _with_calls(pieces: Sequence[_Piece], calls: Mapping[int, str]) -> list[str]:
    """All lines, with calls for pieces, each in the block that the piece begins in."""
    lines: list[str] = []
    renamed: dict[str, str] = {}  # blocks that are in a function now: which one calls it
    block = "entry"
    for k, piece in enumerate(pieces):
        if k in calls:
            lines += [*piece.addresses, calls[k]]
            renamed[f"%{_last_label(piece.lines, block)}"] = f"%{block}"
            continue
        lines += [
            _LOCAL.sub(lambda found: renamed.get(found[0], found[0]), line)
            if " = phi " in line else line for line in piece.lines
        ]  # fmt: skip
        block = _last_label(piece.lines, block)
    return lines
