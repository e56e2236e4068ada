/* matrix_ops.c - what an optimizer does with a whole matrix (sk_optim.matrix), as instructions.
 *
 * Rows and columns of a parameter are merged to one dim each, so that a matrix has the letters '1'
 * and '2', and '0' where there are several.  No letter of a graph is a digit: in canonical order
 * such dims are one reduction block, and the matrix is the same on every layout, so the bits are.
 *
 * State of a matrix is a kept buffer of the ranks that do its work: of all that have the matrix, or
 * of its owner (distributed_update.c).  KEEP writes it, and not in a skipped step, whose directions
 * mean nothing.  Instructions between every(n) and every(1) have inst.every n.
 *
 * A matrix may stay cut over one axis, along its rows or its columns (sk_matrix.cut).  Then a
 * letter of that side stands for this rank's part.  A result that has it is cut likewise.  A
 * product that sums over it is a partial sum, all-reduced at once.  Anything else needs the whole
 * side: a result with two letters of it, an operation of one operand, state. */
#include "program/matrix/matrix_update.h"
#include "base/strings.h"
#include "program/param_groups.h"

#include <string.h>

typedef struct values {
    struct value {
        int buf;
        int several; /* place of the letter '0', from 1 on; 0: one matrix */
        int every;   /* over 1: it is made in some updates only */
        bool state;
    } * v;
    int n, cap;
} values;

typedef struct builder {
    sk_matrix w; /* first: what the optimizer sees */
    sk_lowering *e;
    sk_param_plan *q;
    const sk_extent *box; /* of the matrices here, with the letters of the parameter */
    int several;
    int64_t count; /* of matrices */
    sk_dtype type; /* that results are kept in */
    int every;
    int axis;          /* that the matrix stays cut over; -1: none */
    bool needs_all;    /* an operation cannot be done on a cut matrix */
    int64_t here[2];   /* rows and columns that this rank has */
    const int *factor; /* of rows and of columns: buffers; -1: none */
    values values;
} builder;

sk_dtype sk_matrix_type(const sk_lowering *e, const sk_param_plan *q)
{
    return q->optim->exact ? SK_F32 : sk_lower_direction_type(e);
}

sk_dtype sk_matrix_result_type(const sk_lowering *e, const sk_param_plan *q)
{
    bool narrow = e->opts->gpu && !e->l->canonical && sk_narrow(q->tensor) && !q->optim->exact;
    return narrow ? q->tensor->type : SK_F32;
}

/* What the author of an optimizer must get right in .matrix; told with its name: "bug at .matrix of
 * the optimizer x: that ... does not hold". */
static void must(const builder *b, bool holds, const char *what)
{
    if (holds) return;
    sk_bug(sk_print(b->e->p->arena, ".matrix of the optimizer %s", b->q->optim->name), what);
}

/* --- shapes --- */

static void roles_of(const builder *b, char roles[SK_MAX_DIM + 1])
{
    bool matrix = sk_param_matrix(b->e->g, b->q->tensor, roles);
    sk_assert(matrix);
}

/* A box with all of each matrix as up to three dims. */
static sk_extent merged(builder *b)
{
    sk_extent out = {0};
    char roles[SK_MAX_DIM + 1];
    roles_of(b, roles);
    for (int d = 0; d < b->box->n; d++) {
        if (!d || roles[d] != roles[d - 1]) out.size[out.n++] = 1;
        int64_t n = out.size[out.n - 1] *= b->box->size[d];
        if (roles[d] == '0') {
            b->several = out.n, b->count = n;
            continue;
        }
        *(roles[d] == '1' ? &b->w.rows : &b->w.cols) *= b->box->full[d];
        b->here[roles[d] - '1'] = n;
    }
    memcpy(out.full, out.size, sizeof out.full);
    return out;
}

static bool is_row(char letter) { return strchr("rRS", letter) != NULL; }

static int64_t size_of(const builder *b, char letter)
{
    return letter == '0' ? b->count : b->here[!is_row(letter)];
}

/* Where the letter that counts matrices stands in a result: as in the parameter if it has rows and
 * columns, else first. */
static int several_of(const builder *b, const char *term, int n)
{
    return !b->several ? 0 : n == 2 && is_row(term[0]) != is_row(term[1]) ? b->several : 1;
}

/* A term of n letters with the letter that counts matrices in its place. */
static void spell(const char *term, int n, int several, char to[4])
{
    int at = 0;
    for (int i = 0; i <= n; i++) {
        if (several == i + 1) to[at++] = '0';
        if (i < n) to[at++] = term[i];
    }
    to[at] = 0;
}

/* The letters of tensors: '0', '1' and '2'. */
static void digits_of(const char *letters, char to[4])
{
    int n = 0;
    for (; letters[n]; n++) to[n] = letters[n] == '0' ? '0' : is_row(letters[n]) ? '1' : '2';
    to[n] = 0;
}

static const sk_tensor *tensor_of(builder *b, const char *op, const char letters[4], sk_dtype type)
{
    sk_tensor *t = sk_new(b->e->p->arena, sk_tensor);
    *t = (sk_tensor){.name = sk_print(b->e->p->arena, "%s.%s", b->q->tensor->name, op),
                     .type = type,
                     .role = SK_VALUE,
                     .id = -1,
                     .layer = b->q->tensor->layer};
    digits_of(letters, t->letters);
    return t;
}

static sk_extent box_of(const builder *b, const char letters[4])
{
    sk_extent box = {.n = (int)strlen(letters)};
    for (int d = 0; d < box.n; d++) box.size[d] = box.full[d] = size_of(b, letters[d]);
    return box;
}

static int add_value(builder *b, int buf, int several, bool state)
{
    struct value *v = sk_push(b->e->tmp, &b->values);
    *v = (struct value){buf, several, state ? 0 : b->every, state};
    return b->values.n - 1;
}

/* The same memory with another box. */
static int view(sk_lowering *e, int of, const sk_tensor *t, const sk_extent *box)
{
    const sk_buffer whole = e->p->bufs.v[of];
    int b = sk_lower_buffer(e, whole.name, t, whole.kind, whole.type, *box);
    e->p->bufs.v[b].within = of;
    return b;
}

/* --- operations --- */

static sk_node *node_of(builder *b, const char *op, int n_in, char letters[][4])
{
    sk_arena *a = b->e->p->arena;
    sk_node *n = sk_new(a, sk_node);
    const char *own = n_in == 1 ? "!" : ""; /* of a matrix that an op must see as a whole */
    sk_out dims = {.arena = a};
    for (int i = 0; i < n_in; i++) {
        sk_out_add(&dims, i ? "," : "");
        for (const char *l = letters[i]; *l; l++)
            sk_out_add(&dims, "%c%s", *l, *l == '0' ? "" : own);
        memcpy(n->letters_in[i], letters[i], sizeof letters[i]);
    }
    sk_out_add(&dims, "->%s", letters[n_in]);
    memcpy(n->letters_out[0], letters[n_in], sizeof letters[n_in]);
    n->op = sk_op_find(op);
    must(b, n->op, sk_print(a, "that \"%s\" is an op (skein list op)", op));
    n->dims = dims.s;
    n->n_in = n_in;
    n->n_out = 1;
    n->where = b->q->optim->name;
    n->id = SK_NO_NODE;
    n->phase = SK_BACKWARD;
    n->layer = b->q->tensor->layer;
    return n;
}

/* Terms of "rc,Rc->rR" as letters; returns how many are operands, the result is behind them. */
static int read_dims(const builder *b, const char *dims, const int *in, char letters[][4])
{
    int n = 0;
    for (bool more = true; more; n++) {
        int len = (int)strcspn(dims, ",-");
        must(b, len <= 2,
             "that operands have up to two letters: rows are r, R, S, columns c, C, D,");
        must(b, n < SK_MATRIX_IN, "that an op has SK_MATRIX_IN operands at most");
        must(b, in[n] >= 0 && in[n] < b->values.n, "that operands are results, states or factors");
        spell(dims, len, b->values.v[in[n]].several, letters[n]);
        more = dims[len] == ',';
        dims += len + (more ? 1 : 2);
    }
    int len = (int)strlen(dims);
    spell(dims, len, several_of(b, dims, len), letters[n]);
    return n;
}

/* Of a cut matrix: the letter of the cut side that a term has; 0: none, '!': several. */
static char cut_letter(const builder *b, const char *term)
{
    char found = 0;
    for (; *term; term++)
        if (*term != '0' && is_row(*term) == (b->w.cut == 'r')) found = found ? '!' : *term;
    return found;
}

/* Is the result of an operation on a cut matrix a partial sum? */
static bool partial(builder *b, char letters[][4], int n_in)
{
    char summed = 0, left = cut_letter(b, letters[n_in]);
    for (int i = 0; i < n_in; i++) {
        char l = cut_letter(b, letters[i]);
        if (l == '!' || (l && summed && l != summed)) b->needs_all = true;
        if (l) summed = l;
    }
    if (left && left != summed) b->needs_all = true;
    if (summed && n_in != 2) b->needs_all = true;
    return summed && !left;
}

static void add_up(builder *b, int buf)
{
    const sk_buffer *x = &b->e->p->bufs.v[buf];
    int call = sk_lower_call(b->e, SK_ALLREDUCE, SK_SUM, x->type, b->axis, x->name);
    sk_lower_seg(b->e, call, buf, buf, 1, sk_box_count(&x->box, 0, x->box.n), 1);
    sk_lower_start(b->e, call, SK_FLIES_NOT);
}

static int add_op(sk_matrix *w, const char *op, const char *dims, const sk_matrix_args *with)
{
    builder *b = (builder *)(void *)w;
    sk_program *p = b->e->p;
    char letters[SK_MATRIX_IN + 1][4];
    int n_in = read_dims(b, dims, with->in, letters);
    sk_node *n = node_of(b, op, n_in, letters);
    const char *to = strchr(dims, '>') + 1;
    sk_dtype type = *to ? b->type : SK_F32; /* a number */
    const sk_tensor *t = tensor_of(b, op, letters[n_in], type);
    int out = sk_lower_buffer(b->e, t->name, t, SK_WIRE, type, box_of(b, letters[n_in]));
    memcpy(n->attr, with->attr, sizeof with->attr);
    n->out[0] = (sk_tensor *)t;
    sk_inst *inst = sk_lower_inst(b->e, SK_DO_OP);
    inst->node = n;
    inst->every = b->every;
    inst->out[0] = out;
    inst->layer = n->layer;
    for (int i = 0; i < n_in; i++) {
        const struct value *v = &b->values.v[with->in[i]];
        sk_extent box = box_of(b, letters[i]);
        must(b, v->every == 0 || v->every == b->every,
             "that an op reads what is made as often as it runs, or state,");
        must(b,
             sk_box_count(&box, 0, box.n) ==
                 sk_box_count(&p->bufs.v[v->buf].box, 0, p->bufs.v[v->buf].box.n),
             sk_print(p->arena, "that operands have the sizes that \"%s\" says", dims));
        inst->in[i] = v->buf;
        n->in[i] = (sk_tensor *)p->bufs.v[v->buf].tensor;
    }
    if (b->axis >= 0 && partial(b, letters, n_in)) add_up(b, out);
    return add_value(b, out, several_of(b, to, (int)strlen(to)), false);
}

static void set_every(sk_matrix *w, int updates)
{
    ((builder *)(void *)w)->every = updates > 1 ? updates : 0;
}

/* --- state --- */

/* Letters that count matrices come first, so that a checkpoint has them as the parameter does. */
static sk_extent state_box(const builder *b, const char *letters)
{
    sk_extent box = {0};
    char roles[SK_MAX_DIM + 1];
    roles_of(b, roles);
    if (strlen(letters) == 2 && is_row(letters[0]) != is_row(letters[1])) return *b->box;
    for (int d = 0; d < b->box->n; d++) {
        if (roles[d] != '0') continue;
        box.at[box.n] = b->box->at[d];
        box.size[box.n] = b->box->size[d];
        box.full[box.n++] = b->box->full[d];
    }
    for (; *letters; letters++) box.size[box.n] = box.full[box.n] = size_of(b, *letters), box.n++;
    return box;
}

static int add_state(sk_matrix *w, const char *name, const char *letters)
{
    builder *b = (builder *)(void *)w;
    sk_param_plan *q = b->q;
    sk_program *p = b->e->p;
    char spelled[4];
    int n = (int)strlen(letters), several = several_of(b, letters, n);
    const char *whole = sk_print(p->arena, "%s.%s.%s", q->tensor->name, q->optim->name, name);
    int buf = sk_lower_buffer(b->e, whole, NULL, SK_OPTIM, SK_F32, state_box(b, letters));
    p->bufs.v[buf].keep = p->bufs.v[buf].zero = true;
    b->needs_all = true;
    must(b, q->n_matrix_state < SK_MAX_MATRIX_STATE,
         "that there are SK_MAX_MATRIX_STATE states at most");
    q->matrix_state[q->n_matrix_state++] = buf;
    spell(letters, n, several, spelled);
    sk_extent box = box_of(b, spelled);
    return add_value(b, view(b->e, buf, tensor_of(b, name, spelled, SK_F32), &box), several, true);
}

static void keep(sk_matrix *w, int state, int value)
{
    builder *b = (builder *)(void *)w;
    const struct value *to = &b->values.v[state], *from = &b->values.v[value];
    must(b, to->state, "that keep() writes state");
    must(b, from->every == 0 || from->every == b->every,
         "that keep() runs as often as what it keeps is made");
    sk_inst *in = sk_lower_inst(b->e, SK_DO_KEEP);
    in->in[0] = from->buf;
    in->out[0] = to->buf;
    in->every = b->every;
    in->layer = b->q->tensor->layer;
}

static int add_factor(sk_matrix *w, bool rows)
{
    builder *b = (builder *)(void *)w;
    int buf = b->factor[!rows], several = b->several > 0;
    char letters[4];
    if (buf < 0) return -1;
    const sk_param_plan *q = &b->e->p->params.v[sk_matrix_factor(b->e, b->q, !rows)];
    spell(rows ? "rR" : "cC", 2, several, letters);
    sk_extent box = box_of(b, letters);
    const sk_tensor *t = tensor_of(b, "factor", letters, SK_F32);
    b->e->at.every = q->every;
    if (q->made) buf = sk_lower_sym_unpack(b->e, buf, t, &box);
    b->e->at.every = 0;
    const sk_buffer *from = &b->e->p->bufs.v[buf];
    sk_assert(sk_box_count(&box, 0, box.n) == sk_box_count(&from->box, 0, from->box.n));
    int value = add_value(b, view(b->e, buf, t, &box), several, false);
    b->values.v[value].every = q->every;
    return value;
}

/* --- one parameter --- */

static const double *knobs_of(sk_lowering *e, const sk_param_plan *q)
{
    double *v = sk_many(e->tmp, double, SK_MAX_KNOB);
    for (int k = 0; q->optim->knobs[k].name; k++) v[k] = sk_matrix_knob(e, q, k);
    return v;
}

/* Of the ranks that have these matrices and their state, is this one the first? */
static bool first_holder(const sk_lowering *e, const sk_param_plan *q, const sk_state *whole)
{
    sk_state s = *whole;
    if (e->matrices && sk_is_distributed(e, q))
        s.how[e->matrices->axis] = SK_SPLIT; /* owned by one */
    return sk_lower_first(e, &s, &e->plan.read_by[q->tensor->id]);
}

int sk_matrix_operate(sk_lowering *e, sk_param_plan *q, const sk_state *s, int from,
                      const int factor[2], int cut)
{
    const sk_extent box = e->p->bufs.v[from].box;
    builder b = {.w = {.rows_out = sk_param_rows_out(e->g, q->tensor),
                       .knob = knobs_of(e, q),
                       .rows = 1,
                       .cols = 1,
                       .op = add_op,
                       .state = add_state,
                       .keep = keep,
                       .factor = add_factor,
                       .every = set_every},
                 .e = e,
                 .q = q,
                 .box = &box,
                 .count = 1,
                 .axis = cut,
                 .factor = factor,
                 .type = sk_matrix_result_type(e, q)};
    sk_extent matrix = merged(&b);
    if (cut >= 0) b.w.cut = b.here[0] < b.w.rows ? 'r' : 'c';
    char letters[4];
    sk_dtype type = e->p->bufs.v[from].type;
    spell("rc", 2, b.several, letters);
    q->keeps_matrix_state = first_holder(e, q, s);
    add_value(&b, view(e, from, tensor_of(&b, "direction", letters, type), &matrix), b.several,
              false);
    int last = q->optim->matrix(&b.w), buf = b.values.v[last].buf;
    if (cut >= 0 && b.needs_all) return -1;
    sk_buffer *out = &e->p->bufs.v[buf];
    must(&b, last > 0 && !b.values.v[last].state && !b.values.v[last].every,
         "that the result is made by an op, in every update,");
    must(&b, sk_box_count(&out->box, 0, out->box.n) == sk_box_count(&box, 0, box.n),
         "that the result has the sizes of the matrix, \"rc\",");
    out->type = type;
    out->bytes = sk_box_count(&out->box, 0, out->box.n) * (int64_t)sk_dtype_size(type);
    return view(e, buf, q->tensor, &box);
}
