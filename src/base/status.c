/* status.c - the failure record: one sentence and the way it came up. */
#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char report[4096], raw[2048], told[2048];
static _Thread_local size_t report_len;

static void add(const char *fmt, va_list ap)
{
    int n = vsnprintf(report + report_len, sizeof report - report_len, fmt, ap);
    if (n > 0) report_len += (size_t)n;
    if (report_len >= sizeof report) report_len = sizeof report - 1;
}

static void addf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void addf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(fmt, ap);
    va_end(ap);
}

/* What a file or a command line holds may be quoted in a sentence: what a terminal would obey
 * becomes '?', and the end of a line "\n" unless `lines` are meant. */
static void calm(char *to, size_t size, const char *s, bool lines)
{
    size_t n = 0;
    for (; *s && n + 2 < size; s++) {
        unsigned char c = (unsigned char)*s, next = (unsigned char)s[1];
        bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* U+0080 to U+009F */
        if (c == '\n' && !lines) to[n++] = '\\', to[n++] = 'n';
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) to[n++] = '?';
        else if (c1) to[n++] = '?', to[n++] = '?', s++;
        else to[n++] = *s;
    }
    to[n] = 0;
}

sk_status sk_fail_at(sk_status code, const char *where, const char *fmt, ...)
{
    char line[sizeof told]; /* apart: an argument may be the old report or its line */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    calm(line, sizeof line, raw, !strcmp(fmt, "%s"));
    report_len = 0;
    addf("%s\n  at %s", line, where);
    return code;
}

sk_status sk_trail(sk_status code, const char *where)
{
    addf("\n  at %s", where);
    return code;
}

void sk_bug(const char *where, const char *what)
{
    fprintf(stderr, "skein: bug at %s: %s does not hold. Please report this.\n", where, what);
    abort();
}

const char *sk_error(void) { return report; }

const char *sk_error_line(void)
{
    const char *end = strstr(report, "\n  at ");
    snprintf(told, sizeof told, "%.*s", (int)(end ? end - report : (long)strlen(report)), report);
    return told;
}

void sk_error_set(const char *text)
{
    report_len = 0;
    addf("%s", text);
}
