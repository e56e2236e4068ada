/* norm_grad.c - all gradients of a norm in one pass over what it read, the sum of two that meet at
 * a residual, and the sum over rows of what comes out, which is the gradient of the bias before it.
 *
 *     layernorm_grad_x + layernorm_grad_w (+ add) (+ sum)          rmsnorm likewise
 *
 * Four passes over the rows and five become one: x, dy and the other gradient are read once. */
#include "kernel/cuda/norm_grad.h"
#include "program/fuse.h"

#include <string.h>

#pragma weak sk_norm_grad

enum { NEAR = 6 };

/* Operands of the two ops: x, w, [mean,] rstd, dy and x, [mean,] rstd, dy. */
static bool has_mean(const sk_args *x) { return x->n_in == 5; }

static int find_w(const sk_fuse_site *s, int pc, bool mean)
{
    const int *in = s->p->insts.v[pc].in;
    int at = sk_fuse_next(s, pc, mean ? "layernorm_grad_w" : "rmsnorm_grad_w", 0, in[0], NEAR);
    if (at < 0) return -1;
    const int *w = s->p->insts.v[at].in;
    return w[1] == in[2] && w[2] == in[3] && (!mean || w[3] == in[4]) ? at : -1;
}

/* The sum that alone reads dx. */
static int find_add(const sk_fuse_site *s, int pc)
{
    int at = sk_fuse_only_reader(s, pc, 0, "add");
    if (at < 0 || s->args[pc].add & 1 || s->args[at].add & 1) return -1;
    if (s->args[at].out[0].type != s->args[pc].out[0].type) return -1;
    return sk_count(&s->args[at].in[0]) == sk_count(&s->args[at].in[1]) ? at : -1;
}

/* The sum over all rows of what instruction pc writes, after `last`. */
static int find_sum(const sk_fuse_site *s, int pc, int last)
{
    const sk_view *dx = &s->args[pc].out[0];
    int at = sk_fuse_next(s, last, "sum", 0, s->p->insts.v[pc].out[0], NEAR);
    if (at < 0 || !dx->n) return -1;
    const sk_view *x = &s->args[at].in[0], *y = &s->args[at].out[0];
    const char *to = strstr(s->args[at].dims, "->");
    bool rows = y->n == 1 && y->size[0] == dx->size[dx->n - 1] && to[-1] == to[2];
    return rows && x->type == dx->type && sk_count(x) == sk_count(dx) ? at : -1;
}

static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    bool mean = sk_fuse_is(s, pc, "layernorm_grad_x");
    if ((!mean && !sk_fuse_is(s, pc, "rmsnorm_grad_x"))) return false;
    if (s->args[pc].in[0].type != s->args[pc].out[0].type) return false;
    int w = find_w(s, pc, mean), add = find_add(s, pc), n = 1;
    if (w < 0) return false;
    x->pcs[0] = pc;
    x->silent[0] = add >= 0;
    if (add >= 0 && add < w) x->pcs[n++] = add;
    x->pcs[n++] = w;
    if (add > w) x->pcs[n++] = add;
    x->least = n;
    int sum = find_sum(s, add >= 0 ? add : pc, x->pcs[n - 1]);
    if (sum >= 0) x->pcs[n++] = sum;
    x->n = n;
    return true;
}

static sk_any any(const sk_view *v) { return (sk_any){v->data, v->type}; }

static sk_norm_grad_job job_of(const sk_args *x, const sk_args *w, const sk_args *add,
                               const sk_args *sum)
{
    const sk_view *v = &x->in[0];
    bool mean = has_mean(x);
    sk_norm_grad_job j = {.op = "norm_grad",
                          .n = v->n ? v->size[v->n - 1] : 1,
                          .type = v->type,
                          .x = v->data,
                          .w = x->in[1].data,
                          .dy = x->in[mean ? 4 : 3].data,
                          .dx = add ? add->out[0].data : x->out[0].data,
                          .rstd = any(&x->in[mean ? 3 : 2]),
                          .dw = any(&w->out[0]),
                          .add_dx = x->add & 1,
                          .add_dw = w->add & 1,
                          .add_db = w->add >> 1 & 1};
    j.rows = j.n ? sk_count(v) / j.n : 0;
    if (mean) j.mean = any(&x->in[2]), j.db = any(&w->out[1]);
    if (add) j.res = add->in[add->in[0].data == x->out[0].data].data;
    if (sum) j.sum = any(&sum->out[0]), j.add_sum = sum->add & 1;
    return j;
}

/* The others come in any order, the sum over rows last: operands tell them apart. */
static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    const sk_args *w = NULL, *add = NULL, *sum = NULL;
    for (int i = 1; i < n; i++) *(a[i]->n_in == 1 ? &sum : a[i]->n_in == 2 ? &add : &w) = a[i];
    sk_norm_grad_job j = job_of(a[0], w, add, sum);
    return sk_norm_grad(&j, l);
}

const sk_fuse sk_fuse_norm_grad = {
    "norm_grad", "all gradients of a norm, the one they are added to, and their sum",
    match,       launch,
    NULL,        NULL};
