"""What a judge says of one program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gradof.testing.fuzz.program import Setting


@dataclass
class Verdict:
    """`wrong` has lines such as "gradient 0: off by 1e-3, allowed 1e-6"; their first word counts.

    `refused` says why the library itself does not run it, `eager` why ours ran eagerly: neither is
    a mismatch, and neither is a pass. `orders` is how many derivatives were compared.
    """

    wrong: list[str] = field(default_factory=list)
    refused: str = ""
    eager: str = ""
    opaque: tuple[str, ...] = ()
    orders: int = 0
    at_kink: bool = False  # second derivatives differ, but only at zeros or ties of the inputs
    compiled: Any = None  # the compiled function, for the report of what was reached

    @property
    def kinds(self) -> set[str]:
        """What is wrong: an output, a gradient, a second one, an error."""
        return {line.split()[0] for line in self.wrong}

    @property
    def passed(self) -> bool:
        """Whether our own code ran and was right."""
        return not (self.wrong or self.refused or self.eager)


@contextmanager
def compiling_for(setting: Setting) -> Iterator[None]:
    """The environment of a setting, for the time being."""
    import os

    before = os.environ.get("GRADOF_BACKEND")
    os.environ["GRADOF_BACKEND"] = setting.backend
    try:
        yield
    finally:
        if before is None:
            del os.environ["GRADOF_BACKEND"]
        else:
            os.environ["GRADOF_BACKEND"] = before
