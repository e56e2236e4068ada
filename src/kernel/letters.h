/* letters.h - the letters of a dims line for kernels, and how a reduction walks an operand.
 *
 * "em!n!->em": letters 0 are "emn", those of the result "em".  The dims of the operand that the
 * result has, in its order, stay; the others go, in the operand's order. */
#ifndef SK_KERNEL_LETTERS_H
#define SK_KERNEL_LETTERS_H

#include "kernel/args.h"

#include <string.h>

/* Of operand i, or of the result if i is -1; without marks. */
static inline void sk_letters(const char *dims, int i, char letters[SK_MAX_DIM + 1])
{
    int n = 0;
    if (i < 0) dims = strstr(dims, "->") + 2;
    for (; i > 0; i--) dims = strchr(dims, ',') + 1;
    for (; *dims && *dims != ',' && *dims != '-'; dims++)
        if (*dims != '!' && *dims != '^') letters[n++] = *dims;
    letters[n] = 0;
}

/* Some dims of an operand, the last one fastest. */
typedef struct sk_walk {
    int n;
    int64_t size[SK_MAX_DIM], step[SK_MAX_DIM];
} sk_walk;

typedef struct sk_reduction {
    sk_walk stay, go;
    int64_t n_stay, n_go; /* elements of the result; of the operand for each of them */
    int first;            /* dim of the operand that goes; -1: none does */
} sk_reduction;

/* Dims that lie beside each other are taken for one. */
static inline void sk_walk_add(sk_walk *w, const sk_view *v, int d)
{
    int64_t size = v->size[d], step = v->step[d];
    int k = w->n - 1;
    if (w->n && w->step[k] == size * step) w->size[k] *= size, w->step[k] = step;
    else w->size[w->n] = size, w->step[w->n++] = step;
}

static inline sk_reduction sk_reduction_of(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    char in[SK_MAX_DIM + 1], out[SK_MAX_DIM + 1];
    sk_reduction r = {{0}, {0}, 1, 1, -1};
    sk_letters(a->dims, 0, in);
    sk_letters(a->dims, -1, out);
    for (const char *p = out; *p; p++) sk_walk_add(&r.stay, x, (int)(strchr(in, *p) - in));
    for (int d = 0; d < x->n; d++) {
        if (strchr(out, in[d])) continue;
        sk_walk_add(&r.go, x, d);
        if (r.first < 0) r.first = d;
    }
    for (int k = 0; k < r.stay.n; k++) r.n_stay *= r.stay.size[k];
    for (int k = 0; k < r.go.n; k++) r.n_go *= r.go.size[k];
    return r;
}

/* Where element i of a walk lies. */
SK_BOTH int64_t sk_walk_at(const sk_walk *w, int64_t i)
{
    int64_t at = 0;
    for (int k = w->n - 1; k >= 0; k--) {
        at += i % w->size[k] * w->step[k];
        i /= w->size[k];
    }
    return at;
}

#endif
