/* bench_coll.h - `skein bench coll`: collectives by the clock, and calibrating by them. */
#ifndef SK_CLI_BENCH_COLL_H
#define SK_CLI_BENCH_COLL_H

#include "base/arena.h"
#include "base/status.h"

/* The words after `bench coll`. */
sk_status sk_bench_coll(sk_arena *a, int argc, char **argv);

#endif
