"""What a check found, as a table for people and as fields for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gradof.errors import GradientMismatchError, InputError

OP_TOLERANCE = 1e-4
REFERENCES = ("eager", "float64", "finite differences")


@dataclass(frozen=True)
class Row:
    """One compared quantity: an output, a gradient, a second gradient, or a directional derivative.

    `error` is max |ours - reference|, `eager` is eager's own distance from the reference (None if
    eager is the reference), `allowed` the bound that `error` is held to. `scale` is max
    |reference|.
    """

    what: str
    reference: str
    error: float
    eager: float | None
    allowed: float
    scale: float

    @property
    def ok(self) -> bool:
        """Whether the error is within the bound; a nan error is not."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class OpRow:
    """One node, tested by itself on the inputs it really had; all errors are relative.

    `eager` is its value against the library's own function (None where there is none to call),
    `float64` its value against the same op in float64, `backward` its rule against differences, by
    operand. `precise` is false where its value is further from float64 than rounding explains.
    """

    op: str
    loc: str
    eager: float | None
    float64: float | None
    backward: tuple[tuple[str, float], ...]
    precise: bool = True

    @property
    def culprits(self) -> list[Culprit]:
        """What is wrong with this op."""
        found = []
        if self.eager is not None and not self.eager <= OP_TOLERANCE:
            found.append(Culprit(self.op, self.loc, "its value", self.eager))
        elif not self.precise:
            assert self.float64 is not None
            found.append(Culprit(self.op, self.loc, "its value in float64", self.float64))
        found += [
            Culprit(self.op, self.loc, f"its gradient for {name}", error)
            for name, error in self.backward
            if not error <= OP_TOLERANCE
        ]
        return found


@dataclass(frozen=True)
class Culprit:
    """An op that is wrong by itself: which, where, in the forward or for which operand."""

    op: str
    loc: str
    where: str
    error: float

    def __str__(self) -> str:
        return f"{self.op} at {self.loc}: {self.where} is off by {self.error:.2e} (relative)"


@dataclass
class Report:
    """The result of `gradof.testing.check`."""

    name: str
    rows: list[Row] = field(default_factory=list)
    ops: list[OpRow] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nodes: int = 0

    @property
    def ok(self) -> bool:
        """Whether every quantity is right; false where nothing was compared."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    def keep(self, references: Sequence[str]) -> None:
        """Drop the rows of other references; InputError if none would be left."""
        left = [row for row in self.rows if row.reference in references]
        if not left:
            raise InputError(
                f"{self.name} cannot be compared with {', '.join(references)}",
                hint="; ".join(self.notes) or "compare it with eager too",
            )
        self.rows = left

    def raise_if_wrong(self) -> None:
        """GradientMismatchError, naming the first wrong op, if a row is wrong."""
        if not self.ok:
            first = self.culprits[0] if self.culprits else None
            raise GradientMismatchError(
                str(self),
                loc=first.loc if first else None,
                hint="the op named above is wrong by itself" if first else None,
            )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # what IPython shows in a terminal

    def _repr_html_(self) -> str:
        from gradof.ir.html import framed, lines, table, verdict

        rows = [
            (row.what, row.reference, f"{row.error:.1e}",
             "-" if row.eager is None else f"{row.eager:.1e}", f"{row.allowed:.1e}",
             verdict(row.ok)) for row in self.rows
        ]  # fmt: skip
        ops = [
            (op.op, op.loc, *("-" if e is None else f"{e:.1e}" for e in (op.eager, op.float64)),
             verdict(not op.culprits)) for op in self.ops
        ]  # fmt: skip
        parts = [table(("quantity", "against", "error", "eager's", "allowed", ""), rows)]
        if ops:
            parts.append(table(("op, by itself", "line", "eager", "float64", ""), ops))
        parts.append(lines([f"wrong op: {c}" for c in self.culprits] + self.notes))
        return framed(f"{self.name}: {'all right' if self.ok else 'WRONG'}", *parts)

    def __str__(self) -> str:
        widths = (38, 20, 10, 10, 10)
        head = ("quantity", "against", "error", "eager's", "allowed")
        lines = [f"{self.name}: {self.nodes} nodes", _line(head, widths)]
        for row in self.rows:
            eager = "-" if row.eager is None else f"{row.eager:.1e}"
            cells = (row.what, row.reference, f"{row.error:.1e}", eager, f"{row.allowed:.1e}")
            lines.append(_line(cells, widths) + ("" if row.ok else "  WRONG"))
        lines += self._op_lines()
        lines += [f"wrong op: {culprit}" for culprit in self.culprits]
        if not self.ok and not self.culprits:
            lines.append("no single op is wrong by itself; look at how they are combined")
        lines += [f"note: {note}" for note in self.notes]
        lines.append("all right" if self.ok else "WRONG")
        return "\n".join(lines)

    def _op_lines(self) -> list[str]:
        if not self.ops:
            return []
        widths = (20, 40, 10, 10, 10)
        lines = ["", _line(("op", "line", "eager", "float64", "backward"), widths)]
        for row in self.ops:
            worst = max((error for _, error in row.backward), default=None)
            shown = ("-" if e is None else f"{e:.1e}" for e in (row.eager, row.float64, worst))
            wrong = "  WRONG" if row.culprits else ""
            lines.append(_line((row.op, row.loc, *shown), widths) + wrong)
        return [*lines, ""]


def _line(cells: Sequence[str], widths: tuple[int, ...]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()
