"""The section of docs/coverage.md on Triton, from what `triton_matrix` found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from gradof.codegen.triton.ops import NAMES
from gradof.ops.registry import Op, all_ops
from gradof.testing.coverage_page import TRITON, with_triton
from tests.codegen.triton_ops import SKIPPED, cases

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
WITHOUT = {
    "complex numbers, which Triton does not have": ("complex", "conj", "imag", "real"),
}
OTHERS = "functions that neither Triton nor libdevice has"


def primitives() -> list[Op]:
    """The elementwise ops that are computed, not expanded."""
    return [o for o in all_ops() if "elementwise" in o.traits and not o.is_composite]


def in_kernels() -> set[str]:
    """The primitives that can be in a kernel, for operands of some dtype."""
    return {*SKIPPED, *(op for op, _, _ in cases())}


def without() -> dict[str, list[str]]:
    """The primitives without a Triton expression, by the reason."""
    kernels = in_kernels()
    names = sorted(o.name for o in primitives() if o.name not in kernels)
    known = {name: why for why, given in WITHOUT.items() for name in given}
    found: dict[str, list[str]] = {why: [] for why in (*WITHOUT, OTHERS)}
    for name in names:
        found[known.get(name, OTHERS)].append(name)
    return found


def ops_lines() -> list[str]:
    """What follows from the table of expressions alone."""
    kernels = in_kernels()
    have = [o.name for o in primitives() if o.name in kernels]
    per_dtype = Counter({d: len({o for o, at, _ in cases() if at == d}) for d in NAMES})
    return [
        f"{len(have)} of {len(primitives())} elementwise primitives have a Triton expression; all "
        "others run beside the kernels. By dtype of the operands, those that only move numbers "
        "(`copy`, `where`) left out:",
        "",
        "| " + " | ".join(str(d) for d in per_dtype) + " |",
        "|---" * len(per_dtype) + "|",
        "| " + " | ".join(str(n) for n in per_dtype.values()) + " |",
        "",
        *(f"Without one, {why}: {', '.join(f'`{n}`' for n in names)}.\n"
          for why, names in without().items()),
    ]  # fmt: skip


_OF_GPUS = r".* (f32|f16|bf16)$"
GROUPS = {
    "ops, value": r"op f ",
    "ops, gradient": r"op df ",
    "workloads of the CPU benchmark, value and gradients": rf"workload (?!{_OF_GPUS})",
    "the same, with rows longer than a block": rf"workload, long rows (?!{_OF_GPUS})",
    "workloads of the GPU benchmark in f32, bf16 and f16": rf"workload {_OF_GPUS}",
    "the latter, with rows longer than a block": rf"workload, long rows {_OF_GPUS}",
}


def rows(found: Mapping[str, int]) -> list[str]:
    """A row of the table for each group of cases; `found`: kernels by case."""
    lines = []
    for title, pattern in GROUPS.items():
        counts = [n for name, n in found.items() if re.match(pattern, name)]
        lines.append(f"| {title} | {len(counts)} | {sum(counts)} |")
    return lines


def section(found: Mapping[str, int], compiled: Mapping[int, int]) -> str:
    """`compiled`: kernels by compute capability."""
    lines = [
        TRITON.rstrip(),
        f"Written by `python -m tests.codegen.triton_matrix`; triton {version('triton')}. Graphs "
        "run in Triton's interpreter, on a CPU, and are compared with whole numpy arrays, or "
        "with eager; their kernels are compiled to PTX. None of it ran on a GPU. Tests hold the "
        "numbers of graphs, and those of kernels, which depend on what is fused, to a tenth.",
        "",
        *ops_lines(),
        "| interpreted | graphs or programs | kernels |",
        "|---|---|---|",
        *rows(found),
        "",
        f"| compiled to PTX | {' | '.join(f'sm_{c}' for c in compiled)} |",
        "|---" * (len(compiled) + 1) + "|",
        f"| different kernels | {' | '.join(str(n) for n in compiled.values())} |",
        "",
    ]
    return "\n".join(lines) + "\n"


def write_section(page: Path, text: str) -> None:
    """Put the section into the page, in the place of the last one."""
    page.write_text(with_triton(page.read_text(), text))
