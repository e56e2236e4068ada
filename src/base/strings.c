/* strings.c - text that grows in an arena, and reading numbers strictly. */
#include "base/strings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sk_out_add(sk_out *o, const char *fmt, ...)
{
    va_list ap, twice;
    va_start(ap, fmt);
    va_copy(twice, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    size_t need = o->n + (size_t)(n < 0 ? 0 : n) + 1;
    if (need > o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 256;
        while (cap < need) cap *= 2;
        o->s = sk_grow(o->arena, o->s, o->n, cap);
        o->cap = cap;
    }
    vsnprintf(o->s + o->n, o->cap - o->n, fmt, twice);
    o->n = need - 1;
    va_end(twice);
    va_end(ap);
}

/* The factor of a unit, or 0 if it is none. */
static double unit(const char *s)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},           {"k", 1e3},           {"m", 1e6},
                 {"g", 1e9},        {"t", 1e12},          {"ki", 1024.0},
                 {"mi", 1048576.0}, {"gi", 1073741824.0}, {"ti", 1099511627776.0}};
    char low[8] = "";
    size_t n = strlen(s);
    if (n && (s[n - 1] == 'B' || s[n - 1] == 'b')) n--;
    if (n >= sizeof low) return 0;
    for (size_t i = 0; i < n; i++) low[i] = (char)tolower((unsigned char)s[i]);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(low, units[i].name)) return units[i].factor;
    return 0;
}

/* The number that s begins with; NULL: none that is finite.  Where it ends. */
static const char *number(const char *s, double *x)
{
    char *end = NULL;
    if (!*s || isspace((unsigned char)*s)) return NULL;
    errno = 0;
    *x = strtod(s, &end);
    return end == s || errno || !isfinite(*x) ? NULL : end;
}

bool sk_read_plain(const char *s, double *out)
{
    double x = 0;
    const char *end = number(s, &x);
    if (!end || *end) return false;
    *out = x;
    return true;
}

bool sk_read_real(const char *s, double *out)
{
    double x = 0;
    const char *end = number(s, &x);
    double f = end ? unit(end) : 0;
    if (f == 0) return false;
    if (!isfinite(x * f)) return false;
    *out = x * f;
    return true;
}

bool sk_read_int(const char *s, int64_t *out)
{
    char *end = NULL;
    if (!*s || isspace((unsigned char)*s)) return false;
    errno = 0;
    long long whole = strtoll(s, &end, 10);
    if (end != s && !*end) {
        if (!errno) *out = whole;
        return !errno;
    }
    double x = 0;
    if (!sk_read_real(s, &x) || x != floor(x) || fabs(x) > 9e15) return false;
    *out = (int64_t)x;
    return true;
}

static int small(char c) { return tolower((unsigned char)c); }

/* Capitals are no difference. */
static int distance(const char *a, const char *b)
{
    int row[64], m = (int)strlen(b);
    if (m > 63) return 99;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diag = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int change = diag + (small(a[i - 1]) != small(b[j - 1])), up = row[j] + 1,
                left = row[j - 1] + 1;
            diag = row[j];
            row[j] = change < up ? change : up;
            if (left < row[j]) row[j] = left;
        }
    }
    return row[m];
}

int sk_nearest_all(const char *word, const char *const *candidates, int n, const char **out,
                   int most)
{
    int found = 0, least = ((int)strlen(word) + 1) / 3 + 1; /* farther ones only puzzle */
    for (int i = 0; i < n; i++) {
        int d = distance(word, candidates[i]);
        if (d < least) least = d, found = 0;
        if (d == least && found < most) out[found++] = candidates[i];
    }
    return found;
}

const char *sk_nearest(const char *word, const char *const *candidates, int n)
{
    const char *best = NULL;
    return sk_nearest_all(word, candidates, n, &best, 1) ? best : NULL;
}

char *sk_bytes(sk_arena *a, int64_t bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int i = 0;
    while (i < 4 && x >= 1024) x /= 1024, i++;
    return sk_print(a, i ? "%.1f %s" : "%.0f %s", x, names[i]);
}

char *sk_commas(sk_arena *a, int64_t n)
{
    char digits[32], *s = sk_alloc(a, 48), *p = s;
    snprintf(digits, sizeof digits, "%" PRId64, n);
    size_t len = strlen(digits);
    for (size_t i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0 && digits[i - 1] != '-') *p++ = ',';
        *p++ = digits[i];
    }
    return s;
}

char *sk_real_print(sk_arena *a, double x)
{
    for (int digits = 6; digits < 17; digits++) {
        double back = 0;
        char *s = sk_print(a, "%.*g", digits, x);
        if (sk_read_real(s, &back) && back == x) return s;
    }
    return sk_print(a, "%.17g", x);
}

/* --- words of other programs --- */

/* Lower case, one kind of dash, without tails that only say that a number follows:
 * --tensor-model-parallel-size is tensor_model_parallel. */
static void plain(const char *word, char *to, size_t size)
{
    static const char *const tails[] = {"_size", "_degree"};
    size_t n = 0;
    word += strspn(word, "-");
    for (; word[n] && n < size - 1; n++)
        to[n] = (char)(word[n] == '-' ? '_' : tolower((unsigned char)word[n]));
    to[n] = 0;
    for (int i = 0; i < 2; i++) {
        size_t m = strlen(tails[i]);
        if (n > m && !strcmp(to + n - m, tails[i])) to[n -= m] = 0;
    }
}

static bool among(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; n && (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
    return false;
}

const char *sk_alias_find(const sk_alias *list, int n, const char *word)
{
    char name[128];
    plain(word, name, sizeof name);
    for (int i = 0; i < n && list[i].theirs; i++)
        if (among(list[i].theirs, name)) return list[i].ours;
    return NULL;
}
