/* zero.c - ZeRO (Rajbhandari et al. 2020): optimizer state, gradients and weights are sharded. */
#include "layout/word.h"
#include "kernel/optim.h"

#include <stdio.h>
#include <string.h>

static const char *const shards[] = {"none", "state", "grads", "params"};

static sk_status one_axis(sk_layout *l, const char *name)
{
    int axis;
    SK_TRY(sk_axis_find(l, name, &axis));
    if (l->shard_axis < 0) l->shard_axis = axis;
    else if (l->shard_axis == axis)
        return sk_fail(SK_ECONF, "layout: shards over '%s' twice; name each axis once", name);
    else if (l->shard_second)
        return sk_fail(SK_ECONF, "layout: shards over three axes, the third is '%s'; two at most",
                       name);
    else l->shard_second = 1 + axis;
    return SK_OK;
}

/* "dp+cp" */
static sk_status all_axes(sk_layout *l, const char *list)
{
    char name[SK_AXIS_NAME];
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, "+");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        SK_TRY(one_axis(l, name));
        p += n + (p[n] == '+');
    }
    return SK_OK;
}

/* Over dp, which is made if need be; "3:dp+cp": over these. */
static sk_status set(sk_reading *r, const char *value)
{
    int level = 0;
    sk_layout *l = r->l;
    char number[8];
    size_t n = value ? strcspn(value, ":") : 0;
    bool named = value && value[n] && n < sizeof number;
    snprintf(number, sizeof number, "%.*s", (int)n, value ? value : "");
    SK_TRY(sk_word_int("zero", named ? number : value, 0, 3, &level));
    if (!level) return SK_OK;
    l->shard = (sk_shard)level;
    l->shard_axis = -1;
    l->shard_second = 0;
    if (named) return all_axes(l, value + n + 1);
    l->shard_axis = sk_mesh_axis(&l->mesh, "dp");
    if (l->shard_axis >= 0) return SK_OK;
    SK_TRY(sk_axis_add(&l->mesh, "dp", 1));
    l->shard_axis = l->mesh.n - 1;
    return sk_axis_split(l, l->shard_axis, "b");
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    int level = 0;
    sk_layout *l = r->l;
    while (level < 4 && strcmp(s->v[0], shards[level]) != 0) level++;
    if (level == 4)
        return sk_fail(SK_ECONF, "layout: cannot shard \"%s\"; state, grads or params", s->v[0]);
    l->shard = (sk_shard)level;
    l->shard_axis = -1;
    l->shard_second = 0;
    for (int i = 0; i < s->n_many; i++) {
        char name[SK_AXIS_NAME];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(s->many[i], ","), s->many[i]);
        SK_TRY(one_axis(l, name));
    }
    if (!level) l->shard_axis = -1, l->shard_second = 0; /* no axis has to cut last */
    return SK_OK;
}

static void clear(sk_layout *l)
{
    l->shard = SK_SHARD_NONE;
    l->shard_axis = -1;
    l->shard_second = 0;
}

/* A second axis must not cut weights in another way. */
static bool may_be_one_of_two(const sk_layout *l, int axis)
{
    return !l->split[axis][strspn(l->split[axis], "bt")];
}

/* Gathers go over one axis after the other (src/program/shard_levels.c). */
static sk_status check(const sk_layout *l)
{
    if (!l->shard_second) return SK_OK;
    const int axes[] = {l->shard_axis, l->shard_second - 1};
    const char *with = l->replica       ? "replica, whose ranks update one memory"
                       : l->copy > 1    ? "copy=N, a second copy along one axis"
                       : *l->weights_as ? "weights=CODEC, which encodes the gather over one axis"
                       : *l->grads_as   ? "grads=CODEC, which encodes the sum over one axis"
                                        : NULL;
    if (sk_layout_adasum(l) >= 0) with = "reduce=adasum, which joins gradients over one axis";
    for (int i = 0; i < 2; i++)
        if (!may_be_one_of_two(l, axes[i]))
            return sk_fail(SK_ECONF,
                           "layout: shards over two axes, as dp and cp, need axes that split the "
                           "batch or time alone, and '%s' splits \"%s\"; shard over one of them",
                           l->mesh.name[axes[i]], l->split[axes[i]]);
    if (!with) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: shards over two axes do not go with %s; leave out one of them", with);
}

static sk_status fits(const sk_word_ask *ask)
{
    if (!ask->layout->shard_second || !ask->async) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: shards over two axes do not go with schedule %s, which changes weights "
                   "within a step; shard over one axis",
                   ask->layout->schedule);
}

static int ranks_of(const sk_layout *l)
{
    int n = sk_axis_size(l, l->shard_axis);
    return l->shard_second ? n * sk_axis_size(l, l->shard_second - 1) : n;
}

static void print(const sk_layout *l, sk_out *o)
{
    if (l->shard && l->shard_axis >= 0)
        sk_out_add(o, "shard %s over %s%s%s", shards[l->shard], l->mesh.name[l->shard_axis],
                   l->shard_second ? " " : "",
                   l->shard_second ? l->mesh.name[l->shard_second - 1] : "");
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (!l->shard) return;
    sk_out_add(o, "zero %d", (int)l->shard);
    if (l->shard_second)
        sk_out_add(o, " over %s+%s", l->mesh.name[l->shard_axis],
                   l->mesh.name[l->shard_second - 1]);
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (ranks_of(l) < 2)
        sk_out_add(o, "zero=%d has nothing to do: it shards over one rank, dp=N makes more",
                   (int)l->shard);
}

/* Now and then a second axis, of any kind but stages. */
static int another(sk_dice *d, const sk_layout *l, int axis)
{
    int second = sk_dice_pick(d, 0, l->mesh.n - 1);
    bool can = second != axis && second != l->stage_axis && !sk_layout_local(l, second) &&
               may_be_one_of_two(l, axis) && may_be_one_of_two(l, second);
    return can && sk_dice_one_in(d, 2) ? second : -1;
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
    int second = another(d, l, axis);
    if (second >= 0)
        snprintf(phrase, SK_WORD_TEXT, "shard %s over %s %s", shards[level], l->mesh.name[axis],
                 l->mesh.name[second]);
    else if (brief) snprintf(phrase, SK_WORD_TEXT, "zero=%d", level);
    else snprintf(phrase, SK_WORD_TEXT, "shard %s over %s", shards[level], l->mesh.name[axis]);
    return true;
}

/* zero=1 keeps the reduced piece of a gradient beside the whole one: two ranks gain nothing where
 * the optimizer keeps no more than four bytes a weight. */
static bool claims(const sk_word_ask *ask)
{
    int n = ranks_of(ask->layout);
    return n > 1 && (ask->layout->shard >= SK_SHARD_GRADS || ask->optim->n_state * (n - 1) > 2);
}

const sk_word sk_word_zero = {
    .name = "zero",
    .doc = "ZeRO: 1 shards optimizer state over dp, 2 also gradients, 3 also weights (FSDP)",
    .value = "0|1|2|3|N:dp+cp",
    .sentence = {"shard state|grads|params over AXIS ..."},
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
    .print_brief = print_brief,
    .set = set,
    .say = say,
    .clear = clear,
    .print = print,
    .idle = idle,
    .check = check,
    .fits = fits,
    .lowers = SK_LOWERS_STATE,
    .claims = claims,
    .draw = draw,
    .tries = "1 2 3",
};
