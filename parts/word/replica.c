/* replica.c - ranks of a host keep equal weights in one memory (doc/layout.md). */
#include "layout/word.h"

/* It needs zero=1 at least; over dp, if that is not for a mesh line to say. */
static sk_status finish(sk_reading *r)
{
    sk_layout *l = r->l;
    const sk_word *zero = sk_word_find("zero");
    bool dp = sk_mesh_axis(&l->mesh, "dp") >= 0;
    if (!l->replica || l->shard || sk_word_said(r, "zero") || (r->first && !dp)) return SK_OK;
    return zero->set(r, "1");
}

static sk_status check(const sk_layout *l)
{
    if (!l->shard || l->shard_axis < 0)
        return sk_fail(SK_ECONF,
                       "layout: replica (one copy of weights per host) needs each rank to update a "
                       "piece of its own; use zero=1 or zero=2 (shard state|grads over AXIS)");
    if (l->home[SK_PARAMS] || l->home[SK_STATE])
        return sk_fail(SK_ECONF,
                       "layout: offload with replica: weights that ranks keep in one memory are "
                       "updated there, on the device; leave one of the two out");
    return SK_OK;
}

static sk_status fits(const sk_word_ask *ask)
{
    if (!ask->layout->replica) return SK_OK;
    if (ask->gpu)
        return sk_fail(SK_ECONF, "layout: replica keeps one copy of weights for the ranks of a "
                                 "host, and GPUs have no memory in common; leave it out, or use "
                                 "device=cpu");
    if (ask->async)
        return sk_fail(SK_ECONF,
                       "layout: schedule %s changes weights while others read them, so ranks "
                       "cannot have them in one memory; leave out replica",
                       ask->layout->schedule);
    return SK_OK;
}

static bool shared(const sk_layout *l) { return sk_axis_size(l, l->shard_axis) > 1; }

static void idle(const sk_layout *l, sk_out *o)
{
    if (!shared(l)) sk_out_add(o, "replica has nothing to do: one rank has one copy");
}

static bool claims(const sk_word_ask *ask) { return shared(ask->layout); }

const sk_word sk_word_replica = {
    .name = "replica",
    .doc = "ranks of a host along dp keep one copy of the weights (zero=1 or 2)",
    .sentence = {"one copy of weights per host"},
    .example = "dp=2 replica",
    .kind = SK_WORD_FLAG,
    .at = offsetof(sk_layout, replica),
    .place = 40,
    .brief = "replica",
    .finish = finish,
    .idle = idle,
    .check = check,
    .fits = fits,
    .excludes = {{"zero", 3,
                  "every rank keeps only its own piece of the weights, there is nothing to share "
                  "as with zero=1 or zero=2"}},
    .lowers = SK_LOWERS_WEIGHTS,
    .claims = claims,
};
