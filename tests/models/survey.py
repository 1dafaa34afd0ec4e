"""Every architecture of transformers' AutoModel, and every class with a head, each in a process of
its own.

    python -m tests.models.survey                              all, and docs/models.md
    python -m tests.models.survey --out o.jsonl bert gpt2      these, as lines of JSON

A process that has imported the libraries forks one child per architecture, with limits on its
time and memory: a model that hangs or dies is a row like any other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.models.page import figures, page

ROOT = Path(__file__).parents[2]
SECONDS, MEMORY = 60, 6 << 30  # of processor time, bytes


def survey(names: Sequence[str], jobs: int = 1) -> Iterator[dict[str, Any]]:
    """One row per architecture, as they finish."""
    waiting = list(reversed(names))
    running: dict[int, tuple[str, Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop()
                path = Path(folder, name.replace("/", "_"))
                running[_start(name, path)] = name, path
            pid, status = os.wait()
            name, path = running.pop(pid)
            yield _row(name, path, status)


def _start(name: str, path: Path) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(10 * SECONDS)  # it waits for something
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        os.environ["GRADOF_CACHE_DIR"] = f"{path}.cache"  # nothing compiled by another model
        log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from tests.models.compare import compare

        path.write_text(json.dumps(asdict(compare(name))))
        code = 0
    except BaseException:  # the last line of the log is the row's reason
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _row(name: str, path: Path, status: int) -> dict[str, Any]:
    if path.exists() and os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        row: dict[str, Any] = json.loads(path.read_text())
        return row
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        slow = number in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM)
        why = f"more than {SECONDS} s" if slow else signal.Signals(number).name
    else:
        log = Path(f"{path}.log")
        lines = log.read_text().splitlines() if log.exists() else []
        why = lines[-1] if lines else f"exit {os.WEXITSTATUS(status)}"
    return {"name": name, "status": "killed", "reason": why}


def _prepare() -> None:
    """What every child needs, imported once."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(1)
    import transformers.modeling_utils
    import transformers.models.bart.modeling_bart
    import transformers.models.llama.modeling_llama
    import transformers.models.swin.modeling_swin  # noqa: F401

    import tests.models.compare  # noqa: F401


def main() -> None:
    """Run the survey."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    _prepare()
    from tests.models.compare import architectures
    from tests.models.heads import heads

    rows = []
    with open(args.out or os.devnull, "w") as out:
        for row in survey(args.names or [*architectures(), *heads()], args.jobs):
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(row["name"], row["status"], str(row.get("reason", ""))[:200], flush=True)
    of_heads = [row for row in rows if row["name"] in heads()]
    bodies = [row for row in rows if row["name"] not in heads()]
    for part in filter(None, (bodies, of_heads)):
        print(*(f"{name} {number:.4g}" for name, number in figures(part).items()), sep=", ")
    if not args.names:
        (ROOT / "docs" / "models.md").write_text(page(bodies, of_heads), encoding="utf-8")


if __name__ == "__main__":
    main()
