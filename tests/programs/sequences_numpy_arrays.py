"""Programs of numpy's: arrays as people build them. Each defines f(x), x of three numbers."""

PROGRAMS = r"""
--- np.array of an array
base = np.arange(3.0)
def f(x):
    b = np.array(base); b[0] = x[0]
    return np.sum(b * x)
--- np.copy
base = np.arange(3.0)
def f(x):
    b = np.copy(base); b[1] = x[0]
    return np.sum(b * x)
--- the method copy
base = np.arange(3.0)
def f(x):
    b = base.copy(); b[1] = x[0]
    return np.sum(b * x)
--- a product
base = np.arange(3.0)
def f(x):
    b = base * 1.0; b[1] = x[0]
    return np.sum(b * x)
--- a slice of a product
base = np.arange(6.0)
def f(x):
    b = (base * 2.0)[::2]; b[1] = x[0]
    return np.sum(b * x)
--- arange
def f(x):
    b = np.arange(3.0); b[1] = x[0]
    return np.sum(b * x)
--- linspace
def f(x):
    b = np.linspace(0, 1, 3)
    b[1] += x[0]
    return np.sum(b * x)
--- a list of numbers
def f(x):
    b = np.array([0.0, 1.0, 2.0]); b[1] = x[0]; b += x
    return np.sum(b * x)
--- nested numbers
def f(x):
    b = np.array([[0.0, 1.0], [2.0, 3.0]]); b[0] = x[:2]; b[:, 1] *= x[2]
    return np.linalg.det(b)
--- diag
def f(x):
    a = np.diag(np.ones(3)); a[0, 1] = x[0]; a[[1, 2], [0, 0]] = x[1:]
    return np.linalg.det(a)
--- an outer product
def f(x):
    a = np.ones((3, 1)) * np.arange(3.0); a[0] = x; a[:, 1] += x
    return np.sum(a ** 2)
--- tile and repeat
def f(x):
    a = np.tile(0.0, (2, 3)); a[0] = x; b = np.repeat(0.0, 3); b[0] = x[0]
    return np.sum(a) + np.sum(b * x)
--- reshape
def f(x):
    c = np.reshape(np.arange(6.0), (2, 3)); c[1] = x
    return np.sum(c ** 2)
--- concatenate
def f(x):
    d = np.concatenate([np.zeros(2), np.ones(2)]); d[1] = x[1]
    return np.sum(d ** 2 * np.arange(4.0))
--- random numbers of a seed
def f(x):
    w = np.random.default_rng(0).normal(size=3); w[0] = x[0]
    return np.sum(w * x)
--- a loop that fills
def f(x):
    b = base * 0.0
    for i in range(3): b[i] = x[i] ** 2 + (b[i - 1] if i else 0.0)
    return b[-1]
base = np.ones(3)
--- a while loop that fills
def f(x):
    b, i = 1.0 * np.ones(3), 0
    while i < 3:
        b[i] = x[i] * b[i]; i += 1
    return np.prod(b)
--- a helper that fills
def fill(out, x):
    for i in range(3): out[i] = x[i] ** 2
def f(x):
    b = 0.0 * np.ones(3)
    fill(b, x)
    return np.sum(b * x)
--- a helper that makes and fills
def rows(x):
    out = np.full((2, 3), 1.0) * 2
    out[0] = x
    return out
def f(x): return np.sum(rows(x) * rows(x * 2))
--- a helper two calls down
def set_one(a, i, v): a[i] = v
def fill(out, x):
    for i in range(3): set_one(out, i, x[i])
def f(x):
    b = np.ones(3) + 1
    fill(b, x)
    return np.sum(b ** 2)
--- arrays in a list
def f(x):
    layers = [np.ones(2) * k for k in range(3)]
    for i in range(3): layers[i][0] = x[i]
    return sum(np.prod(l + 1) for l in layers)
--- arrays in a dict
def f(x):
    d = {"a": np.ones(3) * 2.0, "b": np.arange(3) * 1.0}
    d["a"][1] = x[0]; d["b"][:2] = x[1:]
    return np.sum(d["a"] * d["b"])
--- an array of an object
class S:
    def __init__(self): self.m = np.eye(3) * 2.0
    def step(self, x): self.m[0] = x; return self.m
def f(x): return np.linalg.det(S().step(x))
--- out=
def f(x):
    b = np.linspace(0, 1, 3); np.multiply(x, 2, out=b); np.exp(x, out=b)
    return b.sum()
--- in-place operators
def f(x):
    b = np.linspace(0, 1, 3)
    b += x; b *= 2; b -= x ** 2; b /= 3
    return np.sum(b ** 2)
--- in-place of a slice
def f(x):
    b = np.linspace(0, 1, 4)
    b[1:] += x; b[::2] *= x[0]
    return np.sum(b ** 2)
--- masks
def f(x):
    b = np.linspace(0, 1, 3); m = np.array([True, False, True]); b[m] = x[m] * 2; b[~m] = x[0]
    return np.sum(b * x)
--- masks of values
def f(x):
    b = x * 1.0; b[x > 0.6] *= 2; b[b < 0.5] = x[0] ** 2
    return np.sum(b ** 2)
--- putmask and place
def f(x):
    b = np.linspace(0, 1, 3); m = np.array([True, False, True])
    np.putmask(b, m, x); np.place(b, ~m, x[:1])
    return np.sum(b * x)
--- copyto
def f(x):
    b = np.array([1.0, 2.0, 3.0]); np.copyto(b, x, where=b > 1.5)
    return np.sum(b * x)
--- put and fill_diagonal
def f(x):
    a = np.ones((3, 3)) * 2; np.fill_diagonal(a, x[0]); np.put(a, [1, 2], x[1:])
    return np.linalg.det(a)
--- np.add.at
def f(x):
    b = np.linspace(0, 1, 3); np.add.at(b, [0, 0, 2], x)
    return np.sum(b ** 2)
--- fill
def f(x):
    b = np.linspace(0, 1, 3)
    b.fill(x[0]); b[0] = x[1]
    return np.sum(b * x)
--- index arrays
def f(x):
    b = np.array([0.0, 0.0]); i = np.array([1, 0]); b[i] = x[:2]; j = np.arange(2)
    return np.sum(b[j] * x[j + 1])
--- complex buffers
def f(x):
    b = np.zeros(3, complex); b[0] = x[0] + 1j * x[1]; b[1] = x[2]
    return np.sum(np.abs(b) ** 2)
--- views
def f(x):
    b = np.zeros((2, 3)); r = b[0]; r[:] = x; r[0] *= 2; c = b.T; c[1] += x[0]
    return np.sum(b ** 2)
--- views of a copy
base = np.arange(6.0).reshape(2, 3)
def f(x):
    b = base.copy(); b[0][1] = x[0]; b.T[2] = x[1]
    return np.sum(b ** 2)
--- an identity
def f(x):
    a = np.identity(3) + 0.0; a[0] = x; a[np.triu_indices(3, 1)] = x
    return np.linalg.det(a)
--- concatenated lists
def f(x): return np.sum(np.concatenate([[x[0], x[1]], [x[1], 1.0]]) ** 2)
--- a plain array by a list
def f(x): return np.sum(np.arange(3.0) * [x[0], 2.0, x[1]])
--- an array by a list
def f(x): return np.sum(x * [x[0], 2.0, x[1]]) + np.sum([x[0], 1.0] + np.ones(2))
--- a determinant of lists
def f(x): return np.linalg.det([[x[0], x[1]], [1.0, x[2]]])
--- a trace of lists
def f(x): return np.trace(np.array([[x[0], 0], [0, x[1]]]) ** 2)
--- a product of lists
def f(x): return np.sum(np.dot([[x[0], x[1]], [1.0, x[2]]], [1.0, x[0]]))
--- stacked lists
def f(x): return np.sum(np.vstack([[x[0], 1.0], [2.0, x[1]]]) ** 2) + np.sum(np.hstack([x[0], x[1]]) ** 2)
--- reductions of lists
def f(x): return (np.prod([x[0], x[1]]) + np.mean([x[0], x[1], 3]) + np.max([x[0], x[1]])
                  + np.cumsum([x[0], x[1]])[-1] + np.var([x[0], x[1]]) + np.median([x[0], x[2], 1.0]))
--- choices of lists
def f(x): return np.sum(np.where([True, False], [x[0], x[1]], 0.0)) + np.sum(np.select([x > 0.5], [x ** 2], 0.0))
--- ufuncs of lists
def f(x): return (np.exp([x[0], x[1]]).sum() + np.maximum([x[0], x[1]], 0.6).sum() + np.hypot([x[0], 1.0], x[2]).sum()
                  + np.add.reduce([x[0], x[1]]) + np.multiply.outer([x[0], 1.0], [2.0, x[1]]).sum())
--- algebra of lists
def f(x): return (np.linalg.solve([[x[0], 1.0], [1.0, 3.0]], [x[1], 2.0]).sum()
                  + np.linalg.inv([[x[0], 1.0], [1.0, 3.0]])[0, 0] + np.linalg.norm([x[0], x[1]]))
--- products of lists
def f(x): return (np.outer([x[0], 1.0], [x[1], 2.0]).sum() + np.cross([x[0], x[1], 1.0], [1.0, 2.0, 3.0]).sum()
                  + np.kron([x[0], 1.0], [1.0, x[1]]).sum() + np.inner([x[0], x[1]], [x[1], 1.0]))
--- einsum of lists
def f(x): return np.einsum("i,i", [x[0], x[1]], [2.0, x[2]]) + np.tensordot([x[0], x[1]], [x[1], 1.0], 1)
--- interp, polyval, convolve
def f(x): return (np.interp(x[0], [0.0, 1.0], [x[1], x[2]]) + np.polyval([x[0], x[1], 1.0], 2.0)
                  + np.sum(np.convolve([x[0], 1.0], [1.0, x[1]]) ** 2) + np.trapezoid([x[0], x[1], x[2]]))
--- column_stack and append
def f(x): return (np.sum(np.column_stack(([x[0], x[1]], [1.0, x[2]])) ** 2) + np.sum(np.append([x[0]], [x[1], 2.0]))
                  + np.sum(np.atleast_1d([x[0]])) + np.sum(np.array([x, x * 2]).T @ [1.0, x[0]]))
--- block and diag
def f(x): return np.block([[np.eye(2), np.ones((2, 1)) * x[0]]]).sum() + np.diag([x[0], x[1]]).prod() + np.diag([x[0], x[1]]).sum()
--- stack of lists and arrays
def f(x): return np.sum(np.stack([x[:2], [x[2], 1.0]]) ** 2) + np.sum(np.array([x[:2], [1.0, x[0]]]))
--- r_ and c_
def f(x): return np.sum(np.r_[x[0], 1.0, x[1:]] ** 2) + np.sum(np.c_[x, x] * np.arange(2.0))
--- zip
def f(x):
    out = []
    for a, b in zip(x, x[1:]): out.append([a * b, a + b])
    return np.sum(np.array(out) ** 2)
--- comprehensions
def f(x): return np.sum(np.asarray([v ** 2 for v in x if v > 0.5])) + np.array([[a * b for a in x] for b in x])[0, 2]
--- an object array
def f(x):
    o = np.empty(3, dtype=object)
    for i in range(3): o[i] = x[i] * i
    return np.sum(o) + o[1]
--- enumerate and unpack
def f(x):
    t = 0.0
    for i, v in enumerate(x): t += i * v
    a, b, c = x
    first, *rest = x
    return t + a * b - c + first * rest[1] + [*x][0]
--- a list that is written
def f(x):
    l = [0.0] * 3
    for i in range(3): l[i] = x[i] ** 2
    return np.sum(l) + sum(l)
--- nested lists that are written
def f(x):
    m = [[0.0] * 2 for _ in range(2)]
    m[0][1] = x[0]; m[1][0] = x[1]; m[1][1] = x[2] ** 2
    return np.linalg.det(m) + np.sum(np.array(m) ** 2)
--- fromiter
def f(x): return np.sum(np.fromiter((v * v for v in x), float))
--- ndenumerate, flat, ndindex
def f(x):
    t = 0.0
    for i, v in np.ndenumerate(x): t += v * i[0]
    for v in x.flat: t += v ** 2
    for i in np.ndindex(3): t += x[i]
    return t
--- 0-d sums along an axis
def f(x): return np.sum(x[0], axis=0) + np.sum(x[1], axis=-1) * np.prod(x[2], axis=0)
--- 0-d extremes along an axis
def f(x): return np.max(x[0], axis=-1) * np.min(x[1], axis=0) + np.any(x[0] > 0, axis=0) * x[2]
--- asarray of scalars
def f(x): return np.asarray(x[0]) * np.float64(2) + np.array(x[1])[()] + np.atleast_1d(x[2])[0]
--- float32 beside doubles
def f(x): return np.sum(np.arange(3, dtype=np.float32) * x) + np.float32(2.0) * x[0]
--- meshgrid and ix_
def f(x): return np.sum(np.meshgrid(x, x)[0] ** 2) + np.outer(x, x)[np.ix_([0, 2], [1])].sum()
--- piecewise and choose
def f(x): return np.sum(np.piecewise(x, [x < 0.5], [lambda v: v ** 2, lambda v: v])) + np.choose([0, 1, 0], [x, x ** 2]).sum()
--- a matrix of derivatives
def f(x):
    n = 3
    A = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            A[i, j] = x[i] * x[j] if i != j else 2.0 + x[i]
    return np.linalg.slogdet(A)[1]
--- a recurrence
def f(x):
    h = np.zeros(5); h[0] = x[0]
    for t in range(1, 5): h[t] = np.tanh(x[1] * h[t - 1] + x[2])
    return h[-1]
--- a plain copy inside a loop
base = np.ones(3)
def f(x):
    total = 0.0
    for k in range(4):
        b = base.copy(); b[k % 3] = x[k % 3] * k
        total += np.sum(b ** 2)
    return total
--- np.where of lists in a loop
def f(x): return sum(np.where(v > 0.6, v, v ** 2) for v in x)
--- swapped items
def f(x):
    b = np.linspace(0, 1, 3); b[0], b[1] = x[1], x[0]
    return np.sum(b * np.arange(3.0))
--- sort and argsort
def f(x):
    i = np.argsort(-x)
    b = np.empty(3) * 0.0 + 1.0; b[i] = x
    return np.sum(np.sort(x) * b)
--- a ring buffer
def f(x):
    b = np.zeros(3) + 0.5
    for k in range(5):
        b = np.roll(b, 1); b[0] = x[k % 3] * b[1]
    return b.sum()
"""
