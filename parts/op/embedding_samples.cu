/* embedding_samples.cu - the GPU half of embedding_samples.c.  A block has one id of a sample: the
 * first of equal ones adds the rows of all of them, in order, and the others do nothing. */
#include "kernel/cuda/cuda.h"

enum { BLOCK = 128 };

typedef struct job {
    const int32_t *id;
    int64_t n, words, cols, first; /* ids of a sample; words that are here */
    sk_any out;
} job;

/* Is id[i] among those before it? */
static __device__ bool came_before(const int32_t *id, int64_t i)
{
    int found = 0;
    for (int64_t k = threadIdx.x; k < i; k += BLOCK) found |= id[k] == id[i];
    return __syncthreads_or(found);
}

template <typename T> static __global__ void __launch_bounds__(BLOCK) add_ids(const T *dy, job j)
{
    int64_t b = blockIdx.x / j.n, i = blockIdx.x % j.n;
    const int32_t *id = j.id + b * j.n;
    int64_t row = id[i] - j.first;
    if (row < 0 || row >= j.words || came_before(id, i)) return;
    for (int64_t c = threadIdx.x; c < j.cols; c += BLOCK) {
        float sum = 0;
        for (int64_t k = i; k < j.n; k++)
            if (id[k] == id[i]) sum += (float)dy[(b * j.n + k) * j.cols + c];
        sk_put(j.out, (b * j.words + row) * j.cols + c, sum);
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
             sk_any_of(table)};
    if (!bytes) return SK_OK;
    (void)cudaMemsetAsync(table->data, 0, bytes, s);
    int64_t blocks = table->size[0] * j.n;
    if (blocks) add_ids<T><<<(unsigned)blocks, BLOCK, 0, s>>>((const T *)a->in[0].data, j);
    return sk_cuda_launched("embedding_samples");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, typed<T>(a, l));
}

extern "C" const sk_kernel sk_kernel_embedding_samples = {"embedding_samples", launch};
