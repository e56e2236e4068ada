/* fabric.h - collectives and messages of a program between GPUs, by NCCL (device/nccl.h).
 *
 * One circle (an NCCL communicator) for every group of several ranks that some call of the program
 * is on, and one for every ordered pair of ranks between which messages go: those from a to b and
 * those from b to a have nothing to do with each other.  Circles are made in an order that all
 * ranks share, groups by number and then pairs, a few at a time: that cannot jam, whatever groups
 * overlap.  Their ids go through rank 0 (sk_comm_small_gather, sk_comm_small_bcast).
 *
 * A call is put on a stream as a whole: what does not lie in one run is packed into the room, all
 * segments go in one NCCL group (one launch), and what came packed is unpacked.
 *
 *     all-reduce                  ncclAllReduce; directly, in place or not
 *     reduce-scatter, all-gather  ncclReduceScatter, ncclAllGather where all parts are alike; else
 *                                 a ncclReduce or ncclBroadcast for each member, of its part.  With
 *                                 outer > 1 the whole is packed part by part
 *     broadcast, reduce           ncclBroadcast, ncclReduce
 *     gather, scatter, all-to-all ncclSend and ncclRecv, and a copy of what stays here
 *
 *     sums that are ordered       (canonical) every member is sent its share by all others, adds up
 *                                 what came as comm.h's tree goes, and tells all (all-reduce)
 *
 * A common all-gather (weights that ranks of a host have in one memory) is an ordinary one, in
 * place: GPUs have none in common.  All-to-all-v (counts that only the device knows) and adasum are
 * refused when the fabric is opened.
 *
 * Streams.  NCCL blocks a stream until the peers have come to the same call, and calls of one
 * circle happen in the order in which they are put there.  On the host a call that was started
 * stands in nobody's way; so that it is the same here, and what verify proved (P3) holds, each
 * circle should have a stream of its own: sk_fabric_stream() for a call, sk_fabric_pair_stream()
 * for messages.  One stream for all calls is right too, if all ranks start the calls of all groups
 * they share in one order.  Who waits for whom, compute being the stream of the ops:
 *
 *     START   record e on compute; circle's stream waits for e; sk_fabric_start; record done[call]
 *     WAIT    compute waits for done[call]
 *     SEND    record e on compute; way(me, peer) waits for e; sk_fabric_send; record sent[k]
 *     SENT    compute waits for sent[count - 1] of that peer, before it writes the buffer again
 *     RECV    record e on compute; way(peer, me) waits for e (the buffer may be in use until
 *             then); sk_fabric_recv; record r; compute waits for r
 *
 * A room belongs to one stream at a time: calls on different streams need rooms of their own.
 *
 * Recording.  NCCL connects at the first call of its kind, on the host, with the peers; so before a
 * step is recorded every call must have been made once: sk_fabric_warm_up(), while nothing of value
 * is in any buffer.  More than 8 streams share hardware queues, where a waiting call holds up a
 * stream that has nothing to do with it: set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA is touched.
 * And a kernel that is loaded at its first launch waits for the whole device, which may wait for a
 * peer: CUDA_MODULE_LOADING=EAGER, or launch every kernel once before.
 *
 * Silence.  While the host waits for a step it calls sk_fabric_watch() several times a second; each
 * circle marks in the host's memory where its stream is, so that the story names the call.  After a
 * failure sk_fabric_abort() ends what is on the device: the streams then come to their end. */
#ifndef SK_RUN_FABRIC_H
#define SK_RUN_FABRIC_H

#include "comm/comm.h"
#include "device/device.h"
#include "kernel/kernel_launch.h"
#include "program/program.h"

typedef struct sk_fabric sk_fabric;

/* All ranks come here together.  timeout_s: the longest that anything may take; 0: no limit. */
sk_status sk_fabric_open(sk_arena *a, const sk_program *p, sk_device *d, sk_comm *comm,
                         double timeout_s, sk_fabric **out);
/* NULL is fine.  All streams are synced, or it was aborted.  Tapes of the device are closed, here
 * and in sk_fabric_abort(): NCCL would wait for that. */
void sk_fabric_close(sk_fabric *f);
void sk_fabric_watch_heaps(sk_fabric *f,
                           const sk_heaps *h); /* from now on waits look at its abort word */

/* The whole call onto l->stream; buffers lie at base + offset; l->workspace_bytes are looked at. */
sk_status sk_fabric_start(sk_fabric *f, int call, char *base, const sk_launch *l);
sk_status sk_fabric_send(sk_fabric *f, int peer, const void *data, int64_t bytes, int64_t tag,
                         void *stream);
sk_status sk_fabric_recv(sk_fabric *f, int peer, void *data, int64_t bytes, int64_t tag,
                         void *stream);

sk_stream *sk_fabric_stream(const sk_fabric *f, int call);              /* of the call's circle */
sk_stream *sk_fabric_pair_stream(const sk_fabric *f, int from, int to); /* one of them is me */

/* Every call and every way once, circle by circle, on l->stream; all ranks come here together.
 * Returns when it is done. */
sk_status sk_fabric_warm_up(sk_fabric *f, char *base, const sk_launch *l);

/* Fails if a circle is broken, a peer has failed, or a call has been under way for timeout_s while
 * no other began or ended. */
sk_status sk_fabric_watch(sk_fabric *f);
void sk_fabric_abort(sk_fabric *f); /* needs nobody else; nothing may be started afterwards */

#endif
