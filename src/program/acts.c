/* acts.c - the table of instructions; see acts.h. */
#include "program/acts.h"

#include <inttypes.h>
#include <string.h>

/* --- operands --- */

static void visit_in(const sk_inst *in, unsigned how, sk_visit *visit, void *ctx)
{
    for (int i = 0; i < SK_MAX_OPERANDS; i++)
        if (in->in[i] >= 0) visit(ctx, (int *)&in->in[i], how);
}

static void visit_out(const sk_inst *in, unsigned how, sk_visit *visit, void *ctx)
{
    for (int o = 0; o < SK_MAX_OUT; o++)
        if (in->out[o] >= 0)
            visit(ctx, (int *)&in->out[o], how | (in->add >> o & 1 ? SK_READS : 0));
}

static void plain_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)p;
    visit_in(in, SK_READS, visit, ctx);
    visit_out(in, SK_WRITES, visit, ctx);
    if (in->workspace >= 0) visit(ctx, (int *)&in->workspace, SK_WRITES);
}

static void add_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)p;
    visit_in(in, SK_READS, visit, ctx);
    visit_out(in, SK_READS | SK_WRITES, visit, ctx);
}

/* The last part makes the buffer complete. */
static void paste_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)p;
    visit_in(in, SK_READS, visit, ctx);
    visit_out(in, SK_WRITES | (in->part + 1 < in->parts ? SK_PART : 0), visit, ctx);
}

static void call_operands(const sk_program *p, const sk_inst *in, unsigned src, unsigned dst,
                          sk_visit *visit, void *ctx)
{
    const sk_call_plan *c = &p->calls.v[in->call];
    for (int s = 0; s < c->n_segs; s++) {
        visit(ctx, &c->segs[s].src, src);
        visit(ctx, &c->segs[s].dst, dst);
    }
    if (c->workspace >= 0) visit(ctx, (int *)&c->workspace, dst);
}

static void start_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    call_operands(p, in, SK_READS | SK_HOLDS, SK_WRITES | SK_HOLDS, visit, ctx);
}

static void wait_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    call_operands(p, in, SK_FREES, SK_FREES | SK_WRITES, visit, ctx);
}

static void copy_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)p;
    visit_in(in, SK_READS | SK_HOLDS, visit, ctx);
    visit_out(in, SK_WRITES | SK_HOLDS, visit, ctx);
}

static void copied_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)p;
    visit_in(in, SK_FREES, visit, ctx);
    visit_out(in, SK_FREES | SK_WRITES, visit, ctx);
}

/* State and master are read and written.  Weights that have a master are written in the last pass;
 * the passes before it only name them.  An update in the background holds its operands until JOIN.
 */
static void update_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    unsigned hold = in->background ? SK_HOLDS : 0;
    bool master = in->out[2] >= 0, last = sk_last_pass(p, in);
    if (in->in[0] >= 0) visit(ctx, (int *)&in->in[0], SK_READS | hold);
    if (in->in[1] >= 0) visit(ctx, (int *)&in->in[1], SK_READS);
    const sk_param_plan *q = &p->params.v[in->param];
    int step = sk_param_more(q) ? 2 + q->n_state : -1;
    for (int i = 2; i < SK_MAX_OPERANDS; i++) {
        bool reads = last || !sk_param_matrix_update(q);
        unsigned use = i == step ? (reads ? SK_READS : SK_WRITES) : SK_READS | SK_WRITES | hold;
        if (in->in[i] >= 0) visit(ctx, (int *)&in->in[i], use);
    }
    unsigned how = !master ? SK_READS | SK_WRITES : last ? SK_WRITES : 0;
    if (in->out[0] >= 0) visit(ctx, (int *)&in->out[0], how);
    if (in->out[1] >= 0) visit(ctx, (int *)&in->out[1], SK_WRITES);
    if (master) visit(ctx, (int *)&in->out[2], SK_READS | SK_WRITES | hold);
}

/* Updates in the background end. */
static void join_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)in;
    for (int i = 0; i < p->params.n; i++) {
        sk_param_plan *q = &p->params.v[i];
        if (q->master >= 0) visit(ctx, &q->master, SK_FREES);
        for (int s = 0; s < q->n_state; s++) visit(ctx, &q->state[s], SK_FREES);
    }
}

/* Sums of the graph, and gradients; offloaded ones have SQUARES instead. */
static void stats_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    plain_operands(p, in, visit, ctx);
    for (int w = 0; w < SK_N_SUMS; w++)
        for (int i = 0; sk_sum_made(p, w, in->training) && i < p->sums[w].n; i++)
            visit(ctx, &p->sums[w].buf[i], SK_READS | SK_BESIDE);
    for (int i = 0; in->training && !p->layout.home[SK_GRAD] && i < p->params.n; i++)
        visit(ctx, &p->params.v[i].grad_shard, SK_READS | SK_BESIDE);
}

static void pull_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)in;
    for (int i = 0; i < p->params.n; i++) {
        sk_param_plan *q = &p->params.v[i];
        visit(ctx, &q->shard, SK_WRITES);
        if (q->master >= 0) visit(ctx, &q->master, SK_WRITES);
        for (int s = 0; s < q->n_state; s++) visit(ctx, &q->state[s], SK_WRITES);
    }
}

static void commit_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    (void)in;
    for (int w = 0; w < SK_N_SUMS; w++)
        for (int i = 0; sk_sum_made(p, w, true) && i < p->sums[w].n; i++)
            visit(ctx, &p->sums[w].buf[i], SK_READS | SK_BESIDE);
    for (int i = 0; i < p->params.n; i++)
        visit(ctx, &p->params.v[i].grad_shard, SK_READS | SK_WRITES);
}

void sk_operands(const sk_program *p, const sk_inst *in, sk_visit *visit, void *ctx)
{
    const sk_act_row *row = sk_act_row_of(in);
    (row->operands ? row->operands : plain_operands)(p, in, visit, ctx);
}

/* --- bytes and memory --- */

static int64_t bytes_of(const sk_program *p, int buf) { return buf < 0 ? 0 : p->bufs.v[buf].bytes; }

/* An op touches no more elements of an operand than it does operations: an embedding table is not
 * read as a whole to look up a few rows. */
static int64_t op_bytes(const sk_program *p, const sk_inst *in)
{
    int64_t sum = 0;
    for (int i = 0; i < SK_MAX_OPERANDS + SK_MAX_OUT; i++) {
        int buf = i < SK_MAX_OPERANDS ? in->in[i] : in->out[i - SK_MAX_OPERANDS];
        if (buf < 0) continue;
        const sk_buffer *b = &p->bufs.v[buf];
        double most = in->flops * (double)sk_dtype_size(b->type);
        sum += (double)b->bytes > most ? (int64_t)most : b->bytes;
    }
    return sum;
}

static int64_t slice_bytes(const sk_program *p, const sk_inst *in)
{
    return 2 * bytes_of(p, in->out[0]);
}

static int64_t paste_bytes(const sk_program *p, const sk_inst *in)
{
    return 2 * bytes_of(p, in->in[0]);
}

/* The input is read twice: counted, then packed. */
static int64_t pack_bytes(const sk_program *p, const sk_inst *in)
{
    return 2 * bytes_of(p, in->in[0]) + bytes_of(p, in->out[0]);
}

/* Each pair is read. */
static int64_t products_bytes(const sk_program *p, const sk_inst *in)
{
    return (in->pieces + 1) * bytes_of(p, in->in[0]);
}

/* Scalars do not count: the price must not depend on which rank adds up the sums of the graph. */
static int64_t stats_bytes(const sk_program *p, const sk_inst *in)
{
    int64_t sum = 0;
    for (int i = 0; in->training && !p->layout.home[SK_GRAD] && i < p->params.n; i++)
        sum += bytes_of(p, p->params.v[i].grad_shard);
    return sum;
}

/* A member reads its share of the gradient of every member and writes the sum, then reads the
 * shares of the others and writes them. */
static int64_t commit_bytes(const sk_program *p, const sk_inst *in)
{
    int64_t sum = 0;
    (void)in;
    for (int i = 0; i < p->params.n; i++) sum += bytes_of(p, p->params.v[i].grad_shard);
    return 3 * sum;
}

/* Read there and written here. */
static int64_t pull_bytes(const sk_program *p, const sk_inst *in)
{
    (void)p;
    return 2 * in->wire;
}

typedef struct counter {
    const sk_program *p;
    int64_t bytes;
} counter;

static void count(void *ctx, int *buf, unsigned how)
{
    counter *c = ctx;
    int times = !!(how & SK_READS) + !!(how & SK_WRITES);
    c->bytes += times * c->p->bufs.v[*buf].bytes;
}

int64_t sk_inst_bytes(const sk_program *p, const sk_inst *in)
{
    const sk_act_row *row = sk_act_row_of(in);
    counter c = {.p = p};
    if (row->bytes) return row->bytes(p, in);
    if (!row->moves) sk_operands(p, in, count, &c);
    return c.bytes;
}

static double elements(const sk_program *p, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    return (double)b->bytes / (double)sk_dtype_size(b->type);
}

/* With error feedback what was encoded is decoded again, and the two are compared. */
static double encode_work(const sk_program *p, const sk_inst *in)
{
    const sk_codec *c = in->codec;
    double feedback = in->in[1] >= 0 ? 2 * c->decode_flops : 0;
    return (c->encode_flops + feedback) * elements(p, in->in[0]);
}

static double decode_work(const sk_program *p, const sk_inst *in)
{
    return in->codec->decode_flops * (double)in->pieces * elements(p, in->out[0]);
}

double sk_inst_work(const sk_program *p, const sk_inst *in)
{
    const sk_act_row *row = sk_act_row_of(in);
    return row->work ? row->work(p, in) : in->flops;
}

sk_placement sk_inst_memory(const sk_program *p, const sk_inst *in)
{
    return sk_act_row_of(in)->host && p->bufs.v[in->in[0]].placement ? SK_HOST : SK_DEVICE;
}

/* --- print --- */

static void shape(sk_out *o, const sk_program *p, int buf)
{
    const sk_buffer *b = &p->bufs.v[buf];
    sk_out_add(o, "%s[", b->name);
    for (int i = 0; i < b->box.n; i++) sk_out_add(o, "%s%" PRId64, i ? "," : "", b->box.size[i]);
    sk_out_add(o, "]");
    if (p->heap_bytes) sk_out_add(o, "@%" PRIx64, (uint64_t)b->offset); /* places are known */
}

void sk_print_operands(sk_out *o, const sk_program *p, const int *v, int n)
{
    for (int i = 0; i < n && v[i] >= 0; i++) {
        sk_out_add(o, i ? ", " : "");
        shape(o, p, v[i]);
    }
}

static void print_op(sk_out *o, const sk_program *p, const sk_inst *in)
{
    sk_print_operands(o, p, in->out, SK_MAX_OUT);
    sk_out_add(o, in->add ? " += %s(" : " = %s(", in->node->op->name);
    sk_print_operands(o, p, in->in, SK_MAX_OPERANDS);
    sk_out_add(o, ") \"%s\"", in->node->dims);
}

static const char *const coll_names[SK_N_COLLS] = {"all-reduce", "reduce-scatter", "all-gather",
                                                   "broadcast",  "reduce",         "gather",
                                                   "scatter",    "all-to-all",     "all-to-all-v"};

const char *sk_group_name(const sk_program *p, int group)
{
    if (group < p->layout.mesh.n) return p->layout.mesh.name[group];
    if (group == p->world) return "all";
    if (group == p->near) return "those near";
    return p->n_pairs && group >= p->pairs ? "partners" : "tied stages";
}

static void print_call(sk_out *o, const sk_program *p, const sk_inst *in)
{
    const sk_call_plan *c = &p->calls.v[in->call];
    const char *group = sk_group_name(p, c->group);
    sk_out_add(o, "#%d %s%s over %s: %s", in->call, coll_names[c->kind],
               c->reduce == SK_MAXIMUM ? " max" : "", group, c->what);
    if (c->n_segs > 1) sk_out_add(o, " (%d tensors)", c->n_segs);
    sk_out_add(o, ", %" PRId64 " x %s", c->elements, sk_dtype_name(c->type));
    if (c->common) sk_out_add(o, " in one memory");
    char degrees[SK_DEGREES_TEXT];
    if (c->algorithm >= 0)
        sk_out_add(o, " by %s%s", sk_algorithm_name(c->algorithm),
                   sk_degrees_print(c->degrees, degrees));
}

static void print_send(sk_out *o, const sk_program *p, const sk_inst *in)
{
    sk_print_operands(o, p, in->in, 1);
    sk_out_add(o, " to rank %d", in->peer);
}

static void print_recv(sk_out *o, const sk_program *p, const sk_inst *in)
{
    sk_print_operands(o, p, in->out, 1);
    sk_out_add(o, " from rank %d", in->peer);
}

static void print_sent(sk_out *o, const sk_program *p, const sk_inst *in)
{
    (void)p;
    sk_out_add(o, "%" PRId64 " to rank %d", in->sent, in->peer);
}

static void print_copy(sk_out *o, const sk_program *p, const sk_inst *in)
{
    sk_out_add(o, "#%d ", in->copy);
    sk_print_operands(o, p, in->in, 1);
    sk_out_add(o, " to the %s", sk_placement_names[p->bufs.v[in->out[0]].placement]);
}

static void print_update(sk_out *o, const sk_program *p, const sk_inst *in)
{
    if (p->params.v[in->param].tensor->bias_update != 0) sk_out_add(o, "bias update ");
    else sk_out_add(o, "%s pass %d ", p->params.v[in->param].optim->name, in->pass);
    if (in->background) sk_out_add(o, "beside the step, ");
    sk_print_operands(o, p, in->background ? &in->out[2] : in->out, 1);
    if (p->n_updates > 1) sk_out_add(o, ", %d late", in->delay);
}

static void print_commit(sk_out *o, const sk_program *p, const sk_inst *in)
{
    int a = sk_layout_backup(&p->layout), n = a < 0 ? p->n_ranks : p->layout.mesh.size[a];
    (void)in;
    sk_out_add(o, "the first %d of %d gradients along %s", a < 0 ? n : n - p->layout.sync[a].backup,
               n, a < 0 ? "" : p->layout.mesh.name[a]);
}

static void print_newest(sk_out *o, const sk_program *p, const sk_inst *in)
{
    int a = sk_layout_stale(&p->layout);
    (void)in;
    sk_out_add(o, "the newest weights along %s", a < 0 ? "" : p->layout.mesh.name[a]);
    if (a >= 0 && p->layout.sync[a].stale != SK_ANY_STALENESS)
        sk_out_add(o, ", at most %d step%s ahead", p->layout.sync[a].stale - 1,
                   sk_plural(p->layout.sync[a].stale - 1));
}

/* Operands may be missing in between. */
static void print_clip(sk_out *o, const sk_program *p, const sk_inst *in)
{
    for (int i = 0, n = 0; i < SK_MAX_OPERANDS; i++) {
        if (in->in[i] < 0) continue;
        sk_out_add(o, n++ ? ", " : " <- ");
        shape(o, p, in->in[i]);
    }
}

static void print_encode(sk_out *o, const sk_program *p, const sk_inst *in)
{
    sk_print_operands(o, p, in->out, 1);
    sk_out_add(o, " <- ");
    sk_print_operands(o, p, in->in, 1);
    if (in->in[1] >= 0) sk_out_add(o, in->adds_error ? ", loss to " : ", with loss of ");
    sk_print_operands(o, p, in->in + 1, 1);
}

static void print_decode(sk_out *o, const sk_program *p, const sk_inst *in)
{
    sk_print_operands(o, p, in->out, 1);
    sk_out_add(o, " <- ");
    if (in->pieces > 1) sk_out_add(o, "sum of %" PRId64 " in ", in->pieces);
    sk_print_operands(o, p, in->in, 1);
}

/* --- the table --- */

const sk_act_row sk_act_rows[SK_N_ACTS] = {
#define SK_ACT(act, ...) [SK_DO_##act] = {__VA_ARGS__},
#include "program/act_table.h"
#undef SK_ACT
};

/* --- two instructions --- */

typedef struct meeting { /* of an operand of one instruction with the operands of another */
    const sk_program *p;
    const sk_inst *other;
    int buf;
    unsigned how;
    bool found;
} meeting;

static void see_second(void *ctx, int *buf, unsigned how)
{
    meeting *m = ctx;
    if (sk_buffer_root(m->p, *buf) == sk_buffer_root(m->p, m->buf) && ((how | m->how) & SK_WRITES))
        m->found = true;
}

static void see_first(void *ctx, int *buf, unsigned how)
{
    meeting *m = ctx;
    m->buf = *buf;
    m->how = how;
    sk_operands(m->p, m->other, see_second, m);
}

bool sk_insts_depend(const sk_program *p, const sk_inst *a, const sk_inst *b)
{
    meeting m = {.p = p, .other = b};
    sk_operands(p, a, see_first, &m);
    return m.found;
}

void sk_insts_move(sk_program *p, sk_arena *tmp, int from, int n, int to)
{
    sk_assert(to >= 0 && to <= from && n > 0 && from + n <= p->insts.n);
    sk_assert((to < p->n_train) == (from + n <= p->n_train));
    sk_inst *v = p->insts.v, *moved = sk_many(tmp, sk_inst, n), there = v[to];
    memcpy(moved, &v[from], sizeof *v * (size_t)n);
    memmove(&v[to + n], &v[to], sizeof *v * (size_t)(from - to));
    memcpy(&v[to], moved, sizeof *v * (size_t)n);
    for (int i = to; i < to + n; i++) {
        v[i].task = there.task;
        v[i].unit = there.unit;
        v[i].micro = there.micro;
        v[i].layer = there.layer;
        v[i].phase = there.phase;
        v[i].work = there.work;
    }
}
