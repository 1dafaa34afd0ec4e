"""Programs of scientists' notebooks, as strangers write them: likelihoods, filters, equations.

Each is a function `f(x)` of three numbers with a scalar result. `change()`, where there is one,
changes what the program reads, as the next cell of a notebook does.
"""

from __future__ import annotations

PROGRAMS = """
--- a line with intrinsic scatter
import numpy as np
np.random.seed(123)
m_true, b_true, f_true = -0.9594, 4.294, 0.534
N = 50
xs = np.sort(10 * np.random.rand(N))
yerr = 0.1 + 0.5 * np.random.rand(N)
ys = m_true * xs + b_true
ys += np.abs(f_true * ys) * np.random.randn(N)
ys += yerr * np.random.randn(N)
def log_prior(theta):
    m, b, log_f = theta
    if -5.0 < m < 0.5 and 0.0 < b < 10.0 and -10.0 < log_f < 1.5:
        return 0.0
    return -np.inf
def log_likelihood(theta, x, y, yerr):
    m, b, log_f = theta
    model = m * x + b
    sigma2 = yerr ** 2 + model ** 2 * np.exp(2 * log_f)
    return -0.5 * np.sum((y - model) ** 2 / sigma2 + np.log(sigma2))
def f(theta):
    lp = log_prior(theta)
    if not np.isfinite(lp):
        return -np.inf
    return lp + log_likelihood(theta, xs, ys, yerr)
def change():
    ys[:10] += 1.0
--- a mixture of outliers
import numpy as np
from scipy.special import logsumexp
rng = np.random.default_rng(3)
data = dict(x=rng.uniform(0, 100, 20), y=rng.normal(30, 10, 20), e=rng.uniform(1, 4, 20))
def f(p):
    slope, offset, g = p
    xi, yi, ei = data['x'] / 50, data['y'] / 20, data['e']
    sigma_b = 5.0
    w = 1 / (1 + np.exp(-g))
    logL_in = np.log(w) - 0.5 * np.log(2 * np.pi * ei ** 2) - 0.5 * ((yi - slope * xi - offset) / ei) ** 2
    logL_out = (np.log1p(-w) - 0.5 * np.log(2 * np.pi * sigma_b ** 2)
                - 0.5 * ((yi - slope * xi - offset) / sigma_b) ** 2)
    return np.sum(np.logaddexp(logL_in, logL_out)) + logsumexp([logL_in.sum(), logL_out.sum()])
def change():
    data['e'] = data['e'] * 1.5
    data['y'][3] = 200.
--- em of a mixture of gaussians
import numpy as np
from scipy.stats import multivariate_normal
X = np.random.RandomState(1).randn(40, 2)
X[:20] += [2.0, 1.0]
class GMM:
    def __init__(self, k, n_iter=3):
        self.k = k
        self.n_iter = n_iter
    def e_step(self, X):
        r = np.zeros((len(X), self.k))
        for c in range(self.k):
            r[:, c] = self.pi[c] * multivariate_normal.pdf(X, self.mu[c], self.cov[c])
        return r / r.sum(axis=1, keepdims=True), np.log(r.sum(axis=1)).sum()
    def fit(self, X, mu0):
        self.mu = mu0
        self.pi = np.ones(self.k) / self.k
        self.cov = [np.eye(2) for _ in range(self.k)]
        self.trace_ = []
        for it in range(self.n_iter):
            r, ll = self.e_step(X)
            self.trace_.append(ll)
            nk = r.sum(axis=0)
            self.pi = nk / len(X)
            self.mu = (r.T @ X) / nk[:, None]
            for c in range(self.k):
                d = X - self.mu[c]
                self.cov[c] = (r[:, c, None] * d).T @ d / nk[c] + 1e-6 * np.eye(2)
        return self
def f(x):
    gmm = GMM(2).fit(X, np.array([[x[0], x[1]], [x[2], 2.0]]))
    return gmm.trace_[-1] + gmm.mu[0, 0]
--- k-means that is soft
import numpy as np
pts = np.random.RandomState(0).uniform(-1, 1, size=(30, 2))
def f(x):
    centers = np.stack([x[:2], x[1:], np.zeros(2)])
    beta = 4.0
    for _ in range(50):
        old = centers.copy()
        d2 = ((pts[:, np.newaxis, :] - centers[np.newaxis, :, :]) ** 2).sum(-1)
        w = np.exp(-beta * (d2 - d2.min(axis=1, keepdims=True)))
        w /= w.sum(1, keepdims=True)
        centers = w.T.dot(pts) / w.sum(0)[:, None]
        if np.linalg.norm(centers - old) < 0.05:
            break
    return np.sum(centers ** 2) + d2.min(axis=1).mean()
--- a hidden markov model of a class
import numpy as np
class HMM(object):
    def __init__(self, A, pi, obs):
        self.A = np.array(A)
        self.pi = np.array(pi)
        self.obs = obs
        self.loglik = None
    def emission(self, mus, sigma):
        out = []
        for o in self.obs:
            out.append(np.exp(-0.5 * ((o - mus) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi)))
        return np.asarray(out)
    def forward(self, B):
        T, N = B.shape
        alpha = np.zeros((T, N))
        scale = np.zeros(T)
        alpha[0] = self.pi * B[0]
        scale[0] = alpha[0].sum()
        alpha[0] /= scale[0]
        for t in range(1, T):
            for j in range(N):
                alpha[t, j] = alpha[t - 1].dot(self.A[:, j]) * B[t, j]
            scale[t] = alpha[t].sum()
            alpha[t] /= scale[t]
        self.loglik = np.log(scale).sum()
        return alpha, scale
hmm = HMM([[0.7, 0.3], [0.4, 0.6]], [0.5, 0.5], [0.1, 0.2, 1.4, 1.2, 0.9, -0.3, 0.0])
def f(x):
    alpha, scale = hmm.forward(hmm.emission(x[:2], x[2]))
    return hmm.loglik + alpha[-1, 0]
def change():
    hmm.obs = [0.3, 0.1, 0.4, 1.5, 1.2, 0.9, -0.3]
    hmm.A[0] = [0.9, 0.1]
--- viterbi with backpointers
import numpy as np
obs = [0, 2, 1, 1, 0, 2]
def f(x):
    A = np.log(np.array([[0.7, 0.3], [0.2, 0.8]]))
    logits = np.array([[x[0], x[1], x[2]], [x[2], x[0], x[1]]])
    E = logits - np.log(np.exp(logits).sum(axis=1))[:, None]
    V = [E[:, obs[0]] + np.log(0.5)]
    back = []
    for o in obs[1:]:
        scores = V[-1][:, None] + A
        back.append(np.argmax(scores, axis=0))
        V.append(np.max(scores, axis=0) + E[:, o])
    state = int(np.argmax(V[-1]))
    path = [state]
    for b in reversed(back):
        state = int(b[state])
        path.insert(0, state)
    return V[-1].max() + sum(E[s, o] for s, o in zip(path, obs))
--- a kalman filter of filterpy
import numpy as np
from numpy.linalg import inv
class KalmanFilter:
    def __init__(self, dim_x, dim_z):
        self.x = np.zeros((dim_x, 1))
        self.P = np.eye(dim_x)
        self.Q = np.eye(dim_x)
        self.F = np.eye(dim_x)
        self.H = np.zeros((dim_z, dim_x))
        self.R = np.eye(dim_z)
        self._I = np.eye(dim_x)
        self.log_likelihood = 0.0
    def predict(self, u=None, B=None):
        self.x = np.dot(self.F, self.x) if B is None else np.dot(self.F, self.x) + np.dot(B, u)
        self.P = np.dot(np.dot(self.F, self.P), self.F.T) + self.Q
    def update(self, z):
        y = np.reshape(z, (-1, 1)) - np.dot(self.H, self.x)
        PHT = np.dot(self.P, self.H.T)
        S = np.dot(self.H, PHT) + self.R
        K = np.dot(PHT, inv(S))
        self.x = self.x + np.dot(K, y)
        I_KH = self._I - np.dot(K, self.H)
        self.P = np.dot(np.dot(I_KH, self.P), I_KH.T) + np.dot(np.dot(K, self.R), K.T)
        self.log_likelihood += float(-0.5 * (np.log(2 * np.pi * S[0, 0]) + y[0, 0] ** 2 / S[0, 0]))
zs = np.cumsum(np.random.default_rng(0).normal(1.0, 0.3, 12))
def f(x):
    kf = KalmanFilter(2, 1)
    dt = 1.0
    kf.F = np.array([[1.0, dt], [0.0, 1.0]])
    kf.H = np.array([[1.0, 0.0]])
    kf.P *= 10.0
    kf.R *= x[0] ** 2
    kf.Q = np.array([[0.25 * dt ** 4, 0.5 * dt ** 3], [0.5 * dt ** 3, dt ** 2]]) * x[1]
    kf.x = np.array([[x[2]], [0.0]])
    for z in zs:
        kf.predict()
        kf.update(z)
    return kf.x[0, 0] + np.trace(kf.P)
def change():
    zs[4] = 0.0
--- an extended kalman filter of bearings
import numpy as np
from math import sqrt, atan2, cos, sin
landmarks = [(5.0, 10.0), (10.0, 5.0), (15.0, 15.0)]
def wrap(a):
    a = a % (2 * np.pi)
    if a > np.pi:
        a -= 2 * np.pi
    return a
def f(x):
    pose = np.array([x[0], x[1], x[2]])
    P = np.diag([0.1, 0.1, 0.05])
    for v, w in [(1.0, 0.1), (1.2, -0.05), (0.8, 0.2)]:
        pose = pose + np.array([v * cos(pose[2]), v * sin(pose[2]), w])
        G = np.array([[1, 0, -v * np.sin(pose[2])], [0, 1, v * np.cos(pose[2])], [0, 0, 1]])
        P = G @ P @ G.T + np.eye(3) * 0.01
        for lx, ly in landmarks:
            dx, dy = lx - pose[0], ly - pose[1]
            q = dx ** 2 + dy ** 2
            d = sqrt(q)
            H = np.array([[-dx / d, -dy / d, 0], [dy / q, -dx / q, -1]])
            z = np.array([d + 0.1, wrap(atan2(dy, dx) - pose[2]) + 0.02])
            zhat = np.array([d, wrap(atan2(dy, dx) - pose[2])])
            K = P @ H.T @ np.linalg.inv(H @ P @ H.T + np.diag([0.3, 0.01]))
            pose = pose + K @ (z - zhat)
            P = (np.eye(3) - K @ H) @ P
    return pose @ np.array([1.0, 2.0, 3.0]) + np.log(np.linalg.det(P))
def change():
    landmarks.append((1.0, 2.0))
--- an unscented transform
import numpy as np
from scipy.linalg import cholesky, sqrtm
def sigma_points(mu, P, kappa):
    n = mu.size
    U = cholesky((n + kappa) * P)
    pts = np.zeros((2 * n + 1, n))
    pts[0] = mu
    for k in range(n):
        pts[k + 1] = np.subtract(mu, -U[k])
        pts[n + k + 1] = np.subtract(mu, U[k])
    w = np.full(2 * n + 1, 0.5 / (n + kappa))
    w[0] = kappa / (n + kappa)
    return pts, w
def f(x):
    mu = np.array([x[0], x[1]])
    P = np.array([[0.5 + x[2], 0.1], [0.1, 0.4]])
    pts, w = sigma_points(mu, P, 1.0)
    ys = np.array([[np.sqrt(p[0] ** 2 + p[1] ** 2 + 1), np.arctan2(p[1], p[0] + 3)] for p in pts])
    m = w @ ys
    C = np.zeros((2, 2))
    for wi, yi in zip(w, ys):
        d = yi - m
        C += wi * np.outer(d, d)
    return m.sum() + np.linalg.det(C) + np.real(np.trace(sqrtm(P)))
--- a particle filter with a seed
import numpy as np
ys = [0.2, 0.5, 0.1, -0.4]
def systematic(w, rng):
    positions = (rng.random() + np.arange(len(w))) / len(w)
    return np.searchsorted(np.cumsum(w), positions)
def f(x):
    rng = np.random.default_rng(42)
    particles = rng.normal(size=50)
    ll = 0.0
    for y in ys:
        particles = x[0] * particles + x[1] * rng.normal(size=50)
        logw = -0.5 * ((y - particles) / x[2]) ** 2 - np.log(x[2])
        m = logw.max()
        w = np.exp(logw - m)
        ll += m + np.log(np.mean(w))
        w = w / w.sum()
        particles = particles - 0.1 * np.sum(w * particles)
    return ll
def change():
    ys[1] = -0.5
--- metropolis with a fixed proposal
import numpy as np
def f(x):
    state = np.random.RandomState(7)
    mu, sd = x[0], np.exp(x[1])
    cur = 0.0
    logp = lambda v: -0.5 * ((v - mu) / sd) ** 2
    accepted = []
    for i in range(20):
        prop = cur + 0.5 * state.randn()
        if np.log(state.rand()) < logp(prop) - logp(cur):
            cur = prop
            accepted.append(i)
    return logp(cur) * x[2] + len(accepted)
--- leapfrog of a hamiltonian
import numpy as np
from functools import partial
def potential(q, scale):
    return np.sum(q ** 4 / 4 - q ** 2 / 2) * scale
def grad_U(q, scale):
    return (q ** 3 - q) * scale
def leapfrog(q, p, dU, eps, n):
    p = p - 0.5 * eps * dU(q)
    for i in range(n):
        q = q + eps * p
        if i != n - 1:
            p = p - eps * dU(q)
    p = p - 0.5 * eps * dU(q)
    return q, -p
def f(x):
    q, p = leapfrog(x[:2], np.array([0.1, -0.3]), partial(grad_U, scale=x[2]), 0.1, 15)
    H = potential(q, x[2]) + 0.5 * np.dot(p, p)
    assert np.isfinite(H), "diverged"
    return H + q[0]
--- runge and kutta of lorenz
import numpy as np
def lorenz(state, t, sigma, rho, beta):
    x, y, z = state
    return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])
def rk4(f, y0, t, *args):
    y = np.zeros((len(t), len(y0)))
    y[0] = y0
    for i in range(len(t) - 1):
        h = t[i + 1] - t[i]
        k1 = f(y[i], t[i], *args)
        k2 = f(y[i] + k1 * h / 2., t[i] + h / 2., *args)
        k3 = f(y[i] + k2 * h / 2., t[i] + h / 2., *args)
        k4 = f(y[i] + k3 * h, t[i] + h, *args)
        y[i + 1] = y[i] + (h / 6.) * (k1 + 2 * k2 + 2 * k3 + k4)
    return y
def f(x):
    t = np.linspace(0, 1, 101)
    sol = rk4(lorenz, [1., 1., 1.], t, 10 * x[0], 28 * x[1], 2.0 * x[2])
    return sol[-1].sum() + sol[::10, 2].mean()
--- an adaptive step of heun and euler
import numpy as np
def f(x):
    a, b, c = x
    rhs = lambda t, y: np.array([y[1], -a * y[0] - b * y[1] + c * np.cos(t)])
    t, y, h = 0.0, np.array([1.0, 0.0]), 0.1
    tol = 1e-3
    n_steps = 0
    while t < 2.0:
        h = min(h, 2.0 - t)
        k1 = rhs(t, y)
        k2 = rhs(t + h, y + h * k1)
        err = np.max(np.abs(0.5 * h * (k2 - k1)))
        if err <= tol:
            t += h
            y = y + 0.5 * h * (k1 + k2)
            h *= 1.2
            n_steps += 1
        else:
            h *= 0.5
    return y[0] ** 2 + y[1]
--- michaelis and menten by odeint
import numpy as np
from scipy.integrate import odeint
times = np.array([0., 0.5, 1., 2., 3.])
measured = np.array([1.0, 0.8, 0.62, 0.35, 0.18])
def kinetics(y, t, p):
    S, E, ES, P = y
    k1, km1, k2 = p
    v1 = k1 * E * S
    v2 = km1 * ES
    v3 = k2 * ES
    return [-v1 + v2, -v1 + v2 + v3, v1 - v2 - v3, v3]
def f(p):
    sol = odeint(kinetics, [1.0, 0.5, 0.0, 0.0], times, args=(p,), rtol=1e-10, atol=1e-12)
    return np.sum((sol[:, 0] + sol[:, 2] - measured) ** 2)
def change():
    measured[2:] *= 1.1
--- sir with dataclasses
import numpy as np
from dataclasses import dataclass, field, replace
@dataclass
class Params:
    beta: float
    gamma: float
    N: float = 1000.
    history: list = field(default_factory=list)
@dataclass(frozen=True)
class State:
    S: float
    I: float
    R: float = 0.
def step(s, p, dt):
    new_inf = p.beta * s.S * s.I / p.N * dt
    new_rec = p.gamma * s.I * dt
    return replace(s, S=s.S - new_inf, I=s.I + new_inf - new_rec, R=s.R + new_rec)
def f(x):
    p = Params(beta=x[0] * 3, gamma=x[1] * 0.3)
    s = State(S=990., I=10. * x[2])
    for day in range(30):
        s = step(s, p, 0.25)
        p.history.append(s.I)
    peak = max(p.history)
    return peak / 100 + s.R / 1000
"""
