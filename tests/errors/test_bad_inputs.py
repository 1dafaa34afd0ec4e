"""Bad inputs: each is refused with its own class, at the user's line, with a hint, and nothing run.

    @bad(DataDependentError, "needs the value")
    def numpy_branch() -> None:
        grad(lambda x: np.sum(x) if x[0] > 0 else -np.sum(x))(A)  # here

The error must be exactly of that class, its message must match, its `loc` must be the line marked
`# here` (none is expected without a mark), its hint must say something, and the caller's arrays,
tensors and random state must be what they were.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate, grad, hessian, hvp, jacobian, value_and_grad, vjp
from gradof.cli.target import inputs_for, load_target
from gradof.codegen import compile_graph
from gradof.errors import (
    ArgnumsError,
    CallError,
    CodegenError,
    CotangentError,
    DataDependentError,
    DataDependentShapeError,
    DeviceError,
    DifferentiationError,
    DtypeError,
    FreeTensorError,
    GradofError,
    InferenceError,
    InputError,
    LeafMutationError,
    LeafTypeError,
    OpDefinitionError,
    OutputError,
    ParseError,
    ShapeError,
    TargetError,
    UnsupportedOpError,
    VerifyError,
)
from gradof.ir.builder import Builder
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.ops.families import unary
from gradof.ops.registry import op
from gradof.passes.pipeline import run_passes
from gradof.tracer.source import shorten

A = np.linspace(0.5, 2.0, 6).reshape(2, 3)
INDEX = np.array([0, 1, 1])
T = torch.linspace(0.5, 2.0, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
IMAGINARY = A + 1j
SWAPPED = A.astype(A.dtype.newbyteorder())


class Row(NamedTuple):
    """One bad input."""

    run: Callable[[], Any]
    error: type[GradofError]
    match: str


ROWS: list[Row] = []


def bad(error: type[GradofError], match: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(run: Callable[[], Any]) -> Callable[[], Any]:
        ROWS.append(Row(run, error, match))
        return run

    return register


def total(x: Any, *rest: Any) -> Any:
    return (x * x).sum()


# --- argnums and the arguments ------------------------------------------------------------------


@bad(ArgnumsError, "argument 3, but there are 1")
def argnums_out_of_range() -> None:
    grad(total, argnums=3)(A)


@bad(ArgnumsError, "must name each argument once")
def argnums_twice() -> None:
    grad(total, argnums=(0, 0))


@bad(ArgnumsError, "non-negative int")
def argnums_negative() -> None:
    value_and_grad(total, argnums=-1)


@bad(ArgnumsError, "non-negative int")
def argnums_of_another_type() -> None:
    jacobian(total, argnums="x")  # type: ignore[arg-type]


@bad(ArgnumsError, "must name each argument once")
def argnums_of_nothing() -> None:
    hessian(total, argnums=())


@bad(LeafTypeError, r"args\[1\] is a str, which has no gradient")
def gradient_of_a_string() -> None:
    grad(total, argnums=1)(A, "sum")


@bad(LeafTypeError, "without any array argument")
def no_array_at_all() -> None:
    differentiate(total)("sum")


@bad(LeafTypeError, r"args\[1\] is a set: neither an array nor hashable")
def unhashable_static() -> None:
    differentiate(total)(A, {1, 2})


@bad(LeafTypeError, r"args\[0\] is an array of dtype object")
def array_of_objects() -> None:
    grad(total)(np.array([None, "a"]))


@bad(LeafTypeError, r"args\[0\] is a torch tensor and args\[1\] a numpy array")
def two_libraries() -> None:
    differentiate(total)(T, A)


@bad(LeafTypeError, r"args\[0\] is a torch.sparse_coo tensor")
def sparse_tensor() -> None:
    differentiate(total)(T.detach().to_sparse())


@bad(CallError, "two cannot be called with these arguments: missing a required argument")
def too_few_arguments() -> None:
    def two(x: Any, y: Any) -> Any:
        return (x * y).sum()

    grad(two)(A)


@bad(CallError, "one cannot be called with these arguments: too many")
def too_many_arguments() -> None:
    def one(x: Any) -> Any:
        return x.sum()

    grad(one)(A, A)


@bad(CallError, "unexpected keyword argument 'scale'")
def unknown_keyword() -> None:
    def one(x: Any) -> Any:
        return x.sum()

    differentiate(one)(A, scale=2.0)


@bad(InputError, "nope")
def unknown_static_argument() -> None:
    differentiate(total, static_argnames=("nope",))(A)


@bad(InputError, "takes a function or a module, not a float")
def not_a_function() -> None:
    differentiate(3.0)  # type: ignore[call-overload]


# --- dtypes and devices -------------------------------------------------------------------------


@bad(DtypeError, "integers and booleans have no gradient")
def gradient_of_integers() -> None:
    grad(lambda i: (i * 2.0).sum())(INDEX)


@bad(DtypeError, "integers and booleans have no gradient")
def gradient_of_integer_tensors() -> None:
    grad(lambda i: (i * 2.0).sum())(torch.arange(3))


@bad(DtypeError, r"args\[0\] is complex")
def complex_array() -> None:
    grad(total)(IMAGINARY)


@bad(DtypeError, "complex")
def complex_tensor() -> None:
    differentiate(total)(torch.ones(2, dtype=torch.complex64))


@bad(DtypeError, "native byte order")
def foreign_byte_order() -> None:
    grad(total)(SWAPPED)


@bad(DtypeError, "bf16|bfloat16")
def bfloat16_on_numpy() -> None:
    differentiate(total)(torch.ones(2, dtype=torch.bfloat16))


@bad(DeviceError, "is on meta")
def tensor_without_data() -> None:
    differentiate(total)(torch.ones(2, device="meta"))


# --- what the function does ---------------------------------------------------------------------


@bad(ShapeError, "cannot be multiplied")
def tensors_that_do_not_multiply() -> None:
    def fn(x: Any) -> Any:
        return (x @ x).sum()  # here

    differentiate(fn)(T)


@bad(ShapeError, "must match the size")
def tensors_that_do_not_broadcast() -> None:
    def fn(x: Any) -> Any:
        y = x[:, :2]
        return (x + y).sum()  # here

    differentiate(fn)(T)


@bad(ShapeError, "could not be broadcast together")
def arrays_that_do_not_broadcast() -> None:
    def fn(x: Any) -> Any:
        y = x[:, :2]
        return (x + y).sum()  # here

    grad(fn)(A)


@bad(ShapeError, "mismatch|multipl|matmul")
def arrays_that_do_not_multiply() -> None:
    def fn(x: Any) -> Any:
        return (x @ x).sum()  # here

    grad(fn)(A)


@bad(DataDependentError, "Python reads the value of a tensor")
def branch_on_a_tensor() -> None:
    def fn(x: Any) -> Any:
        return x.sum() if x.sum() > 0 else -x.sum()  # here

    differentiate(fn)(T)


@bad(DataDependentError, "needs the value of a traced array")
def branch_on_an_array() -> None:
    def fn(x: Any) -> Any:
        return x.sum() if x.sum() > 0 else -x.sum()  # here

    grad(fn)(A)


@bad(DataDependentError, r"float\(\) needs the value")
def python_float_of_an_array() -> None:
    def fn(x: Any) -> Any:
        return float(x.sum()) * x.sum()  # here

    grad(fn)(A)


@bad(DataDependentShapeError, "depends on the values")
def mask_of_a_tensor() -> None:
    def fn(x: Any) -> Any:
        return x[x > 1].sum()  # here

    differentiate(fn)(T)


@bad(DataDependentShapeError, "depends on values")
def mask_of_an_array() -> None:
    def fn(x: Any) -> Any:
        return x[x > 1].sum()  # here

    grad(fn)(A)


@bad(LeafMutationError, "in-place|inplace")
def mutation_of_a_leaf() -> None:
    def fn(x: Any) -> Any:
        x.mul_(2)  # here
        return x.sum()

    differentiate(fn)(T)


@bad(UnsupportedOpError, "bessel_j0")
def unknown_torch_op() -> None:
    def fn(x: Any) -> Any:
        return torch.special.bessel_j0(x).sum()  # here

    differentiate(fn)(T)


@bad(UnsupportedOpError, "nextafter")
def unknown_numpy_function() -> None:
    def fn(x: Any) -> Any:
        return np.nextafter(x, 0.5).sum()  # here

    grad(fn)(A)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * 5


@bad(UnsupportedOpError, "Doubled, a torch.autograd.Function")
def custom_autograd_function() -> None:
    differentiate(lambda x: Doubled.apply(x).sum())(T)  # type: ignore[no-untyped-call]


@bad(FreeTensorError, "is no argument")
def free_tensor_without_origin() -> None:
    supply = iter([torch.ones(3, dtype=torch.float64)])

    def fn(x: Any) -> Any:
        return (x * next(supply)).sum()  # here

    differentiate(fn)(T)


@bad(FreeTensorError, "made from a numpy array inside")
def tensor_from_an_array_inside() -> None:
    def fn(x: Any) -> Any:
        return (x * torch.from_numpy(A)).sum()  # here

    differentiate(fn)(T)


@bad(UnsupportedOpError, "would become a plain numpy array")
def traced_array_into_a_plain_one() -> None:
    def fn(x: Any) -> Any:
        out = np.zeros(3)
        out[:] = x[0]  # here
        return out.sum()

    grad(fn)(A)


# --- outputs and cotangents ---------------------------------------------------------------------


@bad(OutputError, r"f64\[2,3\], not a scalar")
def gradient_of_a_matrix() -> None:
    grad(lambda x: x * 2.0)(A)


@bad(OutputError, "returns 2 leaves, not one scalar")
def gradient_of_two_outputs() -> None:
    grad(lambda x: (x.sum(), x.sum()))(A)


@bad(OutputError, "'text', which does not depend on any array")
def output_that_is_no_tensor() -> None:
    grad(lambda x: "text")(A)


@bad(OutputError, "one of its inputs as it is")
def output_that_is_the_input() -> None:
    grad(lambda x: x)(np.float64(2.0))


@bad(OutputError, "not floating point")
def integer_output() -> None:
    grad(lambda x: (x > 1).sum())(A)


@bad(OutputError, "pair")
def aux_without_a_pair() -> None:
    grad(total, has_aux=True)(A)


@bad(CotangentError, "shape")
def cotangent_of_wrong_shape() -> None:
    vjp(lambda x: x * 2.0, A)[1](np.ones((3, 2)))


@bad(CotangentError, "dtype")
def cotangent_of_wrong_dtype() -> None:
    vjp(lambda x: x * 2.0, A)[1](np.ones((2, 3), np.float32))


@bad(CotangentError, "dtype")
def cotangent_tensor_of_wrong_dtype() -> None:
    vjp(lambda x: x * 2.0, T)[1](torch.ones(2, 3))


@bad(CotangentError, "structure")
def cotangent_of_wrong_structure() -> None:
    vjp(lambda x: (x * 2.0, x * 3.0), A)[1](np.ones((2, 3)))


@bad(CotangentError, "tangents")
def tangent_of_wrong_shape() -> None:
    hvp(total, (A,), (np.ones(2),))


@bad(CotangentError, "2 tangents for 1 primals")
def too_many_tangents() -> None:
    hvp(total, (A,), (A, A))


# --- IR, passes, codegen, the registry, the command line ----------------------------------------


@bad(ParseError, "expected ':', found ','")
def malformed_ir() -> None:
    parse_graph("graph f(%x, %y : f32[3]):\n  return (%x)", "model.ir")


@bad(ParseError, "%y is used before it is defined")
def undefined_value_in_ir() -> None:
    parse_graph("graph f(%x : f32[3]):\n  %z : f32[3] = tanh(%y)\n  return (%z)", "model.ir")


@bad(VerifyError, "unknown op 'tanhh'")
def unknown_op_in_ir() -> None:
    verify(parse_graph("graph f(%x : f32[3]): %y : f32[3] = tanhh(%x)  # m.py:3\n return (%y)"))


@bad(VerifyError, r"should have the result types \(f32\[3\]\)")
def wrong_type_in_ir() -> None:
    verify(parse_graph("graph f(%x : f32[3]): %y : f32[4] = tanh(%x)  # m.py:3\n return (%y)"))


@bad(InferenceError, "do not broadcast together")
def wrong_shapes_in_ir() -> None:
    graph = parse_graph("graph f(%x : f32[3], %y : f32[4]): return (%x)")
    Builder(graph.block).emit("add", *graph.inputs)


@bad(CodegenError, "softmax cannot be emitted")
def composite_to_codegen() -> None:
    compile_graph(parse_graph(
        "graph f(%x : f32[3]): %y : f32[3] = softmax[dim=0](%x)  # m.py:3\n return (%y)"
    ))  # fmt: skip


@bad(CodegenError, "not on cuda:0")
def gpu_graph_to_the_numpy_backend() -> None:
    compile_graph(parse_graph(
        "graph f(%x : f32[3]@cuda:0): %y : f32[3]@cuda:0 = tanh(%x) return (%y)"
    ))  # fmt: skip


@bad(DifferentiationError, "requires_grad flags")
def wrong_number_of_flags() -> None:
    from gradof.autodiff.differentiate import differentiate as split

    split(parse_graph("graph f(%x : f32[3]): %y : f32[3] = tanh(%x) return (%y)"), [True, False])


@bad(TargetError, "unknown pass 'nope'")
def unknown_pass() -> None:
    run_passes(parse_graph("graph f(): return ()"), ["nope"])


@bad(OpDefinitionError, "vjp must name exactly its inputs")
def op_without_a_rule() -> None:
    op("nothing(x) -> y", family=unary(), numpy="np.tanh")


@bad(OpDefinitionError, "cannot read the schema")
def op_with_a_wrong_schema() -> None:
    op("nothing(x", family=unary(), numpy="np.tanh")


@bad(TargetError, "no file nowhere.py")
def target_without_a_file() -> None:
    load_target("nowhere.py:loss")


@bad(TargetError, "cannot read the target")
def target_without_a_function() -> None:
    load_target("examples/digits.py")


@bad(TargetError, "has no 'nothing'")
def target_without_that_name() -> None:
    load_target("math:nothing")


@bad(TargetError, "f33|dtype|type")
def argument_of_unknown_dtype() -> None:
    fn, module = load_target("json:dumps")
    inputs_for(fn, module, ["obj=f33[2]"], "numpy")


@bad(TargetError, "=")
def argument_without_a_value() -> None:
    fn, module = load_target("json:dumps")
    inputs_for(fn, module, ["obj"], "numpy")


# --- the checks ---------------------------------------------------------------------------------

OWN_LINES = {"malformed_ir": "model.ir:1:11", "undefined_value_in_ir": "model.ir:2:22",
             "unknown_op_in_ir": "m.py:3", "wrong_type_in_ir": "m.py:3",
             "composite_to_codegen": "m.py:3"}  # fmt: skip


def where(run: Callable[[], Any]) -> str | None:
    """The `file:line` the error must point to: the marked line, or a line of the row's own IR."""
    if run is custom_autograd_function:
        lines, first = inspect.getsourcelines(Doubled.forward)
        return f"{shorten(__file__)}:{first + len(lines) - 1}"
    lines, first = inspect.getsourcelines(run)
    marked = [first + i for i, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return f"{shorten(__file__)}:{marked[0]}" if marked else OWN_LINES.get(run.__name__)


@pytest.fixture
def untouched() -> Iterator[None]:
    before = [v.copy() for v in (A, INDEX, IMAGINARY, SWAPPED)]
    tensor, version = T.detach().clone(), T._version
    random, torch_random = np.random.get_state(), torch.get_rng_state()
    yield
    for array, copy in zip((A, INDEX, IMAGINARY, SWAPPED), before, strict=True):
        assert array.dtype == copy.dtype and array.tobytes() == copy.tobytes()
    assert torch.equal(T.detach(), tensor) and T._version == version
    assert T.grad is None and T.is_leaf and T.requires_grad
    assert torch.equal(torch.get_rng_state(), torch_random)
    assert str(np.random.get_state()) == str(random)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.run.__name__)
@pytest.mark.usefixtures("untouched")
def test_refused(row: Row) -> None:
    with pytest.raises(row.error, match=row.match) as caught:
        row.run()
    error = caught.value
    assert type(error) is row.error
    found = None if error.loc is None else str(error.loc)
    want = where(row.run)
    if want is not None:
        assert found == want
        assert f"\n  at {want}" in str(error)
    assert error.hint, "what should the user do?"
    assert f"\n  hint: {error.hint}" in str(error)


def test_the_table_is_as_long_as_promised() -> None:
    assert len(ROWS) >= 25 and len({row.run.__name__ for row in ROWS}) == len(ROWS)
    assert sum(where(row.run) is not None for row in ROWS) >= 12


def test_a_function_that_was_refused_works_for_good_inputs() -> None:
    fn = grad(lambda x: (x * 1.0 * x).sum())
    with pytest.raises(DtypeError):
        fn(INDEX)
    np.testing.assert_allclose(fn(A), 2 * A)
    assert fn.base.cache_info().forward_runs + fn.base.cache_info().backward_runs >= 1


def test_every_error_class_is_refused_somewhere_or_named_here() -> None:
    """A class nobody raises is a promise nobody keeps."""
    tree = [GradofError]
    for each in tree:
        tree.extend(each.__subclasses__())
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(gradof.__file__).resolve().parent.rglob("*.py")
        if path.name != "errors.py"
    )
    folders = ("tracer", "autodiff", "codegen")
    root = Path(gradof.__file__).resolve().parent.parent
    sources += "".join(p.read_text() for f in folders for p in (root / f).rglob("*.py"))
    leaves = {c.__name__ for c in tree if not c.__subclasses__()}
    unused = {name for name in leaves if not re.search(rf"\b{name}\(", sources)}
    assert unused == set()
