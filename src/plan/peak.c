/* peak.c - the instruction with the most live results. */
#include "plan/peak.h"
#include "base/strings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 }; /* memory is taken in lines */

static int64_t taken(const sk_buffer *b) { return (b->bytes + LINE - 1) / LINE * LINE; }

static bool comes_and_goes(const sk_buffer *b)
{
    return !b->keep && b->within < 0 && b->first >= 0 && b->bytes > 0 && !b->placement && !b->joins;
}

/* An op that works in place takes over the memory of an operand that dies there. */
static bool takes_over(const sk_program *p, const sk_buffer *b)
{
    const sk_inst *in = &p->insts.v[b->first];
    unsigned may = in->act == SK_DO_OP ? in->node->op->reuse : 0;
    for (int r = 0; may && r < in->node->n_in; r++) {
        const sk_buffer *from = &p->bufs.v[in->in[r]];
        bool dies = from->last == b->first && !from->keep;
        if (may >> r & 1 && dies && from->offset == b->offset) return true;
    }
    return false;
}

static void find_pc(const sk_program *p, sk_arena *a, sk_peak *out)
{
    int64_t *born = sk_many(a, int64_t, p->insts.n + 2), now = 0, low = INT64_MAX, high = 0;
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (!comes_and_goes(b)) continue;
        born[b->first + takes_over(p, b)] += taken(b);
        born[b->last + 1] -= taken(b);
        if (b->offset < low) low = b->offset;
        if (b->offset + taken(b) > high) high = b->offset + taken(b);
    }
    for (int pc = 0; pc < p->insts.n; pc++) {
        now += born[pc];
        if (now > out->live) out->live = now, out->pc = pc;
    }
    out->region = out->pc < 0 ? 0 : high - low;
}

/* "add.102" is one of many called "add". */
static const char *stem(sk_arena *a, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || !dot[1] || dot[1 + strspn(dot + 1, "0123456789")]) return name;
    return sk_print(a, "%.*s", (int)(dot - name), name);
}

typedef struct share {
    const char *name;
    int64_t bytes;
    int pieces;
} share;

static int by_name(const void *x, const void *y)
{
    return strcmp(((const share *)x)->name, ((const share *)y)->name);
}

static int by_bytes(const void *x, const void *y)
{
    const share *a = x, *b = y;
    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

static void name_largest(const sk_program *p, sk_arena *a, sk_peak *out)
{
    share *v = sk_many(a, share, p->bufs.n + 1);
    int n = 0, kept = 0;
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (comes_and_goes(b) && b->first <= out->pc && b->last >= out->pc)
            v[n++] = (share){stem(a, b->name), taken(b), 1};
    }
    qsort(v, (size_t)n, sizeof *v, by_name);
    for (int i = 0; i < n; i++)
        if (kept && !strcmp(v[kept - 1].name, v[i].name))
            v[kept - 1].bytes += v[i].bytes, v[kept - 1].pieces++;
        else v[kept++] = v[i];
    qsort(v, (size_t)kept, sizeof *v, by_bytes);
    for (out->n = 0; out->n < SK_PEAK_NAMES && out->n < kept; out->n++) {
        snprintf(out->top[out->n].name, sizeof out->top->name, "%s", v[out->n].name);
        out->top[out->n].bytes = v[out->n].bytes;
        out->top[out->n].pieces = v[out->n].pieces;
    }
}

void sk_peak_find(const sk_program *p, sk_peak *out)
{
    sk_arena tmp = {0};
    *out = (sk_peak){.pc = -1};
    find_pc(p, &tmp, out);
    if (out->pc >= 0) name_largest(p, &tmp, out);
    sk_arena_end(&tmp);
}
