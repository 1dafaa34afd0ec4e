"""`gradof explore`: calls the target a few times, then writes its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradof.cli.target import inputs_for, load_target


def write_page(
    target: str, output: Path | None, specs: tuple[str, ...], library: Any, *, calls: int,
    checked: bool, timed: bool,
) -> Path:  # fmt: skip
    """Write the page of a target; returns where. Raises what loading and tracing it raise."""
    from gradof.api import differentiate
    from gradof.cli.progress import progress
    from gradof.runtime.explore.model import model_of
    from gradof.runtime.explore.page import Exploration, form_of

    output = output or Path(f"{target.rpartition(':')[2]}.html")
    form_of(output)  # an ending that is none is known before the work
    fn, module = load_target(target)
    compiled: Any = fn if hasattr(fn, "_gradof_original") else differentiate(fn)
    compiled = getattr(compiled, "base", compiled)  # value_and_grad and its like keep theirs there
    compiled = compiled if hasattr(compiled, "bind") else compiled.forward  # of a module
    plain = getattr(compiled, "fn", fn)
    with progress("exploring") as say:
        for n in range(calls):
            say(f"call {n + 1} of {calls}")
            positional, named = inputs_for(plain, module, specs, library)
            compiled(*positional, **named)
        report = None
        if checked:
            from gradof.testing import check

            say("comparing with eager and float64, op by op")
            report = check(plain, positional, named, per_op=True, raise_on_error=False)
        bound = compiled.bind(positional, named)
        model = model_of(compiled, bound, time=timed, report=report, say=say)
        say("writing")
        return Exploration(model).write(output)
