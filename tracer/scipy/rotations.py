"""scipy.spatial.transform: Rotation, Slerp and RigidTransform, by scipy's own Python code.

    r = Rotation.from_rotvec(v) * Rotation.from_euler("xyz", angles)
    np.sum(r.apply(points) ** 2)                    # dv, dangles, dpoints; at v = 0, too

scipy has its functions twice: in Cython, and in Python for other libraries' arrays (from 1.17 on).
Rotations of traced values go by the second. Some of its functions are written anew here: norms of
rotation vectors have no derivative at zero, and a matrix that is nearly a rotation becomes one by
a decomposition that has none.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, original_of, scipy_function
from gradof.tracer.scipy.twins import XP, moved, stand_in, twin_globals

Function = Callable[..., Any]
_NAME = "scipy.spatial.transform"
_ROTATION, _RIGID = f"{_NAME}._rotation", f"{_NAME}._rigid_transform"
_XP, _RIGID_XP = f"{_ROTATION}_xp", f"{_RIGID}_xp"
_SMALL = 1e-3  # radians: scipy takes a series up to there
_ROUNDS = 12  # of Newton's iteration: five are enough for what is a rotation but for noise


class _Backend:
    """The functions of one of scipy's Python backends, for traced arrays."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        space = twin_globals(self.module)
        if name not in space:
            raise AttributeError(name)
        return space[name]


_BACKENDS = {_ROTATION: _Backend(_XP), _RIGID: _Backend(_RIGID_XP)}  # by the class's module
_ARRAYS = {_ROTATION: "_quat", _RIGID: "_matrix"}


def _backend_of(module: str) -> None:
    @stand_in(module, "select_backend")
    def select_backend(xp: Any, cython_compatible: bool) -> Any:
        return _BACKENDS[module]


for _module in _BACKENDS:
    _backend_of(_module)


@stand_in(_RIGID, "xp_promote")
@stand_in(_RIGID, "_promote")
@stand_in(_ROTATION, "_promote")
def _promote(*arrays: Any, xp: Any, force_floating: bool = True) -> Any:
    """In double precision, as scipy has arrays of numpy's; None stays."""
    made = tuple(None if a is None else as_array(a).astype(np.float64) for a in arrays)
    return made[0] if len(made) == 1 else made


# --- functions that scipy has without derivatives at rotations by nothing -------------------------


def _degrees(value: Any) -> Any:
    return value * (np.pi / 180.0)


@stand_in(_RIGID_XP, "quat_from_rotvec")
@stand_in(_XP, "from_rotvec")
def _from_rotvec(rotvec: Any, degrees: bool = False) -> Any:
    if rotvec.shape[-1] != 3:
        raise ValueError(f"Expected `rot_vec` to have shape (..., 3), got {rotvec.shape}")
    rotvec = _degrees(rotvec) if degrees else rotvec
    square = np.sum(rotvec * rotvec, axis=-1, keepdims=True)
    small = square <= _SMALL**2
    half = np.sqrt(np.where(small, 1.0, square)) / 2.0
    scale = np.where(small, 0.5 - square / 48.0 + square**2 / 3840.0, np.sin(half) / (2.0 * half))
    series = 1.0 - square / 8.0 + square**2 / 384.0 - square**3 / 46080.0
    return np.concatenate([rotvec * scale, np.where(small, series, np.cos(half))], axis=-1)


@stand_in(_RIGID_XP, "quat_as_rotvec")
@stand_in(_XP, "as_rotvec")
def _as_rotvec(quat: Any, degrees: bool = False) -> Any:
    quat = twin_globals(_XP)["_quat_canonical"](quat)
    vector, real = quat[..., :3], quat[..., 3:]
    square = np.sum(vector * vector, axis=-1, keepdims=True)
    small = square <= (_SMALL / 2.0) ** 2 * real * real
    ratio = square / np.where(small, real * real, 1.0)
    turned = 4.0 * ratio * (1.0 - ratio / 3.0 + ratio**2 / 5.0) ** 2  # the angle's square
    angle = 2.0 * np.arctan2(np.sqrt(np.where(small, 1.0, square)), np.where(small, 1.0, real))
    series = 2.0 + turned / 12.0 + 7.0 * turned**2 / 2880.0
    scale = np.where(small, series, angle / np.sin(angle / 2.0))
    return vector * scale * (180.0 / np.pi if degrees else 1.0)


@stand_in(_XP, "_normalize_quaternion")
def _normalized(quat: Any) -> Any:
    norm = np.sqrt(np.sum(quat * quat, axis=-1, keepdims=True))
    if not bool(np.all(norm > 0)):  # scipy's Python lets pass what is nan, its Cython does not
        raise ValueError("Found zero norm quaternions in `quat`.")
    return quat / norm


@stand_in(_RIGID_XP, "quat_from_matrix")
@stand_in(_XP, "from_matrix")
def _from_matrix(matrix: Any, assume_valid: bool = False) -> Any:
    if matrix.shape[-2:] != (3, 3):
        raise ValueError(f"Expected `matrix` to have shape (..., 3, 3), got {matrix.shape}")
    if not assume_valid:
        if bool(np.any(np.linalg.det(matrix) <= 0)):
            raise ValueError("Non-positive determinant (left-handed or null coordinate frame)")
        matrix = _nearest(matrix)
    return twin_globals(_XP)["_from_matrix_orthogonal"](matrix)


@stand_in(_RIGID_XP, "pow")
@stand_in(_XP, "reduce")
def _apart(*args: Any, **options: Any) -> Any:  # scipy's two ways give different numbers
    recorder = active_recorder()
    assert recorder is not None
    raise recorder.unsupported("Rotation.reduce, or a power of a RigidTransform, of traced values")


def _nearest(matrix: Any) -> Any:
    """The orthogonal matrix of the polar decomposition, by Newton: x <- (x + x^-T) / 2.

    See Higham, Functions of Matrices (2008), section 8.3.
    """
    for _ in range(_ROUNDS):
        rows = [matrix[..., i, :] for i in range(3)]
        minors = [np.cross(rows[i - 2], rows[i - 1]) for i in range(3)]
        det = np.sum(rows[0] * minors[0], axis=-1)[..., None, None]
        matrix = 0.5 * (matrix + np.stack(minors, axis=-2) / det)
    gram = matrix @ np.swapaxes(matrix, -1, -2)
    if not bool(np.all(np.abs(gram - np.eye(3)) < 1e-12)):
        raise TypeError("Rotation.from_matrix of traced values that are far from a rotation")
    return matrix


# --- the methods ----------------------------------------------------------------------------------


def _ours(value: Any) -> Any:
    """A rotation, or a spline of some, whose arrays are traced and whose functions take such."""
    module, held = type(value).__module__, getattr(value, "__dict__", None)
    if module not in _BACKENDS or not held:  # no object of these, or one that is being made
        return value
    if "rotvecs" in held:
        made = copy.copy(value)
        made.rotations = _ours(value.rotations)
        for name in ("times", "timedelta", "rotvecs"):
            setattr(made, name, _traced(getattr(value, name)))
        return made
    if value._backend is _BACKENDS[module]:
        return value
    made = object.__new__(type(value))
    vars(made).update(held, _xp=XP, _backend=_BACKENDS[module])
    setattr(made, _ARRAYS[module], _traced(held[_ARRAYS[module]]))
    return made


def _traced(array: Any) -> Any:
    recorder = active_recorder()
    assert recorder is not None
    return recorder.traced(as_array(array))


def _given(value: Any) -> bool:
    """Whether an argument is traced, or a rotation that is, or a list of some."""
    if isinstance(value, (list, tuple)):
        return any(map(_given, value))
    return holds_traced(value)


def _method(module: str, name: str, *, wraps: tuple[str, ...] = ()) -> None:
    """Register a function of a class; arguments that are named in `wraps` become traced."""

    @scipy_function(f"{_NAME}.{name}", at=f"{module}.{name}", raw=True)
    def method(original: Function, *args: Any, **kwargs: Any) -> Any:
        if not _given((args, tuple(kwargs.values()))):
            return original(*args, **kwargs)
        function = inspect.unwrap(original_of(f"{_NAME}.{name}"))
        bound = inspect.signature(function).bind(*args, **kwargs)
        for key, value in bound.arguments.items():
            if key in ("rotations", "transforms"):  # of concatenate, or one of them
                several = isinstance(value, (list, tuple))
                value = [_ours(v) for v in value] if several else _ours(value)
            bound.arguments[key] = _traced(value) if key in wraps else _ours(value)
        made = _twin(module, name)(*bound.args, **bound.kwargs)
        if type(made) is tuple:  # numbers, as scipy's Cython gives
            return tuple(m[()] if np.ndim(m) == 0 and hasattr(m, "dtype") else m for m in made)
        return made


@functools.cache
def _twin(module: str, name: str) -> Any:
    function: Any = inspect.unwrap(original_of(f"{_NAME}.{name}"))
    return moved(function, twin_globals(module))


_BOTH = "__init__ from_matrix as_matrix apply __mul__ inv mean concatenate __getitem__ __iter__"
for _name in (
    f"{_BOTH} from_quat from_rotvec from_euler from_davenport from_mrp _from_raw_quat as_quat "
    "as_rotvec as_euler as_davenport as_mrp magnitude approx_equal __pow__ __setitem__ "
    "align_vectors"
).split():
    _method(_ROTATION, f"Rotation.{_name}")
for _name in (
    f"{_BOTH} from_rotation from_translation from_components from_exp_coords from_dual_quat "
    "_from_raw_matrix as_components as_exp_coords as_dual_quat"
).split():
    _method(_RIGID, f"RigidTransform.{_name}")
_method(_ROTATION, "Slerp.__init__", wraps=("times",))
_method(_ROTATION, "Slerp.__call__", wraps=("times",))
