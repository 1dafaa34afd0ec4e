/* Three programs of tests/loops/programs.py with their gradients, as written by hand. */
#include <math.h>
#include <stdlib.h>

/* Four operations on three numbers, `steps` times; room has 3 * steps numbers. */
double chain(const double *start, long steps, double *grad, double *room) {
    double x[3] = {start[0], start[1], start[2]};
    for (long t = 0; t < steps; t++)
        for (int k = 0; k < 3; k++) {
            room[3 * t + k] = x[k];
            x[k] = sin(x[k]) * 0.9 + x[k] * 0.1;
        }
    double g[3] = {1, 1, 1};
    for (long t = steps - 1; t >= 0; t--)
        for (int k = 0; k < 3; k++) g[k] *= cos(room[3 * t + k]) * 0.9 + 0.1;
    for (int k = 0; k < 3; k++) grad[k] = g[k];
    return x[0] + x[1] + x[2];
}

/* GARCH(1,1): parameters p, `steps` returns; room has `steps` numbers. */
double garch(const double *p, const double *seen, long steps, double *grad, double *room) {
    double rest = 1 - p[1] - p[2], var = p[0] / rest, total = 0;
    for (long t = 0; t < steps; t++) {
        double r2 = seen[t] * seen[t];
        room[t] = var;
        total += log(var) + r2 / var;
        var = p[0] + p[1] * r2 + p[2] * var;
    }
    double g = 0, g0 = 0, g1 = 0, g2 = 0;
    for (long t = steps - 1; t >= 0; t--) {
        double r2 = seen[t] * seen[t], v = room[t];
        g0 += g;
        g1 += g * r2;
        g2 += g * v;
        g = g * p[2] + (1 - r2 / v) / v;
    }
    grad[0] = g0 + g / rest;
    grad[1] = g1 + g * p[0] / (rest * rest);
    grad[2] = g2 + g * p[0] / (rest * rest);
    return total;
}

static void slope(const double *x, const double *p, double *d) {
    d[0] = p[0] * x[0] - p[1] * x[0] * x[1];
    d[1] = p[2] * x[0] * x[1] - p[3] * x[1];
}

/* What d(slope) gives back to x and p. */
static void slope_back(const double *x, const double *p, const double *g, double *gx, double *gp) {
    gx[0] += g[0] * (p[0] - p[1] * x[1]) + g[1] * p[2] * x[1];
    gx[1] += -g[0] * p[1] * x[0] + g[1] * (p[2] * x[0] - p[3]);
    gp[0] += g[0] * x[0];
    gp[1] -= g[0] * x[0] * x[1];
    gp[2] += g[1] * x[0] * x[1];
    gp[3] -= g[1] * x[1];
}

/* Lotka-Volterra by Runge and Kutta's method; room has 8 * steps numbers. */
double rk4(const double *p, long steps, double *grad, double *room) {
    double h = 5.0 / steps, x[2] = {1.0, 0.5}, w[4] = {h / 6, h / 3, h / 3, h / 6};
    double c[4] = {0, h / 2, h / 2, h};
    for (long t = 0; t < steps; t++) {
        double k[4][2], next[2] = {x[0], x[1]};
        for (int s = 0; s < 4; s++) {
            double *y = room + 8 * t + 2 * s;
            for (int i = 0; i < 2; i++) y[i] = s ? x[i] + c[s] * k[s - 1][i] : x[i];
            slope(y, p, k[s]);
            for (int i = 0; i < 2; i++) next[i] += w[s] * k[s][i];
        }
        x[0] = next[0], x[1] = next[1];
    }
    double g[2] = {2 * x[0], 2 * x[1]}, gp[4] = {0, 0, 0, 0};
    for (long t = steps - 1; t >= 0; t--) {
        double gx[2] = {g[0], g[1]}, gk[4][2];
        for (int s = 0; s < 4; s++)
            for (int i = 0; i < 2; i++) gk[s][i] = w[s] * g[i];
        for (int s = 3; s >= 0; s--) {
            double gy[2] = {0, 0};
            slope_back(room + 8 * t + 2 * s, p, gk[s], gy, gp);
            for (int i = 0; i < 2; i++) {
                gx[i] += gy[i];
                if (s) gk[s - 1][i] += c[s] * gy[i];
            }
        }
        g[0] = gx[0], g[1] = gx[1];
    }
    for (int i = 0; i < 4; i++) grad[i] = gp[i];
    return x[0] * x[0] + x[1] * x[1];
}
