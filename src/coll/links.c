/* links.c - reading a topology file. */
#include "coll/links.h"
#include "base/file_io.h"
#include "base/hash.h"
#include "base/strings.h"

#include <math.h>
#include <string.h>

typedef struct reader {
    const char *key, *path;
    int line;
    sk_links *l;
    double rest; /* 0: not said */
} reader;

static sk_status damaged(const reader *r, const char *text)
{
    return sk_fail(SK_EDATA,
                   "%s: %s, line %d is \"%.60s\"; needed is FROM TO RATE, FROM > TO RATE or rest "
                   "RATE, with ranks from 0 to %d and bytes per second above 0, such as 0 1 50e9",
                   r->key, r->path, r->line, text, r->l->n - 1);
}

static bool read_rank(const reader *r, const char *word, int *out)
{
    int64_t n;
    if (!sk_read_int(word, &n) || n < 0 || n >= r->l->n) return false;
    *out = (int)n;
    return true;
}

static bool read_rate(const char *word, double *out)
{
    return sk_read_plain(word, out) && isfinite(*out) && *out > 0;
}

static sk_status add(reader *r, int from, int to, double rate)
{
    double *at = &r->l->rate[(int64_t)from * r->l->n + to];
    if (*at > 0)
        return sk_fail(SK_EDATA,
                       "%s: %s, line %d: the link from rank %d to %d was said before; "
                       "leave one of them out",
                       r->key, r->path, r->line, from, to);
    *at = rate;
    return SK_OK;
}

/* The words of a line; one more than `most` if there are more. */
static int cut(char *line, char **word, int most)
{
    int n = 0;
    char *w;
    while (n <= most && (w = strsep(&line, " \t\r")))
        if (*w) word[n++] = w;
    return n;
}

static sk_status read_line(sk_arena *a, reader *r, const char *text)
{
    char *word[5], *copy = sk_strdup(a, text);
    int from, to, n;
    double rate;
    copy[strcspn(copy, "#")] = 0;
    n = cut(copy, word, 4);
    if (!n) return SK_OK;
    bool one_way = n == 4 && !strcmp(word[1], ">");
    if (n == 2 && !strcmp(word[0], "rest") && r->rest <= 0 && read_rate(word[1], &rate)) {
        r->rest = rate;
        return SK_OK;
    }
    if ((n != 3 && !one_way) || !read_rank(r, word[0], &from) || !read_rank(r, word[n - 2], &to) ||
        from == to || !read_rate(word[n - 1], &rate))
        return damaged(r, text);
    SK_TRY(add(r, from, to, rate));
    return one_way ? SK_OK : add(r, to, from, rate);
}

static void fill_rest(const reader *r)
{
    int n = r->l->n;
    for (int64_t i = 0; i < (int64_t)n * n; i++)
        if (i / n != i % n && r->l->rate[i] <= 0) r->l->rate[i] = r->rest;
}

sk_status sk_links_read(sk_arena *a, const char *key, const char *path, int n_ranks,
                        const sk_links **out)
{
    sk_text file;
    if (n_ranks > SK_LINKS_MAX)
        return sk_fail(SK_ECONF, "%s: %d ranks; a topology file is for %d at most; leave it out",
                       key, n_ranks, SK_LINKS_MAX);
    SK_TRY(sk_file_read(a, path, &file));
    sk_links *l = sk_new(a, sk_links);
    *l = (sk_links){n_ranks, sk_many(a, double, (int64_t)n_ranks *n_ranks)};
    reader r = {.key = key, .path = path, .l = l};
    char *rest = sk_strdup(a, file.s), *line;
    if (strlen(file.s) != file.n)
        return sk_fail(SK_EDATA, "%s: %s is no text: it has a NUL byte", key, path);
    while ((line = strsep(&rest, "\n"))) {
        r.line++;
        SK_TRY(read_line(a, &r, line));
    }
    if (r.rest > 0) fill_rest(&r);
    *out = l;
    return SK_OK;
}

uint64_t sk_links_hash(uint64_t h, const sk_links *l)
{
    return l ? sk_hash(h, l->rate, sizeof *l->rate * (size_t)l->n * (size_t)l->n) : h;
}
