/* nccl.h - the interface to NCCL, NVIDIA's library of collectives between GPUs.
 *
 * The library is opened when the first run with several GPUs asks for it (libnccl.so.2, 2.18 or
 * newer) and nothing is linked: the same program runs where it is missing.  src/device/nccl.cu
 * fills one sk_nccl; libskein asks for it weakly, like for all of skein_cuda.
 *
 * A circle is a communicator: n members that make the same calls in the same order.  Circles never
 * hold their caller (NCCL's blocking = 0): join() and end() begin something, and ready() says
 * whether it is there.  Until it is, nothing else may be asked of the circle, nor may anything be
 * put on the stream behind it: NCCL's own thread is still putting the call there.
 *
 *     SK_TRY(x->begin());
 *     SK_TRY(x->sum(circle, src, dst, n, SK_BF16, SK_NCCL_SUM, stream));    and more of them
 *     SK_TRY(x->end());                                        one launch for all of the group
 *     do SK_TRY(x->ready(circle, &yes)); while (!yes);
 *
 * Addresses are the device's; n counts elements; `stream` is a cudaStream_t.  NCCL adds bf16 and
 * f16 two at a time in f32 and rounds after each member, in an order of its own: sums of a run
 * repeat on the same machine, but are not those of the host (coll/sum_kernels.c).
 *
 * A circle whose calls are in a device graph (device.h) can only be left when the graph is closed:
 * NCCL waits for that.  `name` must live as long as the circle.
 *
 * Waiting for ever: abort() ends what a circle has on the device, whatever the others do. */
#ifndef SK_DEVICE_NCCL_H
#define SK_DEVICE_NCCL_H

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_NCCL_ID = 128 }; /* bytes of an id: what members need to find each other */

typedef enum sk_nccl_op { SK_NCCL_SUM, SK_NCCL_MAX, SK_NCCL_MIN, SK_NCCL_MEAN } sk_nccl_op;

typedef struct sk_nccl_comm sk_nccl_comm; /* has an ncclComm_t */

typedef struct sk_nccl {
    /* The library, once a process; *version is 22809 for 2.28.9.  May be NULL. */
    sk_status (*open)(int *version);
    sk_status (*id)(char id[SK_NCCL_ID]); /* made by one member, told to all */
    sk_status (*join)(int device, int n, int me, const char id[SK_NCCL_ID], const char *name,
                      sk_nccl_comm **out);
    sk_status (*ready)(sk_nccl_comm *c, bool *yes); /* fails when the circle is broken */
    sk_status (*finish)(sk_nccl_comm *c);           /* begins to: what it has to do is done first */
    void (*leave)(sk_nccl_comm *c);                 /* when finish() is ready */
    void (*abort)(sk_nccl_comm *c);                 /* at once, instead of finish() and leave() */

    sk_status (*begin)(void);
    sk_status (*end)(void);
    sk_status (*sum)(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                     sk_nccl_op op, void *stream);
    /* n is of one part, all parts are alike: part i of src becomes dst of member i; src becomes
     * part i of dst. */
    sk_status (*scatter_sum)(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                             sk_nccl_op op, void *stream);
    sk_status (*gather)(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                        void *stream);
    /* Of kinds with a root, the address that is only the root's may be anything elsewhere. */
    sk_status (*sum_to)(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                        sk_nccl_op op, int root, void *stream);
    sk_status (*spread)(sk_nccl_comm *c, const void *src, void *dst, int64_t n, sk_dtype t,
                        int root, void *stream);
    sk_status (*send)(sk_nccl_comm *c, const void *src, int64_t bytes, int to, void *stream);
    sk_status (*recv)(sk_nccl_comm *c, void *dst, int64_t bytes, int from, void *stream);

    /* *word = value when the stream comes here; the word is pinned memory of the host. */
    sk_status (*mark)(int64_t *word, int64_t value, void *stream);
} sk_nccl;

extern const sk_nccl sk_nccl_cuda;

#ifdef __cplusplus
}
#endif

#endif
