/* meets.c - where a layout meets a model: what it splits must be there.
 *
 * A letter that nobody has would change nothing in silence.  "tp=2" implies more letters than
 * some models have; an axis that finds none of its letters is a mistake all the same. */
#include "layout/layout.h"
#include "base/text.h"

#include <ctype.h>
#include <string.h>

typedef struct letters {
    bool has[128];
} letters;

static letters letters_of(const sk_graph *g)
{
    letters in = {0};
    for (int i = 0; i < g->nodes.n; i++)
        for (const char *p = g->nodes.v[i]->dims; *p; p++) in.has[(int)*p & 127] = true;
    for (int i = 0; i < g->tensors.n; i++)
        for (const char *p = g->tensors.v[i]->letters; *p; p++) in.has[(int)*p & 127] = true;
    return in;
}

static sk_status missing(const sk_layout *l, const letters *in, int axis, char letter)
{
    char list[3 * 52 + 1] = "", near[] = {letter, 0};
    size_t n = 0;
    for (int c = 'A'; c <= 'z'; c++) {
        if (!isalpha(c) || !in->has[c]) continue;
        list[n++] = ' ';
        list[n++] = (char)c;
    }
    near[0] = (char)(isupper((unsigned char)letter) ? tolower(letter) : toupper(letter));
    bool hint = in->has[(int)near[0] & 127];
    return sk_fail(SK_ECONF,
                   "layout: '%c' is split over '%s', and no tensor of the model has that "
                   "letter%s%s%s; its letters are%s",
                   letter, l->mesh.name[axis], hint ? " (did you mean '" : "", hint ? near : "",
                   hint ? "'?)" : "", list);
}

/* The op whose results shall be made again must be there, and in a block: the rest is kept. */
static sk_status meets_op(const sk_layout *l, const sk_graph *g)
{
    const char *names[64];
    int n = 0;
    if (!*l->again || !strcmp(l->again, "full") || !strcmp(l->again, "selective")) return SK_OK;
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *x = g->nodes.v[i];
        if (x->phase != SK_FORWARD || x->layer < 1 || x->layer >= g->n_layers - 1) continue;
        if (!strcmp(x->op->name, l->again)) return SK_OK;
        if (n < 64) names[n++] = x->op->name;
    }
    const char *near = sk_nearest(l->again, names, n);
    return sk_fail(SK_ECONF,
                   "layout: recompute=%s, and no block of the model has such an op%s%s%s; "
                   "none, selective and full go with any",
                   l->again, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

sk_status sk_layout_meets(const sk_layout *l, const sk_graph *g)
{
    letters in = letters_of(g);
    SK_TRY(meets_op(l, g));
    for (int a = 0; a < l->mesh.n; a++) {
        char first = 0;
        bool works = l->mesh.size[a] == 1 || a == l->shard_axis;
        for (const char *p = l->split[a]; *p; p++) {
            if (in.has[(int)*p & 127]) works = true;
            else if (!strchr("btehfv", *p)) return missing(l, &in, a, *p);
            else if (!first) first = *p;
        }
        if (first && !works) return missing(l, &in, a, first);
    }
    return SK_OK;
}
