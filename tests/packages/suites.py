"""The tests that packages come with, each call of theirs beside eager (`tests.packages.beside`).

    python -m tests.packages.suites --at build/suites zuko nflows=tests gpytorch=test

    python -m tests.packages.suites --numpy --at build/suites colour-science=colour

Each package's source archive is fetched from PyPI, and the package installed, into the folder; its
tests run in a process of their own. `NAME=FOLDER` says where they are, if not in `tests`. What they
need besides comes from the Python path. `--numpy` is for packages of functions of arrays
(`tests.packages.beside_numpy`).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

_INDEX = "https://pypi.org/simple/{}/"
_JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}
_ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900  # for one package


def _read(url: str, headers: dict[str, str] | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {})) as answer:
        return bytes(answer.read())


def _version(filename: str) -> tuple[int, ...]:
    parts = filename.removesuffix(".tar.gz").rpartition("-")[2].split(".")
    return tuple(map(int, parts)) if all(map(str.isdigit, parts)) else ()


def source(name: str, at: Path) -> Path:
    """The folder of a package's newest source archive; LookupError where it has none."""
    there = sorted(at.glob(f"src/{re.sub('[-_.]', '[-_.]', name)}-*"))
    if there:
        return there[-1]
    files = json.loads(_read(_INDEX.format(name), _JSON))["files"]
    archives = [f for f in files if f["filename"].endswith(".tar.gz") and _version(f["filename"])]
    if not archives:
        raise LookupError(f"{name} has no source archive")
    newest = max(archives, key=lambda f: _version(f["filename"]))
    with tarfile.open(fileobj=io.BytesIO(_read(newest["url"]))) as archive:
        archive.extractall(at / "src", filter="data")
    return at / "src" / str(newest["filename"]).removesuffix(".tar.gz")


def installed(name: str, at: Path) -> tuple[Path, list[str]]:
    """Where a package is installed, and the names that its modules begin with."""
    folder = at / "installed" / name
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*command, str(folder), name], check=True)
    tops = [p.stem for p in folder.iterdir() if p.suffix in ("", ".py") and p.stem != "bin"]
    return folder, [top for top in tops if top not in ("tests", "test", "__pycache__")]


def rows(name: str, tests: str, at: Path, plugin: str = "beside") -> list[dict[str, Any]]:
    """One row for each kind of call that the tests of a package make.

    Prints a line where the tests did not come to an end, so that rows are missing.
    """
    folder, (package, tops) = source(name, at), installed(name, at)
    found = at / f"{name}.jsonl"
    found.unlink(missing_ok=True)
    path = os.pathsep.join((str(package.resolve()), os.environ.get("PYTHONPATH", "")))
    command = [
        sys.executable, "-P", "-m", "pytest", "-p", f"tests.packages.{plugin}", "-q", "-p",
        "no:cacheprovider", "--continue-on-collection-errors", "-o", "addopts=", tests,
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": str(_ROOT), "SUITE_PATH": path, "SUITE_OF": ",".join(tops),
        "SUITE_ROWS": str(found.resolve()), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    try:
        ended = subprocess.run(
            command, cwd=folder, timeout=SECONDS, check=False, stdout=subprocess.DEVNULL,
            env=environment,
        ).returncode  # fmt: skip
        if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            print(f"{name}: pytest ended with {ended}, rows are missing")
    except subprocess.TimeoutExpired:
        print(f"{name}: ended after {SECONDS} s, rows are missing")
    return list(map(json.loads, found.read_text().splitlines())) if found.exists() else []


def main() -> None:
    """Run the tests of packages and print what is not equal to eager, or not compiled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", type=Path, required=True)
    parser.add_argument("--numpy", action="store_true", help="functions of arrays, not of tensors")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    plugin = "beside_numpy" if args.numpy else "beside"
    for name in args.names:
        name, _, tests = name.partition("=")
        try:
            found = rows(name, tests or "tests", args.at, plugin)
        except (LookupError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}")
            continue
        counts = Counter(row["status"] for row in found)
        print(f"{name}: {len(found)} kinds of calls:",
              ", ".join(f"{n} {status}" for status, n in counts.most_common()))  # fmt: skip
        told = Counter((r["status"], r["name"], r["reason"][:300]) for r in found
                       if r["status"] in ("wrong", "error", "fallback", "refused"))  # fmt: skip
        for (status, what, reason), n in told.most_common():
            print(f"  {status} x{n} {what}: {reason}")


if __name__ == "__main__":
    main()
