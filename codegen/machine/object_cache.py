"""Machine code on disk: compiled once per processor, LLVM and kernel, loaded in later processes.

    cache = ObjectCache(folder)
    code = cache.load(key) or cache.store(key, compile())

Code that is loaded runs, so the folder must be the user's own, with no access for others; each file
carries the checksum of its key and its content, and one that does not fit it is deleted. What is no
plain file (a link, a pipe) is never opened for reading. Files are written
beside their place and moved there. Where any of that fails the cache is out of use, `state()` says
why, and kernels are compiled as without it.

`GRADOF_CACHE_DIR` names another folder; `GRADOF_CACHE_DIR=off` switches the cache off.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
import time
import zlib
from pathlib import Path

MAGIC = b"gradof object 2\n"
LIMIT = 256 << 20  # bytes of all files; beyond it the oldest go
LEFT_BEHIND = 3600  # seconds after which a file that nobody has finished is of a killed process
LOOK = 16  # one file in so many that are written looks at all: of thousands that takes a while


class ObjectCache:
    """A folder of object files by key. Safe between threads and processes."""

    def __init__(
        self, folder: Path | None, limit: int = LIMIT, problem: str | None = None, look: int = LOOK
    ) -> None:
        self.folder = folder
        self.limit = limit
        self.look = look
        self.problem = problem  # why nothing is read or written
        self.unwritable: str | None = None  # why nothing is written
        if folder is not None:
            self._open(folder)

    def _open(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat()
        except OSError as error:
            self.problem = f"{folder}: {error.strerror}"
            return
        if found.st_uid != os.getuid():
            self.problem = f"{folder} belongs to another user"
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self.problem = f"{folder} can be written by others"
        elif not os.access(folder, os.W_OK):
            self.unwritable = f"{folder} cannot be written"

    def load(self, key: str) -> bytes | None:
        """The object code of a key; None where there is none that is whole."""
        if self.problem is not None:
            return None
        assert self.folder is not None
        path = self.folder / key
        try:
            content = _plain(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"
            return None
        head, checksum, code = content[:16], content[16:48], content[48:]
        if head == MAGIC and _checksum(key, code) == checksum:
            return code
        with contextlib.suppress(OSError):  # in a folder that cannot be written it stays, unused
            path.unlink()
        return None

    def store(self, key: str, code: bytes) -> bytes:
        """Keep the object code of a key, if the folder can be written; returns it."""
        if self.problem is not None or self.unwritable is not None:
            return code
        assert self.folder is not None
        temporary: Path | None = None
        try:
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            temporary = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + _checksum(key, code) + code)
            temporary.replace(self.folder / key)
            if zlib.crc32(key.encode()) % self.look == 0:
                self._trim()
        except OSError as error:
            self.unwritable = f"{self.folder} cannot be written: {error.strerror}"
            if temporary is not None:
                with contextlib.suppress(OSError):  # moved already, or not to be removed either
                    temporary.unlink()
        return code

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """The plain files that are there now."""
        found = []
        for path in self.folder.iterdir() if self.folder is not None else ():
            if path.name.startswith(".new-"):
                continue  # another process is writing it
            with contextlib.suppress(FileNotFoundError):  # another process may be trimming
                info = path.lstat()
                if stat.S_ISREG(info.st_mode):
                    found.append((path, info))
        return found

    def _trim(self) -> None:
        self._sweep()
        files = sorted(self.files(), key=lambda item: item[1].st_mtime)
        total = sum(info.st_size for _, info in files)
        while files and total > self.limit:
            path, info = files.pop(0)
            with contextlib.suppress(FileNotFoundError):
                if _is_ours(path):
                    path.unlink()
                    total -= info.st_size

    def _sweep(self) -> None:
        """Remove what killed processes have begun to write."""
        assert self.folder is not None
        for path in self.folder.glob(".new-*"):
            with contextlib.suppress(FileNotFoundError):  # another process may be sweeping
                if time.time() - path.stat().st_mtime > LEFT_BEHIND:
                    path.unlink()

    def state(self) -> str:
        """For people: where it is and what it holds, or why it is not used."""
        if self.problem is not None:
            return f"not used: {self.problem}"
        files = self.files()
        size = sum(info.st_size for _, info in files)
        note = f", only read: {self.unwritable}" if self.unwritable is not None else ""
        return f"{self.folder}, {len(files)} files, {size / 1e6:.1f} MB{note}"


def _checksum(key: str, code: bytes) -> bytes:
    """Of the key, too: code under another key's name is whole, and wrong."""
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


def _is_ours(path: Path) -> bool:
    """Whether a file was written here: a folder that a user names may hold others."""
    with path.open("rb") as file:
        return file.read(len(MAGIC) - 3) == MAGIC[:-3]  # of any version


def _plain(path: Path) -> bytes:
    """The content of a plain file; FileNotFoundError for anything else that is there.

    A pipe would be waited for, so nothing is waited for; a link may lead anywhere.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise FileNotFoundError(path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LIMIT:
            raise FileNotFoundError(path)
        return file.read()


@functools.cache
def object_cache() -> ObjectCache:
    """The cache of this process."""
    named = os.environ.get("GRADOF_CACHE_DIR")
    if named == "off":
        return ObjectCache(None, problem="switched off (GRADOF_CACHE_DIR=off)")
    if named:
        return ObjectCache(Path(named))
    try:
        import platformdirs
    except ImportError:
        return ObjectCache(None, problem="platformdirs is not installed: pip install platformdirs")
    return ObjectCache(Path(platformdirs.user_cache_dir("gradof", appauthor=False)) / "native")
