"""The GPU benchmark without a GPU: it runs, judges before it times, and its arithmetic is right."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'gradof[torch]'")


def script(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / name), *args], capture_output=True, text=True, cwd=ROOT,
        check=False,
    )  # fmt: skip


# --- the dry run ------------------------------------------------------------------------------


SOME = "softmax,swiglu,layer norm"


@pytest.fixture(scope="module", params=[pytest.param("", marks=pytest.mark.long), SOME])
def dry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, str]:
    """What a dry run of workloads printed, where it wrote, and which they are."""
    pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
    out = tmp_path_factory.mktemp("dry")
    done = script("gpu.py", "--dry-run", "--out", str(out), "--only", request.param)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, out, request.param


def test_a_dry_run_says_so_first_and_last(dry: tuple[str, Path, str], module: Any) -> None:
    lines = dry[0].strip().splitlines()
    assert lines[0] == lines[-1] == module("gpu_report").NO_GPU
    assert [p.name for p in sorted(dry[1].iterdir())] == ["dry-run.json", "dry-run.md"]
    page = (dry[1] / "dry-run.md").read_text()
    assert page.startswith("# A dry run") and module("gpu_report").NO_GPU in page


def test_a_dry_run_judges_and_times_every_workload(
    dry: tuple[str, Path, str], module: Any
) -> None:
    report = module("gpu_report").Report.read(dry[1] / "dry-run.json")
    assert not report.gpu and report.environment["device"].startswith("no GPU")
    assert [(row.workload, row.size, row.dtype) for row in report.rows] == [
        (w.name, "x".join(map(str, w.tiny[0])), dtype)
        for w in module("gpu_workloads").selected(dry[2]) for dtype in w.dtypes
    ]  # fmt: skip
    for row in report.rows:
        assert not row.failed, row
        assert min(row.kernels.values()) >= 1, f"{row.name}: no kernel of gradof's"
        assert all(error <= allowed for error, allowed in row.errors.values()), row
        assert row.left_out == {"torch.compile": "dry run"}
        for figures in (row.device, row.host):
            assert set(figures) == {"forward", "backward", "together"}
            for seconds in figures.values():
                assert set(seconds) == {"gradof", "eager"} and min(seconds.values()) > 0


@pytest.mark.long
def test_the_first_gradient_of_a_fresh_process() -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
    done = script("gpu.py", "--dry-run", "--only", "swiglu", "--first", "only")
    assert done.returncode == 0, done.stdout + done.stderr
    page = done.stdout.split("## first gradient")[1]
    (line,) = (x for x in page.splitlines() if x.startswith("| swiglu | bf16"))
    gradof, eager = line.split("|")[4:6]
    assert "s" in gradof and "s" in eager, line
    assert not (FOLDER / "results" / "dry-run.json").exists(), "written without --out"


def test_without_a_gpu_one_line_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for name, who in (("gpu.py", "gpu.py"), ("gpu_session.py", "make gpu")):
        done = script(name)
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.startswith(f"{who}: torch sees no CUDA device")
        assert len(done.stderr.splitlines()) == 1


def test_interpreted_kernels_are_not_timed_as_a_gpu(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(SystemExit, match="would not run on the GPU"):
        module("gpu").needs_cuda()


def test_workloads_are_selected_by_parts_of_their_names(module: Any) -> None:
    selected = module("gpu_workloads").selected
    assert [w.name for w in selected("norm,Adam")] == [
        "layer norm", "RMS norm", "group norm", "bias-dropout-residual-layernorm", "Adam update"
    ]  # fmt: skip
    assert len(selected("")) == 14
    with pytest.raises(SystemExit, match="no workload has 'frobnicate'"):
        selected("softmax,frobnicate")


# --- judging ----------------------------------------------------------------------------------


def case_of(module: Any, name: str, dtype: str = "f32") -> Any:
    workloads, check = module("gpu_workloads"), module("gpu_check")
    w = workloads.by_name(name)
    return check.make_case(w, w.tiny[0], workloads.DTYPES[dtype], "cpu")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_wrong_gradient_is_named(module: Any, dtype: str) -> None:
    check, case = module("gpu_check"), case_of(module, "bias-gelu", dtype)
    eager = check.results(case, case.workload.fn)
    assert not check.wrong(check.judge(case, eager, eager))
    outputs, (dx, db) = eager
    found, _ = check.wrong(check.judge(case, (outputs, [dx, db * 1.1]), eager))
    assert found.startswith("db is off by")
    # every element nearly right, and all of them too large
    (found,) = check.wrong(check.judge(case, (outputs, [dx * 1.02, db]), eager))[-1:]
    assert found.startswith("norm of dx is off by")
    broken = dx.clone()
    broken[0, 0] = math.nan
    found, _ = check.wrong(check.judge(case, (outputs, [broken, db]), eager))
    assert found.startswith("dx is off by inf")


def test_each_tensor_is_judged_by_its_own_size(module: Any) -> None:
    """The gradient of a bias is a sum over rows, beside which that of x is small."""
    workloads, check = module("gpu_workloads"), module("gpu_check")
    case = check.make_case(workloads.by_name("bias-gelu"), (20000, 2), torch.bfloat16, "cpu")
    outputs, (dx, db) = check.results(case, case.workload.fn)
    judged = check.judge(case, (outputs, [dx * 0, db]), (outputs, [dx, db]))
    assert [text.split(" is off")[0] for text in check.wrong(judged)] == ["dx", "norm of dx"]


def test_another_dtype_is_wrong(module: Any) -> None:
    check, case = module("gpu_check"), case_of(module, "swiglu", "bf16")
    outputs, grads = check.results(case, case.workload.fn)
    judged = check.judge(case, ([outputs[0].float()], grads), (outputs, grads))
    assert check.wrong(judged) == ["y is off by inf where 0 is allowed"]


def test_draws_are_judged_by_the_mask_that_the_results_show(module: Any) -> None:
    check, case = module("gpu_check"), case_of(module, "bias-dropout-residual-layernorm")
    eager = check.results(case, case.workload.fn)
    torch.manual_seed(99)
    outputs = case.forward(case.workload.fn)  # other draws than eager's
    other = [o.detach() for o in outputs], case.backward(outputs)
    assert not torch.equal(eager[0][1], other[0][1])
    assert not check.wrong(check.judge(case, other, eager))
    # gradients of one mask with the results of another are wrong
    found = check.wrong(check.judge(case, (other[0], eager[1]), eager))
    assert found and found[0].startswith("dx is off by")


def test_what_is_not_ours_is_told(module: Any) -> None:
    from gradof import differentiate

    check, case = module("gpu_check"), case_of(module, "softmax")
    fn = differentiate(case.workload.fn)
    assert check.not_ours(fn, case) == "gradof ran 0 forwards and 0 backwards"
    check.results(case, fn)
    assert "no fused kernel in the forward" in check.not_ours(fn, case)  # small, and on a CPU


def test_a_failure_is_noted_and_the_next_case_runs(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gradof import differentiate

    gpu, workloads = module("gpu"), module("gpu_workloads")
    bench = gpu.Bench(dry=True, first="no", repeats=1)
    w = workloads.by_name("swiglu")

    def broken(*args: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu, "compiled", lambda side, fn: broken if side == "gradof" else fn)
    row = bench.row(w, w.tiny[0], "f32", with_first=False)
    assert row.failed == ["RuntimeError: out of memory"] and not row.device
    assert "in broken" in capsys.readouterr().err
    wrong = differentiate(lambda a, b: torch.nn.functional.silu(a) * b * 1.5)
    monkeypatch.setattr(gpu, "compiled", lambda side, fn: wrong if side == "gradof" else fn)
    row = bench.row(w, w.tiny[0], "f32", with_first=False)
    assert row.failed[0].startswith("y is off by") and not row.device, "timed although it failed"


# --- arithmetic -------------------------------------------------------------------------------


def test_bytes_by_hand(module: Any) -> None:
    workloads = module("gpu_workloads")
    n, m = 5, 96

    def found(name: str, dtype: str) -> dict[str, int]:
        case = case_of(module, name, dtype)
        result: dict[str, int] = case.workload.nbytes(case.args, case.cotangents)
        assert result["together"] == result["forward"] + result["backward"]
        return result

    softmax = found("softmax", "bf16")
    assert (softmax["forward"], softmax["backward"]) == (2 * 2 * n * m, 3 * 2 * n * m)
    norm = found("layer norm", "f32")
    assert norm["forward"] == 4 * (2 * n * m + 2 * m)
    assert norm["backward"] == 4 * (3 * n * m + 3 * m)
    loss, (rows, classes) = found("cross-entropy", "bf16"), (5, 200)
    assert loss["forward"] == 2 * rows * classes + 8 * rows + 2
    assert loss["backward"] == 2 * 2 * rows * classes + 8 * rows + 2
    step = found("Adam update", "bf16")  # moments stay f32
    assert step["forward"] == 300 * (2 + 2 + 4 + 4 + 2 + 4 + 4)
    assert step["backward"] == 300 * ((2 + 4 + 4) + (2 + 4 + 4) + (2 + 2 + 4 + 4))
    rope = case_of(module, "rope")
    assert rope.workload.formulas(rope.args)["backward"] == "cos + sin + dy + dq"
    for w in workloads.WORKLOADS:
        assert set(w.reads) <= {*w.argument_names, *w.outputs}, w.name


def test_turns_are_fair_and_shuffled(module: Any) -> None:
    turns = list(module("tables").turns("abc", 200))
    rounds = ["".join(turns[i : i + 3]) for i in range(0, 600, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len(set(rounds)) == 6, "each order comes up"
    assert module("tables").geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(module("tables").geometric_mean([]))


def test_medians_are_of_each_figure_and_side(module: Any) -> None:
    timing = module("gpu_timing")
    figures = {"a": iter(range(1, 99)), "b": iter(range(101, 199))}

    class Clock:
        def sample(self, step: Any, ahead: float = 0.0) -> Any:
            value = next(figures[step])
            return timing.Sample(value * 1e-6, (200 - value) * 1e-6)

    found = timing.medians({"a": "a", "b": "b"}, Clock(), 3)  # one warm-up: 2, 3, 4 are left
    assert found["a"] == pytest.approx((3e-6, 197e-6)) and found["b"].device == 103e-6
    assert found["a"].waited == 197e-6


def test_slow_runs_have_fewer_turns(module: Any) -> None:
    timing, runs = module("gpu_timing"), []

    class Clock:
        def sample(self, step: Any, ahead: float = 0.0) -> Any:
            runs.append(step)
            return timing.Sample(1.0, 0.5)

    timing.medians({"slow": 0}, Clock(), 100)
    assert len(runs) == timing.WARM_UP + timing.LEAST


class Events:
    """Stands for torch.cuda, and keeps what was asked of it in order."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.synchronize = lambda: log.append("wait")

    def get_device_properties(self, device: str) -> Any:
        return type("Properties", (), {"L2_cache_size": 100})

    def Event(self, enable_timing: bool) -> Any:
        assert enable_timing
        return self

    def record(self) -> None:
        self.log.append("event")

    def elapsed_time(self, end: Any) -> float:
        return 0.5  # milliseconds


def test_the_cache_is_flushed_before_the_first_event(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = module("gpu_timing")
    log: list[str] = []
    monkeypatch.setattr(torch, "cuda", Events(log))
    clock = timing.CudaClock("cpu")
    assert clock.buffer.nbytes == 200, "larger than the cache"
    assert clock.flush_seconds == pytest.approx(1e-5)  # half a millisecond for fifty
    monkeypatch.setattr(clock, "buffer", type("B", (), {"zero_": lambda _: log.append("flush")})())
    log.clear()
    steps = (lambda: log.append("prepare")), (lambda _: log.append("run"))
    sample = clock.sample(steps, ahead=2.5e-5)
    assert log == ["prepare", "wait", *["flush"] * 3, "event", "run", "event", "wait"]
    assert sample.device == 5e-4 and 0 < sample.host < 1


# --- on a GPU ---------------------------------------------------------------------------------


def cases() -> list[tuple[str, int, str]]:
    sys.path.insert(0, str(FOLDER))
    try:
        workloads = importlib.import_module("gpu_workloads").WORKLOADS
    finally:
        sys.path.remove(str(FOLDER))
    return [(w.name, k, dtype) for w in workloads for k in range(len(w.tiny)) for dtype in w.dtypes]


# torch's, where the first product of a process is in the engine's thread, eager's own too
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
@pytest.mark.gpu
@pytest.mark.parametrize(("name", "size", "dtype"), cases())
def test_on_the_device_gradients_are_right_and_ours(
    module: Any, name: str, size: int, dtype: str
) -> None:
    from gradof import differentiate

    workloads, check = module("gpu_workloads"), module("gpu_check")
    w = workloads.by_name(name)
    case = check.make_case(w, w.tiny[size], workloads.DTYPES[dtype], "cuda")
    eager, fn = check.results(case, w.fn), differentiate(w.fn)
    for _ in range(2):
        mine = check.results(case, fn)
        assert not check.wrong(check.judge(case, mine, eager))
    assert check.not_ours(fn, case) is None
