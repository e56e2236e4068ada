/* relayout.c - phases of a run: read, planned beforehand, and the move between two. */
#include "train/relayout.h"
#include "base/strings.h"
#include "train/batch_schedule.h"
#include "train/layout_cause.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MOVE_TAG = -11 };

bool sk_relayout_asked(const sk_job *job) { return *job->relayout || *job->batch_schedule; }

static const char *asked_by(const sk_setup *s)
{
    return *s->job->relayout ? "train.relayout" : "train.batch_schedule";
}

/* Does "STEP:" begin here?  Returns what is behind it, or NULL. */
static const char *step_at(const char *s, int64_t *step)
{
    int64_t n = 0;
    s += strspn(s, " \t\n,");
    if (!isdigit((unsigned char)*s)) return NULL;
    for (; isdigit((unsigned char)*s); s++) {
        if (n > INT64_MAX / 100) return NULL;
        n = 10 * n + (*s - '0');
    }
    s += strspn(s, " \t");
    if (*s != ':') return NULL;
    *step = n;
    return s + 1;
}

/* A layout may have commas and lines itself: it ends where one of them leads to the next step. */
static const char *layout_end(const char *s)
{
    int64_t step;
    while (*s && !(strchr(",\n", *s) && step_at(s, &step))) s++;
    return s;
}

static sk_status not_a_phase(const char *text)
{
    return sk_fail(SK_ECONF,
                   "train.relayout: \"%.60s\" does not begin with a step; needed is STEP: LAYOUT, "
                   "STEP: LAYOUT, as in \"100: dp=2 tp=2, 200: dp=4\"",
                   text);
}

static sk_status next_phase(const sk_setup *s, const char **text, int64_t before, int64_t *step,
                            char **layout)
{
    const char *from = step_at(*text, step), *to = from ? layout_end(from) : NULL;
    if (!from) return not_a_phase(*text);
    if (*step <= before)
        return sk_fail(SK_ECONF,
                       "train.relayout: step %lld comes after step %lld; steps must rise, and the "
                       "first is 1 at least",
                       (long long)*step, (long long)before);
    while (from < to && isspace((unsigned char)*from)) from++;
    while (to > from && strchr(" \t\n,", to[-1])) to--;
    if (from == to)
        return sk_fail(SK_ECONF,
                       "train.relayout: step %lld has no layout behind it; %lld: dp=%d "
                       "would be one",
                       (long long)*step, (long long)*step, s->n_ranks);
    *layout = sk_print(s->arena, "%.*s", (int)(to - from), from);
    *text = layout_end(to);
    *text += strspn(*text, " \t\n,");
    return SK_OK;
}

/* The error report of a layout that fails names its phase. */
static sk_status in_phase(sk_setup *s, int64_t step, int64_t batch, sk_status st)
{
    if (!st) return SK_OK;
    const char *why = sk_strdup(s->arena, sk_error_line());
    if (batch != s->job->batch)
        return sk_fail(st, "train.batch_schedule, with a batch of %lld: %s", (long long)batch, why);
    return sk_fail(st, "train.relayout, from step %lld on: %s", (long long)step, why);
}

static sk_status same_ranks(const sk_setup *s, const char *text)
{
    sk_layout l;
    SK_TRY(sk_layout_read(text, 0, &l));
    int n = sk_mesh_ranks(&l.mesh);
    if (n != s->n_ranks)
        return sk_fail(
            SK_ECONF,
            "the layout \"%s\" has %d rank%s, the run has %d; the number of ranks cannot "
            "change within a run",
            text, n, sk_plural(n), s->n_ranks);
    return SK_OK;
}

/* Two programs of one run find what they keep at the same places of one heap. */
sk_status sk_relayout_all_here(const sk_setup *s, const char *key)
{
    if (!sk_layout_offloads(&s->layout)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s: a run that changes its program keeps everything in the device's memory; "
                   "leave out '%s'",
                   key, sk_layout_cause(s->arena, &s->layout, sk_layout_offloads));
}

static bool shares_weights(const sk_layout *l) { return l->replica; }

/* A move copies what owners have, and each replica has weights of its own: they stay where they are
 * if only the batch changes. */
static sk_status no_sync(const sk_setup *s, bool layouts)
{
    if (s->optim && s->optim->sends && !layouts)
        return sk_fail(SK_ECONF,
                       "train.batch_schedule: optim.name is %s, whose ranks have errors of their "
                       "own from step to step, and these are not carried from the program of one "
                       "batch to that of the next; choose adamw, or stop and resume with the other "
                       "train.batch",
                       s->optim->name);
    if (s->optim && s->optim->sends)
        return sk_fail(SK_ECONF,
                       "optim.name is %s, whose ranks send momentum in place of gradients, and a "
                       "run whose layout changes would send it along another axis; choose adamw, "
                       "or stop and resume with the other layout",
                       s->optim->name);
    if (layouts && sk_layout_timed(&s->layout))
        return sk_fail(SK_ECONF,
                       "all ranks change the layout together, between two steps, and with '%s' "
                       "each rank goes by itself; leave it out, or stop and resume with the other "
                       "layout",
                       sk_layout_cause(s->arena, &s->layout, sk_layout_timed));
    if (!layouts || !sk_layout_any_local(&s->layout)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "replicas have weights of their own, and a run whose layout changes moves those "
                   "of one; leave out '%s', or stop and resume with the other layout",
                   sk_layout_cause(s->arena, &s->layout, sk_layout_any_local));
}

/* A heap begins with memory that ranks share, or with its own, for all of a run. */
static sk_status no_replica(const sk_setup *s)
{
    for (int r = 0; r < s->n_ranks; r++)
        if (s->programs[r]->shared_bytes)
            return sk_fail(SK_ECONF,
                           "the layout keeps one copy of the weights per host, %lld bytes of rank "
                           "%d; a run whose layout changes cannot: leave out '%s'",
                           (long long)s->programs[r]->shared_bytes, r,
                           sk_layout_cause(s->arena, &s->layout, shares_weights));
    return SK_OK;
}

/* layout: NULL: that of the job. */
static sk_status make_setup(sk_setup *s, const char *layout, int64_t batch, sk_setup **out)
{
    if (layout) SK_TRY(same_ranks(s, layout));
    sk_job *job = sk_new(s->arena, sk_job);
    *job = *s->job;
    if (layout) snprintf(job->layout, sizeof job->layout, "%s", layout);
    job->batch = batch;
    job->relayout[0] = job->batch_schedule[0] = 0;
    job->stays_here = true;
    job->ranks = s->n_ranks;
    *out = sk_new(s->arena, sk_setup);
    SK_TRY(sk_setup_program(s->arena, job, true, *out));
    SK_TRY(sk_relayout_all_here(*out, "layout")); /* in_phase() names the key */
    SK_TRY(no_sync(*out, *s->job->relayout != 0));
    return no_replica(*out);
}

static const sk_program *const *programs_of(const sk_run_phase *p)
{
    return (const sk_program *const *)p->setup->programs;
}

static sk_status make_moves(sk_setup *s, const sk_run_phase *from, const sk_run_phase *to,
                            sk_moves *out)
{
    return sk_moves_make(s->arena, programs_of(from), programs_of(to), s->n_ranks, s->job->host_of,
                         out);
}

static sk_status add_phase(sk_setup *s, sk_relayout *l, int64_t step, const char *layout,
                           int64_t batch)
{
    sk_run_phase *p = sk_push(s->arena, l);
    p->from = step;
    SK_TRY(in_phase(s, step, batch, make_setup(s, layout, batch, &p->setup)));
    SK_TRY(make_moves(s, p - 1, p, &p->moves));
    return l->batches ? make_moves(s, p, p - 1, &p->back) : SK_OK;
}

/* Of a rank's heap, over all phases and moves. */
static int64_t largest(const sk_relayout *l, int rank)
{
    int64_t most = 0;
    for (int i = 0; i < l->n; i++) {
        int64_t heap = l->v[i].setup->programs[rank]->heap_bytes;
        int64_t move = i ? l->v[i].moves.v[rank].end : 0;
        int64_t back = i && l->batches ? l->v[i].back.v[rank].end : 0;
        if (heap > most) most = heap;
        if (move > most) most = move;
        if (back > most) most = back;
    }
    return most;
}

void sk_relayout_grow(sk_program *p, int64_t to)
{
    int64_t more = to - p->heap_bytes;
    p->heap_bytes += more;
    p->own_bytes += more;
    p->kind_bytes[SK_SCRATCH] += more;
    p->kind_at[SK_HOSTED] += more; /* where nothing is: sk_relayout_all_here() */
}

static void grow_all(sk_relayout *l, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        int64_t most = largest(l, r);
        for (int i = 0; i < l->n; i++) sk_relayout_grow(l->v[i].setup->programs[r], most);
    }
}

sk_program *sk_relayout_renumbered(sk_arena *a, const sk_program *p, int before)
{
    sk_program *q = sk_new(a, sk_program);
    *q = *p;
    q->n_groups = before + p->n_groups;
    q->groups = sk_many(a, sk_group, q->n_groups);
    for (int i = 0; i < before; i++) q->groups[i].me = -1;
    memcpy(q->groups + before, p->groups, sizeof *p->groups * (size_t)p->n_groups);
    q->calls.v = sk_many(a, sk_call_plan, p->calls.n);
    q->calls.cap = p->calls.n;
    for (int i = 0; i < p->calls.n; i++) {
        q->calls.v[i] = p->calls.v[i];
        q->calls.v[i].group += before;
    }
    q->world += before;
    if (q->near) q->near += before;
    return q;
}

static sk_status number_groups(sk_setup *s, sk_relayout *l)
{
    int before = 0;
    for (int i = 0; i < l->n; i++) {
        sk_program **p = l->v[i].setup->programs;
        int most = 0;
        l->v[i].runs = sk_many(s->arena, sk_program *, s->n_ranks);
        for (int r = 0; r < s->n_ranks; r++) {
            l->v[i].runs[r] = before ? sk_relayout_renumbered(s->arena, p[r], before) : p[r];
            if (p[r]->n_groups > most) most = p[r]->n_groups;
        }
        before += most;
    }
    if (before <= SK_COMM_GROUPS) return SK_OK;
    return sk_fail(SK_ECONF, "%s: %d phases have %d groups of ranks, %d can be; use fewer phases",
                   asked_by(s), l->n, before, SK_COMM_GROUPS);
}

/* Each phase was chosen to fit, but a move needs the memory of two. */
static sk_status fits(const sk_setup *s)
{
    int64_t most = 0;
    for (int r = 0; r < s->n_ranks; r++)
        if (s->programs[r]->own_bytes > most) most = s->programs[r]->own_bytes;
    if (!s->job->budget || most <= s->job->budget) return SK_OK;
    return sk_fail(
        SK_ECONF,
        "%s: budget is %s per rank, and %s are needed where the layout changes; a "
        "smaller train.batch, or stopping and resuming with the other layout, would help",
        asked_by(s), sk_bytes(s->arena, s->job->budget), sk_bytes(s->arena, most));
}

typedef struct layouts {
    struct {
        int64_t from;
        char *layout;
    } * v;
    int n, cap;
} layouts;

static sk_status read_layouts(const sk_setup *s, layouts *out)
{
    const char *text = s->job->relayout;
    for (int64_t step = 0; *text;) {
        char *layout = NULL;
        SK_TRY(next_phase(s, &text, step, &step, &layout));
        sk_push(s->arena, out);
        out->v[out->n - 1].from = step;
        out->v[out->n - 1].layout = layout;
    }
    return SK_OK;
}

/* A phase wherever the layout or the batch changes. */
static sk_status add_phases(sk_setup *s, sk_relayout *l, const layouts *x, const sk_batch_list *b)
{
    const char *layout = NULL;
    int64_t batch = s->job->batch;
    int i = 0, k = b->n && !b->v[0].from; /* the first is the job's own */
    while (i < x->n || k < b->n) {
        int64_t step = i < x->n ? x->v[i].from : INT64_MAX;
        if (k < b->n && b->v[k].from < step) step = b->v[k].from;
        if (i < x->n && x->v[i].from == step) layout = x->v[i++].layout;
        if (k < b->n && b->v[k].from == step) batch = b->v[k++].batch;
        SK_TRY(add_phase(s, l, step, layout, batch));
    }
    return SK_OK;
}

static sk_status add_sizes(sk_setup *s, sk_relayout *l, const sk_batch_list *b)
{
    if (*s->job->relayout)
        return sk_fail(
            SK_ECONF,
            "train.batch_schedule is noise and train.relayout is \"%.60s\": a batch that "
            "changes at steps not known before goes with one layout; leave one of them "
            "out, or say the steps",
            s->job->relayout);
    for (int k = 1; k < b->n; k++) SK_TRY(add_phase(s, l, 0, NULL, b->v[k].batch));
    return SK_OK;
}

sk_status sk_relayout_plan(sk_setup *s)
{
    sk_relayout *l = sk_new(s->arena, sk_relayout);
    layouts x = {0};
    sk_batch_list b;
    SK_TRY(sk_batch_schedule_read(s->job, &b));
    l->batches = b.n > 0;
    l->by_noise = b.n && sk_batch_by_noise(s->job);
    sk_push(s->arena, l)->setup = s;
    SK_TRY(no_sync(s, *s->job->relayout != 0));
    SK_TRY(no_replica(s));
    SK_TRY(sk_relayout_all_here(s, asked_by(s)));
    SK_TRY(read_layouts(s, &x));
    SK_TRY(l->by_noise ? add_sizes(s, l, &b) : add_phases(s, l, &x, &b));
    grow_all(l, s->n_ranks);
    SK_TRY(fits(s));
    SK_TRY(number_groups(s, l));
    s->relayout = l;
    return SK_OK;
}

void sk_relayout_data(sk_setup *s)
{
    for (int i = 1; s->relayout && i < s->relayout->n; i++) {
        sk_setup *p = s->relayout->v[i].setup;
        p->tokenizer = s->tokenizer;
        p->train = s->train;
        p->val = s->val;
        p->feed = s->feed;
        p->val_feed = s->val_feed;
        p->feed.batch = p->val_feed.batch = p->job->batch;
        p->has_val = s->has_val;
    }
}

int sk_relayout_at(const sk_setup *s, int64_t done)
{
    int phase = 0;
    if (!s->relayout || s->relayout->by_noise) return 0;
    while (phase + 1 < s->relayout->n && s->relayout->v[phase + 1].from <= done) phase++;
    return phase;
}

int sk_relayout_with(const sk_setup *s, int64_t done, int64_t batch)
{
    int phase = sk_relayout_at(s, done);
    if (!s->relayout || !s->relayout->by_noise) return phase;
    while (phase + 1 < s->relayout->n && s->relayout->v[phase + 1].setup->job->batch <= batch)
        phase++;
    return phase;
}

int sk_relayout_of(const sk_setup *s, int64_t done, uint64_t hash)
{
    if (!s->relayout || !s->relayout->by_noise) return sk_relayout_at(s, done);
    for (int i = 0; i < s->relayout->n; i++)
        if (sk_program_hash(s->relayout->v[i].setup->programs[0]) == hash) return i;
    return 0;
}

const sk_setup *sk_relayout_setup(const sk_setup *s, int phase)
{
    sk_assert(!phase || (s->relayout && phase < s->relayout->n));
    return phase ? s->relayout->v[phase].setup : s;
}

/* sk_relayout_grow() gave all phases the bytes of the largest: that one has the least of them
 * beyond its own scratch. */
const sk_program *sk_relayout_largest(const sk_setup *s, int rank)
{
    const sk_program *most = s->programs[rank];
    for (int i = 1; s->relayout && i < s->relayout->n; i++) {
        const sk_program *p = sk_relayout_setup(s, i)->programs[rank];
        int64_t left = most->kind_bytes[SK_SCRATCH] - sk_scratch_bytes(most);
        if (p->kind_bytes[SK_SCRATCH] - sk_scratch_bytes(p) < left) most = p;
    }
    return most;
}

const sk_program *sk_relayout_run(const sk_setup *s, int phase, int rank)
{
    return phase ? s->relayout->v[phase].runs[rank] : s->programs[rank];
}

static sk_status send_remote(const sk_moves *m, int rank, char *heap, sk_comm *c)
{
    int64_t at = m->v[rank].out_at;
    for (int q = 0; q < m->n_ranks; q++) {
        int64_t bytes = sk_moves_far(m, rank, q) ? sk_move_bytes(m, rank, q) : 0;
        if (!bytes) continue;
        sk_move_pack(m, rank, q, heap, heap + at);
        SK_TRY(sk_comm_send(c, q, MOVE_TAG, heap + at, bytes));
        at += (bytes + 63) / 64 * 64;
    }
    return SK_OK;
}

static sk_status recv_remote(const sk_moves *m, int rank, char *heap, sk_comm *c)
{
    char *message = heap + m->v[rank].in_at;
    for (int q = 0; q < m->n_ranks; q++) {
        int64_t bytes = sk_moves_far(m, q, rank) ? sk_move_bytes(m, q, rank) : 0;
        if (!bytes) continue;
        SK_TRY(sk_comm_recv(c, q, MOVE_TAG, message, bytes));
        sk_move_unpack(m, q, rank, heap, message);
    }
    return SK_OK;
}

sk_status sk_relayout_move(const sk_moves *m, int rank, sk_heaps *heaps, sk_comm *c)
{
    char *const *base = sk_heap_bases(heaps);
    SK_TRY(sk_comm_barrier(c));
    SK_TRY(send_remote(m, rank, base[rank], c));
    sk_move_gather(m, rank, base);
    SK_TRY(recv_remote(m, rank, base[rank], c));
    for (int q = 0; q < m->n_ranks; q++) /* of the steps too: nothing is under way afterwards */
        if (q != rank) SK_TRY(sk_comm_sent(c, q, sk_comm_sends(c, q)));
    SK_TRY(sk_comm_barrier(c));
    sk_move_place(m, rank, base[rank]);
    return SK_OK;
}

static void moved(const sk_moves *m, int64_t *own, int64_t *others, int64_t *buffer)
{
    *own = *others = *buffer = 0;
    for (int r = 0; r < m->n_ranks; r++) {
        int64_t bytes = m->v[r].end - m->v[r].stage_at;
        *own += m->v[r].own;
        *others += m->v[r].near + m->v[r].far;
        if (bytes > *buffer) *buffer = bytes;
    }
}

char *sk_relayout_line(sk_arena *a, const sk_setup *s, int phase)
{
    const sk_run_phase *p = &s->relayout->v[phase];
    int64_t own, others, buffer;
    const char *layout = sk_layout_short(a, &p->setup->layout), *from = "from the start ";
    const char *batch = "";
    if (s->relayout->batches) batch = sk_print(a, "batch %lld · ", (long long)p->setup->job->batch);
    if (!phase) return sk_print(a, "%s%s%s", from, batch, layout);
    from = s->relayout->by_noise ? "" : sk_print(a, "from step %lld ", (long long)p->from);
    moved(&p->moves, &own, &others, &buffer);
    return sk_print(a, "%s%s%s · %s stay on their ranks, %s move · workspace %s per rank", from,
                    batch, layout, sk_bytes(a, own), sk_bytes(a, others), sk_bytes(a, buffer));
}

char *sk_relayout_print(sk_arena *a, const sk_setup *s)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s", "");
    for (int i = 0; s->relayout && i < s->relayout->n; i++)
        sk_out_add(&o, "%-10s%s\n", i ? "" : "phases", sk_relayout_line(a, s, i));
    return o.s;
}
