"""All adaptors of aten's ops: they register themselves where they are imported."""

from gradof.tracer.aten import (  # noqa: F401
    activation,
    backward,
    complex,
    decomposition,
    elementwise,
    factory,
    index,
    library_calls,
    linalg,
    loss,
    matrix,
    norm,
    random,
    recurrent,
    reduction,
    resample,
    resample_backward,
    shape,
    special,
)
