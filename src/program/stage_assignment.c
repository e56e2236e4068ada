/* stage_assignment.c - stage assignment: the schedule says how many chunks of layers a stage has
 * and where each is placed.  Then sharding propagation over the divided graph, whose rules are in
 * layout/propagate.c; and the order of every stage's tasks. */
#include "program/lowering.h"

enum { MOST_CHUNKS = 64, MOST_MICRO = 4096 };
enum { MOST_TASKS = 1 << 20 }; /* of a phase, of all stages */

static int n_stages(const sk_layout *l)
{
    return l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis];
}

int sk_schedule_chunks(const sk_layout *l)
{
    const sk_schedule *s = sk_schedule_find(l->schedule);
    return s && s->chunks ? s->chunks : l->chunks ? l->chunks : 1;
}

sk_status sk_assign_chunks(sk_lowering *e)
{
    const sk_layout *l = e->l;
    int stages = n_stages(l);
    const sk_schedule *s = sk_schedule_find(l->schedule);
    sk_assert(s); /* parts/word/schedule.c has found it */
    int each = sk_schedule_chunks(l);
    if (stages > SK_MOST_STAGES || each > MOST_CHUNKS)
        return sk_fail(SK_ECONF, "layout: %d stages of %d chunks; at most %d of %d are supported",
                       stages, each, SK_MOST_STAGES, MOST_CHUNKS);
    if (e->p->n_micro > MOST_MICRO)
        return sk_fail(SK_ECONF, "layout: %d micro-batches; at most %d are supported",
                       e->p->n_micro, MOST_MICRO);
    if (each * stages > MOST_TASKS / e->p->n_micro)
        return sk_fail(SK_ECONF,
                       "layout: %d stages of %d chunks with %d micro-batches are over %d tasks; "
                       "take fewer of one of them",
                       stages, each, e->p->n_micro, MOST_TASKS);
    e->plan.schedule = s;
    int n = each * stages;
    int *place = sk_many(e->tmp, int, n);
    for (int c = 0; c < n; c++) place[c] = sk_schedule_place(s, stages, c);
    e->plan.place = place;
    return SK_OK;
}

sk_status sk_propagate_sharding(sk_lowering *e)
{
    int n = n_stages(e->l) * sk_schedule_chunks(e->l);
    return sk_propagate(e->tmp, e->g, e->l, e->plan.place, n, e->sp);
}

static sk_tasks *no_tasks(sk_lowering *e)
{
    sk_tasks *tasks = sk_many(e->tmp, sk_tasks, e->sp->n_stages);
    for (int s = 0; s < e->sp->n_stages; s++) tasks[s].arena = e->tmp;
    return tasks;
}

/* For programs that say what is repeated (repeats.h). */
static void list_few(sk_lowering *e, sk_tasks *train, sk_tasks *forward)
{
    sk_runs *all = sk_many(e->tmp, sk_runs, e->sp->n_stages);
    sk_repeats_list(e, forward, all);
    sk_repeats_list(e, train, all);
    e->plan.runs = all;
    e->plan.n_listed = SK_LISTED;
}

/* Of a training step as the schedule says; of a validation step all chunks of a micro-batch, then
 * the next. */
sk_status sk_order_tasks(sk_lowering *e)
{
    sk_tasks *train = no_tasks(e), *forward = no_tasks(e);
    e->plan.tasks[true] = train;
    e->plan.tasks[false] = forward;
    e->plan.n_listed = e->p->n_micro;
    sk_pipe pipe = {.n_stages = e->sp->n_stages,
                    .n_chunks = e->sp->n_chunks / e->sp->n_stages,
                    .n_micro = e->p->n_micro,
                    .file = e->l->schedule};
    for (int m = 0; m < e->p->n_micro; m++)
        for (int c = 0; c < e->sp->n_chunks; c++)
            sk_task_add(&forward[e->plan.place[c]], SK_WORK_F, m, c);
    if (!e->opts->optim) return SK_OK;
    SK_TRY(e->plan.schedule->list_tasks(&pipe, train));
    SK_TRY(sk_schedule_check(e->plan.schedule, &pipe, train));
    if (e->opts->listed) list_few(e, train, forward);
    return SK_OK;
}
