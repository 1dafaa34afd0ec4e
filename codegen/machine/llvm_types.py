"""LLVM IR as text: dtypes as types, in registers and in memory, and instructions one by one."""

from __future__ import annotations

from gradof.ir.types import BF16, BOOL, F16, F32, F64, I32, I64

ELEMENT = {F32: "float", F64: "double", I64: "i64", I32: "i32", BOOL: "i1"}
STORED = {**ELEMENT, BOOL: "i8", BF16: "i16", F16: "i16"}


class Instructions:
    """Appends instructions to `lines`; `declared` are the functions they call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.counter = 0

    def fresh(self) -> str:
        """A new name."""
        self.counter += 1
        return f"%v{self.counter}"

    def emit(self, instruction: str) -> str:
        """`%name = instruction`; returns the name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def line(self, instruction: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {instruction}")

    def declare(self, name: str, text: str) -> None:
        """A function that is called, of one type: LLVM itself takes calls of another."""
        known = self.declared.setdefault(name, text)
        assert known == text, f"two functions named {name}"
