"""`docs/autograd.md`, from what the suite and the examples of `make autograd` have found."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "autograd.md"
FOUND = ROOT / "build" / "autograd"
_FINE = ("passed", "skipped")

_HEAD = """# HIPS autograd's own tests and examples
Written by `make autograd`; autograd {autograd}, numpy {numpy}, scipy {scipy}, Python {python}, \
one thread.

autograd's source distribution is downloaded, and in its tests and examples `autograd` is replaced
by `gradof.autograd` in every import. Nothing else is changed in the tests.
"""
_EXAMPLES = """## Examples
Each example runs with autograd and with gradof, in a process of its own; optimizers take {steps}
steps. What both print, and the sums of squares of what they plot, are compared number by number.
*s*: processor seconds of the whole process, imports, tracing and compilation included. Where
numbers differ by more than 1e-6, the example is run with autograd once more, at points that are an
ulp off: an iteration that amplifies rounding moves its own results as far.
`benchmarks/autograd_examples.py` lists what is changed in the files, on both sides: what today's
numpy refuses, prints within differentiated functions, and random images in place of MNIST's.

**{good} of {total}** as autograd's own.

| example | autograd, s | gradof, s | |
|---|---|---|---|
"""


def write(part: str, found: dict[str, Any]) -> None:
    """Keep what "tests" or "examples" have found, and write the page of both."""
    FOUND.mkdir(parents=True, exist_ok=True)
    (FOUND / f"{part}.json").write_text(json.dumps(found), encoding="utf-8")
    kept = {p: FOUND / f"{p}.json" for p in ("tests", "examples")}
    if all(path.is_file() for path in kept.values()):
        parts = {p: json.loads(path.read_text(encoding="utf-8")) for p, path in kept.items()}
        PAGE.write_text(page(parts["tests"], parts["examples"]), encoding="utf-8")
        print(f"written: {PAGE}")


def page(tests: dict[str, Any], examples: dict[str, Any]) -> str:
    """The whole page."""
    head = _HEAD.format(
        autograd=tests["version"], numpy=version("numpy"), scipy=version("scipy"),
        python=platform.python_version(),
    )  # fmt: skip
    return "\n".join([head, _tests(tests), _examples(examples)])


def _tests(tests: dict[str, Any]) -> str:
    outcomes: dict[str, dict[str, str]] = tests["outcomes"]
    wanted = {name: outcomes[name] for name in tests["wanted"]}
    passed, total = counted(wanted.values())
    lines = [
        "## Tests",
        f"**{passed} of {total}**, {passed / max(total, 1):.1%}, of {', '.join(wanted)}; of all "
        "files {} of {}.\n".format(*counted(outcomes.values())),
        "| file | passed | of | not passed, and why |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, of_file in outcomes.items():
        good, number = counted([of_file])
        bad = [f"`{t}`: {_cell(o)}" for t, o in of_file.items() if not o.startswith(_FINE)]
        lines.append(f"| {name} | {good} | {number} | {'<br>'.join(bad)} |")
    return "\n".join([*lines, ""])


def _examples(examples: dict[str, Any]) -> str:
    rows = examples["rows"]
    good = sum(row["good"] for row in rows)
    text = _EXAMPLES.format(steps=examples["steps"], good=good, total=len(rows))
    return text + "\n".join(
        f"| {r['name']} | {r['theirs']:.1f} | {r['ours']:.1f} | {_cell(r['outcome'])} |"
        for r in rows
    ) + "\n"  # fmt: skip


def counted(files: Iterable[dict[str, str]]) -> tuple[int, int]:
    """How many tests pass, and of how many that are not skipped."""
    outcomes = [o for of_file in files for o in of_file.values() if not o.startswith("skipped")]
    return sum(o == "passed" for o in outcomes), len(outcomes)


def _cell(text: Any) -> str:
    return " ".join(str(text).replace("|", "/").replace("`", "'").split())[:160]

