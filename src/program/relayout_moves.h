/* relayout_moves.h - weights and state of a run, moved from one layout to another: a list of
 * copies, planned in advance.
 *
 * Weights, the optimizer's state and memories are where the old programs have them, and must go to
 * where the new ones have them, in the same heaps.  For every kept buffer of the new program a rank
 * needs a box; it takes each part of it from a rank that has it already: itself, else the owner on
 * its host, else any rank of its host, else the owner.  What two boxes have in common is a
 * rectangle, so a copy is a strided one.  Error feedback has several terms of a sum, and their
 * number may change: old term k of n is added to term k*m/n of the m new ones.
 *
 * Old and new places overlap, so the new state is first collected in a staging area, and copied to
 * its place when all ranks have collected theirs:
 *
 *     heap   | old program           |
 *            | new program      |
 *                                    | stage | messages out | the largest message in |
 *                                    stage_at  out_at         in_at                  end
 *
 * Ranks of one host copy out of each other's heaps.  Between hosts all that one rank
 * needs of another is one message: the copies with that `from`, packed in their order.
 *
 *     all meet;  sk_move_gather, and between hosts pack, send, receive, unpack;  all meet;
 *     sk_move_place
 *
 * Everything here is a function of programs and memory: nothing waits, nothing is allocated while
 * moving, and a test needs no ranks. */
#ifndef SK_PROGRAM_RELAYOUT_MOVES_H
#define SK_PROGRAM_RELAYOUT_MOVES_H

#include "program/program.h"

typedef struct sk_move_copy {
    bool add;         /* add f32 numbers to what is there */
    int from;         /* rank */
    int64_t src, dst; /* first byte: in the heap of that rank; in the staging area of this one */
    int n;            /* dims outside of a run, the slowest first */
    int64_t count[SK_MAX_DIM], src_step[SK_MAX_DIM], dst_step[SK_MAX_DIM]; /* strides in bytes */
    int64_t run; /* bytes that are contiguous in both */
} sk_move_copy;

typedef struct sk_move_spot { /* from the staging area to where the new program has it */
    int64_t from, to, bytes;
    bool zero; /* before anything is added to it in the staging area */
} sk_move_spot;

typedef struct sk_move { /* of one rank */
    struct {
        sk_move_copy *v;
        int n, cap;
    } copies;
    struct {
        sk_move_spot *v;
        int n, cap;
    } spots;
    int64_t stage_at, out_at, in_at, end; /* in the heap; end: bytes that the move needs */
    int64_t own, near, far; /* bytes taken from itself, from ranks of its host, of others */
} sk_move;

typedef struct sk_moves {
    int n_ranks;
    const int *host_of; /* rank -> host; NULL: one host */
    sk_move *v;         /* by rank */
} sk_moves;

/* from, to: verified programs of all ranks, of one model and one optimizer.  A byte of the new
 * state that no rank has under the old layout is an error. */
sk_status sk_moves_make(sk_arena *a, const sk_program *const *from, const sk_program *const *to,
                        int n_ranks, const int *host_of, sk_moves *out);

bool sk_moves_far(const sk_moves *m, int a, int b); /* these two share no memory */
/* Copies all that ranks of this host have to the staging area.  heaps[r]: NULL for ranks of other
 * hosts. */
void sk_move_gather(const sk_moves *m, int rank, char *const *heaps);
/* The message of rank `from` to rank `to`: its bytes; written from the heap of `from`; read into
 * the staging area of `to`. */
int64_t sk_move_bytes(const sk_moves *m, int from, int to);
void sk_move_pack(const sk_moves *m, int from, int to, const char *heap, char *message);
void sk_move_unpack(const sk_moves *m, int from, int to, char *heap, const char *message);
/* From the staging area into place; no rank may read the old state any more. */
void sk_move_place(const sk_moves *m, int rank, char *heap);

#endif
