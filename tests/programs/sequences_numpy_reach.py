"""Programs of numpy's: however a function is reached. Each defines f(x), x of three numbers."""

PROGRAMS = r"""
--- import inside
def f(x):
    from scipy.special import logsumexp
    return logsumexp(x)
--- import numpy inside
def f(x):
    import numpy as npx
    b = npx.zeros(3); b[0] = x[1]
    return npx.sum(b * x)
--- import from numpy inside
def f(x):
    from numpy import array, concatenate, exp
    return np.sum(array([x[0], exp(x[1])])) + concatenate([[x[0]], [1.0, x[2]]]).prod()
--- import of a submodule inside
def f(x):
    import numpy.linalg as la
    from numpy.linalg import det, norm
    a = np.outer(x, x) + np.eye(3)
    return norm(x) + det(a) + la.inv(a)[0, 1] + la.solve(a, x)[0]
--- import of scipy inside
def f(x):
    import scipy.special as sp
    return sp.logsumexp(x) + sp.gammaln(x).sum() + sp.softmax(x)[1]
--- a default argument
def f(x, act=softmax): return np.sum(act(x) ** 2)
--- a default module
def f(x, xp=np):
    b = xp.zeros(3); b[1:] = x[:2]
    return xp.sum(b * x)
--- a keyword default
def f(x, *, make=np.array): return np.sum(make([x[0], x[1] * x[2]]))
--- static methods
class S:
    act = staticmethod(softmax)
    norm = staticmethod(np.linalg.norm)
    make = staticmethod(np.array)
def f(x): return np.sum(S.act(x) ** 2) + S.norm(x) * S.make([x[0], x[1]]).sum()
--- C functions of a class
class S:
    make = np.array
    sin = math.sin
def f(x):
    s = S()
    return s.make([x[0], x[1]]).sum() + s.sin(x[2])
--- attributes of an object
class S:
    def __init__(self): self.make, self.lse, self.xp = np.array, logsumexp, np
s = S()
def f(x): return s.lse(s.make([x[0], x[1]])) + s.xp.stack([x[0], x[1]]).prod()
--- a dict of functions
T = {"lse": logsumexp, "zeros": np.zeros, "more": (np.array, softmax)}
def f(x):
    b = T["zeros"](2); b[0] = x[0]
    return T["lse"](x) + np.sum(b ** 2) + T["more"][0]([x[0], x[1]]).sum() + T["more"][1](x)[0]
--- a dict of math
T = {"sin": math.sin, "exp": math.exp, "sq": lambda v: v * v}
def f(x): return T["sin"](x[0]) + T["exp"](x[1]) * T["sq"](x[2])
--- a list of functions
L = [np.sin, np.asarray, softmax, math.sqrt]
def f(x): return L[0](x).sum() + L[1]([x[0], x[1]]).prod() + L[2](x)[1] + L[3](x[2])
--- getattr
def f(x): return np.sum(getattr(np, "array")([x[0], x[1]]) ** 2) + getattr(np, "log")(x).sum()
--- getattr by a computed name
def f(x): return sum(getattr(np, n)(x).sum() for n in ("sin", "co" + "s", "tanh"))
--- a module in a closure
def make():
    xp = np
    def f(x):
        b = xp.empty(3); b[:] = x
        return xp.sum(b * b)
    return f
f = make()
--- functions in a closure
def make():
    z = np.zeros; a = np.array; lse = logsumexp
    def f(x):
        b = z(3); b[:] = x
        return np.sum(a([b[0], x[1]]) ** 2) + lse(x)
    return f
f = make()
--- partials
total = functools.partial(np.sum, axis=0)
soft = functools.partial(softmax, axis=0)
fill = functools.partial(np.full, 3)
def f(x): return total([x[0], x[1] * x[2]]) + soft(x)[0] + np.sum(fill(x[0]) * x)
--- partial inside
def f(x):
    g = functools.partial(np.multiply, 2.0)
    return np.sum(g(x)) + functools.partial(lambda a, b: a * b, x[0])(x[1])
--- operator
def f(x): return (operator.add(operator.mul(x[0], x[1]), operator.getitem(x, 2))
                  + operator.pow(x[0], 2) + operator.matmul(x, x) + operator.neg(x[0]))
--- itemgetter and attrgetter
def f(x): return operator.itemgetter(1)(x) * operator.attrgetter("T")(x)[0] + operator.methodcaller("sum")(x)
--- in-place operators
def f(x):
    y = x * 1.0
    y = operator.iadd(y, x); y = operator.imul(y, 2.0)
    return y.sum() * x[0]
--- math
def f(x): return (math.sin(x[0]) * math.exp(x[1]) + math.sqrt(x[2]) + math.log(x[0]) + math.pow(x[0], 3)
                  + math.hypot(x[0], x[1]) + math.atan2(x[0], x[1]) + math.pi)
--- math, special
def f(x): return (math.lgamma(x[0] + 2) + math.gamma(x[1] + 1) + math.erf(x[2]) + math.erfc(x[0])
                  + math.log1p(x[0]) + math.expm1(x[1]) + math.fabs(x[0]))
--- math, logarithms and angles
def f(x): return (math.log(x[0], 2) + math.log2(x[1]) + math.log10(x[2]) + math.degrees(x[0]) / 50
                  + math.radians(x[1]) + math.asin(x[0]) + math.acosh(x[1] + 1) + math.copysign(x[2], -1.0))
--- math, sums
def f(x): return (math.fsum([x[0], x[1] ** 2]) + math.prod([x[0], x[1]])
                  + math.dist([x[0], x[1]], [1.0, 2.0]) + math.fsum(x))
--- math from
from math import exp, sin as s
def f(x, c=math.cos): return exp(x[0]) * s(x[1]) * c(x[2])
--- math, decided
def f(x): return x[0] * math.floor(x[2] * 3) + (x[1] if math.isfinite(x[1]) else 0.0)
--- built-in sum
def f(x): return sum(x) + sum([v * v for v in x]) + sum((x[0], x[1]), 1.0)
--- built-in max and min
def f(x): return max(x) * min(x) + max(x[0], x[1]) + min(x[0], 2.0) + max(x, key=lambda v: -v)
--- built-in abs, pow and round
def f(x): return abs(x[0] - 1) + pow(x[0], 2) + round(x[1], 1) * x[2] + round(x[2] * 3) * x[0]
--- built-in divmod
def f(x): return divmod(x[2], 0.3)[1] * divmod(x[2], 0.3)[0]
--- sorted and reversed
def f(x): return sum(sorted(x)[:2]) + 2 * sorted(x, reverse=True)[0] + list(reversed(x))[0] ** 2
--- any and all
def f(x): return x[0] * any(v > 1 for v in x) + x[1] * all(v > 0 for v in x)
--- map and filter
def f(x): return sum(map(np.sin, x)) + np.sum(list(map(lambda v: v ** 2, x))) + sum(filter(lambda v: v > 0.5, x))
--- reduce
def f(x): return functools.reduce(operator.add, [v ** 2 for v in x]) + functools.reduce(np.add, list(x))
--- accumulate
def f(x): return sum(itertools.accumulate(x)) + list(itertools.accumulate(x, operator.mul))[-1]
--- starmap and chain
def f(x): return sum(itertools.starmap(operator.mul, zip(x, x[1:]))) + sum(itertools.chain(x, [x[0] ** 2]))
--- combinations
def f(x): return sum(a * b for a, b in itertools.combinations(x, 2))
--- np.vectorize
def f(x): return np.sum(np.vectorize(lambda a, b: a * b + 1)(x, x[::-1]))
--- np.vectorize as a decorator
@np.vectorize
def g(a): return a * a if a > 0.5 else a
def f(x): return np.sum(g(x))
--- np.vectorize with a signature
g = np.vectorize(lambda r: r @ r, signature="(n)->()")
def f(x): return np.sum(g(np.outer(x, x)) ** 2)
--- np.apply_along_axis
def f(x): return np.sum(np.apply_along_axis(lambda r: r / np.sum(r), 1, np.outer(x, x)) ** 2 * np.arange(3.0))
--- np.fromfunction
def f(x): return np.sum(np.fromfunction(lambda i: x[i] * i, (3,), dtype=int))
--- np.frompyfunc of numbers
def f(x): return np.sum(x * np.frompyfunc(lambda v: v + 1, 1, 1)(np.arange(3)).astype(float))
--- the array's namespace
def f(x):
    xp = x.__array_namespace__()
    return xp.sum(xp.asarray(x) ** 2) + xp.concat([x, x])[0] + xp.asarray([x[0], x[1]]).prod()
--- a helper with xp
def norm(x, xp): return xp.sqrt(xp.sum(xp.asarray(x) ** 2))
def f(x): return norm(x, np) * norm([x[0], x[1]], xp=np)
--- a helper by name
def helper(name): return {"l1": np.abs, "l2": np.square}[name]
def f(x): return np.sum(helper("l2")(x)) + np.sum(helper("l1")(x - 0.6))
--- a decorated function
def logged(fn):
    @functools.wraps(fn)
    def inner(*args): return fn(*args) * 1.0
    return inner
@logged
def f(x): return np.array([x[0], x[1]]).prod()
--- a callable object
class F:
    act = staticmethod(logsumexp)
    def __call__(self, x): return self.act(x) + np.array([x[0], x[2]]).sum()
f = F()
--- a bound method
class F:
    def __init__(self, xp): self.xp = xp
    def value(self, x): return self.xp.array([x[0], x[2]]).prod() + self.xp.linalg.norm(x)
f = F(np).value
--- a class method
class F:
    scale = 2.0
    @classmethod
    def value(cls, x): return cls.scale * np.stack([x[0], x[2]]).prod()
def f(x): return F.value(x)
--- a function made by a function
def power(n):
    def g(x): return np.power(x, n)
    return g
def f(x): return sum(power(n)(x).sum() for n in (1, 2, 3))
--- lambda tables
LAYERS = [lambda h: np.tanh(h), lambda h: softmax(h), lambda h: np.array([h[0], h[1]])]
def f(x):
    for layer in LAYERS: x = layer(x)
    return x.sum() + x[0] * x[1]
--- a generator
def terms(x):
    for i in range(3): yield x[i] * np.array([x[0], 1.0]).sum()
def f(x): return sum(terms(x))
--- a recursion
def power(x, n): return 1.0 if n == 0 else x * power(x, n - 1)
def f(x): return power(x[0], 3) + power(x[1], 2)
--- a dataclass
@dataclasses.dataclass
class P:
    a: object
    b: object
def f(x):
    p = P(x[0], x[1:])
    return p.a * np.sum(p.b) + dataclasses.replace(p, a=x[2]).a
--- a named tuple
P = collections.namedtuple("P", "a b")
def f(x):
    p = P(*x[:2])
    return p.a * p.b + p._replace(a=x[2]).a
--- operators of lists
def f(x): return np.sum(np.array([x[0]] * 3 + [x[1]]) ** 2)
--- isinstance
def f(x):
    assert isinstance(x, np.ndarray) and isinstance(x[0], float) and isinstance(x[0], np.floating)
    assert not isinstance(x[0], np.ndarray) and np.isscalar(x[0])
    return x[0] ** 2 if isinstance(x[0], (int, float)) else x[0]
--- singledispatch
@functools.singledispatch
def size(v): return 0.0
@size.register
def _(v: np.ndarray): return np.sum(v ** 2)
@size.register
def _(v: float): return v
def f(x): return size(x) + size(x[0]) * size("no")
--- match
def f(x):
    match x.shape:
        case (3,): return x.sum() * x[0]
        case _: return x[0]
--- try
def f(x):
    try:
        return np.linalg.cholesky(np.outer(x, x) - np.eye(3))[0, 0]
    except np.linalg.LinAlgError:
        return x.sum() ** 2
--- getitem by a string
def f(x):
    d = dict(zip("abc", x))
    return d["a"] * d["b"] + d.get("c", 0.0)
--- texts of values
def f(x):
    s = f"{np.sum(x):.3f} {x} {x[0]!r}"
    return np.sum(x) * len(s[:1])
--- item and tolist
def f(x): return x[0].item() * 2 + x.item(1) * x.item(2) + sum(v * v for v in x.tolist())
--- methods of plain arrays
X = np.arange(9.0).reshape(3, 3)
def f(x):
    w = X * 2.0
    return X.dot(x).sum() + w.dot(x)[0] + X[0].dot(x) + (X @ x)[1]
--- the model's data
class Model:
    def __init__(self): self.X, self.y = np.arange(9.0).reshape(3, 3), np.ones(3)
    def loss(self, w): return np.sum((self.X @ w - self.y) ** 2) + np.mean(self.X.T @ w)
f = Model().loss
"""
