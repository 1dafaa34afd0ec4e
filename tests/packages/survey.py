"""Modules and functions of packages that nobody here wrote, each in a process of its own.

    python -m tests.packages.survey --at build/packages                     all of chosen.txt
    python -m tests.packages.survey --at build/packages e3tools --only radial

`make packages` installs what `chosen.txt` names, each into a folder of its own, and runs this.
Every public module and every public function of tensors is built and called by rule
(`tests/packages/build.py`, `inputs.py`); those that eager runs are compared (`compare.py`).
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

SECONDS, MEMORY = 60, 5 << 30  # of processor time, bytes
_NO_LIBRARY = frozenset({
    "tests", "test", "examples", "docs", "scripts", "cli", "benchmarks", "__main__",
})  # fmt: skip
_FIRST = frozenset({
    "x", "input", "inputs", "pred", "preds", "y_pred", "logits", "u", "t", "a", "q",
})  # fmt: skip


def chosen() -> tuple[list[str], list[str]]:
    """Requirements of packages, and of what these need: see the head of chosen.txt."""
    lines = (Path(__file__).parent / "chosen.txt").read_text().splitlines()
    parts: tuple[list[str], list[str]] = [], []
    for line in lines:
        if line and not line.startswith("#"):
            parts[line.startswith("needs ")].append(line.removeprefix("needs "))
    return parts


def objects(folder: Path) -> Iterator[tuple[str, Any]]:
    """Public modules and functions of tensors below a folder of packages, by name."""
    tops = {
        p.stem for p in folder.iterdir()
        if ((p.is_dir() and not p.name.endswith("-info")) or p.suffix == ".py")
        and p.stem not in _NO_LIBRARY
    }  # fmt: skip
    for top in sorted(tops):
        for name in _names(top):
            try:
                importlib.import_module(name)
            except BaseException:  # it needs what is not there: its other files may not
                continue
    for name, module in sorted(sys.modules.items()):
        if module is not None and name.partition(".")[0] in tops:
            yield from _public(name, module)


def _names(top: str) -> Iterator[str]:
    yield top
    module = sys.modules.get(top)
    for found in pkgutil.walk_packages(
        getattr(module, "__path__", []), f"{top}.", onerror=lambda _: None
    ):
        if not _NO_LIBRARY & set(found.name.split(".")):
            yield found.name


def _public(name: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    import torch

    for key, value in sorted(vars(module).items()):
        own = getattr(value, "__module__", None) == name and getattr(value, "__name__", "") == key
        if key.startswith("_") or not own:
            continue
        if isinstance(value, type):
            if issubclass(value, torch.nn.Module):
                yield f"{name}:{key}", value
        elif inspect.isfunction(value) and _takes_a_tensor(value):
            yield f"{name}:{key}", value


def _takes_a_tensor(function: Any) -> bool:
    try:
        needed = [p for p in inspect.signature(function).parameters.values()
                  if p.default is p.empty]  # fmt: skip
    except (TypeError, ValueError):
        return False
    return bool(needed) and ("Tensor" in str(needed[0].annotation) or needed[0].name in _FIRST)


def rows(folder: Path, only: str = "") -> Iterator[dict[str, Any]]:
    """One row for each object of a package."""
    sys.path.insert(0, str(folder))
    for name, thing in objects(folder):
        if only in name:
            yield _apart(f"{folder.name} {name}", thing)


def _apart(name: str, thing: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "row")
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _child(name, thing, path)
        _, status = os.waitpid(pid, 0)
        if path.exists():
            row: dict[str, Any] = json.loads(path.read_text())
            return row
    return {"name": name, "status": "killed", "reason": f"wait status {status}"}


def _child(name: str, thing: Any, path: Path) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        signal.alarm(10 * SECONDS)  # it waits for something
        nowhere = os.open(os.devnull, os.O_WRONLY)  # what packages print
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        from tests.packages.compare import compare

        path.write_text(json.dumps(asdict(compare(name, thing)), default=str))
    finally:
        os._exit(0)


def _one_package(folder: Path, only: str) -> None:
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    import tests.packages.compare  # noqa: F401  # before a package has a `tests` of its own

    for row in rows(folder, only):
        print(json.dumps(row), flush=True)


def summary(found: Sequence[dict[str, Any]]) -> list[str]:
    """Counts, and a line for each that is not equal, compiled and as fast as eager."""
    ran = [r for r in found if r["status"] != "noeager"]
    counts = Counter(r["status"] for r in ran)
    packages = {r["name"].partition(" ")[0] for r in ran}
    lines = [f"{len(ran)} of {len(found)} objects run by eager, of {len(packages)} packages: "
             + ", ".join(f"{n} {status}" for status, n in counts.most_common())]  # fmt: skip
    for row in ran:
        ratio = row["ours"] / row["eager"] if row.get("eager") else 0.0
        if row["status"] != "equal" or ratio > 1.1:
            text = row["reason"] or f"{ratio:.2f} of eager's {1e6 * row['eager']:.0f} us"
            lines.append(f"{row['name']} {row['status']}: {text[:300]}")
    slow = sorted(ran, key=lambda row: -float(row.get("first", 0.0)))[:5]
    lines += [f"{row['name']}: first gradient {row.get('first', 0.0):.1f} s" for row in slow]
    return lines


def main() -> None:
    """Run the survey, a process for each package."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--at", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--package", action="store_true", help="one package, here")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.package:
        _one_package(args.at, args.only)
        return
    found: list[dict[str, Any]] = []
    with (args.at / "rows.jsonl").open("w") as kept:  # as they come: a whole run takes hours
        for name in args.names or [line.partition("==")[0] for line in chosen()[0]]:
            command = f"{sys.executable} -m tests.packages.survey --package --at {args.at / name}"
            with os.popen(f"{command} --only {args.only!r} 2>/dev/null") as lines:
                for line in lines:
                    if line.startswith("{"):
                        found.append(json.loads(line))
                        print(line, end="", file=kept, flush=True)
                        print(found[-1]["name"], found[-1]["status"], flush=True)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
