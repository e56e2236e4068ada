/* loop_open.c - opening and closing a rank's run, and changing the layout between two steps. */
#include "train/loop_state.h"
#include "plan/deadline.h"
#include "run/flight.h"
#include "run/run.h"
#include "train/fault.h"
#include "train/fits.h"
#include "train/model_export.h"
#include "train/relayout.h"

/* Rank 0: the bytes of a checkpoint.  Ranks of a class save equally many. */
static void count_bytes(sk_loop *l)
{
    const sk_setup *s = l->s;
    sk_mark m = sk_arena_mark(&l->arena);
    int64_t *bytes = sk_many(&l->arena, int64_t, s->n_classes);
    l->save_bytes = 0;
    for (int k = 0; k < s->n_classes; k++) {
        sk_mark each = sk_arena_mark(&l->arena);
        sk_tensor_shard *b;
        int n;
        sk_program_shards(s->programs[s->first_of[k]], &l->arena, NULL, &b, &n);
        for (int i = 0; i < n; i++) bytes[k] += sk_loop_box_bytes(&b[i]);
        sk_arena_back(&l->arena, each);
    }
    for (int r = 0; r < s->n_ranks; r++) l->save_bytes += bytes[s->class_of[r]];
    sk_arena_back(&l->arena, m);
}

static sk_status fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                      int64_t step, bool validation, void *to)
{
    const sk_loop *l = ctx;
    (void)type;
    return sk_setup_fill_shifted(l->s, l->shift, input, box, step, validation, to);
}

static sk_run_opts run_opts(sk_loop *l, sk_flight_book *book)
{
    const sk_job *job = l->s->job;
    sk_run_opts o = {.fill = fill,
                     .fill_ctx = l,
                     .seed = job->seed,
                     .knobs = sk_setup_knobs(job),
                     .timeout_s = job->timeout,
                     .scratch = *job->scratch ? job->scratch
                                : *l->t->dir  ? l->t->dir
                                              : NULL,
                     .where = sk_flight_where,
                     .where_ctx = book,
                     .wire = l->t->wire,
                     .host_of = l->t->host_of,
                     .device = job->device,
                     .no_memory = sk_fits_device,
                     .no_memory_ctx = (void *)l->s,
                     .commit = sk_loop_commit_opts(l)};
    sk_fault_arm(&o, l->rank);
    return o;
}

/* No rank opens the main run before all have opened and compared the fallback run. */
static sk_status open_fallback(sk_loop *l)
{
    const sk_setup *s = l->s->fallback;
    sk_run_opts o = run_opts(l, &l->fallback_book);
    if (!s) return SK_OK;
    l->fallback_book.all = (const sk_program *const *)s->programs;
    o.timeout_s = sk_timeout(o.timeout_s, s->runs[l->rank], l->t->heaps);
    SK_TRY(sk_run_open(&l->life, s->runs[l->rank], l->t->heaps, &o, &l->fallback));
    return sk_run_barrier(l->fallback);
}

sk_status sk_loop_open_run(sk_loop *l)
{
    sk_assert(!l->run && !l->fallback);
    sk_run_opts o = run_opts(l, &l->book);
    SK_TRY(open_fallback(l));
    o.beside = l->fallback;
    o.trace = l->s->job->trace != 0;
    o.no_drops = l->fallback && l->s->job->dropless;
    o.no_full = l->fallback && sk_layout_may_fill(&l->s->layout);
    SK_TRY(sk_setup_own_program(l->s, &l->life, l->rank, &l->own));
    l->book.mine = l->own;
    l->book.all = (const sk_program *const *)l->s->programs;
    const sk_program *p = l->phase ? sk_relayout_run(l->t->setup, l->phase, l->rank) : l->own;
    o.timeout_s = sk_timeout(o.timeout_s, p, l->t->heaps);
    SK_TRY(sk_run_open(&l->life, p, l->t->heaps, &o, &l->run));
    sk_run_shards(l->run, &l->life, &l->boxes, &l->n_boxes);
    l->n_model = sk_shards_sort(&l->s->graph, l->boxes, l->n_boxes);
    if (!l->rank) count_bytes(l);
    return SK_OK;
}

void sk_loop_close_run(sk_loop *l)
{
    if (l->run) sk_run_close(l->run);
    if (l->fallback) sk_run_close(l->fallback);
    l->run = l->fallback = NULL;
    sk_arena_end(&l->life);
    l->life = (sk_arena){0};
}

void sk_loop_enter_phase(sk_loop *l, int phase)
{
    sk_assert(phase >= 0 && !l->run);
    l->phase = phase;
    l->s = sk_relayout_setup(l->t->setup, phase);
}

/* The instruction numbers in the flight record are those of the old program. */
void sk_loop_clear_flight(sk_loop *l)
{
    sk_rank_state *line = sk_heaps_rank_state(l->t->heaps, l->rank);
    atomic_store(&line->ring_n, 0);
    atomic_store(&line->pc, 0);
}

int64_t sk_loop_samples(const sk_loop *l)
{
    return sk_batch_of_step(&l->skipped_batches, l->done) * l->s->job->batch + l->shift;
}

/* A run that rolled back to a step of an earlier phase keeps its layout, as any layout reads any
 * checkpoint; but the batch is that of the step. */
int sk_loop_next_phase(const sk_loop *l)
{
    const sk_relayout *x = l->t->setup->relayout;
    int next = x && x->by_noise ? l->want : sk_relayout_at(l->t->setup, l->done);
    return next < l->phase && !x->batches ? l->phase : next;
}

/* From neighbour to neighbour: the heap has room for each of these moves. */
static sk_status move_to(sk_loop *l, int next)
{
    const sk_run_phase *v = l->t->setup->relayout->v;
    for (int at = l->phase; at != next;) {
        const sk_moves *m = at < next ? &v[at + 1].moves : &v[at].back;
        SK_TRY(sk_relayout_move(m, l->rank, l->t->heaps, sk_run_comm(l->run)));
        at += at < next ? 1 : -1;
    }
    return SK_OK;
}

/* Rank 0 tells the metrics; the console finds it in the records of steps. */
static void change_batch(sk_loop *l, int64_t before, int64_t samples)
{
    int64_t batch = l->s->job->batch;
    if (batch == before) return;
    l->shift = samples - sk_batch_of_step(&l->skipped_batches, l->done) * batch;
    l->changed = l->done;
    if (!l->rank && !sk_metrics_batch(&l->metrics, l->done, batch))
        sk_loop_note(l, SK_REC_WARN, l->metrics.why);
}

/* Does the next step belong to another phase?  All ranks find the same, and synchronise in the
 * move. */
sk_status sk_loop_change_layout(sk_loop *l)
{
    int next = sk_loop_next_phase(l);
    int64_t batch = l->s->job->batch, samples = sk_loop_samples(l);
    if (next == l->phase) return SK_OK;
    SK_TRY(sk_loop_tell(l));
    SK_TRY(sk_run_pull(l->run));
    SK_TRY(move_to(l, next));
    sk_loop_close_run(l);
    sk_loop_clear_flight(l);
    sk_loop_enter_phase(l, next);
    change_batch(l, batch, samples);
    SK_TRY(sk_loop_open_run(l));
    SK_TRY(sk_run_push(l->run));
    atomic_store(&sk_heaps_rank_state(l->t->heaps, l->rank)->step, (long long)l->done);
    return SK_OK;
}
