/* resume_sync.c - what becomes of replicas, of anchors and of averages where a run goes on with
 * another `sync` or another optim.ema.
 *
 * Any layout reads any checkpoint.  But replicas of another number are replaced by their mean, and
 * what a synchronisation keeps is read only by one that keeps it too; both are told. */
#include "program/sync.h"
#include "tensor/tensor_shard.h"
#include "train/model_export.h"
#include "train/owed.h"
#include "train/relayout.h"
#include "train/rundir_resume.h"

#include <stdlib.h>
#include <string.h>

/* The first tensor with this ending; NULL: none. */
static const sk_ckpt_tensor *ending(const sk_ckpt *c, const char *with)
{
    size_t n = strlen(with);
    for (int i = 0; i < c->tensors.n; i++) {
        size_t m = strlen(c->tensors.v[i].name);
        if (m > n && !strcmp(c->tensors.v[i].name + m - n, with)) return &c->tensors.v[i];
    }
    return NULL;
}

static void tell_replicas(sk_out *o, const sk_layout *l, const sk_ckpt *c, const char *from)
{
    const sk_ckpt_tensor *t = ending(c, SK_REPLICA_SUFFIX);
    int64_t was = t && t->n > 0 ? t->full[0] : 1;
    int64_t is = sk_layout_any_local(l) && !sk_layout_alike(l) ? sk_layout_replicas(l) : 1;
    if (was == 1 || was == is) return;
    sk_out_add(o, "\n%s has %lld replicas with weights and optimizer state of their own: ", from,
               (long long)was);
    if (is == 1) sk_out_add(o, "the run goes on with their mean");
    else sk_out_add(o, "each of %lld replicas goes on with their mean", (long long)is);
}

/* The first step in which replicas have weights of their own; INT64_MAX: none. */
static int64_t apart_from(const sk_layout *l)
{
    int64_t from = INT64_MAX;
    for (int a = 0; a < l->mesh.n; a++)
        if (*l->sync[a].name && l->mesh.size[a] > 1 && sk_layout_local_from(l, a) < from)
            from = sk_layout_local_from(l, a);
    return from;
}

/* The way whose first steps are synchronous, up to a step that is said. */
static const char *postponed(void)
{
    const sk_sync *const *s = sk_sync_parts;
    while (*s && !(*s)->after) s++;
    sk_assert(*s);
    return (*s)->name;
}

/* Steps that are synchronous sum gradients of all replicas: their weights must be alike. */
static sk_status check_alike(const sk_layout *l, const sk_ckpt *c, const char *from)
{
    const sk_ckpt_tensor *t = ending(c, SK_REPLICA_SUFFIX);
    sk_layout old;
    if (!t || t->n < 1 || t->full[0] != sk_layout_replicas(l)) return SK_OK;
    if (apart_from(l) <= c->state.step || apart_from(l) == INT64_MAX) return SK_OK;
    SK_TRY(sk_layout_read(c->state.layout, 0, &old));
    if (apart_from(&old) >= c->state.step) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: replicas of %s have weights of their own since step %lld, and this "
                   "run's layout would sum their gradients until step %lld; let them be on their "
                   "own from step %lld on at the latest (sync=%s:H@%lld)",
                   from, (long long)apart_from(&old), (long long)apart_from(l),
                   (long long)c->state.step, postponed(), (long long)c->state.step);
}

static void tell_anchor(sk_out *o, const sk_layout *l, const sk_ckpt *c, const char *from)
{
    bool anchor = false, momentum = false;
    for (int a = 0; a < l->mesh.n; a++) {
        const sk_sync *s = sk_sync_of(l, a);
        anchor |= s && s->outer;
        momentum |= s && s->outer && s->momentum;
    }
    bool no_anchor = ending(c, ".anchor") && !anchor;
    bool no_momentum = ending(c, ".outer_momentum") && !momentum;
    if (no_anchor || no_momentum)
        sk_out_add(o,
                   "\n%s has %s%s%s of its synchronisations, which this run's layout has no use "
                   "for: dropped",
                   from, no_anchor ? "the anchor" : "", no_anchor && no_momentum ? " and " : "",
                   no_momentum ? "the outer momentum" : "");
    if (anchor && !ending(c, ".anchor"))
        sk_out_add(o, "\n%s has no anchor of synchronisations: it begins from the weights%s", from,
                   momentum ? ", its momentum from 0" : "");
}

static void tell_owed(sk_out *o, const sk_setup *s, const sk_ckpt *c, const char *from)
{
    const char *owed = sk_owed_print(o->arena, sk_owed_resumed(c, s));
    if (owed)
        sk_out_add(
            o,
            "\n%s has what encoding lost %s (error feedback), which this run's layout has no "
            "use for: dropped",
            from, owed);
}

static void tell_average(sk_out *o, const sk_job *job, const sk_ckpt *c, const char *from)
{
    const char *was = sk_resume_value(o->arena, c->state.config, "optim", "ema");
    if (job->ema <= 0 || !was || strtod(was, NULL) > 0) return;
    sk_out_add(o, "\noptim.ema was 0 and is %g: the average begins from the weights of %s",
               job->ema, from);
}

sk_status sk_resume_sync(sk_arena *a, const sk_setup *s, const sk_training *t, const char **note)
{
    sk_ckpt c;
    sk_out o = {.arena = a};
    SK_TRY(sk_ckpt_read(a, t->from, &c));
    s = sk_relayout_setup(s, sk_relayout_at(s, t->step));
    const sk_layout *l = &sk_setup_program_of(s, 0)->layout; /* it knows what an optimizer adds */
    SK_TRY(check_alike(l, &c, t->from));
    tell_replicas(&o, l, &c, t->from);
    tell_anchor(&o, l, &c, t->from);
    tell_owed(&o, s, &c, t->from);
    tell_average(&o, s->job, &c, t->from);
    if (o.n) *note = sk_print(a, "%s%s", *note, o.s);
    return SK_OK;
}
