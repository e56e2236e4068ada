/* class_program.h - one program for all ranks of a class.
 *
 * Ranks of a class (sk_classes) have the same program but for their coordinates: the same
 * instructions, buffers and calls, shards of the same sizes at other places of the logical tensors,
 * groups and peers at the same relative coordinates.  So a job of many ranks compiles one program
 * of each class to plan and to verify with, and every rank compiles its own to run.
 *
 * That does not hold on the CPU if a call is executed as a step list, between hosts or because an
 * algorithm is pinned: the workspace of a list depends on the member (sk_program_stands).
 *
 * `p` is the program of any rank of the class of `rank`. */
#ifndef SK_PROGRAM_CLASS_PROGRAM_H
#define SK_PROGRAM_CLASS_PROGRAM_H

#include "program/program.h"

/* Do classes hold for programs like this one? */
bool sk_program_stands(const sk_program *p);

/* Whom `rank` sends to where p sends to `peer`; -1: peer is no rank. */
int sk_program_peer(const sk_program *p, int rank, int peer);
/* Who is in the group of `rank`, ascending; members has room for n_ranks.  Returns how many. */
int sk_program_members(const sk_program *p, int rank, int group, int *members);
/* The rank whose memory has the shared weights of `rank`. */
int sk_program_weight_owner(const sk_program *p, int rank);
/* p with the number, the coordinates and the peers of `rank`: to print its instructions. */
const sk_program *sk_program_as(sk_arena *a, const sk_program *p, int rank);

/* Do members of a group make the same call?  placed: also on the same reduction blocks
 * (deterministic order). */
bool sk_call_alike(const sk_call_plan *a, const sk_call_plan *b, bool placed);

/* Is `own` the program that p stands for?  Then what sk_verify has proved of p holds for `own`. */
sk_status sk_program_alike(const sk_program *own, const sk_program *p);

#endif
