/* memory.c - the offset of every buffer, planned before the first step.
 *
 * The heap is cut into one region a kind: weights, gradients, optimizer state, wire (sums and
 * tables of calls), activations, scratch.  Activations come last but for scratch because their
 * region ends with the transient buffers of every kind (gathered weights and whole gradients too:
 * they share its holes).  Transient buffers are placed in the order in which their lives begin,
 * each in the smallest hole that fits (a list of holes sorted by address; adjacent holes are
 * merged).  One pass is enough: the forward-backward shape of a step leaves few small holes.  For
 * buffers whose lives begin at the same instruction two orders are tried.  Buffers that take turns
 * (buffer_turns.c) share the memory of the largest of them.  An op that may work in
 * place takes over its operand's memory if the operand is not read later.
 *
 * Behind scratch is the host's memory: first a bounce buffer for transfers to and from the file,
 * then kept buffers of all kinds, then transient ones.  Offsets in the file are planned in the same
 * way, in whole pages.
 *
 * Weights that the ranks of a host share come first of all and fill whole pages, so that all heaps
 * can begin with the same pages (comm/heap_alias.c). */
#include "device/disk.h"
#include "kernel/kernel_launch.h"
#include "program/acts.h"
#include "program/class_program.h"
#include "program/holes.h"
#include "program/lowering.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* LARGE: from this size on shared weights are padded to a huge page, which costs 3 % at most. */
enum { ALIGN = SK_WORKSPACE_ALIGN };
enum { LINE = 64, PAGE = 4096, BOUNCE = SK_DISK_BOUNCE, HUGE = 2 << 20, LARGE = 64 << 20 };

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
static int64_t lines(int64_t bytes) { return round_up(bytes, LINE); }
int64_t sk_memory_lines(int64_t bytes) { return lines(bytes); }
static int64_t pages(int64_t bytes) { return round_up(bytes, bytes < LARGE ? PAGE : HUGE); }

static void live(sk_program *p, int buf, int pc)
{
    while (buf >= 0) {
        sk_buffer *b = &p->bufs.v[buf];
        if (b->first < 0) b->first = pc;
        b->last = pc;
        buf = b->within;
    }
}

typedef struct life {
    sk_program *p;
    int pc;
} life;

static void use(void *ctx, int *buf, unsigned how)
{
    const life *l = ctx;
    (void)how;
    live(l->p, *buf, l->pc);
}

static void lifetimes(sk_program *p)
{
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        sk_operands(p, in, use, &(life){p, pc});
        /* A GPU may fuse instructions across a LOAD: what is loaded must not overlap with their
         * buffers. */
        if (p->gpu && in->act == SK_DO_LOAD)
            p->bufs.v[in->out[0]].first = pc < p->n_train ? 0 : p->n_train;
    }
    if (p->logits >= 0) live(p, p->logits, p->insts.n - 1);
}

/* --- offsets --- */

static int64_t place_some(sk_program *p, sk_kind kind, bool common, int64_t at)
{
    for (int i = 0; i < p->bufs.n; i++) {
        sk_buffer *b = &p->bufs.v[i];
        if (!b->keep || b->within >= 0 || b->kind != kind || b->common != common || b->placement)
            continue;
        b->offset = at;
        at += lines(b->bytes);
    }
    return at;
}

/* The kept buffers of one kind, from `at` on; returns where they end. */
static int64_t place_kept(sk_program *p, sk_kind kind, int64_t at)
{
    p->kind_at[kind] = at;
    return place_some(p, kind, false, at);
}

/* Shared weights first, and nothing else on their pages. */
static int64_t place_weights(sk_program *p)
{
    int coord[SK_MAX_AXES];
    p->shares_with = p->rank;
    p->shared_bytes = pages(place_some(p, SK_WEIGHTS, true, 0));
    if (p->shared_bytes) {
        memcpy(coord, p->coord, sizeof coord);
        coord[p->layout.shard_axis] = 0;
        p->shares_with = sk_mesh_rank(&p->layout.mesh, coord);
    }
    int64_t end = place_kept(p, SK_WEIGHTS, p->shared_bytes);
    if (p->shares_with == p->rank) p->kind_at[SK_WEIGHTS] = 0;
    return end;
}

bool sk_memory_may_take(const sk_program *p, const sk_inst *in, int r)
{
    unsigned may = in->act == SK_DO_OP ? in->node->op->reuse : 0;
    if (!(may >> r & 1) || in->out[0] < 0 || in->add & 1) return false;
    const sk_buffer *x = &p->bufs.v[in->in[r]], *y = &p->bufs.v[in->out[0]];
    if (x->keep || x->within >= 0 || y->keep || y->within >= 0) return false;
    for (int i = 0; i < SK_MAX_OPERANDS; i++)
        if (i != r && in->in[i] == in->in[r]) return false;
    return lines(x->bytes) == lines(y->bytes);
}

/* Input that is read here for the last time and whose memory output 0 takes over, or -1. */
static int dying_input(const sk_program *p, const sk_inst *in, int pc)
{
    if (in->act != SK_DO_OP || !in->node->op->reuse || in->out[0] < 0) return -1;
    if (p->bufs.v[in->out[0]].first != pc) return -1;
    for (int r = 0; r < in->node->n_in; r++)
        if (sk_memory_may_take(p, in, r) && p->bufs.v[in->in[r]].last == pc) return in->in[r];
    return -1;
}

/* --- turns --- */

static bool is_transient(const sk_buffer *b, sk_placement placement)
{
    return !b->keep && b->within < 0 && b->first >= 0 && b->placement == placement;
}

typedef struct turn_list { /* buffers that take turns, the largest first */
    const sk_program *p;
    const sk_step_due *due;
    int *v, n;
} turn_list;

static int by_size(const void *a, const void *b, void *of)
{
    const sk_program *p = of;
    int x = *(const int *)a, y = *(const int *)b;
    int64_t m = p->bufs.v[x].bytes, n = p->bufs.v[y].bytes;
    return m != n ? (m < n) - (m > n) : (x > y) - (x < y);
}

/* With the k-th of the list share, of every other turn, the largest that is left; it lives as long
 * as they do. */
static void share(sk_program *p, const turn_list *t, int k, int *lead, sk_arena *a)
{
    int leader = t->v[k], n = 0, *with = sk_many(a, int, t->n);
    with[n++] = leader;
    lead[leader] = leader;
    for (k++; k < t->n; k++) {
        int i = t->v[k], m = 0;
        sk_buffer *to = &p->bufs.v[leader];
        while (m < n && sk_turns_differ(&t->due[i], &t->due[with[m]])) m++;
        if (lead[i] >= 0 || m < n) continue;
        with[n++] = i;
        lead[i] = leader;
        if (p->bufs.v[i].first < to->first) to->first = p->bufs.v[i].first;
        if (p->bufs.v[i].last > to->last) to->last = p->bufs.v[i].last;
    }
}

/* By buffer: the one whose memory it has, itself too; -1: nobody shares with it. */
static int *find_leaders(sk_program *p, sk_placement placement, sk_arena *a)
{
    turn_list t = {p, sk_buffer_turns(p, a), sk_many(a, int, p->bufs.n + 1), 0};
    int *lead = sk_many(a, int, p->bufs.n + 1);
    memset(lead, -1, sizeof *lead * (size_t)p->bufs.n);
    for (int i = 0; i < p->bufs.n; i++)
        if (t.due[i].steps > 1 && is_transient(&p->bufs.v[i], placement)) t.v[t.n++] = i;
    qsort_r(t.v, (size_t)t.n, sizeof *t.v, by_size, p);
    for (int k = 0; k < t.n; k++) {
        sk_mark m = sk_arena_mark(a);
        if (lead[t.v[k]] < 0) share(p, &t, k, lead, a);
        sk_arena_back(a, m);
    }
    return lead;
}

typedef struct events {
    int *first, *next_first, *last, *next_last; /* linked lists of buffers by instruction */
} events;

/* In which order are buffers placed whose lives begin at the same instruction? */
typedef enum begin_order { AS_NUMBERED, LARGEST_FIRST } begin_order;

static void index_events(const sk_program *p, sk_placement placement, const int *lead,
                         begin_order by, sk_arena *a, events *ev)
{
    ev->first = sk_many(a, int, p->insts.n + 1);
    ev->last = sk_many(a, int, p->insts.n + 1);
    ev->next_first = sk_many(a, int, p->bufs.n + 1);
    ev->next_last = sk_many(a, int, p->bufs.n + 1);
    memset(ev->first, -1, sizeof(int) * (size_t)(p->insts.n + 1));
    memset(ev->last, -1, sizeof(int) * (size_t)(p->insts.n + 1));
    for (int i = p->bufs.n - 1; i >= 0; i--) {
        const sk_buffer *b = &p->bufs.v[i];
        if (!is_transient(b, placement) || (lead[i] >= 0 && lead[i] != i)) continue;
        int *at = &ev->first[b->first];
        while (by == LARGEST_FIRST && *at >= 0 && p->bufs.v[*at].bytes > b->bytes)
            at = &ev->next_first[*at];
        ev->next_first[i] = *at;
        *at = i;
        ev->next_last[i] = ev->last[b->last];
        ev->last[b->last] = i;
    }
}

/* Bytes that a buffer takes in its memory. */
static int64_t taken_by(const sk_buffer *b)
{
    return b->placement == SK_FILE ? round_up(b->bytes, SK_FILE_PAGE) : lines(b->bytes);
}

static int64_t place_by(sk_program *p, sk_placement placement, const int *lead, int64_t base,
                        begin_order by)
{
    sk_arena tmp = {0};
    events ev;
    sk_holes h = {.arena = &tmp};
    char *taken = sk_many(&tmp, char, p->bufs.n + 1);
    index_events(p, placement, lead, by, &tmp, &ev);
    for (int pc = 0; pc < p->insts.n; pc++) {
        int heir = dying_input(p, &p->insts.v[pc], pc), out = p->insts.v[pc].out[0];
        for (int i = ev.first[pc]; i >= 0; i = ev.next_first[i]) {
            if (heir >= 0 && i == out) {
                p->bufs.v[i].offset = p->bufs.v[heir].offset;
                taken[heir] = 1;
            } else p->bufs.v[i].offset = base + sk_holes_take(&h, taken_by(&p->bufs.v[i]));
        }
        for (int i = ev.last[pc]; i >= 0; i = ev.next_last[i])
            if (!taken[i]) sk_holes_give(&h, p->bufs.v[i].offset - base, taken_by(&p->bufs.v[i]));
    }
    int64_t top = h.top;
    sk_arena_end(&tmp);
    return top;
}

/* No order is the best for all programs: the one that needs least memory is taken. */
static int64_t place_transient(sk_program *p, sk_placement placement, int64_t base)
{
    sk_arena tmp = {0};
    if (p->transient_bytes && placement == SK_DEVICE) return p->transient_bytes;
    int *lead = find_leaders(p, placement, &tmp);
    int64_t best = place_by(p, placement, lead, base, AS_NUMBERED);
    int64_t other = place_by(p, placement, lead, base, LARGEST_FIRST);
    if (other >= best) (void)place_by(p, placement, lead, base, AS_NUMBERED);
    for (int i = 0; i < p->bufs.n; i++)
        if (lead[i] >= 0) {
            p->bufs.v[i].offset = p->bufs.v[lead[i]].offset;
            p->bufs.v[i].joins = lead[i] != i;
        }
    sk_arena_end(&tmp);
    return other < best ? other : best;
}

static void place_parts(sk_program *p)
{
    for (int i = 0; i < p->bufs.n; i++)
        if (p->bufs.v[i].within >= 0)
            p->bufs.v[i].offset = p->bufs.v[p->bufs.v[i].within].offset + p->bufs.v[i].part_at;
}

int64_t sk_table_bytes(const sk_call_plan *c)
{
    return lines((int64_t)(sizeof(sk_coll_call) + sizeof(sk_seg) * (size_t)c->n_segs));
}

static int64_t place_tables(sk_program *p, int64_t at)
{
    for (int i = 0; i < p->calls.n; i++) {
        p->calls.v[i].table_at = at;
        at += sk_table_bytes(&p->calls.v[i]);
    }
    return at + p->more_tables;
}

static int64_t larger(int64_t most, size_t need)
{
    int64_t n = lines((int64_t)need);
    return n > most ? n : most;
}

/* Every thread has scratch for the op; the threads of a rank share one area for operands converted
 * to f32. */
static void scratch_need(sk_program *p)
{
    for (int i = 0; i < p->insts.n; i++) {
        const sk_inst *in = &p->insts.v[i];
        if (in->act != SK_DO_OP) continue;
        sk_args args;
        sk_inst_args(p, in, NULL, &args);
        args.of = p->threads;
        size_t all = sk_op_scratch(in->node->op, &args), stage = sk_op_stage(&args);
        p->stage_bytes = larger(p->stage_bytes, stage);
        p->scratch_per_thread = larger(p->scratch_per_thread, all - stage);
    }
}

static int64_t tables(const sk_program *p)
{
    int64_t n = SK_STEP_SCALARS_BYTES + (int64_t)SK_NORM_BYTES * p->params.n;
    for (int i = 0; i < p->insts.n; i++)
        n += p->insts.v[i].act == SK_DO_UPDATE || p->insts.v[i].act == SK_DO_AHEAD ? SK_UPDATE_BYTES
                                                                                   : 0;
    return n;
}

int64_t sk_scratch_bytes(const sk_program *p)
{
    if (!p->gpu) return p->stage_bytes + p->scratch_per_thread * p->threads;
    return sk_workspace_at(p) + SK_WORKSPACE - p->kind_at[SK_SCRATCH];
}

int64_t sk_workspace_at(const sk_program *p)
{
    return round_up(p->kind_at[SK_SCRATCH] + tables(p), ALIGN);
}

/* All buffers of one of the other memories, from `at` on; returns where they end. */
static int64_t place_away(sk_program *p, sk_placement placement, int64_t at)
{
    for (int i = 0; i < p->bufs.n; i++) {
        sk_buffer *b = &p->bufs.v[i];
        if (!b->keep || b->within >= 0 || b->placement != placement) continue;
        b->offset = at;
        at += taken_by(b);
    }
    return at + place_transient(p, placement, at);
}

static int64_t place_host(sk_program *p, int64_t at)
{
    if (!sk_layout_offloads(&p->layout)) return at;
    p->bounce_bytes = p->file_bytes ? BOUNCE : 0;
    p->kind_at[SK_HOSTED] = at = round_up(at, p->file_bytes ? PAGE : LINE);
    return place_away(p, SK_HOST, at + p->bounce_bytes);
}

void sk_plan_memory(sk_program *p)
{
    lifetimes(p);
    p->file_bytes = place_away(p, SK_FILE, 0);
    int64_t at = place_kept(p, SK_GRADS, place_weights(p));
    at = place_kept(p, SK_OPTIM, at);
    at = place_tables(p, place_kept(p, SK_WIRE, at));
    at = place_kept(p, SK_ACTS, at);
    at += place_transient(p, SK_DEVICE, at);
    place_parts(p);
    if (!p->gpu) scratch_need(p);
    p->kind_at[SK_SCRATCH] = at = p->gpu ? round_up(at, ALIGN) : at;
    p->kind_at[SK_HOSTED] = at += sk_scratch_bytes(p);
    p->heap_bytes = place_host(p, at);
    place_parts(p);
    p->own_bytes = p->heap_bytes - p->kind_at[SK_WEIGHTS];
    static const sk_kind order[] = {SK_WEIGHTS, SK_GRADS,   SK_OPTIM, SK_WIRE,
                                    SK_ACTS,    SK_SCRATCH, SK_HOSTED};
    for (int i = 0; i < SK_N_KINDS; i++) {
        int64_t end = i + 1 < SK_N_KINDS ? p->kind_at[order[i + 1]] : p->heap_bytes;
        p->kind_bytes[order[i]] = end - p->kind_at[order[i]];
    }
}

sk_heap_aliases sk_program_shared(sk_arena *a, const sk_program *const *programs, int n,
                                  int64_t *bytes)
{
    int *of = sk_many(a, int, n);
    int64_t *first = sk_many(a, int64_t, n), *ghost = sk_many(a, int64_t, n);
    for (int r = 0; r < n; r++) {
        bytes[r] = programs[r]->heap_bytes;
        of[r] = sk_program_weight_owner(programs[r], r);
        first[r] = programs[r]->shared_bytes;
        ghost[r] = programs[r]->gpu ? programs[r]->kind_at[SK_HOSTED] : 0;
    }
    return (sk_heap_aliases){of, first, ghost};
}
