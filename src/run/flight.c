/* flight.c - where a rank is, and its last instructions. */
#include "run/flight.h"
#include "program/class_program.h"

#include <stdio.h>

double sk_flight_newest(const sk_rank_state *line)
{
    unsigned n = atomic_load(&line->ring_n);
    return n ? line->ring[(n - 1) % SK_FLIGHT_RECORDS].at : 0;
}

void sk_flight_print(const sk_program *p, const sk_rank_state *line, double until, sk_out *o)
{
    unsigned n = atomic_load(&line->ring_n),
             from = n > SK_FLIGHT_RECORDS ? n - SK_FLIGHT_RECORDS : 0;
    sk_arena tmp = {0};
    sk_out_add(o, "rank %d, step %lld, waits for %lld\n", p->rank, atomic_load(&line->step) + 1,
               atomic_load(&line->waits_for));
    for (unsigned i = from; i < n; i++) {
        int pc = line->ring[i % SK_FLIGHT_RECORDS].pc;
        double at = line->ring[i % SK_FLIGHT_RECORDS].at;
        sk_out_add(o, "%+12.6f s %s\n", at - until, sk_inst_print(p, pc, &tmp));
    }
    sk_arena_end(&tmp);
}

char *sk_flight_inst(const sk_program *p, int64_t pc, sk_arena *a)
{
    if (!p || pc < 0 || pc >= p->insts.n) return NULL;
    char *text = sk_inst_print(p, (int)pc, a), *to = text;
    for (const char *s = text; *s; s++)
        if (*s != ' ' || (to > text && to[-1] != ' ')) *to++ = *s;
    *to = 0;
    return text;
}

char *sk_flight_place(const sk_program *p, const sk_rank_state *line, sk_arena *a)
{
    long long step = atomic_load(&line->step), pc = atomic_load(&line->pc);
    if (step < 0) return sk_strdup(a, "before the first step");
    if (pc == SK_AT_MEETING)
        return sk_print(a, "after step %lld, at the meeting of replicas", step + 1);
    const char *text = sk_flight_inst(p, pc, a);
    if (!text) text = sk_print(a, "%lld", pc);
    return sk_print(a, "in step %lld, instruction %s", step + 1, text);
}

const char *sk_flight_where(void *book, int rank, int pc)
{
    sk_flight_book *b = book;
    sk_arena tmp = {0};
    const sk_program *p = b->mine && b->mine->rank == rank ? b->mine : b->all ? b->all[rank] : NULL;
    const char *text = p ? sk_flight_inst(sk_program_as(&tmp, p, rank), pc, &tmp) : NULL;
    if (text) snprintf(b->text, sizeof b->text, "%s", text);
    sk_arena_end(&tmp);
    return text ? b->text : NULL;
}
