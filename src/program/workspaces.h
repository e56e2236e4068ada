/* workspaces.h - the room of a launch on a GPU that needs more than all have, and of a call between
 * GPUs.
 *
 * NCCL moves runs of memory.  Where a member's part of a segment lies in pieces, it is packed into
 * the call's room before, or unpacked from there behind (run/gpu/fabric.h); the plan keeps the room
 * from start to wait.
 *
 * NCCL adds in an order of its own.  Of a sum that is ordered every member adds up a share: what
 * the others have of it comes into the room, one step behind the other, and is added as
 * coll/call.h's tree goes. */
#ifndef SK_PROGRAM_WORKSPACES_H
#define SK_PROGRAM_WORKSPACES_H

#include "coll/segment.h"
#include "program/program.h"

/* The share of member i, in elements: of a reduce-scatter its part, of an all-reduce the i-th of p
 * equal parts, of a reduce all of it on the root. */
sk_rows sk_room_share(const sk_call_plan *c, const sk_seg *s, int i, int p);
int64_t sk_room_step(const sk_call_plan *c, const sk_seg *s, int me, int p); /* bytes */
/* Bytes for what member `me` of p gives, packed; for what it gets; for all segments of a call. */
int64_t sk_room_given(const sk_call_plan *c, const sk_seg *s, int me, int p);
int64_t sk_room_got(const sk_call_plan *c, const sk_seg *s, int me, int p);
int64_t sk_room_of(const sk_call_plan *c, int me, int p);
/* The most that any member of the group needs; 0 for most calls. */
int64_t sk_room_call(const sk_call_plan *c, int group_size);
/* Bytes of a launch's own room, which may begin anywhere; 0: what all have will do. */
int64_t sk_room_launch(const sk_program *p, const sk_inst *in);

#endif
