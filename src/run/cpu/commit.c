/* commit.c - gradients of the ranks that came first become those of the step (sync=backup:B).
 *
 * Members sum in place, each a share of every gradient, in the order of ranks and in f32; when all
 * have done so each copies the shares of the others.  So a step adds up the same numbers in the
 * same order on every member, whoever was first. */
#include "run/timed.h"
#include "base/clock.h"
#include "base/hash.h"
#include "run/cpu/optimize.h"

#include <string.h>

typedef struct share_job {
    sk_run *r;
    int members[SK_QUORUM_RANKS], n, me; /* of the set, in order; which of them I am */
} share_job;

static char *data_of(const sk_run *r, int rank, int buf)
{
    return (char *)sk_heap_base(r->heaps, rank) + r->p->bufs.v[buf].offset;
}

/* The elements of the share of a member, of these those of a thread. */
static void share_of(int64_t n, int member, int n_members, int part, int of, int64_t *from,
                     int64_t *to)
{
    int64_t first = n * member / n_members, end = n * (member + 1) / n_members;
    *from = first + (end - first) * part / of;
    *to = first + (end - first) * (part + 1) / of;
}

static void add_block(const share_job *j, int buf, int64_t at, int64_t n)
{
    const sk_buffer *b = &j->r->p->bufs.v[buf];
    size_t size = sk_dtype_size(b->type);
    real sum[SK_BLOCK], next[SK_BLOCK];
    for (int m = 0; m < j->n; m++) {
        const char *from = data_of(j->r, j->members[m], buf) + (size_t)at * size;
        sk_convert(m ? next : sum, SK_F32, from, b->type, n);
        for (int64_t i = 0; m && i < n; i++) sum[i] += next[i];
    }
    sk_convert(data_of(j->r, j->r->p->rank, buf) + (size_t)at * size, b->type, sum, SK_F32, n);
}

static void sum_part(void *ctx, int part, int of)
{
    const share_job *j = ctx;
    const sk_program *p = j->r->p;
    for (int i = 0; i < p->params.n; i++) {
        int buf = p->params.v[i].grad_shard;
        int64_t all = p->bufs.v[buf].bytes / (int64_t)sk_dtype_size(p->bufs.v[buf].type), at, end,
                n;
        share_of(all, j->me, j->n, part, of, &at, &end);
        for (; at < end; at += n) {
            n = end - at < SK_BLOCK ? end - at : SK_BLOCK;
            add_block(j, buf, at, n);
        }
    }
}

static void copy_part(void *ctx, int part, int of)
{
    const share_job *j = ctx;
    const sk_program *p = j->r->p;
    for (int i = 0; i < p->params.n; i++)
        for (int m = 0; m < j->n; m++) {
            int buf = p->params.v[i].grad_shard;
            int64_t size = (int64_t)sk_dtype_size(p->bufs.v[buf].type), at, end;
            share_of(p->bufs.v[buf].bytes / size, m, j->n, part, of, &at, &end);
            if (m != j->me && end > at)
                memcpy(data_of(j->r, p->rank, buf) + at * size,
                       data_of(j->r, j->members[m], buf) + at * size, (size_t)((end - at) * size));
        }
}

static void show_sums(sk_run *r)
{
    double *sums = sk_quorum_sums(r->comm, r->p->rank);
    for (int w = 0; w < r->p->n_sums; w++) {
        const sk_sum_plan *sum = &r->p->sums[w];
        sums[w] = 0;
        for (int i = 0; sk_sum_made(r->p, w, true) && i < sum->n; i++)
            sums[w] += (double)*(real *)sk_run_data(r, sum->buf[i]);
    }
}

/* Before the members part: behind that a member may show those of its next step. */
static void add_sums(sk_run *r)
{
    for (int w = 0; w < r->p->n_sums; w++) {
        r->committed[w] = 0;
        for (int k = 0; k < r->p->n_ranks; k++)
            if (r->set >> k & 1) r->committed[w] += sk_quorum_sums(r->comm, k)[w];
    }
}

static sk_status sum_members(sk_run *r)
{
    share_job j = {.r = r};
    for (int k = 0; k < r->p->n_ranks; k++) {
        if (!(r->set >> k & 1)) continue;
        if (k == r->p->rank) j.me = j.n;
        j.members[j.n++] = k;
    }
    sk_threads_run(r->team, sum_part, &j);
    SK_TRY(sk_quorum_meet(r->comm, r->step, r->set, 1));
    sk_threads_run(r->team, copy_part, &j);
    for (int i = 0; i < r->p->params.n;
         i++) { /* n - 1 shares to sum, n - 1 shares that others sum */
        int64_t bytes = r->p->bufs.v[r->p->params.v[i].grad_shard].bytes;
        r->wire_device += 2 * bytes * (j.n - 1) / j.n;
    }
    add_sums(r);
    return sk_quorum_meet(r->comm, r->step, r->set, 2);
}

sk_status sk_do_commit(sk_run *r)
{
    double before = sk_now();
    const sk_commit_opts *o = &r->opts.commit;
    const sk_layout *l = &r->p->layout;
    sk_quorum_ask ask = {.step = r->step,
                         .need = r->p->n_ranks - l->sync[sk_layout_backup(l)].backup,
                         .imposed = o->imposed ? o->imposed(o->ctx, r->step) : 0,
                         .seal = o->seal,
                         .ctx = o->ctx};
    show_sums(r);
    SK_TRY(sk_quorum_arrive(r->comm, &ask, &r->set));
    r->watches = false;
    r->late = !(r->set >> r->p->rank & 1);
    if (!r->late) SK_TRY(sum_members(r));
    if (!r->late) SK_TRY(sk_quorum_change(r->comm));
    r->waited += sk_now() - before;
    return SK_OK;
}

/* --- before and after the section --- */

/* Ranks read each other's gradients and weights at the places that they have in their own heaps. */
uint64_t sk_timed_places(const sk_program *p)
{
    const int64_t kept[] = {p->kind_at[SK_WEIGHTS], p->kind_bytes[SK_WEIGHTS], p->kind_at[SK_OPTIM],
                            p->kind_bytes[SK_OPTIM]};
    uint64_t h = sk_hash(SK_HASH_SEED, kept, sizeof kept);
    for (int i = 0; i < p->params.n; i++)
        h = sk_hash(h, &p->bufs.v[p->params.v[i].grad_shard].offset, sizeof(int64_t));
    return h;
}

typedef struct copy_job {
    char *to;
    const char *from;
    int64_t bytes;
} copy_job;

static void copy_some(void *ctx, int part, int of)
{
    const copy_job *j = ctx;
    int64_t at = j->bytes * part / of, end = j->bytes * (part + 1) / of;
    memcpy(j->to + at, j->from + at, (size_t)(end - at));
}

void sk_take_weights(sk_run *r, int from)
{
    static const sk_kind kinds[] = {SK_WEIGHTS, SK_OPTIM};
    for (int k = 0; k < 2; k++) {
        int64_t at = r->p->kind_at[kinds[k]];
        copy_job j = {r->base + at, (const char *)sk_heap_base(r->heaps, from) + at,
                      r->p->kind_bytes[kinds[k]]};
        sk_threads_run(r->team, copy_some, &j);
        r->wire_device += j.bytes;
    }
}

sk_status sk_run_catch_up(sk_run *r, sk_step_out *missed, int *n)
{
    int from;
    int64_t done;
    sk_assert(r->late && sizeof *missed <= SK_QUORUM_RESULT);
    SK_TRY(sk_quorum_borrow(r->comm, r->step + 1, &from, &done));
    sk_take_weights(r, from);
    *n = (int)(done - r->step);
    for (int i = 0; i < *n; i++)
        memcpy(&missed[i], sk_quorum_result(r->comm, from, r->step + i), sizeof *missed);
    sk_quorum_return(r->comm, from);
    return SK_OK;
}
