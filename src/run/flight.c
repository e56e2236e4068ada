/* flight.c - the last instructions of a rank. */
#include "run/flight.h"

double sk_flight_newest(const sk_line *line)
{
    unsigned n = atomic_load(&line->ring_n);
    return n ? line->ring[(n - 1) % SK_RING].at : 0;
}

void sk_flight_print(const sk_program *p, const sk_line *line, double until, sk_out *o)
{
    unsigned n = atomic_load(&line->ring_n), from = n > SK_RING ? n - SK_RING : 0;
    sk_arena tmp = {0};
    sk_out_add(o, "rank %d, step %lld, waits for %lld\n", p->rank, atomic_load(&line->step) + 1,
               atomic_load(&line->waits_for));
    for (unsigned i = from; i < n; i++) {
        int pc = line->ring[i % SK_RING].pc;
        double at = line->ring[i % SK_RING].at;
        sk_out_add(o, "%+12.6f s %s\n", at - until, sk_inst_print(p, pc, &tmp));
    }
    sk_arena_end(&tmp);
}
