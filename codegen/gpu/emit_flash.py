"""Attention → Triton source: three kernels that never hold all scores.

    forward   a program has BM rows of Q and runs through blocks of BN keys: o, and l of each row
    queries   the same again with exp(s - l) as the probabilities: dq
    keys      a program has BN keys and runs through blocks of BM rows: dk and dv

Blocks of the scores are computed again from Q and K, changed step by step, and pulled back in the
reverse order. Everything is summed in float32, in one order: no atomics, the same bits every time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradof.codegen.gpu.helpers import LIBDEVICE, needed
from gradof.codegen.gpu.ops import expression, literal
from gradof.ir.types import BOOL, F32, DType
from gradof.ops.attention import Step

HEADER = "import triton\nimport triton.language as tl\n"
PARTS = ("forward", "queries", "keys")
# Per tensor: its axes among z, h (batch), m (rows), n (keys), d (of Q and K), e (of V).
AXES = {"q": "md", "k": "dn", "v": "ne", "o": "me", "l": "m", "g": "me", "delta": "m", "dq": "md",
        "dk": "dn", "dv": "ne"}  # fmt: skip
TENSORS = {
    "forward": (("q", "k", "v"), ("o", "l")),
    "queries": (("q", "k", "v", "l", "g", "delta"), ("dq",)),
    "keys": (("q", "k", "v", "l", "g", "delta"), ("dk", "dv")),
}
_LIMIT = {"m": "M", "n": "N", "d": "D", "e": "E"}


@dataclass(frozen=True)
class FlashShape:
    """What the source of an attention depends on."""

    name: str
    steps: tuple[Step, ...]
    extras: tuple[DType, ...]  # of the tensors that steps read
    safe: bool
    loc: str


def emit_flash(shape: FlashShape, part: str) -> str:
    """Source of one of the three kernels, `{name}_{part}`."""
    body = "\n".join(_Emitter(shape, part).kernel()) + "\n"
    helpers = needed(body)
    used = any("libdevice." in text for text in (body, *helpers))
    return "\n\n".join([HEADER + LIBDEVICE if used else HEADER, *helpers, body])


def arguments(shape: FlashShape, part: str) -> tuple[list[str], list[str]]:
    """The names of the tensors a kernel reads, and of those it writes."""
    read, written = TENSORS[part]
    return [*read, *(f"x{k}" for k in range(len(shape.extras)))], list(written)


class _Emitter:
    def __init__(self, shape: FlashShape, part: str) -> None:
        self.shape = shape
        self.part = part
        self.lines: list[str] = []
        self.indent = 1

    def add(self, *texts: str) -> None:
        self.lines += ["    " * self.indent + text for text in texts]

    def kernel(self) -> list[str]:
        where = f"  # {' '.join(self.shape.loc.split())}" if self.shape.loc else ""
        self.lines = ["@triton.jit", f"def {self.shape.name}_{self.part}({where}"]
        self.add(*self.parameters())
        self.lines.append("):")
        own, other = ("n", "m") if self.part == "keys" else ("m", "n")
        self.add(
            f"tiles = tl.cdiv({own.upper()}, B{own.upper()})",
            "batch = tl.program_id(0) // tiles",
            "z = (batch // H).to(tl.int64)",
            "h = (batch % H).to(tl.int64)",
            f"{own} = (tl.program_id(0) % tiles).to(tl.int64) * B{own.upper()}"
            f" + tl.arange(0, B{own.upper()})",
            "d = tl.arange(0, BD)",
            "e = tl.arange(0, BE)",
        )
        {"forward": self.forward, "queries": self.queries, "keys": self.keys}[self.part](other)
        return self.lines

    def parameters(self) -> Iterator[str]:
        read, written = arguments(self.shape, self.part)
        for name in (*read, *written):
            strides = ", ".join(f"{name}_{axis}" for axis in "zh" + axes_of(name))
            yield f"{name}_ptr, {strides},"
        yield "H, M, N, D: tl.constexpr, E: tl.constexpr,"
        yield "BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,"
        yield "PRECISION: tl.constexpr,"

    def loop(self, axis: str) -> None:
        big = axis.upper()
        self.add(f"for start in range(0, {big}, B{big}):")
        self.indent += 1
        self.add(f"{axis} = start + tl.arange(0, B{big}).to(tl.int64)")

    def load(self, *names: str) -> None:
        for name in names:
            place, mask = _place(name)
            self.add(f"{name} = tl.load(", f"    {place},", f"    mask={mask}, other=0,", ")")

    def store(self, name: str, value: str) -> None:
        place, mask = _place(name)
        self.add("tl.store(", f"    {place},", f"    {value}, mask={mask},", ")")

    def scores(self) -> str:
        """The scores of a block, changed; the name of the last of them."""
        self.add("cell = (m < M)[:, None] & (n < N)[None, :]",
                 "s0 = tl.dot(q, k, input_precision=PRECISION)")  # fmt: skip
        for j, dtype in enumerate(self.shape.extras):
            place, _ = _place(f"x{j}")
            self.add(f"x{j} = tl.load(", f"    {place}, mask=cell, other=0,",
                     ") != 0" if dtype == BOOL else ").to(tl.float32)")  # fmt: skip
        for j, (name, args) in enumerate(self.shape.steps):
            self.add(f"s{j + 1} = {_expression(name, [_named(a, f's{j}') for a in args])}")
        return f"s{len(self.shape.steps)}"

    def forward(self, other: str) -> None:
        self.load("q")
        self.add(
            'top = tl.full((BM,), float("-inf"), tl.float32)',
            "total = tl.zeros((BM,), tl.float32)",
            "acc = tl.zeros((BM, BE), tl.float32)",
        )
        self.loop(other)
        self.load("k", "v")
        last = self.scores()
        self.add(
            f's = tl.where(cell, {last}, float("-inf"))',
            "larger = tl.maximum(top, tl.max(s, axis=1))",
            "# where all is -inf so far, 0 stands for the maximum: -inf - -inf is no number",
            'shift = tl.where(larger == float("-inf"), 0.0, larger)',
            "p = tl.exp(s - shift[:, None])",
            "shrink = tl.exp(top - shift)",
            "total = total * shrink + tl.sum(p, axis=1)",
            "acc = acc * shrink[:, None]"
            " + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)",
            "top = larger",
        )
        self.indent -= 1
        if self.shape.safe:
            self.add(
                'dead = top == float("-inf")',
                "total = tl.where(dead, 1.0, total)",
                'l = tl.where(dead, float("inf"), top + tl.log(total))',
            )
        else:
            self.add("l = top + tl.log(total)")
        self.store("o", "(acc / total[:, None]).to(o_ptr.dtype.element_ty)")
        self.store("l", "l")

    def gradient(self) -> None:
        """p and the gradient of the scores, `ds`, of a block."""
        last = self.scores()
        self.add(
            f"p = tl.where(cell, tl.exp({last} - l[:, None]), 0.0)",
            "dp = tl.dot(g, tl.trans(v), input_precision=PRECISION)",
            "ds = p * (dp - delta[:, None])",
        )
        for j in reversed(range(len(self.shape.steps))):
            text = _pulled_back(self.shape.steps[j], f"s{j + 1}")
            if text is not None:
                self.add(f"ds = {text}")
        self.add("ds = tl.where(cell, ds, 0.0)")

    def queries(self, other: str) -> None:
        self.load("q", "l", "g", "delta")
        self.add("dq = tl.zeros((BM, BD), tl.float32)")
        self.loop(other)
        self.load("k", "v")
        self.gradient()
        self.add("dq += tl.dot(ds.to(k.dtype), tl.trans(k), input_precision=PRECISION)")
        self.indent -= 1
        self.store("dq", "dq.to(dq_ptr.dtype.element_ty)")

    def keys(self, other: str) -> None:
        self.load("k", "v")
        self.add("dk = tl.zeros((BD, BN), tl.float32)", "dv = tl.zeros((BN, BE), tl.float32)")
        self.loop(other)
        self.load("q", "l", "g", "delta")
        self.gradient()
        self.add(
            "dk += tl.dot(tl.trans(q), ds.to(q.dtype), input_precision=PRECISION)",
            "dv += tl.dot(tl.trans(p.to(g.dtype)), g, input_precision=PRECISION)",
        )
        self.indent -= 1
        self.store("dk", "dk.to(dk_ptr.dtype.element_ty)")
        self.store("dv", "dv.to(dv_ptr.dtype.element_ty)")


def axes_of(name: str) -> str:
    """The axes of a tensor, without the batch."""
    return AXES.get(name, "mn")


def _place(name: str) -> tuple[str, str]:
    """Where the block of a tensor is, and which of its cells are there."""
    axes = axes_of(name)
    ranks = ("[:, None]", "[None, :]") if len(axes) == 2 else ("",)
    terms = [f"{axis}{r} * {name}_{axis}" for axis, r in zip(axes, ranks, strict=True)]
    mask = " & ".join(
        f"({axis} < {_LIMIT[axis]}){r}" for axis, r in zip(axes, ranks, strict=True)
    )
    return f"{name}_ptr + z * {name}_z + h * {name}_h + {' + '.join(terms)}", mask


def _named(arg: str | int | float, score: str) -> str:
    if isinstance(arg, str):
        return score if arg == "s" else arg
    return literal(float(arg))


def _expression(name: str, args: Sequence[str]) -> str:
    """A pointwise op of float32."""
    return expression(name, F32, args, [F32] * sum(a.isidentifier() for a in args), {})


def _pulled_back(step: Step, result: str) -> str | None:
    """The gradient of a step's operand, of that of its result; None where it is the same."""
    name, args = step
    others = [_named(a, "") for a in args if a != "s"]
    if name == "where":
        return _expression("where", [others[0], *(("ds", "0.0") if args[1] == "s" else
                                                  ("0.0", "ds"))])  # fmt: skip
    if name in ("mul", "div"):
        return f"ds {'*' if name == 'mul' else '/'} {others[0]}"
    if name == "tanh":
        return f"ds * (1.0 - {result} * {result})"
    if name == "neg" or (name == "sub" and args[0] != "s"):
        return "-ds"
    assert name in ("add", "sub"), name
    return None
