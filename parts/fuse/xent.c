/* xent.c - cross-entropy and its gradient in one pass over the logits.
 *
 *     row_max + xent_terms + xent_loss + xent_loss_grad (or xent_z_grad) + xent_terms_grad
 *
 * A row of logits is read once and its gradient written once, where five ops read it three times.
 * Only for a vocabulary that is not split: its maximum and sums are those of the row. */
#include "kernel/cuda/xent_rows.h"
#include "program/fuse.h"

#pragma weak sk_xent_rows

enum { MAX, TERMS, LOSS, LOSS_GRAD, TERMS_GRAD, N };
enum { NEAR = 12 };

static bool whole(const sk_view *x)
{
    int d = x->n - 1;
    return x->n && x->size[d] == x->full[d];
}

/* The gradient of the loss: with a z-loss it reads m too. */
static int loss_grad(const sk_fuse_site *s, int terms, int sum, int m)
{
    int at = sk_fuse_next(s, terms, "xent_loss_grad", 0, sum, NEAR);
    if (at >= 0) return at;
    at = sk_fuse_next(s, terms, "xent_z_grad", 0, sum, NEAR);
    return at >= 0 && s->p->insts.v[at].in[3] == m ? at : -1;
}

/* xent_terms: logits, m, target.  xent_loss: m, s, t, weight.  xent_loss_grad: s, weight, scale.
 * xent_terms_grad: logits, m, target, ds, dt. */
static bool chain(const sk_fuse_site *s, int pc, int *at)
{
    const sk_inst *v = s->p->insts.v;
    int logits = v[pc].in[0], m = v[pc].out[0];
    at[MAX] = pc;
    at[TERMS] = sk_fuse_next(s, pc, "xent_terms", 0, logits, NEAR);
    if (at[TERMS] < 0 || v[at[TERMS]].in[1] != m) return false;
    at[LOSS] = sk_fuse_next(s, at[TERMS], "xent_loss", 1, v[at[TERMS]].out[0], NEAR);
    at[LOSS_GRAD] = loss_grad(s, at[TERMS], v[at[TERMS]].out[0], m);
    at[TERMS_GRAD] = sk_fuse_next(s, at[TERMS], "xent_terms_grad", 0, logits, NEAR);
    if (at[LOSS] < 0 || at[LOSS_GRAD] < at[LOSS] || at[TERMS_GRAD] < at[LOSS_GRAD]) return false;
    const sk_inst *loss = &v[at[LOSS]], *dl = &v[at[LOSS_GRAD]], *dt = &v[at[TERMS_GRAD]];
    return loss->in[0] == m && loss->in[2] == v[at[TERMS]].out[1] && dl->in[1] == loss->in[3] &&
           dt->in[1] == m && dt->in[2] == v[at[TERMS]].in[2] && dt->in[3] == dl->out[0] &&
           dt->in[4] == dl->out[1];
}

static bool wide(const sk_view *v) { return v->type == SK_F32; }

static bool suits(const sk_fuse_site *s, const int *at)
{
    const sk_args *t = &s->args[at[TERMS]], *g = &s->args[at[TERMS_GRAD]];
    const sk_args *l = &s->args[at[LOSS_GRAD]], *m = &s->args[at[MAX]];
    return whole(&t->in[0]) && !(t->add | g->add | l->add | m->add) && wide(&m->out[0]) &&
           wide(&t->out[0]) && wide(&t->out[1]) && wide(&l->in[1]) && wide(&l->in[2]) &&
           t->in[2].type == SK_I32 && g->out[0].type == t->in[0].type;
}

static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    if (!sk_fuse_is(s, pc, "row_max") || !chain(s, pc, x->pcs) || !suits(s, x->pcs)) return false;
    x->n = N;
    x->silent[LOSS_GRAD] = 3;
    return true;
}

static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    const sk_view *x = &a[TERMS]->in[0];
    sk_xent_job j = {.n = x->size[x->n - 1],
                     .at = x->at[x->n - 1],
                     .type = x->type,
                     .logits = x->data,
                     .target = a[TERMS]->in[2].data,
                     .weight = a[LOSS_GRAD]->in[1].data,
                     .scale = a[LOSS_GRAD]->in[2].data,
                     .m = a[MAX]->out[0].data,
                     .s = a[TERMS]->out[0].data,
                     .t = a[TERMS]->out[1].data,
                     .smooth = (float)a[TERMS_GRAD]->attr[0],
                     .z = (float)a[LOSS]->attr[0],
                     .dlogits = a[TERMS_GRAD]->out[0].data};
    (void)n;
    j.rows = j.n ? sk_count(x) / j.n : 0;
    SK_TRY(sk_xent_rows(&j, l));
    return sk_kernel_find("xent_loss")->launch(a[LOSS], l);
}

const sk_fuse sk_fuse_xent = {"xent", "cross-entropy and its gradient in one pass over the logits",
                              match,  launch,
                              NULL,   NULL};
