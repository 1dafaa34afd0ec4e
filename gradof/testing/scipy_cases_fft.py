"""The scipy table: scipy.fft, and scipy.spatial.distance."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, Of, R, Sample, case

_F = "scipy.fft"
_of = Of(_F, R(6))


def _complex(name: str, *calls: str, on: tuple[Sample, ...] = (R(6), R(6))) -> tuple[Case, ...]:
    """Of x + iy, a real function of what is complex."""
    return tuple(
        case(f"{_F}.{name}", f"z = {_F}.{name}({call})\nreturn z.real, z.imag", *on)
        for call in calls
    )


_Z = "x + 1j * y"
_TYPES = tuple(f"x, type={t}, norm={n!r}" for t in (1, 2, 3, 4) for n in (None, "ortho"))
TRANSFORMS = (
    *_complex("fft", _Z, f"{_Z}, 8, norm='ortho'", "x"), *_complex("ifft", _Z),
    *_complex("rfft", "x", "x, 5, norm='forward'", on=(R(6),)),
    *_of("irfft", _Z, f"{_Z}, 9", on=(R(6), R(6))), *_of("hfft", _Z, on=(R(4), R(4))),
    *_complex("ihfft", "x", on=(R(6),)),
    *(c for n in ("fftn", "ifftn", "fft2", "ifft2")
      for c in _complex(n, _Z, f"{_Z}, (4, 3), norm='ortho'", on=(R(3, 4), R(3, 4)))),
    *(c for n in ("rfftn", "rfft2") for c in _complex(n, "x", on=(R(3, 4),))),
    *(c for n in ("irfftn", "irfft2", "hfftn", "hfft2") for c in _of(n, _Z, on=(R(3, 3), R(3, 3)))),
    *(c for n in ("ihfftn", "ihfft2") for c in _complex(n, "x", on=(R(3, 4),))),
    *(c for n in ("dct", "dst", "idct", "idst")
      for c in _of(n, *_TYPES, "x, n=4", "x, n=8, norm='forward'", "x, norm='ortho', type=3, "
                   "orthogonalize=False")),
    *(c for n in ("dctn", "dstn", "idctn", "idstn")
      for c in _of(n, "x", "x, norm='ortho'", "x, axes=(0,)", "x, type=4, s=(4, 2)", "x, s=3",
                   on=(R(3, 4),))),
    *(c for n in ("dct", "idst", "dctn") for c in _complex(n, f"{_Z}, orthogonalize=True")),
    *_complex("fftn", f"{_Z}, 6"), *_of("irfftn", f"{_Z}, 6, axes=0", on=(R(6), R(6))),
    *_of("fftshift", "x"), *_of("ifftshift", "x"),
    *_of("fht", "x, 0.1, 0.5", "x, 0.1, 0.5, 0.2, 0.3", on=(R(6),)),
    *_of("ifht", "x, 0.1, 0.5", "x, 0.1, 0.5, 0.2, 0.3", on=(R(6),)),
)  # fmt: skip
CASES = TRANSFORMS
