/* xent_curvature.cu - the GPU half of xent_curvature.c: a block has a row, and each of its threads
 * some classes that follow each other, so that sums over them are in the order of the classes. */
#include "base/rng.h"
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

typedef struct job {
    const void *x;
    void *y;
    sk_any weight, scale;
    sk_view rows;
    int64_t n, n_rows, place;
    int k; /* class, or -1 */
    uint64_t seed;
} job;

/* The largest, or the sum, over all threads. */
static __device__ float meet(float x, bool most, float *all)
{
    __syncthreads();
    all[threadIdx.x] = x;
    for (int half = BLOCK / 2; half; half /= 2) {
        __syncthreads();
        float y = threadIdx.x < (unsigned)half ? all[threadIdx.x + half] : 0;
        if (threadIdx.x < (unsigned)half)
            all[threadIdx.x] = most ? fmaxf(all[threadIdx.x], y) : all[threadIdx.x] + y;
    }
    __syncthreads();
    return all[0];
}

/* The class at which the sum passes u: the thread that has it says so. */
template <typename T>
static __device__ int64_t draw(const job &j, const T *x, float most, float sum, int64_t row,
                               int64_t from, int64_t to, uint64_t step)
{
    __shared__ double before[BLOCK];
    __shared__ long long found;
    uint64_t stream = step * 1000003u + (uint64_t)j.place;
    double u = sk_rng_uniform(j.seed, stream, (uint64_t)sk_logical(&j.rows, row)), mine = 0;
    for (int64_t i = from; i < to; i++) mine += (double)(expf((float)x[i] - most) / sum);
    before[threadIdx.x] = mine;
    if (!threadIdx.x) found = j.n - 1;
    __syncthreads();
    double at = 0;
    for (int k = 0; k < (int)threadIdx.x; k++) at += before[k];
    if (at <= u && at + mine > u)
        for (int64_t i = from; i < to; i++) {
            at += (double)(expf((float)x[i] - most) / sum);
            if (at <= u) continue;
            found = i;
            break;
        }
    __syncthreads();
    return found;
}

template <typename T>
static __global__ void __launch_bounds__(BLOCK) columns(job j, const uint64_t *step)
{
    __shared__ float all[BLOCK];
    int64_t each = (j.n + BLOCK - 1) / BLOCK;
    int64_t from = min(each * threadIdx.x, j.n), to = min(from + each, j.n);
    for (int64_t r = blockIdx.x; r < j.n_rows; r += gridDim.x) {
        const T *x = (const T *)j.x + r * j.n;
        T *y = (T *)j.y + r * j.n;
        float most = -INFINITY, sum = 0;
        for (int64_t i = from; i < to; i++) most = fmaxf(most, (float)x[i]);
        most = meet(most, true, all);
        for (int64_t i = from; i < to; i++) sum += expf((float)x[i] - most);
        sum = meet(sum, false, all);
        int64_t k = j.k >= 0 ? j.k : draw(j, x, most, sum, r, from, to, *step);
        float part = j.k >= 0 ? expf((float)x[k] - most) / sum : 1;
        float size = sqrtf(part * sk_get(j.weight, r)) * sk_get(j.scale, 0);
        __syncthreads();
        for (int64_t i = from; i < to; i++)
            y[i] = (T)((expf((float)x[i] - most) / sum - (i == k)) * size);
    }
}

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    job j = {v->data, a->out[0].data, sk_any_of(&a->in[1]), sk_any_of(&a->in[2]), a->in[1]};
    j.n = v->size[v->n - 1], j.n_rows = sk_count(&a->in[1]);
    j.place = (int64_t)a->attr[1], j.k = (int)a->attr[0], j.seed = a->seed;
    if (!j.n_rows) return SK_OK;
    columns<T><<<sk_cuda_blocks(j.n_rows, 1), BLOCK, 0, (cudaStream_t)l->stream>>>(j, l->step);
    return sk_cuda_launched("xent_curvature");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_xent_curvature = {"xent_curvature", launch};
