"""Emitted Triton source as a person would write it, line by line.

    c_1 = c
    mul = x * x  # norm.py:5                 # norm.py:5: return x * torch.rsqrt((x * x).sum(-1))
    sum = tl.sum(tl.where(cell, mul,    →    rsqrt = 1.0 / tl.sqrt(tl.sum(tl.where(cell, x * x, 0),
        0).to(tl.float32), ...)                  axis=1, keep_dims=True))
    rsqrt = 1.0 / tl.sqrt(sum)

What a statement computes stays what it was: operations, their operands and their order. Values
without a name of the user's that are read once move into the statement that reads them, where that
is made of the same line of the user's. The lines themselves become comments.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradof.codegen.triton.ops import NAMES
from gradof.errors import CodegenError
from gradof.ir.types import F32, F64, I32, I64, DType

WIDTH = 100


def readable(
    lines: Sequence[str], keep: Collection[str], dtypes: Mapping[str, DType],
    texts: Mapping[str, str],
) -> list[str]:  # fmt: skip
    """The lines of a kernel's body, as `triton.emit` writes them: one statement and its loc each.

    `keep` are names that stay, `dtypes` those of all values, `texts` the user's lines by loc.
    """
    rows = [_row(line) for line in lines]
    rows = _without_copies(rows)
    for row in rows:
        row.simplify(dtypes)
    places = {row.target for row in rows if re.fullmatch(r"row|cell|[rc](_\d+)?", row.target or "")}
    _drop_unread(rows, {*dtypes, *places})
    _inline(rows, [name for name in dtypes if name not in keep])
    numbers = _numbers([row.target for row in rows if row.target in dtypes], keep)
    found: list[str] = []
    shown: set[str] = set()
    current = ""
    for row in rows:
        if row.loc and row.loc != current:
            current = row.loc
            text = "" if current in shown else texts.get(current, "")
            found.append(comment(current, text, row.indent))
            shown.add(current)
        found += wrapped(renamed(row.code, numbers), row.indent)
    return found


def one_tile(lines: Sequence[str]) -> list[str]:
    """The body of a kernel whose programs have one tile each, without the loop over tiles."""
    start = "    for tile in range(TILES):"
    if start not in lines:
        return list(lines)
    k = lines.index(start)
    end = k + 1
    while end < len(lines) and lines[end].startswith(" " * 8):
        end += 1
    before = [line.replace("r0 = ", "r = ").replace("(BR * TILES)", "BR") for line in lines[:k]]
    before = [line for line in before if line.strip() != "tl.assume(TILES > 0)"]
    inside = [line[4:] for line in lines[k + 1 : end] if line != "        r = r0 + tile * BR"]
    return [*before, *inside, *(line for line in lines[end:] if line not in inside)]


def wrapped(text: str, indent: int = 0, extra: int = 4) -> list[str]:
    """A statement broken at its blanks where it is long, in brackets where it needs them.

    No line ends at a no-break space, if that can be; what comes out has ordinary ones.
    """
    head, equals, value = text.partition(" = ")
    tries = [text]
    if text.startswith("return "):
        tries.append(f"return ({text.removeprefix('return ')})")
    elif equals:
        left = f"({head})" if "," in head else head
        tries += [f"{left} = {value}", f"{left} = ({value})"]
    tries.append(text.replace("def ", "def\xa0").replace("(", "( ", 1))  # after the first bracket
    tries += [each.replace("\xa0", " ") for each in tries]
    right = []
    for each in tries:
        lines = _broken(each, indent, extra)
        if text.startswith('"""') or all(_open("".join(lines[:k])) for k in range(1, len(lines))):
            right.append(lines)
            if max(map(len, lines)) <= WIDTH:
                return lines
    if right:
        return right[0]
    raise CodegenError(f"cannot break the line {text!r}")


def comment(loc: str, text: str, indent: int) -> str:
    """A line of the user's as a comment, cut off where it is long."""
    room = WIDTH - indent - 2
    text = " ".join(f"{loc}: {text}".split()) if text else loc
    return " " * indent + "# " + (text if len(text) <= room else text[: room - 4] + " ...")


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Source with some of its names replaced, whatever else it says left as it is."""
    lines = text.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.NAME and token.string in names:
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + names[token.string] + line[token.end[1] :]
    return "\n".join(lines)


def names_in(text: str) -> set[str]:
    """Every identifier of some source."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.string for t in tokens if t.type == tokenize.NAME}


def _broken(text: str, indent: int, extra: int) -> list[str]:
    # no break at colons and comparisons
    kept = re.sub(r" ?: (?=\S)| < ", lambda m: m[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(
        kept, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + extra),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\xa0", " ") for line in lines]


def _open(text: str) -> bool:
    """Whether a bracket of the text is still to be closed."""
    return sum(text.count(c) for c in "([{") > sum(text.count(c) for c in ")]}")


@dataclass
class _Row:
    """One statement, or the head of a loop."""

    indent: int
    code: str
    loc: str

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.code + (" pass" if self.code.endswith(":") else "")).body[0]

    def simplify(self, dtypes: Mapping[str, DType]) -> None:
        if not isinstance(self.tree, ast.For):
            self.rewrite(_Simpler(dtypes))

    def rewrite(self, transformer: ast.NodeTransformer) -> None:
        self.tree = transformer.visit(self.tree)
        self.code = ast.unparse(self.tree).replace("'", '"')
        self.code = re.sub(r"^(acc_\w+) = \1 \+ ", r"\1 += ", self.code)

    @property
    def target(self) -> str | None:
        if isinstance(self.tree, ast.Assign) and isinstance(self.tree.targets[0], ast.Name):
            return self.tree.targets[0].id
        return None

    def reads(self) -> Counter[str]:
        return Counter(
            n.id for n in ast.walk(self.tree)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        )  # fmt: skip


def _row(line: str) -> _Row:
    code, _, loc = line.strip().partition("  # ")
    loc = "" if " = tl.load(" in code else loc  # of what reads it
    return _Row(len(line) - len(line.lstrip()), code, loc)


def _without_copies(rows: Sequence[_Row]) -> list[_Row]:
    """A position that is a row's or a column's number has that name: no `c_1 = c`."""
    names: dict[str, str] = {}
    found: list[_Row] = []
    for row in rows:
        match = re.fullmatch(r"([rc]_\d+) = (rest_[rc]|[rc])", row.code)
        if match is None:
            found.append(row)
        elif match[2] in ("r", "c"):
            names[match[1]] = match[2]
        else:  # the row before says what is left
            found[-1] = _Row(row.indent, found[-1].code.replace(match[2], match[1], 1), row.loc)
    return [_Row(r.indent, renamed(r.code, names), r.loc) for r in found]


class _Simpler(ast.NodeTransformer):
    """Conversions of what has the dtype already are left out, of tensors and of numbers."""

    def __init__(self, dtypes: Mapping[str, DType]) -> None:
        self.dtypes = {name: f"tl.{NAMES[d]}" for name, d in dtypes.items()}
        self.plain = {f"tl.{NAMES[d]}" for d in (F32, F64, I32, I64)}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = ast.unparse(node.func)
        if function == "tl.where":
            node.args[1:] = [self.number(a) or a for a in node.args[1:]]
        if function.startswith("tl.where(") and function.endswith(").to"):
            assert isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)
            dtype = ast.unparse(node.args[0])
            chosen = [self.dtype(a) for a in node.func.value.args[1:]]
            if dtype in self.plain and dtype in chosen and {*chosen} <= {dtype, "a number"}:
                return node.func.value
        return node

    def number(self, arg: ast.expr) -> ast.expr | None:
        """The number of `tl.full((), number, tl.float64)` that is a float32 as well."""
        if isinstance(arg, ast.Call) and ast.unparse(arg.func) == "tl.full":
            shape, value, dtype = map(ast.unparse, arg.args)
            found = re.fullmatch(r"-?[\d.e+-]+", value) and (shape, dtype) == ("()", "tl.float64")
            return arg.args[1] if found and float(np.float32(value)) == float(value) else None
        return None

    def dtype(self, arg: ast.expr) -> str:
        text = ast.unparse(arg)
        if isinstance(arg, ast.Name):
            return self.dtypes.get(text, "")
        if isinstance(arg, ast.Call) and text.startswith("tl.full(()"):
            return ast.unparse(arg.args[2])
        match = re.fullmatch(r"\w+\.to\((tl\.\w+)\)", text)
        if match is not None:
            return match[1]
        return "a number" if re.fullmatch(r"-?[\d.e+-]+|float\('-?inf'\)", text) else ""


def _runs(rows: Sequence[_Row]) -> list[int]:
    """The number of each statement's run."""
    run, found = 0, []
    for k, row in enumerate(rows):
        run += k > 0 and row.indent != rows[k - 1].indent
        found.append(run)
    return found


def _drop_unread(rows: list[_Row], names: Collection[str | None]) -> None:
    """Leave out what a run makes and does not read, where every run that reads it makes its own."""
    done = False
    while not done:
        runs = _runs(rows)
        made = {(run, row.target) for run, row in zip(runs, rows, strict=True)}
        read = {(run, n) for run, row in zip(runs, rows, strict=True) for n in row.reads()}
        borrowed = {name for _, name in read - made}
        kept = [
            row for run, row in zip(runs, rows, strict=True)
            if row.target not in names or row.target in borrowed or (run, row.target) in read
        ]  # fmt: skip
        done = len(kept) == len(rows)
        rows[:] = kept


def _inline(rows: list[_Row], names: Sequence[str]) -> None:
    """Move what is read once into the statement that reads it; the list is changed.

    Statements of one indentation that follow one another are a run. A value moves within its run,
    and only if every run that reads it has made it itself.
    """
    runs = _runs(rows)
    reads = [row.reads() for row in rows]
    gone: set[int] = set()
    for name in _ready(rows, runs, reads, names):
        for k, row in enumerate(rows):
            if row.target != name or k in gone:
                continue
            (user,) = [j for j, found in enumerate(reads) if found[name] and runs[j] == runs[k]]
            reader = rows[user]
            if row.loc and reader.loc and row.loc != reader.loc:
                continue
            assert isinstance(row.tree, ast.Assign)
            code, tree = reader.code, ast.parse(reader.code).body[0]
            reader.rewrite(_Put(name, row.tree.value))
            if reader.indent + len(reader.code) > WIDTH:
                reader.code, reader.tree = code, tree
                continue
            reader.loc = reader.loc or row.loc
            reads[user] = reader.reads()
            reads[k] = Counter()
            gone.add(k)
    rows[:] = [row for k, row in enumerate(rows) if k not in gone]


def _ready(
    rows: Sequence[_Row], runs: Sequence[int], reads: Sequence[Counter[str]], names: Sequence[str]
) -> list[str]:
    """Names, in the order in which they are made, that every run makes and then reads once."""
    made: dict[str, Counter[int]] = {name: Counter() for name in names}
    read: dict[str, Counter[int]] = {name: Counter() for name in names}
    kept: set[str] = set()
    for row, run, found in zip(rows, runs, reads, strict=True):
        for name in found.keys() & made.keys():
            if not made[name][run]:
                kept.add(name)
            read[name][run] += found[name]
        if row.target in made:
            made[row.target][run] += 1
            if "tl.load(" in row.code:
                kept.add(row.target)
    order = [row.target for row in rows if row.target in made]
    return [
        name for name in dict.fromkeys(order)
        if name is not None and name not in kept and set(made[name]) == set(read[name])
        and {*made[name].values(), *read[name].values()} == {1}
    ]  # fmt: skip


def _numbers(names: Sequence[str | None], keep: Collection[str]) -> dict[str, str]:
    """Names that end in a number → with the first number that is free: others are gone."""
    taken, found = {name for name in names if name}, {}
    for name in dict.fromkeys(names):
        match = re.fullmatch(r"(.+)_\d+", name or "")
        if name and match and name not in keep:
            taken.remove(name)
            found[name] = next(
                new for k in itertools.count(1) if (new := f"{match[1]}_{k}") not in {*taken, *keep}
            )
            taken.add(found[name])
    return found


class _Put(ast.NodeTransformer):
    """An expression in the place of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name and isinstance(node.ctx, ast.Load) else node
