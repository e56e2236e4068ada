/* go_on.h - a case of a test that failed is told and counted, and the next one is tried.  Only a
 * GPU that is lost ends the test:
 *
 *     SK_TRY(go_on(g->d, g->s, norms(g, rows, n), &n_bad, "norms of %lld x %lld", rows, n)); */
#ifndef TEST_GO_ON_H
#define TEST_GO_ON_H

#include "device/device.h"
#include "lib/told.h"

#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 5, 6))) static inline sk_status
go_on(sk_device *d, sk_stream *s, sk_status st, int *n_bad, const char *what, ...)
{
    char name[200];
    va_list args;
    if (!st) return SK_OK;
    ++*n_bad;
    va_start(args, what);
    vsnprintf(name, sizeof name, what, args);
    va_end(args);
    tell("%s: %s", name, sk_error());
    sk_error_set("");
    return sk_stream_sync(d, s);
}

#endif
