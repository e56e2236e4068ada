/* direct.c - everything straight from where it is to where it belongs.
 *
 * An all-reduce in two rounds: every member gets its chunk from all others and adds
 * them in the order of the tree, then sends the sum to all.  Fewest rounds and
 * fewest bytes, but n - 1 messages of a member are under way at once: for few
 * members, or for networks that like many small messages. */
#include "coll/algorithm.h"

const sk_coll sk_coll_direct = {
    .name = "direct",
    .doc = "everybody with everybody at once, sums by the owner of a chunk; any n",
    .cost = "2 a + 2S(n-1)/n b",
    .kinds = (1u << SK_N_COLLS) - 1,
    .order = SK_ORDER_TREE,
    .build = sk_steps_direct,
    .price = sk_price_direct,
};
