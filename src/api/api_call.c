/* api_call.c - collectives and messages of a communicator. */
#include "api/communicator.h"
#include "base/clock.h"
#include "coll/choose.h"
#include "coll/segment.h"
#include "coll/execute.h"
#include "coll/sum_kernels.h"

#include <math.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(sk_coll_call) + sizeof(sk_seg) <= SK_CALL_BYTES, "a call has one segment");
_Static_assert((int)SKEIN_ALL_REDUCE == SK_ALLREDUCE && (int)SKEIN_REDUCE == SK_REDUCE &&
                   (int)SKEIN_REDUCE_SCATTER == SK_REDUCE_SCATTER &&
                   (int)SKEIN_ALL_GATHER == SK_ALLGATHER && (int)SKEIN_BROADCAST == SK_BROADCAST &&
                   (int)SKEIN_ALL_TO_ALL == SK_ALLTOALL && (int)SKEIN_SCAN == SK_SCAN &&
                   (int)SKEIN_MEAN == SK_MEAN && (int)SKEIN_MIN == SK_MINIMUM &&
                   (int)SKEIN_MAX == SK_MAXIMUM,
               "public numbers are those of comm.h");

enum { TAG = 1 }; /* of messages */

/* A call of the caller's, checked: what it gives and gets here. */
typedef struct asked {
    const char *who;
    skein_call call;
    int64_t src_bytes, dst_bytes, before; /* before: of my part in the whole */
    int algorithm;
    uint64_t degrees;
    int64_t workspace; /* bytes */
} asked;

/* --- is it sound? --- */

static sk_status check_fields(const skein_comm *c, const asked *q)
{
    const skein_call *k = &q->call;
    int p = c->world->n;
    bool kind = k->kind <= SKEIN_REDUCE || k->kind == SKEIN_ALL_TO_ALL || k->kind == SKEIN_SCAN;
    int64_t most = INT64_MAX / 16 / (p + 1);
    if (!kind)
        return sk_fail(SK_EUSAGE, "%s: kind is %d; skein_kind has those that there are", q->who,
                       (int)k->kind);
    if (k->type > SKEIN_U8)
        return sk_fail(SK_EUSAGE, "%s: type is %d; skein_dtype has those that there are", q->who,
                       (int)k->type);
    if (k->reduction > SKEIN_MEAN)
        return sk_fail(SK_EUSAGE, "%s: reduction is %d; skein_reduction has those that there are",
                       q->who, (int)k->reduction);
    if (k->root < 0 || k->root >= p)
        return sk_fail(SK_EUSAGE, "%s: root is %d; ranks are 0 to %d", q->who, k->root, p - 1);
    if (k->n < 0 || k->n > most)
        return sk_fail(SK_EUSAGE, "%s: n is %lld elements; 0 to %lld are possible", q->who,
                       (long long)k->n, (long long)most);
    if (sk_kind_sums((sk_coll_kind)k->kind) &&
        !sk_sum_can((sk_dtype)k->type, (sk_reduce)k->reduction))
        return sk_fail(SK_EUSAGE, "%s: reduction %d is not for %s", q->who, (int)k->reduction,
                       sk_dtype_name((sk_dtype)k->type));
    return SK_OK;
}

static void measure(const skein_comm *c, asked *q)
{
    const skein_call *k = &q->call;
    int p = c->world->n, me = c->rank;
    int64_t size = (int64_t)sk_dtype_size((sk_dtype)k->type), all = k->n * size;
    int64_t mine = sk_even_part(k->n, me, p) * size;
    bool root = me == k->root;
    q->before = sk_even_at(k->n, me, p) * size;
    q->src_bytes = k->kind == SKEIN_ALL_GATHER           ? mine
                   : k->kind == SKEIN_BROADCAST && !root ? 0
                                                         : all;
    q->dst_bytes = k->kind == SKEIN_REDUCE_SCATTER    ? mine
                   : k->kind == SKEIN_REDUCE && !root ? 0
                   : k->kind == SKEIN_ALL_TO_ALL      ? p * mine
                                                      : all;
}

static bool overlap(const asked *q)
{
    uintptr_t src = (uintptr_t)q->call.src, dst = (uintptr_t)q->call.dst;
    return q->src_bytes && q->dst_bytes && src < dst + (uintptr_t)q->dst_bytes &&
           dst < src + (uintptr_t)q->src_bytes;
}

/* The same place, or the part at its place in the whole. */
static bool in_place(const asked *q)
{
    const char *src = q->call.src, *dst = q->call.dst;
    switch (q->call.kind) {
    case SKEIN_REDUCE_SCATTER:
        return dst == src + q->before;
    case SKEIN_ALL_GATHER:
        return src == dst + q->before;
    case SKEIN_ALL_TO_ALL:
        return false;
    default:
        return src == dst;
    }
}

static sk_status check_memory(const asked *q)
{
    if ((q->src_bytes && !q->call.src) || (q->dst_bytes && !q->call.dst))
        return sk_fail(SK_EUSAGE, "%s: %s is NULL", q->who,
                       q->src_bytes && !q->call.src ? "src" : "dst");
    if (overlap(q) && !in_place(q))
        return sk_fail(SK_EUSAGE,
                       "%s: src and dst overlap, and the call is not in place; skein.h has the "
                       "rules at skein_kind",
                       q->who);
    return SK_OK;
}

static bool same_call(const sk_comm_choice *a, const sk_comm_choice *b)
{
    return a->kind == b->kind && a->reduction == b->reduction && a->type == b->type &&
           a->root == b->root && a->pin == b->pin && a->n == b->n && a->asked == b->asked;
}

static sk_status choose_anew(skein_comm *c, sk_coll_ask *ask, sk_comm_choice *x)
{
    int hosts = sk_hosts_count(c->ranks, c->world->n, c->world->host_of);
    int64_t bytes = x->n * (int64_t)sk_dtype_size((sk_dtype)x->type);
    ask->degrees = x->asked;
    SK_TRY(sk_choose_call(&sk_costs_preset, x->pin, ask, hosts, (sk_reduce)x->reduction, bytes,
                          &x->algorithm));
    x->degrees = ask->degrees;
    if (x->n) c->chosen[c->n_chosen++ % SK_COMM_CHOICES] = *x;
    return SK_OK;
}

/* Which algorithm, and what it needs beside the operands. */
static sk_status choose(skein_comm *c, asked *q)
{
    const skein_call *k = &q->call;
    const sk_world *w = c->world;
    sk_coll_kind kind = (sk_coll_kind)k->kind;
    sk_seg seg = {.outer = 1, .n = k->n, .inner = 1};
    sk_coll_ask ask;
    sk_comm_choice x = {.kind = (int)k->kind,
                        .reduction = (int)k->reduction,
                        .type = (int)k->type,
                        .root = k->root,
                        .n = k->n};
    SK_TRY(sk_pin_find("skein_call.algorithm", k->algorithm ? k->algorithm : "", &x.pin, &x.asked));
    sk_coll_ask_for(kind, c->ranks, w->n, c->rank, k->root, w->host_of, NULL, &ask);
    int i = 0;
    while (i < SK_COMM_CHOICES && !(x.n && same_call(&c->chosen[i], &x))) i++;
    if (i < SK_COMM_CHOICES) x = c->chosen[i];
    else SK_TRY(choose_anew(c, &ask, &x));
    ask.degrees = q->degrees = x.degrees;
    q->algorithm = x.algorithm;
    const sk_coll *a = q->algorithm < 0 ? NULL : sk_coll_parts[q->algorithm];
    if (a) SK_TRY(sk_choose_wired(a, w->host_of != NULL));
    if (a && !(a->native && a->build))
        q->workspace = sk_coll_workspace(a, &ask, (sk_dtype)k->type, &seg, 1);
    return SK_OK;
}

static sk_status look_at(skein_comm *c, const char *who, const skein_call *call, asked *q)
{
    *q = (asked){.who = who};
    SK_TRY(sk_communicator_check(c, who));
    SK_TRY(sk_struct_from_caller(who, call, &q->call, sizeof q->call));
    SK_TRY(check_fields(c, q));
    measure(c, q);
    SK_TRY(check_memory(q));
    return choose(c, q);
}

/* --- start and wait --- */

static sk_coll_call *slot(const skein_comm *c, int64_t number)
{
    return (sk_coll_call *)(void *)(c->base + number % SK_CALL_SLOTS * SK_CALL_BYTES);
}

/* Both operands lie in the heap, or are not there. */
static sk_status begin(skein_comm *c, const asked *q, const char *src, const char *dst)
{
    const skein_call *k = &q->call;
    int64_t *workspace = &c->workspace[c->posted % SK_CALLS_OPEN];
    if (c->posted - c->waited >= SK_CALLS_OPEN)
        return sk_fail(SK_EUSAGE, "%s: %d calls are under way, and no more can be", q->who,
                       SK_CALLS_OPEN);
    *workspace = q->workspace ? sk_comm_memory_alloc(c, q->workspace) : 0;
    if (*workspace < 0) return sk_comm_memory_short(c, q->who, q->workspace);
    sk_coll_call *call = slot(c, c->posted);
    *call = (sk_coll_call){.id = 1,
                           .kind = (sk_coll_kind)k->kind,
                           .reduce = (sk_reduce)k->reduction,
                           .type = (sk_dtype)k->type,
                           .n_segs = 1,
                           .algorithm = q->algorithm,
                           .degrees = q->algorithm < 0 ? 0 : q->degrees,
                           .root = k->root,
                           .workspace = *workspace,
                           .workspace_bytes = q->workspace};
    call->segs[0] = (sk_seg){.src = q->src_bytes ? src - c->base : 0,
                             .dst = q->dst_bytes ? dst - c->base : 0,
                             .outer = 1,
                             .n = k->n,
                             .inner = 1};
    sk_status st = sk_comm_start(c->comm, call);
    if (!st) c->posted++;
    else if (*workspace) sk_comm_memory_free(c, *workspace);
    return sk_communicator_error(c, st);
}

static sk_status end_oldest(skein_comm *c)
{
    sk_assert(c->waited < c->posted && c->posted - c->waited <= SK_CALLS_OPEN);
    int64_t workspace = c->workspace[c->waited % SK_CALLS_OPEN];
    SK_TRY(sk_communicator_error(c, sk_comm_wait(c->comm, slot(c, c->waited))));
    if (workspace) sk_comm_memory_free(c, workspace);
    c->waited++;
    return SK_OK;
}

/* Until the oldest call can end at once, or the time is over. */
static sk_status await_oldest(skein_comm *c, double until, bool *over)
{
    for (long nap = 1000;; nap = nap < 500000 ? 2 * nap : nap) {
        SK_TRY(sk_communicator_error(c, sk_comm_test(c->comm, slot(c, c->waited), over)));
        if (*over || sk_now() >= until) return SK_OK;
        SK_TRY(sk_communicator_check(c, "skein_comm_wait"));
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    }
}

int skein_comm_start(skein_comm *c, const skein_call *call, int64_t *ticket)
{
    asked q;
    SK_NEED(ticket);
    SK_TELL(look_at(c, __func__, call, &q));
    if ((q.src_bytes && !sk_comm_memory_has(c, q.call.src, q.src_bytes)) ||
        (q.dst_bytes && !sk_comm_memory_has(c, q.call.dst, q.dst_bytes)))
        return (int)sk_fail(SK_EUSAGE, "skein_comm_start: src and dst must lie in memory of "
                                       "skein_comm_alloc(); skein_comm_call() takes any");
    SK_TELL(begin(c, &q, q.call.src, q.call.dst));
    *ticket = c->posted - 1;
    return SK_OK;
}

int skein_comm_wait(skein_comm *c, int64_t ticket, double seconds, int *done)
{
    SK_TELL(sk_communicator_check(c, __func__));
    if (ticket < 0 || ticket >= c->posted || isnan(seconds))
        return (int)sk_fail(SK_EUSAGE,
                            "skein_comm_wait: ticket %lld for %g seconds; %lld calls were "
                            "started",
                            (long long)ticket, seconds, (long long)c->posted);
    double until = sk_now() + seconds;
    while (c->waited <= ticket) {
        bool over = true;
        if (seconds >= 0) SK_TELL(await_oldest(c, until, &over));
        if (done) *done = over;
        if (!over) return SK_OK;
        SK_TELL(end_oldest(c));
    }
    if (done) *done = 1;
    return SK_OK;
}

/* --- at once, with any memory --- */

/* Memory of the heap for an operand: where it lies, or a place for the time of the call.  Empty
 * operands have none. */
static sk_status place(skein_comm *c, const char *who, const void *memory, int64_t bytes,
                       int64_t *staged, char **at)
{
    *staged = 0;
    *at = (char *)memory;
    if (!bytes || sk_comm_memory_has(c, memory, bytes)) return SK_OK;
    *staged = sk_comm_memory_alloc(c, bytes);
    if (*staged < 0) {
        *staged = 0;
        return sk_comm_memory_short(c, who, bytes);
    }
    *at = c->base + *staged;
    return SK_OK;
}

static sk_status call_staged(skein_comm *c, const asked *q, char *src, char *dst, bool in, bool out)
{
    if (in) memcpy(src, q->call.src, (size_t)q->src_bytes);
    SK_TRY(begin(c, q, src, dst));
    while (c->waited < c->posted) SK_TRY(end_oldest(c));
    if (out) memcpy(q->call.dst, dst, (size_t)q->dst_bytes);
    return SK_OK;
}

static sk_status call_now(skein_comm *c, const char *who, const skein_call *call)
{
    asked q;
    int64_t src_at = 0, dst_at = 0;
    char *src, *dst;
    SK_TRY(look_at(c, who, call, &q));
    SK_TRY(place(c, who, q.call.src, q.src_bytes, &src_at, &src));
    sk_status st = place(c, who, q.call.dst, q.dst_bytes, &dst_at, &dst);
    if (!st) st = call_staged(c, &q, src, dst, src_at != 0, dst_at != 0);
    if (src_at) sk_comm_memory_free(c, src_at);
    if (dst_at) sk_comm_memory_free(c, dst_at);
    return st;
}

int skein_comm_call(skein_comm *c, const skein_call *call)
{
    return (int)call_now(c, __func__, call);
}

int skein_all_reduce(skein_comm *c, void *data, int64_t n, skein_dtype type, skein_reduction how)
{
    skein_call k = {.size = sizeof k,
                    .kind = SKEIN_ALL_REDUCE,
                    .type = type,
                    .reduction = how,
                    .src = data,
                    .dst = data,
                    .n = n};
    return (int)call_now(c, __func__, &k);
}

int skein_broadcast(skein_comm *c, void *data, int64_t n, skein_dtype type, int root)
{
    skein_call k = {.size = sizeof k,
                    .kind = SKEIN_BROADCAST,
                    .type = type,
                    .root = root,
                    .src = data,
                    .dst = data,
                    .n = n};
    return (int)call_now(c, __func__, &k);
}

int skein_barrier(skein_comm *c)
{
    SK_TELL(sk_communicator_check(c, __func__));
    return (int)sk_communicator_error(c, sk_comm_barrier(c->comm));
}

/* --- messages --- */

static sk_status good_peer(const skein_comm *c, const char *who, int peer, const void *data,
                           int64_t bytes)
{
    SK_TRY(sk_communicator_check(c, who));
    if (peer < 0 || peer >= c->world->n)
        return sk_fail(SK_EUSAGE, "%s: the other rank is %d; ranks are 0 to %d", who, peer,
                       c->world->n - 1);
    if (bytes < 0) return sk_fail(SK_EUSAGE, "%s: %lld bytes", who, (long long)bytes);
    if (bytes && !data)
        return sk_fail(SK_EUSAGE, "%s: the memory of %lld bytes is NULL", who, (long long)bytes);
    return SK_OK;
}

static sk_status not_me(const skein_comm *c, const char *who, int peer)
{
    if (peer != c->rank) return SK_OK;
    return sk_fail(SK_EUSAGE, "%s: rank %d is this rank; skein_send_recv() may go to oneself", who,
                   peer);
}

static sk_status exchange(skein_comm *c, int to, const char *src, int from, void *dst,
                          int64_t bytes)
{
    if (to >= 0) SK_TRY(sk_comm_send(c->comm, to, TAG, src, bytes));
    if (from >= 0) SK_TRY(sk_comm_recv(c->comm, from, TAG, dst, bytes));
    return to >= 0 ? sk_comm_sent(c->comm, to, sk_comm_sends(c->comm, to)) : SK_OK;
}

/* to, from below 0: nobody. */
static sk_status message(skein_comm *c, const char *who, int to, const void *src, int from,
                         void *dst, int64_t bytes)
{
    int64_t staged = 0;
    char *at = c->base; /* of an empty message */
    if (to >= 0 && bytes) SK_TRY(place(c, who, src, bytes, &staged, &at));
    if (staged) memcpy(at, src, (size_t)bytes);
    sk_status st = sk_communicator_error(c, exchange(c, to, at, from, dst, bytes));
    if (staged) sk_comm_memory_free(c, staged);
    return st;
}

int skein_send(skein_comm *c, int to, const void *data, int64_t bytes)
{
    SK_TELL(good_peer(c, __func__, to, data, bytes));
    SK_TELL(not_me(c, __func__, to));
    return (int)message(c, __func__, to, data, -1, NULL, bytes);
}

int skein_recv(skein_comm *c, int from, void *data, int64_t bytes)
{
    SK_TELL(good_peer(c, __func__, from, data, bytes));
    SK_TELL(not_me(c, __func__, from));
    return (int)message(c, __func__, -1, NULL, from, data, bytes);
}

int skein_send_recv(skein_comm *c, int to, const void *src, int from, void *dst, int64_t bytes)
{
    SK_TELL(good_peer(c, __func__, to, src, bytes));
    SK_TELL(good_peer(c, __func__, from, dst, bytes));
    if ((to == c->rank) != (from == c->rank))
        return (int)sk_fail(SK_EUSAGE,
                            "skein_send_recv: to rank %d from rank %d on rank %d; to oneself "
                            "is from oneself",
                            to, from, c->rank);
    if (to == c->rank) {
        if (bytes) memmove(dst, src, (size_t)bytes);
        return SK_OK;
    }
    return (int)message(c, __func__, to, src, from, dst, bytes);
}
