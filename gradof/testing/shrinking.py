"""The smallest program that is still wrong, as a Python file that runs.

    found = shrink(loss, (x, w), order=2)          # None where no part of it is wrong by itself
    print(found.source())                          # what `gradof check` writes

What the function does is recorded as calls with the values they had: calls of aten for torch
(`gradof.testing.torch_calls`), of numpy for numpy (`gradof.testing.numpy_calls`). Any subset of
the calls is a program: what a call outside it made is an input, with the value it had.

Note [Shrinking]
A program is as wrong as the whole if `check` finds it so, and in a value, a gradient or a second
gradient in which the whole is wrong too. First every call is tried alone, which is enough where
one op is wrong. Otherwise calls are left out in halves, quarters and so on (delta debugging), and
what is left is one from which no single call can be left out. Then sizes are cut to 1, 2 or a half,
and numbers that are equal to a size with them. A candidate that is no program any more, because
shapes no longer fit or because nothing in it can be differentiated, raises and is passed over.

Where no program of calls is wrong by itself, None is found: then what is wrong needs the function
as it stands, and the report's line of the user's code is where to look.
"""

from __future__ import annotations

import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gradof.runtime.arrays import is_array, is_tensor
from gradof.testing.literals import array_source
from gradof.testing.report import Report
from gradof.tracer.core.pytree import flatten

SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class Call:
    """One call. `text(sizes)` is its source, numbers n among its arguments as `sizes[n]`.

    Of a `block` the source are statements, which assign what it writes.
    """

    text: Callable[[Mapping[int, int]], str] | None  # None: the library has no such call
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    loc: str
    unpack: bool = False
    block: bool = False


@dataclass(frozen=True)
class Program:
    """Calls, the values of everything they read, and which of those are differentiated."""

    name: str
    library: Literal["numpy", "torch"]
    calls: tuple[Call, ...]
    values: Mapping[str, Any]
    grads: frozenset[str]
    results: frozenset[str]  # of the whole function
    sizes: tuple[tuple[int, int], ...] = ()  # cut: from, to
    order: int = 1
    seed: int = 0
    says: tuple[str, ...] = ()

    @property
    def inputs(self) -> list[str]:
        """What the calls read and do not make, in order of use."""
        made: set[str] = set()
        found: dict[str, None] = {}
        for call in self.calls:
            found.update((name, None) for name in call.reads if name not in made)
            made.update(call.writes)
        return list(found)

    @property
    def outputs(self) -> list[str]:
        """What no call reads, or the whole function returns."""
        read = {name for call in self.calls for name in call.reads}
        made = [name for call in self.calls for name in call.writes]
        wanted = [n for n in made if n in self.results or n not in read]
        return [n for n in wanted if is_array(self.values[n]) or is_tensor(self.values[n])]

    def value(self, name: str) -> Any:
        """An input's value, sizes cut."""
        value = self.values[name]
        for size, cut in self.sizes:
            value = value[tuple(slice(cut) if n == size else slice(None) for n in value.shape)]
        return value

    def body(self) -> str:
        """The function's source."""
        lines = [f"def program({', '.join(self.inputs)}):"]
        for call in self.calls:
            assert call.text is not None
            text = call.text(dict(self.sizes))
            if call.block:
                lines.append(textwrap.indent(text, "    "))
                continue
            names = ", ".join(call.writes) + ("," if len(call.writes) == 1 and call.unpack else "")
            loc = f"  # {call.loc}" if call.loc else ""
            lines.append(f"    {names} = {text}{loc}")
        return "\n".join([*lines, f"    return {', '.join(self.outputs)}", ""])

    def function(self) -> Callable[..., Any]:
        """The function itself, from its source."""
        space: dict[str, Any] = {"__name__": "program"}
        exec(_imports(self.library), space)
        exec(compile(self.body(), "<program>", "exec"), space)
        function: Callable[..., Any] = space["program"]
        return function

    def arguments(self) -> tuple[Any, ...]:
        """Fresh inputs."""
        if self.library == "numpy":
            return tuple(self.value(n).copy() for n in self.inputs)
        return tuple(self.value(n).clone().requires_grad_(n in self.grads) for n in self.inputs)

    def source(self) -> str:
        """The runnable file."""
        made = [
            f"    {n} = {array_source(self.value(n), self.library, n in self.grads)}"
            for n in self.inputs
        ]
        names = "".join(f"{n}, " for n in self.inputs)
        call = f"check(program, inputs(), order={self.order}, seed={self.seed})"
        return _file(
            self.name, self.says, _imports(self.library), "from gradof.testing import check",
            self.body(), ["def inputs():", *made, f"    return ({names.rstrip()})"], call,
        )  # fmt: skip


def _imports(library: str) -> str:
    if library == "numpy":
        return "import numpy as np\nfrom numpy import inf, nan\n"
    return "import torch\nfrom torch import inf, nan\n\naten = torch.ops.aten\n"


def _file(
    name: str, says: Sequence[str], imports: str, own: str, body: str, inputs: list[str], call: str
) -> str:
    head, _, rest = imports.partition("\n\n")
    quoted = [line.replace("\\", "\\\\").replace('"""', "'''") for line in says]
    return "\n".join([
        f'"""The smallest part of {name} for which gradof is wrong, as `gradof check` found it.',
        "", *quoted, "",
        "Run this file, or pytest on it: it raises GradientMismatchError as long as that is so.",
        '"""', "", head.rstrip(), "", own, "", *([rest.rstrip(), ""] if rest else []),
        "", body.rstrip(), "", "", *inputs, "", "",
        "def test_program():", f"    {call}", "", "",
        'if __name__ == "__main__":', "    test_program()", "",
    ])  # fmt: skip


def shrink(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *,
    order: int = 1, seed: int = 0, report: Report | None = None, seconds: float = SECONDS,
) -> Program | None:  # fmt: skip
    """The smallest part of a function that `check` finds wrong; see Note [Shrinking].

    `report` is that of the whole, if there is one already. None where no part is wrong by itself,
    or where what the function does cannot be written as calls.
    """
    from gradof.testing import check

    if report is None:
        report = check(fn, args, kwargs, order=order, seed=seed, raise_on_error=False)
    if report.ok:
        return None
    if any(map(is_tensor, flatten((args, kwargs or {}))[0])):
        from gradof.testing.torch_calls import record
    else:
        from gradof.testing.numpy_calls import record
    whole = record(fn, args, kwargs or {})
    if whole is None:
        return None
    return Shrinker(report, seed, seconds).smallest(replace(whole, order=order, seed=seed))


def kinds(report: Report) -> set[str]:
    """What is wrong: an output, a gradient, a second gradient."""
    return {row.what.split()[0] for row in report.rows if not row.ok}


class Shrinker:
    """Makes a failing program smaller; what fails is what `judge` says."""

    def __init__(self, report: Report, seed: int, seconds: float) -> None:
        self.kinds = kinds(report)
        self.lines = {culprit.loc for culprit in report.culprits}
        self.until = time.monotonic() + seconds

    def judge(self, program: Program) -> Program | None:
        """The program with what is wrong, and to which order; None where nothing is."""
        from gradof.testing import check

        if not program.outputs or any(call.text is None for call in program.calls):
            return None
        if time.monotonic() > self.until:
            return None
        for order in range(1, program.order + 1):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    report = check(
                        program.function(), program.arguments(), order=order, seed=program.seed,
                        raise_on_error=False,
                    )  # fmt: skip
            except Exception:  # a candidate may be no program at all: Note [Shrinking]
                return None
            if not report.ok and kinds(report) & self.kinds:
                return replace(program, order=order, says=_says(report))
        return None

    def smallest(self, whole: Program) -> Program | None:
        """One call that fails alone, or calls none of which can be left out, sizes cut."""
        alone = sorted(whole.calls, key=lambda call: call.loc not in self.lines)
        for call in alone:
            found = self.judge(replace(whole, calls=(call,)))
            if found is not None:
                return self.smaller(found)
        found = self.judge(whole)
        return None if found is None else self.smaller(self.fewer(found))

    def fewer(self, program: Program) -> Program:
        """Delta debugging over the calls."""
        parts = 2
        while len(program.calls) > 1:
            for calls in _without_a_part(program.calls, parts):
                found = self.judge(replace(program, calls=calls))
                if found is not None:
                    program, parts = replace(found, order=program.order), max(parts - 1, 2)
                    break
            else:
                if parts >= len(program.calls):
                    break
                parts = min(parts * 2, len(program.calls))
        found = self.judge(program)
        return program if found is None else found

    def smaller(self, program: Program) -> Program:
        """Sizes cut, the largest first."""
        values = [program.values[n] for n in program.inputs]
        sizes = sorted({n for value in values for n in value.shape if n > 1}, reverse=True)
        for size in sizes:
            for cut in dict.fromkeys((1, 2, size // 2)):
                if cut >= size:
                    continue
                found = self.judge(replace(program, sizes=(*program.sizes, (size, cut))))
                if found is not None:
                    program = found
                    break
        return program


def _without_a_part(calls: tuple[Call, ...], parts: int) -> Iterator[tuple[Call, ...]]:
    for i in range(parts):
        start, end = i * len(calls) // parts, (i + 1) * len(calls) // parts
        yield calls[:start] + calls[end:]


def _says(report: Report) -> tuple[str, ...]:
    lines = [
        f"{row.what}, against {row.reference}: off by {row.error:.1e}, allowed {row.allowed:.1e}"
        for row in report.rows if not row.ok
    ]  # fmt: skip
    return (*lines, *(f"wrong op: {c.op}, {c.where}" for c in report.culprits))
