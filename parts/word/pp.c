/* pp.c - pipeline parallelism: each rank has some of the layers (doc/pipelines.md). */
#include "layout/word.h"

extern const sk_word sk_word_pp;

static sk_status stage(sk_reading *r, int axis)
{
    if (r->l->stage_axis >= 0) return sk_word_twice(&sk_word_pp);
    r->l->stage_axis = axis;
    return SK_OK;
}

static sk_status set(sk_reading *r, const char *value)
{
    (void)value; /* the axis is made */
    return stage(r, r->axis);
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    SK_TRY(sk_axis_find(r->l, s->v[0], &r->axis));
    return stage(r, r->axis);
}

static bool on(const sk_layout *l) { return l->stage_axis >= 0; }

static void print(const sk_layout *l, sk_out *o)
{
    if (on(l)) sk_out_add(o, "stages over %s", l->mesh.name[l->stage_axis]);
}

static bool claims(const sk_word_ask *ask)
{
    return sk_axis_claims(ask, "pp") && !*ask->layout->layers; /* dealt to one stage, say */
}

const sk_word sk_word_pp = {
    .name = "pp",
    .doc = "pipeline parallel: the layers are cut into N stages (stages over pp)",
    .value = "N",
    .sentence = {"stages over AXIS"},
    .example = "pp=2 micro=4",
    .alias = {{"pipeline pipeline_parallel pipeline_parallelism pipeline_model_parallel",
               "pp=N, as in \"pp=4 micro=8\""}},
    .kind = SK_WORD_AXIS,
    .letters = "",
    .again = true,
    .place = 50,
    .set = set,
    .say = say,
    .on = on,
    .print = print,
    .lowers = SK_LOWERS_FLOPS,
    .claims = claims,
    .tries = "2 4 8",
};
