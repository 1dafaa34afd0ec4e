"""Every cited Note exists, once. A Note is a line with its title alone, and text below it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("gradof", "tracer", "autodiff", "codegen", "examples", "benchmarks", "tests", "docs")

MENTION = re.compile(r"Note \[([^\]\n]+)\]")
DEFINITION = re.compile(r"^[#\s]*Note \[([^\]\n]+)\]\s*$", re.MULTILINE)


def texts() -> dict[Path, str]:
    files = [*ROOT.glob("*.md")]
    for folder in FOLDERS:
        files += [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]
    # This file and CONTRIBUTING.md speak about the form, not about a Note.
    about = {Path(__file__), ROOT / "CONTRIBUTING.md"}
    return {file: file.read_text(encoding="utf-8") for file in files if file not in about}


def test_every_note_cited_is_written_exactly_once() -> None:
    pages = texts()
    defined = Counter(title for text in pages.values() for title in DEFINITION.findall(text))
    assert defined, "no Note was found at all: has their form changed?"
    twice = [title for title, count in defined.items() if count > 1]
    assert not twice, f"written more than once: {twice}"
    missing = [
        f"{file.relative_to(ROOT)} cites Note [{title}], which nobody wrote"
        for file, text in pages.items()
        for title in MENTION.findall(text)
        if title not in defined
    ]
    assert not missing, "\n".join(missing)
