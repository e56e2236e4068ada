/* commit_log.c - commits.jsonl: written a line at a time, read as a whole. */
#include "train/commit_log.h"
#include "base/file_io.h"
#include "base/strings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 32, MOST_STEPS = 1 << 28 };

static const char *path_of(sk_arena *a, const char *run)
{
    return sk_print(a, "%s/commits.jsonl", run);
}

/* --- one line --- */

typedef struct line {
    long long step;
    unsigned set, dropped;
} line;

static bool take(const char **s, const char *end, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(end - *s) < n || memcmp(*s, text, n) != 0) return false;
    *s += n;
    return true;
}

static bool take_number(const char **s, const char *end, long long most, long long *to)
{
    const char *from = *s;
    for (*to = 0; *s < end && **s >= '0' && **s <= '9' && *to <= most; ++*s)
        *to = 10 * *to + (**s - '0');
    return *s > from && *to <= most;
}

/* "[0,1,3]" */
static bool take_ranks(const char **s, const char *end, unsigned *to)
{
    long long rank;
    *to = 0;
    if (!take(s, end, "[")) return false;
    if (take(s, end, "]")) return true;
    do {
        if (!take_number(s, end, MOST_RANKS - 1, &rank)) return false;
        *to |= 1u << rank;
    } while (take(s, end, ","));
    return take(s, end, "]");
}

static bool read_line(const char *s, const char *end, line *to)
{
    return take(&s, end, "{\"step\":") && take_number(&s, end, MOST_STEPS, &to->step) &&
           take(&s, end, ",\"ranks\":") && take_ranks(&s, end, &to->set) &&
           take(&s, end, ",\"dropped\":") && take_ranks(&s, end, &to->dropped) &&
           take(&s, end, "}") && s == end && to->step > 0;
}

static size_t print_ranks(char *to, unsigned set)
{
    size_t n = 0;
    to[n++] = '[';
    for (int r = 0; r < MOST_RANKS; r++)
        if (set >> r & 1) n += (size_t)sprintf(to + n, "%s%d", n > 1 ? "," : "", r);
    to[n++] = ']';
    to[n] = 0;
    return n;
}

/* --- writing --- */

sk_status sk_commit_log_open(sk_commit_log *l, const char *run)
{
    sk_arena a = {0};
    sk_status st = sk_file_own(path_of(&a, run), O_APPEND, &l->fd);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

void sk_commit_log_close(sk_commit_log *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}

/* A run whose choices are lost could not be repeated: it ends. */
sk_status sk_commit_log_step(const sk_commit_log *l, int64_t step, unsigned set, int n_ranks)
{
    char ranks[128], dropped[128], text[320];
    unsigned all = n_ranks < MOST_RANKS ? (1u << n_ranks) - 1 : ~0u;
    print_ranks(ranks, set);
    print_ranks(dropped, all & ~set);
    int n = snprintf(text, sizeof text, "{\"step\":%lld,\"ranks\":%s,\"dropped\":%s}\n",
                     (long long)step + 1, ranks, dropped);
    ssize_t put = write(l->fd, text, (size_t)n);
    if (put == n) return SK_OK;
    return sk_fail(SK_EIO, "commits.jsonl: who committed step %lld cannot be written: %s",
                   (long long)step + 1, put < 0 ? strerror(errno) : "the line was cut");
}

/* --- reading --- */

static sk_status damaged(const char *path, int at)
{
    return sk_fail(SK_EDATA,
                   "%s: line %d is no {\"step\":N,\"ranks\":[..],\"dropped\":[..]}; the file is "
                   "damaged, or was not written by a run with sync=backup",
                   path, at);
}

static sk_status keep(sk_arena *a, sk_commits *c, int64_t step, unsigned set)
{
    if (step >= c->cap) {
        int64_t cap = 2 * step + 1024;
        c->set = sk_grow(a, c->set, sizeof *c->set * (size_t)c->cap, sizeof *c->set * (size_t)cap);
        c->cap = cap;
    }
    c->set[step] = set;
    c->n = step + 1;
    return SK_OK;
}

static sk_status read_text(sk_arena *a, const char *path, sk_text t, int n_ranks, sk_commits *out)
{
    unsigned all = n_ranks < MOST_RANKS ? (1u << n_ranks) - 1 : ~0u;
    int at = 0;
    for (const char *s = t.s, *stop = t.s + t.n; s < stop;) {
        const char *end = memchr(s, '\n', (size_t)(stop - s));
        line x;
        at++;
        if (!end || !read_line(s, end, &x)) return damaged(path, at);
        if (at == 1) out->first = out->n = x.step - 1;
        if (x.step != out->n + 1)
            return sk_fail(SK_EDATA, "%s: line %d is about step %lld, step %lld is needed", path,
                           at, x.step, (long long)out->n + 1);
        if ((x.set ^ x.dropped) != all || (x.set & x.dropped) || !x.set)
            return sk_fail(SK_EDATA,
                           "%s: line %d is not about each of %d ranks once; replay with as many "
                           "ranks as the run had",
                           path, at, n_ranks);
        SK_TRY(keep(a, out, x.step - 1, x.set));
        s = end + 1;
    }
    return SK_OK;
}

sk_status sk_commits_read(sk_arena *a, const char *run, int n_ranks, sk_commits *out)
{
    const char *path = path_of(a, run);
    sk_text t = {0};
    *out = (sk_commits){0};
    if (!sk_is_there(path))
        return sk_fail(SK_EDATA,
                       "replay: %s is not there: time made no choices in run %s, which any run of "
                       "its config.yaml repeats; a run with sync=backup or sync=ssp is needed",
                       path, run);
    SK_TRY(sk_file_read(a, path, &t));
    return read_text(a, path, t, n_ranks, out);
}

static sk_status cut(sk_arena *a, const char *path, int64_t done)
{
    sk_text t = {0};
    size_t at = 0;
    if (!sk_is_there(path)) return SK_OK;
    SK_TRY(sk_file_read(a, path, &t));
    while (at < t.n) {
        const char *end = memchr(t.s + at, '\n', t.n - at);
        line x;
        if (!end || !read_line(t.s + at, end, &x) || x.step > done) break;
        at = (size_t)(end + 1 - t.s);
    }
    return at == t.n ? SK_OK : sk_file_replace(path, t.s, at);
}

sk_status sk_commit_log_cut(const char *run, int64_t done)
{
    sk_arena a = {0};
    sk_status st = cut(&a, path_of(&a, run), done);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
