"""Programs of scientists' notebooks, as strangers write them: fits, finance, skies, robots, nets.

Each is a function `f(x)` of three numbers with a scalar result. `change()`, where there is one,
changes what the program reads, as the next cell of a notebook does.
"""

from __future__ import annotations

PROGRAMS = """
--- a fit of a fit: minimize with a jac by hand
import numpy as np
from scipy.optimize import minimize
t = np.linspace(0, 4, 15)
class Decay:
    calls = 0
    def __init__(self, data):
        self.data = data
    def residual(self, p):
        Decay.calls += 1
        return p[0] * np.exp(-p[1] * t) - self.data
    def cost(self, p):
        r = self.residual(p)
        return 0.5 * r @ r
    def jac(self, p):
        r = self.residual(p)
        e = np.exp(-p[1] * t)
        return np.array([r @ e, r @ (-p[0] * t * e)])
def f(x):
    d = Decay(x[0] * np.exp(-x[1] * t) + 0.05 * x[2] * np.sin(5 * t))
    res = minimize(d.cost, x0=[1.0, 1.0], jac=d.jac, method='BFGS', options={'gtol': 1e-11})
    a, b = res.x
    return a * 2 + b ** 2
--- lmfit's parameters in a dict
import numpy as np
from collections import OrderedDict
class Parameter:
    def __init__(self, name, value, min=-np.inf, max=np.inf, vary=True):
        self.name, self.value, self.min, self.max, self.vary = name, value, min, max, vary
    def bounded(self, v):
        if np.isinf(self.min) and np.isinf(self.max):
            return v
        if np.isinf(self.max):
            return self.min - 1 + np.sqrt(v * v + 1)
        return self.min + (np.sin(v) + 1) * (self.max - self.min) / 2
    def __repr__(self):
        return f"<Parameter {self.name}={self.value:.3g}>"
params = OrderedDict()
for p in (Parameter('amp', 1.0, min=0), Parameter('cen', 0.5), Parameter('wid', 0.3, min=0.1, max=5.0),
          Parameter('off', 0.01, vary=False)):
    params[p.name] = p
grid = np.linspace(-1, 2, 25)
target = 1.2 * np.exp(-((grid - 0.4) / 0.5) ** 2)
def f(x):
    it = iter(x)
    vals = {}
    for name, par in params.items():
        vals[name] = par.bounded(next(it)) if par.vary else par.value
    model = vals['amp'] * np.exp(-((grid - vals['cen']) / vals['wid']) ** 2) + vals['off']
    r = (model - target) / 0.1
    return np.sum(np.where(np.abs(r) < 1.5, 0.5 * r ** 2, 1.5 * (np.abs(r) - 0.75)))
def change():
    params['off'].value = 0.2
    params['wid'].max = 3.0
--- levenberg and marquardt by hand
import numpy as np
ti = np.arange(1, 8) * 0.3
def model(t, p):
    return p[0] + p[1] * np.exp(-p[2] * t)
def jacobian(t, p):
    J = np.empty((len(t), 3))
    J[:, 0] = 1
    J[:, 1] = np.exp(-p[2] * t)
    J[:, 2] = -p[1] * t * np.exp(-p[2] * t)
    return J
def f(x):
    y = model(ti, x) + 0.01 * np.cos(9 * ti)
    p, lam = np.array([0.5, 0.5, 1.0]), 1e-2
    cost = np.sum((y - model(ti, p)) ** 2)
    for it in range(60):
        r = y - model(ti, p)
        J = jacobian(ti, p)
        A = J.T @ J
        dp = np.linalg.solve(A + lam * np.diag(np.diag(A)), J.T @ r)
        trial = p + dp
        new = np.sum((y - model(ti, trial)) ** 2)
        if new < cost:
            p, cost, lam = trial, new, lam / 10
            if np.max(np.abs(dp)) < 1e-9:
                break
        else:
            lam *= 10
            if lam > 1e8:
                break
    return p @ [1.0, 2.0, 0.5]
--- a logistic regression by irls
import numpy as np
from scipy.special import expit
rs = np.random.RandomState(5)
Xd = np.column_stack([np.ones(30), rs.randn(30, 2)])
yd = (rs.rand(30) < expit(Xd @ [0.3, 1.0, -0.7])).astype(int)
def f(ridge):
    beta = np.zeros(3)
    for k in range(6):
        mu = expit(Xd @ beta)
        W = mu * (1 - mu)
        z = Xd @ beta + (yd - mu) / W
        XtW = Xd.T * W
        beta = np.linalg.solve(XtW @ Xd + np.diag(ridge), XtW @ z)
    p = expit(Xd @ beta)
    return -np.mean(yd * np.log(p) + (1 - yd) * np.log(1 - p)) + beta[1]
def change():
    yd[:4] = 1 - yd[:4]
--- cross-validation folds
import numpy as np
rs = np.random.RandomState(0)
Xc, yc = rs.randn(20, 3), rs.randn(20)
def kfold(n, k, shuffle_seed=None):
    idx = np.arange(n)
    if shuffle_seed is not None:
        np.random.RandomState(shuffle_seed).shuffle(idx)
    for chunk in np.array_split(idx, k):
        yield np.setdiff1d(idx, chunk), chunk
def f(x):
    errs = []
    for train, test in kfold(len(yc), 4, shuffle_seed=1):
        A = Xc[train].T @ Xc[train] + np.diag(np.exp(x))
        w = np.linalg.lstsq(A, Xc[train].T @ yc[train], rcond=None)[0]
        errs.append(np.mean((Xc[test] @ w - yc[test]) ** 2))
    return np.mean(errs) + np.std(errs, ddof=1)
--- a frame of pandas, grouped
import numpy as np
import pandas as pd
df = pd.DataFrame({'dose': [0.1, 0.5, 1.0, 2.0, 4.0, 8.0], 'resp': [0.05, 0.2, 0.4, 0.6, 0.8, 0.9],
                   'group': list('aabbab')})
def f(x):
    ec50 = {'a': np.exp(x[0]), 'b': np.exp(x[1])}
    sse = 0
    for g, sub in df.groupby('group'):
        pred = sub['dose'].values ** x[2] / (ec50[g] ** x[2] + sub['dose'].to_numpy() ** x[2])
        sse += ((sub.resp.values - pred) ** 2).sum()
    w = df['dose'].map(lambda d: 1.0 / (1 + d)).values
    return sse + np.average(df.resp.values * x[0], weights=w)
def change():
    df.loc[2, 'resp'] = 0.7
--- black and scholes, and its implied volatility
import numpy as np
from scipy.stats import norm
from scipy.optimize import brentq
def bs(S, K, T, r, sigma, kind='call'):
    d1 = (np.log(S / K) + (r + 0.5 * sigma ** 2) * T) / (sigma * np.sqrt(T))
    d2 = d1 - sigma * np.sqrt(T)
    if kind == 'call':
        return S * norm.cdf(d1) - K * np.exp(-r * T) * norm.cdf(d2)
    elif kind == 'put':
        return K * np.exp(-r * T) * norm.cdf(-d2) - S * norm.cdf(-d1)
    raise ValueError(f"unknown option {kind!r}")
def f(x):
    price = bs(100 * x[2], 100, 1.0, 0.05 * x[1], x[0])
    iv = brentq(lambda s: bs(105.0, 100, 1.0, 0.02, s) - price, 1e-4, 3.0, xtol=1e-13)
    return iv + bs(1.0, 1.1, x[1], 0.01, x[0], kind='put')
--- an american put on a tree
import numpy as np
def f(x):
    S0, K, N = 1.0 + 0.1 * x[2], 1.1, 20
    sigma, r, T = x[0], 0.05 * x[1], 1.0
    dt = T / N
    u = np.exp(sigma * np.sqrt(dt)); d = 1 / u
    q = (np.exp(r * dt) - d) / (u - d)
    disc = np.exp(-r * dt)
    S = S0 * d ** np.arange(N, -1, -1) * u ** np.arange(0, N + 1, 1)
    C = np.maximum(0, K - S)
    for i in np.arange(N - 1, -1, -1):
        S = S0 * d ** (np.arange(i, -1, -1)) * u ** (np.arange(0, i + 1, 1))
        C[:i + 1] = disc * (q * C[1:i + 2] + (1 - q) * C[0:i + 1])
        C = C[:-1]
        C = np.maximum(C, K - S)
    return C[0]
--- a garch likelihood
import numpy as np
returns = np.random.default_rng(8).standard_t(5, size=60) * 0.8
def f(theta):
    omega, alpha, beta = np.exp(theta) / (1 + np.exp(theta).sum())
    n = returns.shape[0]
    sigma2 = np.empty(n)
    sigma2[0] = returns.var()
    for t in range(1, n):
        sigma2[t] = omega + alpha * returns[t - 1] ** 2 + beta * sigma2[t - 1]
    if np.any(sigma2 <= 0):
        return 1e10
    return 0.5 * np.sum(np.log(2 * np.pi * sigma2) + returns ** 2 / sigma2)
def change():
    returns[5] = -6.0
--- heston by the characteristic function
import numpy as np
def cf(u, T, kappa, theta, sigma, rho, v0):
    d = np.sqrt((rho * sigma * 1j * u - kappa) ** 2 + sigma ** 2 * (1j * u + u ** 2))
    g = (kappa - rho * sigma * 1j * u - d) / (kappa - rho * sigma * 1j * u + d)
    C = kappa * theta / sigma ** 2 * ((kappa - rho * sigma * 1j * u - d) * T
                                      - 2 * np.log((1 - g * np.exp(-d * T)) / (1 - g)))
    D = (kappa - rho * sigma * 1j * u - d) / sigma ** 2 * ((1 - np.exp(-d * T)) / (1 - g * np.exp(-d * T)))
    return np.exp(C + D * v0)
u, w = np.polynomial.legendre.leggauss(32)
u, w = 0.5 * 50 * (u + 1), 0.5 * 50 * w
def f(x):
    phi = cf(u - 0.5j, 1.0, 1.5, 0.2 * x[0], 0.4 * x[1], -0.6, 0.1 * x[2])
    return 1 - np.sum(w * np.real(np.exp(-1j * u * 0.05) * phi / (u ** 2 + 0.25))) / np.pi
--- a portfolio on a simplex
import numpy as np
mu = np.array([0.10, 0.07, 0.03])
def project(v):
    n = v.shape[0]
    s = np.sort(v)[::-1]
    css = np.cumsum(s) - 1.0
    rho = np.nonzero(s - css / np.arange(1, n + 1) > 0)[0][-1]
    return np.maximum(v - css[rho] / (rho + 1.0), 0)
def f(x):
    C = np.array([[0.04, 0.006, 0.0], [0.006, 0.02, 0.001], [0.0, 0.001, 0.005]])
    w = np.ones(3) / 3
    for _ in range(25):
        w = project(w + 0.5 * (mu * (1 + x) - 2.0 * C @ w))
    ret, risk = w @ (mu * (1 + x)), np.sqrt(w @ C @ w)
    return ret / risk
def change():
    mu[2] = 0.05
--- kepler's orbit and radial velocities
import numpy as np
tobs = np.linspace(0, 3, 12)
def kepler(M, e, tol=1e-12):
    E = M.copy()
    for _ in range(100):
        dE = (E - e * np.sin(E) - M) / (1 - e * np.cos(E))
        E -= dE
        if np.abs(dE).max() < tol:
            break
    return E
def f(x):
    e, omega, K = 0.5 * x[0], x[1], x[2]
    M = np.mod(2 * np.pi * tobs / 1.37, 2 * np.pi)
    E = kepler(M, e)
    nu = 2 * np.arctan(np.sqrt((1 + e) / (1 - e)) * np.tan(E / 2))
    rv = K * (np.cos(nu + omega) + e * np.cos(omega))
    return np.sum((rv - 0.3) ** 2)
def change():
    global tobs
    tobs = np.linspace(0.1, 2.9, 12)
--- distances of a cosmology
import numpy as np
from scipy.integrate import quad
from scipy.interpolate import interp1d
z_obs = [0.1, 0.35, 0.8, 1.2]
mod_obs = np.array([38.3, 41.4, 43.5, 44.6])
class Cosmology:
    c = 299792.458
    def __init__(self, H0, Om, w=-1.0):
        self.H0, self.Om, self.w = H0, Om, w
    @property
    def Ode(self):
        return 1.0 - self.Om
    def invE(self, z):
        return 1.0 / np.sqrt(self.Om * (1 + z) ** 3 + self.Ode * (1 + z) ** (3 * (1 + self.w)))
    def dl(self, z):
        return (1 + z) * self.c / self.H0 * quad(self.invE, 0, z)[0]
    def mu(self, z):
        return 5 * np.log10(self.dl(z)) + 25
def f(x):
    cosmo = Cosmology(70 * x[1] / 0.72, x[0], w=-x[2])
    chi2 = 0.0
    for z, m in zip(z_obs, mod_obs):
        chi2 += ((cosmo.mu(z) - m) / 0.2) ** 2
    return chi2
def change():
    mod_obs[0] += 0.3
--- a transit with limb darkening
import numpy as np
phase = np.linspace(-0.1, 0.1, 41)
def f(x):
    k, u1, b = 0.3 * x[0], 0.5 * x[1], 0.4 * x[2]
    zz = np.sqrt((phase * 12) ** 2 + b ** 2)
    flux = np.ones_like(zz)
    inside = zz <= 1 - k
    partial = (zz > np.abs(1 - k)) & (zz < 1 + k)
    mu = np.sqrt(1 - zz[inside] ** 2)
    flux[inside] -= k ** 2 * (1 - u1 * (1 - mu))
    zp = zz[partial]
    k0 = np.arccos((k ** 2 + zp ** 2 - 1) / (2 * k * zp))
    k1 = np.arccos((1 - k ** 2 + zp ** 2) / (2 * zp))
    flux[partial] -= (k ** 2 * k0 + k1 - np.sqrt(np.maximum(4 * zp ** 2 - (1 + zp ** 2 - k ** 2) ** 2, 0)) / 2) / np.pi
    return np.sum((flux - 0.99) ** 2) * 100
--- a robot arm and its jacobian
import numpy as np
import functools
DH = [(0.0, np.pi / 2, 0.3), (0.5, 0.0, 0.0), (0.4, 0.0, 0.1)]
def transform(theta, a, alpha, d):
    ct, st, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
    return np.array([[ct, -st * ca, st * sa, a * ct],
                     [st, ct * ca, -ct * sa, a * st],
                     [0, sa, ca, d],
                     [0, 0, 0, 1]])
def f(q):
    Ts = [transform(qi, *dh) for qi, dh in zip(q, DH)]
    T = functools.reduce(np.matmul, Ts, np.eye(4))
    frames = [np.eye(4)]
    for t in Ts:
        frames.append(frames[-1] @ t)
    p = T[:3, 3]
    J = np.hstack([np.vstack([np.cross(fr[:3, 2], p - fr[:3, 3])[:, None], fr[:3, 2:3]]) for fr in frames[:-1]])
    manip = np.sqrt(np.linalg.det(J[:3] @ J[:3].T))
    return np.sum((p - [0.3, 0.2, 0.5]) ** 2) + 0.1 * manip + np.linalg.norm(T[:3, :3].dot([0, 0, 1.0]) + 1)
def change():
    DH[2] = (0.45, 0.1, 0.1)
--- geodesy: vincenty
import numpy as np
from math import radians
def vincenty(lat1, lon1, lat2, lon2, a=6378137.0, fl=1 / 298.257223563):
    b = (1 - fl) * a
    U1, U2 = np.arctan((1 - fl) * np.tan(lat1)), np.arctan((1 - fl) * np.tan(lat2))
    L = lon2 - lon1
    lam = L
    for i in range(200):
        sinl, cosl = np.sin(lam), np.cos(lam)
        ss = np.sqrt((np.cos(U2) * sinl) ** 2 + (np.cos(U1) * np.sin(U2) - np.sin(U1) * np.cos(U2) * cosl) ** 2)
        if ss == 0:
            return 0.0
        cs = np.sin(U1) * np.sin(U2) + np.cos(U1) * np.cos(U2) * cosl
        sig = np.arctan2(ss, cs)
        sina = np.cos(U1) * np.cos(U2) * sinl / ss
        cos2a = 1 - sina ** 2
        c2m = cs - 2 * np.sin(U1) * np.sin(U2) / cos2a if cos2a != 0 else 0.0
        C = fl / 16 * cos2a * (4 + fl * (4 - 3 * cos2a))
        prev, lam = lam, L + (1 - C) * fl * sina * (sig + C * ss * (c2m + C * cs * (-1 + 2 * c2m ** 2)))
        if abs(lam - prev) < 1e-12:
            break
    u2 = cos2a * (a ** 2 - b ** 2) / b ** 2
    A = 1 + u2 / 16384 * (4096 + u2 * (-768 + u2 * (320 - 175 * u2)))
    B = u2 / 1024 * (256 + u2 * (-128 + u2 * (74 - 47 * u2)))
    ds = B * ss * (c2m + B / 4 * (cs * (-1 + 2 * c2m ** 2) - B / 6 * c2m * (-3 + 4 * ss ** 2) * (-3 + 4 * c2m ** 2)))
    return b * A * (sig - ds)
def f(x):
    return vincenty(x[0], x[1], radians(52.2), x[2]) / 6.4e6
"""
