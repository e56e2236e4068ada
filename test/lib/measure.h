/* measure.h - for tests: what the programs of all ranks need, in the units of sk_lowers. */
#ifndef SK_TEST_MEASURE_H
#define SK_TEST_MEASURE_H

#include "layout/word.h"
#include "program/program.h"

/* Fills out[SK_N_LOWERS]: bytes are sums over all ranks, flops those of the rank that has most,
 * waiting is a sum over ranks on a simulated machine that has rates and no latencies. */
sk_status sk_measure(sk_arena *a, sk_program **programs, int n_ranks, double out[SK_N_LOWERS]);

#endif
