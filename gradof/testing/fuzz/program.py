"""A random program: calls with the values they had, and how it is run.

    program = generate("torch", seed=7)
    print(program.body())
        def program(a, b):
            c = torch.tanh(a)
            d = c[::2] * b
            return d
    program.setting
        Setting(backend='tiles', threads=2)

It is a `Program` of `gradof.testing.shrinking`, of which any calls are a program again, with three
more things: the layout of its inputs, which share memory where those of the program did; a text
in which every floating-point type is a double one, which is what the judge asks; and a setting.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from gradof.testing.literals import array_source, base_of, numpy_twins
from gradof.testing.shrinking import Program

Library = Literal["torch", "numpy"]
IMPORTS = {
    "torch": ("import math", "", "import torch", "from torch import inf, nan", "", "import gradof"),
    "numpy": ("import math", "", "import numpy as np", "from numpy import inf, nan",
              "from scipy import special", "", "import gradof"),
}  # fmt: skip
_NARROW = re.compile(r"\b(torch|np)\.(float16|bfloat16|float32|half|complex64)\b")
_METHOD = re.compile(r"\.(half|bfloat16|float|cfloat|chalf)\(")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


@dataclass(frozen=True)
class Setting:
    """How a program is compiled and called. The defaults are a user's."""

    backend: str = "auto"
    threads: int = 1
    memory_budget: float | None = None
    numerics: Literal["eager", "nan_safe"] = "eager"
    calls: int = 1  # how often, each compared: from the third on f and df may be one run
    prepare: bool = False
    order: int = 2

    def __str__(self) -> str:
        plain = Setting()
        shown = [
            f"{f.name}={getattr(self, f.name)!r}" for f in fields(self)
            if getattr(self, f.name) != getattr(plain, f.name)
        ]  # fmt: skip
        return f"Setting({', '.join(shown)})"


@dataclass(frozen=True)
class FuzzProgram(Program):
    """See the module."""

    setting: Setting = field(default_factory=Setting)
    subject: str = "gradof"  # who is judged

    def text(self) -> str:
        """The function's source with its imports."""
        return "\n".join([*IMPORTS[self.library], "", "", self.body()])

    def function(self) -> Callable[..., Any]:
        """The function, from its source, which tracebacks show."""
        return made_from(self.text())

    def arguments(self) -> tuple[Any, ...]:
        """Fresh inputs, laid out as they were."""
        copies = twins([self.value(n) for n in self.inputs], self.library)
        if self.library == "torch":
            for name, copy in zip(self.inputs, copies, strict=True):
                if name in self.grads and (copy.is_floating_point() or copy.is_complex()):
                    copy.requires_grad_()
        return tuple(copies)

    def source(self) -> str:
        """The runnable file."""
        said = [line.replace("\\", "\\\\").replace('"""', "'''") for line in self.says]
        names = self.inputs
        judged = "" if self.subject == "gradof" else f", {self.subject!r}"
        made: list[str] = []
        memory: dict[int, tuple[str, str]] = {}
        for name in names:
            made.append(f"    {name} = {self._input(name, memory)}")
        bases = [f"    {base} = {text}" for base, text in memory.values()]
        lines = [
            f'"""{self.subject} is wrong here: a program of `gradof fuzz`, seed {self.seed}.',
            "", *said, "",
            "Run this file, or pytest on it: it raises GradientMismatchError as long as it is.",
            '"""', "", *IMPORTS[self.library],
            "from gradof.testing.fuzz import Setting, confirm", "", "",
            self.body().rstrip(), "", "", "def inputs():", *bases, *made,
            f"    return ({''.join(f'{n}, ' for n in names).rstrip()})", "", "",
            "def test_program():",
            f"    confirm(program, inputs, {self.setting}, {self.seed}, {self.library!r}{judged})",
            "", "",
            'if __name__ == "__main__":', "    test_program()", "",
        ]  # fmt: skip
        return "\n".join(lines)

    def _input(self, name: str, memory: dict[int, tuple[str, str]]) -> str:
        """An expression for one input; what it is a view of is added to `memory`."""
        value = self.value(name)
        if self.library == "numpy":
            return _numpy_input(value, memory)
        needs = name in self.grads and (value.is_floating_point() or value.is_complex())
        whole = value.untyped_storage().nbytes() == value.numel() * value.element_size()
        if value.is_contiguous() and whole:
            return array_source(value, "torch", needs)
        import torch

        start = value.untyped_storage().data_ptr()
        if start not in memory:
            base = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
            memory[start] = (f"base{len(memory)}", array_source(base, "torch", False))
        text = (f"{memory[start][0]}.as_strided({tuple(value.shape)}, {value.stride()}, "
                f"{value.storage_offset()}).detach()")  # fmt: skip
        return text + ".requires_grad_()" if needs else text


def texts(text: str) -> Callable[[Mapping[int, int]], str]:
    """The text of a call, with sizes in it cut."""

    def cut(sizes: Mapping[int, int]) -> str:
        if not sizes:
            return text
        return _NUMBER.sub(lambda m: str(sizes.get(int(m[0]), int(m[0]))), text)

    return cut


def made_from(text: str, name: str = "program") -> Callable[..., Any]:
    """The function of this name in a source text."""
    file = f"<fuzz {hash(text) & 0xFFFFFFFF:08x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, file, "exec"), space)
    function: Callable[..., Any] = space[name]
    return function


def whole_source(fn: Callable[..., Any]) -> str:
    """The source of a function and of the imports of the file it is in."""
    lines = linecache.getlines(fn.__code__.co_filename)
    head = [line for line in lines if line.startswith(("import ", "from "))
            and "gradof.testing" not in line]  # fmt: skip
    return "".join(head) + inspect.getsource(fn)


def widened(text: str) -> str:
    """The text with every floating-point type a double one."""
    text = _NARROW.sub(
        lambda m: f"{m[1]}.{'complex128' if m[2] == 'complex64' else 'float64'}", text
    )
    return _METHOD.sub(lambda m: ".cdouble(" if m[1][0] == "c" else ".double(", text)


def twins(values: list[Any], library: Library) -> list[Any]:
    """Copies with the layout of the originals, which share memory where those do."""
    return _torch_twins(values) if library == "torch" else numpy_twins(values)


def _torch_twins(values: list[Any]) -> list[Any]:
    import torch

    memory: dict[int, Any] = {}
    found = []
    for value in values:
        source = value.detach()
        storage = source.untyped_storage()
        start = storage.data_ptr()
        if start == 0 or start not in memory:
            memory[start] = storage.clone()
        found.append(torch.empty(0, dtype=source.dtype).set_(
            memory[start], source.storage_offset(), source.size(), source.stride()
        ))  # fmt: skip
    return found


def _numpy_input(value: Any, memory: dict[int, tuple[str, str]]) -> str:
    base = base_of(value)
    if value.flags.c_contiguous and base.size == value.size:
        return array_source(value, "numpy", False)
    flat = base.reshape(-1, order="A")
    if id(base) not in memory:
        memory[id(base)] = (f"base{len(memory)}", array_source(flat, "numpy", False))
    offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return (f"np.ndarray({value.shape}, np.{value.dtype.name}, {memory[id(base)][0]}.data, "
            f"{offset}, {value.strides})")  # fmt: skip
