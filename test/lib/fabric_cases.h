/* fabric_cases.h - for tests: collectives and messages of run/gpu/fabric.h against sums made here.
 *
 * Every kind, parts alike and not, in one run and strided, in place and not, several segments, all
 * types, on groups that overlap; then messages around a ring, everybody sending first.  Numbers are
 * small integers, so that every order of a sum gives the same bits; where the order is fixed they
 * are not, and the bits are those of that order.  The memory of a case is looked
 * at as a whole: what is no result must be as it was. */
#ifndef SK_TEST_FABRIC_CASES_H
#define SK_TEST_FABRIC_CASES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 2 to 4 ranks, threads or processes, all on one device.  `before` is called by each rank that is a
 * process before it touches the device; may be NULL.  Returns how many ranks found a fault. */
int sk_fabric_cases(int n_ranks, const char *device, bool processes, void (*before)(int rank));
/* The last of n processes stays away from a call: the others must end, with an error message that
 * names it.  taped: it was recorded before.  Needs a device that works beside the host. */
int sk_fabric_silent(int n_ranks, const char *device, bool taped, void (*before)(int rank));

#ifdef __cplusplus
}
#endif

#endif
