/* picture_rate.h - the curve of a range test as SVG, for `skein rate --svg`: losses as dots, the
 * smoothed curve as a line, over a logarithmic axis of rates, with the points that the advice is
 * made of.  Tests count the class "loss" and read data-lr and data-loss. */
#ifndef SK_CLI_PICTURE_RATE_H
#define SK_CLI_PICTURE_RATE_H

#include "train/range_test.h"

sk_status sk_picture_rate(sk_arena *a, const char *title, const sk_range_curve *c,
                          const sk_range_advice *d, const char *path);

#endif
