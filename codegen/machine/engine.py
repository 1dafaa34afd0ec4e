"""LLVM in this process: text → addresses of its functions, compiled for the host's own processor.

Kernels are kept by their text, so equal nests of any sizes share one, and their machine code on
disk (see `object_cache`). `status()` says whether llvmlite, an x86-64 processor with AVX2 and
glibc's libmvec are there, or what is missing; then the numpy tiles run instead.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import weakref
from typing import Any, Literal

from gradof.codegen.machine.object_cache import object_cache
from gradof.errors import CodegenError
from gradof.ir import forks
from gradof.ir.types import BF16, F16, DType

_LOCK = forks.finish_first(threading.Lock())  # LLVM has locks of its own
_PASSES = ("sroa", "instruction_combine", "simplify_cfg")
Effort = Literal["full", "plain", "quick"]
_SETTINGS: dict[Effort, str] = {  # to be changed with `_object_code`
    "full": f"{_PASSES}, opt 2",
    "plain": "no passes, opt 2",
    "quick": "no passes, opt 0",
}
COMPILED = 0  # kernels that were not on disk
_ENGINES: dict[tuple[str, Effort], Any] = {}  # by their text; for good, as addresses are numbers
_OWNED: weakref.WeakValueDictionary[tuple[str, Effort], Any] = weakref.WeakValueDictionary()
_KEPT: list[Any] = []  # others whose code is in use for good


@functools.cache
def status() -> tuple[int, str]:
    """(bits of a vector register, 0 where native code cannot be made; what was found)."""
    try:
        import llvmlite
        from llvmlite import binding
    except ImportError:
        return 0, "llvmlite is not installed: pip install 'gradof[native]'"
    triple = binding.get_default_triple()
    if not triple.startswith("x86_64"):
        return 0, f"llvmlite {llvmlite.__version__}, but native code is for x86-64, not {triple}"
    features = binding.get_host_cpu_features()
    bits = 512 if features.get("avx512f") and features.get("avx512vl") else 256
    if not features.get("avx2"):
        return 0, f"llvmlite {llvmlite.__version__}, but the processor has no AVX2"
    try:
        binding.load_library_permanently("libmvec.so.1")
    except RuntimeError:
        return 0, f"llvmlite {llvmlite.__version__}, but no libmvec (glibc's vector mathematics)"
    for symbol in ("_ZGVdN8v_tanhf", "_ZGVdN8v_erff"):
        if not binding.address_of_symbol(symbol):
            return 0, f"llvmlite {llvmlite.__version__}, but libmvec lacks {symbol}: glibc >= 2.35"
    return bits, f"llvmlite {llvmlite.__version__}, libmvec, {bits}-bit vectors"


def vector_bits() -> int:
    """Bits of a vector register, 0 where native code cannot be made."""
    return status()[0]


def half_dtypes() -> frozenset[DType]:
    """The half precisions of native code; float16 where the processor converts it (F16C)."""
    if not vector_bits():
        return frozenset()
    return frozenset({BF16, F16}) if _has_f16c() else frozenset({BF16})


@functools.cache
def _has_f16c() -> bool:
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("f16c"))


def address_of(text: str, name: str, effort: Effort = "full") -> int:
    """The address of a function in a text of LLVM IR.

    `quick` is for what runs seldom or is over at once: it is compiled in a fifth to a third of the
    time, without optimisation. The results are the same bits: nothing here may be reassociated.
    `plain` is for text with nothing to gain but good registers, and takes half the time.
    """
    with _LOCK:
        engine = _ENGINES.get((text, effort))
        if engine is None:
            engine = _ENGINES[text, effort] = _compile(text, effort)
        address: int = engine.get_function_address(name)
        return address


def address_once(text: str, name: str) -> int:
    """The same of a text that holds addresses of this process, which is kept nowhere."""
    with _LOCK:
        engine = _loaded(_object_code(text, "quick"))
        _KEPT.append(engine)
        address: int = engine.get_function_address(name)
        return address


class Code:
    """Machine code of a text that is freed with the last Code of that text.

    For texts that hold sizes: of each new shape there is another, and programs that meet a thousand
    would keep them all.
    """

    def __init__(self, text: str, effort: Effort) -> None:
        with _LOCK:
            engine = _OWNED.get((text, effort))
            if engine is None:
                engine = _OWNED[text, effort] = _compile(text, effort)
            self._engine = engine

    def address_of(self, name: str) -> int:
        """The address of a function; it holds while this object lives."""
        with _LOCK:
            address: int = self._engine.get_function_address(name)
            return address

    def keep(self) -> None:
        """Never free it: somebody has an address who does not hold this object."""
        _KEPT.append(self._engine)


def is_on_disk(text: str, effort: Effort) -> bool:
    """Whether machine code of a text need not be made."""
    return object_cache().load(_key(text, effort)) is not None


def _loaded(code: bytes) -> Any:
    """An engine with machine code in it."""
    from llvmlite import binding

    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _compile(text: str, effort: Effort = "full") -> Any:
    bits, found = status()  # loads libmvec: a name it does not find would be called at address 0
    if not bits:
        raise CodegenError(f"no native code: {found}")
    cache, key = object_cache(), _key(text, effort)
    code = cache.load(key)
    if code is None:
        global COMPILED
        COMPILED += 1
        code = cache.store(key, _object_code(text, effort))
    return _loaded(code)


def _key(text: str, effort: Effort = "full") -> str:
    """What machine code depends on: the text, LLVM, the processor, and how it is compiled here."""
    import llvmlite
    from llvmlite import binding

    parts = (
        text, _SETTINGS[effort],
        llvmlite.__version__, ".".join(map(str, binding.llvm_version_info)), *_processor(),
    )  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _processor() -> tuple[str, str]:
    """The processor's name and features; LLVM asks it anew each time."""
    from llvmlite import binding

    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def _machine(opt: int = 2) -> Any:
    """A target machine, which an engine takes for its own."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    cpu, features = _processor()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=opt, jit=True
    )


@functools.cache
def _emitter(opt: int) -> Any:
    """The target machine of all modules that are compiled so; used under the lock."""
    return _machine(opt)


def _object_code(text: str, effort: Effort) -> bytes:
    """Machine code, to be linked where it is loaded."""
    from llvmlite import binding

    machine = _emitter(0 if effort == "quick" else 2)
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    if effort == "full":
        options = binding.create_pipeline_tuning_options(speed_level=1)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        builder = binding.create_pass_builder(machine, options)
        _passes(builder).run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


def _passes(builder: Any) -> Any:
    """What makes registers of slots; the loops are as they should be.

    All passes of LLVM's own first level take twice the time, and the code after them as long again
    to emit; it is no faster. Nor is it with (new) value numbering, which LLVM itself leaves out.
    """
    from llvmlite import binding

    passes = binding.create_new_module_pass_manager()
    if not all(hasattr(passes, f"add_{name}_pass") for name in _PASSES):  # llvmlite 0.44
        return builder.getModulePassManager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    return passes
