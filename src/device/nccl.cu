/* nccl.cu - NCCL, opened at run time.
 *
 * nccl.h is needed to compile and the library is not.  NCCL brings a CUDA run time of its own; both
 * speak to one driver, so streams and addresses mean the same to both.
 *
 * What is set before the library is opened, if the user has not:
 *   NCCL_GRAPH_REGISTER=0   while a step is recorded NCCL would tell peers of each buffer and wait
 *                           for their answer, on the host.  Ranks that record two circles in
 *                           different orders would wait for each other for ever. */
#include "device/nccl.h"
#include "device/library.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(SK_NCCL_ID == NCCL_UNIQUE_ID_BYTES, "what is told has its size");

/* With BLOCKING 1 all is right too, but nothing ends a join() whose members do not come. */
enum { BLOCKING = 0 };
enum { OLDEST = 21800 }; /* from here on circles are made and left without holding the caller */

/* The functions that are used, by their names. */
#define EACH(f)                                                                                  \
    f(ncclGetVersion) f(ncclGetUniqueId) f(ncclCommInitRankConfig) f(ncclCommGetAsyncError)      \
        f(ncclCommFinalize) f(ncclCommDestroy) f(ncclCommAbort) f(ncclGetErrorString)            \
            f(ncclGetLastError) f(ncclGroupStart) f(ncclGroupEnd) f(ncclAllReduce)               \
                f(ncclReduceScatter) f(ncclAllGather) f(ncclReduce) f(ncclBroadcast) f(ncclSend) \
                    f(ncclRecv)

#define FIELD(name) decltype(&::name) name;
static struct table {
    EACH(FIELD)
    int version; /* 0: not open yet */
} lib;

/* ---- errors */

static sk_status failed(const char *what, ncclResult_t r, ncclComm_t c)
{
    const char *more = lib.ncclGetLastError(c);
    bool peer = r == ncclRemoteError;
    return sk_fail(peer ? SK_EPEER : SK_EIO, "nccl: %s: %s%s%.300s; NCCL_DEBUG=INFO tells more",
                   what, lib.ncclGetErrorString(r), more && *more ? ": " : "", more ? more : "");
}

/* Begun is as good as done here: who called asks ready(). */
#define TRY(c, call)                                                                  \
    do {                                                                              \
        ncclResult_t r_ = lib.call;                                                   \
        if (r_ != ncclSuccess && r_ != ncclInProgress) return failed(#call, r_, (c)); \
    } while (0)

/* ---- the library */

static void *find_library(void)
{
    static const char *const places[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                         "/usr/local/cuda/lib/libnccl.so.2"};
    void *so = NULL;
    for (size_t i = 0; !so && i < sizeof places / sizeof *places; i++)
        so = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return so;
}

static sk_status find_functions(void *so)
{
    const char *missing = NULL;
#define FIND(name)                                                     \
    lib.name = reinterpret_cast<decltype(lib.name)>(dlsym(so, #name)); \
    if (!lib.name) missing = #name;
    EACH(FIND)
    if (!missing) return SK_OK;
    return sk_fail(SK_ECONF, "nccl: libnccl.so.2 has no '%s'; version 2.18 or newer is needed",
                   missing);
}

static sk_status nccl_open(int *version)
{
    int v = 0;
    if (!lib.version) {
        setenv("NCCL_GRAPH_REGISTER", "0", 0);
        void *so = find_library();
        if (!so)
            return sk_fail(SK_ECONF,
                           "nccl: libnccl.so.2 cannot be opened (%s); several GPUs need it: "
                           "install libnccl2, or say where it is in LD_LIBRARY_PATH",
                           dlerror());
        SK_TRY(find_functions(so));
        TRY(NULL, ncclGetVersion(&v));
        if (v < OLDEST)
            return sk_fail(SK_ECONF, "nccl: libnccl.so.2 is version %d.%d, 2.18 is needed",
                           v / 10000, v / 100 % 100);
        lib.version = v;
    }
    if (version) *version = lib.version;
    return SK_OK;
}

/* ---- circles */

/* NCCL writes the communicator here when it is made, perhaps long after join() has returned. */
struct sk_nccl_comm {
    ncclComm_t comm;
};

static ncclComm_t comm_of(const sk_nccl_comm *c) { return c->comm; }

static sk_status nccl_id(char id[SK_NCCL_ID])
{
    ncclUniqueId u;
    TRY(NULL, ncclGetUniqueId(&u));
    memcpy(id, u.internal, SK_NCCL_ID);
    return SK_OK;
}

static sk_status nccl_join(int device, int n, int me, const char id[SK_NCCL_ID], const char *name,
                           sk_nccl_comm **out)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId u;
    memcpy(u.internal, id, SK_NCCL_ID);
    config.blocking = BLOCKING;
    config.commName = name;
    cudaError_t e = cudaSetDevice(device); /* a circle belongs to the current device */
    if (e != cudaSuccess)
        return sk_fail(SK_EIO, "nccl: device %d: %s", device, cudaGetErrorString(e));
    sk_nccl_comm *c = static_cast<sk_nccl_comm *>(calloc(1, sizeof *c));
    sk_assert(c);
    *out = c;
    TRY(NULL, ncclCommInitRankConfig(&c->comm, n, u, me, &config));
    return SK_OK;
}

static sk_status nccl_ready(sk_nccl_comm *c, bool *yes)
{
    ncclResult_t state = ncclInProgress;
    if (comm_of(c)) TRY(comm_of(c), ncclCommGetAsyncError(comm_of(c), &state));
    if (state != ncclSuccess && state != ncclInProgress)
        return failed("the communicator is broken", state, comm_of(c));
    *yes = state == ncclSuccess;
    return SK_OK;
}

static sk_status nccl_finish(sk_nccl_comm *c)
{
    TRY(comm_of(c), ncclCommFinalize(comm_of(c)));
    return SK_OK;
}

static void nccl_leave(sk_nccl_comm *c)
{
    (void)lib.ncclCommDestroy(comm_of(c));
    free(c);
}

/* What lies at c is left alone: NCCL may still write there. */
static void nccl_abort(sk_nccl_comm *c)
{
    if (comm_of(c)) (void)lib.ncclCommAbort(comm_of(c));
}

/* ---- what they do */

static ncclDataType_t type_of(sk_dtype t)
{
    switch (t) {
    case SK_F32:
        return ncclFloat32;
    case SK_BF16:
        return ncclBfloat16;
    case SK_F16:
        return ncclFloat16;
    case SK_F64:
        return ncclFloat64;
    case SK_I32:
        return ncclInt32;
    case SK_I64:
        return ncclInt64;
    default:
        return ncclUint8;
    }
}

static ncclRedOp_t op_of(sk_nccl_op op)
{
    static const ncclRedOp_t ops[] = {ncclSum, ncclMax, ncclMin, ncclAvg};
    return ops[op];
}

static cudaStream_t in(void *stream) { return static_cast<cudaStream_t>(stream); }

static sk_status nccl_begin(void)
{
    TRY(NULL, ncclGroupStart());
    return SK_OK;
}

static sk_status nccl_end(void)
{
    TRY(NULL, ncclGroupEnd());
    return SK_OK;
}

static sk_status nccl_sum(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                          sk_nccl_op op, void *stream)
{
    TRY(comm_of(c),
        ncclAllReduce(src, dst, (size_t)n, type_of(t), op_of(op), comm_of(c), in(stream)));
    return SK_OK;
}

static sk_status nccl_scatter_sum(sk_nccl_comm *c, const void *src, void *dst, int64_t n,
                                  sk_dtype t, sk_nccl_op op, void *stream)
{
    TRY(comm_of(c),
        ncclReduceScatter(src, dst, (size_t)n, type_of(t), op_of(op), comm_of(c), in(stream)));
    return SK_OK;
}

static sk_status nccl_gather(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             void *stream)
{
    TRY(comm_of(c), ncclAllGather(src, dst, (size_t)n, type_of(t), comm_of(c), in(stream)));
    return SK_OK;
}

static sk_status nccl_sum_to(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             sk_nccl_op op, int root, void *stream)
{
    TRY(comm_of(c),
        ncclReduce(src, dst, (size_t)n, type_of(t), op_of(op), root, comm_of(c), in(stream)));
    return SK_OK;
}

static sk_status nccl_spread(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             int root, void *stream)
{
    TRY(comm_of(c), ncclBroadcast(src, dst, (size_t)n, type_of(t), root, comm_of(c), in(stream)));
    return SK_OK;
}

static sk_status nccl_send(sk_nccl_comm *c, const void *src, int64_t bytes, int to, void *stream)
{
    TRY(comm_of(c), ncclSend(src, (size_t)bytes, ncclUint8, to, comm_of(c), in(stream)));
    return SK_OK;
}

static sk_status nccl_recv(sk_nccl_comm *c, void *dst, int64_t bytes, int from, void *stream)
{
    TRY(comm_of(c), ncclRecv(dst, (size_t)bytes, ncclUint8, from, comm_of(c), in(stream)));
    return SK_OK;
}

/* ---- where a stream is */

static __global__ void write_word(volatile int64_t *word, int64_t value)
{
    *word = value;
    __threadfence_system();
}

static sk_status nccl_mark(int64_t *word, int64_t value, void *stream)
{
    write_word<<<1, 1, 0, in(stream)>>>(word, value);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return SK_OK;
    return sk_fail(SK_EIO, "nccl: a mark could not be launched: %s", cudaGetErrorString(e));
}

/* ---- for people */

void sk_nccl_about(bool open, sk_device_library *out)
{
    Dl_info where;
    out->name = "NCCL";
    out->use = "collectives of several GPUs";
    if (!lib.version && !open) return;
    if (nccl_open(NULL)) {
        snprintf(out->why, sizeof out->why, "%s", sk_error_line());
        sk_error_set("");
        return;
    }
    int v = lib.version;
    out->here = true;
    snprintf(out->version, sizeof out->version, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    if (dladdr((void *)lib.ncclGetVersion, &where))
        snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
}

const sk_nccl sk_nccl_cuda = {
    nccl_open,   nccl_id,     nccl_join, nccl_ready, nccl_finish,      nccl_leave,
    nccl_abort,  nccl_begin,  nccl_end,  nccl_sum,   nccl_scatter_sum, nccl_gather,
    nccl_sum_to, nccl_spread, nccl_send, nccl_recv,  nccl_mark,
};
