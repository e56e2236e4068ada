/* nonzero_rows.h - a matrix of which few rows are not zeros, exactly, in bytes of a fixed number.
 *
 * The gradient of a table of words has numbers in the rows of words that were read: at most as
 * many as a rank has tokens.  With rows of `unit` elements and room for `room` of them:
 *
 *     how many | `room` numbers of rows, rising | as many rows in f32
 *
 * the first two in 4 bytes each.  It is a codec of the plan, not one that a layout names: the
 * whole matrix is one row of it.  Elements of room that is not needed are not written. */
#ifndef SK_COLL_NONZERO_ROWS_H
#define SK_COLL_NONZERO_ROWS_H

#include "coll/codec.h"

sk_codec sk_nonzero_rows(int64_t unit, int64_t room);
int64_t sk_nonzero_rows_bytes(const sk_codec *c);
/* More rows than there is room for are a bug of the plan. */
void sk_nonzero_rows_put(const sk_codec *c, const sk_code_row *r, uint8_t *to);
/* Elements [at, at + n) of the matrix. */
void sk_nonzero_rows_get(const sk_codec *c, const uint8_t *from, int64_t at, int64_t n, float *to);

#endif
