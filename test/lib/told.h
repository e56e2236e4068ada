/* told.h - a failure of a test with many cases is printed where it happens, and the first of each
 * kind once more at the end, for a log of which only the last lines are kept.  The kind of a
 * failure is what stands before its first colon and the word behind that.  Kinds beyond the last
 * place are only printed.
 *
 *     tell("%s: off by %g", name, worst);
 *     told_again();                            bad: lamb: off by 0.3 (the first of 71) */
#ifndef TEST_TOLD_H
#define TEST_TOLD_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TOLD_KINDS = 16, TOLD_LENGTH = 240 };
typedef struct told_kind {
    char first[TOLD_LENGTH];
    int n;
} told_kind;
static told_kind told[TOLD_KINDS];
static int n_told;

static inline size_t told_kind_length(const char *line)
{
    size_t n = strcspn(line, ":");
    if (!strncmp(line + n, ": ", 2)) n += 2 + strcspn(line + n + 2, " ");
    return n;
}

static inline int told_find(const char *line)
{
    size_t n = told_kind_length(line);
    for (int k = 0; k < n_told; k++)
        if (told_kind_length(told[k].first) == n && !strncmp(told[k].first, line, n)) return k;
    return n_told;
}

__attribute__((format(printf, 1, 2))) static inline void tell(const char *format, ...)
{
    char line[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    puts(line);
    fflush(stdout);
    int k = told_find(line);
    if (k == TOLD_KINDS) return;
    if (k == n_told)
        snprintf(told[n_told++].first, TOLD_LENGTH, "%.*s", (int)strcspn(line, "\n"), line);
    told[k].n++;
}

static inline void told_again(void)
{
    for (int k = 0; k < n_told; k++)
        printf("bad: %s (the first of %d)\n", told[k].first, told[k].n);
}

#endif
