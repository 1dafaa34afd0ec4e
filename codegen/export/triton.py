'''f and df as one module that imports torch and triton only: kernels, launchers, autograd.Function.

    class RmsNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            rsqrt, y = rms_norm_forward(x, weight)          # a launcher and its kernel
            ctx.save_for_backward(x, weight, rsqrt)
            return y
        @staticmethod
        @once_differentiable
        def backward(ctx, dy):
            x, weight, rsqrt = ctx.saved_tensors
            dx, dweight = rms_norm_backward(dy, ...)
            return dx, dweight

What no kernel computes is one torch call each (`torch_ops`).
'''

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradof import tuning
from gradof.codegen.export.launchers import Launcher, write_launcher
from gradof.codegen.export.naming import (
    POSTFIX,
    RESERVED,
    VIEWS,
    Identifiers,
    named_copy,
    users_lines,
    values_of,
)
from gradof.codegen.export.readable import comment, wrapped
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.lowering.scalar import expand_scalars
from gradof.codegen.lowering.torch_ops import (
    HELPERS,
    has_form,
    needed_helpers,
    torch_expression,
)
from gradof.codegen.triton.emit import HEADER, form_of
from gradof.codegen.triton.helpers import needed
from gradof.codegen.triton.interpreted import in_triton
from gradof.codegen.triton.ops import literal, statements
from gradof.codegen.triton.split_reductions import take_totals
from gradof.errors import CodegenError
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import ScalarType, TensorType

IMPORTS = (
    f"import torch\n{HEADER}from torch.autograd.function import once_differentiable\n"
)
INDEX_TYPE = '''def index_type(*tensors):
    """int64 where elements of a tensor lie further apart than int32 can say."""
    reach = max(sum((n - 1) * s for n, s in zip(t.shape, t.stride())) for t in tensors)
    return tl.int64 if reach >= 2**31 else tl.int32
'''


@dataclass(frozen=True)
class Halves:
    """f and df in primitives, and the lists of `Gradient` that join them.

    `df` takes, in this order: the cotangents of f's outputs `vjps`, f's inputs `saved_inputs`, f's
    outputs `saved_outputs`. It gives the gradients of f's inputs `wanted`.
    """

    f: Graph
    df: Graph
    real_outputs: int
    vjps: tuple[int, ...]
    saved_inputs: tuple[int, ...]
    saved_outputs: tuple[int, ...]
    wanted: tuple[int, ...]
    differentiable: tuple[int, ...]  # of f's outputs; df need not read every cotangent


@dataclass(frozen=True)
class Module:
    """Source of everything but the public function, and the name of the class it is to apply."""

    source: str
    function_class: str


def write_module(halves: Halves, name: str) -> Module:
    """The module of a function called `name`; CodegenError naming an op that has no torch form."""
    return _Module(halves, name).write()


PARTIAL = "# Combines partial results, one row of them per program, in their order."


class _Module:
    def __init__(self, halves: Halves, name: str) -> None:
        self.halves, self.name = halves, name
        if name in RESERVED:
            raise CodegenError(f"the file has something else called {name}", hint="rename it")
        self.class_name = "".join(p[:1].upper() + p[1:] for p in name.split("_")) or "Function"
        if self.class_name == name or len(self.class_name) == 1:
            self.class_name += "Function"
        self.names = Identifiers({*RESERVED, name, self.class_name})
        hints = {v.hint for v in values_of(halves.f) if v.hint}
        self.users = hints | {f"d{hint}" for hint in hints}
        self.texts = users_lines(halves.f, halves.df)
        self.in_range: set[tuple[object, ...]] = set()  # indices that were compared with a size

    def write(self) -> Module:
        h = self.halves
        f = named_copy(h.f, h.f.outputs[: h.real_outputs])
        forward = _Half(f, f"{self.name}_forward", self)
        inputs = [self.names.fresh(v.hint or "x") for v in f.inputs]
        lines = forward.statements(inputs)
        outputs = [forward.names[v] for v in forward.graph.outputs]
        results, more = forward.results(h.real_outputs)
        arguments = [
            *(self.names.fresh(f"d{results[i]}") for i in h.vjps),
            *(inputs[i] for i in h.saved_inputs),
            *(outputs[i] for i in h.saved_outputs),
        ]
        df = named_copy(h.df, (), arguments, {i: f"d{inputs[i]}" for i in h.wanted})
        backward = _Half(df, f"{self.name}_backward", self)
        backward_lines = backward.statements(arguments)
        gradients = [backward.names[v] for v in backward.graph.outputs]
        saved = list(dict.fromkeys(arguments[len(h.vjps) :]))
        body = self.forward([*lines, *more], inputs, results, saved)
        body += ["", *self.backward(backward_lines, arguments, saved, gradients)]
        parts = _definitions([*forward.launchers, *backward.launchers], body)
        parts.append("\n".join(body) + "\n")
        return Module("\n\n".join(parts), self.class_name)

    def checked(self, node: Node, operands: Sequence[str]) -> str | None:
        """The expression of an index that was found to be in range before."""
        if node.kind != "in_range":
            return None
        (x,), size, wraps = operands, node.attrs["size"], node.attrs["wraps"]
        if (x, size, wraps) in self.in_range:
            return f"torch.where({x} < 0, {x} + {size}, {x})" if wraps else x
        self.in_range.add((x, size, wraps))
        return None

    def forward(
        self, lines: Sequence[str], inputs: Sequence[str], results: Sequence[str],
        saved: Sequence[str],
    ) -> list[str]:  # fmt: skip
        constant = [name for k, name in enumerate(results) if k not in self.halves.differentiable]
        return [
            f"class {self.class_name}(torch.autograd.Function):",
            f'    """{self.name}: kernels for its value, and kernels for its gradient."""',
            "",
            "    @staticmethod",
            *wrapped(f"def forward(ctx, {', '.join(inputs)}):", 4, 8),
            *lines,
            *(wrapped(f"ctx.save_for_backward({', '.join(saved)})", 8) * bool(saved)),
            *(wrapped(f"ctx.mark_non_differentiable({', '.join(constant)})", 8) * bool(constant)),
            *wrapped(f"return {', '.join(results)}", 8),
        ]

    def backward(
        self, lines: Sequence[str], arguments: Sequence[str], saved: Sequence[str],
        gradients: Sequence[str],
    ) -> list[str]:  # fmt: skip
        h = self.halves
        given = dict(zip(h.vjps, arguments, strict=False))
        cotangents = [given.get(k, f"_{k}") for k in range(h.real_outputs)]
        by_input = dict(zip(h.wanted, gradients, strict=True))
        results = [by_input.get(k, "None") for k in range(len(h.f.inputs))]
        comma = "," if len(saved) == 1 else ""
        return [
            "    @staticmethod",
            "    @once_differentiable",
            *wrapped(f"def backward(ctx, {', '.join(cotangents)}):", 4, 8),
            *(wrapped(f"{', '.join(saved)}{comma} = ctx.saved_tensors", 8) if saved else ()),
            *lines,
            *wrapped(f"return {', '.join(results)}", 8),
        ]


class _Half:
    """The statements of one graph, and the launchers they call."""

    def __init__(self, graph: Graph, role: str, module: _Module) -> None:
        self.graph = expand_scalars(fuse(graph, _in_file, lambda group: True), has_form)
        self.role, self.module, self.taken = role, module, module.names
        self.names: dict[Value, str] = {}
        self.base: dict[Value, Value] = {}  # what a view is a view of
        self.launchers: list[Launcher] = []
        self.several = sum(n.kind == "FusionGroup" for n in self.graph.nodes()) > 1
        self.line = ""  # of the user's, as the last comment has it

    def statements(self, inputs: Sequence[str]) -> list[str]:
        """One per node, within a method."""
        self.names.update(zip(self.graph.inputs, inputs, strict=True))
        self.device = f"{inputs[0]}.device"
        lines: list[str] = []
        for node in self.graph.nodes():
            lines += self.group(node) if node.kind == "FusionGroup" else self.call(node)
        return lines

    def results(self, count: int) -> tuple[list[str], list[str]]:
        """Names of the first outputs, and statements that make them tensors of their own."""
        names, lines = [], []
        seen: set[Value] = set()
        for value in self.graph.outputs[:count]:
            base, name = self.base.get(value, value), self.names[value]
            borrowed = base.node is None or base.node.kind == "Constant" or base in seen
            seen.add(base)
            if borrowed:
                own = self.taken.fresh("result")
                lines.append(f"        {own} = {name}.clone()  # shares no memory")
                name = own
            names.append(name)
        return names, lines

    def fresh(self, value: Value) -> str:
        name = self.names[value] = self.taken.fresh(value.hint or "x")
        return name

    def group(self, node: Node) -> list[str]:
        if not node.inputs:
            raise CodegenError(f"a kernel of {self.role} reads no tensor", loc=node.loc)
        operands = [self.names[v] for v in node.inputs]
        nest = schedule(node, self.role)
        return self.launches(nest, operands, [self.fresh(v) for v in node.outputs])

    def launches(
        self, nest: LoopNest, operands: Sequence[str], results: Sequence[str]
    ) -> list[str]:
        """Calls of the launchers of a nest; a row too long for one program is taken apart."""
        tensors = [operands[k] for k in nest.reads]
        long = form_of(nest) == "persistent" and nest.n_columns > tuning.ROW_BLOCK
        parts = take_totals(nest) if long else None
        if parts is None:
            return self.launch(nest, operands, results)
        first = [
            results[parts.made.index(k)] if k in parts.made else self.taken.fresh(b.name or "total")
            for k, b in enumerate(parts.first.outputs)
        ]  # fmt: skip
        lines = self.launches(parts.first, operands, first)
        if parts.second is not None:
            every = [*tensors, *first]
            given = [every[k] for k in parts.given]
            distinct = list(dict.fromkeys(given))
            second = replace(parts.second, reads=tuple(map(distinct.index, given)))
            left = [results[k] for k, at in enumerate(parts.made) if at >= len(first)]
            lines += self.launches(second, distinct, left)
        return lines

    def launch(self, nest: LoopNest, operands: Sequence[str], results: Sequence[str]) -> list[str]:
        number = str(len(self.launchers)) if self.several else ""
        name = self.taken.fresh(f"{self.role}{number}")
        self.taken.taken.add(f"{name}_kernel")
        own = Identifiers(RESERVED)
        self.launchers.append(write_launcher(
            nest, name, [own.fresh(n) for n in operands], [own.fresh(n) for n in results],
            self.module.users, self.module.texts,
        ))  # fmt: skip
        return wrapped(f"{', '.join(results)} = {name}({', '.join(operands)})", 8)

    def call(self, node: Node) -> list[str]:
        operands = [self.names[v] for v in node.inputs]
        text = self.module.checked(node, operands) or torch_expression(node, operands, self.device)
        if node.kind == "Constant" and isinstance(node.output.type, ScalarType):
            self.names[node.output] = text
            return []
        if node.kind in VIEWS:
            source = node.inputs[0]
            self.base[node.output] = self.base.get(source, source)
            if text.isidentifier() or (node.kind in POSTFIX and self.is_operand(node.output)):
                self.names[node.output] = text
                return []
            if len(source.uses) == 1 and source.hint == node.output.hint and source.node:
                name = self.names[node.output] = self.names[source]
                return wrapped(f"{name} = {text}", 8)
        names = [self.fresh(v) for v in node.outputs]
        return [*self.comment(node), *wrapped(f"{', '.join(names)} = {text}" if names else text, 8)]

    def is_operand(self, value: Value) -> bool:
        """Whether one call reads the value, and nobody has a name for it."""
        users = [use.node for use in value.uses]
        return (
            len(users) == 1 and users[0].kind not in ("FusionGroup", *VIEWS)
            and users[0] is not self.graph.block.returns and value.hint not in self.module.users
        )  # fmt: skip

    def comment(self, node: Node) -> list[str]:
        line = str(node.loc or "")
        if line in ("", self.line):
            return []
        self.line = line
        return [comment(line, self.module.texts.get(line, ""), 8)]


def _in_file(node: Node) -> bool:
    """Whether the node can be part of a kernel that runs in Triton's interpreter as it is.

    libdevice is not there; what needs it is a torch call of its own.
    """
    if node.kind == "in_range":  # an error of Python's
        return False
    if not in_triton(node) or not has_trait(node.kind, "elementwise"):
        return in_triton(node)
    assert isinstance(node.output.type, TensorType)
    arguments, given = [], []
    for k, value in enumerate(node.inputs):
        number = value.node if isinstance(value.type, ScalarType) else None
        if number is not None and number.kind == "Constant":
            arguments.append(literal(number.attrs["value"]))
        else:
            arguments.append(f"x{k}")
            given += [value.type.dtype] if isinstance(value.type, TensorType) else []
    if node.kind == "where" and arguments[0] == "x0":
        given = given[1:]
    made = statements("y", node.kind, node.output.type.dtype, arguments, given, node.attrs)
    text = "\n".join(expression for _, expression in made)
    return not any("libdevice." in part for part in (text, *needed(text)))


def _definitions(launchers: Sequence[Launcher], body: Sequence[str]) -> list[str]:
    """Helpers, then each launcher after its kernel."""
    shared: dict[str, str] = {}
    pairs: list[str] = []
    for launcher in launchers:
        for name, text in launcher.kernels.items():
            if name == f"{launcher.name}_kernel":
                pairs.append(text + "\n")
                continue
            text = f"{PARTIAL}\n{text}" if name.startswith("combine_") else text
            if shared.setdefault(name, text) != text:
                raise CodegenError(f"two kernels called {name} would be in one file")
        pairs.append(launcher.source)
    helpers = [HELPERS[name] for name in needed_helpers("\n".join(body))]
    if launchers:
        helpers.insert(0, INDEX_TYPE)
    return [*helpers, *(text + "\n" for text in shared.values()), *pairs]
