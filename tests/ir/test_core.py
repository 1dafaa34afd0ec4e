"""Graphs under change: use lists, order, iteration, cloning, and the builder."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import gradof.ops  # registers every op
from gradof.errors import InferenceError, IRError
from gradof.ir.attrs import Dense
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph, inline
from gradof.ir.core import Block, Graph, Loc, Node, Use, Value
from gradof.ir.parser import parse_graph
from gradof.ir.types import F32, F64, TensorType
from gradof.ir.verify import verify

assert gradof.ops is not None
T = TensorType(F32, (3,))
CHAIN = """graph f(%x : f32[3]):
  %a : f32[3] = tanh(%x)
  %b : f32[3] = mul(%a, %a)
  %c : f32[3] = add(%b, %x)
  return (%c, %c)
"""


def kinds(block: Block) -> list[str]:
    return [node.kind for node in block.nodes()]


def actual_uses(graph: Graph) -> dict[Value, set[Use]]:
    found: dict[Value, set[Use]] = {}
    blocks = [graph.block, *(b for n in graph.walk() for b in n.blocks)]
    for user in [*graph.walk(), *(b.returns for b in blocks)]:
        for i, value in enumerate(user.inputs):
            found.setdefault(value, set()).add(Use(user, i))
    return found


class Mutations(RuleBasedStateMachine):
    """Random insertions, replacements, moves and erasures, against a plain list of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph("f")
        self.model: list[Node] = []
        self.graph.block.add_param(T, "x")

    def before(self, position: int) -> list[Value]:
        return [*self.graph.inputs, *(v for n in self.model[:position] for v in n.outputs)]

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.model)))
        a, b = (data.draw(st.sampled_from(self.before(at))) for _ in range(2))
        new = Node("add", [a, b])
        new.add_output(T)
        block = self.graph.block
        if at == len(self.model):
            block.append(new)
        elif at == 0:
            block.prepend(new)
        elif data.draw(st.booleans()):
            block.insert_after(self.model[at - 1], new)
        else:
            block.insert_before(self.model[at], new)
        self.model.insert(at, new)

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        if not self.model:
            return
        node = data.draw(st.sampled_from(self.model))
        if node.output.has_uses:
            with pytest.raises(IRError, match="cannot erase"):
                node.erase()
            return
        node.erase()
        assert node.block is None and not node.inputs
        self.model.remove(node)

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        if not self.model:
            return
        at = data.draw(st.integers(0, len(self.model) - 1))
        other = data.draw(st.sampled_from(self.before(at)))
        self.model[at].output.replace_all_uses_with(other)
        assert not self.model[at].output.has_uses

    @rule(data=st.data())
    def rewire(self, data: st.DataObject) -> None:
        if not self.model:
            return
        at = data.draw(st.integers(0, len(self.model) - 1))
        index = data.draw(st.integers(0, 1))
        self.model[at].replace_input(index, data.draw(st.sampled_from(self.before(at))))

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if not self.model:
            return
        node = data.draw(st.sampled_from(self.model))
        at = self.model.index(node)
        users = [self.model.index(u.node) for u in node.output.uses if u.node in self.model]
        low = max((self.model.index(v.node) for v in node.inputs if v.node is not None), default=-1)
        high = min([*users, len(self.model)])
        target = data.draw(st.integers(low + 1, high))
        anchor = self.model[target] if target < len(self.model) else self.graph.block.returns
        node.move_before(anchor)
        self.model.pop(at)
        self.model.insert(target - (target > at), node)

    @rule(data=st.data())
    def results(self, data: st.DataObject) -> None:
        values = data.draw(st.lists(st.sampled_from(self.before(len(self.model))), max_size=3))
        self.graph.set_outputs(values)
        assert list(self.graph.outputs) == values

    @invariant()
    def agrees(self) -> None:
        assert list(self.graph.nodes()) == self.model
        assert list(self.graph.block.reversed_nodes()) == self.model[::-1]
        assert len(self.graph.block) == len(self.model)
        uses = actual_uses(self.graph)
        for value in self.before(len(self.model)):
            assert set(value.uses) == uses.get(value, set())
            assert value.has_uses == bool(uses.get(value))
        for i, node in enumerate(self.model):
            assert not node.is_before(node)
            assert node.next is (self.model[i + 1] if i + 1 < len(self.model) else None)
            if i:
                assert self.model[i - 1].is_before(node) and not node.is_before(self.model[i - 1])
            assert node.is_before(self.graph.block.returns)
        verify(self.graph)


TestMutations = Mutations.TestCase
TestMutations.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_erasing_while_iterating() -> None:
    graph = parse_graph(CHAIN)
    graph.set_outputs([])
    seen = []
    for node in graph.block.reversed_nodes():
        seen.append(node.kind)
        node.erase()
    assert seen == ["add", "mul", "tanh"] and len(graph.block) == 0
    assert not graph.inputs[0].has_uses


def test_erasing_forwards_and_inserting_behind_while_iterating() -> None:
    graph = parse_graph(
        "graph f(%x : f32[3]): %a : f32[3] = sin(%x) %b : f32[3] = cos(%x) "
        "%c : f32[3] = tan(%x) return ()"
    )
    seen = []
    for node in graph.nodes():
        seen.append(node.kind)
        if node.kind == "cos":
            node.erase()
        if node.kind == "sin":
            fresh = Node("neg", [graph.inputs[0]])
            fresh.add_output(T)
            graph.block.insert_after(node, fresh)
    assert seen == ["sin", "neg", "cos", "tan"]
    assert kinds(graph.block) == ["sin", "neg", "tan"]
    verify(graph)


def test_erasing_a_node_with_blocks_drops_the_uses_inside() -> None:
    graph = parse_graph("""graph f(%x : f32[3]):
      %y : f32[3] = GradOf[name='m'](%x)
        block():
          %0 : f32[3] = mul(%x, %x)
          %1 : f32[3] = tanh(%0)
          -> (%1)
      return ()""")
    (node,) = graph.nodes()
    node.erase()
    assert not graph.inputs[0].has_uses and len(graph.block) == 0


def test_moving_into_another_block() -> None:
    graph = parse_graph("""graph f(%x : f32[3]):
      %y : f32[3] = GradOf[name='m'](%x)
        block():
          %0 : f32[3] = mul(%x, %x)
          %1 : f32[3] = tanh(%0)
          -> (%1)
      return (%y)""")
    (outer,) = graph.nodes()
    (product, _) = outer.blocks[0].nodes()
    product.move_before(outer)
    verify(graph)
    assert kinds(graph.block) == ["mul", "GradOf"] and kinds(outer.blocks[0]) == ["tanh"]
    assert outer.blocks[0].parent is graph.block and graph.block.parent is None
    assert [n.kind for n in graph.walk()] == ["mul", "GradOf", "tanh"]
    text = str(graph)
    product.move_before(product)
    assert str(graph) == text


def test_inserting_twice_is_refused() -> None:
    graph = parse_graph(CHAIN)
    node = next(graph.nodes())
    with pytest.raises(IRError, match="already in a block"):
        graph.block.append(node)


def test_params_and_outputs_in_use_stay() -> None:
    graph = parse_graph(CHAIN)
    with pytest.raises(IRError, match="still used"):
        graph.block.remove_params([0])
    with pytest.raises(IRError, match="still used"):
        next(graph.nodes()).remove_output(0)
    graph.block.add_param(T, "unused")
    last = graph.block.add_param(T, "last")
    graph.block.remove_params([1])
    assert last.index == 1 and graph.inputs[1] is last
    node = Node("k")
    first, second = node.add_output(T), node.add_output(T)
    with pytest.raises(IRError, match="2 outputs"):
        _ = node.output
    node.remove_output(0)
    assert node.output is second and second.index == 0 and first not in node.outputs


def test_inputs_of_a_node() -> None:
    graph = parse_graph(CHAIN)
    tanh, mul, add = graph.nodes()
    x = graph.inputs[0]
    mul.add_input(x)
    mul.remove_input(0)
    assert mul.inputs == (tanh.output, x)
    assert set(tanh.output.uses) == {Use(mul, 0)}
    assert set(x.uses) == {Use(tanh, 0), Use(add, 1), Use(mul, 1)}
    verify(graph)


def test_replacing_hands_the_hint_on() -> None:
    graph = parse_graph(CHAIN.replace("%a", "%0"))
    tanh, mul, _ = graph.nodes()
    mul.output.replace_all_uses_with(tanh.output)
    assert tanh.output.hint == "b"
    graph.inputs[0].replace_all_uses_with(graph.inputs[0])
    assert graph.inputs[0].has_uses


def test_clone_shares_nothing() -> None:
    graph = parse_graph(CHAIN)
    copy = clone_graph(graph, "other")
    assert copy != graph and str(copy).replace("other", "f") == str(graph)
    assert not set(copy.walk()) & set(graph.walk())
    (first, *_) = copy.nodes()
    first.attrs["new"] = 1
    copy.set_outputs([])
    for node in copy.block.reversed_nodes():
        node.erase()
    assert str(graph) == CHAIN
    verify(graph)


def test_inline() -> None:
    graph = parse_graph(CHAIN)
    target = Graph("g")
    a = target.block.add_param(T, "a")
    results = inline(graph.block, [a], target.block, target.block.returns)
    target.set_outputs(results)
    verify(target)
    assert kinds(target.block) == kinds(graph.block) and len(results) == 2
    assert {v for n in target.nodes() for v in n.inputs} <= {a, *(n.output for n in target.nodes())}


def test_graphs_are_not_hashable_and_equal_by_structure() -> None:
    graph = parse_graph(CHAIN)
    assert graph == parse_graph(CHAIN) and graph != "text"
    with pytest.raises(TypeError, match="unhashable"):
        hash(graph)


# --- builder ------------------------------------------------------------------------------------


def test_builder_inserts_before_its_anchor_and_stamps_the_line() -> None:
    graph = parse_graph(CHAIN)
    _, mul, _ = graph.nodes()
    builder = Builder(graph.block, mul, Loc("m.py", 5))
    value = builder.emit("sub", graph.inputs[0], builder.constant(1.0))
    assert kinds(graph.block) == ["tanh", "Constant", "sub", "mul", "add"]
    assert value.type == T and value.node is not None and str(value.node.loc) == "m.py:5"
    assert str(builder.constant(True).type) == "bool" and str(builder.constant(1).type) == "int"
    assert str(builder.constant(1j).type) == "complex"
    dense = Dense(F64, (2,), bytes(16))
    assert builder.constant(dense).type == TensorType(F64, (2,))
    verify(graph)


@pytest.mark.parametrize(
    ("kind", "match"), [("nope", "unknown op 'nope'"), ("mm", "multiplies matrices")]
)
def test_builder_refuses_at_the_users_line(kind: str, match: str) -> None:
    graph = parse_graph(CHAIN)
    x = graph.inputs[0]
    with pytest.raises(InferenceError, match=match) as caught:
        Builder(graph.block, loc=Loc("m.py", 5)).emit(kind, x, x)
    assert str(caught.value.loc) == "m.py:5"
    assert str(graph) == CHAIN
    with pytest.raises(InferenceError, match=match):
        Builder(graph.block).emit(kind, x, x)


def test_builder_refuses_wrong_arity_and_attributes() -> None:
    graph = parse_graph(CHAIN)
    builder, x = Builder(graph.block), graph.inputs[0]
    with pytest.raises(InferenceError, match=r"tanh takes \(x\), got 2 inputs"):
        builder.emit("tanh", x, x)
    with pytest.raises(InferenceError, match=r"cat takes \(xs\), got 0 inputs"):
        builder.emit("cat", dim=0)
    with pytest.raises(InferenceError, match="got 1 inputs"):
        builder.emit("full", x, dtype=F32, shape=(), device="cpu", value=0.0)
    with pytest.raises(InferenceError, match=r"attributes \['dims', 'keepdims'\], got \['dims'\]"):
        builder.emit("sum", x, dims=(0,))
    assert str(graph) == CHAIN
