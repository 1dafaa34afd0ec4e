"""The sum of a row as numpy adds it up, in LLVM's text; see Note [Sums of small arrays]."""

from __future__ import annotations

from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.ir.types import DType

BLOCK = 128  # numpy's, of a row


def pairwise_text(name: str, dtype: DType) -> str:
    """numpy's sum of numbers that follow one another."""
    t = ELEMENT[dtype]
    v = f"<8 x {t}>"
    size = dtype.itemsize
    parts = "\n".join(f"  %r{k} = extractelement {v} %sums, i32 {k}" for k in range(8))
    return f"""define internal {t} @{name}(ptr %x, i64 %n) {{
entry:
  %tiny = icmp slt i64 %n, 8
  br i1 %tiny, label %rest, label %look
look:
  %some = icmp sle i64 %n, {BLOCK}
  br i1 %some, label %begin, label %halves
begin:
  %first = load {v}, ptr %x, align {size}
  %odd = and i64 %n, 7
  %whole = sub i64 %n, %odd
  br label %eights
eights:
  %k = phi i64 [ 8, %begin ], [ %k2, %add ]
  %sums = phi {v} [ %first, %begin ], [ %sums2, %add ]
  %more = icmp slt i64 %k, %whole
  br i1 %more, label %add, label %pairs
add:
  %at = getelementptr {t}, ptr %x, i64 %k
  %cells = load {v}, ptr %at, align {size}
  %sums2 = fadd {v} %sums, %cells
  %k2 = add i64 %k, 8
  br label %eights
pairs:
{parts}
  %a0 = fadd {t} %r0, %r1
  %a1 = fadd {t} %r2, %r3
  %a2 = fadd {t} %r4, %r5
  %a3 = fadd {t} %r6, %r7
  %b0 = fadd {t} %a0, %a1
  %b1 = fadd {t} %a2, %a3
  %c = fadd {t} %b0, %b1
  br label %rest
{_rest_text(name, t, size)}}}"""


def _rest_text(name: str, t: str, size: int) -> str:
    return f"""rest:
  %j0 = phi i64 [ 0, %entry ], [ %whole, %pairs ]
  %s0 = phi {t} [ -0.0, %entry ], [ %c, %pairs ]
  br label %next
next:
  %j = phi i64 [ %j0, %rest ], [ %j2, %one ]
  %s = phi {t} [ %s0, %rest ], [ %s2, %one ]
  %left = icmp slt i64 %j, %n
  br i1 %left, label %one, label %done
one:
  %place = getelementptr {t}, ptr %x, i64 %j
  %cell = load {t}, ptr %place, align {size}
  %s2 = fadd {t} %s, %cell
  %j2 = add i64 %j, 1
  br label %next
done:
  ret {t} %s
halves:
  %half = lshr i64 %n, 1
  %low = and i64 %half, 7
  %n1 = sub i64 %half, %low
  %n2 = sub i64 %n, %n1
  %second = getelementptr {t}, ptr %x, i64 %n1
  %s1 = call {t} @{name}(ptr %x, i64 %n1)
  %s3 = call {t} @{name}(ptr %second, i64 %n2)
  %both = fadd {t} %s1, %s3
  ret {t} %both
"""
