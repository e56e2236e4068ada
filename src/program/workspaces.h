/* workspaces.h - the workspace of a launch on a GPU that needs more than the common one, and of a
 * call between GPUs.
 *
 * NCCL moves contiguous memory.  A member's part of a segment that is not contiguous is packed into
 * the call's workspace before the call, or unpacked from there after it (run/gpu/fabric.h); the
 * workspace lives from start to wait.
 *
 * NCCL adds in an order of its own.  For a sum in deterministic order every member adds up a share:
 * the terms of the other members are received into the workspace, at a fixed stride, and added in
 * the order of coll/call.h's tree. */
#ifndef SK_PROGRAM_WORKSPACES_H
#define SK_PROGRAM_WORKSPACES_H

#include "coll/segment.h"
#include "program/program.h"

/* The share of member i, in elements: of a reduce-scatter its part, of an all-reduce the i-th of p
 * equal parts, of a reduce all of it on the root. */
sk_rows sk_workspace_share(const sk_call_plan *c, const sk_seg *s, int i, int p);
int64_t sk_workspace_stride(const sk_call_plan *c, const sk_seg *s, int me, int p); /* bytes */
/* Bytes for what member `me` of p gives, packed; for what it gets; for all segments of a call. */
int64_t sk_workspace_send(const sk_call_plan *c, const sk_seg *s, int me, int p);
int64_t sk_workspace_recv(const sk_call_plan *c, const sk_seg *s, int me, int p);
int64_t sk_workspace_member(const sk_call_plan *c, int me, int p);
/* The most that any member of the group needs; 0 for most calls. */
int64_t sk_workspace_call(const sk_call_plan *c, int group_size);
/* Bytes of a launch's own workspace, which may begin anywhere; 0: the common one is enough. */
int64_t sk_workspace_launch(const sk_program *p, const sk_inst *in);

#endif
