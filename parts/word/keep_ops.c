/* keep_ops.c - results of cheap ops (norms, activation functions) are saved for the backward pass;
 * without the word they are recomputed there. */
#include "layout/word.h"

#include <stdio.h>
#include <string.h>

extern const sk_word sk_word_keep_ops;

static sk_status set_cheap(sk_layout *l)
{
    if (l->keep_cheap) return sk_word_twice(&sk_word_keep_ops);
    l->keep_cheap = true;
    return SK_OK;
}

/* "bias_gelu+layernorm" */
static sk_status set_ops(sk_layout *l, const char *text)
{
    char one[sizeof l->keep_ops];
    if (*l->keep_ops) return sk_word_twice(&sk_word_keep_ops);
    if (strlen(text) >= sizeof l->keep_ops)
        return sk_fail(SK_ECONF, "layout: keep=%s is longer than %zu letters", text,
                       sizeof l->keep_ops - 1);
    for (const char *at = text; *at; at += *at == '+') {
        size_t n = strcspn(at, "+");
        snprintf(one, sizeof one, "%.*s", (int)n, at);
        const sk_op *op = sk_op_find(one);
        if (!op || !(op->flags & SK_OP_CHEAP))
            return sk_fail(
                SK_ECONF,
                "layout: keep=%s: '%s' is no op whose results are recomputed; keep=cheap "
                "keeps all of those, keep alone the gathered weights",
                text, one);
        at += n;
    }
    snprintf(l->keep_ops, sizeof l->keep_ops, "%s", text);
    return SK_OK;
}

static sk_status set(sk_reading *r, const char *value)
{
    if (!*value)
        return sk_fail(SK_ECONF, "layout: \"keep\" takes no value, which keeps gathered weights, "
                                 "or \"cheap\", or ops, as in keep=bias_gelu+layernorm");
    if (!strcmp(value, "none")) return SK_OK;
    return strcmp(value, "cheap") ? set_ops(r->l, value) : set_cheap(r->l);
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    return s->n ? set_ops(r->l, s->v[0]) : set_cheap(r->l);
}

static bool on(const sk_layout *l) { return l->keep_cheap || *l->keep_ops; }

static void clear(sk_layout *l)
{
    l->keep_cheap = false;
    *l->keep_ops = 0;
}

static void print(const sk_layout *l, sk_out *o)
{
    if (l->keep_cheap) sk_out_add(o, "keep cheap results");
    if (*l->keep_ops) sk_out_add(o, "%skeep results of %s", o->n ? "\n" : "", l->keep_ops);
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (l->keep_cheap) sk_out_add(o, "keep cheap");
    if (*l->keep_ops) sk_out_add(o, "%skeep %s", o->n ? " · " : "", l->keep_ops);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    static const char *const what[] = {"cheap", "cheap", "cheap", "rmsnorm", "bias_gelu+layernorm"};
    (void)l;
    snprintf(phrase, SK_WORD_TEXT, "keep=%s", what[sk_dice_pick(d, 0, 4)]);
    return sk_dice_one_in(d, 4);
}

static bool claims(const sk_word_ask *ask)
{
    const sk_layout *l = ask->layout; /* a model without time has no norms */
    return l->keep_cheap && !*l->recompute && l->slices < 2 && !l->canonical &&
           sk_words_letter(ask->graph, 't');
}

const sk_word sk_word_keep_ops = {
    .name = "keep",
    .doc = "results of norms and activation functions (of these ops) are saved, not recomputed",
    .value = "cheap|OP+OP",
    .sentence = {"keep cheap results", "keep results of OP+OP"},
    .example = "dp=2 keep=cheap",
    .kind = SK_WORD_OTHER,
    .again = true,
    .place = 220,
    .set = set,
    .say = say,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print_brief,
    .lowers = SK_LOWERS_FLOPS,
    .claims = claims,
    .draw = draw,
    .tries = "cheap",
};
