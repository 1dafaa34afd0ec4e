"""The scipy table: scipy.spatial.transform."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, R, Sample, case, exactly, positive

_T = "scipy.spatial.transform"
_ONE, _SOME, _POINTS = R(3, low=-0.9, high=0.9), R(5, 3, low=-0.9, high=0.9), R(5, 3)
_R = "R.from_rotvec(x)"
_OTHER = "R.from_rotvec([0.3, -0.2, 0.5])"
_AXES = "[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]"
_NEAR = "R.from_rotvec(y).as_matrix() + 0.03 * z.reshape(3, 3) + 0 * x[0]"
_TURNED = "R.from_rotvec([0.3, 0.2, -0.1]).apply(y) + 0.05 * x"
_RIGID = "T.from_components(y, R.from_rotvec(x))"
_SLERP = f"scipy.spatial.transform.Slerp(range(5), {_R})"


def _rows(of: str, rows: dict[str, tuple[str, ...]], *on: Sample) -> tuple[Case, ...]:
    given = f"R = {_T}.Rotation\nT = {_T}.RigidTransform\n"
    return tuple(
        case(f"{_T}.{of}.{name}", f"{given}{'' if 'return' in source else 'return '}{source}", *on)
        for name, sources in rows.items()
        for source in sources
    )


CASES = (
    *_rows("Rotation", {
        "from_rotvec": (f"{_R}.as_matrix()", "R.from_rotvec([x[0], 0.0, x[1]]).as_quat()",
                        "R.from_rotvec(50 * x, degrees=True).as_matrix()"),
        "from_euler": tuple(f"R.from_euler('{s}', x).as_matrix()" for s in ("xyz", "ZXZ", "ZYX")),
        "as_euler": tuple(f"{_R}.as_euler('{s}')" for s in ("xyz", "ZXZ", "zyx")),
        "from_davenport": (f"R.from_davenport({_AXES}, 'extrinsic', x).as_matrix()",),
        "as_davenport": (f"{_R}.as_davenport({_AXES}, 'extrinsic')",),
        "as_matrix": (f"{_R}.as_matrix()",), "as_quat": (f"{_R}.as_quat(scalar_first=True)",),
        "as_rotvec": (f"({_R} * {_OTHER}).as_rotvec()", f"{_R}.as_rotvec(degrees=True)"),
        "from_mrp": ("R.from_mrp(x).as_matrix()",), "as_mrp": (f"{_R}.as_mrp()",),
        "magnitude": (f"{_R}.magnitude()",),
        "__pow__": (f"({_R} ** 0.4).as_rotvec()",),
        "approx_equal": (f"x * {_R}.approx_equal({_OTHER}, atol=3.0)",),
    }, _ONE),
    *_rows("Rotation", {
        "from_rotvec": (f"{_R}.as_matrix()", f"{_R}.as_rotvec()"),
    }, exactly([0.0, 0.0, 0.0])),
    *_rows("Rotation", {"from_quat": ("R.from_quat(x).as_rotvec()",)}, exactly([0, 0, 0, 1.0])),
    *_rows("Rotation", {"from_quat": (
        "R.from_quat(x).as_matrix()", "R(x).as_quat(canonical=True)",
        "R.from_quat(x, scalar_first=True).as_quat(scalar_first=True)")}, R(5, 4)),
    *_rows("Rotation", {"from_matrix": (
        "R.from_matrix(x + np.eye(3)).as_rotvec()",
        "R.from_matrix(x + np.eye(3), assume_valid=True).as_quat()")}, exactly([[0.0] * 3] * 3)),
    *_rows("Rotation", {"from_matrix": (f"R.from_matrix({_NEAR}).as_quat()",)}, _ONE, _ONE, R(9)),
    *_rows("Rotation", {
        "apply": (f"{_R}.apply(y)", f"{_R}.apply(y, inverse=True)", f"{_OTHER}.apply(x * y)",
                  f"{_R}[1].apply(y[2])"),
        "__mul__": (f"({_R} * R.from_rotvec(y / 3)).as_matrix()", f"({_OTHER} * {_R}).as_quat()"),
        "inv": (f"({_R}.inv() * {_OTHER}).magnitude()",),
        "mean": (f"{_R}.mean().as_rotvec()", f"{_R}.mean(weights=np.abs(y[:, 0])).as_matrix()"),
        "concatenate": (f"R.concatenate([{_R}, {_OTHER}]).as_matrix()",),
        "__getitem__": (f"{_R}[1:3].as_matrix()", f"{_R}[[0, 2]].as_quat()"),
        "__setitem__": (f"r = {_R}\nr[0] = r[2] * r[1]\nreturn r.as_matrix()",),
        "__iter__": (f"sum(r.as_matrix() * (i + 1) for i, r in enumerate({_R}))",),
        "align_vectors": (f"R.align_vectors({_TURNED}, y)[0].as_matrix()",
                          f"R.align_vectors({_TURNED}, y)[1]",
                          "R.align_vectors(x[0], y[0])[0].as_quat()"),
    }, _SOME, _POINTS),
    case(f"{_T}.Slerp", f"R = {_T}.Rotation\nreturn {_SLERP}(y).as_matrix()", _SOME, positive(4)),
    case(f"{_T}.Slerp", f"R = {_T}.Rotation\nreturn {_SLERP}([0, 1.3, 4]).as_rotvec()", _SOME),
    *_rows("RigidTransform", {
        "from_components": (f"{_RIGID}.as_matrix()",), "as_matrix": (f"{_RIGID}.as_matrix()",),
        "as_components": (f"c = {_RIGID}.as_components()\nreturn c[0], c[1].as_quat()",),
        "apply": (f"{_RIGID}.apply(x * y, inverse=True)", f"{_RIGID}.apply(x * y)"),
        "from_rotation": (f"T.from_rotation({_R}).as_matrix()",),
        "__mul__": (f"(T.from_translation(y) * T.from_rotation({_R})).as_matrix()",),
        "from_translation": ("T.from_translation(x * y).as_matrix()",),
        "inv": (f"{_RIGID}.inv().as_matrix()",), "mean": (f"{_RIGID}.mean().as_matrix()",),
        "concatenate": (f"T.concatenate([{_RIGID}, {_RIGID}.inv()]).as_matrix()",),
        "__getitem__": (f"{_RIGID}[1:3].as_matrix()",),
        "__iter__": (f"sum(t.as_matrix() * (i + 1) for i, t in enumerate({_RIGID}))",),
        "as_dual_quat": (f"{_RIGID}.as_dual_quat()",),
        "from_dual_quat": (f"T.from_dual_quat({_RIGID}.as_dual_quat() * 1.1).as_matrix()",),
        "from_matrix": (f"T.from_matrix({_RIGID}.as_matrix()).rotation.as_quat()",),
    }, _SOME, _POINTS),
    *_rows("RigidTransform", {
        "from_exp_coords": ("T.from_exp_coords(x).as_matrix()",),
        "as_exp_coords": ("T.from_exp_coords(x).as_exp_coords()",),
    }, R(6, low=-0.9, high=0.9)),
)  # fmt: skip
