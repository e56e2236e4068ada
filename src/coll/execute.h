/* execute.h - executing a step list: the way of collectives that are not done directly in the
 * heaps.
 *
 * Messages between ranks of one host go through the heaps: the receiver copies or
 * adds straight out of the sender's memory.  Messages between hosts go over the
 * wire.  An execution is split phase: begin() sends what can be sent, each
 * progress() does what has become possible, without waiting.
 *
 * What the caller has is used where it lies if its chunks are in a row there: one
 * segment, or segments that follow each other, and for what is cut into the
 * members' parts one segment with outer 1 (all-to-all: whose n the members
 * divide; an exchange: the side whose chunks are not interleaved).  Everything else is packed into
 * the workspace of the call first, and unpacked in the end.
 *
 * Sums of bf16 and f16 are rounded wherever a list writes them: at every hop of
 * RECV_SUM and SUM, once in a TREE.  A mean is the sum, divided in the end. */
#ifndef SK_COLL_EXECUTE_H
#define SK_COLL_EXECUTE_H

#include "coll/algorithm.h"
#include "coll/links.h"

/* Bytes of scratch in the heap that a call needs on this member (call->workspace_bytes at least):
 * the cells of SK_TMP, room for what a wire receives before it is added, packed copies of segments
 * that are not one dense stretch.  Known before the start, so it is planned like everything: src
 * and dst of the segments are not looked at. */
int64_t sk_coll_workspace(const sk_coll *c, const sk_coll_ask *a, sk_dtype type, const sk_seg *segs,
                          int n_segs);

/* Bytes that the list of member a->me sends, of a kind whose sizes are known, by an algorithm that
 * has lists and does not pack. */
int64_t sk_coll_sent(const sk_coll *c, const sk_coll_ask *a, sk_dtype type, const sk_seg *segs,
                     int n_segs);

/* What the list of member `me` of these ranks is asked for.  When they sit on several hosts, as
 * many on each and those of a host in a row, the axes are hosts and ranks of a host.  root is
 * ignored by kinds that have none; host_of NULL: one host; links NULL: those of a
 * kind are alike. */
void sk_coll_ask_for(sk_coll_kind kind, const int *ranks, int n, int me, int root,
                     const int *host_of, const sk_links *links, sk_coll_ask *out);

#endif
