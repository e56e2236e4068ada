/* slots.h - rows of tokens to and from the slots of experts: what four kernels share.
 *
 * A slot is a number, expert * capacity + place, where capacity is the logical size of x; what is
 * negative or too large is no slot, and its row is nowhere.  Slots are "btk" and either real
 * numbers, as an op makes them (exact up to 2^24), or i32, as the samples of the ops have them.
 * Banks of rows are "ebxc" and may be shards of one along any letter: rows of other shards are left
 * out, so that the shards' results add up.  Two tokens in one slot are added up. */
#ifndef SK_KERNEL_SLOTS_H
#define SK_KERNEL_SLOTS_H

#include "kernel/args.h"

enum { SK_MOST_SLOTS = 1 << 24 };

int64_t sk_slot(const sk_view *slot, int64_t i); /* -1: none */

/* The expert of a slot, also of -1 - expert, which is a choice that found its expert full; -1: no
 * slot. */
int64_t sk_slot_expert(const sk_view *slot, int64_t i, int64_t capacity, int64_t experts);

/* The row of a bank that holds the slot, of sequence b of the shard; -1: elsewhere. */
int64_t sk_slot_row(const sk_view *bank, int64_t slot, int64_t b);

/* bank[slot] = the sum of gate * x over the choices that go there, tokens in order; gate may be
 * NULL: 1.  Threads own columns. */
void sk_slots_scatter(const sk_args *a, const sk_view *x, const sk_view *slot, const sk_view *gate,
                      const sk_view *bank);

/* y = the sum of gate * bank[slot] over a token's choices: by the tree over the reduction blocks of
 * e, inside of a reduction block in the order of choice.  Threads own tokens; needs
 * sk_slots_scratch(). */
void sk_slots_gather(const sk_args *a, const sk_view *bank, const sk_view *slot,
                     const sk_view *gate, const sk_view *y);
size_t sk_slots_scratch(const sk_view *slot);

#endif
