"""Machine code on disk: whole, private, shared between processes, and never needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gradof.codegen.machine import engine
from gradof.codegen.machine.object_cache import ObjectCache

native = pytest.mark.skipif(not engine.vector_bits(), reason=engine.status()[1])

PROGRAM = """
import numpy as np, gradof
x = np.linspace(-1.0, 1.0, 1 << 16)
value, grad = gradof.value_and_grad(lambda x: np.sum(np.tanh(x) ** 2))(x)
np.testing.assert_allclose(grad, 2 * np.tanh(x) * (1 - np.tanh(x) ** 2), rtol=1e-12, atol=1e-14)
from gradof.codegen.machine import engine
print(engine.COMPILED)
"""


def _run(folder: Path | str, **env: str) -> int:
    """How many kernels a fresh process compiled, whose gradient was right."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
        env={**os.environ, "GRADOF_CACHE_DIR": str(folder), "GRADOF_BACKEND": "native", **env},
    )  # fmt: skip
    return int(done.stdout)


@native
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first = _run(folder)
    assert first > 0 and len(list(folder.iterdir())) == first
    assert folder.stat().st_mode & 0o077 == 0, "nobody else may write what runs here"
    assert _run(folder) == 0


@native
def test_corrupt_files_are_deleted_and_made_again(tmp_path: Path) -> None:
    first = _run(tmp_path)
    for n, path in enumerate(sorted(tmp_path.iterdir())):
        content = path.read_bytes()
        path.write_bytes((content[:-9] + b"corrupted") if n % 2 else content[: len(content) // 2])
    assert _run(tmp_path) == first
    assert _run(tmp_path) == 0


@native
def test_a_folder_that_cannot_be_made_or_is_switched_off(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert _run(blocked / "below") > 0
    assert _run("off") > 0


@native
def test_two_processes_at_once(tmp_path: Path) -> None:
    env = {**os.environ, "GRADOF_CACHE_DIR": str(tmp_path), "GRADOF_BACKEND": "native"}
    both = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=env) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert _run(tmp_path) == 0
    assert not list(tmp_path.glob(".new-*"))


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "a" / "b")
    assert cache.problem is None and cache.load("k") is None
    assert cache.store("k", b"code") == b"code"
    assert cache.load("k") == b"code"
    assert "1 files" in cache.state()


@pytest.mark.parametrize("damage", ["cut", "changed", "other magic", "empty"])
def test_a_damaged_file_is_no_code(tmp_path: Path, damage: str) -> None:
    cache = ObjectCache(tmp_path)
    cache.store("k", b"machine code")
    content = (tmp_path / "k").read_bytes()
    (tmp_path / "k").write_bytes(
        {"cut": content[:-1], "changed": content[:-1] + b"!", "other magic": b"x" + content[1:],
         "empty": b""}[damage]
    )  # fmt: skip
    assert cache.load("k") is None
    assert not (tmp_path / "k").exists()


def test_a_folder_others_can_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    cache = ObjectCache(folder)
    assert cache.problem is not None and "can be written by others" in cache.state()
    assert cache.store("k", b"code") == b"code" and cache.load("k") is None
    assert not list(folder.iterdir())


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert "another user" in ObjectCache(tmp_path).state()


def test_a_read_only_folder_serves_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ObjectCache(tmp_path)
    cache.store("k", b"code")

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    again = ObjectCache(tmp_path)
    assert again.load("k") == b"code"
    assert again.store("other", b"code") == b"code"
    assert "cannot be written" in again.state()
    assert again.load("k") == b"code", "what is there is still read"


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ObjectCache(tmp_path)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    assert cache.store("k", b"code") == b"code"
    assert not list(tmp_path.iterdir()) and "No space left" in cache.state()


def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, limit=3 * (48 + 100), look=1)
    for n in range(5):
        cache.store(f"k{n}", bytes(100))
        os.utime(tmp_path / f"k{n}", (n, n))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k2", "k3", "k4"]


def test_one_file_in_so_many_looks_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going through thousands of files at each is slower than to compile what is in them."""
    looks: list[str] = []
    files = ObjectCache.files

    def counting(self: ObjectCache) -> list[tuple[Path, os.stat_result]]:
        looks.append("look")
        return files(self)

    monkeypatch.setattr(ObjectCache, "files", counting)
    cache = ObjectCache(tmp_path, limit=40 * (48 + 100))
    for n in range(320):
        cache.store(f"{n:064x}", bytes(100))
    assert 8 <= len(looks) <= 40
    assert 40 <= len(list(tmp_path.iterdir())) <= 120


@native
def test_the_key_tells_processors_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    here = engine._key("text")
    assert here == engine._key("text") != engine._key("other text")
    features = engine._processor()[1]
    monkeypatch.setattr(engine, "_processor", lambda: ("znver9", features))
    assert engine._key("text") != here
    monkeypatch.undo()
    assert engine._key("text", "quick") != here


@native
def test_an_llvmlite_without_single_passes_runs_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from llvmlite.binding import ModulePassManager

    text = """define i64 @f() {
entry:
  %x = alloca i64
  store i64 7, ptr %x
  %y = load i64, ptr %x
  ret i64 %y
}
"""
    assert engine._object_code(text, "full")
    (owner,) = (c for c in ModulePassManager.__mro__ if "add_simplify_cfg_pass" in vars(c))
    monkeypatch.delattr(owner, "add_simplify_cfg_pass")
    assert engine._object_code(text, "full")


def test_code_under_another_key_is_not_loaded(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache")
    assert cache.folder is not None
    cache.store("one", b"code of one")
    cache.store("two", b"code of two")
    (cache.folder / "one").rename(cache.folder / "swap")
    (cache.folder / "two").rename(cache.folder / "one")
    (cache.folder / "swap").rename(cache.folder / "two")
    assert cache.load("one") is None and cache.load("two") is None
    cache.store("one", b"code of one")
    assert cache.load("one") == b"code of one"


@pytest.mark.parametrize("what", ["pipe", "folder", "link", "broken link"])
def test_what_is_no_plain_file_is_no_entry(what: str, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache")
    assert cache.folder is not None
    cache.store("other", b"code")
    place = cache.folder / "key"
    if what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    else:
        place.symlink_to("other" if what == "link" else "nowhere")
    assert cache.load("key") is None  # a pipe without a writer would be waited for
    assert cache.problem is None
    assert cache.store("key", b"fresh") == b"fresh"
    assert cache.load("key") == (None if what == "folder" else b"fresh")
