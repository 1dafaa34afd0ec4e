"""Attention → Triton source: three kernels that never hold all scores.

    forward   a program has BM rows of Q and runs through blocks of BN keys: o, and l of each row
    queries   the same again with exp(s - l) as the probabilities: dq
    keys      a program has BN keys and runs through blocks of BM rows: dk and dv

Blocks of the scores are computed again from Q and K, changed step by step, and pulled back in the
reverse order. Everything is summed in float32, in one order: no atomics, the same bits every time.

Note [Blocks without masks]
Bounds are compared where they need be alone: a block that lies within the scores whole, and below
the diagonal of a causal mask, has no masks; blocks beyond the diagonal are not visited. There is
one loop with a branch in it, not a loop for either kind of block, because ptxas does not overlap
products with anything where a second loop goes on with the sums of a first. What a program's own
axis has beyond its end is read as zeros and never stored, and meets no other row. `TAIL` says
whether the last block is a part of one.

Note [Powers of two]
exp(s - l) is exp2(s * log2(e) - l * log2(e)), one multiply-add and one instruction. Numbers that
the scores are multiplied by last are part of that factor; in the backward all such numbers are one,
by which the sums are multiplied at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradof.codegen.triton.attention.steps import LOG2E, changed, plan_of
from gradof.codegen.triton.helpers import LIBDEVICE, needed
from gradof.codegen.triton.ops import literal
from gradof.ir.types import BOOL, DType
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


@dataclass(frozen=True)
class FlashShape:
    """What the source of an attention depends on."""

    name: str
    steps: tuple[Step, ...]
    extras: tuple[DType, ...]  # of the tensors that steps read
    safe: bool
    loc: str
    causal: int | None = None  # keys up to row + causal count; None: all
    edges: str = "de"  # of the axes d and e those that a block is wider than
    described: bool = False  # blocks of heads are loaded by tensor descriptors, which need no masks

    @property
    def plain(self) -> bool:
        """Whether nothing but numbers changes the scores."""
        return not plan_of(self.steps).steps


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


def is_described(shape: FlashShape, part: str, name: str) -> bool:
    """Whether a kernel is given a descriptor of a tensor, not a pointer and strides."""
    return shape.described and name in ("qg" if part == "keys" else "kv")


def axes_of(name: str) -> str:
    """The axes of a tensor, without the batch."""
    return AXES.get(name, "mn")


class _Emitter:
    def __init__(self, shape: FlashShape, part: str) -> None:
        self.shape = shape
        self.part = part
        self.plan = plan_of(shape.steps)
        # The axis a program has a block of, and the one it runs along; blocks of scores are own
        # by along, so that products of the probabilities have them on the left, in registers.
        self.own, self.along = ("n", "m") if part == "keys" else ("m", "n")
        self.lines: list[str] = []
        self.indent = 1

    def add(self, *texts: str) -> None:
        self.lines += ["    " * self.indent + text for text in texts]

    def kernel(self) -> list[str]:
        where = f"  # {' '.join(self.shape.loc.split())}" if self.shape.loc else ""
        self.lines = ["@triton.jit", f"def {self.shape.name}_{self.part}({where}"]
        self.add(*self.parameters())
        self.lines.append("):")
        own = self.own.upper()
        tile = "tl.program_id(0) % tiles"
        if self.shape.causal is not None and self.part != "keys":
            tile = "(tiles - 1 - tl.program_id(0) % tiles)"  # the longest first
        self.add(
            f"tiles = tl.cdiv({own}, B{own})",
            "batch = tl.program_id(0) // tiles",
            "z = (batch // H).to(tl.int64)",
            "h = (batch % H).to(tl.int64)",
            f"first = {tile} * B{own}",
            *(f"{axis}_at = tl.arange(0, B{axis.upper()}).to(INDEX)" for axis in "mnde"),
            f"{self.own} = first + tl.arange(0, B{own})",
        )
        {"forward": self.forward, "queries": self.queries, "keys": self.keys}[self.part]()
        return self.lines

    def parameters(self) -> Iterator[str]:
        read, written = arguments(self.shape, self.part)
        for name in (*read, *written):
            if is_described(self.shape, self.part, name):
                yield f"{name}_tile,"
                continue
            strides = ", ".join(f"{name}_{axis}" for axis in "zh" + axes_of(name))
            yield f"{name}_ptr, {strides},"
        yield "H, M, N, D: tl.constexpr, E: tl.constexpr,"
        yield "BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,"
        yield "PRECISION: tl.constexpr, INDEX: tl.constexpr, TAIL: tl.constexpr,"

    def axes(self, name: str) -> str:
        """The axes of a tensor's block: that of the keys' kernel is turned, but for V's."""
        axes = axes_of(name)
        turned = self.part == "keys" and (name in ("k", "dk") or name.startswith("x"))
        return axes[::-1] if turned else axes

    def pointers(self, *names: str) -> None:
        """Where the block of a tensor begins, and how far its elements are from there."""
        for name in names:
            if is_described(self.shape, self.part, name):
                continue
            axes = self.axes(name)
            begin = f"{name}_ptr + z * {name}_z + h * {name}_h"
            if self.own in axes:
                begin += f" + first.to(tl.int64) * {name}_{self.own}"
            ranks = ("[:, None]", "[None, :]") if len(axes) == 2 else ("",)
            terms = [f"{axis}_at{r} * {name}_{axis}" for axis, r in zip(axes, ranks, strict=True)]
            self.add(f"{name}_own = {begin}", f"{name}_at = {' + '.join(terms)}")

    def mask(self, axes: str, *, tail: bool) -> str:
        """Which cells of a block are there; empty where all are."""
        ranks = ("[:, None]", "[None, :]") if len(axes) == 2 else ("",)
        texts = []
        for axis, rank in zip(axes, ranks, strict=True):
            if axis in "de" and axis in self.shape.edges:
                texts.append(f"({axis}_at < {axis.upper()}){rank}")
            if axis == self.own or (axis == self.along and tail):
                texts.append(f"({axis} < {axis.upper()}){rank}")
        return " & ".join(texts)

    def place(self, name: str) -> str:
        if self.along not in self.axes(name):
            return f"{name}_own + {name}_at"
        return f"{name}_own + tl.cast(start, tl.int64) * {name}_{self.along} + {name}_at"

    def load(self, *names: str) -> None:
        """Blocks of tensors; those along the loop are masked where `TAIL` says so."""
        texts = [[self.loaded(name, tail) for name in names] for tail in (True, False)]
        if texts[0] == texts[1]:
            self.add(*texts[0])
            return
        for line, branch in zip(("if TAIL:", "else:"), texts, strict=True):
            self.add(line, *(f"    {text}" for text in branch))

    def loaded(self, name: str, tail: bool) -> str:
        if is_described(self.shape, self.part, name):
            shape = f"B{self.along.upper()}, B{'E' if 'e' in axes_of(name) else 'D'}"
            text = f"{name}_tile.load([batch // H, batch % H, start, 0]).reshape({shape})"
            return f"{name} = tl.trans({text})" if self.axes(name) == "dn" else f"{name} = {text}"
        mask = self.mask(self.axes(name), tail=tail)
        rest = f", mask={mask}, other=0" if mask else ""
        then = ""
        if name.startswith("x"):
            then = " != 0" if self.shape.extras[int(name[1:])] == BOOL else ".to(tl.float32)"
        return f"{name} = tl.load({self.place(name)}{rest}){then}"

    def store(self, name: str, value: str) -> None:
        self.pointers(name)
        mask = self.mask(self.axes(name), tail=False)
        self.add(f"tl.store({self.place(name)}, {value}, mask={mask})")

    def loop(self) -> None:
        """Begin the loop over blocks; `whole` ends those that need no masks."""
        along = self.along.upper()
        begin, end = "0", along
        self.add(f"whole = {along} // B{along} * B{along}")
        shift = literal(self.shape.causal)
        if self.shape.causal is not None and self.part == "keys":
            begin = "begin"
            self.add(
                f"begin = tl.maximum(first - {shift}, 0) // BM * BM",
                f"below = first + BN - 1 - {shift}  # the first row that meets all of the keys",
            )
        elif self.shape.causal is not None:
            end = "end"
            self.add(
                f"end = tl.minimum(first + BM + {shift}, N)",
                f"whole = tl.minimum(first + 1 + {shift}, N) // BN * BN",
            )
        self.add(f"for start in range({begin}, {end}, B{along}):")
        self.indent += 1
        self.add(f"{self.along} = start + tl.arange(0, B{along})")

    def masked(self, *names: str, rest: str) -> None:
        """Put `rest` in place of what does not count, in blocks that have such cells."""
        when, cells = "TAIL", f"({self.along} < {self.along.upper()})[None, :]"
        if self.shape.causal is not None:
            m, n = ("m[None, :]", "n[:, None]") if self.own == "n" else ("m[:, None]", "n[None, :]")
            cells += f" & ({n} <= {m} + {literal(self.shape.causal)})"
            when = "(start < below) | (start >= whole)" if self.own == "n" else "start >= whole"
        self.add(f"if {when}:")
        self.indent += 1
        if self.shape.causal is None:
            self.add("if start >= whole:")
            self.indent += 1
        self.add(f"counts = {cells}", *(f"{x} = tl.where(counts, {x}, {rest})" for x in names))
        self.indent -= 2 if self.shape.causal is None else 1

    def scores(self) -> str:
        """The scores of a block, changed; the name of the last of them."""
        product = "k, tl.trans(q)" if self.part == "keys" else "q, k"
        self.add(f"s0 = tl.dot({product}, input_precision=PRECISION)")
        if self.part != "forward":
            product = "v, tl.trans(g)" if self.part == "keys" else "g, tl.trans(v)"
            self.add(f"dp = tl.dot({product}, input_precision=PRECISION)")
        self.load(*self.extras())
        for j, step in enumerate(self.plan.steps):
            self.add(f"s{j + 1} = {changed(step, f's{j}')}")
        return f"s{len(self.plan.steps)}"

    def forward(self) -> None:
        self.pointers("q", "k", "v", *self.extras())
        self.load("q")
        self.add(
            'top = tl.full((BM,), float("-inf"), tl.float32)',
            "total = tl.zeros((BM,), tl.float32)",
            "acc = tl.zeros((BM, BE), tl.float32)",
        )
        self.loop()
        self.load("k", "v")
        last = self.scores()
        self.masked(last, rest='float("-inf")')
        factor = repr(self.plan.last)
        self.add(
            f"larger = tl.maximum(top, tl.max({last}, axis=1) * {factor})",
            "# where all is -inf so far, 0 stands for the maximum: -inf - -inf is no number",
            'shift = tl.where(larger == float("-inf"), 0.0, larger)',
            f"p = tl.exp2({last} * {factor} - shift[:, None])",
            "shrink = tl.exp2(top - shift)",
            "total = total * shrink + tl.sum(p, axis=1)",
            "acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)",
            "top = larger",
        )
        self.indent -= 1
        if self.shape.safe:
            self.add(
                'dead = top == float("-inf")',
                "total = tl.where(dead, 1.0, total)",
                f'l = tl.where(dead, float("inf"), (top + tl.log2(total)) * {1 / LOG2E!r})',
            )
        else:
            self.add(f"l = (top + tl.log2(total)) * {1 / LOG2E!r}")
        self.store("o", "(acc / total[:, None]).to(o_ptr.dtype.element_ty)")
        self.store("l", "l")

    def gradient(self) -> None:
        """p and the gradient of the scores, `ds`, of a block."""
        last = self.scores()
        rank = "[None, :]" if self.part == "keys" else "[:, None]"
        self.add(
            f"p = tl.exp2({last} * {self.plan.last!r} - (l * {LOG2E!r}){rank})",
            f"ds = p * (dp - delta{rank})",
        )
        for j in reversed(range(len(self.plan.steps))):
            text = self.plan.pulled_back(j)
            if text is not None:
                self.add(f"ds = {text}")
        self.masked("p", "ds", rest="0.0")

    def extras(self) -> list[str]:
        return [f"x{j}" for j in range(len(self.shape.extras))]

    def queries(self) -> None:
        self.pointers("q", "k", "v", "l", "g", "delta", *self.extras())
        self.load("q", "l", "g", "delta")
        self.add("dq = tl.zeros((BM, BD), tl.float32)")
        self.loop()
        self.load("k", "v")
        self.gradient()
        self.add("dq = tl.dot(ds.to(k.dtype), tl.trans(k), dq, input_precision=PRECISION)")
        self.indent -= 1
        self.store("dq", f"({self.scaled('dq')}).to(dq_ptr.dtype.element_ty)")

    def keys(self) -> None:
        self.pointers("q", "k", "v", "l", "g", "delta", *self.extras())
        self.load("k", "v")
        self.add("dk = tl.zeros((BN, BD), tl.float32)", "dv = tl.zeros((BN, BE), tl.float32)")
        self.loop()
        self.load("q", "g", "l", "delta")
        self.gradient()
        self.add(
            "dv = tl.dot(p.to(g.dtype), g, dv, input_precision=PRECISION)",
            "dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)",
        )
        self.indent -= 1
        self.store("dk", f"({self.scaled('dk')}).to(dk_ptr.dtype.element_ty)")
        self.store("dv", "dv.to(dv_ptr.dtype.element_ty)")

    def scaled(self, name: str) -> str:
        """A gradient, times the numbers that the scores were multiplied by."""
        factor = self.plan.all
        return name if factor in (None, 1.0) else f"{name} * {literal(factor)}"
