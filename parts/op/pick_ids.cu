/* pick_ids.cu - the GPU half of pick_ids.c: a thread for each element of the result.  Threads of a
 * block read one row of words, at the places of neighbouring ids. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 256 };

typedef struct job {
    const int32_t *id;
    int64_t rows, cols, words, first, n; /* rows and ids of a sample; words that are here */
    sk_any out;
} job;

template <typename T> static __global__ void __launch_bounds__(BLOCK) pick(const T *x, job j)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < j.n; o += stride) {
        int64_t r = o / j.cols, at = j.id[r / j.rows * j.cols + o % j.cols] - j.first;
        bool mine = at >= 0 && at < j.words;
        sk_put(j.out, o, (mine ? (float)x[r * j.words + at] : 0.0f) + 0.0f);
    }
}

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    job j = {(const int32_t *)a->in[1].data,
             sk_span(v, 1, v->n - 1),
             sk_span(&a->in[1], 1, a->in[1].n),
             v->size[v->n - 1],
             v->at[v->n - 1],
             sk_count(&a->out[0]),
             sk_any_of(&a->out[0])};
    if (!j.n) return SK_OK;
    pick<T>
        <<<sk_cuda_blocks(j.n, BLOCK), BLOCK, 0, (cudaStream_t)l->stream>>>((const T *)v->data, j);
    return sk_cuda_launched("pick_ids");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_pick_ids = {"pick_ids", launch};
