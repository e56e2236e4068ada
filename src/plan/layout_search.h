/* layout_search.h - the fastest layout that fits, among those that words offer (sk_word.tries).
 *
 * A candidate has a size for each axis word and a value, or nothing, for each other word.  The
 * search begins at the given layouts and climbs: a move gives a prime factor of one axis to another
 * (with micro-batches of the same size, or with as many as before) or changes the value of one
 * word.  What would be faster and does not fit is tried with words that lower its bytes.  Where no
 * move is better, three random ones are made and it climbs again.  Layouts that do
 * not fit are compared by their bytes, and lose against all that do.
 *
 * What a layout costs is the caller's to say, from several threads at once; no layout is asked for
 * twice, but those that do not fit: first for bytes, and only where they might lead to one that
 * does, for their time.  Moves, their order and random numbers depend on the input alone: with
 * `most` or `insts` and without `seconds` the result is always the same, also with other `threads`.
 * Of layouts that take equal time the one with the shorter text is better.  It is never slower than
 * the best of the given layouts, by the same prices. */
#ifndef SK_PLAN_LAYOUT_SEARCH_H
#define SK_PLAN_LAYOUT_SEARCH_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { SK_SEARCH_TEXT = 256, SK_SEARCH_BEST = 4 };

typedef struct sk_priced_layout {
    char text[SK_SEARCH_TEXT];
    int64_t bytes;                /* of the rank that needs the most */
    double seconds;               /* of a step */
    double busy, exposed, bubble; /* of them, mean over ranks */
    int64_t insts;                /* instructions that were compiled to price it */
    bool untimed;                 /* it does not fit, and has bytes alone */
    bool whole;                   /* the caller's: priced by all layers of its model */
} sk_priced_layout;

/* Fills all but the text.  An error: the layout is refused.  What does not fit may stay untimed,
 * unless `timed`. */
typedef sk_status sk_layout_pricer(void *ctx, const char *text, bool timed, sk_priced_layout *out);

typedef struct sk_search_in {
    int ranks;
    int64_t memory; /* bytes of a rank; 0: any */
    const char *const *starts;
    int n_starts;
    const char *const *hints; /* further layouts to begin at, that `start` does not tell of */
    int n_hints;
    double seconds; /* at most, but for what is under way; 0: any */
    int most;       /* layouts that are priced, at most; 0: any */
    int64_t insts;  /* instructions that are compiled, but for what is under way; 0: any */
    int threads;
    uint64_t seed;
    bool lossy; /* also words with which a job has other results (sk_word.lossy) */
    sk_layout_pricer *price;
    void *ctx;
} sk_search_in;

typedef struct sk_search_out {
    int n_best; /* that fit, the fastest first */
    sk_priced_layout best[SK_SEARCH_BEST];
    sk_priced_layout start; /* the fastest of the given ones that fits; seconds 0: none does */
    sk_priced_layout least; /* of those that do not fit, the one of the fewest bytes */
    int n_priced, n_over, n_refused; /* n_over: of the priced ones, those that do not fit */
    bool ended;                      /* by itself, with time left */
    double seconds;                  /* that it took */
} sk_search_out;

/* An error: that of the first layout, where all are refused. */
sk_status sk_layout_search(const sk_search_in *in, sk_search_out *out);

#endif
