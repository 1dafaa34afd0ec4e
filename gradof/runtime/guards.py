"""Which of several traced paths a call takes, by the values the function reads.

    paths.find(inputs)      the entry whose Guards hold, or None: another path is due

Each path keeps the part of its graph that decides. One that fails tells at which Guard and what it
saw there; paths that expect something else are not tried, because the same function comes to the
same Guards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gradof.codegen import Executable, compile_graph, devices_of
from gradof.codegen.host.evaluate import interpret
from gradof.errors import PathLimitError
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node
from gradof.ir.forks import cached_property
from gradof.ir.opinfo import has_trait
from gradof.ops.guard import GuardFailed, Number, same_number
from gradof.passes.guards import guards_of, path_part
from gradof.passes.pipeline import CLEAN_UP, run_passes
from gradof.passes.roll_loops import roll_loops
from gradof.runtime.arrays import as_numpy
from gradof.tracer.state.generators import GLOBAL, Rewound


class Decisions:
    """The Guards of one path, and the code that checks them."""

    def __init__(
        self, graph: Graph, library: Literal["numpy", "torch"], generators: Sequence[Any] = ()
    ) -> None:
        self.graph = graph
        self.generators = generators
        self.library = library
        self.nodes = tuple(guards_of(graph))
        self.values: tuple[Number, ...] = tuple(n.attrs["value"] for n in self.nodes)  # type: ignore[misc]  # the op's inference asks for numbers
        self.random = any(has_trait(n.kind, "random") for n in graph.walk())

    @cached_property
    def executable(self) -> Executable:
        """The emitted check."""
        graph = clone_graph(self.graph)
        if len(self.nodes) == 1 and devices_of(graph) <= {"cpu"}:  # a Guard is in no Loop
            roll_loops(graph)
        run_passes(graph, ("expand-composites", *CLEAN_UP))
        return compile_graph(graph, library=self.library, name=f"{graph.name}_decides")

    def failure(self, inputs: list[Any]) -> GuardFailed | None:
        """What the first Guard that does not hold saw.

        None if all hold: `inputs` then end with what the path shares (Note [One mask for both]).
        """
        try:
            if self.library == "torch":
                from gradof.runtime.torch_bridge import run_check

                # torch's own are set back by the check
                with Rewound(g for g in self.generators if g in GLOBAL).again():
                    inputs += run_check(self.executable, inputs, self.random)
            else:
                with Rewound(self.generators).again():  # the path draws the same numbers
                    inputs += self.executable(*inputs)
        except GuardFailed as failed:
            return failed
        return None

    def supply(self, inputs: list[Any]) -> None:
        """Put what the path shares after the inputs of the call that was traced."""
        if not self.graph.outputs or self.failure(inputs) is None:
            return
        # the compiled check rounds to the other side: what the trace saw, op by op, is what counts
        arrays = [as_numpy(x) for x in inputs]
        graph = path_part(self.graph)
        if self.library == "torch":
            import torch

            with torch.random.fork_rng(devices=[]), Rewound(self.generators).again():
                shared = interpret(graph, arrays, library="torch")
            inputs += [torch.from_numpy(x).to(inputs[0].device) for x in shared]
        else:
            with Rewound(self.generators).again():
                inputs += interpret(graph, arrays)

    def may_follow(self, learnt: Sequence[Number]) -> bool:
        """Whether this path begins with the values already seen."""
        return all(map(same_number, learnt, self.values))


FEWER_PATHS = "keep the number a tensor, choose with where(), or round it before it is read"


def path_limit(name: str, paths: Sequence[Decisions]) -> PathLimitError:
    """The error for one path too many; names the lines whose values differ between paths."""
    most = _lines_read(paths)
    return PathLimitError(
        f"{name} took a new path, by values it reads, at each of {len(paths)} calls: "
        f"{lines_read(paths)}",
        loc=most[0][0] if most else None, hint=FEWER_PATHS,
    )


def lines_read(paths: Sequence[Decisions]) -> str:
    """The lines that read most values, and how many."""
    return "; ".join(f"{loc} ({len(seen)} values)" for loc, seen in _lines_read(paths))


def _lines_read(paths: Sequence[Decisions]) -> list[tuple[str, set[str]]]:
    lines: dict[str, set[str]] = {}
    for path in paths:
        for node in path.nodes:
            lines.setdefault(str(node.loc), set()).add(repr(node.attrs["value"]))
    return sorted(lines.items(), key=lambda item: -len(item[1]))[:3]


def render_tree(paths: Sequence[Decisions]) -> list[str]:
    """The tree of paths as lines of text: what was read where, and what it was."""
    return _branches([list(path.nodes) for path in paths], 1)


def _branches(paths: list[list[Node]], depth: int) -> list[str]:
    groups: dict[str, list[list[Node]]] = {}
    for path in paths:
        if path:
            groups.setdefault(repr(path[0].attrs["value"]), []).append(path)
    lines: list[str] = []
    for value, group in groups.items():
        # A run of reads that all paths of the group share is one line.
        node, shared = group[0][0], 1
        while all(len(p) > shared for p in group) and len(
            {(repr(p[shared].attrs["value"]), str(p[shared].loc)) for p in group}
        ) == 1 and str(group[0][shared].loc) == str(node.loc):
            if repr(group[0][shared].attrs["value"]) != value:
                break
            shared += 1
        times = f", {shared} times" if shared > 1 else ""
        lines.append(f"{'  ' * depth}{node.loc}: {value}{times}")
        lines += _branches([p[shared:] for p in group], depth + 1)
    return lines
