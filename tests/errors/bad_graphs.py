"""Bad inputs: IR, passes, codegen, the registry, the command line."""

from __future__ import annotations

from gradof.cli.target import inputs_for, load_target
from gradof.codegen import compile_graph
from gradof.errors import (
    CodegenError,
    DifferentiationError,
    InferenceError,
    OpDefinitionError,
    ParseError,
    TargetError,
    VerifyError,
)
from gradof.ir.builder import Builder
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.ops.families import unary
from gradof.ops.registry import op
from gradof.passes.pipeline import run_passes
from tests.errors.rows import bad


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
