/* sparse.c - an all-reduce whose messages leave out rows of zeros.
 *
 * SparCML (Renggli et al. 2019), Kylix (Zhao and Canny 2013).  The list is that of `direct`:
 * every chunk is added by its owner in the order of the tree, so the bits are those of every
 * other way and the algorithm may be chosen freely.  What differs is a message: rows that are not
 * zero with their numbers, or all rows where that is shorter (coll/sparse_stream.h).  The switch
 * to dense is made for every message by itself, so nobody has to know the density.
 *
 * A row is what one index stands for: the `inner` of the segment, a word's vector in the gradient
 * of an embedding.  With r rows of `inner` floats, m of them not zero, a message is worth packing
 * while m (4 + 4 inner) < r 4 inner; with rows of one float that is a density of one half.  Of
 * the two rounds the second is the denser one: the owner sends the union of what all sent, so
 * with n members that read different words the gain ends near density 1/n.  Owners add
 * dense chunks: the sum costs what it costs in `direct`.
 *
 * Price: that of dense messages, the most it can be (and 16 bytes a message). */
#include "coll/algorithm.h"

const sk_coll sk_coll_sparse = {
    .name = "sparse",
    .doc = "direct, with rows of zeros left out of messages (Renggli et al. 2019)",
    .cost = "2 a + at most 2S(n-1)/n b",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER | 1u << SK_ALLGATHER,
    .order = SK_ORDER_TREE,
    .build = sk_steps_direct,
    .price = sk_price_direct,
    .packs = true,
};
