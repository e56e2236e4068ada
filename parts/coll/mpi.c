/* mpi.c - the MPI library's own collective, through the wire (comm/wire.h: native).
 *
 * For machines whose vendor tuned its MPI, or whose switches add.  The library chooses how and in
 * which order it adds, so the bits of a sum are those of that library, that version and that
 * number of ranks; nothing else in skein depends on them.  There is no list: nothing to prove,
 * draw or price; measure it.  Blocking: it neither overlaps nor can it be looked after.  bf16 and
 * f16 have no MPI sum. */
#include "coll/algorithm.h"

const sk_coll sk_coll_mpi = {
    .name = "mpi",
    .doc = "the MPI library's own collective, in its own order",
    .cost = "the library's",
    .kinds = 1u << SK_ALLREDUCE | 1u << SK_REDUCE_SCATTER | 1u << SK_ALLGATHER |
             1u << SK_BROADCAST | 1u << SK_REDUCE | 1u << SK_GATHER | 1u << SK_SCATTER |
             1u << SK_ALLTOALL,
    .order = SK_ORDER_OWN,
    .native = true,
    .no_halves = true,
};
