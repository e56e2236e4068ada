/* loop_replicas.c - replicas that run apart (sk_program.apart): when their ranks meet, and what
 * they tell each other there.
 *
 * Between synchronisations no replica waits for another, so a step knows the numbers of its own
 * replica alone.  They are kept, and told to rank 0 where ranks meet: it joins them and reports the
 * steps, the same lines that it would have written at once, some steps later.  Where a decision of
 * rank 0 is needed (stop, save by the clock, the number of steps) it goes the other way at a
 * meeting.  Validations, saves and the end of the run are meetings too, of which all ranks know by
 * themselves.
 *
 * Rank 0 says at a meeting when the next one is: so far away that meetings take about 1 / SPARSE of
 * the time, within [LEAST_S, MOST_S] seconds of steps, and where synchronisations are more frequent
 * than that, behind one of them. */
#include "base/clock.h"
#include "run/run.h"
#include "train/loop_state.h"
#include "train/replica_notes.h"

#include <math.h>
#include <string.h>

#define SPARSE  50
#define LEAST_S 0.2
#define MOST_S  5.0

enum {
    MOST_UNTOLD = 512, /* steps between two meetings */
    AT_ONCE = SK_SMALL_BYTES / sizeof(sk_replica_note)
};

bool sk_loop_apart(const sk_loop *l) { return l->own->apart; }
bool sk_loop_alone(const sk_loop *l, int64_t step)
{
    return sk_loop_apart(l) && step >= l->own->replicas_from;
}

sk_status sk_loop_keep_step(sk_loop *l, const sk_loop_told *x)
{
    if (!l->untold) l->untold = sk_many(&l->arena, sk_loop_told, MOST_UNTOLD);
    sk_assert(l->n_untold < MOST_UNTOLD);
    l->untold[l->n_untold++] = *x;
    return l->n_untold < MOST_UNTOLD ? SK_OK : sk_loop_tell(l);
}

/* Rank 0: the notes of the first rank of each replica, of those of all ranks. */
static int first_ranks(const sk_loop *l, const sk_replica_note *all, int n, sk_replica_note *to)
{
    const sk_layout *layout = &l->own->layout;
    int replicas = sk_layout_replicas(layout), found = 0;
    for (int r = 0; r < l->s->n_ranks && found < replicas; r++) {
        int coord[SK_MAX_AXES];
        sk_mesh_coords(&layout->mesh, r, coord);
        if (sk_layout_replica_of(layout, coord) != found) continue;
        memcpy(to + (size_t)found++ * (size_t)n, all + (size_t)r * (size_t)n,
               sizeof *to * (size_t)n);
    }
    sk_assert(found == replicas);
    return replicas;
}

/* Steps [from, from + n) of those that are untold. */
static sk_status tell_some(sk_loop *l, int from, int n)
{
    sk_mark m = sk_arena_mark(&l->arena);
    sk_replica_note *mine = sk_many(&l->arena, sk_replica_note, n);
    size_t bytes = sizeof *mine * (size_t)n;
    sk_replica_note *all = sk_loop_gather_buffer(l, bytes), *v = NULL;
    int replicas = 0;
    sk_status st = SK_OK;
    for (int i = 0; i < n; i++) mine[i] = sk_replica_note_of(&l->untold[from + i].out);
    st = sk_comm_small_gather(sk_run_comm(l->run), mine, bytes, all);
    if (!l->rank && !st) {
        v = sk_many(&l->arena, sk_replica_note, n * sk_layout_replicas(&l->own->layout));
        replicas = first_ranks(l, all, n, v);
    }
    for (int i = 0; i < n && !l->rank && !st; i++) {
        sk_loop_told *x = &l->untold[from + i];
        sk_replica_notes_join(v + i, replicas, n, &x->out);
        st = sk_loop_check_numbers(l, x->in.step, &x->out);
        if (!st) st = sk_loop_account(l, x);
    }
    sk_arena_back(&l->arena, m);
    return st;
}

/* For reports of ranks that wait there: the last instruction of the step may be one that was not
 * due. */
static void at_meeting(const sk_loop *l, bool is)
{
    atomic_store(&sk_heaps_rank_state(l->t->heaps, l->rank)->pc, is ? SK_AT_MEETING : 0);
}

sk_status sk_loop_tell(sk_loop *l)
{
    int n = l->n_untold;
    if (n) at_meeting(l, true);
    for (int from = 0; from < n; from += AT_ONCE)
        SK_TRY(tell_some(l, from, n - from < (int)AT_ONCE ? n - from : (int)AT_ONCE));
    if (n) at_meeting(l, false);
    l->n_untold = 0;
    return SK_OK;
}

/* Of the most frequent synchronisation. */
static int64_t steps_between(const sk_layout *layout)
{
    int64_t every = MOST_UNTOLD;
    for (int a = 0; a < layout->mesh.n; a++)
        if (sk_layout_local(layout, a) && layout->sync[a].every < every)
            every = layout->sync[a].every;
    return every;
}

/* Rank 0, where a meeting took so many seconds. */
static int64_t next_meeting(sk_loop *l, double took)
{
    int64_t steps = l->done - l->met, every = steps_between(&l->own->layout),
            from = l->own->replicas_from;
    double now = sk_now(), each = (now - took - l->met_at) / (double)(steps > 0 ? steps : 1);
    double want = fmin(fmax(SPARSE * took, LEAST_S), MOST_S) / fmax(each, 1e-6);
    int64_t n = want < 1 ? 1 : want > MOST_UNTOLD ? MOST_UNTOLD : (int64_t)want;
    l->met = l->done;
    l->met_at = now;
    if (n < every || l->done < from) return l->done + n;
    return l->done + n - (l->done + n - from) % every; /* n is at least `every`: behind l->done */
}

sk_status sk_loop_meet(sk_loop *l, sk_decision *d)
{
    struct {
        sk_decision d;
        int64_t next;
    } x = {0};
    *d = (sk_decision){.steps = l->lr_schedule.steps, .phase = l->want};
    if (l->done < l->meeting) return SK_OK;
    double began = sk_now();
    SK_TRY(sk_loop_tell(l));
    if (!l->rank) x.d = sk_loop_decide(l), x.next = next_meeting(l, sk_now() - began);
    at_meeting(l, true);
    SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), &x, sizeof x));
    at_meeting(l, false);
    l->meeting = x.next;
    *d = x.d;
    return SK_OK;
}
