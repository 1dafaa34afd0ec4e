"""A reference evaluator: one node at a time, any graph, GradOf blocks and symbolic zeros included.

>>> interpret(parse_graph("graph f(%x : f32[2]): %y : f32[2] = tanh(%x) return (%y)"), [x])
(array([...], dtype=float32),)

`observe(node, results)` sees every node's results, which is how the harness finds the first wrong
op. A symbolic zero is the object `ZERO` until an op that is no GradOf or AutogradAdd reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.codegen.lowering.half import ROUND, round_number, roundings, rounds_number
from gradof.codegen.lowering.numpy import TORCH_NAMES, Library, Lowering, lowering_of, supported
from gradof.codegen.lowering.numpy import fill as fill_template
from gradof.errors import CodegenError
from gradof.ir.attrs import Dense, to_numpy_dtype
from gradof.ir.clone import clone_node
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import Loop, is_loop
from gradof.ir.types import DType, ScalarType, TensorType
from gradof.ops.registry import Op
from gradof.passes.expand_composites import expand_composites

Observe = Callable[[Node, Sequence[Any]], None]


class _Zero:
    def __repr__(self) -> str:
        return "ZERO"


ZERO = _Zero()


def interpret(
    graph: Graph,
    inputs: Sequence[Any],
    *,
    library: Library = "numpy",
    observe: Observe | None = None,
    values: dict[Value, Any] | None = None,
) -> tuple[Any, ...]:
    """Evaluate a graph on numpy arrays, one per input; CodegenError for a node without lowering.

    `values` is where every value is put that there is so far, those of a step of a loop included.
    An input may be ZERO. Outputs that are symbolic zeros come back as arrays of zeros.
    """
    if len(inputs) != len(graph.inputs):
        raise CodegenError(f"{graph.name} takes {len(graph.inputs)} inputs, got {len(inputs)}")
    environment: dict[Value, Any] = {} if values is None else values
    environment.update(zip(graph.inputs, inputs, strict=True))
    with np.errstate(all="ignore"):
        _Interpreter(environment, library, observe).block(graph.block)
    return tuple(
        np.array(_materialize(environment[v], v)) if isinstance(v.type, (TensorType, ScalarType))
        else environment[v]
        for v in graph.outputs
    )  # fmt: skip


class _Interpreter:
    def __init__(
        self, environment: dict[Value, Any], library: Library, observe: Observe | None
    ) -> None:
        self.environment = environment
        self.library = library
        self.observe = observe

    def block(self, block: Block) -> None:
        for node in block.nodes():
            results = self.node(node)
            self.environment.update(zip(node.outputs, results, strict=True))
            if self.observe is not None:
                self.observe(node, results)

    def node(self, node: Node) -> Sequence[Any]:
        values = [self.environment[v] for v in node.inputs]
        if node.kind == "Reverse":
            return ()
        if node.kind == "GradOf":
            if all(v is ZERO for v in values):
                return [ZERO] * len(node.outputs)
            self.block(node.blocks[0])
            return [self.environment[v] for v in node.blocks[0].results]
        if node.kind == "AutogradZero":
            return [ZERO]
        if node.kind == "AutogradAdd" and any(v is ZERO for v in values):
            return [values[1] if values[0] is ZERO else values[0]]
        if is_loop(node):
            return self.loop(Loop(node), values)
        if node.kind == "Constant":
            value = node.attrs["value"]
            return [value.numpy() if isinstance(value, Dense) else value]
        record = supported(node)
        operands = [_materialize(v, x) for v, x in zip(values, node.inputs, strict=True)]
        if record.is_composite:
            return self.composite(node, operands)
        for k in range(len(operands)):  # see `targets/weak_numbers`
            dtype = rounds_number(node, k, self.library)
            if dtype is not None and not isinstance(operands[k], bool | complex):
                operands[k] = round_number(operands[k], dtype)
        low = lowering_of(node, record, self.library)
        result = _run(record, low, operands, node.attrs)
        results = result if len(node.outputs) != 1 else [result]
        pairs = zip(roundings(node), results, strict=True)
        return [r if name is None else ROUND[name](r) for name, r in pairs]

    def loop(self, loop: Loop, values: Sequence[Any]) -> Sequence[Any]:
        """One step after the other, as the docstring of `gradof.ir.loop` says."""
        arrays = iter(
            np.asarray(_materialize(v, x)) for v, x in zip(values, loop.node.inputs, strict=True)
        )
        count = loop.steps if loop.count is None else min(int(next(arrays)), loop.steps)
        constants = [next(arrays) for _ in loop.constants]
        state = [next(arrays) for _ in loop.initial]
        sequences = list(arrays)
        stacks, going = [_zeros(out) for out in loop.stacks], loop.goes_on()
        for t in range(count - 1, -1, -1) if loop.backwards else range(count):
            if going is not None and not state[going]:
                break
            given = [np.int64(t), *constants, *state, *(array[t] for array in sequences)]
            self.environment.update(zip(loop.body.params, given, strict=True))
            self.block(loop.body)
            state = [self.found(v) for v in loop.carried_results]
            for stack, row in zip(stacks, loop.row_results, strict=True):
                stack[t] = self.found(row)
        return [*state, *stacks]

    def found(self, value: Value) -> Any:
        """A result of a block; zeros are made real."""
        return _materialize(self.environment[value], value)

    def composite(self, node: Node, operands: Sequence[Any]) -> Sequence[Any]:
        scratch = Graph(node.kind)
        mapping: dict[Value, Value] = {}
        arrays = []
        for value, operand in zip(node.inputs, operands, strict=True):
            if value in mapping:
                continue
            if value.node is not None and value.node.kind == "Constant":
                clone = clone_node(value.node, {})  # expansions may ask for the number
                mapping[value] = scratch.block.append(clone).output
            else:
                mapping[value] = scratch.block.add_param(value.type)
                arrays.append(operand)
        copy = scratch.block.append(clone_node(node, dict(mapping)))
        scratch.set_outputs(copy.outputs)
        expand_composites(scratch)
        return interpret(scratch, arrays, library=self.library)


def _run(record: Op, low: Lowering, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    if low.kind == "function":
        assert low.function is not None
        return low.function(*operands, **{k: _attr(v, low.torch) for k, v in attrs.items()})
    if low.kind == "call":
        return getattr(np, low.text.removeprefix("np."))(*operands)
    names = [f"_{i}" for i in range(len(operands))]
    source = fill_template(record, low.text, names, attrs)
    space = {"__name__": __name__, "np": np}
    return eval(source, {**space, **dict(zip(names, operands, strict=True))})


def _attr(value: Any, torch: bool) -> Any:
    if torch and isinstance(value, DType) and value in TORCH_NAMES:
        return TORCH_NAMES[value]
    return to_numpy_dtype(value) if isinstance(value, DType) else value


def _materialize(value: Any, like: Value) -> Any:
    if value is not ZERO:
        return value
    assert isinstance(like.type, TensorType)
    if like.type.shape is None:
        raise CodegenError(
            "a symbolic zero of unknown shape would have to be made real",
            loc=None if like.node is None else like.node.loc,
            hint="trace with known shapes, or specialise symbolic zeros first",
        )
    return _zeros(like)


def _zeros(like: Value) -> Any:
    assert isinstance(like.type, TensorType) and like.type.shape is not None
    return np.zeros(like.type.shape, to_numpy_dtype(like.type.dtype))
