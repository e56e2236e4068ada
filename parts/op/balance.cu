/* balance.cu - the GPU half of balance.c: in double, like there.
 *
 * A warp takes a stretch of a sequence and adds up, in its own part of the workspace, the
 * probabilities of each expert and how often it was the first choice.  A block a sequence adds up
 * the stretches, and one block the sequences, all in a fixed order.  In canonical order a sequence
 * has stretches by its length alone, and sequences are added up by the reduction blocks of b. */
#include "kernel/cuda/ordered_reduce.h"
#include "kernel/cuda/cuda_experts.h"

enum { BLOCK = 32 * SK_ROW_WARPS, WARPS = 2048, LEAST = 32, MOST = 32 };
/* warps in all; the least tokens of one; the most stretches of a sequence in canonical order */

typedef struct job {
    sk_any logit;
    int64_t sequences, time;
    int experts, stretches; /* of a sequence */
    double *part;           /* [sequences][stretches][2][experts]: probabilities, first choices */
    double *sum;            /* [sequences] */
} job;

static __device__ void add_token(const job &j, int64_t token, double *mass)
{
    int64_t at = token * j.experts;
    sk_choice first = sk_first_choice(j.logit, at, j.experts);
    double sum = 0;
    for (int e = (int)threadIdx.x; e < j.experts; e += 32)
        sum += (double)expf(sk_get(j.logit, at + e) - first.logit);
    sum = sk_row_sum<1>(sum);
    for (int e = (int)threadIdx.x; e < j.experts; e += 32) {
        mass[e] += (double)expf(sk_get(j.logit, at + e) - first.logit) / sum;
        if (e == first.expert) mass[j.experts + e] += 1;
    }
}

static __global__ void __launch_bounds__(BLOCK) weigh(job j)
{
    for (SK_EACH_ROW(i, j.sequences * j.stretches)) {
        int64_t b = i / j.stretches, k = i % j.stretches;
        double *mass = j.part + i * 2 * j.experts;
        for (int e = (int)threadIdx.x; e < 2 * j.experts; e += 32) mass[e] = 0;
        __syncwarp();
        for (int64_t t = j.time * k / j.stretches; t < j.time * (k + 1) / j.stretches; t++)
            add_token(j, b * j.time + t, mass);
    }
}

static __global__ void __launch_bounds__(BLOCK) sequence(job j)
{
    double all = 0;
    for (int e = (int)threadIdx.x; e < j.experts; e += BLOCK) {
        double mass = 0, firsts = 0;
        for (int k = 0; k < j.stretches; k++) {
            const double *part = j.part + ((int64_t)blockIdx.x * j.stretches + k) * 2 * j.experts;
            mass += part[e];
            firsts += part[j.experts + e];
        }
        all += firsts * mass;
    }
    all = sk_row_sum<SK_ROW_WARPS>(all);
    if (threadIdx.x == 0) j.sum[blockIdx.x] = all * (double)j.experts / (double)j.time;
}

static __global__ void __launch_bounds__(BLOCK)
    finish(job j, double coefficient, sk_any y, bool add)
{
    double all = 0;
    for (int64_t b = threadIdx.x; b < j.sequences; b += BLOCK) all += j.sum[b];
    all = sk_row_sum<SK_ROW_WARPS>(all);
    if (threadIdx.x == 0) sk_put(y, 0, (add ? sk_get(y, 0) : 0) + (float)(coefficient * all));
}

/* In canonical order: a thread for each reduction block. */
static __global__ void __launch_bounds__(SK_REDUCTION_BLOCKS_MAX)
    finish_cells(job j, double coefficient, const __grid_constant__ sk_borders cells, sk_any y,
                 bool add)
{
    __shared__ float part[SK_REDUCTION_BLOCKS_MAX];
    double all = 0;
    int c = (int)threadIdx.x;
    for (int64_t b = c < cells.n ? cells.at[c] : 0; c < cells.n && b < cells.at[c + 1]; b++)
        all += j.sum[b];
    part[c] = (float)(coefficient * all);
    __syncthreads();
    if (c == 0) sk_put(y, 0, (add ? sk_get(y, 0) : 0) + sk_ordered_sum(part, 1, cells.n));
}

/* How a sequence is cut, and where its parts lie. */
static sk_status job_of(const sk_view *x, const sk_launch *l, job *j)
{
    j->logit = sk_any_of(x);
    j->sequences = x->size[0], j->time = x->size[1], j->experts = (int)x->size[2];
    int64_t one = j->sequences * 2 * j->experts + j->sequences; /* numbers, with one stretch */
    int64_t most = (int64_t)(l->workspace_bytes / sizeof(double)),
            n = WARPS / (j->sequences + 1) + 1;
    bool canonical = x->cells[0];
    if (canonical) n = MOST;
    if (n > j->time / LEAST + 1) n = j->time / LEAST + 1;
    if (one > most || j->sequences > INT32_MAX || (canonical && one * n > most))
        return sk_fail(SK_ECONF, "balance: %lld sequences with %d experts, too many for the GPU",
                       (long long)j->sequences, j->experts);
    if (one && n > most / one) n = most / one;
    j->stretches = (int)n;
    j->sum = (double *)l->workspace;
    j->part = j->sum + j->sequences;
    return SK_OK;
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    job j = {};
    SK_TRY(job_of(&a->in[0], l, &j));
    cudaStream_t s = (cudaStream_t)l->stream;
    if (j.sequences) {
        weigh<<<sk_row_grid<1>(j.sequences * j.stretches), sk_row_block<1>(), 0, s>>>(j);
        sequence<<<(unsigned)j.sequences, BLOCK, 0, s>>>(j);
    }
    if (a->in[0].cells[0])
        finish_cells<<<1, SK_REDUCTION_BLOCKS_MAX, 0, s>>>(
            j, a->attr[0], sk_borders_of(&a->in[0], 0, 1), sk_any_of(&a->out[0]), a->add & 1);
    else finish<<<1, BLOCK, 0, s>>>(j, a->attr[0], sk_any_of(&a->out[0]), a->add & 1);
    return sk_cuda_launched("balance");
}

extern "C" const sk_kernel sk_kernel_balance = {"balance", launch};
