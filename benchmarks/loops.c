/* Value and gradients by hand, as one would write them for speed: what a compiler of gradients is
   measured against. Rows are shared out by OpenMP; exp, tanh, log and erf are libmvec's where the
   compiler vectorises them (-Ofast). Each returns the value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* mean((gelu_tanh(x + b) - y)^2) and its gradients in x and b */
double gelu(const float *x, const float *b, const float *y, float *dx, float *db, long rows, long cols) {
    double total = 0.0;
    const float scale = 2.0f / ((float)rows * (float)cols);
    memset(db, 0, cols * sizeof(float));
#pragma omp parallel reduction(+ : total)
    {
        float *mine = calloc(cols, sizeof(float));
#pragma omp for schedule(static)
        for (long i = 0; i < rows; i++) {
            float sum = 0.0f;
            const float *xi = x + i * cols, *yi = y + i * cols;
            float *di = dx + i * cols;
            for (long j = 0; j < cols; j++) {
                float z = xi[j] + b[j];
                float t = tanhf(0.7978845608f * (z + 0.044715f * z * z * z));
                float r = 0.5f * z * (1.0f + t) - yi[j];
                float slope = 0.5f * (1.0f + t)
                    + 0.5f * z * (1.0f - t * t) * 0.7978845608f * (1.0f + 0.134145f * z * z);
                sum += r * r;
                di[j] = scale * r * slope;
                mine[j] += di[j];
            }
            total += sum;
        }
#pragma omp critical
        for (long j = 0; j < cols; j++) db[j] += mine[j];
        free(mine);
    }
    return total / ((double)rows * (double)cols);
}

/* sum(x * rsqrt(mean(x^2) + 1e-6) * w * y) and its gradients in x and w */
double rmsnorm(const float *x, const float *w, const float *y, float *dx, float *dw, long rows, long cols) {
    double total = 0.0;
    memset(dw, 0, cols * sizeof(float));
#pragma omp parallel reduction(+ : total)
    {
        float *mine = calloc(cols, sizeof(float));
#pragma omp for schedule(static)
        for (long i = 0; i < rows; i++) {
            const float *xi = x + i * cols, *yi = y + i * cols;
            float *di = dx + i * cols;
            float square = 0.0f, dot = 0.0f;
            for (long j = 0; j < cols; j++) square += xi[j] * xi[j];
            float r = 1.0f / sqrtf(square / cols + 1e-6f);
            for (long j = 0; j < cols; j++) dot += xi[j] * w[j] * yi[j];
            float k = dot * r * r * r / cols;
            for (long j = 0; j < cols; j++) {
                di[j] = r * w[j] * yi[j] - k * xi[j];
                mine[j] += xi[j] * r * yi[j];
            }
            total += dot * r;
        }
#pragma omp critical
        for (long j = 0; j < cols; j++) dw[j] += mine[j];
        free(mine);
    }
    return total;
}

/* the mean cross-entropy of rows of logits, and its gradient */
double cross_entropy(const float *x, const long *t, float *dx, long rows, long cols) {
    double total = 0.0;
#pragma omp parallel for schedule(static) reduction(+ : total)
    for (long i = 0; i < rows; i++) {
        const float *xi = x + i * cols;
        float *di = dx + i * cols;
        float top = xi[0], sum = 0.0f;
        for (long j = 1; j < cols; j++) top = xi[j] > top ? xi[j] : top;
        for (long j = 0; j < cols; j++) {
            di[j] = expf(xi[j] - top);
            sum += di[j];
        }
        float scale = 1.0f / (sum * rows);
        for (long j = 0; j < cols; j++) di[j] *= scale;
        di[t[i]] -= 1.0f / rows;
        total += logf(sum) - (xi[t[i]] - top);
    }
    return total / rows;
}

/* call prices and their gradients in spot, strike, time and volatility */
double black_scholes(const double *s, const double *k, const double *t, const double *v, double *ds,
                     double *dk, double *dt, double *dv, long n) {
    double total = 0.0;
#pragma omp parallel for schedule(static) reduction(+ : total)
    for (long i = 0; i < n; i++) {
        double q = sqrt(t[i]), root = v[i] * q;
        double d1 = (log(s[i] / k[i]) + (0.02 + v[i] * v[i] / 2) * t[i]) / root, d2 = d1 - root;
        double c1 = 0.5 * (1.0 + erf(d1 * 0.7071067811865476));
        double c2 = 0.5 * (1.0 + erf(d2 * 0.7071067811865476));
        double discount = k[i] * exp(-0.02 * t[i]);
        double density = s[i] * 0.3989422804014327 * exp(-0.5 * d1 * d1);
        total += s[i] * c1 - discount * c2;
        ds[i] = c1;
        dk[i] = -c2 * discount / k[i];
        dv[i] = density * q;
        dt[i] = density * v[i] / (2 * q) + 0.02 * discount * c2;
    }
    return total;
}
