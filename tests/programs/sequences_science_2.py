"""Programs of scientists' notebooks, as strangers write them: fields, meshes, molecules, signals.

Each is a function `f(x)` of three numbers with a scalar result. `change()`, where there is one,
changes what the program reads, as the next cell of a notebook does.
"""

from __future__ import annotations

PROGRAMS = """
--- a gaussian process with kernels that add
import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
class Kernel:
    def __add__(self, other):
        return Sum(self, other)
    def __rmul__(self, c):
        return Scaled(c, self)
class RBF(Kernel):
    def __init__(self, length):
        self.length = length
    def __call__(self, A, B):
        sq = np.sum(A ** 2, 1).reshape(-1, 1) + np.sum(B ** 2, 1) - 2 * np.dot(A, B.T)
        return np.exp(-0.5 * sq / self.length ** 2)
class White(Kernel):
    def __init__(self, s):
        self.s = s
    def __call__(self, A, B):
        return self.s ** 2 * np.eye(len(A)) if A is B else np.zeros((len(A), len(B)))
class Sum(Kernel):
    def __init__(self, *parts):
        self.parts = parts
    def __call__(self, A, B):
        return sum(k(A, B) for k in self.parts)
class Scaled(Kernel):
    def __init__(self, c, k):
        self.c, self.k = c, k
    def __call__(self, A, B):
        return self.c * self.k(A, B)
Xtr = np.linspace(-3, 3, 8).reshape(-1, 1)
Ytr = np.sin(Xtr).ravel()
Xte = np.array([[0.5], [1.7]])
def f(x):
    kernel = x[0] * RBF(x[1]) + White(x[2] * 0.3)
    K = kernel(Xtr, Xtr)
    L, low = cho_factor(K + 1e-8 * np.eye(len(Xtr)), lower=True)
    alpha = cho_solve((L, low), Ytr)
    nll = 0.5 * Ytr @ alpha + np.log(np.diag(L)).sum() + 0.5 * len(Xtr) * np.log(2 * np.pi)
    Ks = kernel(Xtr, Xte)
    v = solve_triangular(np.tril(L), Ks, lower=True)
    return nll + (Ks.T @ alpha).sum() + np.sum(v ** 2)
def change():
    Ytr[:] = np.cos(Xtr).ravel()
--- a gaussian process that jitters until it works
import numpy as np
pts = np.linspace(0, 1, 6)
def f(x):
    K = x[0] * np.exp(-0.5 * (pts[:, None] - pts) ** 2 / (1 + x[1]) ** 2) - 0.05 * np.eye(6)
    jitter = 1e-3
    while True:
        try:
            L = np.linalg.cholesky(K + jitter * np.eye(6))
            break
        except np.linalg.LinAlgError:
            jitter *= 10
            if jitter > 1.0:
                raise
    return np.sum(np.log(np.diag(L))) * 0.01 + x[2]
--- heat by crank and nicolson
import numpy as np
from scipy.sparse import diags
from scipy.sparse.linalg import spsolve
N, dt = 20, 0.01
dx = 1.0 / (N + 1)
D2 = diags([1.0, -2.0, 1.0], [-1, 0, 1], shape=(N, N)) / dx ** 2
I = diags([1.0], [0], shape=(N, N))
xi = np.linspace(dx, 1 - dx, N)
def f(x):
    u = x[0] * np.sin(np.pi * xi) + x[1] * np.sin(3 * np.pi * xi)
    A = (I - 0.5 * dt * x[2] * D2).tocsc()
    B = (I + 0.5 * dt * x[2] * D2).tocsr()
    for n in range(5):
        u = spsolve(A, B @ u)
    return dx * np.sum(u ** 2)
--- burgers by the method of lines
import numpy as np
def f(x):
    nx, nt = 32, 40
    dx, dt = 2 * np.pi / nx, 0.01
    grid = np.arange(nx) * dx
    u = np.sin(grid) * x[0] + 1.5 * x[1]
    for n in range(nt):
        un = u.copy()
        u[1:-1] = (un[1:-1] - un[1:-1] * dt / dx * (un[1:-1] - un[:-2])
                   + 0.05 * x[2] * dt / dx ** 2 * (un[2:] - 2 * un[1:-1] + un[:-2]))
        u[0] = u[-2]
        u[-1] = u[1]
    return np.sum(u ** 2) * dx
--- the cavity of twelve steps
import numpy as np
def pressure(p, b, dx, dy, nit):
    pn = np.empty_like(p)
    for q in range(nit):
        pn = p.copy()
        p[1:-1, 1:-1] = (((pn[1:-1, 2:] + pn[1:-1, 0:-2]) * dy ** 2 +
                          (pn[2:, 1:-1] + pn[0:-2, 1:-1]) * dx ** 2) /
                         (2 * (dx ** 2 + dy ** 2)) -
                         dx ** 2 * dy ** 2 / (2 * (dx ** 2 + dy ** 2)) * b[1:-1, 1:-1])
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0
    return p
def f(x):
    nx = ny = 9
    dx, dy = 2 / (nx - 1), 2 / (ny - 1)
    p, b = np.zeros((ny, nx)), np.zeros((ny, nx))
    b[int(ny / 4), int(nx / 4)] = 100 * x[0]
    b[int(3 * ny / 4), int(3 * nx / 4)] = -100 * x[1]
    p = pressure(p, b, dx, dy, 20)
    return np.sum(p ** 2) * x[2] + p.max()
--- gray and scott with rolls
import numpy as np
def laplacian(Z):
    return (-4 * Z + np.roll(Z, 1, axis=0) + np.roll(Z, -1, axis=0)
            + np.roll(Z, (0, 1), axis=(0, 1)) + np.roll(Z, (0, -1), (0, 1)))
def f(x):
    U, V = np.ones((12, 12)), np.zeros((12, 12))
    U[4:8, 4:8], V[4:8, 4:8] = 0.50, 0.25
    Du, Dv, F, k = 0.16, 0.08, 0.1 * x[0], 0.06 * x[1]
    for i in range(20):
        uvv = U * V * V
        U += x[2] * (Du * laplacian(U) - uvv + F * (1 - U))
        V += x[2] * (Dv * laplacian(V) + uvv - (F + k) * V)
    return V.mean() * 10 + U.std()
--- kuramoto and sivashinsky by the fft
import numpy as np
def f(x):
    N, h = 32, 0.25
    grid = 32 * np.pi * np.arange(1, N + 1) / N
    u = x[0] * np.cos(grid / 16) * (1 + x[1] * np.sin(grid / 16))
    v = np.fft.fft(u)
    k = np.r_[0:N / 2, 0, -N / 2 + 1:0] / 16
    Lk = k ** 2 - x[2] * k ** 4
    E, E2 = np.exp(h * Lk), np.exp(h * Lk / 2)
    g = -0.5j * k
    for n in range(8):
        Nv = g * np.fft.fft(np.real(np.fft.ifft(v)) ** 2)
        a = E2 * v + 0.5 * h * Nv
        Na = g * np.fft.fft(np.real(np.fft.ifft(a)) ** 2)
        v = E * v + h * Na
    return np.sum(np.real(np.fft.ifft(v)) ** 2)
--- schroedinger by split steps
import numpy as np
def f(x):
    n = 32
    xs = np.linspace(-5, 5, n, endpoint=False)
    k = 2 * np.pi * np.fft.fftfreq(n, d=xs[1] - xs[0])
    V = 0.5 * x[0] * xs ** 2 + 0.1 * x[1] * xs ** 4 / 10
    psi = np.exp(-(xs - x[2]) ** 2) * np.exp(1j * xs)
    psi /= np.sqrt(np.sum(np.abs(psi) ** 2))
    expV, expK = np.exp(-0.5j * V * 0.02), np.exp(-0.5j * k ** 2 * 0.02)
    for _ in range(15):
        psi = expV * np.fft.ifft(expK * np.fft.fft(expV * psi))
    prob = np.abs(psi) ** 2
    return np.sum(prob * xs) / prob.sum() + np.angle(psi[n // 2])
--- elements of a bar, assembled
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
nodes = np.linspace(0, 1, 9)
elements = [(i, i + 1) for i in range(8)]
def f(x):
    E = lambda s: 1.0 + x[0] * s + x[1] * s ** 2
    rows, cols, vals = [], [], []
    F = np.zeros(len(nodes))
    for (a, b) in elements:
        h = nodes[b] - nodes[a]
        mid = 0.5 * (nodes[a] + nodes[b])
        ke = E(mid) / h * np.array([[1, -1], [-1, 1]])
        for i, gi in enumerate((a, b)):
            F[gi] += x[2] * h / 2
            for j, gj in enumerate((a, b)):
                rows.append(gi); cols.append(gj); vals.append(ke[i, j])
    K = sp.coo_matrix((vals, (rows, cols)), shape=(9, 9)).tocsr()
    free = np.arange(1, 9)
    u = np.zeros(9)
    u[free] = spla.spsolve(K[free][:, free], F[free])
    return F @ u
--- a truss
import numpy as np
coords = np.array([[0., 0.], [1., 0.], [0.5, 0.9], [1.5, 0.9]])
bars = np.array([[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]])
fixed = [0, 1, 3]
def f(areas):
    ndof = 2 * len(coords)
    K = np.zeros((ndof, ndof))
    weight = 0
    for e, (i, j) in enumerate(bars):
        d = coords[j] - coords[i]
        L = np.linalg.norm(d)
        c, s = d / L
        T = np.array([c, s, -c, -s])
        dofs = np.array([2 * i, 2 * i + 1, 2 * j, 2 * j + 1])
        A = areas[e % 3]
        K[np.ix_(dofs, dofs)] += A / L * np.outer(T, T)
        weight += A * L
    free = np.setdiff1d(np.arange(ndof), fixed)
    P = np.zeros(ndof)
    P[7] = -1.0
    u = np.linalg.solve(K[free][:, free], P[free])
    return P[free] @ u + 0.1 * weight
def change():
    coords[3] = [1.4, 1.0]
--- lennard and jones in a box
import numpy as np
rng = np.random.default_rng(11)
pos0 = np.array([[i, j, k] for i in range(2) for j in range(2) for k in range(1)]) * 1.3
pos0 = pos0 + 0.05 * rng.standard_normal(pos0.shape)
def forces(pos, eps, sigma, L):
    n = len(pos)
    F = np.zeros_like(pos)
    U = 0.0
    for i in range(n - 1):
        for j in range(i + 1, n):
            rij = pos[i] - pos[j]
            rij -= L * np.rint(rij / L)
            r2 = np.dot(rij, rij)
            if r2 < 6.0:
                sr6 = (sigma ** 2 / r2) ** 3
                U += 4 * eps * (sr6 ** 2 - sr6)
                fij = 24 * eps * (2 * sr6 ** 2 - sr6) / r2 * rij
                F[i] += fij
                F[j] -= fij
    return F, U
def f(x):
    eps, sigma, dt = x[0], 0.8 + 0.2 * x[1], 0.005 * x[2]
    pos, vel = pos0.copy(), np.zeros_like(pos0)
    F, U = forces(pos, eps, sigma, 4.0)
    for step in range(3):
        pos += vel * dt + 0.5 * F * dt ** 2
        Fn, U = forces(pos, eps, sigma, 4.0)
        vel += 0.5 * (F + Fn) * dt
        F = Fn
    return U + 0.5 * np.sum(vel ** 2)
--- a molecule's bonds, angles and dihedrals
import numpy as np
atoms = {'C1': [0.0, 0.0, 0.0], 'C2': [1.5, 0.0, 0.1], 'C3': [2.1, 1.4, 0.0], 'C4': [3.5, 1.5, 0.4]}
bonds = [('C1', 'C2'), ('C2', 'C3'), ('C3', 'C4')]
def dihedral(p):
    b = p[:-1] - p[1:]
    b[0] *= -1
    v = np.array([v - (v.dot(b[1]) / b[1].dot(b[1])) * b[1] for v in [b[0], b[2]]])
    v /= np.sqrt(np.einsum('...i,...i', v, v)).reshape(-1, 1)
    b1 = b[1] / np.linalg.norm(b[1])
    return np.arctan2(np.dot(np.cross(v[0], b1), v[1]), np.dot(v[0], v[1]))
def f(x):
    xyz = {k: np.array(v, dtype=float) for k, v in atoms.items()}
    xyz['C3'] = xyz['C3'] + x
    e = 0.0
    for a, b in bonds:
        e += 100 * (np.linalg.norm(xyz[a] - xyz[b]) - 1.53) ** 2
    for a, b, c in zip(list(xyz)[:-2], list(xyz)[1:-1], list(xyz)[2:]):
        u, v = xyz[a] - xyz[b], xyz[c] - xyz[b]
        cosang = np.dot(u, v) / np.linalg.norm(u) / np.linalg.norm(v)
        e += 20 * (np.arccos(np.clip(cosang, -1, 1)) - np.deg2rad(111.0)) ** 2
    return e + 1.4 * (1 + np.cos(3 * dihedral(np.array(list(xyz.values())))))
def change():
    atoms['C4'] = [3.2, 1.9, -0.2]
--- coulomb with structured arrays
import numpy as np
ions = np.array([(1.0, 0.0, 0.2), (-1.0, 1.0, 0.9), (2.0, 0.3, 1.5)],
                dtype=[('q', 'f8'), ('x', 'f8'), ('y', 'f8')])
def f(x):
    total = 0.0
    px = ions['x'] + x
    for a in range(len(ions)):
        for b in range(a):
            r = np.hypot(px[a] - px[b], ions[a]['y'] - ions[b]['y'])
            total += ions['q'][a] * ions['q'][b] / r
    return total
def change():
    ions['q'][2] = -0.5
--- richardson and lucy
import numpy as np
from scipy.signal import convolve2d, fftconvolve
img = np.random.RandomState(2).rand(8, 8) + 0.5
def f(x):
    ax = np.arange(-2, 3)
    xx, yy = np.meshgrid(ax, ax)
    psf = np.exp(-(xx ** 2 / (2 * (1 + x[0]) ** 2) + yy ** 2 / (2 * (1 + x[1]) ** 2)))
    psf /= psf.sum()
    est = np.full(img.shape, 0.5) * x[2]
    flipped = psf[::-1, ::-1]
    for _ in range(3):
        conv = convolve2d(est, psf, mode='same') + 1e-12
        est = est * fftconvolve(img / conv, flipped, mode='same')
    return np.sum((est - img) ** 2)
--- total variation and masks
import numpy as np
from scipy import ndimage
noisy = np.add.outer(np.linspace(0, 1, 10), np.linspace(0, 2, 10)) + 0.1 * np.random.RandomState(0).randn(10, 10)
mask = np.ones((10, 10), dtype=bool)
mask[3:5, 2:7] = False
def f(x):
    lam, sigma, c = x
    u = ndimage.gaussian_filter(noisy, 1.2, mode='reflect') * c + lam * noisy
    gx, gy = np.gradient(u)
    tv = np.sum(np.sqrt(gx ** 2 + gy ** 2 + 1e-3))
    resid = np.where(mask, u - noisy, 0.0)
    return lam * tv + (resid ** 2).sum() / sigma ** 2 + ndimage.laplace(u)[mask].var()
def change():
    mask[0] = False
--- an iir filter by hand and by lfilter
import numpy as np
from scipy import signal
t = np.arange(40) / 40.0
def f(x):
    b, a = np.array([0.2929, 0.5858, 0.2929]) * x[0], np.array([1.0, -0.1 * x[1], 0.1716])
    s = np.sin(2 * np.pi * 5 * t) + 0.5 * np.sin(2 * np.pi * 15 * t + x[2])
    y = np.zeros_like(s)
    for n in range(len(s)):
        acc = 0.0
        for k in range(3):
            if n - k >= 0:
                acc += b[k] * s[n - k]
            if k > 0 and n - k >= 0:
                acc -= a[k] * y[n - k]
        y[n] = acc / a[0]
    assert np.allclose(y, signal.lfilter(b, a, s))
    env = np.abs(signal.hilbert(y))
    return np.sum(env) + np.max(np.abs(np.fft.rfft(y)))
"""
