/* cusolver.cu - see kernel/cuda/cusolver.h. */
#include "device/library.h"
#include "kernel/cuda/cusolver_private.h"

#include <dlfcn.h>
#include <stdio.h>

enum { BLOCK = 256, MOST_DEVICES = 64, MOST_ROWS = 30000 };

/* ---- the library */

sk_solver_calls sk_solver;
static sk_solver_device devices[MOST_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;

static void *open_file(void)
{
    static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"};
    static const char *const places[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
    char path[128];
    for (const char *name : names)
        for (const char *place : places) {
            snprintf(path, sizeof path, "%s%s", place, name);
            void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (so) return so;
        }
    return NULL;
}

static sk_status open_library(void)
{
    const struct {
        void *to;
        const char *name;
    } calls[] = {
        {&sk_solver.version, "cusolverGetVersion"},
        {&sk_solver.create, "cusolverDnCreate"},
        {&sk_solver.set_stream, "cusolverDnSetStream"},
        {&sk_solver.eigen_size, "cusolverDnDsyevd_bufferSize"},
        {&sk_solver.eigen, "cusolverDnDsyevd"},
        {&sk_solver.factor_size, "cusolverDnDpotrf_bufferSize"},
        {&sk_solver.factor, "cusolverDnDpotrf"},
        {&sk_solver.solve, "cusolverDnDpotrs"},
    };
    if (is_open) return SK_OK;
    void *so = open_file();
    if (!so)
        return sk_fail(
            SK_ECONF,
            "cuSOLVER: libcusolver.so.12 (or .11) is found neither by the loader nor in "
            "/usr/local/cuda/lib64; optimizers with eigenvectors or inverses need it on a "
            "GPU: install cuSOLVER of CUDA 13, or name its folder in LD_LIBRARY_PATH");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *f = dlsym(so, calls[i].name);
        if (!f)
            return sk_fail(SK_ECONF, "cuSOLVER: the library has no %s; CUDA 12 or 13 is needed",
                           calls[i].name);
        memcpy(calls[i].to, &f, sizeof f);
    }
    for (sk_solver_device &d : devices) pthread_mutex_init(&d.lock, NULL);
    is_open = true;
    return SK_OK;
}

sk_status sk_solver_failed(const char *what, int status)
{
    return sk_fail(SK_EIO, "cuSOLVER: %s failed with status %d", what, status);
}

sk_status sk_solver_cuda_failed(const char *what, cudaError_t e)
{
    (void)cudaGetLastError();
    return sk_fail(SK_EIO, "cuSOLVER: %s failed: %s (%s)", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
}

void sk_solver_about(bool open, sk_device_library *out)
{
    Dl_info where;
    int v = 0;
    out->name = "cuSOLVER";
    out->use = "eigenvectors and inverses, which some optimizers need";
    pthread_mutex_lock(&lock);
    sk_status st = is_open || open ? open_library() : SK_OK;
    out->here = is_open;
    pthread_mutex_unlock(&lock);
    if (st) {
        snprintf(out->why, sizeof out->why, "%s", sk_error_line());
        sk_error_set("");
    }
    if (!out->here || sk_solver.version(&v)) return;
    snprintf(out->version, sizeof out->version, "%d.%d.%d", v / 1000, v / 100 % 10, v % 100);
    if (dladdr((void *)sk_solver.eigen, &where))
        snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
}

sk_status sk_solver_begin(sk_solver_device **out)
{
    int number = 0;
    cudaError_t e = cudaGetDevice(&number);
    if (e != cudaSuccess) return sk_solver_cuda_failed("asking for the device", e);
    if (number >= MOST_DEVICES)
        return sk_fail(SK_ECONF, "cuSOLVER: device %d; %d are possible", number, MOST_DEVICES);
    pthread_mutex_lock(&lock);
    sk_status st = open_library();
    pthread_mutex_unlock(&lock);
    if (st) return st;
    sk_solver_device *d = &devices[number];
    pthread_mutex_lock(&d->lock);
    int made = d->h ? 0 : sk_solver.create(&d->h);
    if (made) pthread_mutex_unlock(&d->lock);
    *out = d;
    return made ? sk_solver_failed("cusolverDnCreate", made) : SK_OK;
}

sk_status sk_solver_end(sk_solver_device *d, sk_status st)
{
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* ---- scratch */

/* At least so many bytes of the device's own. */
static sk_status more(sk_solver_device *d, size_t bytes, cudaStream_t s)
{
    if (bytes <= d->more_bytes) return SK_OK;
    cudaError_t e = cudaStreamSynchronize(s);
    if (e == cudaSuccess && d->more) e = cudaFree(d->more);
    d->more = NULL;
    d->more_bytes = 0;
    if (e == cudaSuccess) e = cudaMalloc((void **)&d->more, bytes);
    if (e != cudaSuccess) return sk_solver_cuda_failed("allocating its scratch", e);
    d->more_bytes = bytes;
    return SK_OK;
}

sk_status sk_solver_room(sk_solver_device *d, size_t own, size_t work, const sk_launch *l,
                         char **at, double **work_at)
{
    bool fits = own + work <= l->workspace_bytes, half = own <= l->workspace_bytes;
    if (!fits) SK_TRY(more(d, half ? work : own + work, (cudaStream_t)l->stream));
    *at = half ? l->workspace : d->more;
    *work_at = (double *)(fits || !half ? *at + own : d->more);
    return SK_OK;
}

/* The matrix, eigenvalues and flags, then what cuSOLVER asks for. */
typedef struct room {
    sk_cuda_eigen result;
    double *work;
    int lwork;
} room;

static sk_status room_of(sk_solver_device *d, int64_t n, const sk_launch *l, room *r)
{
    size_t matrix = sk_solver_lines((size_t)(n * n) * sizeof(double));
    size_t own = matrix + sk_solver_lines((size_t)n * 8 + 8);
    char *at;
    if (n > MOST_ROWS)
        return sk_fail(SK_ECONF, "cuSOLVER: a matrix of %lld rows; %d are possible", (long long)n,
                       MOST_ROWS);
    int st = sk_solver.eigen_size(d->h, SK_EIG_MODE_VECTOR, SK_FILL_MODE_UPPER, (int)n, NULL,
                                  (int)n, NULL, &r->lwork);
    if (st) return sk_solver_failed("cusolverDnDsyevd_bufferSize", st);
    SK_TRY(sk_solver_room(d, own, (size_t)r->lwork * sizeof(double), l, &at, &r->work));
    r->result =
        sk_cuda_eigen{(double *)(at + matrix), (double *)at, (int *)(at + matrix + (size_t)n * 8)};
    return SK_OK;
}

/* ---- the matrix on its way in and out */

static __global__ void __launch_bounds__(BLOCK) look(sk_any x, int64_t from, int64_t n, int *bad)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n * n;
         i += (int64_t)gridDim.x * BLOCK)
        if (i % n <= i / n && !isfinite(sk_get(x, from + i))) bad[0] = 1;
}

static __global__ void __launch_bounds__(BLOCK)
    load(sk_any x, int64_t from, int64_t n, const int *bad, double *a)
{
    bool zero = bad[0];
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n * n;
         i += (int64_t)gridDim.x * BLOCK) {
        int64_t r = i / n, c = i % n;
        a[i] = zero ? 0 : (double)sk_get(x, from + (c <= r ? i : c * n + r));
    }
}

/* A block for an eigenvector: the largest magnitude, the first place near it, and its sign. */
static __global__ void __launch_bounds__(BLOCK) fix_sign(double *vector, int64_t n)
{
    __shared__ double most[BLOCK];
    __shared__ int64_t first[BLOCK];
    double *row = vector + blockIdx.x * n;
    int t = (int)threadIdx.x;
    most[t] = 0;
    for (int64_t i = t; i < n; i += BLOCK) most[t] = fmax(most[t], fabs(row[i]));
    for (int k = BLOCK / 2; k; k /= 2) {
        __syncthreads();
        if (t < k) most[t] = fmax(most[t], most[t + k]);
    }
    __syncthreads();
    first[t] = n;
    for (int64_t i = t; i < n && first[t] == n; i += BLOCK)
        if (fabs(row[i]) >= (1 - SK_EIGEN_TIE) * most[0]) first[t] = i;
    for (int k = BLOCK / 2; k; k /= 2) {
        __syncthreads();
        if (t < k && first[t + k] < first[t]) first[t] = first[t + k];
    }
    __syncthreads();
    bool turn = first[0] < n && row[first[0]] < 0;
    __syncthreads(); /* all have read it */
    for (int64_t i = t; turn && i < n; i += BLOCK) row[i] = -row[i];
}

/* Rows here are columns there: the lower triangle is the upper one, and eigenvectors are rows. */
static sk_status solve(sk_solver_device *d, const char *op, sk_any x, int64_t from, int64_t n,
                       const sk_launch *l, sk_cuda_eigen *out)
{
    room r;
    cudaStream_t s = (cudaStream_t)l->stream;
    unsigned blocks = sk_cuda_blocks(n * n, BLOCK);
    SK_TRY(room_of(d, n, l, &r));
    *out = r.result;
    cudaError_t e = cudaMemsetAsync(out->bad, 0, 2 * sizeof *out->bad, s);
    if (e != cudaSuccess) return sk_solver_cuda_failed("clearing its flags", e);
    look<<<blocks, BLOCK, 0, s>>>(x, from, n, out->bad);
    load<<<blocks, BLOCK, 0, s>>>(x, from, n, out->bad, out->vector);
    SK_TRY(sk_cuda_launched(op));
    int st = sk_solver.set_stream(d->h, s);
    if (!st)
        st = sk_solver.eigen(d->h, SK_EIG_MODE_VECTOR, SK_FILL_MODE_UPPER, (int)n, out->vector,
                             (int)n, out->value, r.work, r.lwork, out->bad + 1);
    if (st) return sk_solver_failed("cusolverDnDsyevd", st);
    fix_sign<<<(unsigned)n, BLOCK, 0, s>>>(out->vector, n);
    return sk_cuda_launched(op);
}

sk_status sk_cuda_eigen_of(const char *op, sk_any x, int64_t from, int64_t n, const sk_launch *l,
                           sk_cuda_eigen *out)
{
    sk_solver_device *d;
    SK_TRY(sk_solver_begin(&d));
    return sk_solver_end(d, solve(d, op, x, from, n, l, out));
}

sk_status sk_cuda_eigen_prepare(int64_t n, const sk_launch *l)
{
    sk_solver_device *d;
    room r;
    if (!n) return SK_OK;
    SK_TRY(sk_solver_begin(&d));
    return sk_solver_end(d, room_of(d, n, l, &r));
}
