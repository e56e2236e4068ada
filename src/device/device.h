/* device.h - where tensors live and where kernels run: a memory, streams, events.
 *
 * A rank opens one device by name ("cuda", "cuda:1"), takes one pool of as many bytes as
 * its memory plan says, opens its streams and events, and then only copies and launches: nothing
 * is allocated during a run.  Pools, streams and events that are still open go with the device.
 *
 *     sk_device *d;
 *     SK_TRY(sk_device_open("cuda:0", &d));
 *     SK_TRY(sk_pool_open(d, plan_bytes, &base));
 *     SK_TRY(sk_stream_open(d, &compute));
 *     SK_TRY(sk_device_copy(d, base, tokens, bytes, compute));    host to device
 *     SK_TRY(kernel->launch(&args, compute));                     kernel/kernel_launch.h
 *     SK_TRY(sk_stream_sync(d, compute));
 *
 * What is given to a stream happens in that order; between streams nothing is ordered but by
 * events.  A call may return before its work is done, so memory that it reads or writes must be
 * left alone until sk_stream_sync() or an event says so.  A failure of the work itself (a kernel
 * that went astray) is told by a later call, at the latest by sk_stream_sync(); after it the
 * device takes no more work.
 *
 * One device per rank and one thread that speaks to it: the thread that opened it.  Kernels are
 * launched from that thread; copies and events may also be given by another one, to streams that
 * are its own.
 *
 * An implementation is one sk_device_kind.  src/device/cuda.cu is in the program if skein_cuda was
 * linked, and without it the name "cuda" is refused with a sentence; so the same sources, and with
 * skein_cuda the same program, run with and without a GPU. */
#ifndef SK_DEVICE_DEVICE_H
#define SK_DEVICE_DEVICE_H

#include "base/arena.h"
#include "base/status.h"
#include "device/library.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_device sk_device;
typedef struct sk_stream sk_stream; /* the kind's own handle: a cudaStream_t, say */
typedef struct sk_event sk_event;
typedef struct sk_device_graph sk_device_graph;

typedef struct sk_device_facts {
    char model[128];          /* "NVIDIA H200" */
    int64_t bytes;            /* of memory */
    int64_t available;        /* of these, to anybody who asks now */
    bool same_memory_as_host; /* the host may read and write pools directly */
    /* Of a GPU; 0 and "" where it is not known: */
    char uuid[48];       /* of this piece of hardware: "GPU-12345678-..." */
    int capability;      /* 90 is sm_90 */
    int driver, runtime; /* CUDA that the driver knows, CUDA that is linked: 13000 is 13.0 */
    double flops[2];     /* a second in products of matrices: of bf16 or f16, of f32 */
    double bytes_s;      /* a second from and to its memory, as built */
} sk_device_facts;

enum { SK_PEAK_NARROW, SK_PEAK_F32, SK_MAX_LIBRARIES = 4 };

sk_status sk_device_open(const char *name, sk_device **out);
void sk_device_close(sk_device *d); /* NULL is fine */
/* How many of a kind ("cuda") this host has; 0 if there is none, or no such kind. */
int sk_device_count(const char *kind);
bool sk_device_known(const char *kind); /* is the kind in this program? */
/* The libraries of a kind: those that are open, or, with `open`, all, tried.  Returns how many. */
int sk_device_libraries(const char *kind, bool open, sk_device_library out[SK_MAX_LIBRARIES]);
const char *sk_device_name(const sk_device *d);
/* For a thread that prepares something for the device beside the one that speaks to it. */
sk_status sk_device_enter(sk_device *d);
sk_status sk_device_look(sk_device *d, sk_device_facts *out);

/* Memory for the plan's offsets: aligned to 256 bytes or better; what it holds is undefined. */
sk_status sk_pool_open(sk_device *d, size_t bytes, void **base);
void sk_pool_close(sk_device *d, void *base);

/* Memory of the host that copies go to and from at full speed, without holding the caller. */
sk_status sk_pinned_open(sk_device *d, size_t bytes, void **base);
/* The same of memory that is there already; it stays so until the device is closed. */
sk_status sk_pin(sk_device *d, void *base, size_t bytes);

/* Host to device, device to host, device to itself: the addresses tell.  The two ranges must not
 * overlap.  Host memory that is not pinned may hold the caller until the copy is done. */
sk_status sk_device_copy(sk_device *d, void *to, const void *from, size_t bytes, sk_stream *s);

sk_status sk_device_zero(sk_device *d, void *to, size_t bytes, sk_stream *s);

sk_status sk_stream_open(sk_device *d, sk_stream **out);
sk_status sk_stream_sync(sk_device *d, sk_stream *s); /* until all it was given is done */

sk_status sk_stream_done(sk_device *d, sk_stream *s, bool *out); /* is it?  Does not wait. */

/* A device graph (a CUDA graph): what is given to a stream, and to streams that wait for events of
 * it, is recorded instead of done, and launched again and again with one call.  Not every kind of
 * device can. */
sk_status sk_device_graph_begin(sk_device *d, sk_stream *s);
sk_status sk_device_graph_end(sk_device *d, sk_stream *s, sk_device_graph **out);
sk_status sk_device_graph_launch(sk_device *d, sk_device_graph *t, sk_stream *s);

/* An event is a place in a stream: what was given before the latest record. */
sk_status sk_event_open(sk_device *d, sk_event **out);
sk_status sk_event_record(sk_device *d, sk_event *e, sk_stream *s);
sk_status sk_event_wait(sk_device *d, sk_event *e, sk_stream *s); /* later work of s waits for e */
sk_status sk_event_done(sk_device *d, sk_event *e, bool *out);    /* is it behind us?  No wait. */
/* A record for the clock: in a device graph it is made anew at every launch.  Nobody waits for
 * it. */
sk_status sk_event_mark(sk_device *d, sk_event *e, sk_stream *s);
/* Seconds between two recorded places that are behind us: sync first.  In a device graph, marks
 * only. */
sk_status sk_event_seconds(sk_device *d, sk_event *from, sk_event *to, double *out);

/* ---- for those who write a kind */

typedef struct sk_device_kind {
    const char *name; /* what stands before the colon */
    sk_status (*open)(sk_device *d);
    sk_status (*look)(sk_device *d, sk_device_facts *out); /* *out is zeroed */
    sk_status (*pool_open)(sk_device *d, size_t bytes, void **base);
    void (*pool_close)(sk_device *d, void *base, size_t bytes);
    sk_status (*copy)(sk_device *d, void *to, const void *from, size_t bytes, sk_stream *s);
    sk_status (*stream_open)(sk_device *d, sk_stream **out);
    void (*stream_close)(sk_device *d, sk_stream *s);
    sk_status (*stream_sync)(sk_device *d, sk_stream *s);
    sk_status (*event_open)(sk_device *d, sk_event **out);
    void (*event_close)(sk_device *d, sk_event *e);
    sk_status (*event_record)(sk_device *d, sk_event *e, sk_stream *s);
    sk_status (*event_wait)(sk_device *d, sk_event *e, sk_stream *s);
    sk_status (*event_seconds)(sk_device *d, sk_event *from, sk_event *to, double *out);
    sk_status (*zero)(sk_device *d, void *to, size_t bytes, sk_stream *s);
    sk_status (*stream_done)(sk_device *d, sk_stream *s, bool *out);
    /* of a device that does not share the host's memory; NULL otherwise */
    sk_status (*pinned_open)(sk_device *d, size_t bytes, void **base);
    void (*pinned_close)(sk_device *d, void *base);
    sk_status (*pin)(sk_device *d, void *base, size_t bytes);
    void (*unpin)(sk_device *d, void *base);
    sk_status (*graph_begin)(sk_device *d, sk_stream *s);
    sk_status (*graph_end)(sk_device *d, sk_stream *s, sk_device_graph **out);
    sk_status (*graph_launch)(sk_device *d, sk_device_graph *t, sk_stream *s);
    void (*graph_close)(sk_device *d, sk_device_graph *t);
    int (*count)(void);               /* of this kind on the host; NULL: one */
    sk_status (*enter)(sk_device *d); /* NULL: there is nothing to do */
    sk_status (*event_mark)(sk_device *d, sk_event *e, sk_stream *s); /* NULL: as event_record */
    int (*tools)(bool open, sk_device_library *out);                  /* NULL: none */
    sk_status (*event_done)(sk_device *d, sk_event *e, bool *out);
} sk_device_kind;

typedef struct sk_pool {
    void *base; /* NULL: closed */
    size_t bytes;
} sk_pool;

struct sk_device {
    const sk_device_kind *kind;
    char name[24]; /* "cuda:0" */
    int index;
    sk_arena arena; /* the device itself and what it lists */
    struct {
        sk_pool *v;
        int n, cap;
    } pools;
    struct {
        sk_stream **v;
        int n, cap;
    } streams;
    struct {
        sk_event **v;
        int n, cap;
    } events;
    struct {
        sk_device_graph **v;
        int n, cap;
    } graphs;
    struct {
        void **v;
        int n, cap;
    } pinned, pins; /* opened here; there before */
};

extern const sk_device_kind sk_device_cpu, sk_device_cuda;

#ifdef __cplusplus
}
#endif

#endif
