/* relayout_moves.c - copies that bring what a run keeps from one layout to another.
 *
 * All kept boxes of the old programs are sorted by name, so that the holders of a tensor stand side
 * by side.  A box that is needed is covered by them in the order of preference: what a holder has
 * of it becomes a copy, the rest around it (at most two boxes per dim) is taken from the holders
 * after it.  So no element is copied twice, and one that nobody has is noticed. */
#include "program/relayout_moves.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

static int64_t lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

bool sk_moves_far(const sk_moves *m, int a, int b)
{
    return m->host_of && m->host_of[a] != m->host_of[b];
}

/* --- what is kept --- */

typedef struct item { /* a buffer that is kept from step to step */
    const sk_buffer *buf;
    int rank;
    bool owner; /* of the ranks that have the shard, the owner */
    bool parts; /* dim 0: terms of a sum */
    bool lacks; /* what no rank has is zeros */
} item;

typedef struct items {
    item *v;
    int n, cap;
} items;

static void add_item(sk_arena *a, items *to, const sk_program *p, int buf, bool owner)
{
    if (buf < 0 || !p->bufs.v[buf].bytes) return;
    *(item *)sk_push(a, to) = (item){&p->bufs.v[buf], p->rank, owner, false, false};
}

static void add_parts(sk_arena *a, items *to, const sk_program *p, int buf, bool owner)
{
    int n = to->n;
    add_item(a, to, p, buf, owner);
    if (to->n > n) to->v[n].parts = true;
}

static void add_zeros(sk_arena *a, items *to, const sk_program *p, int buf, bool owner)
{
    int n = to->n;
    add_item(a, to, p, buf, owner);
    if (to->n > n) to->v[n].lacks = true;
}

static void list_items(sk_arena *a, const sk_program *p, items *to)
{
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        add_item(a, to, p, sk_param_kept(q), q->writes);
        add_item(a, to, p, q->master, q->owner);
        add_item(a, to, p, q->ema, q->owner);
        add_item(a, to, p, q->anchor, q->owner);
        add_item(a, to, p, q->outer_momentum, q->owner);
        add_item(a, to, p, q->change_error, q->owner);
        add_parts(a, to, p, q->error, q->tells);
        add_zeros(a, to, p, q->factor, q->keeps_factor);
        add_item(a, to, p, q->scalars, q->lead);
        for (int s = 0; s < q->n_state; s++) add_item(a, to, p, q->state[s], q->owner);
        for (int s = 0; s < q->n_matrix_state; s++)
            add_item(a, to, p, q->matrix_state[s], q->keeps_matrix_state);
    }
    for (int i = 0; i < p->memories.n; i++) add_item(a, to, p, p->memories.v[i], true);
}

static int by_name(const void *x, const void *y)
{
    const item *a = x, *b = y;
    int c = strcmp(a->buf->name, b->buf->name);
    return c ? c : (a->rank > b->rank) - (a->rank < b->rank);
}

/* The first item whose name is not below. */
static int find(const items *l, const char *name)
{
    int low = 0, high = l->n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (strcmp(l->v[mid].buf->name, name) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* --- boxes --- */

typedef struct box {
    int64_t at[SK_MAX_DIM], size[SK_MAX_DIM];
} box;

static box box_of(const sk_extent *e)
{
    box b = {0};
    memcpy(b.at, e->at, sizeof b.at);
    memcpy(b.size, e->size, sizeof b.size);
    return b;
}

static int64_t volume(const box *b, int n)
{
    int64_t v = 1;
    for (int d = 0; d < n; d++) v *= b->size[d];
    return v;
}

static bool meet(const box *x, const sk_extent *y, int n, box *common)
{
    *common = *x;
    for (int d = 0; d < n; d++) {
        int64_t from = x->at[d] > y->at[d] ? x->at[d] : y->at[d];
        int64_t end_x = x->at[d] + x->size[d], end_y = y->at[d] + y->size[d];
        common->at[d] = from;
        common->size[d] = (end_x < end_y ? end_x : end_y) - from;
        if (common->size[d] <= 0) return false;
    }
    return true;
}

/* --- covering a box --- */

typedef struct cover {
    sk_arena *arena, *tmp; /* of the copies; of what is needed to find them */
    sk_moves *all;
    sk_move *move;
    int rank;
    const item *need;
    int64_t stage; /* where the needed box lies on the stage */
    const item **holders;
    int n_holders;
    int64_t missing; /* elements that nobody has */
} cover;

/* Strides of a dense shard in bytes, and the offset of the corner of a box in it. */
static int64_t corner(const sk_buffer *b, const box *at, int64_t step[SK_MAX_DIM])
{
    int64_t each = (int64_t)sk_dtype_size(b->type), first = 0;
    for (int d = b->box.n - 1; d >= 0; d--) {
        step[d] = each;
        first += (at->at[d] - b->box.at[d]) * each;
        each *= b->box.size[d];
    }
    return first;
}

/* Inner dims that are contiguous in both become one run. */
static void join(sk_move_copy *c, int64_t each)
{
    c->run = each;
    while (c->n && c->src_step[c->n - 1] == c->run && c->dst_step[c->n - 1] == c->run)
        c->run *= c->count[--c->n];
}

static void count_bytes(cover *k, int from, int64_t bytes)
{
    if (from == k->rank) k->move->own += bytes;
    else if (sk_moves_far(k->all, from, k->rank)) k->move->far += bytes;
    else k->move->near += bytes;
}

static void add_copy(cover *k, const item *holder, const box *common)
{
    const sk_buffer *src = holder->buf, *dst = k->need->buf;
    int64_t each = (int64_t)sk_dtype_size(dst->type);
    sk_move_copy *c = sk_push(k->arena, &k->move->copies);
    box to = *common;
    c->add = k->need->parts;
    if (c->add) to.at[0] = dst->box.at[0];
    c->from = holder->rank;
    c->n = dst->box.n;
    memcpy(c->count, common->size, sizeof c->count);
    c->src = src->offset + corner(src, common, c->src_step);
    c->dst = k->stage + corner(dst, &to, c->dst_step);
    join(c, each);
    count_bytes(k, holder->rank, volume(common, dst->box.n) * each);
}

/* Takes `need` from the holders, from number `at` on. */
static void cover_box(cover *k, const box *need, int at)
{
    int n = k->need->buf->box.n;
    box common, rest = *need;
    while (at < k->n_holders && !meet(need, &k->holders[at]->buf->box, n, &common)) at++;
    if (at == k->n_holders) {
        k->missing += volume(need, n);
        return;
    }
    add_copy(k, k->holders[at], &common);
    for (int d = 0; d < n; d++) {
        box side = rest;
        int64_t end = rest.at[d] + rest.size[d], stop = common.at[d] + common.size[d];
        side.size[d] = common.at[d] - rest.at[d];
        if (side.size[d]) cover_box(k, &side, at + 1);
        side.at[d] = stop;
        side.size[d] = end - stop;
        if (side.size[d]) cover_box(k, &side, at + 1);
        rest.at[d] = common.at[d];
        rest.size[d] = common.size[d];
    }
}

/* The preference for a holder: 0 is best. */
static int distance(const cover *k, const item *h)
{
    if (h->rank == k->rank) return 0;
    if (!sk_moves_far(k->all, h->rank, k->rank)) return h->owner ? 1 : 2;
    return h->owner ? 3 : 4;
}

static void list_holders(cover *k, const items *old)
{
    const char *name = k->need->buf->name;
    int from = find(old, name), to = from;
    while (to < old->n && !strcmp(old->v[to].buf->name, name)) to++;
    k->holders = sk_many(k->tmp, const item *, to - from);
    k->n_holders = 0;
    for (int far = 0; far <= 4; far++)
        for (int i = from; i < to; i++)
            if (distance(k, &old->v[i]) == far) k->holders[k->n_holders++] = &old->v[i];
}

/* Two programs may be of two models. */
static sk_status same_tensor(const cover *k)
{
    const sk_buffer *b = k->need->buf;
    for (int i = 0; i < k->n_holders; i++) {
        const sk_buffer *o = k->holders[i]->buf;
        bool same = o->type == b->type && o->q8 == b->q8 && o->box.n == b->box.n;
        for (int d = k->need->parts; same && d < b->box.n; d++)
            same = o->box.full[d] == b->box.full[d];
        if (!same)
            return sk_fail(SK_EBUG, "move: '%s' has another type or other sizes on rank %d before",
                           b->name, k->holders[i]->rank);
    }
    return SK_OK;
}

/* All old terms that are added to this one; none if there was no error feedback before. */
static void cover_parts(cover *k, box need)
{
    const sk_extent *now = &k->need->buf->box;
    int64_t n = k->n_holders ? k->holders[0]->buf->box.full[0] : 0;
    for (int64_t part = 0; part < n; part++) {
        need.at[0] = part;
        if (part * now->full[0] / n == now->at[0]) cover_box(k, &need, 0);
    }
}

/* Blocks of 8 bits have scales, and are only moved together: from a rank with the same shard. */
static sk_status cover_blocks(cover *k)
{
    const sk_buffer *dst = k->need->buf;
    for (int i = 0; i < k->n_holders; i++) {
        const sk_buffer *src = k->holders[i]->buf;
        box a = box_of(&src->box), b = box_of(&dst->box);
        if (memcmp(&a, &b, sizeof a)) continue;
        sk_move_copy *c = sk_push(k->arena, &k->move->copies);
        *c = (sk_move_copy){
            .from = k->holders[i]->rank, .src = src->offset, .dst = k->stage, .run = dst->bytes};
        count_bytes(k, c->from, dst->bytes);
        return SK_OK;
    }
    return sk_fail(
        SK_ECONF,
        "optim.state is int8: train.relayout cannot cut the blocks of '%s' anew; stop and "
        "resume with the other layout, or take optim.state=bf16",
        dst->name);
}

static sk_status cover_item(cover *k, const items *old)
{
    list_holders(k, old);
    SK_TRY(same_tensor(k));
    if (k->need->buf->q8) return cover_blocks(k);
    box need = box_of(&k->need->buf->box);
    k->missing = 0;
    if (k->need->parts) cover_parts(k, need);
    else cover_box(k, &need, 0);
    if (!k->missing || k->need->lacks) return SK_OK;
    return sk_fail(SK_EBUG, "move: of '%s' rank %d needs %lld elements, %lld of them no rank has",
                   k->need->buf->name, k->rank, (long long)volume(&need, k->need->buf->box.n),
                   (long long)k->missing);
}

/* --- all ranks --- */

static int64_t heap_of(const sk_program *const *p, int rank) { return lines(p[rank]->heap_bytes); }

static sk_status make_one(sk_arena *a, sk_arena *tmp, const items *old, const sk_program *p,
                          int64_t at, sk_moves *all)
{
    items mine = {0};
    cover k = {.arena = a, .tmp = tmp, .all = all, .move = &all->v[p->rank], .rank = p->rank};
    list_items(tmp, p, &mine);
    k.move->stage_at = k.stage = at;
    for (int i = 0; i < mine.n; i++) {
        const sk_buffer *b = mine.v[i].buf;
        k.need = &mine.v[i];
        SK_TRY(cover_item(&k, old));
        *(sk_move_spot *)sk_push(a, &k.move->spots) =
            (sk_move_spot){k.stage, b->offset, b->bytes, k.need->parts || k.need->lacks};
        k.stage += lines(b->bytes);
    }
    k.move->out_at = k.stage;
    return SK_OK;
}

/* Space for messages: outgoing ones all at once, incoming ones one after the other. */
static void place_messages(sk_moves *m)
{
    for (int r = 0; r < m->n_ranks; r++) {
        int64_t out = 0, in = 0;
        for (int q = 0; q < m->n_ranks && m->host_of; q++) {
            if (!sk_moves_far(m, r, q)) continue;
            int64_t comes = lines(sk_move_bytes(m, q, r));
            out += lines(sk_move_bytes(m, r, q));
            if (comes > in) in = comes;
        }
        m->v[r].in_at = m->v[r].out_at + out;
        m->v[r].end = m->v[r].in_at + in;
    }
}

sk_status sk_moves_make(sk_arena *a, const sk_program *const *from, const sk_program *const *to,
                        int n_ranks, const int *host_of, sk_moves *out)
{
    sk_arena tmp = {0};
    items old = {0};
    sk_status st = SK_OK;
    *out = (sk_moves){n_ranks, host_of, sk_many(a, sk_move, n_ranks)};
    for (int r = 0; r < n_ranks; r++) list_items(&tmp, from[r], &old);
    if (old.n) qsort(old.v, (size_t)old.n, sizeof *old.v, by_name);
    for (int r = 0; r < n_ranks && !st; r++) {
        int64_t x = heap_of(from, r), y = heap_of(to, r);
        st = make_one(a, &tmp, &old, to[r], x > y ? x : y, out);
    }
    sk_arena_end(&tmp);
    if (st) return sk_trail(st, SK_HERE);
    place_messages(out);
    return SK_OK;
}

/* --- moving --- */

static void add_run(char *to, const char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += (int64_t)sizeof(float)) {
        float x, y;
        memcpy(&x, to + i, sizeof x);
        memcpy(&y, from + i, sizeof y);
        x += y;
        memcpy(to + i, &x, sizeof x);
    }
}

/* Every run of a rectangle, from dim d on. */
static void copy_runs(const sk_move_copy *c, int d, char *to, const int64_t *to_step,
                      const char *from, const int64_t *from_step, bool add)
{
    if (d == c->n || d == SK_MAX_DIM) {
        if (add) add_run(to, from, c->run);
        else memcpy(to, from, (size_t)c->run);
        return;
    }
    for (int64_t i = 0; i < c->count[d]; i++)
        copy_runs(c, d + 1, to + i * to_step[d], to_step, from + i * from_step[d], from_step, add);
}

/* Strides of the same rectangle when it is dense; returns its bytes. */
static int64_t dense(const sk_move_copy *c, int64_t step[SK_MAX_DIM])
{
    int64_t each = c->run;
    for (int d = c->n - 1; d >= 0; d--) {
        step[d] = each;
        each *= c->count[d];
    }
    return each;
}

void sk_move_gather(const sk_moves *m, int rank, char *const *heaps)
{
    const sk_move *v = &m->v[rank];
    for (int i = 0; i < v->spots.n; i++)
        if (v->spots.v[i].zero)
            memset(heaps[rank] + v->spots.v[i].from, 0, (size_t)v->spots.v[i].bytes);
    for (int i = 0; i < v->copies.n; i++) {
        const sk_move_copy *c = &v->copies.v[i];
        if (sk_moves_far(m, c->from, rank)) continue;
        copy_runs(c, 0, heaps[rank] + c->dst, c->dst_step, heaps[c->from] + c->src, c->src_step,
                  c->add);
    }
}

int64_t sk_move_bytes(const sk_moves *m, int from, int to)
{
    const sk_move *v = &m->v[to];
    int64_t step[SK_MAX_DIM], sum = 0;
    for (int i = 0; i < v->copies.n; i++)
        if (v->copies.v[i].from == from) sum += dense(&v->copies.v[i], step);
    return sum;
}

void sk_move_pack(const sk_moves *m, int from, int to, const char *heap, char *message)
{
    const sk_move *v = &m->v[to];
    int64_t step[SK_MAX_DIM];
    for (int i = 0; i < v->copies.n; i++) {
        const sk_move_copy *c = &v->copies.v[i];
        if (c->from != from) continue;
        int64_t bytes = dense(c, step);
        copy_runs(c, 0, message, step, heap + c->src, c->src_step, false);
        message += bytes;
    }
}

void sk_move_unpack(const sk_moves *m, int from, int to, char *heap, const char *message)
{
    const sk_move *v = &m->v[to];
    int64_t step[SK_MAX_DIM];
    for (int i = 0; i < v->copies.n; i++) {
        const sk_move_copy *c = &v->copies.v[i];
        if (c->from != from) continue;
        int64_t bytes = dense(c, step);
        copy_runs(c, 0, heap + c->dst, c->dst_step, message, step, c->add);
        message += bytes;
    }
}

void sk_move_place(const sk_moves *m, int rank, char *heap)
{
    const sk_move *v = &m->v[rank];
    for (int i = 0; i < v->spots.n; i++)
        memcpy(heap + v->spots.v[i].to, heap + v->spots.v[i].from, (size_t)v->spots.v[i].bytes);
}
