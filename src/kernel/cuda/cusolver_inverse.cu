/* cusolver_inverse.cu - see kernel/cuda/cusolver.h.
 *
 * In double, though f32 would do for the damping that is usual: a GPU of 67 TFLOP/s in either
 * type waits for launches at these sizes, and results then agree with the CPU's to a rounding of
 * f32 however small the damping is.  The inverse is solved for with the identity on the right
 * (potrs): products of blocks, where potri goes triangle by triangle. */
#include "kernel/cholesky.h"
#include "kernel/cuda/cusolver_private.h"

enum { BLOCK = 256 };

/* On the device. */
typedef struct measure {
    double trace;
    unsigned most; /* bits of an f32, not negative: ordered as integers are */
    int bad, info;
} measure;

typedef struct job {
    sk_any x;
    int64_t from, n;
    double attr[2];
    double *a, *inverse;
    measure *m;
} job;

static __global__ void __launch_bounds__(BLOCK) look(const job j)
{
    unsigned most = 0;
    bool bad = false;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.n * j.n;
         i += (int64_t)gridDim.x * BLOCK) {
        float v = i % j.n <= i / j.n ? fabsf(sk_get(j.x, j.from + i)) : 0;
        bad |= !isfinite(v);
        most = max(most, __float_as_uint(v));
    }
    most = __reduce_max_sync(~0u, most);
    if (bad) j.m->bad = 1;
    if (threadIdx.x % 32 == 0) atomicMax(&j.m->most, most);
}

/* One block, in a fixed order. */
static __global__ void __launch_bounds__(BLOCK) add_trace(const job j)
{
    __shared__ double part[BLOCK];
    int t = (int)threadIdx.x;
    part[t] = 0;
    for (int64_t i = t; i < j.n; i += BLOCK) part[t] += sk_get(j.x, j.from + i * (j.n + 1));
    for (int k = BLOCK / 2; k; k /= 2) {
        __syncthreads();
        if (t < k) part[t] += part[t + k];
    }
    if (t == 0) j.m->trace = part[0];
}

/* The damped matrix and the right sides; one that is not finite is replaced by the identity. */
static __global__ void __launch_bounds__(BLOCK) load(const job j, int attempt)
{
    double d = sk_damping_of(j.attr, j.n, j.m->trace, __uint_as_float(j.m->most), attempt);
    bool bad = j.m->bad;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < j.n * j.n;
         i += (int64_t)gridDim.x * BLOCK) {
        int64_t r = i / j.n, c = i % j.n;
        double x = bad ? 0 : (double)sk_get(j.x, j.from + (c <= r ? i : c * j.n + r));
        j.a[i] = r != c ? x : bad ? 1 : x + d;
        j.inverse[i] = r == c;
    }
}

typedef struct room {
    double *work;
    int lwork;
} room;

static sk_status room_of(sk_solver_device *d, const sk_launch *l, job *j, room *r)
{
    size_t matrix = sk_solver_lines((size_t)(j->n * j->n) * sizeof(double));
    char *at;
    int st = sk_solver.factor_size(d->h, SK_FILL_MODE_UPPER, (int)j->n, NULL, (int)j->n, &r->lwork);
    if (st) return sk_solver_failed("cusolverDnDpotrf_bufferSize", st);
    SK_TRY(sk_solver_room(d, 2 * matrix + sk_solver_lines(sizeof(measure)),
                          (size_t)r->lwork * sizeof(double), l, &at, &r->work));
    j->inverse = (double *)at;
    j->a = (double *)(at + matrix);
    j->m = (measure *)(at + 2 * matrix);
    return SK_OK;
}

/* Is there a factorisation?  Waits for it.  Rows here are columns there. */
static sk_status factorise(sk_solver_device *d, const job *j, const room *r, int attempt,
                           cudaStream_t s, bool *found)
{
    int info = 0, n = (int)j->n;
    load<<<sk_cuda_blocks(j->n * j->n, BLOCK), BLOCK, 0, s>>>(*j, attempt);
    int st = sk_solver.factor(d->h, SK_FILL_MODE_UPPER, n, j->a, n, r->work, r->lwork, &j->m->info);
    if (st) return sk_solver_failed("cusolverDnDpotrf", st);
    cudaError_t e = cudaMemcpyAsync(&info, &j->m->info, sizeof info, cudaMemcpyDeviceToHost, s);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s);
    if (e != cudaSuccess) return sk_solver_cuda_failed("waiting for cusolverDnDpotrf", e);
    *found = !info;
    return SK_OK;
}

static sk_status solve(sk_solver_device *d, const char *op, job *j, const sk_launch *l)
{
    room r;
    cudaStream_t s = (cudaStream_t)l->stream;
    int n = (int)j->n;
    bool found = false;
    SK_TRY(room_of(d, l, j, &r));
    cudaError_t e = cudaMemsetAsync(j->m, 0, sizeof *j->m, s);
    if (e != cudaSuccess) return sk_solver_cuda_failed("clearing its flags", e);
    look<<<sk_cuda_blocks(j->n * j->n, BLOCK), BLOCK, 0, s>>>(*j);
    add_trace<<<1, BLOCK, 0, s>>>(*j);
    SK_TRY(sk_cuda_launched(op));
    int st = sk_solver.set_stream(d->h, s);
    if (st) return sk_solver_failed("cusolverDnSetStream", st);
    for (int k = 0; k < SK_DAMPING_TRIES && !found; k++) SK_TRY(factorise(d, j, &r, k, s, &found));
    if (found)
        st = sk_solver.solve(d->h, SK_FILL_MODE_UPPER, n, n, j->a, n, j->inverse, n, &j->m->info);
    return st ? sk_solver_failed("cusolverDnDpotrs", st) : SK_OK;
}

sk_status sk_cuda_inverse_of(const char *op, sk_any x, int64_t from, int64_t n, const double *attr,
                             const sk_launch *l, sk_cuda_inverse *out)
{
    sk_solver_device *d;
    job j = {x, from, n, {attr[0], attr[1]}, NULL, NULL, NULL};
    SK_TRY(sk_solver_begin(&d));
    sk_status st = solve(d, op, &j, l);
    if (!st) *out = sk_cuda_inverse{j.inverse, &j.m->bad};
    return sk_solver_end(d, st);
}

sk_status sk_cuda_inverse_prepare(int64_t n, const sk_launch *l)
{
    sk_solver_device *d;
    job j = {};
    room r;
    j.n = n;
    if (!n) return SK_OK;
    SK_TRY(sk_solver_begin(&d));
    return sk_solver_end(d, room_of(d, l, &j, &r));
}
