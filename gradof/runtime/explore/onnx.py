"""The trace as an ONNX model, for Netron: its ops by name, with types, attributes and your lines.

    onnx_model(page.data) -> bytes

It is there to be looked at and not to be run: the ops are gradof's, of the domain "gradof", but for
numbers. The package onnx is imported here alone (`pip install 'gradof[onnx]'`).
"""

from __future__ import annotations

from typing import Any

from gradof.errors import InputError
from gradof.ir.attrs import format_attr
from gradof.ir.core import Block, Node, Value
from gradof.ir.parser import parse_graph
from gradof.ir.printer import Names
from gradof.ir.types import ScalarType, TensorType

_IR, _OPSET = 10, 21
_ELEMENTS = {
    "bool": "BOOL", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64", "u8": "UINT8",
    "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "f32": "FLOAT", "f64": "DOUBLE", "c64": "COMPLEX64", "c128": "COMPLEX128",
    "c32": "UNDEFINED",  # which ONNX has not
}  # fmt: skip
_SCALARS = {"bool": "BOOL", "int": "INT64", "float": "DOUBLE", "complex": "COMPLEX128"}


def onnx_model(data: dict[str, Any]) -> bytes:
    """The bytes of the model; InputError where the package onnx is not installed."""
    try:
        from onnx import helper
    except ImportError:
        raise InputError(
            "writing ONNX needs the package onnx", hint="pip install 'gradof[onnx]', or write .dot"
        ) from None
    graph = parse_graph(trace_text(data), data["name"])
    model = helper.make_model(
        _Writer().graph(graph.block, data["name"]), producer_name="gradof",
        producer_version=data["version"], ir_version=_IR,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("gradof", 1)],
    )  # fmt: skip
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def trace_text(data: dict[str, Any]) -> str:
    """The trace as it is printed, with the user's lines."""
    (view,) = (v for v in data["views"] if v["id"] == "trace")
    made = []
    for line in view["lines"]:
        text, origins, printed = data["lines"][line]
        made.append(f"{text}  # {data['nodes'][origins[0]]['loc']}" if printed else text)
    return "\n".join(made) + "\n"


class _Writer:
    """Blocks as ONNX graphs, with one name for each value."""

    def __init__(self) -> None:
        self.names = Names()

    def graph(self, block: Block, name: str) -> Any:
        """A block, with the blocks within it as attributes of their nodes."""
        from onnx import helper

        taken = [self._typed(v) for v in block.params]
        nodes = [self._node(node) for node in block.nodes()]
        inner = [self._typed(v) for node in block.nodes() for v in node.outputs]
        given = [self._typed(v) for v in block.results]
        return helper.make_graph(nodes, name, taken, given, value_info=inner)

    def _node(self, node: Node) -> Any:
        from onnx import helper

        attributes, domain = dict(node.attrs), "gradof"
        if node.kind == "Constant" and type(number := attributes["value"]) in (bool, int, float):
            kind = "value_float" if type(number) is float else "value_int"
            attributes, domain = {kind: number}, ""  # Netron shows it at the node that reads it
        made = helper.make_node(
            node.kind, [self.names[v] for v in node.inputs], [self.names[v] for v in node.outputs],
            doc_string=str(node.loc or ""), domain=domain,
        )  # fmt: skip
        for key, value in attributes.items():
            made.attribute.append(helper.make_attribute(key, _literal(value)))
        for k, block in enumerate(node.blocks):
            made.attribute.append(helper.make_attribute(f"block{k}", self.graph(block, node.kind)))
        return made

    def _typed(self, value: Value) -> Any:
        """The name and type of a value; what ONNX has no type for has its text alone."""
        from onnx import TensorProto, helper

        kind, shape, type_ = "UNDEFINED", None, value.type
        if isinstance(type_, TensorType):
            kind, shape = _ELEMENTS[type_.dtype.name], type_.shape
        elif isinstance(type_, ScalarType):
            kind, shape = _SCALARS[type_.kind], ()
        number = TensorProto.DataType.Value(kind)
        made = helper.make_tensor_value_info(self.names[value], number, shape)
        made.doc_string = str(type_)
        return made


def _literal(value: Any) -> Any:
    """What an attribute of ONNX can be; the rest as it is printed."""
    if type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple and value and all(type(v) is int for v in value):
        return list(value)
    return format_attr(value)
