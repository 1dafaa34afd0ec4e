"""Every error gradof raises, as one small tree.

    GradofError
    ├── TraceError                     the function could not be recorded
    │   ├── UnsupportedOpError         an op without a registered rule
    │   ├── DataDependentError         a Python branch or number that depends on a tensor's value
    │   │   ├── DataDependentShapeError   a shape that depends on a tensor's value
    │   │   └── PathLimitError         too many paths through the function, by the values it reads
    │   ├── FreeTensorError            a tensor whose origin cannot be re-read at the next call
    │   ├── LeafMutationError          in-place change of a leaf that requires grad
    │   ├── TorchInsideError           torch computes in a function that is traced as numpy's
    │   └── CustomRuleError            a rule of the user's own that does not fit its function
    ├── InputError                     the arguments of a call are wrong
    │   ├── CallError                  arguments that do not fit the function's signature
    │   ├── ArgnumsError               argnums out of range, repeated or not an int
    │   ├── LeafTypeError              an argument leaf that is no array, or no differentiable one
    │   ├── ShapeError                 shapes do not fit
    │   ├── DtypeError                 dtypes do not fit, or an integer where a float is due
    │   ├── DeviceError                a device no backend serves
    │   ├── CotangentError             cotangents that do not match the outputs
    │   └── OutputError                what the function returned cannot be differentiated
    ├── IRError                        a malformed graph
    │   ├── ParseError                 text that is not IR (has .line and .column)
    │   ├── VerifyError                a graph that breaks an invariant
    │   └── InferenceError             operands no type can be inferred for
    ├── OpDefinitionError              a wrong op statement
    ├── DifferentiationError           a graph without a reverse
    ├── CodegenError                   a graph that cannot be emitted
    ├── ConfigError                    a setting, such as an environment variable, that is no value
    ├── TargetError                    the command line cannot load what it was asked to
    ├── GradientMismatchError          the harness found a wrong number
    └── TextCheckError                 a printed graph is not what a test expects

    EagerWarning (a UserWarning)       a function that cannot be traced runs as it is
    OpaqueOpWarning (a UserWarning)    an op without a rule runs under torch's own autograd
    RetraceWarning (a UserWarning)     a number whose every value costs a trace
    AuditWarning (a UserWarning)       a call that was checked while training differs from eager

Each message says what happened, where in the user's code, and what to do:

>>> raise UnsupportedOpError("aten.foo has no rule", loc="model.py:12", hint="rewrite it with ...")
Traceback (most recent call last):
UnsupportedOpError: aten.foo has no rule
  at model.py:12
  hint: rewrite it with ...
"""

from __future__ import annotations

from typing import Protocol


class _HasFileLine(Protocol):
    def __str__(self) -> str: ...


class GradofError(Exception):
    """Root of the tree; `loc` is the user's line (or None), `hint` says what to do (or None)."""

    def __init__(
        self, message: str, *, loc: _HasFileLine | None = None, hint: str | None = None
    ) -> None:
        self.message = message
        self.loc = loc
        self.hint = hint
        text = message
        if loc is not None:
            text += f"\n  at {loc}"
        if hint is not None:
            text += f"\n  hint: {hint}"
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.loc, self.hint, dict(vars(self))))


def _rebuild(
    cls: type[GradofError], message: str, loc: object, hint: str | None, state: dict[str, object]
) -> GradofError:
    error = cls.__new__(cls)
    GradofError.__init__(error, message, loc=loc, hint=hint)
    error.__dict__.update(state)
    return error


class TraceError(GradofError):
    """The function could not be recorded."""


class UnsupportedOpError(TraceError):
    """The function calls an op that has no registered rule."""


class TorchInsideError(TraceError):
    """A function that is traced as numpy's computes with torch."""


class EagerWarning(UserWarning):
    """A torch function that cannot be traced runs as it is, under torch's own autograd."""


class OpaqueOpWarning(UserWarning):
    """An op without a rule runs under torch's own autograd."""


class RetraceWarning(UserWarning):
    """A function is traced again and again, for each value of a number its code reads."""


class AuditWarning(UserWarning):
    """A call that `differentiate(..., audit=...)` has checked differs from eager."""


class DataDependentError(TraceError):
    """A Python branch or number depends on the value of a tensor."""


class DataDependentShapeError(DataDependentError):
    """The shape of a result depends on the value of a tensor."""


class PathLimitError(DataDependentError):
    """The function took another path by value at too many calls: why it runs eagerly in torch."""


class FreeTensorError(TraceError):
    """A tensor that is no argument has no origin that can be re-read at the next call."""


class LeafMutationError(TraceError, RuntimeError):
    """A leaf that requires grad is changed in place (RuntimeError, as in eager torch)."""


class CustomRuleError(TraceError, RuntimeError):
    """A rule of the user's own gives gradients that do not fit (RuntimeError, as in torch)."""


class InputError(GradofError, ValueError):
    """The arguments of a call are wrong."""


class CallError(InputError, TypeError):
    """The arguments do not fit the signature of the function (TypeError, as Python raises)."""


class ArgnumsError(InputError):
    """`argnums` is out of range, repeated, or not an int or a tuple of ints."""


class LeafTypeError(InputError, TypeError):
    """A leaf of the arguments is not an array, or not one that can be differentiated."""


class ShapeError(InputError, RuntimeError):
    """Shapes do not fit (a ValueError, as numpy raises, and a RuntimeError, as torch does)."""


class DtypeError(InputError, TypeError):
    """Dtypes do not fit, or an integer stands where a float is due."""


class DeviceError(InputError):
    """A device that no backend serves, or two devices in one op."""


class CotangentError(InputError):
    """Cotangents that do not match the outputs in number, shape or dtype."""


class OutputError(InputError, TypeError):
    """What the function returned cannot be differentiated."""


class IRError(GradofError):
    """A malformed graph."""


class ParseError(IRError):
    """Text that is not IR. `line` and `column` are 1-based."""

    def __init__(
        self, message: str, *, line: int, column: int, source: str = "<text>",
        hint: str | None = None,
    ) -> None:
        self.line = line
        self.column = column
        super().__init__(message, loc=f"{source}:{line}:{column}", hint=hint)


class VerifyError(IRError):
    """A graph that breaks an invariant of the IR."""


class InferenceError(IRError):
    """Operands or attributes for which an op has no result type."""


class OpDefinitionError(GradofError):
    """A wrong `op(...)` statement; raised at import."""


class DifferentiationError(GradofError):
    """A graph that cannot be differentiated."""


class CodegenError(GradofError):
    """A graph that cannot be emitted."""


class ConfigError(GradofError):
    """A setting, such as an environment variable, that has no valid value."""


class TargetError(GradofError):
    """The command line cannot load the function, the arguments or the pass it was asked for."""


class GradientMismatchError(GradofError, AssertionError):
    """The harness found a wrong number."""


class TextCheckError(GradofError, AssertionError):
    """A printed graph does not hold what a test expects of it."""
