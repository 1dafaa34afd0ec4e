"""What a check found, as a table for people and as fields for programs."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradof.errors import GradientMismatchError


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
    culprits: list[Culprit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nodes: int = 0

    @property
    def ok(self) -> bool:
        """Whether every quantity is right."""
        return all(row.ok for row in self.rows)

    def raise_if_wrong(self) -> None:
        """GradientMismatchError, naming the first wrong op, if a row is wrong."""
        if not self.ok:
            first = self.culprits[0] if self.culprits else None
            raise GradientMismatchError(
                str(self),
                loc=first.loc if first else None,
                hint="the op named above is wrong by itself" if first else None,
            )

    def __str__(self) -> str:
        widths = (38, 20, 10, 10, 10)
        head = ("quantity", "against", "error", "eager's", "allowed")
        lines = [f"{self.name}: {self.nodes} nodes", _line(head, widths)]
        for row in self.rows:
            eager = "-" if row.eager is None else f"{row.eager:.1e}"
            cells = (row.what, row.reference, f"{row.error:.1e}", eager, f"{row.allowed:.1e}")
            lines.append(_line(cells, widths) + ("" if row.ok else "  WRONG"))
        lines += [f"wrong op: {culprit}" for culprit in self.culprits]
        if not self.ok and not self.culprits:
            lines.append("no single op is wrong by itself; look at how they are combined")
        lines += [f"note: {note}" for note in self.notes]
        lines.append("all right" if self.ok else "WRONG")
        return "\n".join(lines)


def _line(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()
