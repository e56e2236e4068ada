/* grad_low_rank.c - gradients that are summed as two factors of low rank: PowerSGD (Vogels et al.
 * 2019), a codec with .low_rank.
 *
 * A gradient of two or more dims is a matrix M of rows and columns, those of the product that reads
 * the weight (sk_param_matrix; where none does: the first dim, and the others).  A letter that
 * counts matrices (experts) stays one: each of these has factors of its own.
 *
 *     M = gradient of this rank + what it owes            f32
 *     P = M Q                  all-reduce                 rows x R
 *     P = P (P'P)^-1/2, twice  all-reduce where rows are cut, R x R: P is orthonormal
 *     Q = M'P                  all-reduce                 columns x R
 *     gradient = P Q'          in place: the sum over all ranks
 *     owed = M - P Q' / n      n terms of the sum: the terms of what is owed add up to the rest
 *
 * M is the whole tensor, however it is sharded.  Sums go over all axes and stages over which the
 * gradient is a partial sum, and over axes that cut the dim that a product sums over; so the
 * layout changes nothing but rounding.
 *
 * Q (Q'Q)^-1/2 begins the next step (a warm start).  To this a random matrix is added, a thousandth
 * of it, a function of the seed and the tensor's name: the first Q, and the one behind a gradient
 * of zeros, are that alone, and a direction that one gradient lacks is not lost for those behind
 * it. Only a step that is taken keeps Q.  Directions whose singular value is below 1e-6 of the
 * largest are damped by the shift of the inverse root: P P' never exceeds a projection, and what it
 * leaves out is owed.
 *
 * 4 R (rows + columns) bytes take the place of the gradient in the all-reduce.  Where that is not
 * less than 4 rows columns, the gradient travels as it is; so do tensors of one dim, and what stays
 * f32 among narrower weights. */
#include "base/hash.h"
#include "base/strings.h"
#include "program/lowering.h"
#include "program/param_groups.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- which gradients --- */

typedef struct shape {
    char roles[SK_MAX_DIM + 1];
    int64_t rows, cols;
} shape;

/* Rows and columns of the whole matrix; false: it is none. */
static bool shape_of(const sk_lowering *e, const sk_tensor *t, shape *s)
{
    *s = (shape){.rows = 1, .cols = 1};
    int n = (int)strlen(t->letters);
    if (n < 2) return false;
    if (!sk_param_matrix(e->g, t, s->roles))
        for (int d = 0; d < n; d++) s->roles[d] = d ? '2' : '1';
    for (int d = 0; d < n; d++)
        if (s->roles[d] != '0')
            *(s->roles[d] == '1' ? &s->rows : &s->cols) *= e->g->size[(int)t->letters[d] & 127];
    return true;
}

static int64_t rank_of(const sk_lowering *e) { return (int64_t)e->plan.grads_as->value; }

bool sk_lower_low_rank(const sk_lowering *e, const sk_param_plan *q)
{
    const sk_codec *c = e->plan.grads_as;
    const sk_tensor *t = q->tensor;
    int axis = sk_lower_code_axis(e);
    shape s;
    if (!c || !c->low_rank || axis < 0 || e->l->mesh.size[axis] < 2 || !e->opts->optim)
        return false;
    if (t->role != SK_PARAM || t->bias_update != 0) return false;
    if (e->plan.grad_made[t->id].how[axis] != SK_PARTIAL) return false;
    if (t->type == SK_F32 && e->plan.narrow_model) return false;
    return shape_of(e, t, &s) && rank_of(e) * (s.rows + s.cols) < s.rows * s.cols;
}

/* --- the factor that is kept --- */

void sk_plan_low_rank(sk_lowering *e, sk_param_plan *q, const sk_stages *stages)
{
    const sk_tensor *t = q->tensor;
    const sk_extent of = sk_lower_box(e, t, &q->used, -1);
    sk_extent box = {0};
    sk_state s = q->used;
    shape x;
    shape_of(e, t, &x);
    sk_plan_coded(e, q, stages);
    for (int role = '0'; role <= '2'; role += 2)
        for (int d = 0; d < of.n; d++) {
            if (x.roles[d] != role) continue;
            box.at[box.n] = of.at[d];
            box.size[box.n] = of.size[d];
            box.full[box.n++] = of.full[d];
        }
    sk_assert(box.n < SK_MAX_DIM);
    box.size[box.n] = box.full[box.n] = rank_of(e);
    box.n++;
    for (int a = 0; a < e->l->mesh.n; a++)
        if (s.how[a] == SK_SPLIT && x.roles[s.dim[a]] == '1') s.how[a] = SK_REPLICATE;
    const char *name = sk_print(e->p->arena, "%s.factor%d", t->name, (int)rank_of(e));
    q->factor = sk_lower_buffer(e, name, NULL, SK_OPTIM, SK_F32, box);
    q->keeps_factor = sk_lower_first(e, &s, stages);
    q->next_factor = sk_lower_buffer(e, name, NULL, SK_WIRE, SK_F32, box);
    e->p->bufs.v[q->factor].keep = e->p->bufs.v[q->factor].zero = true;
}

void sk_lower_keep_factors(sk_lowering *e)
{
    for (int i = 0; i < e->p->params.n; i++) {
        const sk_param_plan *q = &e->p->params.v[i];
        if (q->factor < 0) continue;
        sk_lower_move(e, SK_DO_KEEP, q->next_factor, q->factor);
        e->p->insts.v[e->p->insts.n - 1].layer = q->tensor->layer;
    }
}

/* --- operations --- */

/* Letters of operands: '0' counts matrices, '1' rows, '2' columns, '3' and '4' the rank. */
typedef struct one { /* a gradient */
    const sk_param_plan *q;
    char roles[SK_MAX_DIM + 1];
    char matrix[4]; /* letters: "12", "012", "102" */
    bool several;
    int64_t size[5]; /* here, by letter */
    int terms;
    int grad, matrix_buf, left, square, right;
} one;

typedef struct all {
    sk_lowering *e;
    one *v;
    int n;
} all;

/* "13" becomes "013" where there are several matrices; "M" is the matrix. */
static void spell(const one *x, const char *term, char to[4])
{
    if (*term == 'M') snprintf(to, 4, "%s", x->matrix);
    else snprintf(to, 4, "%s%s", x->several ? "0" : "", term);
}

static sk_tensor *tensor_of(const sk_lowering *e, const one *x, const char *letters)
{
    sk_tensor *t = sk_new(e->p->arena, sk_tensor);
    *t = (sk_tensor){.name = x->q->tensor->name,
                     .type = SK_F32,
                     .role = SK_VALUE,
                     .id = -1,
                     .layer = x->q->tensor->layer};
    memcpy(t->letters, letters, strlen(letters) + 1);
    return t;
}

static sk_extent box_of(const one *x, const char letters[4])
{
    sk_extent box = {.n = (int)strlen(letters)};
    for (int d = 0; d < box.n; d++) box.size[d] = box.full[d] = x->size[letters[d] - '0'];
    return box;
}

static int new_buffer(sk_lowering *e, const one *x, const char *what, const char *term)
{
    char letters[4];
    spell(x, term, letters);
    const char *name = sk_print(e->p->arena, "%s %s", x->q->tensor->name, what);
    return sk_lower_buffer(e, name, tensor_of(e, x, letters), SK_WIRE, SK_F32, box_of(x, letters));
}

/* The same memory as a matrix or a factor. */
static int view(sk_lowering *e, const one *x, int of, const char *term)
{
    char letters[4];
    spell(x, term, letters);
    const sk_buffer whole = e->p->bufs.v[of];
    sk_extent box = box_of(x, letters);
    sk_assert(sk_box_count(&box, 0, box.n) == sk_box_count(&whole.box, 0, whole.box.n));
    int b = sk_lower_buffer(e, whole.name, tensor_of(e, x, letters), whole.kind, whole.type, box);
    e->p->bufs.v[b].within = of;
    return b;
}

static sk_node *node_of(sk_lowering *e, const one *x, const char *op)
{
    sk_node *n = sk_new(e->p->arena, sk_node);
    *n = (sk_node){.op = sk_op_find(op),
                   .n_out = 1,
                   .where = "a gradient of low rank",
                   .id = SK_NO_NODE,
                   .layer = x->q->tensor->layer,
                   .phase = SK_BACKWARD};
    sk_assert(n->op);
    return n;
}

/* terms: of the operands and the result, apart by blanks. */
static sk_node *put(sk_lowering *e, const one *x, const char *op, const char *terms, int a, int b,
                    int out)
{
    int bufs[] = {a, b};
    sk_node *n = node_of(e, x, op);
    sk_inst *in = sk_lower_inst(e, SK_DO_OP);
    sk_out dims = {.arena = e->p->arena};
    n->n_in = b < 0 ? 1 : 2;
    for (int i = 0; i <= n->n_in; i++) {
        char term[4] = "", *to = i < n->n_in ? n->letters_in[i] : n->letters_out[0];
        size_t len = strcspn(terms, " ");
        memcpy(term, terms, len);
        terms += len + (terms[len] == ' ');
        spell(x, term, to);
        sk_out_add(&dims, i == n->n_in ? "->" : i ? "," : "");
        for (const char *l = to; *l; l++)
            sk_out_add(&dims, "%c%s", *l, n->n_in == 1 && i == 0 && *l != '0' ? "!" : "");
        if (i == n->n_in) break;
        n->in[i] = (sk_tensor *)e->p->bufs.v[bufs[i]].tensor;
        in->in[i] = bufs[i];
    }
    n->dims = dims.s;
    n->out[0] = (sk_tensor *)e->p->bufs.v[out].tensor;
    in->node = n;
    in->out[0] = out;
    in->layer = n->layer;
    return n;
}

/* --- sums over ranks --- */

/* Is the result a partial sum over the axis: of a product over rows ('1'), over columns ('2'), or
 * of the terms of the gradient ('t')? */
static bool adds(const sk_lowering *e, const one *x, int axis, const char *over)
{
    const sk_param_plan *q = x->q;
    if (axis == e->l->stage_axis || e->l->mesh.size[axis] < 2 || sk_layout_local(e->l, axis))
        return false;
    if (q->used.how[axis] == SK_SPLIT) return strchr(over, x->roles[q->used.dim[axis]]) != NULL;
    return strchr(over, 't') && e->plan.grad_made[q->tensor->id].how[axis] == SK_PARTIAL;
}

static int buf_of(const one *x, char which)
{
    return which == 'P' ? x->left : which == 'Q' ? x->right : x->square;
}

/* One call for each axis and each set of tied stages. */
static void add_up(const all *l, char which, const char *over, const char *what)
{
    sk_lowering *e = l->e;
    for (int g = 0; g < e->p->n_groups; g++) {
        int call = -1;
        for (int i = 0; i < l->n; i++) {
            const one *x = &l->v[i];
            bool tied = g > e->p->world && g == x->q->tie_group && strchr(over, 't');
            if (!tied && (g >= e->p->world || !adds(e, x, g, over))) continue;
            int buf = buf_of(x, which);
            if (call < 0)
                call = sk_lower_call(e, SK_ALLREDUCE, SK_SUM, SK_F32, g,
                                     sk_print(e->p->arena, "%s from %s", what, x->q->tensor->name));
            const sk_extent box = e->p->bufs.v[buf].box;
            sk_lower_seg(e, call, buf, buf, 1, sk_box_count(&box, 0, box.n), 1);
        }
        if (call >= 0) sk_lower_start(e, call, SK_FLIES_NOT);
    }
}

/* --- the steps --- */

static int terms_of(const sk_lowering *e, const sk_param_plan *q)
{
    int n = q->tie_group >= 0 ? e->p->groups[q->tie_group].n : 1;
    for (int a = 0; a < e->l->mesh.n; a++)
        if (a != e->l->stage_axis && !sk_layout_local(e->l, a) &&
            e->plan.grad_made[q->tensor->id].how[a] == SK_PARTIAL)
            n *= e->l->mesh.size[a];
    return n;
}

static one plan_one(sk_lowering *e, const sk_grad_at *at)
{
    one x = {.q = &e->p->params.v[at->param], .size = {1, 1, 1, rank_of(e), rank_of(e)}};
    const sk_extent box = e->p->bufs.v[at->whole].box;
    shape s;
    int n = 0;
    shape_of(e, x.q->tensor, &s);
    memcpy(x.roles, s.roles, sizeof x.roles);
    for (int d = 0; d < box.n; d++) {
        if (!d || s.roles[d] != s.roles[d - 1]) x.matrix[n++] = s.roles[d];
        x.size[s.roles[d] - '0'] *= box.size[d];
    }
    x.several = strchr(x.matrix, '0') != NULL;
    x.terms = terms_of(e, x.q);
    x.grad = view(e, &x, at->whole, "M");
    return x;
}

/* A copy in f32, where it is narrower. */
static int wide(sk_lowering *e, const one *x, int buf)
{
    if (e->p->bufs.v[buf].type == SK_F32) return buf;
    int to = new_buffer(e, x, "in f32", "M");
    put(e, x, "axpby", "M M M", buf, buf, to)->attr[0] = 1;
    return to;
}

/* The factor to begin with.  Its random numbers need places in the whole tensor, so that it has the
 * letters of the parameter here. */
static int first_factor(sk_lowering *e, const one *x)
{
    const sk_buffer kept = e->p->bufs.v[x->q->factor];
    sk_tensor *t = tensor_of(e, x, "");
    double count = (double)x->size[3];
    int n = 0;
    for (int role = '0'; role <= '2'; role += 2)
        for (int d = 0; x->roles[d]; d++)
            if (x->roles[d] == role) t->letters[n++] = x->q->tensor->letters[d];
    t->letters[n] = '3';
    for (int d = 0; d < n; d++) count *= (double)kept.box.full[d];
    int from = sk_lower_buffer(e, kept.name, t, kept.kind, kept.type, kept.box);
    int to = sk_lower_buffer(e, kept.name, t, SK_WIRE, SK_F32, kept.box);
    e->p->bufs.v[from].within = x->q->factor;
    sk_node *made = node_of(e, x, "jitter");
    made->attr[0] = 1e-3 / sqrt(count);
    made->attr[1] = (double)(sk_hash_text(x->q->tensor->name) >> 33);
    made->dims = sk_print(e->p->arena, "%s->%s", t->letters, t->letters);
    memcpy(made->letters_in[0], t->letters, sizeof t->letters);
    memcpy(made->letters_out[0], t->letters, sizeof t->letters);
    made->in[0] = made->out[0] = t;
    made->n_in = 1;
    sk_inst *in = sk_lower_inst(e, SK_DO_OP);
    in->node = made;
    in->layer = made->layer;
    in->in[0] = from;
    in->out[0] = to;
    return view(e, x, to, "23");
}

static void multiply(sk_lowering *e, one *x)
{
    int owed = view(e, x, x->q->error, "M"), factor = first_factor(e, x);
    int grad = wide(e, x, x->grad);
    x->matrix_buf = new_buffer(e, x, "and owed", "M");
    sk_node *sum = put(e, x, "axpby", "M M M", grad, owed, x->matrix_buf);
    sum->attr[0] = sum->attr[1] = 1;
    x->left = new_buffer(e, x, "P", "13");
    put(e, x, "contract", "M 23 13", x->matrix_buf, factor, x->left);
}

static int new_root(sk_lowering *e, const one *x)
{
    int root = new_buffer(e, x, "root", "34");
    sk_node *n = put(e, x, "inv_root", "34 34", x->square, -1, root);
    n->attr[0] = 2;
    n->attr[1] = 1e-6;
    return root;
}

/* P times (P'P)^-1/2. */
static void orthogonalize(const all *l)
{
    sk_lowering *e = l->e;
    for (int i = 0; i < l->n; i++) {
        one *x = &l->v[i];
        x->square = new_buffer(e, x, "P'P", "34");
        put(e, x, "contract", "13 14 34", x->left, x->left, x->square);
    }
    add_up(l, 'G', "1", "products of left factors");
    for (int i = 0; i < l->n; i++) {
        one *x = &l->v[i];
        int to = new_buffer(e, x, "P", "13");
        put(e, x, "contract", "13 34 14", x->left, new_root(e, x), to);
        x->left = to;
    }
}

/* The sum, and what is owed. */
static void expand(sk_lowering *e, const one *x)
{
    put(e, x, "contract", "13 23 M", x->left, x->right, x->grad);
    int sum = wide(e, x, x->grad);
    sk_node *n = put(e, x, "axpby", "M M M", x->matrix_buf, sum, view(e, x, x->q->error, "M"));
    n->attr[0] = 1;
    n->attr[1] = -1.0 / x->terms;
}

/* For the next step: Q times (Q'Q)^-1/2. */
static void plan_next(const all *l)
{
    sk_lowering *e = l->e;
    for (int i = 0; i < l->n; i++) {
        one *x = &l->v[i];
        x->square = new_buffer(e, x, "Q'Q", "34");
        put(e, x, "contract", "23 24 34", x->right, x->right, x->square);
    }
    add_up(l, 'G', "2", "products of right factors");
    for (int i = 0; i < l->n; i++) {
        const one *x = &l->v[i];
        int to = view(e, x, x->q->next_factor, "23");
        put(e, x, "contract", "23 34 24", x->right, new_root(e, x), to);
    }
}

void sk_reduce_low_rank(sk_lowering *e, const sk_grad_at *v, int n, bool tied)
{
    all l = {.e = e, .v = sk_many(e->tmp, one, n + 1)};
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = &e->p->params.v[v[i].param];
        if (sk_lower_low_rank(e, q) && (q->tie_group >= 0) == tied) l.v[l.n++] = plan_one(e, &v[i]);
    }
    for (int i = 0; i < l.n; i++) multiply(e, &l.v[i]);
    add_up(&l, 'P', "2t", "left factors");
    orthogonalize(&l);
    orthogonalize(&l);
    for (int i = 0; i < l.n; i++) {
        one *x = &l.v[i];
        x->right = new_buffer(e, x, "Q", "23");
        put(e, x, "contract", "M 13 23", x->matrix_buf, x->left, x->right);
    }
    add_up(&l, 'Q', "1t", "right factors");
    for (int i = 0; i < l.n; i++) expand(e, &l.v[i]);
    plan_next(&l);
}
