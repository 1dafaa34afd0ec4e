"""Programs of scientists' notebooks: one for each section of two guides, in their order.

The sections are those of scipy's tutorial (special to ndimage) and of numpy's user guide (basics and
how-tos). Each is what the section shows, made a function `f(x)` of three numbers with a scalar
result.
"""

from __future__ import annotations

PROGRAMS = """
--- special: bessel functions of a drum
from scipy import special
def f(x):
    theta, radius = np.linspace(0, 2 * np.pi, 5), np.linspace(0, 1, 6)
    kth = special.jn_zeros(1, 2)[-1]
    z = np.array([np.cos(t) * special.jv(1, radius * kth * x[0]) for t in theta])
    return np.sum(z ** 2) + special.gamma(x[1]) * special.erf(x[2])
--- special: cross entropy
from scipy.special import xlogy, expit, entr, rel_entr
def f(x):
    p = expit(x)
    return -np.sum(xlogy(np.array([0., 1., 1.]), p)) + np.sum(entr(p)) + np.sum(rel_entr(p, 1 - p))
--- integrate: quad of a parameter
from scipy.integrate import quad
def integrand(t, a, b):
    return a * t ** 2 + np.exp(-b * t)
def f(x):
    value, error = quad(integrand, 0, 1, args=(x[0], x[1]))
    return value * x[2]
--- integrate: samples
from scipy.integrate import simpson, trapezoid, cumulative_trapezoid
def f(x):
    t = np.linspace(0.0, 2.0, 21)
    y = np.exp(-x[0] * t) * np.cos(x[1] * t)
    return simpson(y, x=t) + trapezoid(y ** 2, t) + cumulative_trapezoid(y, t, initial=0)[-1] * x[2]
--- integrate: a pendulum by odeint
from scipy.integrate import odeint
def pend(y, t, b, c):
    theta, omega = y
    return [omega, -b * omega - c * np.sin(theta)]
def f(x):
    t = np.linspace(0, 1, 5)
    sol = odeint(pend, [np.pi - 0.1, 0.0], t, args=(x[0], x[1]), rtol=1e-10, atol=1e-12)
    return np.sum(sol[:, 0] * x[2])
--- integrate: lotka and volterra by solve_ivp
from scipy.integrate import solve_ivp
def f(x):
    def rhs(t, z):
        a, b = z
        return [x[0] * a - a * b, x[1] * a * b - b]
    sol = solve_ivp(rhs, (0, 1), [1.0, x[2]], t_eval=np.linspace(0, 1, 4), rtol=1e-10, atol=1e-12)
    return np.sum(sol.y ** 2)
--- optimize: rosenbrock
from scipy.optimize import rosen
def f(x):
    return rosen(x) + np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0)
--- optimize: a root
from scipy.optimize import root
def f(x):
    def fun(z):
        return [z[0] * np.cos(z[1]) - 4 * x[0], z[1] * z[0] - z[1] - 5 * x[1]]
    sol = root(fun, [6.5, 0.9], tol=1e-13)
    return np.sum(sol.x) * x[2]
--- optimize: brentq
from scipy.optimize import brentq
def f(x):
    return brentq(lambda z: z ** 3 - x[0] * z - x[1], 0.5, 3.0, xtol=1e-14) * x[2]
--- optimize: fixed point of kepler's equation
from scipy.optimize import newton
def f(x):
    E = newton(lambda E: E - 0.3 * x[0] * np.sin(E) - x[1], 1.0, tol=1e-13)
    return np.tan(E / 2) * x[2]
--- optimize: least squares of a decay
from scipy.optimize import least_squares
T = np.linspace(0, 2, 9)
def f(x):
    data = x[0] * np.exp(-x[1] * T) + 0.01 * np.cos(5 * T)
    res = least_squares(lambda p: p[0] * np.exp(-p[1] * T) - data, [1.0, 1.0],
                        xtol=1e-14, ftol=1e-14, gtol=1e-14)
    return np.sum(res.x) * x[2]
--- optimize: curve_fit
from scipy.optimize import curve_fit
T = np.linspace(0, 2, 9)
def f(x):
    popt, pcov = curve_fit(lambda t, a, b: a * np.exp(-b * t), T, x[0] * np.exp(-x[1] * T) + 0.1)
    return popt[0] * popt[1]
--- optimize: an inner minimum
from scipy.optimize import minimize
def f(x):
    res = minimize(lambda z: np.sum((z - x[:2]) ** 2) + z[0] ** 4, np.zeros(2), tol=1e-12)
    return res.x[0] * x[2]
--- optimize: assignment
from scipy.optimize import linear_sum_assignment
def f(x):
    cost = np.outer(x, [4.0, 1.0, 3.0]) + np.eye(3)
    row, col = linear_sum_assignment(cost)
    return cost[row, col].sum()
--- interpolate: linear and cubic in one dimension
from scipy.interpolate import CubicSpline, interp1d
def f(x):
    t = np.linspace(0, 10, 11)
    y = np.cos(-t ** 2 / 9.0 * x[0])
    return np.sum(CubicSpline(t, y)(np.linspace(0.2, 9, 7))) + interp1d(t, y)(3.3) * x[1]
--- interpolate: monotone
from scipy.interpolate import PchipInterpolator
def f(x):
    y = np.cumsum(np.array([0.0, x[0] ** 2, x[1] ** 2, x[2] ** 2]))
    return np.sum(PchipInterpolator(np.arange(4.0), y)(np.array([0.4, 1.2, 2.7])))
--- interpolate: a regular grid
from scipy.interpolate import RegularGridInterpolator
X0, Y0 = np.linspace(0, 3, 7), np.linspace(0, 2, 5)
TABLE = np.sin(X0)[:, None] * np.cos(Y0)[None, :]
def f(x):
    interp = RegularGridInterpolator((X0, Y0), TABLE)
    return np.sum(interp(np.stack([x, x[::-1]], axis=1))) * x[0]
--- interpolate: radial basis functions
from scipy.interpolate import RBFInterpolator
SITES = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.4, 0.6]])
def f(x):
    d = np.concatenate([x, x[:2] ** 2])
    return np.sum(RBFInterpolator(SITES, d, kernel="thin_plate_spline")(np.array([[0.3, 0.2]])))
--- interpolate: a smoothing spline's derivative
from scipy.interpolate import make_interp_spline
def f(x):
    t = np.linspace(0, 5, 8)
    spline = make_interp_spline(t, np.sin(t * x[0]) + x[1], k=3)
    return np.sum(spline(np.array([1.1, 2.2]))) + spline.derivative()(2.5) * x[2]
--- fft: two sines
from scipy.fft import rfft, rfftfreq
def f(x):
    t = np.linspace(0.0, 1.0, 32, endpoint=False)
    y = np.sin(10.0 * 2 * np.pi * t * x[0]) + 0.5 * np.sin(4.0 * 2.0 * np.pi * t * x[1])
    power = np.abs(rfft(y)) ** 2
    return np.sum(rfftfreq(32, 1 / 32) * power) / np.sum(power) * x[2]
--- fft: cosines
from scipy.fft import dct, idct
def f(x):
    c = dct(np.concatenate([x, x ** 2]), norm="ortho")
    return np.sum(idct(c * np.array([1, 1, 1, .5, .2, 0.]), norm="ortho") ** 2)
--- signal: convolution and a filter
from scipy import signal
def f(x):
    win = signal.windows.hann(5)
    filtered = signal.convolve(np.concatenate([x, x * 2, x ** 2]), win, mode="same") / sum(win)
    b, a = signal.butter(3, 0.2)
    return np.sum(signal.lfilter(b, a, filtered) ** 2)
--- signal: forwards and backwards
from scipy import signal
def f(x):
    sos = signal.butter(2, 0.3, output="sos")
    y = np.concatenate([np.sin(np.arange(20) * x[0]), x])
    return np.sum(signal.sosfiltfilt(sos, y) * np.linspace(0, 1, 23))
--- signal: a detrended spectrum
from scipy import signal
def f(x):
    t = np.arange(32) / 32
    y = signal.detrend(np.sin(2 * np.pi * 5 * t * x[0]) + x[1] * t)
    freq, power = signal.periodogram(y, fs=32)
    return np.sum(power * freq) * x[2]
--- signal: welch
from scipy import signal
def f(x):
    y = np.cos(np.arange(64) * x[0]) + x[1] * np.sin(0.3 * np.arange(64))
    freq, power = signal.welch(y, nperseg=32)
    return np.sum(np.log(power + 1e-3)) * x[2]
--- linalg: solving and least squares
from scipy import linalg
def f(x):
    A = np.array([[1, 3, 5], [2, 5, 1], [2, 3, 8]]) + np.diag(x)
    sol = linalg.solve(A, np.array([10, 8, 3]))
    p, res, rank, s = linalg.lstsq(np.vstack([np.ones(3), x]).T, np.array([1.0, 2.0, 2.5]))
    return np.sum(sol) + p[1]
--- linalg: determinant, inverse, norm
from scipy import linalg
def f(x):
    A = np.array([[1, 2.0], [3, 4]]) * x[0] + x[1] * np.eye(2)
    return linalg.det(A) + np.sum(linalg.inv(A)) + linalg.norm(A, 1) + linalg.norm(A) * x[2]
--- linalg: eigenvalues
from scipy import linalg
def f(x):
    A = np.array([[1, 5, 2], [5, 4, 1], [2, 1, 2.0]]) + np.outer(x, x)
    la, v = linalg.eigh(A)
    return la[0] * la[2] + abs(v[0, 0])
--- linalg: decompositions
from scipy import linalg
def f(x):
    A = np.outer(x, x) + np.diag([3.0, 2.0, 1.0])
    L = linalg.cholesky(A, lower=True)
    q, r = linalg.qr(A)
    u, s, vh = linalg.svd(A)
    p, l, up = linalg.lu(A)
    return np.sum(L ** 3) + np.sum(np.abs(r)) + s[0] * s[1] + np.sum(up ** 2)
--- linalg: functions of matrices
from scipy import linalg
def f(x):
    A = np.outer(x, x) + np.diag([3.0, 2.0, 1.0])
    return np.trace(linalg.expm(0.1 * A)) + np.sum(linalg.sqrtm(A)) + np.sum(linalg.logm(A))
--- linalg: special matrices
from scipy import linalg
def f(x):
    T = linalg.toeplitz(np.concatenate([x, np.zeros(2)]))
    blocks = linalg.block_diag(T, np.outer(x, x))
    return np.sum(T @ T) + np.sum(blocks ** 2) + linalg.circulant(x)[0, 1]
--- sparse: a laplacian
import scipy.sparse as sparse
from scipy.sparse.linalg import spsolve
def f(x):
    n = 6
    L = sparse.diags([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], [-1, 0, 1], format="csc")
    u = spsolve(L + x[0] * sparse.eye(n, format="csc"), np.concatenate([x, x ** 2]))
    return u @ (L @ u)
--- sparse: arrays by places
import scipy.sparse as sparse
def f(x):
    places = (np.array([0, 1, 2, 0, 1, 2]), np.array([0, 1, 2, 2, 0, 1]))
    A = sparse.coo_array((np.concatenate([x, x]), places), shape=(3, 3))
    return np.sum((A.tocsr() @ x) ** 2) + A.sum()
--- numpy: shortest paths by hand
def f(x):
    G = np.array([[0.0, 7, 9], [7, 0, 10], [9, 10, 0]]) * np.exp(np.outer(x, x))
    D = G
    for k in range(3):
        D = np.minimum(D, D[:, k:k + 1] + D[k:k + 1, :])
    return np.sum(D)
--- spatial: distances
from scipy.spatial.distance import cdist, pdist, squareform
def f(x):
    P = np.stack([x, x ** 2, np.cos(x)], axis=1)
    return np.sum(cdist(P, P + 1.0)) + np.sum(pdist(P, "sqeuclidean")) + squareform(pdist(P))[0, 2]
--- spatial: rotations by hand
def f(x):
    c, s = np.cos(x[0]), np.sin(x[0])
    R = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return np.sum(R @ np.array([1.0, x[1], 2.0]) * x)
--- stats: likelihood of a normal sample
from scipy import stats
DATA = np.array([1.2, 0.7, 2.2, 1.9, 0.3])
def f(x):
    return -np.sum(stats.norm.logpdf(DATA, loc=x[0], scale=x[1])) + stats.norm.cdf(x[2])
--- stats: gamma and t
from scipy import stats
DATA = np.array([1.2, 0.7, 2.2, 1.9, 0.3])
def f(x):
    return (np.sum(stats.gamma.logpdf(DATA, a=x[0] + 1, scale=x[1]))
            + stats.t.logpdf(x[2], df=x[0] + 3) + stats.expon.logsf(x[1]) + stats.beta.logpdf(0.4, x[0] + 1, x[2]))
--- stats: discrete
from scipy import stats
def f(x):
    return np.sum(stats.poisson.logpmf([1, 2, 0, 4], x[0])) + stats.binom.logpmf(3, 5, x[1])
--- stats: descriptive
from scipy import stats
def f(x):
    y = np.concatenate([x, x ** 2])
    moments = stats.skew(y) + stats.kurtosis(y) + stats.sem(y)
    return moments + stats.gmean(x) + np.sum(stats.zscore(y) ** 3)
--- stats: t test and correlation
from scipy import stats
B = np.array([0.4, 1.9, 0.8, 2.1])
def f(x):
    r, p = stats.pearsonr(np.concatenate([x, [0.5]]), B)
    t = stats.ttest_ind(np.concatenate([x, [0.1]]), B)
    return r * x[0] + t.statistic
--- stats: regression
from scipy import stats
def f(x):
    res = stats.linregress(np.array([0.0, 1.0, 2.5]), x)
    return res.slope + res.intercept ** 2 + res.rvalue
--- stats: kernel density
from scipy import stats
def f(x):
    kde = stats.gaussian_kde(x)
    return np.sum(kde(np.array([0.2, 0.9])))
--- stats: multivariate normal
from scipy import stats
def f(x):
    cov = np.outer(x, x) + np.eye(3)
    return stats.multivariate_normal.logpdf(x ** 2, mean=x, cov=cov)
--- ndimage: filters
from scipy import ndimage
IMAGE = np.sin(np.arange(48.0)).reshape(6, 8)
def f(x):
    image = IMAGE * x[0] + x[1]
    smooth = ndimage.gaussian_filter(image, 1.0)
    edges = ndimage.sobel(smooth, axis=0) + ndimage.uniform_filter(image, 3)
    return np.sum((edges + ndimage.laplace(image)) ** 2) * x[2]
--- ndimage: coordinates
from scipy import ndimage
IMAGE = np.sin(np.arange(48.0)).reshape(6, 8)
def f(x):
    places = np.stack([x + 1.0, x * 2 + 1.0])
    found = ndimage.map_coordinates(IMAGE, places, order=1)
    return np.sum(found) + ndimage.shift(IMAGE * x[0], 1)[2, 2]
--- numpy: creation
def f(x):
    a = np.array([[1, 2], [3, 4]]) * x[0]
    b = np.linspace(0, 1, 4) * x[1] + np.arange(4) + np.full(4, x[2])
    return a.sum() + np.diag(b).trace() + np.vander(x, 3).sum() + np.eye(3)[1] @ x
--- numpy: indexing
def f(x):
    y = np.outer(x, np.arange(1.0, 6.0))
    rows = np.array([0, 2])
    return y[0, -1] + y[rows[:, np.newaxis], [1, 3]].sum() + y[:, 1::2].sum() + y[y > 1.0].sum()
--- numpy: assigning
def f(x):
    y = np.zeros((3, 4))
    y[0], y[1:, 2], y[[1, 2], [0, 1]] = x[0], x[1:], x[:2]
    y[y == 0] = x[2]
    return np.sum(y ** 2)
--- numpy: broadcasting
def f(x):
    observation, codes = np.array([111.0, 188.0]) / 100, np.outer(x, [1.0, 2.0])
    diff = codes - observation
    dist = np.sqrt(np.sum(diff ** 2, axis=-1))
    return dist[np.argmin(dist)] + dist.sum()
--- numpy: structured records as columns
def f(x):
    table = np.zeros(3, dtype=[("mass", "f8"), ("n", "i4")])
    table["mass"], table["n"] = [1.0, 2.0, 3.0], [1, 2, 2]
    return np.sum(table["mass"] * x ** table["n"])
--- numpy: a linear regression by its normal equations
def f(x):
    X = np.column_stack([np.ones(5), np.arange(5.0)])
    y = X @ x[:2] + x[2] * np.sin(np.arange(5.0))
    beta = np.linalg.inv(X.T @ X) @ X.T @ y
    return np.mean((y - X @ beta) ** 2) + beta[1]
--- numpy: svd of an image
def f(x):
    image = np.sin(np.outer(np.arange(1.0, 6.0), x))
    U, s, Vt = np.linalg.svd(image, full_matrices=False)
    approx = U[:, :2] @ np.diag(s[:2]) @ Vt[:2, :]
    return np.linalg.norm(image - approx) + s.sum()
--- numpy: a julia set of escape times
def f(x):
    z, total = x[0] + 1j * x[1], 0.0
    for _ in range(5):
        z = z ** 2 * 0.3 + (0.1 + 0.2j) * x[2]
        total = total + abs(z)
    return total
--- numpy: a network with two layers
rng = np.random.default_rng(1)
W1, W2 = rng.standard_normal((4, 3)), rng.standard_normal((2, 4))
def f(x):
    hidden = np.maximum(W1 @ x, 0)
    out = W2 @ hidden
    softmax = np.exp(out - out.max()) / np.sum(np.exp(out - out.max()))
    return -np.log(softmax[1])
--- numpy: moving averages
def f(x):
    y = np.concatenate([x, x[::-1], x ** 2])
    windows = np.lib.stride_tricks.sliding_window_view(y, 3)
    smooth = np.convolve(y, np.ones(3) / 3, mode="valid")
    return np.sum(windows.mean(axis=-1) * smooth) + np.cumsum(y)[-1]
--- numpy: percentiles and histograms
def f(x):
    y = np.sort(np.concatenate([x, x * 2, x + 1]))
    of = np.digitize(0.9, np.arange(5))
    return np.percentile(y, [25, 75]).sum() + np.median(y) + np.ptp(y) + y[of]
--- numpy: polynomials
def f(x):
    p = np.polynomial.Polynomial([1.0, 2.0, 3.0])
    return p(x[0]) + np.polyval(x, 2.0) + np.polynomial.chebyshev.chebval(0.3, x)
--- numpy: tensors by einsum
def f(x):
    A = np.einsum("i,j,k->ijk", x, x ** 2, np.cos(x))
    return np.einsum("iik->k", A).sum() + np.tensordot(A, A, axes=3) + np.kron(x, x)[4]
--- numpy: game of averages
def f(x):
    grid = np.pad(np.outer(x, x), 1, mode="wrap")
    for _ in range(3):
        rows = np.roll(grid, 1, 0) + np.roll(grid, -1, 0)
        grid = 0.25 * (rows + np.roll(grid, 1, 1) + np.roll(grid, -1, 1))
    return np.sum(grid[1:-1, 1:-1] ** 2)
--- numpy: a report of a fit
def f(x):
    residuals = np.array([1.0, 2.0, 2.5]) - x * 1.1
    rss = float(np.sum(residuals ** 2))
    summary = {"rss": rss, "aic": 3 * np.log(rss / 3) + 4}
    text = ", ".join(f"{k}={v:.3f}" for k, v in summary.items())
    assert len(text) > 5
    return summary["aic"]
"""
