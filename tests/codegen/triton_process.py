"""Parts of Triton's tests in processes of their own: what is interpreted is decided at import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def run(module: str, part: str, folder: Path, *more: str, interpret: bool, **env: str) -> Any:
    """`python -m tests.codegen.MODULE PART MORE`; the JSON of the last line it prints.

    `folder` is where triton keeps what it compiles; `env` is set beside the caller's environment.
    """
    environment = {
        **os.environ, "GRADOF_AUTOTUNE": "1", "TRITON_CACHE_DIR": str(folder), **env
    }  # fmt: skip
    environment.pop("TRITON_INTERPRET", None)
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    else:
        environment["TRITON_DEFAULT_FP_FUSION"] = "1"
    # of triton 3.7's own code, on Python 3.13
    of_triton = "ignore:AnnAssign.__init__ missing 1 required:DeprecationWarning"
    command = [
        sys.executable, "-W", "error", "-W", of_triton, "-m", f"tests.codegen.{module}", part, *more
    ]  # fmt: skip
    done = subprocess.run(
        command, env=environment,
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def print_told(cases: Sequence[Callable[[], None]]) -> None:
    """What such a process prints last: by the name of a case "ok", or what was wrong with it."""
    found = {}
    for case in cases:
        try:
            case()
            found[case.__name__] = "ok"
        except Exception:  # what went wrong is the result
            found[case.__name__] = traceback.format_exc()
    print(json.dumps(found))
