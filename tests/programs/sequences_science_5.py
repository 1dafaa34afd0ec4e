"""Programs of scientists' notebooks: series and fits, labels, quantum evolution, slopes of fits.

Each is a function `f(x)` of three numbers with a scalar result. `change()`, where there is one,
changes what the program reads, as the next cell of a notebook does.
"""

from __future__ import annotations

PROGRAMS = """
--- a polynomial fit, as poly1d has it
import numpy as np
t = np.linspace(0, 3, 12)
def f(x):
    y = x[0] * np.sin(t) + x[1] * t
    q = np.poly1d(np.polyfit(t, y, 3))
    r = q * np.poly1d([1.0, -x[2]]) + q
    return r(0.5) + q.deriv()(0.2) + np.sum(np.trim_zeros(np.array([0.0, x[0], x[1], 0.0])))
--- chebyshev and other series, fitted and integrated
import numpy as np
from numpy.polynomial import Chebyshev, Legendre, Polynomial, chebyshev
t = np.linspace(-1, 1, 15)
def f(x):
    c = chebyshev.chebfit(t, np.exp(-x[0] * t ** 2), 4)
    s = Chebyshev.fit(t + x[1], np.sin(x[0] * t), 5)
    q = Polynomial([x[1], 2.0, x[0]])
    return np.sum(chebyshev.chebval(t, c) ** 2) + s.deriv()(0.2) + (q * q).integ()(x[2]) + Legendre(x)(0.3)
def change():
    t[0] = -0.9
--- clusters, counted by their labels
import numpy as np
rs = np.random.RandomState(0)
X = rs.randn(20, 2)
def f(x):
    centres = np.array([[x[0], x[1]], [-x[1], x[2]]])
    d = ((X[:, None] - centres[None]) ** 2).sum(-1)
    label = d.argmin(axis=1)
    count = np.bincount(label, minlength=2)
    inside = np.bincount(label, weights=d.min(axis=1), minlength=2)
    return np.sum(inside / (count + 1)) + np.bincount(label).max()
def change():
    X[:] = X[::-1] * 1.1
--- evolution of a chain of spins
import numpy as np
from scipy.linalg import expm, logm, sqrtm
sx, sz, one = np.array([[0, 1], [1, 0.0]]), np.diag([1.0, -1.0]), np.eye(2)
start = np.arange(1, 5) / np.sqrt(30) * np.exp(1j * np.arange(4))
def f(x):
    H = x[0] * np.kron(sz, sz) + x[1] * (np.kron(sx, one) + np.kron(one, sx))
    U = expm(-1j * x[2] * H)
    end = U @ start
    M = 3.0 * np.eye(2) + 1j * x[0] * sx + x[1] * sz
    rest = logm(M).imag.sum() + sqrtm(M).real.sum()
    return np.real(np.vdot(end, np.kron(sz, one) @ end)) + rest
--- a fit by its gradient, of which the next step makes use
import numpy as np
from scipy.optimize import minimize
import gradof
rs = np.random.RandomState(1)
A, labels = rs.randn(25, 2), np.sign(rs.randn(25))
def nll(b, A, labels, ridge):
    return np.sum(np.logaddexp(0, -labels * (A @ b))) + ridge * b @ b
def f(x):
    fit = minimize(nll, np.zeros(2), jac=gradof.grad(nll), args=(A, labels, x[0]), options={'gtol': 1e-11})
    return fit.x @ fit.x + x[1] * fit.fun + x[2]
--- a likelihood with math, and what it is where there is none
import math
import numpy as np
data = np.array([0.4, 1.2, 2.2])
def log_density(value, shape, scale):
    try:
        return (shape - 1) * math.log(value) - value / scale - shape * math.log(scale) - math.lgamma(shape)
    except ValueError:
        return -50.0
def f(x):
    return sum(log_density(d - x[0], x[1], x[2]) for d in data)
def change():
    data[0] = -0.5
--- distances and ages of a universe, by quad
import numpy as np
from scipy.integrate import quad, odeint
z = np.array([0.1, 0.4, 0.9])
def E(z, om, w):
    return np.sqrt(om * (1 + z) ** 3 + (1 - om) * (1 + z) ** (3 * (1 + w)))
def f(x):
    d = np.array([(1 + zi) * quad(lambda s: 1 / E(s, x[0], -x[1]), 0, zi)[0] for zi in z])
    age = quad(lambda s, om: 1 / ((1 + s) * E(s, om, -1.0)), 0, np.inf, args=(x[2] / 2,))[0]
    growth = odeint(lambda y, t, om: [y[1], -2 * y[1] + 1.5 * om * y[0]], [1.0, 1.0], [0, 0.5, 1.0], args=(x[0],))
    return np.sum(np.log(d)) + age + growth[-1, 0]
def change():
    z[1] = 0.5
"""
