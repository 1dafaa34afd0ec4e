"""The tables of benchmarks/programs.py: the slowest first, on the terminal and in the docs."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tables import geometric_mean, markdown, number, shown

BEGIN, END = "<!-- programs: begin -->", "<!-- programs: end -->"
HEAD = ["program", "step, eager", "eager / gradof", "inference, eager", "eager / gradof",
        "first gradient", "memory / eager's", "whose code"]  # fmt: skip
ALIKE = 2e-3  # a gradient's difference, in parts of its largest element
FLOOR = 1e-3  # seconds of a step below which a row counts for nothing but the table


def ratio(row: dict[str, Any], what: str) -> float:
    """Eager's time over gradof's."""
    times = row[what]
    return float(times["eager"] / times["gradof"])


def whose(row: dict[str, Any]) -> str:
    """Whose code runs a step and an inference: ours, or torch's as it is."""
    step, inference = row.get("train_runs", "ours"), row.get("infer_runs", "ours")
    return step if step == inference else f"{step}, {inference}"


class Report:
    """Rows as they come."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.others: list[str] = []

    def add(self, row: dict[str, Any]) -> None:
        """Take a row, and print it."""
        if "train" not in row:
            self.others.append(f"{row['name']}: {row.get('left_out') or row.get('error')}")
            print(self.others[-1][:160], flush=True)
            return
        self.rows.append(row)
        cells = self._cells(row)
        widths = (34, 12, 6, 12, 6, 12, 6, 0)
        print(*[c.ljust(w) for c, w in zip(cells, widths, strict=True)],
              "" if row["equal"] < ALIKE else f"DIFFERS {row['equal']:.1e}",
              "" if row["backward_runs"] else "EAGER", flush=True)  # fmt: skip

    def _cells(self, row: dict[str, Any]) -> list[str]:
        memory = row["memory"]
        share = memory["gradof"] / memory["eager"] if memory["eager"] > 1 << 20 else math.nan
        return [row["name"], shown(row["train"]["eager"]), number(ratio(row, "train")),
                shown(row["infer"]["eager"]), number(ratio(row, "infer")), shown(row["first"]),
                number(share), whose(row)]  # fmt: skip

    def groups(self) -> dict[str, list[dict[str, Any]]]:
        """Networks and architectures, and layers."""
        is_layer: Callable[[Any], bool] = lambda row: ", " in row["name"]  # noqa: E731
        return {
            "programs": [r for r in self.rows if not is_layer(r)],
            "layers": [r for r in self.rows if is_layer(r)],
        }

    def summary(self) -> list[str]:
        """Means, least values, and what is left out."""
        lines = []
        for group, rows in self.groups().items():
            for what in ("train", "infer"):
                if not rows:
                    continue
                values = [ratio(r, what) for r in rows]
                long = [ratio(r, what) for r in rows if r[what]["eager"] >= FLOOR]
                lines.append(
                    f"{group}, {'training step' if what == 'train' else 'inference'}: geometric "
                    f"mean of eager / gradof {geometric_mean(values):.2f} of {len(values)}; over "
                    f"1 ms {geometric_mean(long):.2f} of {len(long)}, least "
                    f"{min(long, default=math.nan):.2f}, {sum(v < 0.97 for v in long)} below 0.97; "
                    f"{sum(r.get(f'{what}_runs') == 'eager' for r in rows)} run as they are"
                )
            firsts = sorted(r["first"] for r in rows)
            if firsts:
                lines.append(f"{group}: first gradient, median {shown(firsts[len(firsts) // 2])}, "
                             f"longest {shown(firsts[-1])}")  # fmt: skip
            shares = [r["memory"]["gradof"] / r["memory"]["eager"] for r in rows
                      if r["memory"]["eager"] > 1 << 20 and r["memory"]["gradof"]]  # fmt: skip
            if shares:
                lines.append(f"{group}: peak memory, geometric mean of gradof / eager "
                             f"{geometric_mean(shares):.2f} of {len(shares)} over 1 MB")
        for what, mark in (("eager", "run eagerly"), ("differs", "another gradient")):
            found = [r["name"] for r in self.rows if (
                not r["backward_runs"] if what == "eager" else r["equal"] >= ALIKE)]  # fmt: skip
            if found:
                lines.append(f"{mark}: {', '.join(found)}")
        return lines + [f"left out: {' '.join(line.split())[:120]}" for line in self.others]

    def tables(self) -> dict[str, list[list[str]]]:
        """Cells by title, the slowest first."""
        return {
            group: [self._cells(r) for r in sorted(rows, key=lambda r: ratio(r, "train"))]
            for group, rows in self.groups().items() if rows
        }

    def show(self) -> None:
        """Print everything."""
        console = Console(width=120)
        for title, cells in self.tables().items():
            table = Table(*HEAD, title=title)
            for each in cells:
                table.add_row(*each)
            console.print(table)
        for line in self.summary():
            print(f"- {line}")

    def write(self, page: Path) -> None:
        """Replace what stands between the markers."""
        import torch

        text = page.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        parts = [f"torch {torch.__version__}, Python {platform.python_version()}, "
                 f"{torch.get_num_threads()} thread.", ""]  # fmt: skip
        for title, cells in self.tables().items():
            parts += [f"### {title.capitalize()} beside eager", *markdown(HEAD, cells), ""]
        parts += [f"- {line}" for line in self.summary()]
        page.write_text(f"{before}{BEGIN}\n" + "\n".join(parts) + f"\n{END}{after}")
