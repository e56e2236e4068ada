/* whole_update.c - optimizers that see whole matrices (sk_optim.whole).
 *
 * The first pass leaves a direction in each rank's shard.  Matrices that ZeRO shards go to owners
 * (dealt_update.c).  Here a direction is gathered over every other axis that cuts the matrix, what
 * the optimizer does with the matrix becomes instructions of ops, and each rank takes its shard of
 * the result to the second pass.  A parameter may be several matrices (a letter that counts
 * experts): those letters stay cut as they are.
 *
 * Letters of a parameter are told apart by the product that reads it (param_groups.c); rows and
 * columns are then merged to one dim each, so that a matrix has the letters '1' and '2', and '0'
 * where there are several.  No letter of a graph is a digit: in canonical order such dims are one
 * reduction block, and the matrix is the same on every layout, so the bits are. */
#include "program/whole_update.h"
#include "base/strings.h"
#include "program/param_groups.h"

#include <string.h>

enum { BUCKET = 64 << 20 }; /* bytes of directions that are under way at once */

typedef struct values {
    struct value {
        int buf;
        int several; /* place of the letter '0', from 1 on; 0: one matrix */
    } * v;
    int n, cap;
} values;

typedef struct builder {
    sk_whole w; /* first: what the optimizer sees */
    sk_lowering *e;
    const sk_param_plan *q;
    int several;
    int64_t count; /* of matrices */
    sk_dtype type; /* that results are kept in */
    values values;
} builder;

/* --- the shape --- */

sk_status sk_whole_fits(const sk_lowering *e, const sk_param_plan *q)
{
    char roles[SK_MAX_DIM + 1];
    if (!q->optim || !q->optim->whole || q->tensor->bias_update != 0) return SK_OK;
    if (!sk_param_matrix(e->g, q->tensor, roles))
        return sk_fail(SK_ECONF,
                       "optim.groups: %s is for matrices, and '%s' \"%s\" is none; put it into a "
                       "group of its own, as in optim.groups=\"matrix: %s, rest: %s\"",
                       q->optim->name, q->tensor->name, q->tensor->letters, q->optim->name,
                       q->optim->rest);
    if (e->opts->gpu && e->l->canonical && sk_lower_direction_type(e) != SK_F32)
        return sk_fail(SK_ECONF,
                       "optim.state is %s: on a GPU with order=canonical, %s takes its matrices in "
                       "f32; optim.state=f32 is needed",
                       sk_dtype_name(sk_lower_direction_type(e)), q->optim->name);
    if (sk_lower_hosted(e, q->tensor))
        return sk_fail(SK_ECONF,
                       "layout: %s works on whole matrices, on the device, and offload= keeps the "
                       "optimizer's state elsewhere; leave it out, or choose adamw",
                       q->optim->name);
    return SK_OK;
}

/* The box of a shard that has all of each matrix, as up to three dims. */
static sk_extent merged(builder *b, const sk_extent *box)
{
    sk_extent out = {0};
    char roles[SK_MAX_DIM + 1];
    bool matrix = sk_param_matrix(b->e->g, b->q->tensor, roles);
    sk_assert(matrix);
    for (int d = 0; d < box->n; d++) {
        if (!d || roles[d] != roles[d - 1]) out.size[out.n++] = 1;
        int64_t n = out.size[out.n - 1] *= box->size[d];
        if (roles[d] == '1') b->w.rows = n;
        else if (roles[d] == '2') b->w.cols = n;
        else b->several = out.n, b->count = n;
    }
    memcpy(out.full, out.size, sizeof out.full);
    return out;
}

/* --- operations --- */

static const sk_tensor *tensor_of(builder *b, const char *op, const char letters[4])
{
    sk_tensor *t = sk_new(b->e->p->arena, sk_tensor);
    *t = (sk_tensor){.name = sk_print(b->e->p->arena, "%s.%s", b->q->tensor->name, op),
                     .type = b->type,
                     .role = SK_VALUE,
                     .id = -1,
                     .layer = b->q->tensor->layer};
    memcpy(t->letters, letters, 4);
    return t;
}

static int64_t size_of(const builder *b, char letter)
{
    return letter == '0' ? b->count : strchr("rRS", letter) ? b->w.rows : b->w.cols;
}

/* "rc" with the letter that counts matrices in its place. */
static void spell(const char *term, int several, char to[4])
{
    int n = 0;
    for (int i = 0; i < 2; i++) {
        if (several == i + 1) to[n++] = '0';
        to[n++] = term[i];
    }
    to[n] = 0;
}

static int result(builder *b, const char *op, const char letters[4], int several)
{
    char digits[4] = "";
    sk_extent box = {.n = (int)strlen(letters)};
    for (int d = 0; d < box.n; d++) {
        box.size[d] = box.full[d] = size_of(b, letters[d]);
        digits[d] = letters[d] == '0' ? '0' : strchr("rRS", letters[d]) ? '1' : '2';
    }
    const sk_tensor *t = tensor_of(b, op, digits);
    struct value *v = sk_push(b->e->tmp, &b->values);
    *v = (struct value){sk_lower_buffer(b->e, t->name, t, SK_WIRE, b->type, box), several};
    return b->values.n - 1;
}

static sk_node *node_of(builder *b, const char *op, int n_in, char letters[3][4])
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
    sk_out_add(&dims, "->%s", letters[2]);
    memcpy(n->letters_out[0], letters[2], sizeof letters[2]);
    n->op = sk_op_find(op);
    n->dims = dims.s;
    n->n_in = n_in;
    n->n_out = 1;
    n->where = b->q->optim->name;
    n->id = SK_NO_NODE;
    n->phase = SK_BACKWARD;
    n->layer = b->q->tensor->layer;
    return n;
}

/* dims: "rc,Rc->rR", two letters a term. */
static int add_op(sk_whole *w, const char *op, const char *dims, int x, int y, double attr0,
                  double attr1)
{
    builder *b = (builder *)(void *)w;
    sk_program *p = b->e->p;
    int in[2] = {x, y}, n_in = y < 0 ? 1 : 2;
    char letters[3][4];
    for (int i = 0; i < n_in; i++) spell(dims + 3 * i, b->values.v[in[i]].several, letters[i]);
    const char *to = strchr(dims, '>') + 1;
    bool square = !strchr("rRS", to[0]) == !strchr("rRS", to[1]);
    int several = !b->several ? 0 : square ? 1 : b->several;
    spell(to, several, letters[2]);
    sk_node *n = node_of(b, op, n_in, letters);
    int out = result(b, op, letters[2], several);
    n->attr[0] = attr0;
    n->attr[1] = attr1;
    for (int i = 0; i < n_in; i++) n->in[i] = (sk_tensor *)p->bufs.v[b->values.v[in[i]].buf].tensor;
    n->out[0] = (sk_tensor *)p->bufs.v[b->values.v[out].buf].tensor;
    sk_inst *inst = sk_lower_inst(b->e, SK_DO_OP);
    inst->node = n;
    for (int i = 0; i < n_in; i++) inst->in[i] = b->values.v[in[i]].buf;
    inst->out[0] = b->values.v[out].buf;
    inst->layer = n->layer;
    return out;
}

/* --- bringing a matrix together --- */

/* Cut only along letters that count matrices. */
static sk_state whole_state(const sk_lowering *e, const sk_param_plan *q, const sk_state *from)
{
    sk_state s = *from;
    char roles[SK_MAX_DIM + 1];
    bool matrix = sk_param_matrix(e->g, q->tensor, roles);
    sk_assert(matrix);
    for (int a = 0; a < e->l->mesh.n; a++)
        if (s.how[a] == SK_SPLIT && roles[s.dim[a]] != '0') s.how[a] = SK_REPLICATE;
    return s;
}

int sk_whole_direction(sk_lowering *e, const sk_param_plan *q, const sk_state *s)
{
    const char *name = sk_print(e->p->arena, "%s.direction", q->tensor->name);
    return sk_lower_buffer(e, name, q->tensor, SK_WIRE, sk_lower_direction_type(e),
                           sk_lower_box(e, q->tensor, s, -1));
}

/* One axis at a time, the one that cuts finest first. */
static int gather(sk_lowering *e, const sk_param_plan *q, sk_state now, const sk_state *want,
                  int buf)
{
    const sk_tensor *t = q->tensor;
    for (bool more = true; more;) {
        more = false;
        for (int a = 0; a < e->l->mesh.n; a++) {
            int d = now.dim[a];
            if (now.how[a] != SK_SPLIT || want->how[a] == SK_SPLIT) continue;
            if (!sk_lower_finest(e, t, &now, a, d)) continue;
            now.how[a] = SK_REPLICATE;
            int to = sk_whole_direction(e, q, &now), call;
            call = sk_lower_call(e, SK_ALLGATHER, SK_SUM, sk_lower_direction_type(e), a,
                                 sk_print(e->p->arena, "direction of %s", t->name));
            sk_lower_rows(e, call, buf, to, &e->p->bufs.v[to].box, d);
            sk_lower_start(e, call, SK_FLIES_NOT);
            buf = to;
            more = true;
        }
    }
    return buf;
}

/* The same memory with another box. */
static int view(sk_lowering *e, int of, const sk_tensor *t, const sk_extent *box)
{
    const sk_buffer whole = e->p->bufs.v[of];
    int b = sk_lower_buffer(e, whole.name, t, whole.kind, whole.type, *box);
    e->p->bufs.v[b].within = of;
    return b;
}

static const double *knobs_of(sk_lowering *e, const sk_param_plan *q)
{
    if (q->group) return e->opts->groups[q->group - 1].knob;
    if (e->opts->knob) return e->opts->knob;
    double *usual = sk_many(e->tmp, double, SK_MAX_KNOB);
    for (int k = 0; q->optim->knobs[k].name; k++) usual[k] = q->optim->knobs[k].usual;
    return usual;
}

/* What becomes of the matrix in buffer `from`, a shard in state `s`: a buffer with the same box. */
static int operate(sk_lowering *e, const sk_param_plan *q, int from)
{
    const sk_extent box = e->p->bufs.v[from].box;
    bool narrow = e->opts->gpu && !e->l->canonical && sk_narrow(q->tensor);
    builder b = {.w = {.knob = knobs_of(e, q), .op = add_op},
                 .e = e,
                 .q = q,
                 .count = 1,
                 .type = narrow ? q->tensor->type : SK_F32};
    sk_extent matrix = merged(&b, &box);
    char digits[4];
    spell("12", b.several, digits);
    struct value *v = sk_push(e->tmp, &b.values);
    *v = (struct value){view(e, from, tensor_of(&b, "direction", digits), &matrix), b.several};
    int last = q->optim->whole(&b.w), buf = b.values.v[last].buf;
    sk_buffer *out = &e->p->bufs.v[buf];
    sk_assert(last > 0 &&
              out->bytes / (int64_t)sk_dtype_size(out->type) ==
                  e->p->bufs.v[from].bytes / (int64_t)sk_dtype_size(e->p->bufs.v[from].type));
    out->type = sk_lower_direction_type(e);
    out->bytes = sk_box_count(&out->box, 0, out->box.n) * (int64_t)sk_dtype_size(out->type);
    return view(e, buf, q->tensor, &box);
}

int sk_whole_step(sk_lowering *e, const sk_param_plan *q, const sk_state *from, int shard)
{
    sk_state want = whole_state(e, q, from);
    int whole = gather(e, q, *from, &want, shard), step = operate(e, q, whole);
    if (whole == shard) return step;
    int to = sk_whole_direction(e, q, from);
    sk_lower_move(e, SK_DO_SLICE, step, to);
    return to;
}

static void one_bucket(sk_lowering *e, const int *params, int n)
{
    sk_program *p = e->p;
    int *dir = sk_many(e->tmp, int, n + 1);
    for (int i = 0; i < n; i++) {
        dir[i] = sk_whole_direction(e, &p->params.v[params[i]], &p->params.v[params[i]].update);
        sk_lower_pass(e, params[i], 0)->in[2 + p->params.v[params[i]].n_state] = dir[i];
    }
    for (int i = 0; i < n; i++) {
        const sk_param_plan *q = &p->params.v[params[i]];
        dir[i] = sk_whole_step(e, q, &q->update, dir[i]);
    }
    for (int i = 0; i < n; i++)
        sk_lower_pass(e, params[i], 1)->in[2 + p->params.v[params[i]].n_state] = dir[i];
}

/* Of one group, dealt or not. */
static void in_buckets(sk_lowering *e, int group, bool dealt)
{
    const sk_program *p = e->p;
    int *params = sk_many(e->tmp, int, p->params.n + 1), n = 0;
    int64_t bytes = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (q->group != group || !sk_param_whole(q) || sk_is_dealt(e, q) != dealt) continue;
        params[n++] = i;
        bytes += sk_lower_logical(e, q->tensor) / (dealt ? e->l->mesh.size[e->l->shard_axis] : 1);
        if (bytes < BUCKET) continue;
        (dealt ? sk_lower_dealt : one_bucket)(e, params, n);
        bytes = n = 0;
    }
    if (n) (dealt ? sk_lower_dealt : one_bucket)(e, params, n);
}

void sk_lower_whole_updates(sk_lowering *e)
{
    for (int group = 0; group <= e->opts->n_groups; group++) {
        in_buckets(e, group, false);
        in_buckets(e, group, true);
    }
}
