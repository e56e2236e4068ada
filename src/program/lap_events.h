/* lap_events.h - what a step of many micro-batches takes of the memory and gives back, in order.
 *
 * A short step is written down: each buffer by its family and its micro-batch (repeats_memory.c).
 * Where its laps do the same, each for the micro-batches behind those of the lap before, one of
 * them stands for as many more as the long step has:
 *
 *     short: begin, lap, lap, lap, end         long: begin, lap, lap + 97 more, lap, end
 *
 * Playing it costs a search for a hole per buffer and nothing else: that is what a lap needs anew,
 * since where its buffers lie depends on all laps before. */
#ifndef SK_PROGRAM_LAP_EVENTS_H
#define SK_PROGRAM_LAP_EVENTS_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_lap_buffer { /* micro < 0: the same in all laps, `family` is its own */
    int family, micro;
} sk_lap_buffer;

typedef struct sk_lap_event {
    int64_t
        bytes; /* above 0: `of` takes them; below: it gives them back; 0: it takes over `from` */
    sk_lap_buffer of, from;
} sk_lap_event;

typedef struct sk_lap_part { /* events that are done 1 + more times */
    int at, n, more;
    int micro; /* to add to micro-batches; each time one more */
} sk_lap_part;

typedef struct sk_lap_events {
    sk_arena *arena;
    sk_lap_event *v;
    int n, cap;
    struct {
        sk_lap_part *v;
        int n, cap;
    } parts;
    int n_micro, n_families; /* of the short step; families of both sorts */
    int begun, shift;        /* of the part that is being written */
} sk_lap_events;

void sk_lap_take(sk_lap_events *e, sk_lap_buffer of, int64_t bytes);
void sk_lap_give(sk_lap_events *e, sk_lap_buffer of, int64_t bytes);
void sk_lap_take_over(sk_lap_events *e, sk_lap_buffer of, sk_lap_buffer from);
/* Ends a section of the program: in the next one micro-batches begin at 0. */
void sk_lap_section(sk_lap_events *e);
/* Of the laps at[0] .. at[n], the last is not yet begun, the middle one stands for `more`; false:
 * those around it differ. */
bool sk_lap_repeat(sk_lap_events *e, const int *at, int n, int more);
/* The bytes of memory; at least `enough` (0: any) ends it. */
int64_t sk_lap_play(sk_arena *tmp, const sk_lap_events *e, int64_t enough);

/* What was played last: ranks of a stage whose programs differ in who owns what do the same. */
typedef struct sk_lap_played {
    sk_arena arena;
    sk_lap_events e;
    int64_t enough, bytes;
} sk_lap_played;

/* As sk_lap_play, but if that was the last. */
int64_t sk_lap_play_once(sk_lap_played *last, const sk_lap_events *e, int64_t enough);
void sk_lap_played_end(sk_lap_played *last);

#endif
