"""Graph → straight-line Python over torch tensors: a kernel per fusion group, torch for the rest.

    def loss_constants():
        global c0
        c0 = torch.from_numpy(array0).to(cuda_0)

    def loss(x, w):
        \"\"\"loss(x : f32[4,3]@cuda:0, w : f32[3,2]@cuda:0) -> (f32[]@cuda:0)\"\"\"
        h = torch.mm(x, w)  # mlp.py:7
        y, l = loss_kernel(h)  # mlp.py:8
        del h
        return (y, l)

Everything is queued on the current stream of the tensors' device. Constants are made once, before
the first run. What is returned is the caller's own: never an input, a constant, or one tensor
twice; but what is saved for df may be several views of one.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gradof.codegen.host.emitter import HostEmitter
from gradof.codegen.host.rehearse import Rehearsal
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.lowering.scalar import expand_scalars
from gradof.codegen.lowering.torch_calls import namespace, statement
from gradof.codegen.lowering.torch_ops import has_form, torch_expression
from gradof.codegen.machine.executable import Executable
from gradof.codegen.machine.source import as_tuple, identifier
from gradof.codegen.targets.choose import devices_of, home_of, triton_target
from gradof.codegen.targets.passes import run_target
from gradof.codegen.targets.target import Target
from gradof.codegen.triton.attention.kernel import flash_of
from gradof.codegen.triton.attention.replace import is_attention
from gradof.codegen.triton.launch import Launch
from gradof.errors import CodegenError
from gradof.ir.attrs import Dense
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import ScalarType, SizeType, TensorType
from gradof.passes.purity import is_pure
from gradof.passes.unroll_loops import unrolled

MakeKernel = Callable[[LoopNest, str], Any]
# Their results may share memory with their first operand.
VIEWS = frozenset({
    "alias", "again", "cast", "conj", "detach", "expand", "imag", "in_range", "once_differentiable",
    "permute", "real", "reshape", "slice", "to_device",
})  # fmt: skip
_WEAK = {"bool": "torch.bool", "int": "torch.int64", "float": "torch.float64",
         "complex": "torch.complex128"}  # fmt: skip
# What is computed once where its operands are constants.
FIXED = VIEWS - {"in_range"} | {"Constant"}


class TorchExecutable(Executable):
    """Emitted code that takes and returns torch tensors, all of one device but for numbers."""

    takes_tensors = True

    def __init__(
        self, name: str, source: str, namespace: dict[str, Any], kernels: Sequence[Any],
        devices: frozenset[str], consumed: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(name, source, namespace, kernels, consumed)
        self.devices = devices
        self._make_constants: Callable[[], None] | None = namespace.get(f"{name}_constants")
        self.rehearsal: Rehearsal | None = None  # until the first run
        self._kinds = tuple({device.partition(":")[0] for device in devices})
        self._lock = threading.Lock()

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Run on tensors, one per graph input; fresh tensors come back.

        Whatever torch raises passes through; torch.OutOfMemoryError gets a note that says where.
        """
        if len(tensors) != self._arity:
            raise CodegenError(f"{self.name} takes {self._arity} tensors, got {len(tensors)}")
        self._make_ready(tensors)
        return self._run(self.boxed(tensors))

    def consume(self, tensors: list[Any]) -> tuple[Any, ...]:
        """As `Executable.consume`."""
        if len(tensors) == self._arity:
            self._make_ready(tensors)
        return super().consume(tensors)

    def _make_ready(self, tensors: Sequence[Any]) -> None:
        if self._make_constants is not None:
            self._constants()
        if self.rehearsal is not None:
            self._rehearse(tensors)

    def _run(self, given: Sequence[Any]) -> tuple[Any, ...]:
        import torch

        try:
            for kind in self._kinds:
                if torch.is_autocast_enabled(kind):  # its casts are in the graph
                    with torch.autocast(kind, enabled=False):
                        return self._run(given)
            result: tuple[Any, ...] = self.function(*given)
        except torch.OutOfMemoryError as error:
            if not getattr(error, "__notes__", None):
                error.add_note(self._where(error))
            raise
        return result

    def _constants(self) -> None:
        """Make them, once. They are there for every stream, so this waits for the device.

        CodegenError inside a CUDA graph that the caller records: it would make them only when it
        is replayed.
        """
        import torch

        with self._lock:
            if self._make_constants is None:
                return
            devices = [torch.device(d) for d in self.devices if d.startswith("cuda")]
            if devices and torch.cuda.is_current_stream_capturing():
                raise CodegenError(
                    f"{self.name} runs for the first time while a CUDA graph is captured",
                    hint="call the function, and its backward, once before the capture",
                )
            self._make_constants()
            for device in devices:
                torch.cuda.current_stream(device).synchronize()
            self._make_constants = None

    def _rehearse(self, tensors: Sequence[Any]) -> None:
        """Have the kernels compiled that this first call launches."""
        import torch

        with self._lock:
            rehearsal, self.rehearsal = self.rehearsal, None
        on_device = any(t.is_cuda for t in tensors)
        if rehearsal is None or (on_device and torch.cuda.is_current_stream_capturing()):
            return
        rehearsal.compile_for(tensors)

    def _where(self, error: BaseException) -> str:
        """The statement of ours that was running, with the user's line."""
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.line for f in reversed(frames) if f.filename == self.filename), "its call")
        return (
            f"gradof: out of memory in {self.name}, at: {line}\n"
            "gradof: differentiate(..., memory_budget=0.5) saves less for the backward"
        )


def emit_torch(
    graph: Graph, name: str | None = None, *, fused: bool = True,
    make_kernel: MakeKernel = Launch, shown: int | None = None, consumed: Collection[int] = (),
) -> TorchExecutable:  # fmt: skip
    """Emit and compile a graph of primitives for torch tensors.

    Raises CodegenError, before anything runs, for an op that has no torch form; it names the op.
    Without `fused` every op is torch's own. The caller sees the first `shown` results, or all.
    Of the `consumed` inputs, by number, the code lets go as it runs: Note [Consumed inputs].
    """
    plain = Target("torch", "torch", ("round-weak-numbers",))
    graph = unrolled(graph)
    graph = run_target(graph, triton_target(graph, "torch") if fused else plain)
    graph = expand_scalars(graph, has_form)
    return _Emitter(graph, identifier(name or graph.name), make_kernel, shown).emit(consumed)


class _Emitter(HostEmitter):
    def __init__(
        self, graph: Graph, name: str, make_kernel: MakeKernel, shown: int | None
    ) -> None:  # fmt: skip
        super().__init__(graph, graph, namespace())
        self.shown = len(graph.outputs) if shown is None else shown
        self.make_kernel = make_kernel
        self.home = home_of(graph)
        self.root: dict[Value, Value] = {}  # whose memory a value may share
        self.expanded: set[Value] = set()  # may have one element for many
        self.fixed: dict[Value, str] = {}
        self.setup: list[str] = []
        self.last: dict[Node, list[Value]] = {}  # after which node each tensor is let go
        self.name = self.given.unique(name)

    def emit(self, consumed: Collection[int]) -> TorchExecutable:
        taken = self.take_from_list(consumed)
        lines = self.lines()
        kernels = [self.namespace[name] for name in self.kernels.values()]
        made = TorchExecutable(
            self.name, "\n".join(lines) + "\n", self.namespace, kernels, devices_of(self.graph),
            taken,
        )  # fmt: skip
        launches = {node: k for node, name in self.kernels.items()
                    if isinstance(k := self.namespace[name], Launch)}  # fmt: skip
        if self.home != "cpu" and len(launches) > 1:
            made.rehearsal = Rehearsal(
                self.graph, launches, self.reads, self.fixed, self.namespace, self.device
            )
        return made

    def before(self) -> list[str]:
        """What makes the constants."""
        if not self.setup:
            return []
        made = ", ".join(dict.fromkeys(self.fixed.values()))
        return [
            f"def {self.name}_constants():", f"    global {made}",
            *("    " + line for line in self.setup), "", "",
        ]  # fmt: skip

    def opening(self) -> list[str]:
        """Numbers, which the caller hands over as tensors."""
        numbers = [self.names[v] for v in self.graph.inputs if isinstance(v.type, ScalarType)]
        return [f"{name} = {name}.item()" for name in numbers]

    def begin(self, nodes: Sequence[Node]) -> None:
        """Find after which node each tensor that is made here, or consumed, is let go."""
        last = dict.fromkeys(self.consumed, nodes[0]) if nodes else {}
        for node in nodes:
            for out in node.outputs:
                last[out] = node
            for value in node.inputs:
                if value in last:
                    last[value] = node
        kept = set(self.graph.outputs)
        for value, node in last.items():
            if value not in kept and isinstance(value.type, (TensorType, SizeType)):
                self.last.setdefault(node, []).append(value)

    def dead(self, node: Node) -> Sequence[Value]:
        """The tensors that no later statement reads."""
        return self.last.get(node, ())

    def statement(self, node: Node) -> list[str]:
        """A call of an op or a kernel; a constant is made before the first run."""
        if node.kind == "FusionGroup":
            return self.kernel(node)
        if is_attention(node):
            return self.attention(node)
        operands = [self.fixed.get(v) or self.names[v] for v in node.inputs]
        if node.kind == "Constant" and not isinstance(node.attrs["value"], Dense):
            self.names[node.output] = torch_expression(node, operands, "")
            return []
        if self.is_fixed(node):
            self.constant(node, operands)
            return []
        text = statement(node, operands, self.device(node))
        made = self.named(node)
        if node.kind in VIEWS:
            source = node.inputs[0]
            self.root[node.output] = self.root.get(source, source)
            if node.kind == "expand" or source in self.expanded:
                self.expanded.add(node.output)
        return self.placed(node, f"{', '.join(made)} = {text}" if made else text)

    def is_fixed(self, node: Node) -> bool:
        """Whether a tensor is made once: of constants, with memory that is there or the CPU's."""
        for value in node.inputs:
            number = isinstance(value.type, ScalarType) and value.node is not None
            if value not in self.fixed and not number:
                return False
        if node.kind in FIXED:
            return True
        types = [v.type for v in node.outputs]
        on_cpu = all(isinstance(t, TensorType) and t.device == "cpu" for t in types)
        return self.home != "cpu" and on_cpu and len(types) == 1 and is_pure(node)

    def constant(self, node: Node, operands: list[str]) -> None:
        """A tensor that no input changes, made before the first run."""
        name = self.given.unique(f"c{next(self.counter)}")
        value = node.attrs.get("value")
        if isinstance(value, Dense):
            array = self.given.unique(f"array{next(self.counter)}")
            self.namespace[array] = value.numpy().copy()  # torch wants it writable
            text = f"torch.from_numpy({array})"
        else:
            text = statement(node, operands, self.device(node))
        self.fixed[node.output] = name
        self.setup.append(f"{name} = {text}")

    def kernel(self, node: Node) -> list[str]:
        device = next(v.type.device for v in node.outputs if isinstance(v.type, TensorType))
        self.add_kernel(node, lambda nest: self.make_kernel(nest, device))
        return self.kernel_call(node, [node.inputs[k] for k in self.reads[node]])

    def attention(self, node: Node) -> list[str]:
        """A call of `flash`; of the backward only what is read is computed."""
        suffix = "" if node.kind == "attention" else "_backward"
        name = self.kernels[node] = self.given.unique(f"{self.name}_attention{suffix}")
        self.namespace[name] = flash_of(node, name)
        return self.kernel_call(node, node.inputs)

    def kernel_call(self, node: Node, operands: Sequence[Value]) -> list[str]:
        arguments = ", ".join(self.fixed.get(v) or self.names[v] for v in operands)
        made = as_tuple(self.named(node))
        return self.placed(node, f"{made} = {self.kernels[node]}({arguments})")

    def device(self, node: Node) -> str:
        """The name of the device on which a node makes its results."""
        types = [v.type for v in (*node.outputs, *node.inputs) if isinstance(v.type, TensorType)]
        device = types[0].device if types else "cpu"
        name = device.replace(":", "_")
        if name not in self.namespace:
            import torch

            self.given.taken.add(name)
            self.namespace[name] = torch.device(device)
        return name

    def results(self) -> list[str]:
        """What is returned, tensors of their own."""
        returned: set[Value] = set()
        texts = []
        for k, value in enumerate(self.graph.outputs):
            root = self.root.get(value, value)
            fixed = self.fixed.get(value)
            name = fixed or self.names[value]
            if isinstance(value.type, ScalarType):
                texts.append(f"torch.tensor({name}, dtype={_WEAK[value.type.kind]})")
                continue
            if fixed or root.node is None or root in returned or root in self.fixed:
                name += ".clone()"
            elif value in self.expanded:
                name += ".contiguous()"
            if k < self.shown:
                returned.add(root)
            texts.append(name)
        return texts

