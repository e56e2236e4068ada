/* embedding_samples.cu - the GPU half of embedding_samples.c: a thread has a sample and a column,
 * and adds the rows of the sample in order. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 128 };

typedef struct job {
    const int32_t *id;
    int64_t n, words, cols, first, all; /* ids of a sample; threads */
    sk_any out;
} job;

template <typename T> static __global__ void __launch_bounds__(BLOCK) add_ids(const T *dy, job j)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t o = (int64_t)blockIdx.x * BLOCK + threadIdx.x; o < j.all; o += stride) {
        int64_t b = o / j.cols, c = o % j.cols;
        for (int64_t i = b * j.n; i < (b + 1) * j.n; i++) {
            int64_t row = j.id[i] - j.first;
            if (row < 0 || row >= j.words) continue;
            int64_t at = (b * j.words + row) * j.cols + c;
            sk_put(j.out, at, sk_get(j.out, at) + (float)dy[i * j.cols + c]);
        }
    }
}

template <typename T> static sk_status typed(const sk_args *a, const sk_launch *l)
{
    const sk_view *table = &a->out[0];
    cudaStream_t s = (cudaStream_t)l->stream;
    size_t bytes = (size_t)sk_count(table) * sk_dtype_size(table->type);
    job j = {(const int32_t *)a->in[1].data,
             sk_span(&a->in[1], 1, a->in[1].n),
             table->size[1],
             table->size[2],
             table->at[1],
             table->size[0] * table->size[2],
             sk_any_of(table)};
    if (!bytes) return SK_OK;
    (void)cudaMemsetAsync(table->data, 0, bytes, s);
    add_ids<T><<<sk_cuda_blocks(j.all, BLOCK), BLOCK, 0, s>>>((const T *)a->in[0].data, j);
    return sk_cuda_launched("embedding_samples");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_embedding_samples = {"embedding_samples", launch};
