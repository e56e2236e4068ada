/* foreign.c - collectives on memory that lies in no heap.
 *
 * What is the same everywhere goes through in pieces of the room's size.  What is
 * cut into parts goes through in pieces of as many elements of each part: member
 * i's piece comes from, or goes to, its own part; a shorter part fills up with
 * elements that nobody reads. */
#include "comm/foreign.h"
#include "comm/endpoint.h"

enum { HEAD = 256 }; /* the call, at the start of the room */
_Static_assert(sizeof(sk_coll_call) + sizeof(sk_seg) <= HEAD, "it has one segment");

typedef struct piece {
    int64_t at, n;    /* elements of the whole, or of every part */
    int64_t src, dst; /* where they go through the heap */
} piece;

static sk_status run(sk_comm *c, const sk_foreign *f, int64_t n, int64_t src, int64_t dst)
{
    sk_coll_call *call = (sk_coll_call *)(void *)(c->base + f->room);
    *call = (sk_coll_call){.id = 0x666f72656967 + n, /* pieces differ in length only */
                           .kind = f->kind,
                           .reduce = f->reduce,
                           .type = f->type,
                           .group = f->group,
                           .n_segs = 1,
                           .algorithm = -1,
                           .root = f->root};
    call->segs[0] = (sk_seg){.src = src, .dst = dst, .outer = 1, .n = n, .inner = 1};
    SK_TRY(sk_comm_start(c, call));
    return sk_comm_wait(c, call);
}

static sk_status whole(sk_comm *c, const sk_foreign *f, const sk_group *g)
{
    int64_t size = (int64_t)sk_dtype_size(f->type), most = (f->room_bytes - HEAD) / size;
    bool gives = f->kind != SK_BROADCAST || g->me == f->root;
    bool gets = f->kind != SK_REDUCE || g->me == f->root;
    char *through = c->base + f->room + HEAD;
    for (int64_t at = 0; at < f->n; at += most) {
        int64_t n = f->n - at < most ? f->n - at : most, bytes = n * size;
        if (gives) memcpy(through, (const char *)f->src + at * size, (size_t)bytes);
        SK_TRY(run(c, f, n, f->room + HEAD, f->room + HEAD));
        if (gets) memcpy((char *)f->dst + at * size, through, (size_t)bytes);
    }
    return SK_OK;
}

/* Elements of member i's part that piece p has. */
static int64_t in_part(const sk_foreign *f, const sk_group *g, int i, const piece *p)
{
    int64_t left = sk_even_part(f->n, i, g->n) - p->at;
    return left < 0 ? 0 : left < p->n ? left : p->n;
}

/* The whole on one side of the heap, with member i's elements behind those of i - 1. */
static void move_whole(sk_comm *c, const sk_foreign *f, const sk_group *g, const piece *p, bool in)
{
    int64_t size = (int64_t)sk_dtype_size(f->type);
    for (int i = 0; i < g->n; i++) {
        char *here = c->base + (in ? p->src : p->dst) + i * p->n * size;
        int64_t there = (sk_even_at(f->n, i, g->n) + p->at) * size;
        size_t bytes = (size_t)(in_part(f, g, i, p) * size);
        if (in) memcpy(here, (const char *)f->src + there, bytes);
        else memcpy((char *)f->dst + there, here, bytes);
    }
}

static void move_part(sk_comm *c, const sk_foreign *f, const sk_group *g, const piece *p, bool in)
{
    int64_t size = (int64_t)sk_dtype_size(f->type);
    size_t bytes = (size_t)(in_part(f, g, g->me, p) * size);
    if (in) memcpy(c->base + p->src, (const char *)f->src + p->at * size, bytes);
    else memcpy((char *)f->dst + p->at * size, c->base + p->dst, bytes);
}

static sk_status parts(sk_comm *c, const sk_foreign *f, const sk_group *g)
{
    int64_t size = (int64_t)sk_dtype_size(f->type), longest = (f->n + g->n - 1) / g->n;
    int64_t most = (f->room_bytes - HEAD) / size / (g->n + 1);
    bool gather = f->kind == SK_ALLGATHER;
    for (piece p = {0}; p.at < longest; p.at += p.n) {
        p.n = longest - p.at < most ? longest - p.at : most;
        p.src = f->room + HEAD;
        p.dst = p.src + (gather ? 1 : g->n) * p.n * size;
        if (gather) move_part(c, f, g, &p, true);
        else move_whole(c, f, g, &p, true);
        SK_TRY(run(c, f, p.n * g->n, p.src, p.dst));
        if (gather) move_whole(c, f, g, &p, false);
        else move_part(c, f, g, &p, false);
    }
    return SK_OK;
}

sk_status sk_comm_foreign(sk_comm *c, const sk_foreign *f)
{
    bool flat = f->kind == SK_ALLREDUCE || f->kind == SK_BROADCAST || f->kind == SK_REDUCE;
    if (f->group < 0 || f->group >= c->n_groups || c->groups[f->group].group.me < 0 || f->n < 0 ||
        f->room_bytes < SK_FOREIGN_LEAST || !sk_in_heap(c, f->room, f->room_bytes, 1) ||
        f->room % 64 || (!flat && f->kind != SK_REDUCE_SCATTER && f->kind != SK_ALLGATHER))
        return sk_fail(SK_EBUG,
                       "foreign collective: kind %d on group %d through %lld bytes at %lld of the "
                       "heap; at least %d on a line of 64 are needed",
                       (int)f->kind, f->group, (long long)f->room_bytes, (long long)f->room,
                       SK_FOREIGN_LEAST);
    const sk_group *g = &c->groups[f->group].group;
    return flat ? whole(c, f, g) : parts(c, f, g);
}
