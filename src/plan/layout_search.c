/* layout_search.c - climbing, and again from three random moves away. */
#include "plan/layout_search.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/threads.h"
#include "plan/layout_choices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PRICED = 1 << 14,
    PLACES = 1 << 16, /* of the hash table */
    MOST_MOVES = 512,
    MOST_TOGETHER = 256,
    TOGETHER = 8, /* moves that are priced, before the best of them is made */
    SQUEEZED = 4, /* layouts that do not fit, tried with words that lower their bytes */
    TIMED = 4,    /* of those, priced by bytes alone so far, timed: those of the fewest bytes */
    KICK = 3,     /* random moves */
    IN_VAIN = 6   /* kicks that led to nothing better, and it ends */
};

static const double GAIN = 1e-4; /* relative: less is not better */

typedef struct priced {
    sk_choice choice;
    sk_priced_layout p;
    sk_status refused;
    bool late; /* not priced: the time was over */
} priced;

typedef struct search {
    const sk_search_in *in;
    sk_arena arena;
    sk_choices choices;
    priced *v;
    int n, *places; /* by hash of the text: 1 + its place in v */
    int batch[MOST_TOGETHER], n_batch;
    int best, drawn;
    int64_t insts;
    bool timed;   /* the batch is timed, also what does not fit */
    bool started; /* the given layouts are priced, however long that takes */
    double begin;
    sk_threads *team;
    char first_error[1024];
} search;

/* --- prices --- */

static bool fits(const search *s, const priced *x)
{
    return !x->refused && !x->late && (!s->in->memory || x->p.bytes <= s->in->memory);
}

static bool better(const search *s, int a, int b)
{
    const priced *x = &s->v[a], *y = &s->v[b];
    bool none = x->refused || x->late, other = y->refused || y->late;
    if (none || other) return !none;
    if (fits(s, x) != fits(s, y)) return fits(s, x);
    if (!fits(s, x)) return x->p.bytes < y->p.bytes;
    if (x->p.seconds < y->p.seconds * (1 - GAIN)) return true;
    return x->p.seconds <= y->p.seconds * (1 + GAIN / 2) && strlen(x->p.text) < strlen(y->p.text);
}

static bool over_time(const search *s)
{
    return s->in->seconds > 0 && sk_now() - s->begin >= s->in->seconds;
}

static bool over(const search *s)
{
    return s->n == MOST_PRICED || (s->in->most && s->n >= s->in->most) ||
           (s->in->insts && s->insts >= s->in->insts) || over_time(s);
}

/* Its place in v; -1: no room.  A new one is in the batch. */
static int place_of(search *s, const sk_choice *x)
{
    sk_priced_layout p = {.seconds = INFINITY};
    if (!sk_choice_print(&s->choices, x, p.text, sizeof p.text)) return -1;
    unsigned at = (unsigned)sk_hash_text(p.text) % PLACES;
    for (; s->places[at]; at = (at + 1) % PLACES)
        if (!strcmp(s->v[s->places[at] - 1].p.text, p.text)) return s->places[at] - 1;
    if (over(s) || s->n_batch == MOST_TOGETHER) return -1;
    s->v[s->n] = (priced){.choice = *x, .p = p};
    s->places[at] = s->n + 1;
    s->batch[s->n_batch++] = s->n;
    return s->n++;
}

static void price_one(void *ctx, int part, int of)
{
    search *s = ctx;
    for (int i = part; i < s->n_batch; i += of) {
        priced *x = &s->v[s->batch[i]];
        bool late = s->started && over_time(s);
        if (!s->timed) x->late = late;
        if (late) continue;
        x->refused = s->in->price(s->in->ctx, x->p.text, s->timed, &x->p);
        if (x->refused && s->batch[i] == 0)
            snprintf(s->first_error, sizeof s->first_error, "%s", sk_error_line());
    }
}

static void price_batch(search *s)
{
    if (s->n_batch) sk_threads_run(s->team, price_one, s);
    for (int i = 0; i < s->n_batch; i++) {
        s->insts += s->v[s->batch[i]].p.insts;
        if (better(s, s->batch[i], s->best)) s->best = s->batch[i];
    }
    s->n_batch = 0;
}

/* --- climbing --- */

/* The moves `from`, `from` + 1 ... of a layout, as many as are priced at once, and where they lead;
 * returns how many moves that were. */
static int look(search *s, int here, const sk_move *moves, int n, int from, int *found)
{
    int seen[MOST_MOVES], n_seen = 0, looked = 0;
    *found = here;
    for (; looked < n && s->n_batch < TOGETHER; looked++) {
        sk_choice x = s->v[here].choice;
        sk_choice_move(&moves[(from + looked) % n], &x);
        int at = place_of(s, &x);
        if (at >= 0) seen[n_seen++] = at;
    }
    price_batch(s);
    for (int i = 0; i < n_seen; i++)
        if (better(s, seen[i], *found)) *found = seen[i];
    return looked;
}

/* Moves of words that are there to lower bytes. */
static bool lowers_memory(const search *s, const sk_move *m)
{
    if (m->from >= 0 || m->word < 0) return false;
    sk_lowers what = s->choices.words[m->word]->lowers;
    return what == SK_LOWERS_WEIGHTS || what == SK_LOWERS_STATE || what == SK_LOWERS_SAVED ||
           what == SK_LOWERS_DEVICE;
}

/* Of the layouts a move away those that do not fit; returns how many. */
static int over_memory(search *s, int here, const sk_move *moves, int n, int *to)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        sk_choice x = s->v[here].choice;
        sk_choice_move(&moves[i], &x);
        int at = place_of(s, &x);
        if (at >= 0 && !s->v[at].refused && !s->v[at].late && !fits(s, &s->v[at])) to[found++] = at;
    }
    return found;
}

/* Some of them have bytes alone: those that are nearest to fitting are timed. */
static void time_nearest(search *s, const int *v, int n)
{
    s->timed = true;
    for (int k = 0; k < TIMED && !over(s); k++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            const sk_priced_layout *x = &s->v[v[i]].p;
            if (x->untimed && (best < 0 || x->bytes < s->v[best].p.bytes)) best = v[i];
        }
        if (best < 0) break;
        s->v[best].p.untimed = false; /* also if it stays so: it is not asked for again */
        s->batch[s->n_batch++] = best;
    }
    price_batch(s);
    s->timed = false;
}

/* The fastest of them that would be better if they fitted; -1: none. */
static int too_large(const search *s, int here, const int *v, int n, const bool *done)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        int at = v[i];
        if (done[at] || s->v[at].p.untimed) continue;
        if (s->v[at].p.seconds >= s->v[here].p.seconds * (1 - GAIN)) continue;
        if (best < 0 || s->v[at].p.seconds < s->v[best].p.seconds) best = at;
    }
    return best;
}

/* Those with a word that lowers their bytes; where that leads, or `here`. */
static int squeeze(search *s, int here)
{
    sk_move moves[MOST_MOVES], more[MOST_MOVES];
    bool *done = sk_many(&s->arena, bool, MOST_PRICED);
    int n = sk_choice_moves(&s->choices, &s->v[here].choice, moves, MOST_MOVES), found = here;
    int larger[MOST_MOVES];
    if (!fits(s, &s->v[here])) return here;
    int n_larger = over_memory(s, here, moves, n, larger);
    time_nearest(s, larger, n_larger);
    for (int k = 0; k < SQUEEZED && found == here && !over(s); k++) {
        int large = too_large(s, here, larger, n_larger, done), first = s->n;
        if (large < 0) break;
        done[large] = true;
        int n_more = sk_choice_moves(&s->choices, &s->v[large].choice, more, MOST_MOVES);
        for (int i = 0; i < n_more; i++) {
            sk_choice x = s->v[large].choice;
            sk_choice_move(&more[i], &x);
            if (lowers_memory(s, &more[i]) && s->n_batch < MOST_TOGETHER) (void)place_of(s, &x);
        }
        price_batch(s);
        for (int i = first; i < s->n; i++)
            if (better(s, i, found)) found = i;
    }
    return found;
}

/* Until no move from there is better.  Moves are tried in turns, behind the one that was better. */
static int climb_moves(search *s, int here)
{
    sk_move moves[MOST_MOVES];
    int n = sk_choice_moves(&s->choices, &s->v[here].choice, moves, MOST_MOVES), at = 0;
    for (int in_vain = 0; in_vain < n && !over(s);) {
        int found, looked = look(s, here, moves, n, at, &found);
        at += looked;
        in_vain += looked;
        if (found == here) continue;
        here = found;
        in_vain = 0;
        n = sk_choice_moves(&s->choices, &s->v[here].choice, moves, MOST_MOVES);
    }
    return here;
}

static int climb(search *s, int here)
{
    for (int before = -1; here != before && !over(s);) {
        here = climb_moves(s, here);
        before = here;
        here = squeeze(s, here);
    }
    return here;
}

/* A few random moves away; -1: there is no room. */
static int kick(search *s, int here)
{
    sk_move moves[MOST_MOVES];
    sk_choice x = s->v[here].choice;
    for (int i = 0; i < KICK; i++) {
        int n = sk_choice_moves(&s->choices, &x, moves, MOST_MOVES);
        if (!n) break;
        sk_draw d = sk_rng(s->in->seed, 0, (uint64_t)s->drawn++);
        sk_choice_move(&moves[d.a % (uint64_t)n], &x);
    }
    int at = place_of(s, &x);
    price_batch(s);
    return at;
}

/* --- the whole --- */

static sk_status price_texts(search *s, const char *const *texts, int n)
{
    for (int i = 0; i < n; i++) {
        sk_choice x;
        SK_TRY(sk_choice_read(&s->choices, texts[i], &x));
        (void)place_of(s, &x);
        if (s->n_batch == MOST_TOGETHER) price_batch(s);
    }
    price_batch(s);
    return SK_OK;
}

static int by_price(const void *x, const void *y)
{
    const priced *a = x, *b = y;
    if (a->p.seconds != b->p.seconds) return a->p.seconds < b->p.seconds ? -1 : 1;
    size_t m = strlen(a->p.text), n = strlen(b->p.text);
    return m != n ? (m < n ? -1 : 1) : strcmp(a->p.text, b->p.text);
}

/* Does one of them take the same time and bytes?  A word that does nothing makes no other layout.
 */
static bool alike(const sk_search_out *out, const sk_priced_layout *x)
{
    for (int i = 0; i < out->n_best; i++)
        if (x->bytes == out->best[i].bytes && x->seconds <= out->best[i].seconds * (1 + GAIN))
            return true;
    return false;
}

static void report(search *s, sk_search_out *out)
{
    const priced *best = &s->v[s->best];
    if (!best->refused && !best->late && !fits(s, best)) out->least = best->p;
    if (fits(s, best)) out->best[out->n_best++] = best->p;
    qsort(s->v, (size_t)s->n, sizeof *s->v, by_price);
    for (int i = 0; i < s->n; i++) {
        if (s->v[i].late) continue;
        out->n_priced += !s->v[i].refused;
        out->n_refused += s->v[i].refused != SK_OK;
        out->n_over += !s->v[i].refused && !fits(s, &s->v[i]);
        if (fits(s, &s->v[i]) && out->n_best < SK_SEARCH_BEST && !alike(out, &s->v[i].p))
            out->best[out->n_best++] = s->v[i].p;
    }
    out->seconds = sk_now() - s->begin;
}

static void climb_on(search *s, sk_search_out *out)
{
    int here = climb(s, s->best);
    for (int in_vain = 0; in_vain < IN_VAIN && !over(s);) {
        int at = kick(s, here);
        if (at < 0) break;
        at = climb(s, at);
        in_vain = better(s, at, here) ? 0 : in_vain + 1;
        if (!in_vain) here = at;
    }
    out->ended = !over(s);
}

sk_status sk_layout_search(const sk_search_in *in, sk_search_out *out)
{
    search s = {.in = in, .begin = sk_now()};
    *out = (sk_search_out){0};
    sk_choices_init(&s.choices, &s.arena, in->ranks, in->lossy);
    s.v = sk_many(&s.arena, priced, MOST_PRICED);
    s.places = sk_many(&s.arena, int, PLACES);
    s.team = sk_threads_open(in->threads);
    sk_status st = price_texts(&s, in->starts, in->n_starts);
    if (!st && fits(&s, &s.v[s.best])) out->start = s.v[s.best].p;
    if (!st) st = price_texts(&s, in->hints, in->n_hints);
    if (!st) {
        s.started = true;
        climb_on(&s, out);
        report(&s, out);
        if (!out->n_priced) st = sk_fail(SK_ECONF, "%s", s.first_error);
    }
    sk_threads_close(s.team);
    sk_arena_end(&s.arena);
    return st;
}
