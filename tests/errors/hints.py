"""Each hint of the numpy and scipy tracers: a program that is told it, and one that follows it.

Both are a function `f(x)` of three numbers; the second is what the hint asks for.
"""

from __future__ import annotations

PAIRS = '''
--- draw them outside and pass them as an argument
RNG = np.random.default_rng(0)
def f(x):
    return np.sum(x * RNG.spawn(1)[0].random(3))
---- followed
RNG = np.random.default_rng(0)
NOISE = RNG.spawn(1)[0].random(3)
def f(x, noise=NOISE):
    return np.sum(x * noise)
--- pass them by position, or write a lambda around the function
def f(x):
    return np.sum(np.vectorize(lambda a, b: a * b)(a=x, b=2.0))
---- followed
def f(x):
    return np.sum(np.vectorize(lambda a, b: a * b)(x, 2.0))
--- use np.random.shuffle
def f(x):
    import random

    y = np.stack([x, x * 2])
    random.shuffle(y)
    return np.sum(y[0] * y[1])
---- followed
def f(x):
    y = np.stack([x, x * 2])
    np.random.shuffle(y)
    return np.sum(y[0] * y[1])
--- take another array: x = x.reshape(shape)
def f(x):
    x.shape = (3, 1)
    return np.sum(x)
---- followed
def f(x):
    x = x.reshape((3, 1))
    return np.sum(x)
--- take it of an array without gaps
def f(x):
    return np.sum(np.lib.stride_tricks.as_strided(x, (2, 3), (8, 8)))
---- followed
def f(x):
    return np.sum(np.lib.stride_tricks.as_strided(x, (2, 2), (8, 8)))
--- write to the array
def f(x):
    y = x * 2
    np.lib.stride_tricks.as_strided(y, (2, 2), (8, 8))[:] = x[0]
    return np.sum(y)
---- followed
def f(x):
    y = x * 2
    y[:] = x[0]
    return np.sum(y)
--- ask for c_contiguous, f_contiguous or writeable
def f(x):
    return np.sum(x) * x.flags.owndata
---- followed
def f(x):
    return np.sum(x) * x.flags.c_contiguous
--- use np.concatenate
def f(x):
    return np.sum(np.r_["r", x, x])
---- followed
def f(x):
    return np.sum(np.concatenate([x, x]))
--- code in C cannot be traced
import scipy.signal
def f(x):
    return np.sum(scipy.signal.symiirorder2(x, 0.5, 0.3))
---- followed
import gradof
double = gradof.primitive(lambda v: 2.0 * v, vjp=lambda g, y, v: 2.0 * g)
def f(x):
    return np.sum(double(x))
--- use splu: its factor is exact
import scipy.sparse
import scipy.sparse.linalg
def f(x):
    return np.sum(scipy.sparse.linalg.spilu(scipy.sparse.diags_array(x, format="csc")).solve(x))
---- followed
import scipy.sparse
import scipy.sparse.linalg
def f(x):
    return np.sum(scipy.sparse.linalg.splu(scipy.sparse.diags_array(x * x, format="csc")).solve(x))
--- pickle the results of the compiled function
import pickle
def f(x):
    return np.sum(pickle.loads(pickle.dumps(x)))
---- followed
def f(x):
    return np.sum(x)
--- rewrite it with functions of numpy
def f(x):
    return np.sum(x.byteswap())
---- followed
def f(x):
    return np.sum(np.sin(x))
--- convert the values instead: x.astype(dtype)
def f(x):
    return np.sum(x.view(np.int64)) * x[0]
---- followed
def f(x):
    return np.sum(x.astype(np.int64)) * x[0]
--- write it with functions of numpy
import math
def f(x):
    return math.nextafter(x[0], x[1]) * x[2]
---- followed
def f(x):
    return np.nextafter(x[0], x[1]) * x[2]
--- give it one, or leave it out
def f(x):
    np.random.seed()
    return np.sum(x) + np.random.rand()
---- followed
def f(x):
    np.random.seed(3)
    return np.sum(x) + np.random.rand()
--- give it a seed, or make the generator outside
def f(x):
    return np.sum(x) + np.random.Generator(np.random.PCG64()).normal()
---- followed
def f(x):
    return np.sum(x) + np.random.Generator(np.random.PCG64(3)).normal()
--- put it back within the function, or take it outside
def f(x):
    return np.sum(x) * np.random.get_state()[2]
---- followed
def f(x):
    state = np.random.get_state()
    y = np.sum(x) * np.random.rand()
    np.random.set_state(state)
    return y
--- rewrite it with functions that have an adaptor
def f(x):
    return np.packbits(x > 1.0)[0] * np.sum(x)
---- followed
def f(x, bits=np.packbits([True, False, True])):
    return np.sum(x) * bits[0]
--- write into its array
def f(x):
    y = np.sin(x)
    np.lib.stride_tricks.sliding_window_view(y, 2, writeable=True)[0, 0] = 1.0
    return np.sum(y)
---- followed
def f(x):
    y = np.sin(x)
    y[0] = 1.0
    return np.sum(y)
--- real numbers of up to 64 bits
def f(x):
    return np.sum(x.astype(np.longdouble))
---- followed
def f(x):
    return np.sum(x.astype(np.float64))
--- reshape, transpose or broadcast the operands
def f(x):
    return np.sum(np.outer(x, x[:2]) + x[:2, None])
---- followed
def f(x):
    return np.sum(np.outer(x, x[:2]) + x[None, :2])
--- only plain numpy arrays can be traced
M = np.ma.masked_array([1.0, 2.0, 3.0], [False, False, True])
def f(x):
    return np.sum(x + M)
---- followed
M = np.ma.masked_array([1.0, 2.0, 3.0], [False, False, True])
def f(x):
    return np.sum(x + np.asarray(M))
--- only numbers and booleans can be traced
def f(x):
    return np.sum(np.where(np.array(["a", "", "c"]), x, 0.0))
---- followed
def f(x):
    return np.sum(np.where(np.array(["a", "", "c"]) != "", x, 0.0))
--- take it outside, and pass it as an argument
STEPS = iter([0.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
def f(x):
    return np.sum(x) * next(STEPS)
---- followed
STEPS = iter([0.5, 2.0])
def f(x, step=next(STEPS)):
    return np.sum(x) * step
--- write the powers out
def f(x):
    return np.power.reduce(x)
---- followed
def f(x):
    return (x[0] ** x[1]) ** x[2]
--- it would be recorded one by one
def f(x):
    return np.hypot.accumulate(np.tile(x, 300))[-1]
---- followed
def f(x):
    return np.sqrt(np.cumsum(np.tile(x, 300) ** 2))[-1]
--- use np.where(mask, result, other)
def f(x):
    return np.sum(np.exp(x, where=x > 1.0))
---- followed
def f(x):
    return np.sum(np.where(x > 1.0, np.exp(x), 0.0))
--- convert the array first: a.astype(float)
def f(x):
    y = (x > 1.0).astype(int)
    y += x
    return np.sum(y)
---- followed
def f(x):
    y = (x > 1.0).astype(float)
    y += x
    return np.sum(y)
--- x is a number already
def f(x):
    return (complex,)[0](x[0]).real * x[1]
---- followed
def f(x):
    return (x[0] + 0j).real * x[1]
--- ask for x.any(), x.all() or x.size
def f(x):
    return np.sum(x) if x > 1.0 else np.sum(x ** 2)
---- followed
def f(x):
    return np.sum(x) if (x > 1.0).any() else np.sum(x ** 2)
--- write into an array that is the function's own
PLAIN = np.zeros(3)
def f(x):
    a = b = np.arange(3) * 1.0
    b[0] = x[0]
    return np.sum(a)
---- followed
def f(x):
    a = np.zeros(3)
    a[0] = x[0]
    return np.sum(a)
--- pass it as an argument
SEEN = np.zeros(200_000)
def f(x):
    SEEN[...] += 1.0
    return np.sum(x)
---- followed
def f(x, seen=0.0):
    return np.sum(x) + seen
--- docs/coverage.md lists the functions of scipy that have derivatives
import scipy.linalg
def f(x):
    return np.sum(scipy.linalg.svd(np.outer(x, x), lapack_driver="gesvd")[1])
---- followed
import scipy.linalg
def f(x):
    return np.sum(scipy.linalg.svdvals(np.outer(x, x) + np.eye(3)))
--- x and fun have, and gradof.hessian
import scipy.optimize
def f(x):
    found = scipy.optimize.minimize(lambda v: np.sum((v - x) ** 2), np.zeros(3))
    return np.sum(found.hess_inv)
---- followed
import gradof, scipy.optimize
def f(x):
    cost = lambda v: np.sum((v - x) ** 2 + v ** 4)
    slope = lambda v: 2 * (v - x) + 4 * v ** 3
    found = scipy.optimize.minimize(cost, np.zeros(3), jac=slope, tol=1e-12)
    return np.sum(np.linalg.inv(gradof.hessian(cost)(found.x)))
--- leave out parameters that do the same
import scipy.optimize
def f(x):
    return np.sum(scipy.optimize.least_squares(lambda p: (p[0] + p[1]) * x, [1.0, 1.0]).x)
---- followed
import scipy.optimize
def f(x):
    return np.sum(scipy.optimize.least_squares(lambda p: p[0] * x - x ** 2, [1.0]).x)
--- clip the argument to -1/e
import scipy.special
def f(x):
    return np.sum(scipy.special.lambertw(x - 1.5).real)
---- followed
import scipy.special
def f(x):
    return np.sum(scipy.special.lambertw(np.maximum(x - 1.5, -0.3)).real)
--- solve real and imaginary parts
import scipy.sparse.linalg as sl, scipy.sparse as sp
LU = sl.splu(sp.csc_matrix(np.diag([2.0, 3.0, 4.0])))
def f(x):
    return np.sum(np.abs(LU.solve(x * (1 + 2j))))
---- followed
import scipy.sparse.linalg as sl, scipy.sparse as sp
LU = sl.splu(sp.csc_matrix(np.diag([2.0, 3.0, 4.0])))
def f(x):
    return np.sum(np.hypot(LU.solve(x * 1.0), LU.solve(x * 2.0)))
'''

# Hints of errors that the programs above cannot raise: by what the error is about.
NO_PROGRAM = {
    "return arrays or numbers, or a nest of them": "a primitive's result: test_primitive.py",
    "return the same structure for arguments": "a primitive's result: test_primitive.py",
    "use np.where, so that the rule": "a primitive's rule: test_primitive.py",
    "let it return gradients, and nothing else": "a primitive's rule: test_primitive.py",
    "return zeros, and not None": "a rule, at a later call: test_opened_primitives.py",
    "give dtype only": "keywords that numpy.array has had since: test_numpy_errors.py",
    "return it from the function that made it": "an array after its trace: test_numpy_errors.py",
    "a traced function must not leave": "an array after its trace: test_numpy_errors.py",
    "please report this line": "a wrong record of ours",
    "pass a copy of one of them": "two arguments of one memory: test_mutation.py",
    "pass a copy of it": "elements of one memory: test_argument_strides.py",
    "convert it: a.astype(np.float64)": "an argument: bad_calls.py",
    "give an array (x.numpy())": "a result of torch's: test_torch_in_numpy.py",
    "return it instead": "a global that a trace is left in: bad_functions.py",
    "rewrite it with supported functions": "where nothing else is said",
    "`gradof ops` lists the supported ops": "ufuncs that are in no library",
    "change a copy of it": "a data frame, which pandas makes: test_frames.py",
    "take another method, as Radau": "an equation that scipy gives up: test_scipy_integrals.py",
}
