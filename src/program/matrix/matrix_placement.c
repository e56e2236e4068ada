/* matrix_placement.c - where the work on whole matrices (sk_optim.matrix) is done, chosen by time.
 *
 *     all    every rank gathers the matrix over the axes that cut it, and does all of the work
 *     owner  each matrix has one owner along an axis, which alone does the work and keeps the state
 *            of the matrix; the steps go to the others (distributed_update.c)
 *     cut    the matrix stays cut over an axis: products that sum over the cut side leave partial
 *            sums, which are all-reduced (matrix_ops.c)
 *
 * An owner is one place along one axis; ranks that have the same place along it share what is left:
 * they gather the matrix or leave it cut.  With sharded state the axis is that of ZeRO, where an
 * owner always costs less bytes than a gather.  Else it is the axis that saves most time.
 *
 * Times are estimates: the instructions that a choice leads to are written to a program that is
 * thrown away, for the rank with all coordinates 0, so that all ranks agree; their flops and
 * bytes are priced by the rates below.  These are of one common machine, not of the job's: what is
 * explained, simulated and run is the same program. */
#include "program/matrix/matrix_placement.h"
#include "base/strings.h"
#include "program/param_groups.h"
#include "program/matrix/matrix_update.h"

#include <math.h>
#include <string.h>

enum { GPUS = 8, SPLIT = 16 };

/* Seconds: of an operation in products, and in a decomposition; of a kernel before it works; of a
 * byte and of a call, in a host and between hosts.  `wide`: elements of a result that a processor
 * computes at once; of fewer, a part of it is idle, and sums are split in up to 16. */
typedef struct rates {
    double flop, decomposition, kernel, byte[2], call[2], wide;
} rates;

/* A core of a server with Ethernet, however many threads a rank has: that differs between hosts,
 * and ranks must agree.  An H100 with NVLink 4 and 400 Gb/s (plan/machine.c), in 16 bits or in f32.
 */
static rates rates_of(const sk_lowering *e, const sk_param_plan *q)
{
    rates cpu = {1 / 8e10, 1 / 2e9, 0, {1 / 8e9, 1 / 1.1e9}, {1e-6, 60e-6}, 1};
    rates gpu = {1 / 794e12,      1 / 1e12,       4e-6, {1 / 370e9, 1 / 46e9},
                 {25e-6, 100e-6}, 132 * 128 * 128};
    if (e->opts->gpu && sk_matrix_result_type(e, q) == SK_F32) gpu.flop = 1 / 50e12;
    return e->opts->gpu ? gpu : cpu;
}

/* Where hosts are not known, as in a simulation, GPUs sit in hosts of eight. */
static int host_at(const sk_lowering *e, int rank)
{
    if (e->opts->host_of) return e->opts->host_of[rank];
    return e->opts->gpu ? rank / GPUS : 0;
}

/* Axes along which some group has ranks of several hosts. */
static unsigned far_axes(const sk_lowering *e)
{
    const sk_mesh *m = &e->l->mesh;
    unsigned far = 0;
    for (int r = 0; r < sk_mesh_ranks(m); r++)
        for (int a = 0; a < m->n; a++) {
            int coord[SK_MAX_AXES];
            sk_mesh_coords(m, r, coord);
            coord[a] = 0;
            if (host_at(e, r) != host_at(e, sk_mesh_rank(m, coord))) far |= 1u << a;
        }
    return far;
}

sk_matrix_work sk_matrix_work_find(const char *name)
{
    static const char *const names[] = {
        [SK_MATRIX_BY_ALL] = "all", [SK_MATRIX_BY_OWNER] = "owner", [SK_MATRIX_CUT] = "cut"};
    for (int i = SK_MATRIX_BY_ALL; i <= SK_MATRIX_CUT; i++)
        if (!strcmp(name, names[i])) return (sk_matrix_work)i;
    return SK_MATRIX_AUTO;
}

/* --- the time of a step --- */

static double op_seconds(const sk_program *p, const sk_inst *in, const rates *r)
{
    sk_args args;
    sk_inst_args(p, in, NULL, &args);
    bool decomposes = in->node->n_in == 1 && in->node->op->scratch;
    double flops = sk_op_flops(in->node->op, &args) * sk_inst_share(in);
    if (decomposes) return r->kernel + flops * r->decomposition;
    return r->kernel +
           flops * r->flop * fmin(fmax(1, r->wide / (double)sk_count(&args.out[0])), SPLIT);
}

static double call_seconds(const sk_lowering *e, const sk_call_plan *c, const rates *r,
                           unsigned far)
{
    int n = e->l->mesh.size[c->group], out = far >> c->group & 1;
    double ways = c->kind == SK_ALLREDUCE ? 2 : 1;
    return r->call[out] + ways * (double)sk_call_bytes(c) * (n - 1) / n * r->byte[out];
}

/* From a shard in state `from` to its step; INFINITY: not possible. */
static double step_seconds(const sk_lowering *e, const sk_param_plan *q, const sk_state *from,
                           int cut, unsigned far)
{
    sk_arena tmp = {0};
    sk_program p = {.arena = &tmp, .graph = e->g, .layout = *e->l, .n_micro = 1};
    sk_param_plan copy = *q;
    sk_lowering f = *e;
    sk_matrix_shard none[2] = {{.buf = -1}, {.buf = -1}};
    rates r = rates_of(e, q);
    double s = 0;
    f.p = &p;
    f.tmp = &tmp;
    sk_matrix_shard shard = {sk_matrix_direction(&f, &copy, from), *from};
    if (sk_matrix_step(&f, &copy, &shard, none, cut) < 0) s = INFINITY;
    for (int i = 0; i < p.insts.n; i++)
        if (p.insts.v[i].act == SK_DO_OP) s += op_seconds(&p, &p.insts.v[i], &r);
    for (int i = 0; i < p.calls.n; i++) s += call_seconds(e, &p.calls.v[i], &r, far);
    sk_arena_end(&tmp);
    return s;
}

/* --- cut or gathered --- */

/* The only axis that cuts the matrix; -1: none or several do. */
static int cutting_axis(const sk_lowering *e, const sk_param_plan *q, const sk_state *s)
{
    char roles[SK_MAX_DIM + 1];
    int found = -1;
    sk_param_matrix(e->g, q->tensor, roles);
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (s->how[a] != SK_SPLIT || roles[s->dim[a]] == '0' || e->l->mesh.size[a] < 2) continue;
        if (found >= 0) return -1;
        found = a;
    }
    return found;
}

/* In canonical order sums over a cut side would depend on the cut. */
static double best_step(const sk_lowering *e, const sk_param_plan *q, const sk_state *from,
                        unsigned far, int *cut)
{
    int axis = cutting_axis(e, q, from);
    bool may = axis >= 0 && !e->l->canonical && e->opts->matrix_work != SK_MATRIX_BY_ALL;
    double all = step_seconds(e, q, from, -1, far), s = all;
    *cut = -1;
    if (may) s = step_seconds(e, q, from, axis, far);
    if (!may || !(s < all || (s < INFINITY && e->opts->matrix_work == SK_MATRIX_CUT))) return all;
    *cut = axis;
    return s;
}

/* --- distributed to owners --- */

static bool zero(const sk_lowering *e)
{
    const sk_layout *l = e->l;
    return l->shard >= SK_SHARD_STATE && l->shard_axis >= 0 && l->mesh.size[l->shard_axis] > 1;
}

/* Has each matrix one place along the axis where it could be worked on: is it replicated there, or
 * cut so that shards can be brought together? */
static bool may_deal(const sk_lowering *e, const sk_param_plan *q, int a)
{
    char roles[SK_MAX_DIM + 1];
    if (a == e->l->stage_axis || e->l->mesh.size[a] < 2 || sk_layout_local(e->l, a)) return false;
    if (sk_is_timed(e, a)) return false; /* its ranks do not wait for each other */
    if (q->update.how[a] != SK_SPLIT) return q->update.how[a] == SK_REPLICATE && !zero(e);
    sk_param_matrix(e->g, q->tensor, roles);
    if (roles[q->update.dim[a]] == '0' ||
        !sk_lower_finest(e, q->tensor, &q->update, a, q->update.dim[a]))
        return false;
    return zero(e) ? a == e->l->shard_axis && q->used.how[a] != SK_SPLIT : !q->optim->factors;
}

/* Each owner has a program of its own: with many stages there are fewer owners. */
static int owners_along(const sk_lowering *e, int a)
{
    int most = SK_MOST_OWNERS, n = e->l->mesh.size[a];
    int stages = e->l->stage_axis < 0 ? 1 : e->l->mesh.size[e->l->stage_axis];
    if (!zero(e) && most > SK_OWNER_PROGRAMS / stages) most = SK_OWNER_PROGRAMS / stages;
    return n < most ? n : most;
}

/* Seconds that an owner saves for each matrix, among so many matrices of a stage.  Blocks of owners
 * are of equal length, so with fewer matrices than ranks some of what is sent is empty. */
static double saved(const sk_lowering *e, const sk_param_plan *q, int a, int matrices, unsigned far)
{
    int cut, n = e->l->mesh.size[a], owners = owners_along(e, a), out = far >> a & 1;
    sk_lowering f = *e;
    sk_program p = {.n_micro = 1};
    sk_state held = q->update;
    rates r = rates_of(e, q);
    f.p = &p;
    if (owners > matrices) owners = matrices;
    sk_extent box = sk_lower_box(&f, q->tensor, &q->update, -1);
    int ways = held.how[a] == SK_SPLIT ? 2 : 1;
    double bytes =
        (double)sk_box_count(&box, 0, box.n) * (double)sk_dtype_size(sk_matrix_type(e, q));
    held.how[a] = SK_REPLICATE;
    double all = best_step(e, q, &q->update, far, &cut);
    double alone = best_step(e, q, &held, far, &cut) / owners;
    if (q->optim->factors || e->opts->matrix_work == SK_MATRIX_BY_OWNER)
        return all * (1 - 1.0 / owners);
    return all - alone - ways * (bytes * (n - 1) / owners * r.byte[out] + r.call[out] / matrices);
}

static int matrices_of(const sk_lowering *e, const sk_matrix_placement *w)
{
    int n = 0, stages = e->l->stage_axis < 0 ? 1 : e->l->mesh.size[e->l->stage_axis];
    for (int i = 0; i < w->n; i++) n += w->v[i].n;
    return n > stages ? n / stages : 1;
}

static void choose_axis(const sk_lowering *e, sk_matrix_placement *w)
{
    double most = 0;
    bool may = e->opts->matrix_work == SK_MATRIX_AUTO || e->opts->matrix_work == SK_MATRIX_BY_OWNER;
    for (int a = 0; may && a < e->l->mesh.n; a++) {
        double sum = 0;
        for (int i = 0; i < w->n; i++) {
            double s =
                may_deal(e, &w->v[i].q, a) ? saved(e, &w->v[i].q, a, matrices_of(e, w), w->far) : 0;
            if (s > 0) sum += s * w->v[i].n;
        }
        if (sum <= most || owners_along(e, a) < 2) continue;
        most = sum;
        w->axis = a;
    }
    if (zero(e)) w->axis = e->l->shard_axis;
    w->owners = w->axis < 0 ? 0 : owners_along(e, w->axis);
}

static void settle(const sk_lowering *e, const sk_matrix_placement *w, sk_matrix_kind *k)
{
    sk_state held = k->q.update;
    k->distributed = w->axis >= 0 && may_deal(e, &k->q, w->axis) &&
                     (zero(e) || saved(e, &k->q, w->axis, matrices_of(e, w), w->far) > 0);
    if (k->distributed) held.how[w->axis] = SK_REPLICATE;
    best_step(e, &k->q, &held, w->far, &k->cut);
}

/* --- all matrices of a graph --- */

static bool alike(const sk_param_plan *a, const sk_param_plan *b)
{
    return a->group == b->group && a->optim == b->optim && a->tensor->type == b->tensor->type &&
           !strcmp(a->tensor->letters, b->tensor->letters) && sk_state_equal(&a->used, &b->used) &&
           sk_state_equal(&a->update, &b->update);
}

static sk_matrix_kind *find(const sk_matrix_placement *w, const sk_param_plan *q)
{
    for (int i = 0; i < w->n; i++)
        if (alike(&w->v[i].q, q)) return &w->v[i];
    return NULL;
}

static void add(const sk_lowering *e, const sk_tensor *t, sk_arena *a, sk_matrix_placement *w)
{
    char roles[SK_MAX_DIM + 1];
    sk_param_plan q = {.tensor = t,
                       .group = sk_lower_group(e, t),
                       .optim = sk_lower_optim(e, t),
                       .used = e->sp->made[t->id],
                       .update = sk_update_state(e, t)};
    if (!sk_param_matrix_update(&q)) return;
    sk_matrix_kind *k = find(w, &q);
    if (!k && !sk_param_matrix(e->g, t, roles)) return;
    if (!k) {
        k = sk_push(a, w);
        *k = (sk_matrix_kind){.q = q, .cut = -1};
    }
    k->n++;
}

static bool any_whole(const sk_compile_opts *o)
{
    bool whole = o->optim && o->optim->matrix;
    for (int i = 0; o->optim && i < o->n_groups; i++) whole |= o->groups[i].optim->matrix != NULL;
    return whole;
}

const sk_matrix_placement *sk_matrix_placements(const sk_lowering *e, sk_arena *a)
{
    sk_matrix_placement *w = sk_new(a, sk_matrix_placement);
    w->axis = -1;
    if (!any_whole(e->opts)) return w;
    w->far = far_axes(e);
    for (int i = 0; i < e->g->tensors.n; i++)
        if (e->g->tensors.v[i]->role == SK_PARAM) add(e, e->g->tensors.v[i], a, w);
    choose_axis(e, w);
    for (int i = 0; i < w->n; i++) settle(e, w, &w->v[i]);
    return w;
}

const sk_matrix_kind *sk_matrix_kind_of(const sk_lowering *e, const sk_param_plan *q)
{
    return find(e->matrices, q);
}

/* --- for people --- */

bool sk_program_matrix_work_is(const sk_program *p, sk_matrix_work asked)
{
    const sk_matrix_placement *w = p->matrices;
    for (int i = 0; w && i < w->n; i++) {
        const sk_matrix_kind *k = &w->v[i];
        sk_matrix_work done = k->distributed ? SK_MATRIX_BY_OWNER : SK_MATRIX_BY_ALL;
        if (done == asked || (asked == SK_MATRIX_CUT && k->cut >= 0)) return true;
    }
    return false;
}

/* "matrices h.0.fc.w and 11 alike: muon by 8 owners along dp, cut over tp" */
char *sk_program_matrix_work(const sk_program *p, sk_arena *a)
{
    const sk_matrix_placement *w = p->matrices;
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s", "");
    for (int i = 0; i < w->n; i++) {
        const sk_matrix_kind *k = &w->v[i];
        sk_out_add(&o, "matrices %s", k->q.tensor->name);
        if (k->n > 1) sk_out_add(&o, " and %d alike", k->n - 1);
        sk_out_add(&o, ": %s by ", k->q.optim->name);
        if (k->distributed)
            sk_out_add(&o, "%d owners along %s", w->owners, p->layout.mesh.name[w->axis]);
        else sk_out_add(&o, "all that have them");
        if (k->cut >= 0) sk_out_add(&o, ", cut over %s", p->layout.mesh.name[k->cut]);
        sk_out_add(&o, "\n");
    }
    return o.s;
}
