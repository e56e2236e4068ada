/* fallback.c - planning the fallback program. */
#include "train/fallback.h"
#include "train/layout_cause.h"
#include "train/relayout.h"

#include <stdio.h>
#include <string.h>

/* The key, or the word of the layout, that needs the fallback. */
static const char *asked_by(const sk_setup *s)
{
    if (s->job->dropless) return "train.dropless";
    return sk_print(s->arena, "layout: %s",
                    sk_layout_cause(s->arena, &s->layout, sk_layout_may_fill));
}

static sk_status no_experts(const sk_setup *s)
{
    return sk_fail(SK_ECONF,
                   "train.dropless is 1, but model %s has no experts that could be full: leave it "
                   "out, or choose a mixture of experts",
                   s->job->model_name);
}

static sk_status both_asked(const sk_setup *s)
{
    bool layouts = *s->job->relayout;
    const char *key = layouts ? "train.relayout" : "train.batch_schedule";
    const char *value = layouts ? s->job->relayout : s->job->batch_schedule;
    if (!s->job->dropless)
        return sk_fail(SK_ECONF,
                       "the layout has %s and %s is \"%.60s\"; one run has one of them: "
                       "leave one out, or choose a value with which no step is run again",
                       sk_layout_cause(s->arena, &s->layout, sk_layout_may_fill), key, value);
    return sk_fail(SK_ECONF,
                   "train.dropless is 1 and %s is \"%.60s\"; one run has one of them: "
                   "leave one out, or set model.capacity_factor=0, which never drops",
                   key, value);
}

static bool has_feedback(const sk_layout *l) { return l->feedback; }

/* A step that is run again would use the residual of error feedback twice: the first try has
 * changed it already. */
static sk_status no_feedback(const sk_setup *s)
{
    if (!s->layout.feedback) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s runs a step again that had no room, and error feedback has changed its "
                   "residual by then; leave out '%s'%s",
                   asked_by(s), sk_layout_cause(s->arena, &s->layout, has_feedback),
                   s->job->dropless ? ", or set model.capacity_factor=0, which never drops"
                                    : ", or choose a value with which no step is run again");
}

static bool has_sync(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (*l->sync[a].name) return true;
    return false;
}

/* Likewise replicas: the first try has synchronised them, or sent what their optimizer sends. */
static sk_status no_replicas(const sk_setup *s)
{
    if (!sk_layout_any_local(&s->layout)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s runs a step again that had no room, and replicas have synchronised by then; "
                   "leave out '%s'%s",
                   asked_by(s), sk_layout_cause(s->arena, &s->layout, has_sync),
                   s->job->dropless ? ", or set model.capacity_factor=0, which never drops"
                                    : ", or choose a value with which no step is run again");
}

/* Does the buffer hold the same from step to step, in every program of a model? */
static bool stays(const sk_buffer *b)
{
    return b->keep && (b->kind == SK_WEIGHTS || b->kind == SK_GRADS || b->kind == SK_OPTIM);
}

static bool same_buffer(const sk_buffer *x, const sk_buffer *y)
{
    bool same = !strcmp(x->name, y->name) && x->offset == y->offset && x->bytes == y->bytes &&
                x->common == y->common && x->box.n == y->box.n;
    for (int d = 0; same && d < x->box.n; d++)
        same = x->box.at[d] == y->box.at[d] && x->box.size[d] == y->box.size[d];
    return same;
}

static sk_status same_places(const sk_program *p, const sk_program *q)
{
    int i = 0, k = 0;
    while (true) {
        while (i < p->bufs.n && !stays(&p->bufs.v[i])) i++;
        while (k < q->bufs.n && !stays(&q->bufs.v[k])) k++;
        bool more = i < p->bufs.n && k < q->bufs.n;
        if (!more && i == p->bufs.n && k == q->bufs.n && p->shared_bytes == q->shared_bytes)
            return SK_OK;
        if (!more || !same_buffer(&p->bufs.v[i], &q->bufs.v[k])) break;
        i++, k++;
    }
    return sk_fail(SK_ECONF,
                   "train.dropless: with room for all, '%s' of rank %d would lie elsewhere in this "
                   "layout; name the cuts of its letters in the layout, or set "
                   "model.capacity_factor=0",
                   i < p->bufs.n ? p->bufs.v[i].name : "the weights", p->rank);
}

/* Saved activations are not encoded; everything is recomputed instead, so that the fallback takes
 * no more memory. */
static sk_status unpacked(const sk_setup *s, sk_job *job)
{
    sk_layout l = s->layout;
    l.gist = l.recompute_blocks = 0;
    snprintf(l.recompute, sizeof l.recompute, "full");
    const char *text = sk_layout_print(s->arena, &l);
    if (strlen(text) >= sizeof job->layout)
        return sk_fail(SK_ECONF, "layout: %s needs a shorter text",
                       sk_layout_cause(s->arena, &s->layout, sk_layout_may_fill));
    memcpy(job->layout, text, strlen(text) + 1);
    job->budget = 0;
    return SK_OK;
}

static sk_status make_fallback(sk_setup *s, bool all)
{
    sk_job *job = sk_new(s->arena, sk_job);
    *job = *s->job;
    if (job->dropless) job->hyper.capacity_factor = 0;
    job->dropless = 0;
    job->stays_here = true;
    if (sk_layout_may_fill(&s->layout)) SK_TRY(unpacked(s, job));
    s->fallback = sk_new(s->arena, sk_setup);
    SK_TRY(sk_setup_program(s->arena, job, all, s->fallback));
    if (all || !memcmp(s->class_of, s->fallback->class_of, sizeof(int) * (size_t)s->n_ranks))
        return SK_OK;
    return sk_fail(SK_ECONF,
                   "train.dropless: ranks that are alike are not alike with room for "
                   "all, and %d ranks are too many to plan one by one; leave it out",
                   s->n_ranks);
}

static sk_status number_fallback(sk_setup *s)
{
    sk_setup *q = s->fallback;
    int before = 0, most = 0;
    q->runs = sk_many(s->arena, sk_program *, s->n_ranks);
    for (int r = 0; r < s->n_ranks; r++) {
        if (s->programs[r]->n_groups > before) before = s->programs[r]->n_groups;
        if (q->programs[r]->n_groups > most) most = q->programs[r]->n_groups;
    }
    for (int r = 0; r < s->n_ranks; r++)
        q->runs[r] = sk_relayout_renumbered(s->arena, q->programs[r], before);
    if (before + most <= SK_COMM_GROUPS) return SK_OK;
    return sk_fail(SK_ECONF,
                   "train.dropless: two programs have %d groups of ranks, %d can be; set "
                   "model.capacity_factor=0",
                   before + most, SK_COMM_GROUPS);
}

sk_status sk_fallback_plan(sk_setup *s, bool all)
{
    if (sk_relayout_asked(s->job)) return both_asked(s);
    if (s->job->dropless && s->choices <= 0) return no_experts(s);
    bool for_all = !s->job->dropless || s->graph.size['x'] >= s->graph.size['t'];
    if (for_all && !sk_layout_may_fill(&s->layout)) return SK_OK;
    SK_TRY(sk_relayout_all_here(s, asked_by(s)));
    SK_TRY(no_feedback(s));
    SK_TRY(no_replicas(s));
    SK_TRY(make_fallback(s, all));
    for (int r = 0; r < s->n_ranks; r++) {
        sk_program *p = s->programs[r], *q = s->fallback->programs[r];
        if (!p) continue;
        SK_TRY(same_places(p, q));
        int64_t most = p->heap_bytes > q->heap_bytes ? p->heap_bytes : q->heap_bytes;
        sk_relayout_grow(p, most);
        sk_relayout_grow(q, most);
    }
    return all ? number_fallback(s) : SK_OK;
}
