/* fuse.c - which instructions a GPU executes in one launch, and the proof that this is correct. */
#include "program/fuse.h"
#include "program/acts.h"

#include <stdlib.h>
#include <string.h>

/* --- who reads what --- */

static void count_reads(const sk_program *p, int from, int to, int *reads, int *reader)
{
    for (int pc = from; pc < to; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        for (int i = 0; i < SK_MAX_OPERANDS; i++)
            if (in->in[i] >= 0 && !reads[in->in[i]]++) reader[in->in[i]] = pc;
        for (int o = 0; o < SK_MAX_OUT; o++) /* a buffer that is added to is also read */
            if (in->out[o] >= 0 && in->add >> o & 1) reads[in->out[o]] += 2;
    }
    for (int i = 0; i < p->calls.n; i++)
        for (int k = 0; k < p->calls.v[i].n_segs; k++) {
            reads[p->calls.v[i].segs[k].src] += 2;
            reads[p->calls.v[i].segs[k].dst] += 2;
        }
    for (int i = 0; i < p->bufs.n; i++) /* reads of a part count for the whole, and vice versa */
        if (p->bufs.v[i].within >= 0) reads[i] += 2, reads[p->bufs.v[i].within] += 2;
}

bool sk_fuse_is(const sk_fuse_site *s, int pc, const char *op)
{
    if (pc < s->from || pc >= s->to || s->p->launch_of[pc]) return false;
    const sk_inst *in = &s->p->insts.v[pc];
    return in->act == SK_DO_OP && !strcmp(in->node->op->name, op);
}

int sk_fuse_only_reader(const sk_fuse_site *s, int pc, int out, const char *op)
{
    int buf = s->p->insts.v[pc].out[out];
    if (buf < 0 || s->p->bufs.v[buf].keep || s->reads[buf] != 1) return -1;
    int at = s->reader[buf];
    return at > pc && sk_fuse_is(s, at, op) ? at : -1;
}

int sk_fuse_readers(const sk_fuse_site *s, int pc, int out, int *pcs, int most)
{
    int buf = s->p->insts.v[pc].out[out], n = 0;
    if (buf < 0 || s->p->bufs.v[buf].keep) return -1;
    for (int i = s->from; i < s->to; i++)
        for (int k = 0; k < SK_MAX_OPERANDS; k++)
            if (s->p->insts.v[i].in[k] == buf && n++ < most) pcs[n - 1] = i;
    return n == s->reads[buf] ? n : -1;
}

sk_status sk_fuse_prepare(const char *op, const sk_args *a, const sk_launch *l, sk_variant *took)
{
    const sk_kernel *k = sk_kernel_find(op);
    return k->prepare ? k->prepare(a, l, took) : SK_OK;
}

sk_status sk_fuse_singly(const char *const *ops, const sk_args *const *a, int n, const sk_launch *l)
{
    for (int i = 0; i < n; i++) SK_TRY(sk_kernel_find(ops[i])->launch(a[i], l));
    return SK_OK;
}

int sk_fuse_next(const sk_fuse_site *s, int pc, const char *op, int in, int buf, int within)
{
    for (int i = pc + 1; i < s->to && i <= pc + within; i++)
        if (sk_fuse_is(s, i, op) && s->p->insts.v[i].in[in] == buf) return i;
    return -1;
}

/* --- the proof --- */

static bool meet(const sk_program *p, int a, int b)
{
    const sk_buffer *x = &p->bufs.v[a], *y = &p->bufs.v[b];
    return x->placement == y->placement && x->offset < y->offset + y->bytes &&
           y->offset < x->offset + x->bytes && x->bytes && y->bytes;
}

/* Does one of the buffers in `a` overlap in memory with one of `b`?  Those in `silent` are not
 * written. */
static bool any_meet(const sk_program *p, const int *a, int n_a, unsigned silent, const int *b,
                     int n_b)
{
    for (int i = 0; i < n_a && a[i] >= 0; i++)
        for (int k = 0; k < n_b && b[k] >= 0; k++)
            if (!(silent >> i & 1) && meet(p, a[i], b[k])) return true;
    return false;
}

/* May `late` move behind `between`? */
static bool may_wait(const sk_program *p, const sk_inst *late, unsigned silent,
                     const sk_inst *between)
{
    return sk_act_row_of(between)->plain && late->workspace < 0 &&
           !any_meet(p, late->in, SK_MAX_OPERANDS, 0, &between->workspace, 1) &&
           !any_meet(p, late->out, SK_MAX_OUT, silent, &between->workspace, 1) &&
           !any_meet(p, late->in, SK_MAX_OPERANDS, 0, between->out, SK_MAX_OUT) &&
           !any_meet(p, late->out, SK_MAX_OUT, silent, between->out, SK_MAX_OUT) &&
           !any_meet(p, late->out, SK_MAX_OUT, silent, between->in, SK_MAX_OPERANDS);
}

static bool has(const int *v, int n, int x)
{
    for (int i = 0; i < n; i++)
        if (v[i] == x) return true;
    return false;
}

/* A later instruction must not write where an earlier one of the launch reads; its own operand it
 * may overwrite. */
static bool apart(const sk_program *p, const sk_inst *first, const sk_inst *then, unsigned silent)
{
    for (int o = 0; o < SK_MAX_OUT && then->out[o] >= 0; o++)
        for (int i = 0; i < SK_MAX_OPERANDS && first->in[i] >= 0; i++)
            if (!(silent >> o & 1) && meet(p, then->out[o], first->in[i]) &&
                !has(then->in, SK_MAX_OPERANDS, first->in[i]))
                return false;
    return true;
}

/* A result that is not written is read by instructions of the launch only. */
static bool unheard(const sk_fuse_site *s, const sk_fuse_set *x, int buf)
{
    int n = 0;
    if (s->p->bufs.v[buf].keep) return false;
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < SK_MAX_OPERANDS; k++) n += s->p->insts.v[x->pcs[i]].in[k] == buf;
    return n == s->reads[buf];
}

static bool proved_one(const sk_fuse_site *s, const sk_fuse_set *x, int i)
{
    const sk_inst *v = s->p->insts.v, *in = &v[x->pcs[i]];
    for (int o = 0; o < SK_MAX_OUT && in->out[o] >= 0; o++)
        if (x->silent[i] >> o & 1 && !unheard(s, x, in->out[o])) return false;
    for (int k = i + 1; k < x->n; k++)
        if (!apart(s->p, in, &v[x->pcs[k]], x->silent[k])) return false;
    for (int pc = x->pcs[i] + 1; pc < x->pcs[x->n - 1]; pc++)
        if (!has(x->pcs, x->n, pc) && !may_wait(s->p, in, x->silent[i], &v[pc])) return false;
    return true;
}

static bool proved_all(const sk_fuse_site *s, const sk_fuse_set *x)
{
    for (int i = 0; i < x->n; i++) {
        int pc = x->pcs[i];
        if (pc < s->from || pc >= s->to || (i && pc <= x->pcs[i - 1])) return false;
        if (s->p->insts.v[pc].workspace >= 0) return false; /* its workspace is its own */
        if (!sk_insts_due_alike(&s->p->insts.v[pc], &s->p->insts.v[x->pcs[0]])) return false;
        if (!proved_one(s, x, i)) return false;
    }
    return true;
}

/* Can these be proved to be one launch, perhaps without the last ones? */
static bool proved(const sk_fuse_site *s, sk_fuse_set *x)
{
    int least = x->least ? x->least : x->n;
    for (; x->n >= least; x->n--)
        if (proved_all(s, x)) return true;
    return false;
}

/* --- the plan --- */

static bool wanted(const char *name)
{
    const char *only = getenv("SKEIN_FUSE");
    size_t n = strlen(name);
    if (!only || !*only) return true;
    for (const char *at = only; (at = strstr(at, name)); at += n)
        if ((at == only || at[-1] == ',') && (!at[n] || at[n] == ',')) return true;
    return false;
}

static void join(const sk_fuse *by, sk_fuse_site *s, sk_program *p, const sk_fuse_set *x)
{
    sk_launch_plan *l = sk_push(p->arena, &p->launches);
    *l = (sk_launch_plan){.by = by, .at = x->pcs[x->n - 1], .n = x->n};
    for (int i = 0; i < x->n; i++) {
        l->pcs[i] = x->pcs[i];
        l->silent[i] = x->silent[i];
        p->launch_of[x->pcs[i]] = p->launches.n;
    }
    if (by->settle) by->settle(s, x);
}

/* The longest launch that can be proved, of all that the parts propose. */
static void try_at(sk_fuse_site *s, sk_program *p, int pc)
{
    sk_fuse_set best = {0};
    const sk_fuse *by = NULL;
    for (const sk_fuse *const *part = sk_fuse_parts; *part; part++) {
        sk_fuse_set x = {0};
        if (!wanted((*part)->name) || !(*part)->match(s, pc, &x)) continue;
        if (x.n <= best.n || !proved(s, &x) || x.n <= best.n) continue; /* proved() may cut it */
        by = *part;
        best = x;
    }
    if (by) join(by, s, p, &best);
}

static sk_fuse_site site_of(sk_arena *tmp, const sk_program *p, sk_args *args, int from, int to)
{
    int *reads = sk_many(tmp, int, p->bufs.n), *reader = sk_many(tmp, int, p->bufs.n);
    count_reads(p, from, to, reads, reader);
    return (sk_fuse_site){
        .p = p, .args = args, .from = from, .to = to, .reads = reads, .reader = reader};
}

void sk_fuse_section(sk_program *p, sk_args *args, int from, int to)
{
    sk_arena tmp = {0};
    sk_fuse_site s = site_of(&tmp, p, args, from, to);
    for (int pc = from; pc < to; pc++)
        if (p->insts.v[pc].act == SK_DO_OP && !p->launch_of[pc]) try_at(&s, p, pc);
    sk_arena_end(&tmp);
}

static sk_fuse_set set_of(const sk_launch_plan *l)
{
    sk_fuse_set x = {.n = l->n};
    memcpy(x.pcs, l->pcs, sizeof x.pcs);
    memcpy(x.silent, l->silent, sizeof x.silent);
    return x;
}

int sk_fuse_unproved(const sk_program *p)
{
    const int section[] = {0, p->n_train, p->insts.n};
    int bad = -1;
    for (int k = 0; k < 2 && bad < 0 && p->launches.n; k++) {
        sk_arena tmp = {0};
        sk_fuse_site s = site_of(&tmp, p, NULL, section[k], section[k + 1]);
        for (int i = 0; i < p->launches.n && bad < 0; i++) {
            const sk_launch_plan *l = &p->launches.v[i];
            sk_fuse_set x = set_of(l);
            if (!l->by || l->at < s.from || l->at >= s.to) continue;
            bool whole = l->n > 0 && l->n <= SK_MOST_FUSED && l->at == l->pcs[l->n - 1];
            if (!whole || !proved_all(&s, &x)) bad = i;
        }
        sk_arena_end(&tmp);
    }
    return bad;
}

static void open_launch(sk_arena *a, const sk_fuse_site *s, const sk_launch_plan *l,
                        sk_fused **fused, bool *gone)
{
    sk_fused *f = fused[l->at] = sk_new(a, sk_fused);
    sk_fuse_set x = set_of(l);
    *f = (sk_fused){.by = l->by, .n = l->n};
    for (int i = 0; i < l->n; i++) {
        f->args[i] = &s->args[l->pcs[i]];
        gone[l->pcs[i]] = true;
    }
    if (l->by->settle) l->by->settle(s, &x);
}

void sk_fuse_open(sk_arena *a, const sk_program *p, sk_args *args, sk_fused **fused, bool *gone)
{
    const int section[] = {0, p->n_train, p->insts.n};
    for (int k = 0; k < 2; k++) {
        sk_arena tmp = {0};
        sk_fuse_site s = site_of(&tmp, p, args, section[k], section[k + 1]);
        for (int i = 0; i < p->launches.n; i++) {
            const sk_launch_plan *l = &p->launches.v[i];
            if (l->by && l->at >= s.from && l->at < s.to) open_launch(a, &s, l, fused, gone);
        }
        sk_arena_end(&tmp);
    }
}
