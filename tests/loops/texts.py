"""Loops as text, of every kind there is: one program each, with what its inputs are."""

from __future__ import annotations

import re

DECAY = """graph f(%h : f64[], %x0 : f64[3], %u : f64[STEPS,3]):
  %x : f64[3], %path : f64[STEPS,3] = LOOP<STEPS 1 1|(%h, %x0, %u)
    block(%t : i64[], %k : f64[], %x1 : f64[3], %ut : f64[3]):
      %a : f64[3] = mul(%x1, %ut)
      %b : f64[3] = tanh(%a)
      %c : f64[3] = mul(%b, %k)
      %next : f64[3] = sub(%x1, %c)
      -> (%next, %b)
  return (%x, %path)
"""

BACKWARDS = DECAY.replace("LOOP<", "LOOP>")

COUNTED = """graph f(%n : i64[], %x0 : f64[2], %u : f64[STEPS,2]):
  %x : f64[2], %path : f64[STEPS,2] = LOOP<STEPS counted 0 1|(%n, %x0, %u)
    block(%t : i64[], %x1 : f64[2], %ut : f64[2]):
      %a : f64[2] = mul(%x1, %ut)
      %next : f64[2] = sin(%a)
      -> (%next, %x1)
  return (%x, %path)
"""

# A table that is filled cell by cell, from the cell before, and read at a place that moves.
TABLE = """graph f(%r0 : f64[4,STEPS1], %w : f64[STEPS2], %zero : i64[]):
  %r : f64[4,STEPS1] = LOOP<STEPS 2 1|(%w, %zero, %r0)
    block(%t : i64[], %v : f64[STEPS2], %z : i64[], %r1 : f64[4,STEPS1]):
      %one : i64[] = Constant[value=dense<i64[]>[1]]()
      %next : i64[] = add(%t, %one)
      %before : f64[4,1] = dynamic_slice[dims=(1,), sizes=(1,)](%r1, %t)
      %w2 : f64[2] = dynamic_slice[dims=(0,), sizes=(2,)](%v, %t)
      %s : f64[] = sum[dims=(0,), keepdims=False](%w2)
      %grown : f64[4,1] = mul(%before, %s)
      %bent : f64[4,1] = cos(%grown)
      %r2 : f64[4,STEPS1] = dynamic_slice_scatter[dims=(1,)](%r1, %bent, %next)
      %cell : f64[1,1] = dynamic_slice[dims=(0, 1), sizes=(1, 1)](%r2, %one, %next)
      %more : f64[1,1] = mul(%cell, %cell)
      %r3 : f64[4,STEPS1] = dynamic_slice_scatter[dims=(0, 1)](%r2, %more, %z, %next)
      -> (%r3)
  return (%r)
"""

NESTED = """graph f(%a : f64[2,2], %x0 : f64[2], %u : f64[STEPS,3,2]):
  %x : f64[2], %rows : f64[STEPS,3,2] = LOOP<STEPS 1 1|(%a, %x0, %u)
    block(%t : i64[], %m : f64[2,2], %x1 : f64[2], %ut : f64[3,2]):
      %c : f64[2,2] = tanh(%m)
      %y : f64[2], %ys : f64[3,2] = LOOP>3 1 1|(%c, %x1, %ut)
        block(%s : i64[], %n : f64[2,2], %y1 : f64[2], %us : f64[2]):
          %p : f64[2] = mv(%n, %y1)
          %q : f64[2] = add(%p, %us)
          %y2 : f64[2] = sin(%q)
          -> (%y2, %q)
      -> (%y, %ys)
  return (%x, %rows)
"""

# What is carried and never read, a count of integers, and a value that leaves as it came.
ODD = """graph f(%x0 : f64[2], %k0 : i64[], %z : f64[2], %u : f64[STEPS,2]):
  %x : f64[2], %k : i64[], %same : f64[2], %loss : f64[], %swap : f64[2] =
      LOOP<STEPS 0 5|(%x0, %k0, %z, %l0, %z, %u)
    block(%t : i64[], %x1 : f64[2], %k1 : i64[], %z1 : f64[2], %l : f64[], %w1 : f64[2],
          %ut : f64[2]):
      %one : i64[] = Constant[value=dense<i64[]>[1]]()
      %k2 : i64[] = add(%k1, %one)
      %kf : f64[] = cast[dtype=f64](%k2)
      %a : f64[2] = div(%ut, %kf)
      %b : f64[2] = mul(%x1, %a)
      %x2 : f64[2] = exp(%b)
      %d : f64[2] = mul(%x2, %z1)
      %s : f64[] = sum[dims=(0,), keepdims=False](%d)
      %l2 : f64[] = add(%l, %s)
      -> (%x2, %k2, %z1, %l2, %x1)
  return (%x, %k, %same, %loss, %swap, %z)
""".replace(
    "  %x : f64[2], %k",
    "  %l0 : f64[] = full[dtype=f64, shape=(), device='cpu', value=0.0]()\n  %x : f64[2], %k",
)

# LOOP<steps constants carried| is a Loop with these attributes; LOOP> one that runs backwards.
_LOOP = re.compile(r"LOOP([<>])(\w+)( counted)? (\d) (\d)\|")


def _attributes(found: re.Match[str]) -> str:
    return (
        f"Loop[steps={found[2]}, backwards={found[1] == '>'}, counted={found[3] is not None}, "
        f"constants={found[4]}, carried={found[5]}]"
    )


ALL = {
    "decay": DECAY, "backwards": BACKWARDS, "counted": COUNTED, "table": TABLE, "nested": NESTED,
    "odd": ODD,
}  # fmt: skip


def with_steps(text: str, steps: int) -> str:
    """The program with that many steps."""
    text = _LOOP.sub(_attributes, text)
    text = text.replace("STEPS1", str(steps + 1)).replace("STEPS2", str(steps + 2))
    return text.replace("STEPS", str(steps))
