/* fuse.h - sums that are cast, scaled and measured before they leave the cache.
 *
 * Blocks of every source are widened to f32 (f64 stays), added in the order of the
 * tree, scaled, measured, narrowed and stored.  Memory is passed over once, as by
 * sk_sum(); what is added is a little work on numbers that lie in the first cache. */
#ifndef SK_COMM_FUSE_H
#define SK_COMM_FUSE_H

#include "comm/comm.h"

bool sk_fuse_wanted(const sk_coll_call *call);
sk_status sk_fuse_check(const sk_coll_call *call);
sk_dtype sk_fuse_type(const sk_coll_call *call); /* of dst */
/* Adds to *note. */
void sk_fuse(const sk_coll_call *call, int n_src, const void *const *src, int n_dst,
             void *const *dst, int64_t n, sk_partial *note);

#endif
