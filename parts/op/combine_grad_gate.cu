/* combine_grad_gate.cu - the GPU half of combine_grad_gate.c: a warp a choice.  The row of the
 * expert and the token's gradient are read in packs; lanes meet in a fixed order.  A lane has a sum
 * for each element of a pack; where there is only one, because rows are not aligned, it is a
 * double: a sum of a thousand floats would be off in the fifth digit. */
#include "kernel/cuda/cuda_rows.h"
#include "kernel/cuda/cuda_slots.h"

#include <type_traits>

typedef struct job {
    sk_bank bank;
    sk_any slot, gate;
    int n, in_sequence, choices;
    int64_t cols;
} job;

template <typename T, int V>
static __global__ void __launch_bounds__(32 * SK_ROW_WARPS)
    gate_grad(job j, const T *__restrict__ bank, const T *__restrict__ dy)
{
    unsigned i = blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= (unsigned)j.n) return;
    unsigned b = i / (unsigned)j.in_sequence, token = i / (unsigned)j.choices;
    int64_t row = sk_cuda_slot_row(j.bank, sk_cuda_slot(j.slot, i), b);
    using wide = typename std::conditional<V == 1, double, float>::type;
    wide lane[V] = {0}, sum = 0;
    if (row >= 0) {
        sk_rows<T, V, 1, 2> both({dy + token * j.cols, bank + row * j.cols}, j.cols);
        both.pass([&](int64_t, const float(*v)[V], int count) {
#pragma unroll
            for (int e = 0; e < count; e++) lane[e] += (wide)v[0][e] * v[1][e];
        });
    }
#pragma unroll
    for (int e = 0; e < V; e++) sum += lane[e];
    sum = sk_row_sum<1>(sum);
    if (threadIdx.x == 0) sk_put(j.gate, i, (float)sum);
}

template <typename T> static sk_status run(const sk_args *a, cudaStream_t s)
{
    const sk_view *bank = &a->in[0], *dy = &a->in[1], *slot = &a->in[2];
    SK_TRY(sk_slot_few("combine_grad_gate", sk_span(bank, 0, 3), sk_count(slot)));
    job j = {};
    j.bank = sk_bank_of(bank);
    j.slot = sk_any_of(slot);
    j.gate = sk_any_of(&a->out[0]);
    j.n = (int)sk_count(slot);
    j.choices = (int)slot->size[2];
    j.in_sequence = (int)slot->size[1] * j.choices;
    j.cols = dy->size[2];
    bool packs =
        !(((uintptr_t)bank->data | (uintptr_t)dy->data) % 16) && !((size_t)j.cols * sizeof(T) % 16);
    unsigned grid = sk_row_grid<1>(j.n);
    if (!j.n) return SK_OK;
    if (packs)
        gate_grad<T, sk_pack<T>()>
            <<<grid, sk_row_block<1>(), 0, s>>>(j, (const T *)bank->data, (const T *)dy->data);
    else
        gate_grad<T, 1>
            <<<grid, sk_row_block<1>(), 0, s>>>(j, (const T *)bank->data, (const T *)dy->data);
    return sk_cuda_launched("combine_grad_gate");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    return SK_FLOAT(a->in[0].type, run<T>(a, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_combine_grad_gate = {"combine_grad_gate", launch};
