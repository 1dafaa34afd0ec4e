"""`Loop`: a block that runs once for each step, as JAX's `scan`.

    %x : f64[3], %path : f64[50,3] = Loop[steps=50, backwards=False, counted=False, constants=1,
                                          carried=1](%dt, %x0, %u)
      block(%t : i64[], %h : f64[], %x : f64[3], %ut : f64[3]):
        %dx : f64[3] = mul(%ut, %h)
        %next : f64[3] = add(%x, %dx)
        -> (%next, %next)

means, in Python:

    x = x0; path = np.empty((50, 3))
    for t in range(50):                  # range(49, -1, -1) with backwards=True
        x, path[t] = block(t, dt, x, u[t])

*Operands*: the count, if `counted`; `constants` values of any type, the same at every step;
`carried` tensors, what is carried into the first step; and sequences, tensors whose first dim is
`steps`. *Params*: the number of the step, `i64[]`; the constants; what is carried; row `t` of each
sequence. *Results of the block*: what is carried into the next step; then rows. *Outputs*: what is
carried out of the last step (what was carried in, where there is none); then the rows, stacked in a
new first dim of size `steps`, each at the number of its step.

The block is isolated: it reads its params and what it computes, nothing else. It may hold a Loop.
`counted` says that the first operand, an `i64[]`, is the number of steps that run, the first ones,
of at most `steps` (`backwards`: from the last of those to 0). Rows that do not run are zeros.

Note [How a back end consumes a Loop]
`Loop(node)` has the parts by name. The reverse of a Loop is a Loop, `backwards` the other way round
(`gradof.autodiff.loops`): what the forward saves of each step is a stacked output, and a sequence
of the reverse. Reads and writes at a place that moves with the step are `dynamic_slice`,
`dynamic_slice_scatter` and `dynamic_unslice` (`gradof.ops.dynamic`) of a carried or constant array.
A write into what is carried is to be made in place where nothing reads the array as it was: that is
so if `Loop.written_in_place()` has the node. The first step must then start from a copy of what is
carried in, unless nobody else reads that. A back end without loops runs
`gradof.passes.unroll_loops` first, as that for CUDA tensors does. `gradof.codegen.host.loops` is
the Python `for`, `gradof.codegen.host.evaluate` the meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradof.errors import InferenceError
from gradof.ir.builder import Builder
from gradof.ir.clone import copy_nodes
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.extent import is_whole
from gradof.ir.opinfo import has_trait
from gradof.ir.types import BOOL, I64, TensorType, Type

KIND = "Loop"
COPIED = frozenset({"slice", "dynamic_slice"})
_INDEX = TensorType(I64, ())
_FLAG = TensorType(BOOL, ())
_ATTRS = ("steps", "backwards", "counted", "constants", "carried")


@dataclass(frozen=True)
class Loop:
    """The parts of a Loop node by name; see the module docstring."""

    node: Node

    @property
    def steps(self) -> int:
        """How many steps there are, or may be where they are counted."""
        return self._number("steps")

    @property
    def backwards(self) -> bool:
        """Whether the last step comes first."""
        return bool(self.node.attrs["backwards"])

    @property
    def order(self) -> range:
        """The numbers of the steps as they run, where they are not counted."""
        return range(self.steps - 1, -1, -1) if self.backwards else range(self.steps)

    @property
    def count(self) -> Value | None:
        """The operand that says how many steps run; None where all do."""
        return self.node.inputs[0] if self.node.attrs["counted"] else None

    @property
    def constants(self) -> tuple[Value, ...]:
        """Operands that are the same at every step."""
        return self._operands(0, self._number("constants"))

    @property
    def initial(self) -> tuple[Value, ...]:
        """Operands that are carried into the first step."""
        return self._operands(self._number("constants"), self._number("carried"))

    @property
    def sequences(self) -> tuple[Value, ...]:
        """Operands of which each step reads its row."""
        first = self._number("constants") + self._number("carried")
        return self._operands(first, len(self.node.inputs))

    @property
    def body(self) -> Block:
        """What a step computes."""
        return self.node.blocks[0]

    @property
    def index(self) -> Value:
        """The number of the step, in the body."""
        return self.body.params[0]

    @property
    def constant_params(self) -> list[Value]:
        """What the body reads the constants as."""
        return self.body.params[1 : 1 + self._number("constants")]

    @property
    def carried_params(self) -> list[Value]:
        """What the body reads as carried from the step before."""
        first = 1 + self._number("constants")
        return self.body.params[first : first + self._number("carried")]

    @property
    def row_params(self) -> list[Value]:
        """What the body reads as its rows of the sequences."""
        return self.body.params[1 + self._number("constants") + self._number("carried") :]

    @property
    def carried_results(self) -> tuple[Value, ...]:
        """What the body carries into the next step."""
        return self.body.results[: self._number("carried")]

    @property
    def row_results(self) -> tuple[Value, ...]:
        """The rows that the body gives."""
        return self.body.results[self._number("carried") :]

    @property
    def finals(self) -> list[Value]:
        """Outputs: what is carried out of the last step."""
        return self.node.outputs[: self._number("carried")]

    @property
    def stacks(self) -> list[Value]:
        """Outputs: the rows of all steps."""
        return self.node.outputs[self._number("carried") :]

    def written_in_place(self) -> frozenset[Node]:
        """Writes of the body into what is carried that nothing sees but the results."""
        return written_in_place(self.body, self.carried_params)

    def goes_on(self) -> int | None:
        """The carried boolean, by number, that says whether a step changes what is carried.

        None where there is none. Once it is False it stays so: a loop without rows may end there.
        """
        if self.stacks:
            return None
        for k, param in enumerate(self.carried_params):
            if isinstance(param.type, TensorType) and param.type == _FLAG:
                if all(map(_Frozen(param).is_kept, self.carried_params, self.carried_results)):
                    return k
        return None

    def _number(self, name: str) -> int:
        number = self.node.attrs[name]
        assert isinstance(number, int)
        return number

    def _operands(self, first: int, count: int) -> tuple[Value, ...]:
        first += bool(self.node.attrs["counted"])
        return self.node.inputs[first : first + count]


class _Frozen:
    """What a step leaves as it is where a flag is False."""

    def __init__(self, flag: Value) -> None:
        self.flag = flag

    def is_false(self, value: Value) -> bool:
        """Whether a value is False with the flag."""
        node = value.node
        if node is None:
            return value is self.flag
        return node.kind == "logical_and" and any(map(self.is_false, node.inputs))

    def is_kept(self, param: Value, result: Value) -> bool:
        """Whether what is carried stays: by a select, as no more is counted, or as it is False."""
        node = result.node
        if result is param or (param is self.flag and self.is_false(result)):
            return True
        if node is None or result.type != param.type:
            return False
        if node.kind == "where":
            return node.inputs[2] is param and self.is_false(node.inputs[0])
        if node.kind == "add" and param in node.inputs:
            cast = node.inputs[node.inputs[0] is param].node
            return cast is not None and cast.kind == "cast" and self.is_false(cast.inputs[0])
        return False


def is_loop(node: Node) -> bool:
    """Whether the node is a Loop."""
    return node.kind == KIND


def add_loop(
    builder: Builder, body: Graph, steps: int, *, constants: Sequence[Value],
    initial: Sequence[Value], sequences: Sequence[Value], backwards: bool = False,
    count: Value | None = None,
) -> Loop:  # fmt: skip
    """Insert a Loop around a copy of `body`, a graph with the params and results of its block.

    InferenceError where they do not fit.
    """
    counted = () if count is None else (count,)
    attrs = {"steps": steps, "backwards": backwards, "counted": count is not None,
             "constants": len(constants), "carried": len(initial)}  # fmt: skip
    node = Node(KIND, (*counted, *constants, *initial, *sequences), dict(attrs), builder.loc)
    block = node.add_block()
    mapping = {p: block.add_param(p.type, p.hint) for p in body.inputs}
    copy_nodes(body.block, block, block.returns, mapping)
    block.returns.set_inputs([mapping[v] for v in body.outputs])
    for type_, value in zip(loop_types(node), body.outputs, strict=True):
        node.add_output(type_, value.hint)
    builder.block.insert_before(builder.anchor, node)
    return Loop(node)


def body_graph(block: Block, name: str = "body") -> Graph:
    """A copy of an isolated block as a graph."""
    graph = Graph(name)
    mapping = {p: graph.block.add_param(p.type, p.hint) for p in block.params}
    copy_nodes(block, graph.block, graph.block.returns, mapping)
    graph.set_outputs([mapping[v] for v in block.results])
    return graph


def set_body(node: Node, body: Graph) -> None:
    """Replace the block of a Loop by a copy of a graph; the operands and outputs are to follow."""
    block = node.blocks[0]
    block.clear()
    block.remove_params(range(len(block.params)))
    mapping = {p: block.add_param(p.type, p.hint) for p in body.inputs}
    copy_nodes(body.block, block, block.returns, mapping)
    block.returns.set_inputs([mapping[v] for v in body.outputs])


def loop_types(node: Node) -> list[Type]:
    """The types of a Loop's outputs; InferenceError where its parts do not fit together."""
    attrs = node.attrs
    if tuple(attrs) != _ATTRS and set(attrs) != set(_ATTRS):
        raise InferenceError(f"a Loop has the attributes {_ATTRS}, not {tuple(attrs)}")
    sizes = [attrs[name] for name in ("steps", "constants", "carried")]
    if any(not is_whole(n) or n < 0 for n in sizes) or len(node.blocks) != 1:
        raise InferenceError("a Loop has one block, and as many steps, constants, carried values")
    steps, constants, carried = (n for n in sizes if isinstance(n, int))
    given = [v.type for v in node.inputs]
    if attrs["counted"] and (not given or given.pop(0) != _INDEX):
        raise InferenceError("a counted Loop begins with its count, an i64[]")
    params = [p.type for p in node.blocks[0].params]
    if len(given) < constants + carried or not params:
        raise InferenceError(f"a Loop of {constants} constants and {carried} carried values needs "
                             f"more than {len(given)} operands")  # fmt: skip
    rows = [_row(t, steps) for t in given[constants + carried :]]
    wanted = [_INDEX, *given[: constants + carried], *rows]
    if params != wanted:
        raise InferenceError(f"the body takes ({_shown(params)}), not ({_shown(wanted)})")
    results = [v.type for v in node.blocks[0].results]
    into = given[constants : constants + carried]
    if results[:carried] != into:
        raise InferenceError(
            f"the body carries ({_shown(results[:carried])}) on, but is given ({_shown(into)})"
        )
    return [*into, *(_stack(t, steps) for t in results[carried:])]


def _row(type_: Type, steps: int) -> Type:
    if not isinstance(type_, TensorType) or not type_.shape or type_.shape[0] != steps:
        raise InferenceError(f"a sequence of {steps} steps cannot be {type_}")
    return type_.with_shape(type_.shape[1:])


def _stack(type_: Type, steps: int) -> Type:
    if not isinstance(type_, TensorType) or type_.shape is None:
        raise InferenceError(f"rows of {type_} cannot be stacked")
    return type_.with_shape((steps, *type_.shape))


def _shown(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))


def written_in_place(block: Block, owned: Sequence[Value]) -> frozenset[Node]:
    """`dynamic_slice_scatter` nodes that may write into their operand's array.

    `owned` are params whose arrays nobody else reads. A write is one of these where its operand is
    such a param, or a write of that kind, and nothing after it reads the operand or a view of it.
    Slices are no views here: they are to be copied where they stand (`copied_reads`).
    """
    last: dict[Value, int] = {}
    root: dict[Value, Value] = {p: p for p in block.params}
    order = [*block.nodes(), block.returns]
    for at, node in enumerate(order):
        for value in node.inputs:
            last.update((source, at) for source in _sources(value, root))
        views = node.kind not in COPIED and has_trait(node.kind, "view")
        for out in node.outputs:
            root[out] = node.inputs[0] if node.inputs and views else out
    free, found = set(owned), set()
    for at, node in enumerate(order):
        if node.kind != "dynamic_slice_scatter" or node.inputs[0] not in free:
            continue
        whole, *others = node.inputs
        if last[whole] == at and not any(whole in _sources(v, root) for v in others):
            found.add(node)
            free.add(node.output)
    return frozenset(found)


def copied_reads(block: Block, written: Collection[Node]) -> frozenset[Node]:
    """Slices of what is `written` in place, which are to be copies of what was there."""
    whole = {v for node in written for v in (node.inputs[0], node.output)}
    found = set()
    for node in block.nodes():
        if has_trait(node.kind, "view") and node.inputs[0] in whole:
            if node.kind in COPIED:
                found.add(node)
            else:
                whole.add(node.output)
    return frozenset(found)


def _sources(value: Value, root: Mapping[Value, Value]) -> Iterator[Value]:
    """The value, and what it is a view of."""
    yield value
    while root[value] is not value:
        value = root[value]
        yield value
