/* sparse_stream.h - a vector of rows that are mostly zero, as bytes: the messages of
 * parts/coll/sparse.c.
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
 * it once.  No alignment is needed. */
#ifndef SK_COLL_SPARSE_STREAM_H
#define SK_COLL_SPARSE_STREAM_H

#include "base/status.h"
#include "tensor/dtype.h"

enum { SK_STREAM_HEAD = 16 };
typedef enum sk_stream_kind { SK_STREAM_DENSE, SK_STREAM_ROWS } sk_stream_kind;

/* Most bytes that n values can take. */
int64_t sk_stream_most(sk_dtype type, int64_t n, int64_t row);
/* Returns the bytes written. */
int64_t sk_stream_pack(sk_dtype type, const void *x, int64_t n, int64_t row, void *to);
/* Writes all of x, zeros too.  Bytes that cannot be a packed vector of n values in rows of `row`
 * are SK_EPEER; what x then holds is not to be used. */
sk_status sk_stream_unpack(sk_dtype type, const void *from, int64_t bytes, void *x, int64_t n,
                           int64_t row);

#endif
