/* check.h - for tests: count what was asked, say what was wrong, go on. */
#ifndef SK_TEST_CHECK_H
#define SK_TEST_CHECK_H

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks, bad;

static inline void check_at(const char *where, bool ok, const char *what)
{
    checks++;
    if (ok) return;
    bad++;
    printf("%s: %s\n  last error: %.300s\n", where, what, sk_error());
}

/* The call must fail with this code, and its sentence must hold these words. */
static inline void fails_at(const char *where, sk_status got, sk_status want, const char *words)
{
    checks++;
    if (got == want && strstr(sk_error_line(), words)) return;
    bad++;
    printf("%s: status %d, %d is wanted, with \"%s\" in the message\n  last error: %.300s\n", where,
           (int)got, (int)want, words, sk_error());
}

/* Of a grid of cases, whose places add up to `at`: every n-th, and with SKEIN_LONG=1 all. */
static inline bool due(int at, int n) { return at % n == 0 || getenv("SKEIN_LONG"); }

#define check(x)                 check_at(SK_HERE, (x), #x)
#define fails(call, code, words) fails_at(SK_HERE, (call), (code), (words))

#endif
