/* lap_events.c - see lap_events.h. */
#include "program/lap_events.h"
#include "program/holes.h"

#include <string.h>

enum { ALIKE = 10 }; /* laps: operands reach four micro-batches to either side (repeats_memory.c) */

static sk_lap_event *add(sk_lap_events *e, sk_lap_buffer of)
{
    sk_lap_event *x = sk_push(e->arena, e);
    *x = (sk_lap_event){.of = of};
    return x;
}

void sk_lap_take(sk_lap_events *e, sk_lap_buffer of, int64_t bytes)
{
    if (bytes) add(e, of)->bytes = bytes;
}

void sk_lap_give(sk_lap_events *e, sk_lap_buffer of, int64_t bytes)
{
    if (bytes) add(e, of)->bytes = -bytes;
}

void sk_lap_take_over(sk_lap_events *e, sk_lap_buffer of, sk_lap_buffer from)
{
    add(e, of)->from = from;
}

/* --- parts --- */

static void end_part(sk_lap_events *e, int at, int more)
{
    *(sk_lap_part *)sk_push(e->arena, &e->parts) =
        (sk_lap_part){e->begun, at - e->begun, more, e->shift};
    e->begun = at;
    e->shift += more;
}

void sk_lap_section(sk_lap_events *e)
{
    end_part(e, e->n, 0);
    e->shift = 0;
}

static bool same_buffer(sk_lap_buffer x, sk_lap_buffer later)
{
    return x.family == later.family && x.micro + (x.micro >= 0) == later.micro;
}

static bool same_lap(const sk_lap_events *e, int at, int later, int n)
{
    for (int i = 0; i < n; i++) {
        const sk_lap_event *x = &e->v[at + i], *y = &e->v[later + i];
        if (x->bytes != y->bytes || !same_buffer(x->of, y->of)) return false;
        if (!x->bytes && !same_buffer(x->from, y->from)) return false;
    }
    return true;
}

bool sk_lap_repeat(sk_lap_events *e, const int *at, int n, int more)
{
    int first = (n - ALIKE) / 2, middle = n / 2;
    if (n < ALIKE) return false;
    for (int k = first; k + 1 < first + ALIKE; k++) {
        int each = at[k + 1] - at[k];
        if (at[k + 2] - at[k + 1] != each || !same_lap(e, at[k], at[k + 1], each)) return false;
    }
    end_part(e, at[middle], 0);
    end_part(e, at[middle + 1], more);
    return true;
}

/* --- playing --- */

typedef struct player {
    const sk_lap_events *e;
    sk_holes holes;
    int64_t *at; /* [family * wide + micro mod wide] */
    unsigned wide;
} player;

static int64_t *where(const player *p, sk_lap_buffer b, int shift)
{
    unsigned micro = b.micro < 0 ? 0 : (unsigned)(b.micro + shift) & (p->wide - 1);
    return &p->at[(size_t)b.family * p->wide + micro];
}

static void play_once(player *p, const sk_lap_part *part, int shift)
{
    for (int i = part->at; i < part->at + part->n; i++) {
        const sk_lap_event *x = &p->e->v[i];
        int64_t *at = where(p, x->of, shift);
        if (x->bytes > 0) *at = sk_holes_take(&p->holes, x->bytes);
        else if (x->bytes < 0) sk_holes_give(&p->holes, *at, -x->bytes);
        else *at = *where(p, x->from, shift);
    }
}

/* All that live at one time are of fewer micro-batches than the short step has. */
int64_t sk_lap_play(sk_arena *tmp, const sk_lap_events *e, int64_t enough)
{
    player p = {.e = e, .holes.arena = tmp, .wide = 1};
    while (p.wide < (unsigned)e->n_micro) p.wide *= 2;
    p.at = sk_many(tmp, int64_t, (int64_t)e->n_families * p.wide + 1);
    for (int i = 0; i < e->parts.n; i++) {
        const sk_lap_part *part = &e->parts.v[i];
        for (int k = 0; k <= part->more; k++) {
            play_once(&p, part, part->micro + k);
            if (enough && p.holes.top >= enough) return p.holes.top;
        }
    }
    return p.holes.top;
}

/* --- once --- */

static bool same_parts(const sk_lap_events *x, const sk_lap_events *y)
{
    return x->parts.n == y->parts.n &&
           !memcmp(x->parts.v, y->parts.v, sizeof *x->parts.v * (size_t)x->parts.n);
}

static bool same(const sk_lap_events *x, const sk_lap_events *y)
{
    return x->n && x->n == y->n && x->n_micro == y->n_micro && x->n_families == y->n_families &&
           same_parts(x, y) && !memcmp(x->v, y->v, sizeof *x->v * (size_t)x->n);
}

static void *copy(sk_arena *a, const void *from, int64_t bytes)
{
    return memcpy(sk_many(a, char, bytes + 1), from, (size_t)bytes);
}

static void keep(sk_lap_played *last, const sk_lap_events *e)
{
    sk_arena_end(&last->arena);
    last->arena = (sk_arena){0};
    last->e = *e;
    last->e.v = copy(&last->arena, e->v, (int64_t)sizeof *e->v * e->n);
    last->e.parts.v = copy(&last->arena, e->parts.v, (int64_t)sizeof *e->parts.v * e->parts.n);
}

int64_t sk_lap_play_once(sk_lap_played *last, const sk_lap_events *e, int64_t enough)
{
    if (last->enough == enough && same(&last->e, e)) return last->bytes;
    sk_arena tmp = {0};
    last->enough = enough;
    last->bytes = sk_lap_play(&tmp, e, enough);
    sk_arena_end(&tmp);
    keep(last, e);
    return last->bytes;
}

void sk_lap_played_end(sk_lap_played *last) { sk_arena_end(&last->arena); }
