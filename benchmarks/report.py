"""The tables of benchmarks/cpu.py: on the terminal, in docs/performance.md, and as a chart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from sides import DIRECT, NUMPY_CALLER, SIDES
from tables import geometric_mean, markdown, number, shown

PEERS = tuple(side for side in SIDES if not side.startswith("gradof"))
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass
class Row:
    """One workload: seconds by side, the roofline's seconds, and what fresh processes took."""

    name: str
    kind: str
    together: dict[str, float]
    forward: dict[str, float]
    backward: dict[str, float]
    roof: float
    alone: dict[str, tuple[float, float] | None]

    def ratio(self, side: str = "gradof") -> float:
        """Best peer / gradof, or another side of ours."""
        peers = [t for peer, t in self.together.items() if peer in PEERS]
        mine = self.together.get(side)
        return min(peers) / mine if peers and mine else math.nan

    def memory(self) -> float:
        """Peak bytes of gradof over those of eager."""
        mine, eager = self.alone.get("gradof"), self.alone.get("eager")
        return mine[1] / eager[1] if mine and eager and eager[1] else math.nan


@dataclass
class Report:
    """All that was measured in one run."""

    heading: str
    rows: list[Row]
    chains: list[tuple[int, float]]
    check: float

    def tables(self) -> dict[str, list[list[str]]]:
        """Cells of each table by its title, the head first."""
        head = [
            "workload", *SIDES, "best peer / gradof", "best peer / value_and_grad", "C loop",
            "gradof / C loop", "numpy caller / C loop", "roofline / gradof",
        ]  # fmt: skip
        both = [head]
        forward, backward, first = ([["workload", *SIDES]] for _ in range(3))
        memory = [["workload", "gradof", "eager", "gradof / eager"]]
        for row in self.rows:
            cells = [shown(row.together[s]) if s in row.together else "-" for s in SIDES]
            reach = row.roof / row.together["gradof"] if row.kind == "fused" else math.nan
            loop = row.together.get("C loop")
            by_hand = [shown(loop)] if loop else ["-"]
            for side in ("gradof", NUMPY_CALLER):
                found = row.together.get(side)
                by_hand.append(number(found / loop) if found and loop else "-")
            ratios = [number(row.ratio()), number(row.ratio(DIRECT))]
            both.append([row.name, *cells, *ratios, *by_hand, number(reach)])
            cells = [shown(row.forward[s]) if s in row.forward else "-" for s in SIDES]
            forward.append([row.name, *cells])
            if row.backward:
                cells = [shown(row.backward[s]) if s in row.backward else "-" for s in SIDES]
                backward.append([row.name, *cells])
            if row.alone:
                times = [row.alone.get(s) for s in SIDES]
                first.append([row.name, *(shown(t[0]) if t else "-" for t in times)])
                used = [row.alone.get(s) for s in ("gradof", "eager")]
                cells = [f"{u[1] / 1e6:.1f} MB" if u else "-" for u in used]
                memory.append([row.name, *cells, number(row.memory())])
        return {
            "Value and gradients": both, "Value alone": forward,
            "The backward after the value, torch callers": backward,
            "First gradient, after import, in a fresh process": first,
            "Peak memory of value and gradients": memory,
        }  # fmt: skip

    def summary(self) -> list[str]:
        """Geometric means by kind, and the compile times."""
        lines = []
        for kind in dict.fromkeys(row.kind for row in self.rows):
            for side in ("gradof", DIRECT):
                ratios = (r.ratio(side) for r in self.rows if r.kind == kind)
                values = [v for v in ratios if not math.isnan(v)]
                mean = geometric_mean(values)
                if values:
                    lines.append(f"{kind}: geometric mean of best peer / {side} {mean:.2f}, "
                                 f"least {min(values):.2f}")  # fmt: skip
        tiles = [
            r.together["eager"] / r.together["gradof tiles"] for r in self.rows
            if r.kind == "fused" and {"eager", "gradof tiles"} <= r.together.keys()
        ]
        if tiles:
            lines.append(f"numpy tiles, fused: geometric mean of eager / tiles "
                         f"{geometric_mean(tiles):.2f}, least {min(tiles):.2f}")  # fmt: skip
        for n, seconds in self.chains:
            lines.append(f"a chain of {n} ops: first gradient after {seconds:.2f} s")
        check = shown(self.check)
        lines.append(f"the check of a call with ten arrays: {check}")
        return lines

    def show(self, console: Console) -> None:
        """Print everything."""
        console.print(self.heading, markup=False)
        for title, (head, *cells) in self.tables().items():
            if cells:
                table = Table(*head, title=title)
                for each in cells:
                    table.add_row(*each)
                console.print(table)
        for line in self.summary():
            console.print(line)

    def write(self, docs: Path) -> None:
        """Replace what stands between the markers of docs/performance.md; draw the chart."""
        page = docs / "performance.md"
        text = page.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        parts = [f"{self.heading}.", "", "![best peer / gradof](performance.svg)", ""]
        for title, (head, *cells) in self.tables().items():
            if cells:
                parts += [f"### {title}", *markdown(head, cells), ""]
        parts += [f"- {line}" for line in self.summary()]
        page.write_text(f"{before}{BEGIN}\n" + "\n".join(parts) + f"\n{END}{after}")
        self.chart(docs / "performance.svg")

    def chart(self, path: Path) -> None:
        """Bars of each peer's time over gradof's, one group per workload."""
        import matplotlib as mpl

        mpl.use("svg")
        from matplotlib import pyplot as plt

        peers = [s for s in PEERS if any(s in r.together for r in self.rows)]
        figure, axes = plt.subplots(figsize=(9, 0.42 * len(self.rows) + 1.2))
        height = 0.8 / len(peers)
        for k, peer in enumerate(peers):
            at = [i + k * height for i, r in enumerate(self.rows) if peer in r.together]
            values = [r.together[peer] / r.together["gradof"]
                      for r in self.rows if peer in r.together]  # fmt: skip
            axes.barh(at, values, height, label=peer)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_yticks([i + 0.4 for i in range(len(self.rows))], [r.name for r in self.rows])
        axes.set_xscale("log")
        axes.set_xlabel("time of value and gradients / gradof's (right of 1: gradof is faster)")
        axes.invert_yaxis()
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(peers), fontsize=8)
        figure.tight_layout()
        figure.savefig(path)
