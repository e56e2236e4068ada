/* shm.c - the ranks of one host read and write each other's heaps.
 *
 * Not executed: coll/shm_collectives.c does it without messages.  What it does is what the list
 * of `direct` says, with loads and stores for messages: every member sums its share
 * over all in the order of the tree and stores it to all. */
#include "coll/algorithm.h"

const sk_coll sk_coll_shm = {
    .name = "shm",
    .doc = "directly in the heaps of one host: no copies, no messages; any n",
    .cost = "2 a + 2S(n-1)/n b",
    .kinds = (1u << SK_N_COLLS) - 1,
    .order = SK_ORDER_TREE,
    .build = sk_steps_direct,
    .price = sk_price_direct,
    .native = true,
    .heaps = true,
};
