"""Text → Graph, the inverse of `gradof.ir.printer`.

Grammar (blank lines ignored; indentation is free, blocks end with their `->` line)::

    graph  ::= "graph" NAME "(" params ")" ":" node* "return" "(" values ")"
    node   ::= [params "="] KIND ["[" NAME "=" attr {"," NAME "=" attr} "]"]
               "(" values ")" [LOC] block*
    block  ::= "block" "(" params ")" ":" node* "->" "(" values ")"
    params ::= [VALUE ":" type {"," VALUE ":" type}]
    LOC    ::= "#" FILE ":" LINE

Raises ParseError with line and column; the graph is verified by the caller (`gradof.ir.verify`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Iterator
from typing import NoReturn

import numpy as np

from gradof.errors import ParseError
from gradof.ir.attrs import Attr, Dense, to_numpy_dtype
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.tokens import HINT, Token, as_loc, tokenize
from gradof.ir.types import BF16, DType, ScalarType, SizeType, TensorType, Type, all_dtypes

_DTYPE_NAMES: dict[str, DType] = {d.name: d for d in all_dtypes()}
_WORDS: dict[str, Attr] = {"True": True, "False": False, "None": None}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
DEEPEST, LONGEST = 100, 640  # nested blocks and tuples; digits, of which Python takes so many
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_ELEMENTS: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "int": (int,), "uint": (int,), "float": (int, float),
    "complex": (int, float, complex),
}  # fmt: skip


def parse_graph(text: str, source: str = "<text>") -> Graph:
    """Parse the text of one graph; `source` names it in errors."""
    parser = Parser(tokenize(text, source), source)
    graph = parser.graph()
    parser.expect("end", "end of text")
    return graph


def _unescape(match: re.Match[str]) -> str:
    """The character; ValueError or OverflowError where there is none of that number."""
    body = match.group(1)
    if len(body) > 1:
        return chr(int(body[1:], 16))
    return _ESCAPES.get(body, body)


class Parser:
    """Reads a graph; `gradof.codegen.loops.text` reads loop nests with the same words."""

    def __init__(self, tokens: list[Token], source: str) -> None:
        self.tokens = [t for t in tokens if t.kind != "loc" or as_loc(t) is not None]
        self.at = 0
        self.source = source
        self.depth = 0  # of blocks and of tuples
        self.values: dict[str, Value] = {}

    @property
    def token(self) -> Token:
        """The next word."""
        return self.tokens[self.at]

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise ParseError at a word, by default the next one."""
        where = token or self.token
        raise ParseError(
            message, line=where.line, column=where.column, source=self.source, hint=HINT
        )

    def take(self) -> Token:
        """The next word, which is read."""
        token = self.token
        self.at += token.kind != "end"
        return token

    def expect(self, kind: str, what: str) -> str:
        """The text of the next word, which is to be of a kind."""
        if self.token.kind != kind:
            self.fail(f"expected {what}, found {self.token.text!r}")
        return self.take().text

    def punct(self, text: str) -> None:
        """Read a sign."""
        if self.token.text != text or self.token.kind not in ("punct", "arrow"):
            self.fail(f"expected {text!r}, found {self.token.text!r}")
        self.take()

    def accept(self, text: str) -> bool:
        """Whether the next word is this sign, which is then read."""
        if self.token.kind in ("punct", "arrow") and self.token.text == text:
            self.take()
            return True
        return False

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        """Within one more block or tuple; Python's stack is not endless."""
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"nested more than {DEEPEST} deep")
        yield
        self.depth -= 1

    def word(self, text: str) -> None:
        """Read a word."""
        if self.token.text != text:
            self.fail(f"expected {text!r}, found {self.token.text!r}")
        self.take()

    def graph(self) -> Graph:
        """A whole graph."""
        self.word("graph")
        graph = Graph(self.expect("name", "the graph's name"))
        self.params(graph.block)
        self.punct(":")
        self.skip_loc()
        self.body(graph.block, "return")
        self.word("return")
        graph.set_outputs(self.operands())
        self.skip_loc()
        return graph

    def skip_loc(self) -> None:
        """Read a line of the user's, if there is one."""
        if self.token.kind == "loc":
            self.take()

    def params(self, block: Block) -> None:
        """The inputs of a block."""
        self.punct("(")
        while not self.accept(")"):
            token, type_ = self.typed()
            self.define(token, block.add_param(type_, _hint(token.text)))
            if not self.accept(","):
                self.punct(")")
                return

    def define(self, token: Token, value: Value) -> None:
        """Make a value known by its name."""
        if token.text in self.values:
            self.fail(f"{token.text} is defined twice", token)
        self.values[token.text] = value

    def typed(self) -> tuple[Token, Type]:
        """A value and its type."""
        token = self.token
        self.expect("value", "a value such as %x")
        self.punct(":")
        return token, self.type()

    def body(self, block: Block, end: str) -> None:
        """Nodes up to a word that ends them."""
        while self.token.text != end:
            if self.token.kind == "end":
                self.fail(f"expected a node or {end!r}, found the end of the text")
            if self.token.text in ("return", "->"):
                self.fail(f"expected a node or {end!r}, found {self.token.text!r}")
            self.node(block)

    def node(self, block: Block) -> None:
        """A node, with its blocks."""
        outputs: list[tuple[Token, Type]] = []
        while self.token.kind == "value":
            outputs.append(self.typed())
            if not self.accept(","):
                break
        if outputs:
            self.punct("=")
        kind = self.expect("name", "the name of an op")
        attrs = self.attrs() if self.token.text == "[" else {}
        node = Node(kind, self.operands(), attrs)
        if self.token.kind == "loc":
            node.loc = as_loc(self.take())
        block.append(node)
        while self.token.kind == "name" and self.token.text == "block":
            self.take()
            inner = node.add_block()
            self.params(inner)
            self.punct(":")
            with self.nested():
                self.body(inner, "->")
            self.punct("->")
            inner.returns.set_inputs(self.operands())
        for token, type_ in outputs:
            self.define(token, node.add_output(type_, _hint(token.text)))

    def operands(self) -> list[Value]:
        """Values in parentheses."""
        self.punct("(")
        values: list[Value] = []
        while not self.accept(")"):
            token = self.token
            self.expect("value", "a value such as %x")
            if token.text not in self.values:
                self.fail(f"{token.text} is used before it is defined", token)
            values.append(self.values[token.text])
            if not self.accept(","):
                self.punct(")")
                break
        return values

    def attrs(self) -> dict[str, Attr]:
        """The attributes in brackets, `[name=value, ...]`."""
        self.punct("[")
        attrs: dict[str, Attr] = {}
        while not self.accept("]"):
            token = self.token
            name = self.expect("name", "the name of an attribute")
            if name in attrs:
                self.fail(f"attribute {name} is given twice", token)
            self.punct("=")
            attrs[name] = self.attr()
            if not self.accept(","):
                self.punct("]")
                break
        return attrs

    def attr(self) -> Attr:
        """The value of an attribute."""
        token = self.take()
        if token.kind == "string":
            try:
                return _ESCAPE.sub(_unescape, token.text[1:-1])
            except (ValueError, OverflowError):
                self.fail(f"no character has that number: {token.text}", token)
        if token.kind == "number":
            return self.number(token)
        if token.kind == "name":
            if token.text in _WORDS:
                return _WORDS[token.text]
            if token.text == "dense":
                return self.dense()
            if token.text in _DTYPE_NAMES:
                return _DTYPE_NAMES[token.text]
        if token.text == "(":
            with self.nested():
                return self.tuple_or_complex()
        self.fail(f"expected an attribute value, found {token.text!r}", token)

    def number(self, token: Token) -> int | float | complex:
        """The number of a word."""
        text = token.text
        if text.endswith("j"):
            return complex(text)
        return float(text) if re.search(r"[.eEin]", text) else self.whole(token)

    def whole(self, token: Token) -> int:
        """A whole number, of at most so many digits as Python reads."""
        if len(token.text) > LONGEST:
            self.fail(f"a number of {len(token.text)} digits, more than {LONGEST}", token)
        return int(token.text)

    def tuple_or_complex(self) -> Attr:
        """What stands in parentheses."""
        items: list[Attr] = []
        while not self.accept(")"):
            first = self.token
            items.append(self.attr())
            if len(items) == 1 and first.kind == "number" and self.token.text not in (",", ")"):
                return self.complex_after(first)
            if not self.accept(","):
                self.punct(")")
                if len(items) == 1 and isinstance(items[0], complex):
                    return items[0]
                break
        return tuple(items)

    def complex_after(self, real: Token) -> complex:
        """`(1+2j)` from behind the 1: complex numbers are read as Python prints them."""
        sign = "+" if self.accept("+") else ""
        token = self.token
        text = self.expect("number", "an imaginary part")
        signed = text.startswith("-")
        if not text.endswith("j") or real.text.endswith("j") or signed == bool(sign):
            self.fail(f"expected an imaginary part such as 2j, found {text!r}", token)
        self.punct(")")
        return complex(real.text + sign + text)

    def dense(self) -> Dense:
        """A constant array."""
        self.punct("<")
        start = self.token
        type_ = self.type()
        self.punct(">")
        if not isinstance(type_, TensorType) or type_.shape is None:
            self.fail("a dense constant needs a tensor type with a known shape", start)
        if type_.dtype == BF16:
            self.fail("numpy has no bf16, so there are no dense constants of it", start)
        token = self.token
        if token.kind == "string":
            self.take()
            try:
                data = base64.b64decode(token.text[1:-1], validate=True)
            except binascii.Error as error:
                self.fail(f"not base64: {error}", token)
        else:
            self.punct("[")
            elements: list[bytes] = []
            while not self.accept("]"):
                elements.append(self.element(type_.dtype))
                if not self.accept(","):
                    self.punct("]")
                    break
            data = b"".join(elements)
        if len(data) != type_.nbytes:
            self.fail(f"{type_} needs {type_.nbytes} bytes, found {len(data)}", token)
        return Dense(type_.dtype, type_.shape, data)

    def element(self, dtype: DType) -> bytes:
        """An element of a constant array."""
        token = self.token
        value = self.attr()
        fits = isinstance(value, _ELEMENTS[dtype.kind])
        if not fits or (isinstance(value, bool) and dtype.kind != "bool"):
            self.fail(f"expected an element of dtype {dtype}, found {token.text!r}", token)
        try:
            return np.array(value, to_numpy_dtype(dtype)).tobytes()
        except OverflowError:
            self.fail(f"{token.text} is out of the range of {dtype}", token)

    def type(self) -> Type:
        """A type, as `f32[3]`."""
        token = self.token
        name = self.expect("name", "a type such as f32[3]")
        if name in ("float", "int", "complex") or (name == "bool" and self.token.text != "["):
            return ScalarType(name)  # type: ignore[arg-type]  # one of the four literals
        if name == "size":
            return SizeType()
        if name not in _DTYPE_NAMES:
            self.fail(f"unknown type {name!r}", token)
        shape = self.shape()
        device = "cpu"
        if self.accept("@"):
            device = self.expect("name", "a device such as cuda")
            if self.accept(":"):
                device += ":" + self.expect("number", "a device index")
        return TensorType(_DTYPE_NAMES[name], shape, device)

    def shape(self) -> tuple[int, ...] | None:
        """Sizes in brackets; None for an unknown shape."""
        self.punct("[")
        if self.accept("*"):
            self.punct("]")
            return None
        dims: list[int] = []
        while not self.accept("]"):
            token = self.token
            text = self.expect("number", "a size")
            if not text.isdigit():
                self.fail(f"a size is a whole number, not {text!r}", token)
            dims.append(self.whole(token))
            if not self.accept(","):
                self.punct("]")
                break
        return tuple(dims)


def _hint(text: str) -> str | None:
    """The name hint behind `%h.1`; None for a running number such as `%3`."""
    base = re.sub(r"(\.\d+)+$", "", text[1:])
    return None if base.isdigit() else base
