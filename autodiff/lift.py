"""lambda_lift_reverse: splitting (f, reverse block) into two graphs with explicit captures.

Captures are f's values with a use in the reverse, inputs first, then node outputs in order. One
that is an output of f already is captured as that output, an input as that input; any other
becomes a new output of f, a temporary. A temporary that has a gradient gets a cotangent of its
own, AutogradAdd'ed in, so that a second derivative can flow through what was saved.
"""

from __future__ import annotations

from gradof.autodiff.gradient import Gradient
from gradof.autodiff.optimize import captured_uses
from gradof.autodiff.reverse import ReverseDetails
from gradof.ir.builder import Builder
from gradof.ir.clone import copy_nodes
from gradof.ir.core import Block, Graph, Node, Value


def lambda_lift_reverse(graph: Graph, reverse: ReverseDetails) -> Gradient:
    """Consume the reverse block; `graph` becomes the f of the result."""
    result = Gradient(
        f=graph,
        df=Graph("d" + graph.name),
        f_real_outputs=len(graph.outputs),
        df_input_vjps=list(reverse.input_vjps),
        df_output_vjps=list(reverse.output_vjps),
    )
    result.df.nan_safe, result.df.small_kernels = graph.nan_safe, graph.small_kernels
    result.df.whole = graph.whole
    outputs = list(graph.outputs)
    captured_inputs: list[Value] = []
    captured_outputs: list[Value] = []
    position = {value: i for i, value in reversed(list(enumerate(outputs)))}
    input_position = {value: i for i, value in enumerate(graph.inputs)}
    for value in _captures(graph, reverse.block):
        if value in position:
            result.df_input_captured_outputs.append(position[value])
            captured_outputs.append(value)
        elif value in input_position:
            result.df_input_captured_inputs.append(input_position[value])
            captured_inputs.append(value)
        else:
            position[value] = len(outputs)
            outputs.append(value)
            result.df_input_captured_outputs.append(position[value])
            captured_outputs.append(value)
    graph.set_outputs(outputs)
    _add_temporary_vjps(result, reverse)
    _close(result.df, reverse.block, [*captured_inputs, *captured_outputs])
    return result


def _captures(graph: Graph, reverse: Block) -> list[Value]:
    used = {value for _, _, value in captured_uses(graph, reverse)}
    ordered = list(graph.inputs)
    for node in graph.nodes():
        ordered.extend(node.outputs)
    return [value for value in ordered if value in used]


def _add_temporary_vjps(result: Gradient, reverse: ReverseDetails) -> None:
    block = reverse.block
    for i in range(result.f_real_outputs, len(result.f.outputs)):
        temporary = result.f.outputs[i]
        previous = reverse.grad_map.get(temporary)
        if previous is None:
            continue
        param = block.add_param(temporary.type, previous.hint)
        anchor = _after(previous, block)
        loc = None if temporary.node is None else temporary.node.loc
        total = Builder(block, anchor, loc).emit("AutogradAdd", param, param)
        total.hint = previous.hint
        previous.replace_all_uses_with(total)
        assert total.node is not None
        total.node.replace_input(1, previous)
        reverse.grad_map[temporary] = total
        result.df_input_vjps.append(i)


def _after(value: Value, block: Block) -> Node:
    """The node before which something that reads `value` can be inserted."""
    if value.node is None:
        return next(iter(block.nodes()), block.returns)
    assert value.node._next is not None
    return value.node._next


def _close(df: Graph, block: Block, captures: list[Value]) -> None:
    """Copy the reverse block into `df`, captures becoming inputs; the block is emptied."""
    mapping: dict[Value, Value] = {}
    for value in [*block.params, *captures]:
        mapping[value] = df.block.add_param(value.type, value.hint)
    copy_nodes(block, df.block, df.block.returns, mapping)
    df.set_outputs([mapping[v] for v in block.results])
    block.clear()
