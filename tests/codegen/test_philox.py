"""Dropout masks drawn as torch draws them on CUDA devices; Note [Philox] in gradof/ops/philox.py.

No device is needed: torch's kernel is followed thread by thread here, in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'gradof[torch]'")
pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")

from gradof.codegen.lowering import philox  # noqa: E402
from gradof.errors import CodegenError, ConfigError  # noqa: E402
from gradof.ops.philox import BLOCK_BITS, words  # noqa: E402
from gradof.tracer.aten.random import in_kernels  # noqa: E402
from tests.codegen import triton_philox  # noqa: E402
from tests.codegen.triton_process import run  # noqa: E402

KNOWN = (  # counter, key and words that come with Random123, of Salmon et al.
    (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (2**64 - 1, 2**64 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822,
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
)  # fmt: skip


@pytest.mark.parametrize(("number", "thread", "key", "want"), KNOWN)
def test_philox_has_its_known_answers(number: int, thread: int, key: int, want: str) -> None:
    assert " ".join(f"{w:08x}" for w in words(number, thread, key)) == want


class Threads:
    """torch's kernel, thread by thread: what each draws, one turn after the other."""

    def __init__(self, seed: int, offset: int, step: int = 8) -> None:
        self.seed, self.offset, self.step = seed, offset, step

    def mask(self, cells: int, width: int, blocks: int, p: float) -> Any:
        """The mask; the offset moves on by `step` numbers for as many elements of each thread."""
        kept = np.zeros(cells, bool)
        blocks = min(blocks, -(-cells // 256))
        for thread in range(256 * blocks):
            number = self.offset // 4
            for first in range(thread * width, cells, 256 * blocks * width):
                for four in range(first, first + width, 4):
                    uniform = [np.float32(w) * np.float32(2**-32) + np.float32(2**-33)
                               for w in words(number, thread, self.seed)]  # fmt: skip
                    kept[four : four + 4] = [u < np.float32(1 - p) for u in uniform]
                    number += 1
        step = min(self.step, width)
        self.offset += -(-cells // (256 * blocks * step)) * step
        return torch.from_numpy(kept)


class Generator:
    """A device's generator, as far as a draw asks."""

    def __init__(self, seed: int) -> None:
        self.threads = Threads(seed, 24)

    def initial_seed(self) -> int:
        return self.threads.seed

    def get_offset(self) -> int:
        return self.threads.offset

    get_state = get_offset

    def set_offset(self, offset: int) -> None:
        self.threads.offset = offset

    set_state = set_offset


def width_of(dtype: Any, cells: int) -> int:
    """Elements that a thread of torch's takes at once."""
    return 4 if dtype == torch.float32 or cells % 8 else 8


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Generator]:
    """A device of two blocks of threads, whose dropout is that of `Threads`."""
    made = Generator(2**64 - 5)
    room = SimpleNamespace(multi_processor_count=1, max_threads_per_multi_processor=512)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "default_generators", (made,))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: room)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(philox, "_steps", {})

    def dropout(x: Any, p: float, train: bool) -> Any:
        width = width_of(x.dtype, x.numel())
        return x, made.threads.mask(x.numel(), width, 2, p)

    monkeypatch.setattr(torch, "native_dropout", dropout)
    yield made


@pytest.mark.parametrize(("cells", "dtype", "step"), [
    (5000, torch.bfloat16, 4), (9000, torch.bfloat16, 8), (96, torch.float32, 4),
    (100, torch.float16, 4),
])  # fmt: skip
def test_mask_and_state_are_those_of_torchs_threads(
    generator: Generator, cells: int, dtype: Any, step: int
) -> None:  # fmt: skip
    width = width_of(dtype, cells)
    generator.threads.step = step
    for _ in range(2):  # the second draw goes on where the first one ended
        before = generator.get_offset()
        seed, place = philox.philox_state(cells, width, dtype, torch.device("cpu"))
        moved, generator.threads.offset = generator.get_offset(), before
        want = generator.threads.mask(cells, width, 2, 0.3)
        mine = philox.philox_kept(
            torch.arange(cells), seed, place, p=0.3, width=width, cells=cells
        )
        assert torch.equal(mine, want) and generator.get_offset() == moved
        assert int(place) & ((1 << BLOCK_BITS) - 1) == min(2, -(-cells // 256))


def test_other_numbers_than_torchs_are_refused(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = generator.threads.mask
    for change in (lambda mask: ~mask, lambda mask: mask):  # the mask; then the state alone
        generator.threads.mask = lambda *a, f=change: f(plain(*a))  # type: ignore[method-assign]
        with pytest.raises(CodegenError, match="draws other numbers than gradof's kernels"):
            philox.philox_state(64, 4, torch.float32, torch.device("cpu"))
        assert generator.get_offset() == 24
        monkeypatch.setattr(philox, "increment", lambda cells, blocks, step: 4)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(CodegenError, match="cannot be captured into a CUDA graph"):
        philox.philox_state(64, 4, torch.float32, torch.device("cpu"))


def test_kernels_draw_it(tmp_path: Path) -> None:
    found = run("triton_philox", "run", tmp_path, interpret=True)
    assert found == {f"{d}{list(s)}": "ok" for s, _, d in triton_philox.CASES}


def test_it_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, want in (("torch", False), ("kernel", True)):
        monkeypatch.setenv("GRADOF_DROPOUT", value)
        assert in_kernels() is want
    monkeypatch.setenv("GRADOF_DROPOUT", "fast")
    with pytest.raises(ConfigError, match="GRADOF_DROPOUT is 'fast'"):
        in_kernels()
