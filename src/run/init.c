/* init.c - initial values of parameters, the same on any layout. */
#include "base/hash.h"
#include "base/rng.h"
#include "run/backend.h"

/* Does this rank keep the buffer in memory of its own?  Weights that it shares with another rank of
 * the host are filled by that rank; a barrier follows. */
bool sk_run_keeps(const sk_program *p, int buf)
{
    return p->shares_with == p->rank || !p->bufs.v[buf].common;
}

typedef struct init_job {
    const sk_tensor *t;
    sk_view v;
    uint64_t key;
    real std;
} init_job;

static uint32_t mix(uint32_t x) /* Murmur's last steps: every bit of x reaches every bit */
{
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

/* Close to normal, and cheap: the sum of four 16-bit numbers (Irwin-Hall), scaled to unit
 * deviation.  Plain 32-bit arithmetic that the compiler vectorises: a large model's weights are
 * drawn faster than their pages can be touched. */
static real draw(uint64_t key, uint64_t index)
{
    uint32_t high = (uint32_t)(index >> 32) * 0x9E3779B1u ^ (uint32_t)(key >> 32);
    uint32_t x = mix((uint32_t)index * 0x9E3779B1u ^ (uint32_t)key), y = mix(x ^ high);
    int32_t sum = (int32_t)((x & 0xffff) + (x >> 16) + (y & 0xffff) + (y >> 16));
    return (real)(sum - 131070) * (real)2.6429e-5; /* sqrt(3) / 65536 */
}

static void init_some(const init_job *j, uint64_t from, real *x, int64_t n)
{
    if (j->t->init < 0)
        for (int64_t k = 0; k < n; k++) x[k] = (real)(-j->t->init - 1);
    else
        for (int64_t k = 0; k < n; k++) x[k] = j->std * draw(j->key, from + (uint64_t)k);
}

static void init_rows(void *ctx, int part, int of)
{
    init_job *j = ctx;
    const sk_view *v = &j->v;
    int64_t row = v->n ? v->size[v->n - 1] : 1, n = row ? sk_count(v) / row : 0, m;
    size_t size = sk_dtype_size(v->type);
    real wide[SK_BLOCK];
    for (int64_t i = n * part / of; i < n * (part + 1) / of; i++) {
        uint64_t from = (uint64_t)sk_logical(v, i * row);
        char *to = (char *)v->data + (size_t)(i * row) * size;
        if (v->type == SK_F32) init_some(j, from, (real *)(void *)to, row);
        for (int64_t k = 0; v->type != SK_F32 && k < row; k += m) {
            m = row - k < SK_BLOCK ? row - k : SK_BLOCK;
            init_some(j, from + (uint64_t)k, wide, m);
            sk_convert(to + (size_t)k * size, v->type, wide, SK_F32, m);
        }
    }
}

static void init_buffer(sk_run *r, const sk_tensor *t, int buf, uint64_t seed)
{
    init_job j = {
        .t = t, .v = sk_buffer_view(r->p, buf, sk_run_memory(r, buf)), .std = (real)t->init};
    j.key = sk_rng(seed, sk_hash_text(t->name), 0).a;
    sk_threads_run(r->team, init_rows, &j);
}

sk_status sk_run_init(sk_run *r, uint64_t seed)
{
    const sk_program *p = r->p;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (sk_run_keeps(p, q->stored)) init_buffer(r, q->tensor, q->stored, seed);
        if (q->master >= 0) init_buffer(r, q->tensor, q->master, seed);
        SK_TRY(r->backend->push_buffer(r, q->stored));
        if (q->master >= 0) SK_TRY(r->backend->push_buffer(r, q->master));
        int copies[] = {sk_param_own_average(q), q->anchor};
        for (int k = 0; k < 2; k++) {
            if (copies[k] < 0) continue;
            init_buffer(r, q->tensor, copies[k], seed);
            SK_TRY(r->backend->push_buffer(r, copies[k]));
        }
    }
    return SK_OK;
}
