"""What one run of benchmarks/gpu.py found: as JSON, as Markdown, and in a few lines.

    report = Report(environment, gpu=True, copies=[...], rows=[...])
    report.write(folder, "gpu-some-device")     .json and .md
    Report.merged([Report.read(path), ...])     parts of one run, measured one after the other
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tables import geometric_mean, markdown, number, shown

SIDES = ("gradof", "eager", "torch.compile")
PASSES = ("forward", "backward", "together")
TARGET = 0.85  # of a copy's bandwidth
NO_GPU = (
    "DRY RUN: tiny arrays on a CPU, kernels in triton's interpreter. "
    "No figure here is a GPU figure."
)
SAME = ("device", "driver", "CUDA", "torch", "triton", "gradof")


@dataclass
class Row:
    """One workload of one size and dtype; seconds by pass and side."""

    workload: str
    size: str
    dtype: str
    products: bool
    judged: bool
    formulas: dict[str, str]
    nbytes: dict[str, int]
    device: dict[str, dict[str, float]] = field(default_factory=dict)
    host: dict[str, dict[str, float]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    errors: dict[str, list[float]] = field(default_factory=dict)  # [found, allowed]
    kernels: dict[str, int] = field(default_factory=dict)
    launches: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # gpu_profile.Launch
    left_out: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Such as `softmax bf16 16384x4096`."""
        return f"{self.workload} {self.dtype} {self.size}"

    def seconds(self, which: str, side: str, waited: bool = False) -> float:
        """Of the device; or what a caller waits, the longer of device and host. NaN if missing."""
        device = self.device.get(which, {}).get(side, math.nan)
        host = self.host.get(which, {}).get(side, math.nan)
        return max(device, host) if waited else device

    def ratio(self, which: str, peer: str = "torch.compile", waited: bool = False) -> float:
        """The peer's time over gradof's; above 1 gradof is faster."""
        return self.seconds(which, peer, waited) / self.seconds(which, "gradof", waited)

    def bandwidth(self, which: str, side: str = "gradof") -> float:
        """Bytes that must be moved, per second of the device."""
        return self.nbytes[which] / self.seconds(which, side)

    def merge(self, other: Row) -> None:
        """Take over what only the other part measured."""
        for name in ("device", "host", "first", "errors", "kernels", "launches", "left_out"):
            setattr(self, name, {**getattr(other, name), **getattr(self, name)})
        self.failed = list(dict.fromkeys([*self.failed, *other.failed]))


@dataclass
class Report:
    """All of one run."""

    environment: dict[str, str]
    gpu: bool
    copies: list[float] = field(default_factory=list)  # bytes per second, before and after
    rows: list[Row] = field(default_factory=list)

    @property
    def copy(self) -> float:
        """The best copy, against which shares are told."""
        return max(self.copies, default=math.nan)

    def share(self, row: Row, which: str, side: str = "gradof") -> float:
        """Of the bandwidth of a copy."""
        return row.bandwidth(which, side) / self.copy

    @property
    def times(self) -> str:
        """Whose times these are."""
        return "device time" if self.gpu else "CPU time in the interpreter"

    @property
    def failures(self) -> list[str]:
        """What is wrong, with the workload's name."""
        return [f"{row.name}: {why}" for row in self.rows for why in row.failed]

    # --- text -------------------------------------------------------------------------------

    def summary(self) -> list[str]:
        """Means, least, shares of a copy, first gradients, failures."""
        lines = [] if self.gpu else [NO_GPU]
        for which in PASSES:
            lines += self._ratios(which, "torch.compile") + self._ratios(which, "eager")
        lines += self._ratios("together", "torch.compile", waited=True)
        lines += self._shares() + self._firsts() + self._left_out()
        return lines + [f"FAILED: {why}" for why in self.failures]

    def _ratios(self, which: str, peer: str, waited: bool = False) -> list[str]:
        found = {row.name: row.ratio(which, peer, waited) for row in self.rows if row.device}
        found = {name: r for name, r in found.items() if not math.isnan(r)}
        if not found:
            return []
        least = min(found, key=lambda name: found[name])
        what = "time a caller waits" if waited else self.times
        return [f"{which}, {what}: geometric mean of {peer} / gradof "
                f"{geometric_mean(found.values()):.2f}, least {found[least]:.2f} ({least}), "
                f"{len(found)} cases"]  # fmt: skip

    def _left_out(self) -> list[str]:
        cases: dict[str, list[str]] = {}
        for row in self.rows:
            for side, why in row.left_out.items():
                cases.setdefault(f"{side}: {why}", []).append(row.name)
        return [f"left out: {what} ({', '.join(names)})" for what, names in cases.items()]

    def _shares(self) -> list[str]:
        lines: list[str] = []
        if not self.gpu:
            return lines
        for workload in dict.fromkeys(row.workload for row in self.rows if row.judged):
            found = {
                f"{which} {row.dtype} {row.size}": self.share(row, which)
                for row in self.rows if row.workload == workload and row.device
                for which in PASSES[:2]
            }  # fmt: skip
            if found:
                least = min(found, key=lambda name: found[name])
                reached = sum(share >= TARGET for share in found.values())
                lines.append(
                    f"{workload}: {reached} of {len(found)} reach {TARGET:.0%} of a copy's "
                    f"bandwidth; least {found[least]:.0%} ({least})"
                )
        return lines

    def _firsts(self) -> list[str]:
        found = {
            row.name: row.first["gradof"] / row.first["torch.compile"]
            for row in self.rows if {"gradof", "torch.compile"} <= set(row.first)
        }  # fmt: skip
        if not found:
            return []
        most = max(found, key=lambda name: found[name])
        mean, fifth = geometric_mean(found.values()), sum(r <= 0.2 for r in found.values())
        return [
            f"first gradient: geometric mean of gradof / torch.compile {mean:.2f}, most "
            f"{found[most]:.2f} ({most}); a fifth or less: {fifth} of {len(found)}"
        ]

    def tables(self) -> dict[str, list[list[str]]]:
        """Cells of each table by its title, the head first."""
        found = {}
        case = ["workload", "dtype", "size"]
        timed = [row for row in self.rows if row.device]
        for which in PASSES:
            head = [*case, *SIDES, "torch.compile / gradof", "eager / gradof", "GB/s", "of a copy"]
            found[f"{which}: {self.times}"] = [head, *(self._timed(row, which) for row in timed)]
        found["both together: host time to queue it"] = [
            [*case, *SIDES], *([*_case(r), *_seconds(r.host["together"])] for r in timed)
        ]  # fmt: skip
        found["first gradient, fresh process, empty caches"] = [
            [*case, *SIDES], *([*_case(r), *_seconds(r.first)] for r in self.rows if r.first)
        ]  # fmt: skip
        found["gradients, judged by float64"] = [
            [*case, "kernels forward", "kernels backward", "worst", "error / allowed"],
            *([*_case(r), *(str(r.kernels.get(k, "-")) for k in PASSES[:2]), *_worst(r)]
              for r in self.rows if r.errors),
        ]  # fmt: skip
        found["what gradof runs on the device, in one pass"] = [
            [*case, "pass", "kernel", "launches", "time of one", "registers", "spilled", "warps"],
            *([*_case(r), which, *_launch(launch)]
              for r in self.rows for which, launches in r.launches.items() for launch in launches),
        ]  # fmt: skip
        formulas = {r.workload: r.formulas for r in self.rows if r.formulas}
        found["bytes that must be moved (together: the sum)"] = [
            ["workload", *PASSES[:2]],
            *([name, *(f[which] for which in PASSES[:2])] for name, f in formulas.items()),
        ]
        return {title: cells for title, cells in found.items() if len(cells) > 1}

    def _timed(self, row: Row, which: str) -> list[str]:
        share = self.share(row, which)
        return [
            *_case(row), *_seconds(row.device[which]), number(row.ratio(which)),
            number(row.ratio(which, "eager")), f"{row.bandwidth(which) / 1e9:.4g}",
            "products" if row.products else f"{share:.0%}",
        ]  # fmt: skip

    def text(self) -> str:
        """The Markdown page."""
        lines = ["# Benchmarks on a GPU" if self.gpu else "# A dry run of the GPU benchmarks", ""]
        lines += [f"- {key}: {value}" for key, value in self.environment.items()]
        copies = ", ".join(f"{c / 1e9:.4g}" for c in self.copies)
        lines += [f"- copy bandwidth, GB/s: {copies}", "", *(f"- {x}" for x in self.summary())]
        for title, (head, *cells) in self.tables().items():
            lines += ["", f"## {title}", *markdown(head, cells)]
        return "\n".join(lines) + "\n"

    # --- files ------------------------------------------------------------------------------

    def write(self, folder: Path, name: str) -> None:
        """`name`.json and `name`.md."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(asdict(self), indent=1) + "\n")
        (folder / f"{name}.md").write_text(self.text())

    @staticmethod
    def read(path: Path) -> Report:
        """What `write` wrote as JSON."""
        found: dict[str, Any] = json.loads(path.read_text())
        return Report(**{**found, "rows": [Row(**row) for row in found["rows"]]})

    @staticmethod
    def merged(parts: Sequence[Report]) -> Report:
        """One report of all parts; SystemExit where they are not of one device and one gradof."""
        whole = parts[0]
        rows = {row.name: row for row in whole.rows}
        for part in parts[1:]:
            other = [k for k in SAME if part.environment.get(k) != whole.environment.get(k)]
            if other or part.gpu != whole.gpu:
                raise SystemExit(f"these parts differ in {', '.join(other) or 'having a GPU'}")
            whole.copies += part.copies
            for row in part.rows:
                if row.name in rows:
                    rows[row.name].merge(row)
                else:
                    rows[row.name] = row
        whole.rows = list(rows.values())
        return whole


def _case(row: Row) -> list[str]:
    return [row.workload, row.dtype, row.size]


def _seconds(by_side: dict[str, float]) -> list[str]:
    return [shown(by_side[side]) if side in by_side else "-" for side in SIDES]


def _worst(row: Row) -> list[str]:
    reach = {name: _reach(pair) for name, pair in row.errors.items()}
    worst = max(reach, key=lambda name: reach[name])
    return [worst, number(reach[worst])]


def _launch(launch: dict[str, Any]) -> list[str]:
    known = ("registers", "spills", "warps")
    figures = ["-" if launch[name] is None else str(launch[name]) for name in known]
    return [launch["name"], f"{launch['count']:g}", shown(launch["seconds"]), *figures]


def _reach(pair: Iterable[float]) -> float:
    error, allowed = pair
    return error / allowed if allowed else (math.inf if error else 0.0)
