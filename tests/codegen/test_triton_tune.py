"""The tile of a kernel: timed once, by a timer that is told what to say, and remembered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gradof import tuning
from gradof.codegen.machine.object_cache import object_cache
from gradof.codegen.triton import tune
from gradof.codegen.triton.blocks import MAX_WARPS, Blocks
from gradof.errors import ConfigError
from tests.codegen.triton_process import run
from tests.codegen.triton_tuned import CASES
from tests.sample import every, only, part

triton = pytest.importorskip("triton", reason="pip install 'gradof[triton]'")
TILES = (Blocks(1, 1024, 1, 4), Blocks(1, 2048, 1, 8), Blocks(1, 512, 1, 4))
CUDA = torch.device("cuda:0")


class Timer:
    """Says how long each tile takes, and counts."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = dict(zip(TILES, seconds, strict=True))
        self.calls: list[Blocks] = []

    def __call__(self, blocks: Blocks) -> float:
        self.calls.append(blocks)
        return self.seconds[blocks]


def forget() -> None:
    """What a new process does not know."""
    tune._chosen.clear()
    object_cache.cache_clear()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GRADOF_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("GRADOF_AUTOTUNE", raising=False)
    monkeypatch.setattr(tune, "is_interpreting", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a device")
    forget()
    yield tmp_path / "kept"
    forget()


def test_the_fastest_is_chosen_and_remembered_by_later_processes(folder: Path) -> None:
    timer = Timer(3.0, 1.0, 2.0)
    assert tune.choose("tile-a", TILES, timer) == TILES[1]
    assert tune.choose("tile-a", TILES, timer) == TILES[1]
    assert timer.calls == list(TILES), "timed once"
    forget()
    assert tune.choose("tile-a", TILES, Timer(1.0, 2.0, 3.0)) == TILES[1]
    assert [p.name for p in folder.iterdir()] == ["tile-a"]
    assert folder.stat().st_mode & 0o077 == 0, "the folder of machine code is private"


def test_the_default_wins_a_draw_and_a_tile_without_room_never() -> None:
    assert tune.choose("tile-a", TILES, Timer(1.0, 1.0, 1.0)) == TILES[0]
    assert tune.choose("tile-b", TILES, Timer(float("inf"), 5.0, float("inf"))) == TILES[1]


def test_what_was_kept_for_other_tiles_or_was_damaged_is_timed_again(folder: Path) -> None:
    assert tune.choose("tile-a", TILES[:2], Timer(2.0, 1.0, 9.0)) == TILES[1]
    forget()
    assert tune.choose("tile-a", (TILES[0], TILES[2]), Timer(2.0, 9.0, 1.0)) == TILES[2]
    forget()
    (folder / "tile-a").write_bytes(b"[1, 2048, 1, 8]")
    timer = Timer(1.0, 2.0, 3.0)
    assert tune.choose("tile-a", TILES, timer) == TILES[0] and len(timer.calls) == 3


def test_without_a_folder_a_process_times_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_CACHE_DIR", "off")
    forget()
    timer = Timer(3.0, 1.0, 2.0)
    assert [tune.choose("tile-a", TILES, timer) for _ in range(2)] == [TILES[1]] * 2
    assert len(timer.calls) == 3


def test_without_memory_to_time_in_the_default_is_taken_and_not_kept(folder: Path) -> None:
    def full(blocks: Blocks) -> float:
        raise torch.OutOfMemoryError("full")

    assert tune.choose("tile-a", TILES, full) == TILES[0]
    assert not list(folder.glob("*"))
    assert tune.choose("tile-a", TILES, Timer(3.0, 1.0, 2.0)) == TILES[1]


def test_keys_tell_source_dtype_bucket_device_and_triton_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ("def kernel(): ...", ["f32"], 4096, 1000, CUDA)
    keys = {tune.key(*given)}
    assert tune.key("def kernel(): ...", ["f32"], 4000, 1024, CUDA) in keys, "the same bucket"
    keys.add(tune.key("def other(): ...", ["f32"], 4096, 1000, CUDA))
    keys.add(tune.key("def kernel(): ...", ["bf16"], 4096, 1000, CUDA))
    keys.add(tune.key("def kernel(): ...", ["f32"], 4097, 1000, CUDA))
    keys.add(tune.key("def kernel(): ...", ["f32"], 4096, 1025, CUDA))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another device")
    keys.add(tune.key(*given))
    monkeypatch.setattr(triton, "__version__", "0.0.0")
    keys.add(tune.key(*given))
    assert len(keys) == 7


def test_only_large_kernels_on_a_gpu_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tune.applies(CUDA, tuning.TUNED_POSITIONS)
    assert not tune.applies(CUDA, tuning.TUNED_POSITIONS - 1)
    assert not tune.applies(torch.device("cpu"), tuning.TUNED_POSITIONS)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not tune.applies(CUDA, tuning.TUNED_POSITIONS)


def test_nothing_is_timed_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "is_interpreting", lambda: True)
    assert not tune.applies(CUDA, tuning.TUNED_POSITIONS)


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_AUTOTUNE", "0")
    assert not tune.applies(CUDA, tuning.TUNED_POSITIONS)
    monkeypatch.setenv("GRADOF_AUTOTUNE", "yes")
    with pytest.raises(ConfigError, match="GRADOF_AUTOTUNE is 'yes'"):
        tune.applies(CUDA, tuning.TUNED_POSITIONS)


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("form", ["pointwise", "tiled", "persistent", "looped"])
def test_candidates_are_few_valid_and_start_with_the_default(form: str, folds: bool) -> None:
    for default in (Blocks(1, 1024, 1, 4), Blocks(8, 512, 4, 8), Blocks(1, 16384, 1, 16)):
        found = tune.candidates(default, form, 1 << 20, 1 << 14, folds)
        assert found[0] == default and len(set(found)) == len(found) and 2 <= len(found) <= 8
        for b in found:
            numbers = (b.rows, b.columns, b.warps)  # the tiles of a program may be any number
            assert all(n >= 1 and n & (n - 1) == 0 for n in numbers)
            assert b.rows * b.columns <= 1 << 14 and 2 <= b.warps <= 2 * MAX_WARPS
            if form == "persistent":
                assert b.columns == default.columns, "a row is one block"
            if folds:
                cells = b.rows * b.tiles * (b.columns if form == "tiled" else 1)
                known = default.rows * default.tiles
                known *= default.columns if form == "tiled" else 1
                assert cells in (known // 2, known, known * 2), "half, or twice, as many programs"


def test_a_tile_too_large_for_the_device_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.errors import OutOfResources

    def bench(launch: object, **_: object) -> float:
        raise OutOfResources(300, 200, "shared memory")

    monkeypatch.setattr("triton.testing.do_bench", bench)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    assert tune.seconds_of(lambda: None, SimpleNamespace()) == float("inf")


@every(3)
def test_every_tile_makes_the_same_numbers_and_the_fastest_is_launched(
    cases: int, tmp_path: Path
) -> None:
    found = run("triton_tuned", "", tmp_path, interpret=True, **only(cases))
    assert set(found) == set(part(CASES, cases))
    assert all(len(tiles) >= 3 for tiles in found.values()), found
