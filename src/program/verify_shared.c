/* verify_shared.c - P9: weights that several ranks share in one memory.
 *
 * A program does not show what other ranks do to shared weights, so the order is proved from calls
 * alone.  A call over the shard axis or over all ranks ends after all its members have entered it.
 * So a rank may write its shard after a call that it entered after its last read: the others
 * entered it after theirs.  And it may read again after such a call that it entered after its last
 * write.  That holds for each program by itself; P1 says that all make the same calls. */
#include "program/class_program.h"
#include "program/acts.h"
#include "base/reduction_blocks.h"

#include <inttypes.h>
#include <string.h>

typedef struct watch {
    const sk_program *p;
    int read;     /* the newest instruction that reads shared weights */
    bool met;     /* a call that began after it has ended */
    int *started; /* by call */
    int *written; /* by buffer: 1 + the newest instruction that wrote it; 0: gathered since */
} watch;

/* The shared buffer that this one is or is a part of, or -1. */
static int common_of(const sk_program *p, int buf)
{
    while (buf >= 0 && p->bufs.v[buf].within >= 0) buf = p->bufs.v[buf].within;
    return buf >= 0 && p->bufs.v[buf].common ? buf : -1;
}

static sk_status wrong(const sk_program *p, int pc, int buf, const char *what)
{
    return sk_fail(SK_EBUG, "P9: rank %d: instruction %d (%s) %s '%s', which ranks have in common",
                   p->rank, pc, sk_act_row_of(&p->insts.v[pc])->name, what, p->bufs.v[buf].name);
}

/* --- offsets --- */

static sk_status placed(const sk_program *p)
{
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->within >= 0 || !b->bytes || b->placement || (b->first < 0 && !b->keep)) continue;
        bool good = b->common ? b->kind == SK_WEIGHTS && b->offset + b->bytes <= p->shared_bytes
                              : b->offset >= p->shared_bytes;
        if (!good)
            return sk_fail(SK_EBUG,
                           "P9: rank %d: '%s' at %" PRId64 "+%" PRId64 " lies on the wrong side of "
                           "%" PRId64 ", where common weights end",
                           p->rank, b->name, b->offset, b->bytes, p->shared_bytes);
    }
    for (int i = 0; i < p->calls.n; i++)
        if (p->calls.v[i].table_at < p->shared_bytes)
            return sk_fail(SK_EBUG, "P9: rank %d: the table of call %d lies in common weights",
                           p->rank, i);
    return SK_OK;
}

/* Is the shard to update this rank's part of dim 0, which no other member of the shard axis has? */
static bool is_my_shard(const sk_program *p, const sk_param_plan *q)
{
    const sk_group *g = &p->groups[p->layout.shard_axis];
    const sk_buffer *whole = &p->bufs.v[q->stored], *piece = &p->bufs.v[q->shard];
    sk_extent box = whole->box;
    int64_t rows = box.size[0], row = rows ? whole->bytes / rows : 0, from, to;
    sk_cut(rows, g->me, g->n, &from, &to);
    if (p->layout.canonical) {
        sk_tree_part(&box.cells[0][0], &box.cells[0][1], g->me, g->n);
        from = box.full[0] * box.cells[0][0] / box.cells[0][2] - box.at[0];
        to = box.full[0] * box.cells[0][1] / box.cells[0][2] - box.at[0];
    }
    return q->shard != q->stored && common_of(p, q->shard) == q->stored &&
           piece->offset == whole->offset + from * row && piece->bytes == (to - from) * row;
}

/* --- order --- */

static sk_status see_read(watch *w, int pc, int buf)
{
    int c = common_of(w->p, buf);
    if (c < 0) return SK_OK;
    if (w->written[c]) return wrong(w->p, pc, c, "reads, before all have met after its update,");
    w->read = pc;
    w->met = false;
    return SK_OK;
}

static sk_status see_write(watch *w, int pc, int o)
{
    const sk_inst *in = &w->p->insts.v[pc];
    int c = common_of(w->p, in->out[o]);
    if (c < 0) return SK_OK;
    const sk_param_plan *q = in->act == SK_DO_UPDATE ? &w->p->params.v[in->param] : NULL;
    if (!q || o || in->out[0] != q->shard || !is_my_shard(w->p, q))
        return wrong(w->p, pc, c, "writes more than its shard of");
    if (!w->met) return wrong(w->p, pc, c, "writes, while others may read it,");
    w->written[c] = pc + 1;
    return SK_OK;
}

static sk_status see_start(watch *w, int pc)
{
    const sk_program *p = w->p;
    const sk_call_plan *c = &p->calls.v[p->insts.v[pc].call];
    w->started[p->insts.v[pc].call] = pc;
    for (int s = 0; s < c->n_segs; s++) {
        int src = common_of(p, c->segs[s].src), dst = common_of(p, c->segs[s].dst);
        if (!c->common) SK_TRY(see_read(w, pc, c->segs[s].src));
        bool meets = c->kind == SK_ALLGATHER && c->group == p->layout.shard_axis &&
                     c->algorithm == SK_BUILTIN && dst >= 0 && src == dst;
        if (c->common ? !meets : dst >= 0)
            return wrong(p, pc, c->segs[s].dst,
                         c->common ? "meets over, but does not gather in place," : "writes over");
    }
    return SK_OK;
}

/* Does its end imply that all ranks that share the weights have entered it? */
static bool gathers_all(const sk_program *p, const sk_call_plan *c)
{
    return (c->group == p->layout.shard_axis || c->group == p->world) &&
           (c->kind == SK_ALLREDUCE || c->kind == SK_ALLGATHER || c->kind == SK_REDUCE_SCATTER);
}

static void see_wait(watch *w, int pc)
{
    const sk_program *p = w->p;
    const sk_call_plan *c = &p->calls.v[p->insts.v[pc].call];
    int from = w->started[p->insts.v[pc].call];
    if (!gathers_all(p, c)) return;
    w->met |= from > w->read;
    for (int s = 0; c->common && s < c->n_segs; s++) {
        int *written = &w->written[common_of(p, c->segs[s].dst)];
        if (*written <= from) *written = 0;
    }
}

static sk_status see(watch *w, int pc)
{
    const sk_inst *in = &w->p->insts.v[pc];
    for (int i = 0; i < SK_MAX_OPERANDS; i++) SK_TRY(see_read(w, pc, in->in[i]));
    for (int o = 0; o < SK_MAX_OUT; o++) SK_TRY(see_write(w, pc, o));
    if (in->act == SK_DO_START) SK_TRY(see_start(w, pc));
    if (in->act == SK_DO_WAIT) see_wait(w, pc);
    return SK_OK;
}

static sk_status section(watch *w, int from, int to)
{
    w->read = from - 1;
    w->met = false;
    for (int pc = from; pc < to; pc++) SK_TRY(see(w, pc));
    for (int i = 0; i < w->p->bufs.n; i++)
        if (w->written[i]) return wrong(w->p, w->written[i] - 1, i, "writes, and nobody gathers,");
    return SK_OK;
}

sk_status sk_verify_shared(const sk_program *p)
{
    sk_arena tmp = {0};
    watch w = {.p = p};
    w.started = sk_many(&tmp, int, p->calls.n + 1);
    w.written = sk_many(&tmp, int, p->bufs.n + 1);
    memset(w.started, -1, sizeof *w.started * (size_t)p->calls.n);
    sk_status st = placed(p);
    if (!st) st = section(&w, 0, p->n_train);
    if (!st) st = section(&w, p->n_train, p->insts.n);
    sk_arena_end(&tmp);
    return st;
}

/* --- two ranks --- */

sk_status sk_verify_pair(const sk_program *p, const sk_program *owner)
{
    bool same = p->shared_bytes == owner->shared_bytes && owner->shares_with == owner->rank &&
                p->params.n == owner->params.n &&
                p->groups[p->layout.shard_axis].ranks[0] == owner->rank;
    for (int i = 0; same && i < p->params.n; i++) {
        const sk_buffer *a = &p->bufs.v[p->params.v[i].stored],
                        *b = &owner->bufs.v[owner->params.v[i].stored];
        same = a->common == b->common && !strcmp(a->name, b->name) &&
               (!a->common || (!memcmp(&a->box, &b->box, sizeof a->box) && a->offset == b->offset));
    }
    if (same) return SK_OK;
    return sk_fail(SK_EBUG,
                   "P9: the weights of rank %d do not lie as those of rank %d, with which "
                   "it has them in one memory",
                   p->rank, owner->rank);
}

sk_status sk_verify_shared_all(const sk_program *const *programs, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        int owner = sk_program_weight_owner(programs[r], r);
        if (owner < 0 || owner >= n_ranks)
            return sk_fail(SK_EBUG, "P9: rank %d has weights of rank %d of %d", r, owner, n_ranks);
        bool own = programs[r]->rank == r && programs[owner]->rank == owner;
        if (owner != r && own) SK_TRY(sk_verify_pair(programs[r], programs[owner]));
    }
    return SK_OK;
}
