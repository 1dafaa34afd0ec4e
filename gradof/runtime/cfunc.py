"""A function, or its value and gradient, as a C function pointer: no Python and no lock in a call.

>>> f = cfunc(loss, ["f64[3]", "f64[10,3]"])          # int32_t f(void *const *, void *const *)
>>> f.address, f.ctypes, f.declaration
>>> quad(cfunc(bell, ["f64[1]"], form="number", argnums=None).low_level(), 0, 1)
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.codegen.machine.c_entry import DECLARATIONS, PROTOTYPES, Form
from gradof.codegen.targets.choose import why_not_whole
from gradof.codegen.whole.function import WholeExecutable
from gradof.errors import InputError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.types import TensorType, dtype
from gradof.runtime.checks import Argnums
from gradof.runtime.functional import ValueAndGrad
from gradof.runtime.once import compiled_once
from gradof.tracer.state.source import function_name

_TYPE = re.compile(r"(\w+)\[([\d,\s]*)\]$")
_FORMS = tuple(PROTOTYPES)


class CFunction:
    """A C function: see `cfunc`. The machine code lives as long as the process.

    `address` is the pointer, `declaration` its C prototype, `inputs` and `outputs` the types of
    the arrays it reads and writes.
    """

    def __init__(
        self, executable: WholeExecutable, form: Form, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:  # fmt: skip
        self._executable = executable  # has the constants
        self.form = form
        self.address = executable.c_function(form)
        self.declaration = DECLARATIONS[form]
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.ctypes: Any = PROTOTYPES[form](self.address)
        self.ctypes.kept = executable

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run it on numpy arrays through the pointer, to try it; fresh arrays come back."""
        given = [
            np.require(a, to_numpy_dtype(t.dtype), ["C", "A"])
            for a, t in zip(arrays, map(type_of, self.inputs), strict=True)
        ]
        kinds = map(type_of, self.outputs)
        made = [np.empty(t.shape or (), to_numpy_dtype(t.dtype)) for t in kinds]
        at = [a.__array_interface__["data"][0] for a in (*given, *made)]
        if self.form == "pointers":
            table = np.array(at, np.uintp)
            first = table.__array_interface__["data"][0]
            status = self.ctypes(first, first + 8 * len(given))
        elif self.form == "number":
            return (np.float64(self.ctypes(given[0].size, at[0], None)),)
        else:
            status = self.ctypes(given[0].size, at[0], at[2], at[1], None)
        if status:
            raise InputError("the function failed: an index is out of range, or a matrix singular")
        return tuple(made)

    def low_level(self, data: Any = None) -> Any:
        """A `scipy.LowLevelCallable`, of the form "number"; `data` is what scipy hands on."""
        if self.form != "number":
            raise InputError(f"scipy takes functions of the form 'number', not {self.form!r}")
        from scipy import LowLevelCallable

        kind = ctypes.CFUNCTYPE(
            ctypes.c_double, ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.c_void_p
        )
        function = kind(self.address)
        function.kept = self._executable  # type: ignore[attr-defined]  # as long as it lives
        return LowLevelCallable(function, data)

    def __repr__(self) -> str:
        return f"<CFunction {self.declaration} at {self.address:#x}>"


def cfunc(
    fn: Callable[..., Any], signature: Sequence[str], *, argnums: Argnums | None = 0,
    form: Form = "pointers",
) -> CFunction:  # fmt: skip
    """A function of numpy arrays as a C function pointer, for ctypes, scipy, numba and samplers.

    `signature` has a type for each argument: "f64[3]", "f32[2,2]", "f64[]". What is computed is the
    value, and then the gradient for each of `argnums`; the value alone for None. Forms:

    - "pointers": `int32_t f(void *const *inputs, void *const *outputs)`, 0 if all is well;
    - "number": `double f(int32_t n, double *x, void *data)`, one argument f64[n], no gradient: what
      `scipy.LowLevelCallable` takes (`low_level`);
    - "logp": `int64_t f(uint64_t n, double *x, double *gradient, double *value, void *data)`, one
      argument f64[n], as samplers take it.

    Arrays are contiguous. Calls may run at once in any number of threads. Arrays of closures and
    modules are refused: pass them as arguments, or as constants of the function's own. Raises
    InputError where the function is none that is one native function, and says why.
    """
    if form not in _FORMS:
        raise InputError(f"the form is {form!r}", hint=f"one of {', '.join(_FORMS)}")
    types = [type_of(text) for text in signature]
    if form != "pointers" and (
        len(types) != 1 or str(types[0].dtype) != "f64" or (argnums is None) != (form == "number")
    ):
        raise InputError(
            f"the form {form!r} is of one argument f64[n], "
            + ("and no gradient" if form == "number" else "and its gradient"),
            hint='form="pointers" takes any arguments' + (
                "; argnums=None leaves the gradient out" if form == "number" else ""),
        )  # fmt: skip
    arrays = [np.full(t.shape or (), 0.5).astype(to_numpy_dtype(t.dtype)) for t in types]
    if argnums is None:
        bound = compiled_once(fn).bind(tuple(arrays), {}, default="numpy")
        plan = bound.entry.plan
    else:
        gradient = ValueAndGrad(fn, argnums, has_aux=False, with_value=True)
        bound = gradient.bind(tuple(arrays), {})
        plan = gradient.plan_of(bound)
    traced, name = bound.entry.traced, function_name(fn)
    if traced.origins or traced.writebacks or traced.writes or bound.entry.decisions is not None:
        raise InputError(
            f"{name} cannot be a C function: it reads or changes state, or values decide what runs",
            hint="pass arrays as arguments, and choose by np.where",
        )
    plan.prepared.whole = True  # asked for by name
    executable = plan.executable
    if not isinstance(executable, WholeExecutable):
        raise InputError(f"{name} cannot be a C function: {why_not_whole(plan.prepared, 'numpy')}")
    return CFunction(
        executable, form, [str(v.type) for v in plan.prepared.inputs],
        [str(v.type) for v in plan.prepared.outputs],
    )  # fmt: skip


def type_of(text: str) -> TensorType:
    """The type of an argument; InputError for a text that is none."""
    found = _TYPE.match(text.strip())
    if found is None:
        raise InputError(f"{text!r} is no type of an argument", hint='as "f64[3,2]" or "f64[]" is')
    try:
        kind = dtype(found[1])
    except KeyError:
        raise InputError(f"{text!r} has an unknown dtype", hint="f64, f32, i64, bool") from None
    return TensorType(kind, tuple(int(n) for n in found[2].split(",") if n.strip()))
