/* range_test.c - the training of a learning-rate range test, by the parts of the training loop that
 * execute steps. */
#include "train/range_test.h"
#include "comm/control_block.h"
#include "plan/workers.h"
#include "train/loop_state.h"

#include <math.h>
#include <string.h>

#define KEEP 0.9 /* of the running mean of losses that ends the test, per step */

typedef struct range_job {
    sk_training t;
    const sk_range *r;
    sk_range_curve *curve; /* shared; rank 0 writes it */
} range_job;

double sk_range_rate(const sk_range *r, int step)
{
    if (step == r->steps - 1) return r->to;
    return r->from * pow(r->to / r->from, (double)step / (double)(r->steps - 1));
}

/* Rank 0: notes the loss of a step; is the test over?  A running mean alone would lag, and a single
 * bad batch is no divergence, so both have to be high. */
static bool is_over(const range_job *j, double *mean, int step, double loss, bool fine)
{
    sk_range_curve *c = j->curve;
    sk_range_point p = {sk_range_rate(j->r, step), loss};
    c->last = p;
    if (isfinite(loss)) c->v[c->n++] = p;
    if (j->r->tell) j->r->tell(step, j->r->steps, &p);
    *mean = step ? KEEP * *mean + (1 - KEEP) * loss : loss;
    double most = j->r->factor * c->v[0].loss;
    c->diverged = !fine || !isfinite(loss) || (*mean > most && loss > most);
    return c->diverged;
}

/* In f16 gradients may overflow while the loss scale is looked for: that is no divergence. */
static sk_status run_steps(range_job *j, sk_loop *l)
{
    double mean = 0;
    for (int s = 0, over = 0; s < j->r->steps && !over; s++) {
        sk_step_out out = {0};
        int64_t each = l->own->n_updates;
        sk_step_in in = {.step = s,
                         .lr = sk_range_rate(j->r, s),
                         .shift = l->updates - s * each,
                         .loss_scale = l->scale.value};
        SK_TRY(sk_loop_execute(l, &in, &out));
        bool fine =
            sk_loss_scale_step(&l->scale, out.loss, out.finite) && (out.finite || !l->own->async);
        if (out.finite) l->updates += each;
        if (!l->rank) over = is_over(j, &mean, s, out.loss, fine);
        SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), &over, sizeof over));
    }
    return SK_OK;
}

static sk_status begin(range_job *j, sk_loop *l)
{
    sk_loop_enter_phase(l, 0);
    SK_TRY(sk_loop_open_run(l));
    SK_TRY(sk_loop_fresh_weights(l));
    l->scale.policy = SK_ROLLBACK; /* a loss that is not finite is the end */
    SK_TRY(sk_run_barrier(l->run));
    return run_steps(j, l);
}

static sk_status range_rank(void *ctx, int rank)
{
    range_job *j = ctx;
    sk_loop l = {.t = &j->t, .rank = rank};
    sk_status st = begin(j, &l);
    sk_loop_close_run(&l);
    sk_arena_end(&l.arena);
    return st;
}

sk_status sk_range_test(sk_arena *a, const sk_setup *s, const sk_range *r, sk_range_curve *out)
{
    sk_assert(r->from > 0 && r->to > r->from && r->factor > 1);
    sk_assert(r->steps >= SK_RANGE_LEAST && r->steps <= SK_RANGE_STEPS && !s->relayout);
    int n = s->n_ranks;
    int64_t *heap = sk_many(a, int64_t, n);
    range_job j = {.t.setup = s, .r = r};
    size_t stats = (sizeof *j.curve + 63) / 64 * 64;
    size_t extra = stats + sizeof(sk_fallback_stats) + (size_t)n * sizeof(atomic_int);
    sk_heap_aliases aliases = sk_program_shared(a, (const sk_program *const *)s->programs, n, heap);
    SK_TRY(sk_heaps_open_aliased(n, heap, aliases, true, extra, &j.t.heaps));
    char *at = sk_heaps_extra(j.t.heaps);
    j.curve = (sk_range_curve *)(void *)at;
    j.t.fallback_stats = (sk_fallback_stats *)(void *)(at + stats);
    sk_heaps_label(j.t.heaps, "learning-rate range test");
    sk_status st = sk_workers_run(j.t.heaps, n, range_rank, &j);
    if (!st) memcpy(out, j.curve, sizeof *out);
    sk_heaps_close(j.t.heaps);
    return st;
}
