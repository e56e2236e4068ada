/* cuda_slots.h - the GPU's side of slots.h: rows of tokens to and from the slots of experts.
 *
 * Slots may be i32 or of any float type.  A group of threads takes a row; each of them has its
 * packs of columns and works out by itself where the row lies: a division of 32 bits a row.
 *
 * Scattering goes from the slot's side, so that each row of the bank is written once and sums have
 * the order of tokens: sk_slot_mark notes for each row of the bank its first choice and how many it
 * has. With one, which is all that route makes, the row is a copy; with more, the other choices of
 * the sequence are looked through.  A row of the bank has the same sum wherever the bank is cut.
 *
 * Gathering in canonical order goes by the reduction blocks of e, as slots.c does it. */
#ifndef SK_KERNEL_CUDA_SLOTS_H
#define SK_KERNEL_CUDA_SLOTS_H

#include "kernel/cuda/ordered_reduce.h"
#include "kernel/slots.h"

enum { SK_SLOT_BLOCK = 256, SK_SLOT_NONE = 0x7f7f7f7f }; /* the latter is what memset can write */

/* ---- slots one by one: the same as in slots.c */

static __device__ inline int sk_cuda_slot(sk_any slot, int64_t i)
{
    if (slot.type == SK_I32) return ((const int32_t *)slot.data)[i];
    float s = sk_get(slot, i);
    return s >= 0 && s < SK_MOST_SLOTS ? (int)s : -1;
}

static __device__ inline int sk_cuda_slot_expert(sk_any slot, int64_t i, int capacity, int experts)
{
    bool whole = slot.type == SK_I32;
    double s = whole ? (double)((const int32_t *)slot.data)[i] : (double)sk_get(slot, i);
    if (!(s > -SK_MOST_SLOTS && s < SK_MOST_SLOTS) || (s > -1 && s < 0)) return -1;
    int e = s < 0 ? (int)(-1 - s) : (int)s / capacity;
    return e < experts ? e : -1;
}

/* A bank "ebxc" or a shard of one; of its columns nothing is known here. */
typedef struct sk_bank {
    int sequences;
    int capacity;            /* of an expert, in all shards */
    int first, experts;      /* of this shard */
    int first_place, places; /* of this shard */
} sk_bank;

static inline sk_bank sk_bank_of(const sk_view *v)
{
    return sk_bank{(int)v->size[1], (int)v->full[2], (int)v->at[0],
                   (int)v->size[0], (int)v->at[2],   (int)v->size[2]};
}

static __device__ inline int64_t sk_cuda_slot_row(const sk_bank &k, int slot, int64_t b)
{
    if (slot < 0 || !k.capacity) return -1;
    int e = (int)((unsigned)slot / (unsigned)k.capacity);
    int place = slot - e * k.capacity - k.first_place;
    e -= k.first;
    if (e < 0 || e >= k.experts || place < 0 || place >= k.places) return -1;
    return ((int64_t)e * k.sequences + b) * k.places + place;
}

/* ---- how threads are dealt to rows of n columns, V at a time */

static inline dim3 sk_slot_block(int64_t n, int V)
{
    unsigned across = 32;
    while (across < SK_SLOT_BLOCK && (int64_t)across * V < n) across *= 2;
    return dim3(across, SK_SLOT_BLOCK / across);
}

/* Rows are counted in 32 bits: a division of 64 bits is a call, and every row needs some. */
static inline sk_status sk_slot_few(const char *op, int64_t rows, int64_t choices)
{
    if (rows <= INT32_MAX / 2 && choices <= INT32_MAX / 2) return SK_OK;
    return sk_fail(SK_ECONF, "%s: a bank of %lld rows and %lld choices, the CUDA kernel takes %d",
                   op, (long long)rows, (long long)choices, INT32_MAX / 2);
}

/* ---- scattering */

typedef struct sk_scatter {
    sk_bank bank;
    sk_any slot, gate;              /* gate.data NULL: 1 */
    int time, choices, in_sequence; /* in_sequence: choices of a sequence */
    int64_t cols;
    int from, to; /* rows of the bank that this round is about */
    int *first, *count;
} sk_scatter;

/* The result of these atomics does not depend on who is first. */
template <int N> static __global__ void __launch_bounds__(N) sk_slot_mark(sk_scatter j)
{
    unsigned i = blockIdx.x * N + threadIdx.x, b = i / (unsigned)j.in_sequence;
    if (b >= (unsigned)j.bank.sequences) return;
    int64_t row = sk_cuda_slot_row(j.bank, sk_cuda_slot(j.slot, i), b);
    if (row < j.from || row >= j.to) return;
    atomicMin(&j.first[row - j.from], (int)(i - b * (unsigned)j.in_sequence));
    atomicAdd(&j.count[row - j.from], 1);
}

/* v += gate * x of choice k of sequence b. */
template <typename T, int V>
static __device__ inline void sk_scatter_one(const sk_scatter &j, const T *x, unsigned b,
                                             unsigned k, int64_t c, float *v)
{
    float in[V];
    unsigned token = b * (unsigned)j.time + k / (unsigned)j.choices;
    float w = j.gate.data ? sk_get(j.gate, (int64_t)b * j.in_sequence + k) : 1;
    sk_load<V>(x + token * j.cols + c, in);
#pragma unroll
    for (int e = 0; e < V; e++) v[e] += w * in[e];
}

template <typename T, int V>
static __global__ void __launch_bounds__(SK_SLOT_BLOCK)
    sk_fill(sk_scatter j, const T *__restrict__ x, T *__restrict__ bank)
{
    unsigned r = blockIdx.x * blockDim.y + threadIdx.y, row = (unsigned)j.from + r;
    if (row >= (unsigned)j.to) return;
    unsigned b = row / (unsigned)j.bank.places % (unsigned)j.bank.sequences;
    int count = j.count[r], first = j.first[r];
    for (int64_t c = (int64_t)threadIdx.x * V; c < j.cols; c += (int64_t)blockDim.x * V) {
        float v[V] = {0};
        int left = count - 1;
        if (count) sk_scatter_one<T, V>(j, x, b, (unsigned)first, c, v);
        for (int k = first + 1; left > 0; k++) {
            int slot = sk_cuda_slot(j.slot, (int64_t)b * j.in_sequence + k);
            if (sk_cuda_slot_row(j.bank, slot, b) != row) continue;
            sk_scatter_one<T, V>(j, x, b, (unsigned)k, c, v);
            left--;
        }
        sk_store<V>(bank + row * j.cols + c, v);
    }
}

/* As many rows of the bank at a time as the workspace has place to mark. */
template <typename T, int V>
static sk_status sk_scatter_rounds(const char *op, sk_scatter j, const void *x, const sk_view *bank,
                                   const sk_launch *l)
{
    cudaStream_t s = (cudaStream_t)l->stream;
    int64_t rows = sk_span(bank, 0, 3), most = (int64_t)(l->workspace_bytes / (2 * sizeof(int)));
    int64_t n = (int64_t)j.bank.sequences * j.in_sequence;
    dim3 block = sk_slot_block(j.cols, V);
    SK_TRY(sk_slot_few(op, rows, n));
    for (j.from = 0; j.from < rows; j.from = j.to) {
        j.to = (int)(rows - j.from < most ? rows : j.from + most);
        size_t bytes = (size_t)(j.to - j.from) * sizeof(int);
        j.first = (int *)l->workspace;
        j.count = j.first + (j.to - j.from);
        cudaMemsetAsync(j.first, 0x7f, bytes, s);
        cudaMemsetAsync(j.count, 0, bytes, s);
        if (n)
            sk_slot_mark<SK_SLOT_BLOCK>
                <<<sk_cuda_blocks(n, SK_SLOT_BLOCK), SK_SLOT_BLOCK, 0, s>>>(j);
        sk_fill<T, V><<<sk_cuda_blocks(j.to - j.from, block.y), block, 0, s>>>(j, (const T *)x,
                                                                               (T *)bank->data);
    }
    return sk_cuda_launched(op);
}

/* bank[slot] = the sum of gate * x; gate NULL: 1. */
template <typename T>
static sk_status sk_cuda_scatter(const char *op, const sk_view *x, const sk_view *slot,
                                 const sk_view *gate, const sk_view *bank, const sk_launch *l)
{
    sk_scatter j = {};
    j.bank = sk_bank_of(bank);
    j.slot = sk_any_of(slot);
    if (gate) j.gate = sk_any_of(gate);
    j.time = (int)slot->size[1];
    j.choices = (int)slot->size[2];
    j.in_sequence = j.time * j.choices;
    j.cols = bank->size[3];
    if (!sk_count(bank)) return SK_OK;
    bool packs =
        !(((uintptr_t)x->data | (uintptr_t)bank->data) % 16) && !((size_t)j.cols * sizeof(T) % 16);
    return packs ? sk_scatter_rounds<T, sk_pack<T>()>(op, j, x->data, bank, l)
                 : sk_scatter_rounds<T, 1>(op, j, x->data, bank, l);
}

/* ---- gathering */

typedef struct sk_gather {
    sk_bank bank;
    sk_any slot, gate;
    int tokens, time, choices;
    int64_t cols;
} sk_gather;

template <typename T, int V>
static __global__ void __launch_bounds__(SK_SLOT_BLOCK)
    sk_collect(sk_gather j, const T *__restrict__ bank, T *__restrict__ y)
{
    unsigned t = blockIdx.x * blockDim.y + threadIdx.y, b = t / (unsigned)j.time;
    if (t >= (unsigned)j.tokens) return;
    for (int64_t c = (int64_t)threadIdx.x * V; c < j.cols; c += (int64_t)blockDim.x * V) {
        float v[V] = {0}, in[V];
#pragma unroll 2
        for (int k = 0; k < j.choices; k++) {
            int64_t i = (int64_t)t * j.choices + k;
            int64_t row = sk_cuda_slot_row(j.bank, sk_cuda_slot(j.slot, i), b);
            if (row < 0) continue;
            float w = j.gate.data ? sk_get(j.gate, i) : 1;
            sk_load<V>(bank + row * j.cols + c, in);
#pragma unroll
            for (int e = 0; e < V; e++) v[e] += w * in[e];
        }
        sk_store<V>(y + t * j.cols + c, v);
    }
}

enum { SK_SLOT_CHOICES = 64 }; /* of a token, in canonical order */

/* A token's choices that are here, by reduction block, and in their order inside of one. */
typedef struct sk_terms {
    int n, row[SK_SLOT_CHOICES], cell[SK_SLOT_CHOICES];
    float gate[SK_SLOT_CHOICES];

    __device__ inline void add(int new_row, int new_cell, float new_gate)
    {
        int at = n++;
        for (; at && cell[at - 1] > new_cell; at--)
            row[at] = row[at - 1], cell[at] = cell[at - 1], gate[at] = gate[at - 1];
        row[at] = new_row, cell[at] = new_cell, gate[at] = new_gate;
    }

    __device__ inline sk_terms(const sk_gather &j, const sk_borders &experts, unsigned t) : n(0)
    {
        for (int k = 0; k < j.choices; k++) {
            int64_t i = (int64_t)t * j.choices + k;
            int slot = sk_cuda_slot(j.slot, i), in_cell = 0;
            int64_t at = sk_cuda_slot_row(j.bank, slot, t / (unsigned)j.time);
            if (at < 0) continue;
            while (slot / j.bank.capacity - j.bank.first >= experts.at[in_cell + 1]) in_cell++;
            add((int)at, in_cell, j.gate.data ? sk_get(j.gate, i) : 1);
        }
    }
} sk_terms;

template <int N>
static __global__ void __launch_bounds__(N)
    sk_collect_ordered(sk_gather j, const __grid_constant__ sk_borders experts, const float *bank,
                       float *y)
{
    unsigned t = blockIdx.x * blockDim.y + threadIdx.y;
    if (t >= (unsigned)j.tokens) return;
    sk_terms terms(j, experts, t);
    for (int64_t c = threadIdx.x; c < j.cols; c += blockDim.x) {
        sk_branches<1> tree;
        float sum = 0; /* from 0: no -0 */
        for (int k = 0; k < terms.n; k++) {
            sum = fmaf(terms.gate[k], bank[terms.row[k] * j.cols + c], sum);
            if (k + 1 < terms.n && terms.cell[k + 1] == terms.cell[k]) continue;
            tree.add(terms.cell[k], &sum);
            sum = 0;
        }
        tree.end(&sum);
        y[t * j.cols + c] = sum;
    }
}

static inline sk_status sk_gather_ordered(const char *op, const sk_gather *j, const sk_view *bank,
                                          const sk_view *y, cudaStream_t s)
{
    dim3 block = sk_slot_block(j->cols, 1);
    if (j->choices > SK_SLOT_CHOICES)
        return sk_fail(SK_ECONF,
                       "%s: %d choices of a token, in canonical order the CUDA kernel takes %d", op,
                       j->choices, SK_SLOT_CHOICES);
    sk_collect_ordered<SK_SLOT_BLOCK><<<sk_cuda_blocks(j->tokens, block.y), block, 0, s>>>(
        *j, sk_borders_of(bank, 0, 1), (const float *)bank->data, (float *)y->data);
    return sk_cuda_launched(op);
}

/* y = the sum of gate * bank[slot] over a token's choices, in their order; gate NULL: 1. */
template <typename T>
static sk_status sk_cuda_gather(const char *op, const sk_view *bank, const sk_view *slot,
                                const sk_view *gate, const sk_view *y, const sk_launch *l)
{
    SK_TRY(sk_slot_few(op, sk_span(bank, 0, 3), sk_count(slot)));
    sk_gather j = {};
    j.bank = sk_bank_of(bank);
    j.slot = sk_any_of(slot);
    j.time = (int)slot->size[1];
    j.tokens = (int)slot->size[0] * j.time;
    j.choices = (int)slot->size[2];
    j.cols = y->size[2];
    if (gate) j.gate = sk_any_of(gate);
    if (!sk_count(y)) return SK_OK;
    if (bank->cells[0]) return sk_gather_ordered(op, &j, bank, y, (cudaStream_t)l->stream);
    bool packs =
        !(((uintptr_t)y->data | (uintptr_t)bank->data) % 16) && !((size_t)j.cols * sizeof(T) % 16);
    dim3 block = sk_slot_block(j.cols, packs ? sk_pack<T>() : 1);
    unsigned grid = sk_cuda_blocks(j.tokens, block.y);
    cudaStream_t s = (cudaStream_t)l->stream;
    const T *from = (const T *)bank->data;
    if (packs) sk_collect<T, sk_pack<T>()><<<grid, block, 0, s>>>(j, from, (T *)y->data);
    else sk_collect<T, 1><<<grid, block, 0, s>>>(j, from, (T *)y->data);
    return sk_cuda_launched(op);
}

#endif
