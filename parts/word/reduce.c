/* reduce.c - gradients of the ranks along an axis are joined by Adasum (Maleki et al. 2020), not
 * summed; gradients of other axes are summed before: hosts=4 dp=8 with Adasum over hosts is the
 * hierarchical form, a sum inside of each host and Adasum between hosts.  program/grad_adasum.c. */
#include "layout/word.h"
#include "coll/adasum_kernel.h"

#include <stdio.h>
#include <string.h>

static sk_status read(const char *text, bool *to)
{
    static const char *const names[] = {"adasum", "sum"};
    *to = !strcmp(text, "adasum");
    if (*to || !strcmp(text, "sum")) return SK_OK;
    const char *near = sk_nearest(text, names, 2);
    return sk_fail(SK_ECONF,
                   "layout: gradients are reduced by sum or adasum, and '%s' is neither%s%s%s",
                   text, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* Over dp, which is made if need be. */
static sk_status set(sk_reading *r, const char *value)
{
    sk_layout *l = r->l;
    int axis = sk_mesh_axis(&l->mesh, "dp");
    if (axis < 0) {
        SK_TRY(sk_axis_add(&l->mesh, "dp", 1));
        axis = l->mesh.n - 1;
        SK_TRY(sk_axis_split(l, axis, "b"));
    }
    return read(value ? value : "", &l->adasum[axis]);
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    int axis = -1;
    SK_TRY(sk_axis_find(r->l, s->v[0], &axis));
    return read(s->v[1], &r->l->adasum[axis]);
}

static int axis_of(const sk_layout *l)
{
    for (int a = 0; a < l->mesh.n; a++)
        if (l->adasum[a]) return a;
    return -1;
}

static bool on(const sk_layout *l) { return axis_of(l) >= 0; }

static void clear(sk_layout *l) { memset(l->adasum, 0, sizeof l->adasum); }

static void print(const sk_layout *l, sk_out *o)
{
    if (on(l)) sk_out_add(o, "reduce gradients over %s by adasum", l->mesh.name[axis_of(l)]);
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (on(l)) sk_out_add(o, "%s adasum", l->mesh.name[axis_of(l)]);
}

static sk_status check(const sk_layout *l)
{
    int a = axis_of(l);
    const char *name = l->mesh.name[a];
    if (strcmp(l->split[a], "b") != 0)
        return sk_fail(SK_ECONF,
                       "layout: reduce=adasum joins gradients of parts of the batch, and '%s' "
                       "splits \"%s\"; an axis that splits the batch \"b\" alone is needed",
                       name, l->split[a]);
    if (*l->sync[a].name)
        return sk_fail(SK_ECONF,
                       "layout: sync=%s lets the ranks along '%s' update alone, and reduce=adasum "
                       "joins their gradients in every step; take two axes, or leave one out",
                       l->sync[a].name, name);
    if (l->mesh.size[a] > SK_ADASUM_MOST)
        return sk_fail(SK_ECONF,
                       "layout: reduce=adasum joins %d gradients along '%s', and %d is the most; "
                       "let a second axis sum inside of hosts, as in \"mesh hosts=8 dp=16; split b "
                       "over hosts; split b over dp; reduce gradients over hosts by adasum\"",
                       l->mesh.size[a], name, SK_ADASUM_MOST);
    return SK_OK;
}

static sk_status fits(const sk_word_ask *ask)
{
    if (sk_layout_adasum(ask->layout) < 0) return SK_OK;
    if (ask->async)
        return sk_fail(SK_ECONF,
                       "layout: reduce=adasum joins the gradients of a step, and schedule %s "
                       "updates within a step; take another, as 1f1b",
                       ask->layout->schedule);
    if (ask->gpu)
        return sk_fail(SK_ECONF, "layout: reduce=adasum runs on CPUs, its instructions have no GPU "
                                 "half; take device=cpu, or leave it out");
    return SK_OK;
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (sk_layout_adasum(l) < 0)
        sk_out_add(o, "reduce has nothing to do: one rank has the gradient, dp=N makes more");
}

/* An axis that splits the batch alone. */
static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    int axis = -1;
    for (int a = 0; a < l->mesh.n; a++)
        if (!strcmp(l->split[a], "b") && l->mesh.size[a] > 1 && !*l->sync[a].name &&
            (axis < 0 || sk_dice_one_in(d, 2)))
            axis = a;
    if (axis < 0 || !sk_dice_one_in(d, 6)) return false;
    bool brief = !strcmp(l->mesh.name[axis], "dp") && sk_dice_one_in(d, 2);
    if (brief) snprintf(phrase, SK_WORD_TEXT, "reduce=adasum");
    else snprintf(phrase, SK_WORD_TEXT, "reduce gradients over %s by adasum", l->mesh.name[axis]);
    return true;
}

const sk_word sk_word_reduce = {
    .name = "reduce",
    .doc = "gradients of ranks along dp are joined by adasum (Maleki et al. 2020), or by sum",
    .value = "adasum",
    .sentence = {"reduce gradients over AXIS by adasum|sum"},
    .example = "dp=2 reduce=adasum",
    .alias = {{"adasum", "reduce=adasum, as in \"dp=4 reduce=adasum\""}},
    .kind = SK_WORD_OTHER,
    .place = 163,
    .set = set,
    .say = say,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print_brief,
    .check = check,
    .fits = fits,
    .idle = idle,
    .excludes = {{"grads", 0,
                  "adasum takes products of gradients, and the codec would change them"},
                 {"canonical", 0,
                  "adasum depends on how many ranks there are, and order=canonical gives the same "
                  "bits on any layout"},
                 {"zero", 2,
                  "adasum joins gradients of the whole step, and zero=2 reduces them in every "
                  "micro-batch; zero=1 goes with it"}},
    .draw = draw,
};
