/* sparse_stream.h - a vector of rows that are mostly zero, as bytes: cells and messages of
 * parts/coll/sparse.c and parts/coll/sparse_doubling.c.
 *
 * A gradient of an embedding has a row for every word and numbers only in the rows of words that
 * were read.  A packed vector is a head of 16 bytes and then whichever is shorter:
 *
 *     dense    the n values as they are
 *     stream   the numbers of the rows that are not all zero, rising, 4 bytes each (8 where there
 *              are 2^32 rows or more), then the values of these rows, the last row as short as it
 * is
 *
 * in the byte order of the host.  With m rows that are not zero out of n / row, and values of s
 * bytes, the stream is taken while m (4 + row s) < n s: for a row of 64 floats that is up to 98 %
 * of the rows, for single floats up to half.  A row is zero when all its bits are, so -0 and NaN
 * travel and every round trip is exact.  Packing reads the vector once or twice; unpacking writes
 * it once.  No alignment is needed.
 *
 * Streams are added without a dense vector: row numbers are merged, and the sum is a stream again,
 * or dense from where that is as short (SparCML, Renggli et al. 2019).  Rows that one of them does
 * not have are added to zeros, so the sum has the bits of the dense one; rows whose sum is zero
 * stay in it. */
#ifndef SK_COLL_SPARSE_STREAM_H
#define SK_COLL_SPARSE_STREAM_H

#include "base/status.h"
#include "coll/kinds.h"
#include "tensor/dtype.h"

enum { SK_STREAM_HEAD = 16, SK_STREAM_MOST = 256 }; /* most: streams of a sum */
typedef enum sk_stream_kind { SK_STREAM_DENSE, SK_STREAM_ROWS } sk_stream_kind;

/* Most bytes that n values can take. */
int64_t sk_stream_most(sk_dtype type, int64_t n, int64_t row);
/* The same where at most `rows` rows are not zero. */
int64_t sk_stream_room(sk_dtype type, int64_t n, int64_t row, int64_t rows);
/* Returns the bytes written. */
int64_t sk_stream_pack(sk_dtype type, const void *x, int64_t n, int64_t row, void *to);
/* -1: they would be more than `room`, and nothing is written. */
int64_t sk_stream_pack_into(sk_dtype type, const void *x, int64_t n, int64_t row, void *to,
                            int64_t room);
/* Writes all of x, zeros too.  Bytes that cannot be a packed vector of n values in rows of `row`
 * are SK_EPEER; what x then holds is not to be used. */
sk_status sk_stream_unpack(sk_dtype type, const void *from, int64_t bytes, void *x, int64_t n,
                           int64_t row);

/* The bytes of the packed vector of n values that begins at `from`, of which `left` are there.  All
 * of it is checked, so that it can be added; SK_EPEER: it is none. */
sk_status sk_stream_check(sk_dtype type, const void *from, int64_t left, int64_t n, int64_t row,
                          int64_t *bytes);
/* Of one that was checked. */
int64_t sk_stream_bytes(sk_dtype type, const void *from, int64_t n, int64_t row);
/* to = the k streams joined in the order of the tree; `to` is none of them.  Returns its bytes; -1:
 * it needs more than `room`. */
int64_t sk_stream_merge(sk_dtype type, sk_reduce reduce, int k, const void *const *from, int64_t n,
                        int64_t row, void *to, int64_t room);

#endif
