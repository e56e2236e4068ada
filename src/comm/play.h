/* play.h - playing a step list: the way of collectives that are not done directly in the heaps.
 *
 * Messages between ranks of one host go through the heaps (comm/mail.c): the
 * receiver copies or adds straight out of the sender's memory.  Messages between
 * hosts go over the wire.  A play is split phase: begin() sends what can be
 * sent, each go() does what has become possible, without waiting. */
#ifndef SK_COMM_PLAY_H
#define SK_COMM_PLAY_H

#include "comm/coll.h"

/* Bytes of scratch in the heap that a call needs on this member (call->room_bytes at least): the
 * cells of SK_TMP, room for what a wire receives before it is added, packed copies of segments
 * that are not one dense stretch.  Known before the start, so it is planned like everything. */
int64_t sk_play_room(const sk_coll *c, const sk_coll_ask *a, sk_dtype type, const sk_seg *segs,
                     int n_segs);

#endif
