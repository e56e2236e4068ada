/* mpi.c - the wire over MPI.
 *
 * Compiled once for every MPI that is found, into skein_openmpi.so and skein_mpich.so,
 * and opened at run time (comm/wire.c): the program itself links no MPI, so one program
 * runs under any of them.  A module is linked with nothing of skein either; it tells its
 * error reports through the function it is given.
 *
 * A message is one MPI_Isend and one MPI_Irecv.  Counts of MPI are ints, so a long message is
 * described as blocks of LONG bytes and a rest, by a type of its own.  MPI keeps the order
 * of messages with equal tags.  As many bits of a tag are used as MPI_TAG_UB allows; the
 * standard promises the 15 that must differ. */
#include "coll/call.h"
#include "comm/wire.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef LONG
#define LONG (1 << 30) /* bytes; a test makes it small */
#endif

#ifdef OPEN_MPI
#define NAME "openmpi"
#else
#define NAME "mpich"
#endif

typedef struct team { /* a group that had a collective of the library */
    int n, *ranks;
    int *counts, *starts; /* for calls with uneven parts */
    MPI_Comm comm;
    struct team *next;
} team;

static struct {
    sk_wire wire;
    sk_wire_fail_fn *fail;
    MPI_Comm comm;
    int64_t tag_mask;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    bool began; /* MPI_Init was ours, so MPI_Finalize is */
    MPI_Request reqs[SK_WIRE_REQS];
    int free[SK_WIRE_REQS], n_free;
    team *teams;
} mpi;

/* --- error reports --- */

static sk_status no(int code, const char *what, int peer, int64_t bytes)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    return mpi.fail(SK_EPEER, SK_HERE, "rank %d: %s of %lld bytes, rank %d, failed in %s: %s",
                    mpi.wire.rank, what, (long long)bytes, peer, mpi.library, text);
}

/* --- messages --- */

/* A type of `bytes` bytes. */
static int long_type(int64_t bytes, MPI_Datatype *out)
{
    MPI_Datatype block, parts[2];
    int n[2] = {(int)(bytes / LONG), (int)(bytes % LONG)};
    MPI_Aint at[2] = {0, (MPI_Aint)(bytes - bytes % LONG)};
    int rc = MPI_Type_contiguous(LONG, MPI_BYTE, &block);
    parts[0] = block;
    parts[1] = MPI_BYTE;
    if (!rc) rc = MPI_Type_create_struct(2, n, at, parts, out);
    if (!rc) rc = MPI_Type_commit(out);
    if (!rc) rc = MPI_Type_free(&block);
    return rc;
}

static int begin_message(bool out, int peer, int64_t tag, void *data, int64_t bytes, MPI_Request *r)
{
    int t = (int)(tag & mpi.tag_mask), n = (int)bytes, rc = 0;
    MPI_Datatype type = MPI_BYTE;
    if (bytes > LONG) {
        rc = long_type(bytes, &type);
        n = 1;
    }
    if (rc) return rc;
    rc = out ? MPI_Isend(data, n, type, peer, t, mpi.comm, r)
             : MPI_Irecv(data, n, type, peer, t, mpi.comm, r);
    if (bytes > LONG) MPI_Type_free(&type); /* when the message is over, says the standard */
    return rc;
}

static sk_status begin(bool out, int peer, int64_t tag, void *data, int64_t bytes, sk_req *r)
{
    *r = -1;
    if (!mpi.n_free) return SK_OK;
    int k = mpi.free[mpi.n_free - 1];
    int rc = begin_message(out, peer, tag, data, bytes, &mpi.reqs[k]);
    if (rc) return no(rc, out ? "send" : "receive", peer, bytes);
    mpi.n_free--;
    *r = k;
    return SK_OK;
}

static sk_status send(sk_wire *w, int to, int64_t tag, const void *data, int64_t bytes, sk_req *r)
{
    (void)w;
    union {
        const void *given;
        void *taken;
    } p = {data}; /* one function for both ways */
    return begin(true, to, tag, p.taken, bytes, r);
}

static sk_status recv(sk_wire *w, int from, int64_t tag, void *data, int64_t most, sk_req *r)
{
    (void)w;
    return begin(false, from, tag, data, most, r);
}

static sk_status test(sk_wire *w, sk_req r, bool *done, int64_t *bytes)
{
    int flag = 0;
    MPI_Status s;
    (void)w;
    int rc = MPI_Test(&mpi.reqs[r], &flag, &s);
    if (rc) return no(rc, "message", s.MPI_SOURCE, 0);
    *done = flag;
    if (!flag) return SK_OK;
    MPI_Count n = 0;
    if (bytes) MPI_Get_elements_x(&s, MPI_BYTE, &n);
    if (bytes) *bytes = n;
    mpi.free[mpi.n_free++] = r;
    return SK_OK;
}

/* --- the library's collectives --- */

static bool type_of(sk_dtype type, bool sums, MPI_Datatype *out)
{
    MPI_Datatype none = MPI_DATATYPE_NULL, half = sums ? none : MPI_UINT16_T;
    MPI_Datatype types[SK_N_DTYPES] = {MPI_FLOAT,   half,        half,       MPI_DOUBLE,
                                       MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T};
    *out = types[type];
    return *out != MPI_DATATYPE_NULL;
}

static bool op_of(sk_reduce op, MPI_Op *out)
{
    MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN};
    if (op > SK_MINIMUM) return false;
    *out = ops[op];
    return true;
}

static int make_comm(team *t)
{
    MPI_Group all, some;
    int rc = MPI_Comm_group(mpi.comm, &all);
    if (!rc) rc = MPI_Group_incl(all, t->n, t->ranks, &some);
    if (!rc) rc = MPI_Comm_create_group(mpi.comm, some, 0, &t->comm);
    if (rc) return rc;
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    return MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
}

/* Teams live as long as the wire: the library keeps its part of them as long. */
static team *find_team(const int *ranks, int n)
{
    size_t bytes = (size_t)n * sizeof(int);
    for (team *t = mpi.teams; t; t = t->next)
        if (t->n == n && !memcmp(t->ranks, ranks, bytes)) return t;
    team *t = calloc(1, sizeof *t);
    int *ints = calloc(3, bytes);
    if (!t || !ints) {
        free(t);
        free(ints);
        return NULL;
    }
    *t = (team){.n = n, .ranks = ints, .counts = ints + n, .starts = ints + 2 * n};
    memcpy(t->ranks, ranks, bytes);
    if (make_comm(t)) return NULL;
    t->next = mpi.teams;
    mpi.teams = t;
    return t;
}

static bool has_counts(sk_coll_kind kind)
{
    return kind == SK_REDUCE_SCATTER || kind == SK_ALLGATHER || kind == SK_GATHER ||
           kind == SK_SCATTER;
}

static bool set_counts(team *t, sk_coll_kind kind, const int64_t *counts)
{
    int64_t all = 0;
    for (int i = 0; i < (has_counts(kind) ? t->n : 1); i++) {
        if (counts[i] > INT_MAX - all) return false;
        t->counts[i] = (int)counts[i];
        t->starts[i] = (int)all;
        all += counts[i];
    }
    return true;
}

typedef struct job {
    team *t;
    MPI_Datatype type;
    MPI_Op op;
    int root, me;
    const void *src;
    void *dst;
    bool in_place; /* of a gather: my part is at its place */
} job;

static int collect(const job *j, sk_coll_kind kind)
{
    const team *t = j->t;
    const void *src = j->in_place ? MPI_IN_PLACE : j->src;
    if (kind == SK_ALLGATHER)
        return MPI_Allgatherv(src, t->counts[j->me], j->type, j->dst, t->counts, t->starts, j->type,
                              t->comm);
    return MPI_Gatherv(src, t->counts[j->me], j->type, j->dst, t->counts, t->starts, j->type,
                       j->root, t->comm);
}

static int call(const job *j, sk_coll_kind kind)
{
    const team *t = j->t;
    const void *src = j->src == j->dst ? MPI_IN_PLACE : j->src;
    switch (kind) {
    case SK_ALLREDUCE:
        return MPI_Allreduce(src, j->dst, t->counts[0], j->type, j->op, t->comm);
    case SK_REDUCE_SCATTER:
        return MPI_Reduce_scatter(j->src, j->dst, t->counts, j->type, j->op, t->comm);
    case SK_BROADCAST:
        return MPI_Bcast(j->dst, t->counts[0], j->type, j->root, t->comm);
    case SK_REDUCE:
        return MPI_Reduce(j->src, j->dst, t->counts[0], j->type, j->op, j->root, t->comm);
    case SK_SCATTER:
        return MPI_Scatterv(j->src, t->counts, t->starts, j->type, j->dst, t->counts[j->me],
                            j->type, j->root, t->comm);
    case SK_ALLTOALL:
        return MPI_Alltoall(j->src, t->counts[0], j->type, j->dst, t->counts[0], j->type, t->comm);
    default:
        return collect(j, kind);
    }
}

static sk_status native(sk_wire *w, const sk_native_call *c)
{
    bool sums = c->kind == SK_ALLREDUCE || c->kind == SK_REDUCE_SCATTER || c->kind == SK_REDUCE;
    job j = {.root = c->root, .src = c->src, .dst = c->dst};
    if (c->kind >= SK_ALLTOALLV || !type_of(c->type, sums, &j.type) ||
        (sums && !op_of(c->reduce, &j.op)))
        return mpi.fail(SK_EUSAGE, SK_HERE,
                        "%s: %s has no collective of kind %d, reduction %d for type %d; choose "
                        "another algorithm than mpi",
                        w->name, mpi.library, (int)c->kind, (int)c->reduce, (int)c->type);
    j.t = find_team(c->ranks, c->n);
    if (!j.t)
        return mpi.fail(SK_EPEER, SK_HERE, "%s: no communicator for %d ranks in %s", w->name, c->n,
                        mpi.library);
    if (!set_counts(j.t, c->kind, c->counts))
        return mpi.fail(SK_EUSAGE, SK_HERE,
                        "%s: %s counts elements in an int; choose another algorithm than mpi",
                        w->name, mpi.library);
    MPI_Comm_rank(j.t->comm, &j.me);
    int size = 0;
    MPI_Type_size(j.type, &size);
    j.in_place = (c->kind == SK_ALLGATHER || j.me == c->root) &&
                 c->src == (char *)c->dst + (int64_t)j.t->starts[j.me] * size;
    int rc = call(&j, c->kind);
    return rc ? no(rc, "collective", c->root, c->counts[0]) : SK_OK;
}

/* --- the beginning and the end --- */

static void stop(sk_wire *w, int code)
{
    (void)w;
    MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}

static void shut(sk_wire *w)
{
    (void)w;
    for (team *t = mpi.teams, *next; t; t = next) {
        next = t->next;
        MPI_Comm_free(&t->comm);
        free(t->ranks);
        free(t);
    }
    mpi.teams = NULL;
    MPI_Comm_free(&mpi.comm);
    if (mpi.began) MPI_Finalize();
}

/* Open MPI tells on every start which network it did not find; who sets the word hears it. */
static sk_status start_mpi(void)
{
    int was = 0, level = 0;
    setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
    MPI_Initialized(&was);
    mpi.began = !was;
    if (was) MPI_Query_thread(&level);
    else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level))
        return mpi.fail(SK_EPEER, SK_HERE, NAME ": MPI_Init_thread failed");
    if (level < MPI_THREAD_SERIALIZED)
        return mpi.fail(SK_EUSAGE, SK_HERE,
                        NAME ": this MPI lets only one thread call it; skein needs "
                             "MPI_THREAD_SERIALIZED");
    return SK_OK;
}

static void ask_library(void)
{
    int n = 0, *ub = NULL, found = 0;
    MPI_Get_library_version(mpi.library, &n);
    mpi.library[strcspn(mpi.library, ",\n")] = 0;
    for (char *c = mpi.library; *c; c++)
        if (*c == '\t') *c = ' ';
    MPI_Comm_get_attr(mpi.comm, MPI_TAG_UB, &ub, &found);
    int64_t most = found ? *ub : (1 << SK_WIRE_TAG_BITS) - 1;
    mpi.tag_mask = (1 << SK_WIRE_TAG_BITS) - 1;
    while (mpi.tag_mask * 2 + 1 <= most) mpi.tag_mask = mpi.tag_mask * 2 + 1;
}

sk_wire_open_fn sk_wire_module;
sk_status sk_wire_module(sk_wire_fail_fn *fail, sk_wire **out)
{
    mpi.fail = fail;
    sk_status st = start_mpi();
    if (st) return st;
    int rc = MPI_Comm_dup(MPI_COMM_WORLD, &mpi.comm);
    if (!rc) rc = MPI_Comm_set_errhandler(mpi.comm, MPI_ERRORS_RETURN);
    if (rc) return no(rc, "communicator", 0, 0);
    ask_library();
    for (int i = 0; i < SK_WIRE_REQS; i++) mpi.free[i] = SK_WIRE_REQS - 1 - i;
    mpi.n_free = SK_WIRE_REQS;
    mpi.wire = (sk_wire){.abi = SK_WIRE_ABI,
                         .name = NAME,
                         .library = mpi.library,
                         .send = send,
                         .recv = recv,
                         .test = test,
                         .native = native,
                         .abort = stop,
                         .close = shut};
    MPI_Comm_rank(mpi.comm, &mpi.wire.rank);
    MPI_Comm_size(mpi.comm, &mpi.wire.n_ranks);
    *out = &mpi.wire;
    return SK_OK;
}
