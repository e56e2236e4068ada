/* ssp.c - stale synchronous parallel (Ho et al. 2013): each rank updates the weights when it has a
 * gradient, and may be S steps ahead of the slowest. */
#include "program/sync.h"

const sk_sync sk_sync_ssp = {
    .name = "ssp",
    .doc = "bounded staleness: each rank updates alone, at most S steps ahead of the slowest",
    .kind = SK_SYNC_STALE,
    .usual = 3,
    .alias = {{"stale_synchronous_parallel bounded_staleness parameter_server ps", "ssp:3"},
              {"async asgd async_sgd asynchronous hogwild", "ssp:inf"}},
};
