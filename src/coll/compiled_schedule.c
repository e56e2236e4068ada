/* compiled_schedule.c - step lists made ready for execution: what can be known before any call. */
#include "coll/buffer_layout.h"

static bool receives(const sk_step *t)
{
    return t->act == SK_STEP_RECV || t->act == SK_STEP_RECV_SUM;
}

static bool is_message(const sk_step *t) { return t->act == SK_STEP_SEND || receives(t); }

/* --- what a list reads --- */

/* Cells as numbers; cells of SRC and DST that are one memory when a call is in place have one. */
static int place(const sk_compiled_schedule *s, sk_cell c)
{
    const sk_coll_ask *a = &s->steps.ask;
    int cells = s->steps.cells;
    if (c.space == SK_TMP) return 2 * cells + c.at;
    if (sk_kind_blocks(a->kind)) return c.space == SK_DST ? cells + c.at : c.at;
    return sk_buffer_layout_is_part(a->kind, c.space) ? a->me : c.at;
}

static bool reads_src(const sk_steps *l)
{
    for (int i = 0; i < l->list.n; i++) {
        const sk_step *t = &l->list.v[i];
        bool from = t->act != SK_STEP_RECV && t->act != SK_STEP_RECV_SUM;
        bool with = t->act != SK_STEP_SEND && t->act != SK_STEP_RECV && t->act != SK_STEP_COPY;
        if ((from && t->from.space == SK_SRC) || (with && t->with.space == SK_SRC)) return true;
    }
    return false;
}

/* --- messages --- */

/* From the last round to the first: `next` holds the nearest later round that writes a place. */
static void find_due(sk_arena *a, sk_compiled_schedule *s)
{
    const sk_step *v = s->steps.list.v;
    int places = 2 * s->steps.cells + s->steps.tmp_cells;
    int *next = sk_many(a, int, places);
    for (int i = 0; i < places; i++) next[i] = SK_NEVER;
    for (int hi = s->steps.list.n, lo; hi > 0; hi = lo) {
        for (lo = hi; lo > 0 && v[lo - 1].round == v[hi - 1].round;) lo--;
        for (int i = lo; i < hi; i++) {
            s->due[i] = SK_NEVER;
            for (int j = 0; v[i].act == SK_STEP_SEND && j < v[i].n; j++) {
                int when = next[place(s, v[i].from) + j];
                if (when < s->due[i]) s->due[i] = when;
            }
        }
        for (int i = lo; i < hi; i++)
            for (int j = 0; v[i].act != SK_STEP_SEND && j < v[i].n; j++)
                next[place(s, v[i].into) + j] = v[i].round;
    }
}

static void number_messages(sk_arena *a, sk_compiled_schedule *s)
{
    int n = s->steps.ask.n, *sent = sk_many(a, int, n), *got = sk_many(a, int, n);
    for (int i = 0; i < s->steps.list.n; i++) {
        const sk_step *t = &s->steps.list.v[i];
        if (t->act == SK_STEP_SEND) s->ordinal[i] = sent[t->peer]++;
        else if (receives(t)) s->ordinal[i] = got[t->peer]++;
    }
    for (int j = 0; j < n; j++) s->box[j + 1] = s->box[j] + sent[j];
    sk_assert(!sent[s->steps.ask.me] && !got[s->steps.ask.me]);
}

/* Streams: cells are put together for a send, come here over a wire, and are added here. */
static int staged_streams(const sk_step *t)
{
    if (t->act == SK_STEP_SEND) return t->n > 1 ? t->n : 0;
    if (t->act == SK_STEP_RECV) return t->n;
    return t->act == SK_STEP_RECV_SUM ? t->n + 1 : t->act != SK_STEP_COPY;
}

/* Cells of the staging buffer. */
static int staged(const sk_compiled_schedule *s, const sk_step *t)
{
    if (s->coll->packs) return staged_streams(t);
    if (!is_message(t)) return 0;
    if (t->act == SK_STEP_RECV_SUM) return t->n;
    sk_cell c = t->act == SK_STEP_SEND ? t->from : t->into;
    return c.space == SK_TMP && t->n > 1 ? t->n : 0;
}

static void find_staging(sk_compiled_schedule *s)
{
    int used = 0, round = -1;
    for (int i = 0; i < s->steps.list.n; i++) {
        const sk_step *t = &s->steps.list.v[i];
        if (t->round != round) used = 0;
        round = t->round;
        int need = staged(s, t);
        s->staging[i] = need ? used : -1;
        used += need;
        if (used > s->staging_cells) s->staging_cells = used;
    }
}

/* A library's own collective has no steps.  It knows calls in place, but not where the result is a
 * part of what is read; and MPICH 4.0.2 reads MPI_IN_PLACE as an address in MPI_Reduce. */
static void compile_native(sk_compiled_schedule *s, const sk_coll_ask *ask)
{
    s->steps = (sk_steps){.ask = *ask, .cells = sk_kind_cut(ask->kind) ? ask->n : 1};
    s->reads_src = true;
    s->apart = sk_buffer_layout_is_part(ask->kind, SK_DST) || ask->kind == SK_REDUCE;
}

void sk_schedule_compile(sk_arena *a, const sk_coll *c, const sk_coll_ask *ask,
                         sk_compiled_schedule *out)
{
    *out = (sk_compiled_schedule){.coll = c};
    if (c->build) sk_steps_build(c, ask, a, &out->steps);
    int n = out->steps.list.n;
    out->ordinal = sk_many(a, int, n);
    out->due = sk_many(a, int, n);
    out->staging = sk_many(a, int, n);
    out->box = sk_many(a, int, ask->n + 1);
    if (!c->build) {
        compile_native(out, ask);
        return;
    }
    out->reads_src = reads_src(&out->steps);
    find_due(a, out);
    number_messages(a, out);
    find_staging(out);
}
