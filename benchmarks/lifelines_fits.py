"""lifelines on HIPS autograd, and with its import replaced by gradof's: its tests, and its fits.

    python benchmarks/lifelines_fits.py [--tests] [--fits NAME ...] [--write]

The source distributions of lifelines and autograd-gamma are downloaded with pip into build/;
nothing of them is kept here. pandas, formulaic, matplotlib and autograd are to be installed.
`--tests` runs test_estimation.py on both sides. Of the fits, each side runs in fresh processes in
turn: the first fit of a process, with all that is imported late, counts by itself, and of those
after it the least. Every fit is of a new fitter, as programs make them. Times are process times.

The fits are: every fitter with a likelihood that test_estimation.py fits, on lifelines' own data
sets; fitters without one (Kaplan-Meier, Aalen, Cox's partial likelihood without a penalty) have no
derivative to take.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.autograd_suite import replaced
from benchmarks.tables import geometric_mean, markdown, shown

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "lifelines"
VERSION = "0.30.3"
GAMMA = "0.5.0"  # of autograd-gamma
SIDES = ("autograd", "gradof")
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- lifelines: begin -->", "<!-- lifelines: end -->"
_IMPORT = re.compile(r"^(\s*)(from|import) autograd\b(.*)$", re.MULTILINE)
_KNOTS = "n_baseline_knots=3"
# The name of a fit, and its code. `w`, `r`, `k`, `d` are data sets.
FITS = {
    "Exponential": "ExponentialFitter().fit(w['T'], w['E'])",
    "Weibull": "WeibullFitter().fit(w['T'], w['E'])",
    "LogNormal": "LogNormalFitter().fit(w['T'], w['E'])",
    "LogLogistic": "LogLogisticFitter().fit(w['T'], w['E'])",
    "GeneralizedGamma": "GeneralizedGammaFitter().fit(w['T'], w['E'])",
    "PiecewiseExponential": "PiecewiseExponentialFitter([20, 40]).fit(w['T'], w['E'])",
    "Spline": "SplineFitter([6, 20, 40, 75]).fit(w['T'], w['E'])",
    "MixtureCure": "MixtureCureFitter(base_fitter=WeibullFitter()).fit(k['time'], k['death'])",
    "Weibull, interval": "WeibullFitter().fit_interval_censoring(d['left'], d['right'])",
    "LogNormal, interval": "LogNormalFitter().fit_interval_censoring(d['left'], d['right'])",
    "LogLogistic, left": "LogLogisticFitter().fit_left_censoring(w['T'], w['E'])",
    "Weibull AFT": "WeibullAFTFitter().fit(r, 'week', 'arrest')",
    "LogNormal AFT": "LogNormalAFTFitter().fit(r, 'week', 'arrest')",
    "LogLogistic AFT": "LogLogisticAFTFitter().fit(r, 'week', 'arrest')",
    "Weibull AFT, ancillary": "WeibullAFTFitter().fit(r, 'week', 'arrest', ancillary=True)",
    "GeneralizedGamma regression":
        "GeneralizedGammaRegressionFitter(penalizer=0.1).fit(r, 'week', 'arrest')",
    "PiecewiseExponential regression":
        "PiecewiseExponentialRegressionFitter([20, 40], penalizer=0.1).fit(r, 'week', 'arrest')",
    "CRC spline":
        "fitters.crc_spline_fitter.CRCSplineFitter(n_baseline_knots=3, penalizer=0.1)"
        ".fit(r, 'week', 'arrest', regressors={'beta_': '1', 'gamma0_': '1', 'gamma1_': '1',"
        " 'gamma2_': '1'})",
    "Cox, spline baseline":
        f"CoxPHFitter(baseline_estimation_method='spline', {_KNOTS}).fit(r, 'week', 'arrest')",
    "Cox, piecewise baseline":
        "CoxPHFitter(baseline_estimation_method='piecewise', breakpoints=[20, 40])"
        ".fit(r, 'week', 'arrest')",
    "Cox, penalized": "CoxPHFitter(penalizer=0.1, l1_ratio=0.5).fit(r, 'week', 'arrest')",
}  # fmt: skip
_RUN = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd
from lifelines import *
from lifelines import fitters
import lifelines.fitters.crc_spline_fitter
from lifelines.datasets import *
w, r, k, d = load_waltons(), load_rossi(), load_kidney_transplant(), load_diabetes()
fit = eval("lambda: " + sys.argv[1])
times = []
for _ in range(int(sys.argv[2])):
    start = time.process_time()
    fitted = fit()
    times.append(time.process_time() - start)
print(json.dumps([times, float(fitted.log_likelihood_)]))
"""


def folders() -> dict[str, Path]:
    """By side, the folder to import lifelines and autograd-gamma from."""
    found = {side: BUILD / side for side in SIDES}
    for side, folder in found.items():
        if folder.is_dir():
            continue
        for package, name, version in (
            ("lifelines", "lifelines", VERSION), ("autograd-gamma", "autograd_gamma", GAMMA)
        ):  # fmt: skip
            unpack(package, name, version, folder)
        for path in folder.rglob("*.py") if side == "gradof" else ():
            text = path.read_text(encoding="utf-8")
            path.write_text(_IMPORT.sub(replaced, text), encoding="utf-8")
    return found


def unpack(package: str, name: str, version: str, folder: Path) -> None:
    """The package of a source distribution, into a folder."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package,
         "--dest", str(BUILD), f"{package}=={version}"], check=True,
    )  # fmt: skip
    (archive,) = BUILD.glob(f"{name.replace('_', '?')}-{version}.tar.gz")
    with tarfile.open(archive) as members:
        members.extractall(BUILD, filter="data")
    (top,) = (p for p in BUILD.glob(f"{name.replace('_', '?')}-{version}") if p.is_dir())
    shutil.copytree(top / name, folder / name)


def environment(folder: Path) -> dict[str, str]:
    """The environment of what is run on one side."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}


def run_fit(folder: Path, code: str, repeats: int) -> tuple[list[float], float]:
    """Seconds of each fit of one process, and the log-likelihood of the last."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, code, str(repeats)], check=True, env=environment(folder),
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    times, likelihood = json.loads(done.stdout.splitlines()[-1])
    return times, likelihood


def run_tests(folder: Path, side: str) -> dict[str, str]:
    """The outcome of each test of test_estimation.py."""
    report = BUILD / f"{side}.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
         "-c", os.devnull, "--rootdir", str(folder), "-W", "ignore", f"--junitxml={report}",
         str(folder / "lifelines" / "tests" / "test_estimation.py")],
        check=False, cwd=folder, env=environment(folder),
    )  # fmt: skip
    found: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        name = str(case.get("classname")).rpartition(".")[2]
        found[f"{name}.{case.get('name')}"] = bad[0] if bad else "passed"
    return found


def measured(names: Sequence[str], repeats: int, rounds: int) -> list[list[str]]:
    """One row for each fit, the worst repeated fit first, and one of the means."""
    places = folders()
    rows: list[tuple[float, float, list[str]]] = []
    for name in names:
        first: dict[str, list[float]] = {side: [] for side in SIDES}
        again: dict[str, list[float]] = {side: [] for side in SIDES}
        likelihoods: dict[str, float] = {}
        for _ in range(rounds):
            for side in SIDES:
                times, likelihoods[side] = run_fit(places[side], FITS[name], repeats)
                first[side].append(times[0])
                again[side] += times[1:]
        best = {side: (min(first[side]), min(again[side])) for side in SIDES}
        a, b = best["autograd"], best["gradof"]
        differs = abs(likelihoods["gradof"] / likelihoods["autograd"] - 1)
        cells = [name, *map(shown, (*a, *b)), f"{a[0] / b[0]:.2f}", f"{a[1] / b[1]:.2f}",
                 f"{differs:.0e}"]  # fmt: skip
        rows.append((a[1] / b[1], a[0] / b[0], cells))
        print(*cells, sep="  ", flush=True)
    rows.sort(key=lambda row: row[0])
    means = ["geometric mean", "", "", "", "", f"{geometric_mean(r[1] for r in rows):.2f}",
             f"{geometric_mean(r[0] for r in rows):.2f}", ""]  # fmt: skip
    return [*(cells for _, _, cells in rows), means]


HEAD = ("fit", "autograd, first", "again", "gradof, first", "again", "first: times as fast",
        "again: times as fast", "log-likelihood differs by")  # fmt: skip


def write(lines: Sequence[str]) -> None:
    """Put the table between its marks in docs/performance.md."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Run, print, and with `--write` keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--fits", nargs="*", default=list(FITS), choices=list(FITS))
    parser.add_argument("--repeats", type=int, default=6, help="fits of one process")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each side")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    lines = markdown(HEAD, measured(options.fits, options.repeats, options.rounds))
    print("\n".join(lines))
    if options.write:
        write(lines)
    if options.tests:
        found = {side: run_tests(folder, side) for side, folder in folders().items()}
        for side, outcomes in found.items():
            print(f"{side}: {sum(o == 'passed' for o in outcomes.values())} passed")
        for test, outcome in found["autograd"].items():
            if outcome == "passed" != found["gradof"].get(test):
                print(f"    {test}: {found['gradof'].get(test)}")


if __name__ == "__main__":
    main()
