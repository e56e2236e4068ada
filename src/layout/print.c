/* print.c - a layout as text: the long form, which reads back, and a few words for people. */
#include "base/text.h"
#include "layout/inside.h"

#include <string.h>

const char sk_usual_schedule[] = "1f1b";
const char *const sk_by_names[3] = {"gather", "exchange", "ring"};
const char *const sk_tier_names[SK_N_TIERS] = {"device", "host", "file"};
const char *const sk_ware_names[SK_N_WARES] = {"state", "weights", "grads", "acts"};

/* What lives in one tier, between words; nothing if nothing does. */
static void print_home(sk_out *o, const sk_layout *l, sk_tier tier, const char *before,
                       const char *behind)
{
    bool any = false;
    for (int i = 0; i < SK_N_WARES; i++) {
        if (l->home[i] != tier) continue;
        sk_out_add(o, "%s %s", any ? "" : before, sk_ware_names[i]);
        any = true;
    }
    if (any) sk_out_add(o, "%s%s", behind, sk_tier_names[tier]);
}

char *sk_layout_print(sk_arena *a, const sk_layout *l)
{
    static const char *const what[] = {"none", "state", "grads", "params"};
    sk_out o = {.arena = a};
    sk_out_add(&o, "mesh");
    for (int i = 0; i < l->mesh.n; i++) sk_out_add(&o, " %s=%d", l->mesh.name[i], l->mesh.size[i]);
    for (int i = 0; i < l->mesh.n; i++) {
        if (!l->split[i][0]) continue;
        sk_out_add(&o, "\nsplit");
        for (const char *p = l->split[i]; *p; p++) sk_out_add(&o, " %c", *p);
        sk_out_add(&o, " over %s", l->mesh.name[i]);
        if (l->by[i]) sk_out_add(&o, " by %s", sk_by_names[l->by[i]]);
    }
    if (l->shard && l->shard_axis >= 0)
        sk_out_add(&o, "\nshard %s over %s", what[l->shard], l->mesh.name[l->shard_axis]);
    if (l->replica) sk_out_add(&o, "\none copy of weights per host");
    if (l->stage_axis >= 0)
        sk_out_add(&o, "\nstages over %s schedule %s", l->mesh.name[l->stage_axis], l->schedule);
    else if (strcmp(l->schedule, sk_usual_schedule)) sk_out_add(&o, "\nschedule %s", l->schedule);
    if (l->stage_axis >= 0 && l->chunks) sk_out_add(&o, " chunks %d", l->chunks);
    if (l->stage_axis >= 0 && l->balance) sk_out_add(&o, " balanced");
    if (l->n_micro) sk_out_add(&o, l->stage_axis >= 0 ? " micro %d" : "\nmicro %d", l->n_micro);
    if (l->prefetch) sk_out_add(&o, "\ngather weights %d ahead", l->prefetch);
    if (l->keep) sk_out_add(&o, "\nkeep gathered weights");
    if (l->overlap > 1) sk_out_add(&o, "\noverlap in %d turns", l->overlap);
    if (*l->weights_as) sk_out_add(&o, "\nencode weights as %s", l->weights_as);
    if (*l->grads_as)
        sk_out_add(&o, "\nencode gradients as %s%s", l->grads_as,
                   l->feedback ? " with feedback" : "");
    if (l->copy) sk_out_add(&o, "\nsecond copy of weights over %d ranks", l->copy);
    if (l->slices > 1) sk_out_add(&o, "\nresults in %d slices", l->slices);
    if (l->again_blocks) sk_out_add(&o, "\nrecompute %d blocks", l->again_blocks);
    else if (*l->again) sk_out_add(&o, "\nrecompute %s", l->again);
    for (int t = SK_HOST; t < SK_N_TIERS; t++) print_home(&o, l, (sk_tier)t, "\noffload", " to ");
    if (l->tiles > 1) sk_out_add(&o, "\nweights in %d tiles", l->tiles);
    if (l->partition) sk_out_add(&o, "\nkeep results in pieces");
    if (l->keep_cheap) sk_out_add(&o, "\nkeep cheap results");
    if (*l->keep_ops) sk_out_add(&o, "\nkeep results of %s", l->keep_ops);
    if (l->gist) sk_out_add(&o, "\nencode kept results");
    if (l->gist && l->gist < 100) sk_out_add(&o, " in %d percent", l->gist);
    if (l->canonical) sk_out_add(&o, "\ncanonical order");
    sk_out_add(&o, "\n");
    return o.s;
}

char *sk_layout_short(sk_arena *a, const sk_layout *l)
{
    sk_out o = {.arena = a};
    for (int i = 0; i < l->mesh.n; i++)
        if (l->mesh.size[i] > 1)
            sk_out_add(&o, "%s%s %d", o.n ? " · " : "", l->mesh.name[i], l->mesh.size[i]);
    if (l->shard) sk_out_add(&o, "%szero %d", o.n ? " · " : "", (int)l->shard);
    if (l->replica) sk_out_add(&o, " · replica");
    if (*l->weights_as) sk_out_add(&o, " · weights %s", l->weights_as);
    if (*l->grads_as)
        sk_out_add(&o, "%sgrads %s%s", o.n ? " · " : "", l->grads_as,
                   l->feedback ? " with feedback" : "");
    if (l->copy > 1) sk_out_add(&o, " · copy over %d", l->copy);
    if (l->n_micro > 1) sk_out_add(&o, "%smicro %d", o.n ? " · " : "", l->n_micro);
    if (l->stage_axis >= 0 && l->mesh.size[l->stage_axis] > 1) sk_out_add(&o, " · %s", l->schedule);
    if (l->slices > 1) sk_out_add(&o, "%sslices %d", o.n ? " · " : "", l->slices);
    if (l->again_blocks) sk_out_add(&o, "%srecompute %d blocks", o.n ? " · " : "", l->again_blocks);
    else if (*l->again) sk_out_add(&o, "%srecompute %s", o.n ? " · " : "", l->again);
    for (int t = SK_HOST; t < SK_N_TIERS; t++)
        print_home(&o, l, (sk_tier)t, o.n ? " · offload" : "offload", " to ");
    if (l->tiles > 1) sk_out_add(&o, " · %d tiles", l->tiles);
    if (l->partition) sk_out_add(&o, " · partition");
    if (l->keep_cheap) sk_out_add(&o, "%skeep cheap", o.n ? " · " : "");
    if (*l->keep_ops) sk_out_add(&o, "%skeep %s", o.n ? " · " : "", l->keep_ops);
    if (l->gist) sk_out_add(&o, "%sgist", o.n ? " · " : "");
    if (l->gist && l->gist < 100) sk_out_add(&o, " %d %%", l->gist);
    return o.s ? o.s : sk_strdup(a, "1 rank");
}
