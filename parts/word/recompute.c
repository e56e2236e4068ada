/* recompute.c - activations that are recomputed in the backward pass instead of saved (Chen et al.
 * 2016; selective: Korthikanti et al. 2022). */
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

/* none, selective, full, so many blocks of a stage, or an op. */
static sk_status set(sk_reading *r, const char *value)
{
    sk_layout *l = r->l;
    l->recompute_said = true;
    if (!strcmp(value, "none")) return SK_OK;
    bool blocks = *value >= '0' && *value <= '9';
    if (!blocks && (!*value || strlen(value) >= sizeof l->recompute))
        return sk_fail(SK_ECONF,
                       "layout: recompute=%.40s; none, selective, full, a number of blocks or the "
                       "name of an op is needed",
                       value);
    snprintf(l->recompute, sizeof l->recompute, "%s", blocks ? "full" : value);
    return blocks ? sk_word_int("recompute", value, 1, 0, &l->recompute_blocks) : SK_OK;
}

static bool on(const sk_layout *l) { return *l->recompute; }

static void clear(sk_layout *l)
{
    *l->recompute = 0;
    l->recompute_blocks = 0;
}

static void print(const sk_layout *l, sk_out *o)
{
    if (l->recompute_blocks) sk_out_add(o, "recompute %d blocks", l->recompute_blocks);
    else if (*l->recompute) sk_out_add(o, "recompute %s", l->recompute);
}

/* The op must be there, and in a block: the rest is saved. */
static sk_status has_op(const sk_layout *l, const sk_graph *g)
{
    const char *names[64];
    int n = 0;
    if (!strcmp(l->recompute, "full") || !strcmp(l->recompute, "selective")) return SK_OK;
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *x = g->nodes.v[i];
        if (x->phase != SK_FORWARD || x->layer < 1 || x->layer >= g->n_layers - 1) continue;
        if (!strcmp(x->op->name, l->recompute)) return SK_OK;
        if (n < 64) names[n++] = x->op->name;
    }
    const char *near = sk_nearest(l->recompute, names, n);
    return sk_fail(SK_ECONF,
                   "layout: recompute=%s, and no block of the model has such an op%s%s%s; none, "
                   "selective and full go with any",
                   l->recompute, near ? " (did you mean '" : "", near ? near : "",
                   near ? "'?)" : "");
}

static sk_status fits(const sk_word_ask *ask)
{
    if (!on(ask->layout)) return SK_OK;
    if (ask->graph) SK_TRY(has_op(ask->layout, ask->graph));
    if (!ask->stale) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: schedule %s has other weights in the backward pass, so forward results "
                   "cannot be recomputed there; leave out recompute, or take pipedream",
                   ask->layout->schedule);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    static const char *const what[] = {"full", "selective", "1", "2", "contract"};
    (void)l;
    snprintf(phrase, SK_WORD_TEXT, "recompute=%s", what[sk_dice_pick(d, 0, 4)]);
    return sk_dice_one_in(d, 3);
}

static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout;
    return !strcmp(l->recompute, "full") && !l->recompute_blocks && !l->home[SK_KEPT];
}

const sk_word sk_word_recompute = {
    .name = "recompute",
    .doc =
        "activations recomputed in the backward pass: attention's core, all inside blocks, inside "
        "the first N blocks of a stage, of an op",
    .value = "none|selective|full|N|OP",
    .sentence = {"recompute selective|full|OP", "recompute N blocks"},
    .example = "dp=2 recompute=full",
    .alias = {{"activation_checkpointing gradient_checkpointing activation_recomputation "
               "recompute_activations recompute_granularity checkpointing",
               "recompute=full or recompute=selective, as in \"dp=4 recompute=selective\""}},
    .kind = SK_WORD_OTHER,
    .place = 180,
    .set = set,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print,
    .fits = fits,
    .lowers = SK_LOWERS_SAVED,
    .claims = claims,
    .draw = draw,
    .tries = "selective full",
};
