/* sense.c - words of a layout that do not go together, or that would change nothing. */
#include "base/text.h"
#include "layout/inside.h"

#include <string.h>

static sk_status check_replica(const sk_layout *l)
{
    if (!l->replica) return SK_OK;
    if (l->shard == SK_SHARD_PARAMS)
        return sk_fail(SK_ECONF,
                       "layout: replica with zero=3 (shard params): every rank keeps only its own "
                       "piece of the weights, there is nothing to share; use zero=1 or zero=2");
    if (l->shard && l->shard_axis >= 0) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: replica (one copy of weights per host) needs each rank to update a "
                   "piece of its own; use zero=1 or zero=2 (shard state|grads over AXIS)");
}

/* A product that is cut along the batch, time or experts waits for nobody. */
static bool products_wait(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->split[a][strspn(l->split[a], "bte")]) return true;
    return false;
}

bool sk_layout_away(const sk_layout *l)
{
    for (int i = 0; i < SK_N_WARES; i++)
        if (l->home[i]) return true;
    return false;
}

static sk_status check_offload(const sk_layout *l)
{
    if (!l->replica || (!l->home[SK_PARAMS] && !l->home[SK_STATE])) return SK_OK;
    return sk_fail(SK_ECONF, "layout: offload with replica: weights that ranks keep in one memory "
                             "are updated there, on the device; leave one of the two out");
}

static sk_status check_tiles(const sk_layout *l)
{
    if (l->tiles > 1 && l->shard == SK_SHARD_PARAMS)
        return sk_fail(SK_ECONF, "layout: tiles are of weights that a rank keeps whole, and zero=3 "
                                 "gathers them for each layer; leave one of the two out");
    if (l->tiles < 2 || (l->home[SK_PARAMS] && l->home[SK_STATE])) return SK_OK;
    return sk_fail(SK_ECONF, "layout: tiles are how weights outside of the device come there, and "
                             "they are updated where they live; say offload=weights+state too");
}

/* Words that go with sharded weights, stages or split products, where there are none. */
static sk_status check_idle(const sk_layout *l)
{
    if ((l->keep || (l->prefetch && !sk_layout_away(l))) && l->shard != SK_SHARD_PARAMS)
        return sk_fail(SK_ECONF,
                       "layout: %s is about weights that are gathered, and every rank has them "
                       "whole; use zero=3 (shard params over AXIS) or leave it out",
                       l->keep ? "keep" : "prefetch");
    if ((l->chunks || l->balance) && l->stage_axis < 0)
        return sk_fail(SK_ECONF,
                       "layout: %s is about the stages of a pipeline, and there are none; use pp=2 "
                       "(stages over AXIS) or leave it out",
                       l->chunks ? "chunks" : "balance");
    if (l->overlap > 1 && !products_wait(l))
        return sk_fail(SK_ECONF,
                       "layout: overlap is about products that wait for other ranks, and no letter "
                       "is split that makes them wait; use tp=2 (split h f v over AXIS) or leave "
                       "it out");
    if (l->partition && !products_wait(l))
        return sk_fail(SK_ECONF,
                       "layout: partition is about results that several ranks would keep alike, "
                       "and no letter is split that leaves them so; use tp=2 (split h f v over "
                       "AXIS) or leave it out");
    return SK_OK;
}

static sk_status check_copy(const sk_layout *l)
{
    int n = l->shard_axis >= 0 ? l->mesh.size[l->shard_axis] : 1;
    if (!l->copy) return SK_OK;
    if (l->shard != SK_SHARD_PARAMS)
        return sk_fail(SK_ECONF,
                       "layout: copy is about weights that are gathered, and every rank has them "
                       "whole; use zero=3 (shard params over AXIS) or leave it out");
    if (n % l->copy)
        return sk_fail(SK_ECONF,
                       "layout: copy=%d: the %d ranks along '%s' are not groups of %d; a number "
                       "that divides %d is needed, best that of the ranks of a host",
                       l->copy, n, l->mesh.name[l->shard_axis], l->copy, n);
    return SK_OK;
}

static sk_status check_codecs(const sk_layout *l)
{
    if (*l->weights_as && l->shard != SK_SHARD_PARAMS)
        return sk_fail(SK_ECONF,
                       "layout: weights=%s is about weights that are gathered, and every rank has "
                       "them whole; use zero=3 (shard params over AXIS) or leave it out",
                       l->weights_as);
    int axis = sk_layout_code_axis(l, 'b');
    if (*l->grads_as && (axis < 0 || !strpbrk(l->split[axis], "bt")))
        return sk_fail(SK_ECONF,
                       "layout: grads=%s is about gradients that are summed over %s%s%s; use dp=2 "
                       "(split b over AXIS) or leave it out",
                       l->grads_as, axis < 0 ? "the batch, and no axis splits it" : "'",
                       axis < 0 ? "" : l->mesh.name[axis],
                       axis < 0 ? "" : "', which shards, and it splits neither batch nor time");
    if (l->feedback && !*l->grads_as)
        return sk_fail(SK_ECONF, "layout: feedback is about gradients that are encoded, and they "
                                 "are not; add grads=int4 or leave it out");
    return SK_OK;
}

sk_status sk_layout_sense(const sk_layout *l, int n_ranks)
{
    int64_t ranks = 1;
    for (int a = 0; a < l->mesh.n; a++) {
        ranks *= l->mesh.size[a];
        if (ranks > SK_MOST_RANKS)
            return sk_fail(SK_ECONF, "layout: the mesh has over %d ranks", SK_MOST_RANKS);
        if (a == l->stage_axis && l->split[a][0])
            return sk_fail(SK_ECONF,
                           "layout: the axis '%s' holds stages and cannot split letters too",
                           l->mesh.name[a]);
    }
    if (l->shard_axis >= 0 && l->shard_axis == l->stage_axis)
        return sk_fail(SK_ECONF, "layout: cannot shard over '%s', which holds stages",
                       l->mesh.name[l->shard_axis]);
    SK_TRY(check_replica(l));
    SK_TRY(check_offload(l));
    SK_TRY(check_tiles(l));
    SK_TRY(check_idle(l));
    SK_TRY(check_codecs(l));
    SK_TRY(check_copy(l));
    if (n_ranks > 0 && ranks != n_ranks)
        return sk_fail(SK_ECONF,
                       "layout: the mesh has %lld ranks, %d were given; start it with -n %lld or "
                       "change the sizes of the axes",
                       (long long)ranks, n_ranks, (long long)ranks);
    return SK_OK;
}

static int size_of(const sk_layout *l, int axis) { return axis < 0 ? 1 : l->mesh.size[axis]; }

char *sk_layout_idle(sk_arena *a, const sk_layout *l)
{
    sk_out o = {.arena = a};
    bool staged = size_of(l, l->stage_axis) > 1, sharded = size_of(l, l->shard_axis) > 1;
    if (l->schedule_said && !staged)
        sk_out_add(&o, "schedule %s has nothing to do: there is one stage, pp=N makes more",
                   l->schedule);
    if (l->shard != SK_SHARD_NONE && !sharded)
        sk_out_add(&o, "%szero=%d has nothing to do: it shards over one rank, dp=N makes more",
                   o.n ? "; " : "", (int)l->shard);
    if (l->replica && !sharded)
        sk_out_add(&o, "%sreplica has nothing to do: one rank has one copy", o.n ? "; " : "");
    return o.s;
}
