/* machine_fit.c - rows of a machine from launches that were timed. */
#include "plan/machine_fit.h"
#include "plan/launch_kind.h"
#include "program/acts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OP, PRODUCT, ATTENTION }; /* what a row is of */

typedef struct row {
    int of;
    char name[SK_OP_WORD];
    sk_dtype type;
    bool fp8, back;
    double m, n, k;     /* OP: bytes, 0, 0; ATTENTION: width, keys, 0 */
    double batch;       /* of products */
    double flops;       /* of all of them */
    double logs, times; /* sum of logarithms of seconds of one flop (OP: of all), and how many */
    double total;       /* seconds, of all of them */
} row;

struct sk_machine_fit {
    sk_arena *arena;
    struct {
        row *v;
        int n, cap;
    } rows;
    double least;         /* seconds of the shortest launch */
    double between, most; /* seconds of a step outside of its launches, of that with the most */
};

sk_machine_fit *sk_machine_fit_begin(sk_arena *a)
{
    sk_machine_fit *f = sk_new(a, sk_machine_fit);
    f->arena = a;
    f->least = INFINITY;
    return f;
}

/* --- adding --- */

static bool same(const row *x, const row *y)
{
    bool name = x->of == y->of && !strcmp(x->name, y->name) && x->type == y->type;
    bool size = x->of == OP ? fabs(log(x->m / y->m)) < 0.1 : x->m == y->m && x->n == y->n;
    return name && size && x->k == y->k && x->batch == y->batch && x->fp8 == y->fp8 &&
           x->back == y->back;
}

static void add(sk_machine_fit *f, const row *x, double seconds)
{
    int i = 0;
    while (i < f->rows.n && !same(&f->rows.v[i], x)) i++;
    if (i == f->rows.n) {
        *sk_push(f->arena, &f->rows) = *x;
        f->rows.v[i].flops = 0;
    }
    row *to = &f->rows.v[i];
    to->flops += x->flops;
    to->logs += log(x->of == OP ? seconds : seconds / x->flops);
    to->times++;
    to->total += seconds;
}

void sk_machine_fit_op(sk_machine_fit *f, const char *name, sk_dtype type, double bytes,
                       double seconds)
{
    row x = {.of = OP, .type = type, .m = fmax(bytes, 1)};
    snprintf(x.name, sizeof x.name, "%s", name);
    add(f, &x, seconds);
}

static row row_of(const sk_launch_kind *k)
{
    row x = {.of = OP, .type = k->type, .m = fmax((double)k->bytes, 1), .flops = k->flops};
    snprintf(x.name, sizeof x.name, "%s", k->name);
    if (!k->n_shaped) return x;
    const sk_kernel_shape *s = &k->shape;
    x = (row){.of = PRODUCT, .type = s->type, .fp8 = s->fp8, .flops = k->flops};
    x.m = (double)s->m, x.n = (double)s->n, x.k = (double)s->k, x.batch = (double)s->batch;
    if (s->kind == SK_KERNEL_PRODUCT) return x;
    x.of = ATTENTION;
    x.m = (double)s->k, x.k = x.batch = 0;
    x.back = s->kind == SK_KERNEL_ATTENTION_GRAD;
    return x;
}

/* Products of vectors are passes over their bytes. */
static bool tells(const sk_launch_kind *k)
{
    const sk_kernel_shape *s = &k->shape;
    if (!k->n_shaped) return k->bytes > 0;
    if (k->n_shaped > 1) return false;
    if (s->kind != SK_KERNEL_PRODUCT) return true;
    return s->m > 1 && s->n > 1;
}

static int launches(const sk_program *p)
{
    int n = 0;
    for (int pc = 0; pc < p->n_train; pc++)
        n += !sk_launch_of(p, pc) || sk_launch_of(p, pc)->at == pc;
    return n;
}

void sk_machine_fit_add(sk_machine_fit *f, const sk_program *p, const sk_launch_times *t)
{
    int n = launches(p);
    double mark = p->gpu ? fmax(t->traced - t->plain, 0) / fmax(p->n_train, 1) : 0;
    for (int pc = 0; pc < p->n_train; pc++) {
        sk_launch_kind k;
        const sk_inst *in = &p->insts.v[pc];
        double seconds = t->seconds[pc];
        if (seconds <= 0 || in->every > 1 || sk_act_row_of(in)->moves) continue;
        if (in->in[0] >= 0 && p->bufs.v[in->in[0]].placement) continue; /* the host's work */
        if (!sk_launch_kind_of(p, pc, &k) || !tells(&k)) continue;
        row x = row_of(&k);
        seconds = fmax(seconds - mark, seconds / 4);
        f->least = fmin(f->least, seconds);
        add(f, &x, seconds);
    }
    if (n <= f->most) return;
    f->most = n;
    f->between = p->gpu ? t->outside : 0; /* on a processor it is the clock itself */
}

/* --- rows of the file --- */

/* Without what every launch takes, which is added to the price of each. */
static double rate_of(const sk_machine *m, const row *r)
{
    double flops = r->flops / r->times, s = flops * exp(r->logs / r->times);
    return flops / fmax(s - m->overhead, s / 4);
}

static void put_product(sk_machine *m, const row *r)
{
    sk_kernel_rates *k = &m->kernels;
    double rate = rate_of(m, r);
    double *best = r->fp8 ? &k->flops_fp8 : r->type == SK_F32 ? &k->flops_f32 : &m->flops;
    if (rate > *best) *best = rate;
    if (k->n_products == SK_MOST_PRODUCTS) return;
    k->product[k->n_products++] = (sk_product_rate){.type = r->type,
                                                    .fp8 = r->fp8,
                                                    .m = r->m,
                                                    .n = r->n,
                                                    .k = r->k,
                                                    .rate = rate,
                                                    .batch = r->batch};
}

static void put_attention(sk_machine *m, const row *r)
{
    sk_kernel_rates *k = &m->kernels;
    sk_attention_at *at = k->attention_at;
    int i = 0;
    while (i < k->n_attention_at &&
           (at[i].type != r->type || at[i].width != r->m || at[i].keys != r->n))
        i++;
    if (i == SK_MOST_ATTENTION_AT) return;
    double rate = rate_of(m, r);
    if (i == k->n_attention_at) {
        at[k->n_attention_at++] = (sk_attention_at){
            .type = r->type, .width = r->m, .keys = r->n, .forward = rate, .backward = rate};
    }
    *(r->back ? &at[i].backward : &at[i].forward) = rate;
}

static void put_op(sk_machine *m, const row *r)
{
    sk_kernel_rates *k = &m->kernels;
    if (k->n_ops == SK_MOST_OPS) return;
    sk_measured_op *o = &k->op[k->n_ops++];
    *o = (sk_measured_op){.type = r->type, .bytes = r->m, .seconds = exp(r->logs / r->times)};
    memcpy(o->name, r->name, sizeof o->name);
}

static int by_time(const void *a, const void *b) /* those that took the most first */
{
    const row *x = a, *y = b;
    return (x->total < y->total) - (x->total > y->total);
}

static int by_name(const void *a, const void *b)
{
    const sk_measured_op *x = a, *y = b;
    int d = strcmp(x->name, y->name);
    if (d) return d;
    if (x->type != y->type) return (int)x->type - (int)y->type;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_shape(const void *a, const void *b)
{
    const sk_product_rate *x = a, *y = b;
    if (x->fp8 != y->fp8) return (int)x->fp8 - (int)y->fp8;
    if (x->type != y->type) return (int)x->type - (int)y->type;
    if (x->m != y->m) return x->m < y->m ? -1 : 1;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->k > y->k) - (x->k < y->k);
}

void sk_machine_fit_end(sk_machine_fit *f, sk_machine *m)
{
    sk_kernel_rates *k = &m->kernels;
    double base = m->flops;
    m->overhead = isfinite(f->least) ? f->least : m->overhead;
    m->step = f->between;
    m->flops = k->flops_f32 = k->flops_fp8 = 0;
    k->n_products = k->n_attention_at = k->n_ops = 0;
    qsort(f->rows.v, (size_t)f->rows.n, sizeof *f->rows.v, by_time);
    for (int i = 0; i < f->rows.n; i++) {
        const row *r = &f->rows.v[i];
        if (r->of == OP) put_op(m, r);
        else if (r->of == PRODUCT) put_product(m, r);
        else put_attention(m, r);
    }
    if (m->flops <= 0) m->flops = k->flops_f32 > 0 ? k->flops_f32 : base;
    qsort(k->op, (size_t)k->n_ops, sizeof *k->op, by_name);
    qsort(k->product, (size_t)k->n_products, sizeof *k->product, by_shape);
}
