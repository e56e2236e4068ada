/* fabric.h - collectives and messages of a program between GPUs, by NCCL (device/nccl.h).
 *
 * There is one communicator for every group of several ranks that some call of the program is on,
 * and one for every ordered pair of ranks between which messages go: messages from a to b and from
 * b to a are independent.  Communicators are made in an order that all ranks share, groups by
 * number and then pairs, a few at a time: that cannot deadlock, whatever groups overlap.  Their ids
 * go through rank 0 (sk_comm_small_gather, sk_comm_small_bcast).
 *
 * A call is put on a stream as a whole.  Data that is not contiguous is packed into the workspace,
 * all segments go in one NCCL group (one launch), and what arrived packed is unpacked.
 *
 *     all-reduce                  ncclAllReduce; directly, in place or not
 *     reduce-scatter, all-gather  ncclReduceScatter, ncclAllGather where all parts have one size;
 *                                 else a ncclReduce or ncclBroadcast for each member, of its part.
 *                                 With outer > 1 the whole is packed part by part
 *     broadcast, reduce           ncclBroadcast, ncclReduce
 *     gather, scatter, all-to-all ncclSend and ncclRecv, and a copy of what stays on this rank
 *
 *     sums in fixed order         (order=canonical) every member gets its share of all others, adds
 *                                 them up by the tree of coll/call.h, and sends the sum to all
 *                                 (all-reduce)
 *
 * An all-gather of weights that ranks of a host share is an ordinary one, in place: GPUs share no
 * memory.  All-to-all-v (counts that only the device knows) and adasum are refused when the fabric
 * is opened.
 *
 * Streams.  NCCL blocks a stream until the peers have come to the same call, and calls of one
 * communicator execute in the order in which they were issued.  On the host a call that was started
 * delays no other.  So that the same holds here, and what verify proved (P3) with it, each
 * communicator should have a stream of its own: sk_fabric_stream() for a call,
 * sk_fabric_pair_stream() for messages.  One stream for all calls is correct too, if all ranks
 * start the calls of all groups that they share in one order.  Who waits for whom, `compute` being
 * the stream of the ops:
 *
 *     START   record e on compute; the call's stream waits for e; sk_fabric_start; record
 * done[call] WAIT    compute waits for done[call] SEND    record e on compute; pair_stream(me,
 * peer) waits for e; sk_fabric_send; record sent[k] SENT    compute waits for sent[count - 1] of
 * that peer, before it writes the buffer again RECV    record e on compute; pair_stream(peer, me)
 * waits for e (the buffer may be in use until then); sk_fabric_recv; record r; compute waits for r
 *
 * A workspace belongs to one stream at a time: calls on different streams need their own.
 *
 * CUDA graphs.  NCCL connects at the first call of its kind, on the host, with the peers.  So every
 * call must have been made once before a step is captured: sk_fabric_warm_up(), while no buffer
 * holds anything of value.  More than 8 streams share hardware queues, where a waiting call delays
 * a stream that has nothing to do with it: set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA is
 * initialised.  And a kernel that is loaded at its first launch waits for the whole device, which
 * may wait for a peer: CUDA_MODULE_LOADING=EAGER, or launch every kernel once before.
 *
 * Hangs.  While the host waits for a step it calls sk_fabric_watch() several times a second.  Each
 * communicator marks in host memory where its stream is, so that the error report names the call.
 * After a failure sk_fabric_abort() ends what is on the device: the streams then come to their end.
 */
#ifndef SK_RUN_FABRIC_H
#define SK_RUN_FABRIC_H

#include "comm/comm.h"
#include "device/device.h"
#include "kernel/kernel_launch.h"
#include "program/program.h"

typedef struct sk_fabric sk_fabric;

/* All ranks call it together.  timeout_s: the longest that anything may take; 0: no limit. */
sk_status sk_fabric_open(sk_arena *a, const sk_program *p, sk_device *d, sk_comm *comm,
                         double timeout_s, sk_fabric **out);
/* NULL is fine.  All streams are synced, or it was aborted.  CUDA graphs of the device are closed,
 * here and in sk_fabric_abort(): NCCL would wait for that. */
void sk_fabric_close(sk_fabric *f);
void sk_fabric_watch_heaps(sk_fabric *f,
                           const sk_heaps *h); /* from now on waits check whether it is aborted */

/* Puts the whole call on l->stream; buffers lie at base + offset.  l->workspace_bytes is checked.
 */
sk_status sk_fabric_start(sk_fabric *f, int call, char *base, const sk_launch *l);
sk_status sk_fabric_send(sk_fabric *f, int peer, const void *data, int64_t bytes, int64_t tag,
                         void *stream);
sk_status sk_fabric_recv(sk_fabric *f, int peer, void *data, int64_t bytes, int64_t tag,
                         void *stream);

sk_stream *sk_fabric_stream(const sk_fabric *f, int call); /* of the call's communicator */
sk_stream *sk_fabric_pair_stream(const sk_fabric *f, int from, int to); /* one of them is me */

/* Every call and every pair once, communicator by communicator, on l->stream; all ranks call it
 * together.  Returns when it is done. */
sk_status sk_fabric_warm_up(sk_fabric *f, char *base, const sk_launch *l);

/* Fails if a communicator is broken, a peer has failed, or a call has been under way for timeout_s
 * while no other began or ended. */
sk_status sk_fabric_watch(sk_fabric *f);
void sk_fabric_abort(sk_fabric *f); /* of this rank alone; nothing may be started afterwards */

#endif
