"""HIPS autograd's own tests, with its import replaced by gradof's.

    python benchmarks/autograd_suite.py [--jobs 2] [--files test_core test_numpy]

The source distribution is downloaded with pip into build/; nothing of it is kept here. Prints what
passes, by file, and the tests that do not; a whole run writes the section on tests of
docs/autograd.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.autograd_page import counted, write  # noqa: E402

BUILD = ROOT / "build" / "autograd"
VERSION = "1.8.0"
# What is to pass, by the tests of it: core, numpy, linalg, fft, scipy and systematic.
WANTED = ("test_core", "test_numpy", "test_linalg", "test_fft", "test_scipy", "test_systematic")
_IMPORT = re.compile(r"^(\s*)(from|import) autograd\b(.*)$", re.MULTILINE)


def sources(given: Path | None) -> Path:
    """The unpacked source distribution, its imports replaced."""
    folder = BUILD / f"autograd-{VERSION}"
    if folder.is_dir():
        return folder
    unpacked(given, BUILD)
    for path in [*folder.glob("tests/*.py"), *folder.glob("examples/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        path.write_text(_IMPORT.sub(replaced, text), encoding="utf-8")
    (folder / "pyproject.toml").unlink()  # its settings of pytest are not ours
    return folder


def unpacked(given: Path | None, folder: Path) -> Path:
    """The folder, with the source distribution in it as it is."""
    if (folder / f"autograd-{VERSION}").is_dir():
        return folder
    BUILD.mkdir(parents=True, exist_ok=True)
    archive = given or BUILD / f"autograd-{VERSION}.tar.gz"
    if not archive.is_file():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:",
             "--dest", str(BUILD), f"autograd=={VERSION}"], check=True,
        )  # fmt: skip
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    return folder


def replaced(match: re.Match[str]) -> str:
    """One import line of autograd's as ours."""
    indent, word, rest = match.groups()
    if word == "import" and " as " not in rest:  # autograd.scipy.signal is used by its whole name
        return f"{indent}import gradof.autograd{rest}\n{indent}from gradof import autograd"
    return f"{indent}{word} gradof.autograd{rest}"


def run_tests(folder: Path, names: Sequence[str], jobs: int) -> dict[str, dict[str, str]]:
    """Outcome by file and test."""
    report = BUILD / "report.xml"
    files = [str(folder / "tests" / f"{name}.py") for name in names]
    workers = ["-n", str(jobs)] if jobs > 1 else []
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
         "-c", os.devnull, "--rootdir", str(folder), f"--junitxml={report}", *workers, *files],
        check=False, cwd=folder / "tests", env=environment(),
    )  # fmt: skip
    found: dict[str, dict[str, str]] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = str(case.get("classname")).rpartition(".")[2]
        bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = bad[0].tag if bad else "passed"
        text = "" if not bad else str(bad[0].get("message")).split("\n")[0]
        found.setdefault(name, {})[str(case.get("name"))] = outcome + (text and f": {text}")
    return found


def environment() -> dict[str, str]:
    """The environment of what is run: this checkout is imported."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--files", nargs="*")
    parser.add_argument("--sdist", type=Path, help="the source distribution, if it is there")
    options = parser.parse_args()
    folder = sources(options.sdist)
    names = options.files or sorted(p.stem for p in (folder / "tests").glob("test_*.py"))
    found = run_tests(folder, names, options.jobs)
    for name in names:
        outcomes = found.get(name, {})
        print("{:22} {:4} of {:4}".format(name, *counted([outcomes])))
        for test, outcome in outcomes.items():
            if outcome != "passed" and not outcome.startswith("skipped"):
                print(f"    {test}: {outcome[:160]}")
    passed, total = counted([found.get(name, {}) for name in WANTED])
    print(f"{', '.join(WANTED)}: {passed} of {total}, {passed / max(total, 1):.1%}")
    if not options.files:
        outcomes_of = {name: found.get(name, {}) for name in names}
        write("tests", {"version": VERSION, "wanted": WANTED, "outcomes": outcomes_of})


if __name__ == "__main__":
    main()
