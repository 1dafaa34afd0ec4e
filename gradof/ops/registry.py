"""One op, one statement.

    tanh = op("tanh(x) -> y", family=unary(FLOATS),
              vjp={"x": lambda g, y: g * (1.0 - y * y)},
              numpy="np.tanh", names=["aten.tanh", "numpy.tanh"], formula="tanh(x)", domain=(-3, 3))

Schema: `name(inputs; attributes) -> outputs`. Inputs are tensors (or weak scalars), `*xs` takes
any number; attributes are keyword-only literals.

`vjp` maps every input to a rule, to None (not differentiable), or to Refused (a derivative that is
not known: asking for it is an error). The names of a rule's parameters
say what it reads, and so what must be saved: `g` is the output's cotangent (`g_<output>` for ops
with several outputs), the name of an input or output is its value, `<name>_like` is its type only
(nothing is saved for it), the name of an attribute is the attribute, `block` the node's own block
(None where it has none). Rules may ignore
broadcasting: it is undone centrally (`gradof.autodiff.reverse`).

`expand` makes a composite: a function from inputs and attributes (as keywords) to results,
inlined before differentiation, from which types, gradients and lowerings follow. A composite with
`vjp` is inlined after it: where its gradient has a shorter form than that of its expansion.

`numpy` is the lowering: a dotted ufunc (`"np.tanh"`, called with `out=`), a template with places
(`"np.where({c}, {a}, {b})"`; inputs and attributes by name, results fresh or, with the trait
`view`, views), or a Python function of inputs and keyword attributes. `torch` is optional: a
dotted torch function, or a template, used instead where the caller's arrays are torch's and the
op is not worth our own code.

`scalar` is what one element is in other elementwise ops, written as rules are: what kernels compute
where they have no function of that name. It may return None for a dtype that it does not know.
An op with `scalar` and no `numpy` is inlined before any code is made, as with `expand`.

`cost` is what an element costs beside reading and writing memory (`gradof.ops.cost`).

Traits: `elementwise`, `view` (may alias its first input), `random`, `commutative`, `structural`,
`linear` (each result is linear in each input alone and zero if it is), `selects` (elements of the
first result are elements of an operand), `jumps` (a rounding of an operand may change it as a
whole, as a comparison: Note [Torn comparisons]). An op is pure unless it is `random`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from gradof.errors import InferenceError, OpDefinitionError
from gradof.ir.attrs import Attr
from gradof.ir.opinfo import OPS
from gradof.ir.types import Type

Infer = Callable[[Sequence[Type], Mapping[str, Attr]], tuple[Type, ...]]
Rule = Callable[..., Any]
_SCHEMA = re.compile(
    r"(?P<name>\w+)\((?P<inputs>[^;)]*)(?:;(?P<attrs>[^)]*))?\)\s*->\s*(?P<outputs>(?:\*?\w+(?:\s*,\s*\w+)*)?)\s*$"
)
_TRAITS = frozenset(
    {"elementwise", "view", "random", "commutative", "structural", "linear", "constant", "effect",
     "wirtinger", "selects", "jumps"}
)


@dataclass(frozen=True)
class Refused:
    """In place of a rule: the derivative exists and is not known here, so asking is an error.

    None says instead that there is none, and passes zero on.
    """

    reason: str

    def __call__(self) -> NoReturn:
        """Never reached: the reverse raises UnsupportedOpError where a rule would be called."""
        raise AssertionError(self.reason)


@dataclass(frozen=True)
class Family:
    """Type inference together with the traits it implies."""

    infer: Infer
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Op:
    """A registered op; the fields are those of the `op` statement."""

    name: str
    inputs: tuple[str, ...]
    variadic: bool
    attrs: tuple[str, ...]
    outputs: tuple[str, ...]
    family: Family
    traits: frozenset[str]
    vjp: Mapping[str, Rule | None]
    reads: Mapping[str, tuple[str, ...]]
    numpy: str | Callable[..., Any] | None
    torch: str | None
    names: tuple[str, ...]
    formula: str | None
    domain: tuple[tuple[float, float], ...]
    expand: Callable[..., Any] | None
    scalar: Callable[..., Any] | None = None
    cost: int = 1
    doc: str = ""
    module: str = ""
    variadic_outputs: bool = False

    def infer(self, inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        """Result types; raises InferenceError."""
        check_call(self, inputs, attrs)
        return self.family.infer(inputs, attrs)

    @property
    def is_composite(self) -> bool:
        """Whether the op is inlined, at the latest when it has been differentiated."""
        return self.expand is not None

    @property
    def is_differentiable(self) -> bool:
        """Whether a gradient can flow to any input."""
        return self.is_composite or any(rule is not None for rule in self.vjp.values())

    @property
    def schema(self) -> str:
        """The schema, as written."""
        star = "*" if self.variadic else ""
        head = star + ", ".join(self.inputs)
        tail = "; " + ", ".join(self.attrs) if self.attrs else ""
        stars = "*" if self.variadic_outputs else ""
        return f"{self.name}({head}{tail}) -> {stars}{', '.join(self.outputs)}"


_BY_API_NAME: dict[str, Op] = {}


def op(
    schema: str,
    *,
    family: Family,
    vjp: Mapping[str, Rule | None] | None = None,
    numpy: str | Callable[..., Any] | None = None,
    torch: str | None = None,
    names: Iterable[str] = (),
    formula: str | None = None,
    domain: tuple[float, float] | tuple[tuple[float, float], ...] = (-2.0, 2.0),
    traits: Iterable[str] = (),
    expand: Callable[..., Any] | None = None,
    scalar: Callable[..., Any] | None = None,
    cost: int = 1,
    doc: str = "",
) -> Op:
    """Register an op.

    Raises OpDefinitionError for a statement that is incomplete or contradictory.
    """
    match = _SCHEMA.match(schema)
    if match is None:
        raise OpDefinitionError(f"cannot read the schema {schema!r}", hint="name(x, y; a) -> z")
    raw = _split(match["inputs"])
    variadic = any(n.startswith("*") for n in raw)
    inputs = tuple(n.lstrip("*") for n in raw)
    pairs = domain if domain and isinstance(domain[0], tuple) else (domain,) * max(1, len(inputs))
    caller = sys._getframe(1)  # inspect.stack() would read every source file on the stack
    record = Op(
        name=match["name"],
        inputs=inputs,
        variadic=variadic,
        attrs=_split(match["attrs"] or ""),
        outputs=tuple(n.lstrip("*") for n in _split(match["outputs"])),
        variadic_outputs=match["outputs"].startswith("*"),
        family=family,
        traits=frozenset(traits) | family.traits,
        vjp=dict(vjp or {}),
        reads={k: _parameters(rule) for k, rule in (vjp or {}).items() if rule is not None},
        numpy=numpy,
        torch=torch,
        names=tuple(names),
        formula=formula,
        domain=pairs,  # type: ignore[arg-type]  # normalised to a tuple of pairs just above
        expand=scalar if numpy is None and expand is None else expand,
        scalar=scalar,
        cost=cost,
        doc=doc,
        module=str(caller.f_globals.get("__name__", "")),
    )
    _check(record)
    OPS[record.name] = record
    for name in record.names:
        _BY_API_NAME[name] = record
    return record


def get_op(name: str) -> Op:
    """The op registered under its own name; KeyError if there is none."""
    record = OPS[name]
    assert isinstance(record, Op)
    return record


def find_by_api_name(name: str) -> Op | None:
    """The op that serves an API entry such as `aten.tanh` or `numpy.tanh`.

    None if there is none.
    """
    return _BY_API_NAME.get(name)


def all_ops() -> list[Op]:
    """Every registered op, by name."""
    return [get_op(name) for name in sorted(OPS)]


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parameters(rule: Rule) -> tuple[str, ...]:
    return tuple(inspect.signature(rule).parameters)


def _check(record: Op) -> None:
    def bad(message: str) -> OpDefinitionError:
        return OpDefinitionError(f"op {record.name}: {message}", hint="see docs/adding_an_op.md")

    if record.name in OPS:
        raise bad("is defined twice")
    for name in record.names:
        if name in _BY_API_NAME:
            raise bad(f"{name} is already served by {_BY_API_NAME[name].name}")
    unknown = record.traits - _TRAITS
    if unknown:
        raise bad(f"unknown traits {sorted(unknown)}")
    if record.scalar is not None and "elementwise" not in record.traits:
        raise bad("scalar= is of elementwise ops; its family is of another kind")
    if record.expand is not None:
        if record.numpy is not None:
            raise bad("a composite takes its lowering from its expansion")
        if not record.vjp:
            return
    elif record.numpy is None and "structural" not in record.traits:
        raise bad("has no numpy lowering")
    missing = set(record.inputs) - set(record.vjp)
    extra = set(record.vjp) - set(record.inputs)
    if missing or extra:
        raise bad(f"vjp must name exactly its inputs; missing {missing}, unknown {extra}")
    cotangents = {"g"} if len(record.outputs) == 1 else {f"g_{o}" for o in record.outputs}
    values = set(record.inputs) | set(record.outputs)
    allowed = cotangents | values | {f"{v}_like" for v in values} | set(record.attrs)
    allowed |= {"block"}
    for key, reads in record.reads.items():
        wrong = set(reads) - allowed
        if wrong:
            raise bad(f"the rule of {key} reads {sorted(wrong)}; it may read {sorted(allowed)}")


def check_call(op: Op, inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> None:
    """Arity and attribute names of a call; raises InferenceError."""
    wrong = not inputs if op.variadic else len(inputs) != len(op.inputs)
    if wrong:
        raise InferenceError(f"{op.name} takes ({', '.join(op.inputs)}), got {len(inputs)} inputs")
    if tuple(attrs) != op.attrs and set(attrs) != set(op.attrs):
        raise InferenceError(
            f"{op.name} takes the attributes {sorted(op.attrs)}, got {sorted(attrs)}"
        )
