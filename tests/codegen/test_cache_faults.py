"""The disk cache under faults, kills, full disks, foreign files, random bytes."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradof.codegen.machine.object_cache import LEFT_BEHIND, MAGIC, ObjectCache

# Children write entries until they are killed; every entry there is whole, and temporary files of
# children long gone are removed by whoever trims next.
KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from gradof.codegen.machine.object_cache import ObjectCache

folder, kills = Path(sys.argv[1]), int(sys.argv[2])

def content(key):
    return key.encode() * (1 + int(key) % 4000)

rng = random.Random(kills)
for n in range(kills):
    writers = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            cache, own = ObjectCache(folder), random.Random(os.getpid())
            while True:
                key = str(own.randrange(50))
                cache.store(key, content(key))
        writers.append(child)
    time.sleep(rng.uniform(0.0, 0.01))
    for child in writers:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    cache = ObjectCache(folder)
    for key in map(str, range(50)):
        assert cache.load(key) in (None, content(key)), key
    assert cache.problem is None and cache.unwritable is None
print(sum(cache.load(str(k)) is not None for k in range(50)))
"""

FULL = """
import resource, signal, sys
from pathlib import Path
from gradof.codegen.machine.object_cache import ObjectCache

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
cache = ObjectCache(Path(sys.argv[1]))
assert cache.store("small", bytes(100)) == bytes(100) and cache.load("small") == bytes(100)
assert cache.store("large", bytes(100_000)) == bytes(100_000)
assert cache.load("large") is None and cache.load("small") == bytes(100)
print(cache.state())
"""


def _run(program: str, *args: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)], capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("kills", [15, pytest.param(100, marks=pytest.mark.long)])
def test_two_writers_that_are_killed(kills: int, tmp_path: Path) -> None:
    assert int(_run(KILLS, tmp_path, kills)) > 10


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are of Unix")
def test_a_disk_that_is_full_within_a_file(tmp_path: Path) -> None:
    assert "cannot be written: File too large" in _run(FULL, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["small"]


def test_what_a_killed_process_left_behind_goes(tmp_path: Path) -> None:
    old, new = tmp_path / ".new-old", tmp_path / ".new-new"
    for path in (old, new):
        path.write_bytes(b"half")
    then = time.time() - 2 * LEFT_BEHIND
    os.utime(old, (then, then))
    ObjectCache(tmp_path, look=1).store("k", b"code")
    assert not old.exists() and new.exists()


def test_foreign_files_are_neither_read_nor_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the name of a socket is short
        server.bind("socket")
        cache = ObjectCache(tmp_path, limit=1000, look=1)
        for n in range(30):
            assert cache.store(f"k{n}", bytes(100)) == bytes(100)
            assert cache.load(f"k{n}") == bytes(100)
        for name in ("notes.txt", "folder", "pipe", "socket"):
            assert cache.load(name) is None
    assert cache.problem is None and (tmp_path / "folder" / "inside").read_text() == "mine"


@pytest.mark.parametrize("tries", [400, pytest.param(20_000, marks=pytest.mark.long)])
def test_random_bytes_are_no_code(tries: int, tmp_path: Path) -> None:
    cache, rng, code = ObjectCache(tmp_path), random.Random(7), b"machine code" * 30
    cache.store("key", code)
    path = tmp_path / "key"
    whole = path.read_bytes()
    for _ in range(tries):
        way = rng.randrange(4)
        if way == 0:
            content = rng.randbytes(rng.randrange(200))
        elif way == 1:
            content = MAGIC + rng.randbytes(rng.randrange(200))
        elif way == 2:  # one bit
            place = rng.randrange(len(whole))
            flipped = whole[place] ^ 1 << rng.randrange(8)
            content = whole[:place] + bytes([flipped]) + whole[place + 1 :]
        else:  # a part twice, or not at all
            a, b = sorted(rng.randrange(len(whole)) for _ in range(2))
            content = whole[:a] + whole[a:b] * rng.choice((0, 2)) + whole[b:]
        path.write_bytes(content)
        assert cache.load("key") == (code if content == whole else None)
