/* strings.h - text that grows in an arena, and reading numbers strictly.
 *
 *     sk_out o = {.arena = a};
 *     sk_out_add(&o, "%d rank%s\n", n, sk_plural(n));
 *     puts(o.s);
 */
#ifndef SK_BASE_STRINGS_H
#define SK_BASE_STRINGS_H

#include "base/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_out {
    sk_arena *arena;
    char *s; /* NUL-terminated; NULL while empty */
    size_t n, cap;
} sk_out;

void sk_out_add(sk_out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whole numbers and reals with units: "64k", "1e-3", "2GiB", "10m" (k m g = 10^3.., Ki Mi Gi =
 * 2^10.., a trailing B is allowed).  False, and *out is left alone, if anything is left over or
 * out of range. */
bool sk_read_int(const char *s, int64_t *out);
bool sk_read_real(const char *s, double *out);
bool sk_read_plain(const char *s, double *out); /* a real that has no units: a rate, a fraction */

/* The candidate nearest to `word` by edit distance, or NULL if none is near. */
const char *sk_nearest(const char *word, const char *const *candidates, int n);
/* All that are as near as that one, up to `most`; returns how many. */
int sk_nearest_all(const char *word, const char *const *candidates, int n, const char **out,
                   int most);

/* What other programs call something: names with spaces between them, in lower case and with '_';
 * how it is said here. */
typedef struct sk_alias {
    const char *theirs, *ours;
} sk_alias;
/* How what is called `word` is said here, by the first of up to n rows that has it: "--Local-SGD"
 * is local_sgd.  NULL: none has. */
const char *sk_alias_find(const sk_alias *list, int n, const char *word);

/* As numbers are printed: the sign of what is no number, which printf() shows, says nothing. */
static inline double sk_printable(double x) { return x != x ? (double)NAN : x; }
/* The shortest text that reads back as x. */
char *sk_real_print(sk_arena *a, double x);
/* "1.5 GiB", "312 B": into the arena. */
char *sk_bytes(sk_arena *a, int64_t bytes);
/* The ending of a noun: "%d rank%s". */
/* For what may be missing, so that it is not printed as "(null)". */
static inline const char *sk_or_empty(const char *s) { return s ? s : ""; }
static inline const char *sk_plural(int64_t n) { return n == 1 ? "" : "s"; }
/* 4404412 -> "4,404,412" */
char *sk_commas(sk_arena *a, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
