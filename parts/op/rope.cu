/* rope.cu - the GPU half of rope.c.
 *
 * A block takes up to four times at a time, of some sequences one after the other, and a strip of
 * the pairs: it makes a table of cosines and sines in shared memory, in double like the CPU, then
 * turns all heads by it.  Sequences mostly have the same positions, and then the same table.  A
 * thread keeps its pairs and goes over the heads of these rows. */
#include "kernel/cuda/map.h"
#include "kernel/rope.h"

enum { TABLE = 1024, TALL = 4, BLOCKS = 2112 }; /* pairs; times of a block; 16 an SM */

typedef struct job {
    const void *x;
    const int32_t *pos;
    void *y;
    int64_t batch, time;
    int64_t chunks, per; /* of time: `tall` each; sequences that a block takes of one */
    int heads, slots;    /* heads: of all slots */
    int d, strip;        /* elements of a head; pairs of a block */
    int tall;            /* times of a block */
    double attr[SK_ROPE_N_ATTR];
} job;

typedef struct table {
    double freq[TABLE];
    float cosine[TABLE], sine[TABLE];
    int32_t pos[TALL]; /* that it is of */
} table;

/* Angles of `tall` rows from `r` on; entry e is pair e % strip of row e / strip. */
static __device__ void make_table(const job &j, table *t, int64_t r, int tall, int me)
{
    if (me < tall) t->pos[me] = j.pos[r + me];
    for (int e = me; e < j.strip * tall; e += SK_MAP_BLOCK) {
        double s, c;
        sincos(j.pos[r + e / j.strip] * t->freq[e % j.strip], &s, &c);
        t->cosine[e] = (float)c;
        t->sine[e] = (float)s;
    }
}

static __device__ bool is_of(const job &j, const table *t, int64_t r, int tall)
{
    bool same = true;
    for (int i = 0; i < tall; i++) same &= t->pos[i] == j.pos[r + i];
    return same;
}

/* V pairs of one head: the first elements `at`, the others half a head later. */
template <typename T, int V>
static __device__ void turn(const job &j, int64_t at, const float *cosine, const float *sine)
{
    float p[V], q[V], a[V], b[V];
    sk_load<V>((const T *)j.x + at, p);
    sk_load<V>((const T *)j.x + at + j.d / 2, q);
#pragma unroll
    for (int e = 0; e < V; e++) {
        a[e] = p[e] * cosine[e] - q[e] * sine[e];
        b[e] = q[e] * cosine[e] + p[e] * sine[e];
    }
    sk_store<V>((T *)j.y + at, a);
    sk_store<V>((T *)j.y + at + j.d / 2, b);
}

template <typename T, int V> static __device__ void pass(const job &j, int64_t at)
{
    float p[V], q[V];
    sk_load<V>((const T *)j.x + at, p);
    sk_load<V>((const T *)j.x + at + j.d / 2, q);
    sk_store<V>((T *)j.y + at, p);
    sk_store<V>((T *)j.y + at + j.d / 2, q);
}

/* What turns of `tall` rows from `r` on, by the table: all slots of a head but the last, which
 * stays as it is and is copied, unless the result lies where the operand does. */
template <typename T, int V>
static __device__ void turn_rows(const job &j, const table *t, int64_t r, int tall)
{
    int first = (int)blockIdx.y * j.strip, end = min(j.strip, j.d / 2 - first);
    int slots = j.x == j.y ? j.slots - 1 : j.slots, wide = j.heads / j.slots * slots;
    for (int u = (int)threadIdx.y; u < tall * wide; u += (int)blockDim.y) {
        int row = u / wide, slot = u % wide % slots, head = u % wide / slots * j.slots + slot;
        for (int i = (int)threadIdx.x * V; i < end; i += (int)blockDim.x * V) {
            int64_t at = ((r + row) * j.heads + head) * j.d + first + i;
            const float *angle = t->cosine + row * j.strip + i;
            if (slot < j.slots - 1) turn<T, V>(j, at, angle, angle + TABLE);
            else pass<T, V>(j, at);
        }
    }
}

template <typename T, int V> static __global__ void __launch_bounds__(SK_MAP_BLOCK) rotate(job j)
{
    __shared__ table t;
    int me = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    for (int i = me; i < j.strip; i += SK_MAP_BLOCK) {
        int pair = (int)blockIdx.y * j.strip + i;
        t.freq[i] = sk_rope_frequency(j.attr, pair, j.d);
    }
    int64_t units = j.chunks * ((j.batch + j.per - 1) / j.per);
    for (int64_t u = blockIdx.x; u < units; u += gridDim.x) {
        int64_t time = u % j.chunks * j.tall, from = u / j.chunks * j.per;
        int tall = (int)min((int64_t)j.tall, j.time - time);
        for (int64_t b = from; b < min(from + j.per, j.batch); b++) {
            int64_t r = b * j.time + time;
            if (b == from || !is_of(j, &t, r, tall)) { /* all threads see the same */
                __syncthreads();
                make_table(j, &t, r, tall, me);
                __syncthreads();
            }
            turn_rows<T, V>(j, &t, r, tall);
        }
    }
}

template <typename T> static sk_status run(const sk_args *a, job j, cudaStream_t s)
{
    constexpr int v = sk_pack<T>();
    int half = j.d / 2;
    bool packs = sk_cuda_rows(&a->in[0], half) && sk_cuda_rows(&a->out[0], half);
    j.strip = half < TABLE ? half : (int)TABLE;
    j.tall = TABLE / j.strip < TALL ? TABLE / j.strip : (int)TALL;
    dim3 block = sk_down_block(packs ? j.strip / v : j.strip);
    j.chunks = (j.time + j.tall - 1) / j.tall;
    int64_t groups = j.chunks < BLOCKS ? BLOCKS / j.chunks : 1;
    j.per = (j.batch + groups - 1) / groups;
    int64_t units = j.chunks * ((j.batch + j.per - 1) / j.per);
    dim3 grid((unsigned)(units < BLOCKS ? units : (int64_t)BLOCKS),
              (unsigned)((half - 1) / j.strip + 1));
    if (packs) rotate<T, v><<<grid, block, 0, s>>>(j);
    else rotate<T, 1><<<grid, block, 0, s>>>(j);
    return sk_cuda_launched("rope");
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    if (!sk_count(v)) return SK_OK;
    job j = {v->data, (const int32_t *)a->in[1].data, a->out[0].data, v->size[0], v->size[1]};
    if (v->size[2] * v->size[3] > INT32_MAX / TALL || v->size[4] > INT32_MAX)
        return sk_fail(SK_ECONF, "rope: %lld heads of %lld elements are too many for the GPU",
                       (long long)(v->size[2] * v->size[3]), (long long)v->size[4]);
    j.heads = (int)(v->size[2] * v->size[3]), j.slots = (int)v->size[3], j.d = (int)v->size[4];
    memcpy(j.attr, a->attr, sizeof j.attr);
    return SK_FLOAT(v->type, run<T>(a, j, (cudaStream_t)l->stream));
}

extern "C" const sk_kernel sk_kernel_rope = {"rope", launch};
