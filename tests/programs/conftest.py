"""Counts of outcomes, printed at the end."""

from __future__ import annotations

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                counts.update(dict(getattr(report, "user_properties", ())).get("sequence", ()))
    if counts:
        shown = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
        terminalreporter.write_line(f"sequences of calls: {shown}")
