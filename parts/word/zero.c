/* zero.c - ZeRO (Rajbhandari et al. 2020): optimizer state, gradients and weights are sharded. */
#include "layout/word.h"
#include "kernel/optim.h"

#include <stdio.h>
#include <string.h>

static const char *const shards[] = {"none", "state", "grads", "params"};

/* Over dp, which is made if need be. */
static sk_status set(sk_reading *r, const char *value)
{
    int level = 0;
    sk_layout *l = r->l;
    SK_TRY(sk_word_int("zero", value, 0, 3, &level));
    if (!level) return SK_OK;
    l->shard = (sk_shard)level;
    l->shard_axis = sk_mesh_axis(&l->mesh, "dp");
    if (l->shard_axis >= 0) return SK_OK;
    SK_TRY(sk_axis_add(&l->mesh, "dp", 1));
    l->shard_axis = l->mesh.n - 1;
    return sk_axis_split(l, l->shard_axis, "b");
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    int level = 0;
    while (level < 4 && strcmp(s->v[0], shards[level]) != 0) level++;
    if (level == 4)
        return sk_fail(SK_ECONF, "layout: cannot shard \"%s\"; state, grads or params", s->v[0]);
    r->l->shard = (sk_shard)level;
    SK_TRY(sk_axis_find(r->l, s->v[1], &r->l->shard_axis));
    if (!level) r->l->shard_axis = -1; /* no axis has to cut last */
    return SK_OK;
}

static void clear(sk_layout *l)
{
    l->shard = SK_SHARD_NONE;
    l->shard_axis = -1;
}

static void print(const sk_layout *l, sk_out *o)
{
    if (l->shard && l->shard_axis >= 0)
        sk_out_add(o, "shard %s over %s", shards[l->shard], l->mesh.name[l->shard_axis]);
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (sk_axis_size(l, l->shard_axis) < 2)
        sk_out_add(o, "zero=%d has nothing to do: it shards over one rank, dp=N makes more",
                   (int)l->shard);
}

/* An axis that splits the batch; now and then one that splits time. */
static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    int axis = -1, level = sk_dice_pick(d, 0, 3);
    for (int a = 0; a < l->mesh.n; a++) {
        if (sk_layout_local(l, a)) continue; /* replicas share no shards */
        bool batch = l->split[a][0] == 'b', odd = l->split[a][0] == 't' && sk_dice_one_in(d, 4);
        if ((batch || odd) && (axis < 0 || sk_dice_one_in(d, 2))) axis = a;
    }
    if (axis < 0 || !level) return false;
    bool brief = !strcmp(l->mesh.name[axis], "dp") && sk_dice_one_in(d, 2);
    if (brief) snprintf(phrase, SK_WORD_TEXT, "zero=%d", level);
    else snprintf(phrase, SK_WORD_TEXT, "shard %s over %s", shards[level], l->mesh.name[axis]);
    return true;
}

/* zero=1 keeps the reduced piece of a gradient beside the whole one: two ranks gain nothing where
 * the optimizer keeps no more than four bytes a weight. */
static bool claims(const sk_word_ask *ask)
{
    int n = sk_axis_size(ask->layout, ask->layout->shard_axis);
    return n > 1 && (ask->layout->shard >= SK_SHARD_GRADS || ask->optim->n_state * (n - 1) > 2);
}

const sk_word sk_word_zero = {
    .name = "zero",
    .doc = "ZeRO: 1 shards optimizer state over dp, 2 also gradients, 3 also weights (FSDP)",
    .value = "0|1|2|3",
    .sentence = {"shard state|grads|params over AXIS"},
    .example = "dp=2 zero=3",
    .alias = {{"fsdp fsdp2 full_shard fully_shard fully_sharded fully_sharded_data_parallel zero3 "
               "zero_3 stage3",
               "zero=3, as in \"dp=4 zero=3\""},
              {"shard_grad_op zero2 zero_2 stage2", "zero=2, as in \"dp=4 zero=2\""},
              {"zero1 zero_1 stage1 distributed_optimizer use_distributed_optimizer",
               "zero=1, as in \"dp=4 zero=1\""}},
    .kind = SK_WORD_INT,
    .most = 3,
    .at = offsetof(sk_layout, shard),
    .place = 30,
    .brief = "zero N",
    .set = set,
    .say = say,
    .clear = clear,
    .print = print,
    .idle = idle,
    .lowers = SK_LOWERS_STATE,
    .claims = claims,
    .draw = draw,
    .tries = "1 2 3",
};
