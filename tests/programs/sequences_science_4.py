"""Programs of scientists' notebooks, as strangers write them: what Python has, around the numbers.

Each is a function `f(x)` of three numbers with a scalar result. `change()`, where there is one,
changes what the program reads, as the next cell of a notebook does.
"""

from __future__ import annotations

PROGRAMS = """
--- a neural network of layers with caches
import numpy as np
np.random.seed(0)
class Layer:
    def __init__(self, n_in, n_out, act):
        self.W = np.random.randn(n_in, n_out) * np.sqrt(2.0 / n_in)
        self.b = np.zeros((1, n_out))
        self.act = act
        self.cache = {}
    def __call__(self, h):
        self.cache['in'] = h
        self.cache['z'] = h @ self.W + self.b
        return self.act(self.cache['z'])
relu = lambda z: np.maximum(0, z)
sigmoid = lambda z: 1.0 / (1.0 + np.exp(-z))
net = [Layer(3, 8, relu), Layer(8, 8, np.tanh), Layer(8, 2, lambda z: z)]
def softmax(z):
    e = np.exp(z - np.max(z, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)
def f(x):
    h = np.vstack([x, x[::-1], x ** 2])
    for layer in net:
        h = layer(h)
    probs = softmax(h)
    labels = np.array([0, 1, 1])
    loss = -np.log(probs[range(3), labels]).mean()
    reg = sum(np.sum(l.W ** 2) for l in net)
    return loss + 1e-3 * reg
def change():
    net[0].W[0] *= -1
    net[1].act = sigmoid
--- backpropagation by hand, one step of it
import numpy as np
rng = np.random.default_rng(0)
Xb, Yb = rng.normal(size=(6, 3)), rng.normal(size=(6, 1))
params = {'W1': rng.normal(size=(3, 4)), 'b1': np.zeros(4), 'W2': rng.normal(size=(4, 1)), 'b2': np.zeros(1)}
def forward(p, X):
    z1 = X.dot(p['W1']) + p['b1']
    a1 = 1 / (1 + np.exp(-z1))
    return a1.dot(p['W2']) + p['b2'], (a1,)
def backward(p, X, Y, out, cache):
    (a1,) = cache
    d = 2 * (out - Y) / len(X)
    grads = {}
    grads['W2'] = a1.T.dot(d)
    grads['b2'] = d.sum(axis=0)
    dz = d.dot(p['W2'].T) * a1 * (1 - a1)
    grads['W1'], grads['b1'] = X.T.dot(dz), dz.sum(0)
    return grads
def f(x):
    p = {k: v.copy() for k, v in params.items()}
    p['W1'] *= x[0]
    for _ in range(3):
        out, cache = forward(p, Xb)
        g = backward(p, Xb, Yb, out, cache)
        for k in p:
            p[k] -= x[1] * 0.1 * (g[k] + x[2] * p[k])
    return np.mean((forward(p, Xb)[0] - Yb) ** 2)
def change():
    params['W1'] = params['W1'] + 0.1
--- adam with state of its own
import numpy as np
class Adam:
    def __init__(self, lr=0.1, betas=(0.9, 0.999), eps=1e-8):
        self.lr, (self.b1, self.b2), self.eps = lr, betas, eps
        self.m = self.v = 0
        self.t = 0
    def step(self, p, g):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g ** 2
        mhat, vhat = self.m / (1 - self.b1 ** self.t), self.v / (1 - self.b2 ** self.t)
        return p - self.lr * mhat / (np.sqrt(vhat) + self.eps)
def f(x):
    opt = Adam(lr=0.05 * x[2])
    p = np.array([x[0], x[1]])
    for i in range(15):
        g = np.array([2 * p[0] + p[1], p[0] + 4 * p[1] ** 3])
        p = opt.step(p, g)
    return p[0] ** 2 + p[0] * p[1] + p[1] ** 4
--- an lstm cell by slices
import numpy as np
rs = np.random.RandomState(4)
D, H = 2, 3
Wx, Wh, bias = rs.randn(D, 4 * H), rs.randn(H, 4 * H), rs.randn(4 * H)
seq = rs.randn(5, D)
def f(x):
    h, c = x.copy(), np.zeros(H)
    outs = []
    for xt in seq:
        a = xt @ Wx + h @ Wh + bias
        i, fg, o, g = [a[k * H:(k + 1) * H] for k in range(4)]
        i, fg, o = 1 / (1 + np.exp(-i)), 1 / (1 + np.exp(-fg)), 1 / (1 + np.exp(-o))
        c = fg * c + i * np.tanh(g)
        h = o * np.tanh(c)
        outs.append(h)
    return np.stack(outs)[::2].sum() + c.max()
def change():
    seq[2] = 0.0
--- attention with einsum
import numpy as np
rs = np.random.RandomState(9)
Q, K, V = (rs.randn(2, 4, 3) for _ in range(3))
def f(x):
    q = Q * x
    scores = np.einsum('hid,hjd->hij', q, K) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(4, dtype=bool), scores, -1e9)
    w = np.exp(scores - scores.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    out = np.einsum('hij,hjd->ihd', w, V).reshape(4, -1)
    return np.einsum('ij,ij', out, out) + np.einsum('ii->', out[:, :4])
--- prints, warnings and errors
import numpy as np
import warnings
log = []
def f(x, verbose=True):
    with np.errstate(divide='ignore', invalid='ignore'):
        r = np.where(x > 0.5, np.log(x), np.nan)
    r = r[np.isfinite(r)]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        s = np.nansum(np.where(x > 0.5, np.sqrt(np.abs(x - 0.4)), np.nan))
    try:
        y = {'a': x[1]}['b']
    except KeyError as err:
        y = x[1] * 3
        log.append(f"missing {err}")
    finally:
        z = x[2]
    if verbose:
        print(f"|r| = {np.linalg.norm(r):.4f}, s = {s:8.3f}, {y}")
    assert r.ndim == 1, r.shape
    return np.sum(r) + s + y * z
--- progress every few steps
import numpy as np
history = {'loss': [], 'norm': []}
def f(x):
    w = x
    for epoch in range(9):
        loss = np.sum((w - 1) ** 2) + np.sum(w ** 4)
        w = w - 0.05 * (2 * (w - 1) + 4 * w ** 3)
        history['loss'].append(loss)
        if epoch % 3 == 0:
            history['norm'].append(float(np.linalg.norm(w)))
    best = np.min(history['loss'][-9:])
    return best + history['norm'][-1]
--- vectorize with a branch
import numpy as np
@np.vectorize
def flux(r, a, b):
    if r < a:
        return r ** 2 / a
    elif r < b:
        return a + np.log(r / a)
    return a * np.exp(-(r - b))
def f(x):
    r = np.linspace(0.05, 2.0, 15)
    return flux(r, x[0], x[2]).sum() * x[1]
--- a recursion with memory
import numpy as np
from functools import lru_cache
def f(x):
    @lru_cache(maxsize=None)
    def basis(i, p, t):
        knots = (0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0)
        if p == 0:
            return 1.0 if knots[i] <= t < knots[i + 1] else 0.0
        left = right = 0.0
        if knots[i + p] != knots[i]:
            left = (t - knots[i]) / (knots[i + p] - knots[i]) * basis(i, p - 1, t)
        if knots[i + p + 1] != knots[i + 1]:
            right = (knots[i + p + 1] - t) / (knots[i + p + 1] - knots[i + 1]) * basis(i + 1, p - 1, t)
        return left + right
    coef = [x[0], x[1], x[2], 1.0]
    return sum(c * basis(i, 2, t) for t in (0.2, 0.4, 0.7) for i, c in enumerate(coef))
--- adaptive simpson by recursion
import numpy as np
def adaptive(g, a, b, eps, whole=None, depth=0):
    m = (a + b) / 2
    s = lambda l, r: (r - l) / 6 * (g(l) + 4 * g((l + r) / 2) + g(r))
    whole = s(a, b) if whole is None else whole
    left, right = s(a, m), s(m, b)
    if abs(left + right - whole) <= 15 * eps or depth > 8:
        return left + right + (left + right - whole) / 15
    return adaptive(g, a, m, eps / 2, left, depth + 1) + adaptive(g, m, b, eps / 2, right, depth + 1)
def f(x):
    return adaptive(lambda t: x[0] * np.exp(-x[1] * t ** 2) / (x[2] + t), 0.0, 2.0, 1e-4)
--- a tree of namedtuples
import numpy as np
from collections import namedtuple
Node = namedtuple('Node', 'left right length')
Leaf = namedtuple('Leaf', 'state length')
tree = Node(Node(Leaf(0, 0.1), Leaf(1, 0.2), 0.3), Leaf(0, 0.5), 0.0)
def likelihood(node, Q):
    if isinstance(node, Leaf):
        partial = np.zeros(2)
        partial[node.state] = 1.0
    else:
        partial = likelihood(node.left, Q) * likelihood(node.right, Q)
    from scipy.linalg import expm
    return expm(Q * node.length) @ partial
def f(x):
    Q = np.array([[-x[0], x[0]], [x[1], -x[1]]])
    pi = np.array([x[1], x[0]]) / (x[0] + x[1])
    return np.log(pi @ likelihood(tree, Q)) * x[2]
def change():
    global tree
    tree = tree._replace(right=Leaf(1, 0.4))
--- newton with a line search
import numpy as np
def f(x):
    fun = lambda z: np.array([z[0] ** 2 + z[1] - x[0] - 1, z[0] - z[1] ** 2 + x[1]])
    jac = lambda z: np.array([[2 * z[0], 1.0], [1.0, -2 * z[1]]])
    z = np.array([1.0, 1.0])
    k = 0
    while np.linalg.norm(fun(z)) > 1e-10 and k < 50:
        dz = np.linalg.solve(jac(z), -fun(z))
        alpha = 1.0
        while np.linalg.norm(fun(z + alpha * dz)) > (1 - 1e-4 * alpha) * np.linalg.norm(fun(z)):
            alpha /= 2
            if alpha < 1e-8:
                break
        z = z + alpha * dz
        k += 1
    return z[0] * x[2] + z[1]
--- power iteration and deflation
import numpy as np
def power(A, tol=1e-13, maxiter=1000):
    v = np.ones(A.shape[0]) / np.sqrt(A.shape[0])
    lam = 0.0
    for i in range(maxiter):
        w = A @ v
        lam_new = v @ w
        v = w / np.linalg.norm(w)
        if abs(lam_new - lam) < tol:
            break
        lam = lam_new
    return lam_new, v
def f(x):
    A = np.diag([3.0, 1.0, 0.5]) + np.outer(x, x)
    l1, v1 = power(A)
    l2, v2 = power(A - l1 * np.outer(v1, v1))
    return l1 + 0.5 * l2
--- gram and schmidt, householder and givens
import numpy as np
def f(x):
    A = np.array([[x[0], 1.0, 0.2], [0.3, x[1], 1.0], [1.0, 0.1, x[2]]])
    Q = np.zeros_like(A)
    for j in range(3):
        v = A[:, j].copy()
        for k in range(j):
            v -= (Q[:, k] @ A[:, j]) * Q[:, k]
        Q[:, j] = v / np.linalg.norm(v)
    R = A.copy()
    for k in range(2):
        y = R[k:, k]
        e = np.zeros_like(y)
        e[0] = np.copysign(np.linalg.norm(y), y[0])
        u = y + e
        u = u / np.linalg.norm(u)
        R[k:, k:] -= 2.0 * np.outer(u, u @ R[k:, k:])
    return np.sum(np.triu(Q)) + np.prod(np.diag(R))
--- gaussian elimination with pivots
import numpy as np
def solve(A, b):
    A, b = A.astype(float), b.astype(float)
    n = len(b)
    for k in range(n):
        piv = k + np.argmax(np.abs(A[k:, k]))
        if piv != k:
            A[[k, piv]] = A[[piv, k]]
            b[[k, piv]] = b[[piv, k]]
        for i in range(k + 1, n):
            m = A[i, k] / A[k, k]
            A[i, k:] = A[i, k:] - m * A[k, k:]
            b[i] -= m * b[k]
    z = np.zeros(n)
    for i in range(n - 1, -1, -1):
        z[i] = (b[i] - A[i, i + 1:] @ z[i + 1:]) / A[i, i]
    return z
def f(x):
    A = np.array([[x[0], 2.0, 1.0, 0.0], [4.0, x[1], 0.5, 1.0], [1.0, 1.0, x[2], 3.0], [0.2, 0.0, 1.0, 2.0]])
    return solve(A, np.array([1, 2, 3, 4])).sum()
--- cubic splines by the thomas algorithm
import numpy as np
from bisect import bisect_right
def thomas(a, b, c, d):
    n = len(d)
    cp, dp, out = [0.0] * n, [0.0] * n, [0.0] * n
    cp[0], dp[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m if i < n - 1 else 0.0
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    out[-1] = dp[-1]
    for i in reversed(range(n - 1)):
        out[i] = dp[i] - cp[i] * out[i + 1]
    return out
def f(x):
    ks = [0.0, 1.0, 1.5, 2.5, 4.0]
    ys = [x[0], x[1], x[2], x[0] * x[1], 1.0]
    h = np.diff(ks)
    a, b, c, d = [0.0], [1.0], [0.0], [0.0]
    for i in range(1, 4):
        a.append(h[i - 1]); b.append(2 * (h[i - 1] + h[i])); c.append(h[i])
        d.append(6 * ((ys[i + 1] - ys[i]) / h[i] - (ys[i] - ys[i - 1]) / h[i - 1]))
    a.append(0.0); b.append(1.0); c.append(0.0); d.append(0.0)
    M = thomas(a, b, c, d)
    total = 0.0
    for q in (0.3, 1.2, 2.0, 3.7):
        i = min(bisect_right(ks, q) - 1, 3)
        u, v = ks[i + 1] - q, q - ks[i]
        total += (M[i] * u ** 3 + M[i + 1] * v ** 3) / (6 * h[i]) + (ys[i] * u + ys[i + 1] * v) / h[i] \\
            - h[i] / 6 * (M[i] * u + M[i + 1] * v)
    return total
--- a chemical reactor with named species
import numpy as np
species = ['A', 'B', 'C']
reactions = [({'A': 1}, {'B': 1}, 0), ({'B': 2}, {'C': 1}, 1), ({'C': 1}, {'A': 1, 'B': 1}, 2)]
index = {s: i for i, s in enumerate(species)}
def f(k):
    conc = {'A': 1.0, 'B': 0.2, 'C': 0.0}
    dt = 0.05
    for _ in range(20):
        rates = dict.fromkeys(species, 0.0)
        for reactants, products, r in reactions:
            v = k[r]
            for s, order in reactants.items():
                v = v * conc[s] ** order
            for s, n in reactants.items():
                rates[s] -= n * v
            for s, n in products.items():
                rates[s] += n * v
        conc = {s: c + dt * rates[s] for s, c in conc.items()}
    return sum(conc[s] * (index[s] + 1) for s in species)
def change():
    reactions[1] = ({'B': 1}, {'C': 1}, 1)
"""
