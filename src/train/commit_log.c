/* commit_log.c - commits.jsonl: written a line at a time, read as a whole. */
#include "train/commit_log.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "comm/quorum.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = SK_QUORUM_RANKS, MOST_STEPS = 1 << 24, READ = 0, UPDATE = 1 };
#define MOST_TURNS (2ll * MOST_RANKS * MOST_STEPS)

static const char *path_of(sk_arena *a, const char *run)
{
    return sk_print(a, "%s/commits.jsonl", run);
}

/* --- one line --- */

typedef struct line {
    long long step;
    unsigned set, dropped;
    bool stale; /* it has these instead */
    long long rank, read, update;
    char changed[SK_COMMIT_KEY]; /* "": it is of a step */
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
        if (!take_number(s, end, MOST_RANKS - 1, &rank) || *to >> rank & 1) return false;
        *to |= 1u << rank;
    } while (take(s, end, ","));
    return take(s, end, "]");
}

static bool read_turns(const char *s, const char *end, line *to)
{
    to->stale = true;
    return take(&s, end, ",\"rank\":") && take_number(&s, end, MOST_RANKS - 1, &to->rank) &&
           take(&s, end, ",\"read\":") && take_number(&s, end, MOST_TURNS, &to->read) &&
           take(&s, end, ",\"update\":") && take_number(&s, end, MOST_TURNS, &to->update) &&
           take(&s, end, "}") && s == end && to->read < to->update;
}

static bool read_sets(const char *s, const char *end, line *to)
{
    to->stale = false;
    return take(&s, end, ",\"ranks\":") && take_ranks(&s, end, &to->set) &&
           take(&s, end, ",\"dropped\":") && take_ranks(&s, end, &to->dropped) &&
           take(&s, end, "}") && s == end;
}

static bool read_change(const char *s, const char *end, line *to)
{
    if (!take(&s, end, ",\"changed\":\"")) return false;
    const char *stop = memchr(s, '"', (size_t)(end - s));
    if (!stop || stop == s || stop - s >= SK_COMMIT_KEY) return false;
    memcpy(to->changed, s, (size_t)(stop - s));
    return take(&stop, end, "\"}") && stop == end;
}

static bool read_line(const char *s, const char *end, line *to)
{
    *to = (line){0};
    return take(&s, end, "{\"step\":") && take_number(&s, end, MOST_STEPS, &to->step) &&
           to->step > 0 &&
           (read_change(s, end, to) || read_sets(s, end, to) || read_turns(s, end, to));
}

static unsigned all_of(int n_ranks) { return n_ranks < MOST_RANKS ? (1u << n_ranks) - 1 : ~0u; }

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
static sk_status put(const sk_commit_log *l, int64_t step, const char *text, int n)
{
    ssize_t put = write(l->fd, text, (size_t)n);
    if (put == n) return SK_OK;
    return sk_fail(SK_EIO, "commits.jsonl: who made step %lld cannot be written: %s",
                   (long long)step + 1, put < 0 ? strerror(errno) : "the line was cut");
}

sk_status sk_commit_log_step(const sk_commit_log *l, int64_t step, unsigned set, int n_ranks)
{
    char ranks[128], dropped[128], text[320];
    print_ranks(ranks, set);
    print_ranks(dropped, all_of(n_ranks) & ~set);
    return put(l, step, text,
               snprintf(text, sizeof text, "{\"step\":%lld,\"ranks\":%s,\"dropped\":%s}\n",
                        (long long)step + 1, ranks, dropped));
}

sk_status sk_commit_log_turns(const sk_commit_log *l, int64_t step, int rank, const int64_t turn[2])
{
    char text[160];
    return put(l, step, text,
               snprintf(text, sizeof text,
                        "{\"step\":%lld,\"rank\":%d,\"read\":%lld,\"update\":%lld}\n",
                        (long long)step + 1, rank, (long long)turn[READ], (long long)turn[UPDATE]));
}

/* --- reading --- */

typedef struct reader {
    sk_arena *arena;
    const char *path;
    int at; /* the line */
    sk_commits *to;
    int64_t done[MOST_RANKS]; /* steps that are told of each rank */
} reader;

static sk_status damaged(const reader *r)
{
    return sk_fail(SK_EDATA,
                   "%s: line %d is no line of a %s; the file is damaged, or of another run",
                   r->path, r->at,
                   r->to->stale ? "turn, {\"step\":N,\"rank\":R,\"read\":T,\"update\":T}"
                                : "step, {\"step\":N,\"ranks\":[..],\"dropped\":[..]}");
}

static void make_room(const reader *r, int64_t step)
{
    sk_commits *c = r->to;
    if (step < c->cap) return;
    int64_t cap = 2 * step + 1024;
    size_t each = c->stale ? sizeof *c->turn * (size_t)c->n_ranks : sizeof *c->set;
    void *old = c->stale ? (void *)c->turn : (void *)c->set;
    void *grown = sk_grow(r->arena, old, each * (size_t)c->cap, each * (size_t)cap);
    if (c->stale) c->turn = grown;
    else c->set = grown;
    c->cap = cap;
}

static sk_status wrong_step(const reader *r, int64_t step, int64_t want)
{
    return sk_fail(SK_EDATA, "%s: line %d is about step %lld, step %lld is needed", r->path, r->at,
                   (long long)step, (long long)want + 1);
}

static sk_status wrong_ranks(const reader *r)
{
    return sk_fail(SK_EDATA,
                   "%s: line %d is not about %d ranks, each once; replay with as many ranks as the "
                   "run had",
                   r->path, r->at, r->to->n_ranks);
}

static sk_status wrong_size(const reader *r, const line *x)
{
    int found = __builtin_popcount(x->dropped), needed = r->to->n_dropped;
    return sk_fail(SK_EDATA,
                   "%s: line %d drops %d rank%s, and with sync=%s:%d every step drops %d; the "
                   "file is damaged, or of a run with another layout",
                   r->path, r->at, found, sk_plural(found), r->to->way, needed, needed);
}

static sk_status wrong_turn(const reader *r, const line *x, int64_t before)
{
    return sk_fail(SK_EDATA,
                   "%s: line %d: rank %lld read the weights for step %lld in turn %lld, and its "
                   "step %lld ended in turn %lld; the file is damaged",
                   r->path, r->at, x->rank, x->step, x->read, x->step - 1, (long long)before);
}

/* Tables begin with step 0, so a first step that is too far on is refused before there are any. */
static sk_status take_first(reader *r, int64_t step)
{
    sk_commits *c = r->to;
    c->first = c->n = step;
    for (int k = 0; k < c->n_ranks; k++) r->done[k] = step;
    if (step <= c->from) return SK_OK;
    return sk_fail(
        SK_EDATA, "%s has recorded steps from %lld on; resume=CHECKPOINT of step %lld begins there",
        r->path, (long long)step + 1, (long long)step);
}

static sk_status take_set(reader *r, const line *x)
{
    sk_commits *c = r->to;
    if (r->at == 1) SK_TRY(take_first(r, x->step - 1));
    if (x->step != c->n + 1) return wrong_step(r, x->step, c->n);
    if ((x->set ^ x->dropped) != all_of(c->n_ranks) || (x->set & x->dropped) || !x->set)
        return wrong_ranks(r);
    if (__builtin_popcount(x->dropped) != c->n_dropped) return wrong_size(r, x);
    make_room(r, c->n);
    c->set[c->n++] = x->set;
    return SK_OK;
}

static sk_status take_turns(reader *r, const line *x)
{
    sk_commits *c = r->to;
    if (r->at == 1) SK_TRY(take_first(r, x->step - 1));
    if (x->rank >= c->n_ranks) return wrong_ranks(r);
    if (x->step != r->done[x->rank] + 1) return wrong_step(r, x->step, r->done[x->rank]);
    int64_t i = r->done[x->rank]++;
    make_room(r, i);
    int64_t(*turn)[2] = c->turn + i * c->n_ranks + x->rank;
    int64_t before = i > c->first ? turn[-c->n_ranks][UPDATE] : -1;
    if (x->read <= before) return wrong_turn(r, x, before);
    turn[0][READ] = x->read;
    turn[0][UPDATE] = x->update;
    c->n = r->done[0];
    for (int k = 1; k < c->n_ranks; k++)
        if (r->done[k] < c->n) c->n = r->done[k];
    return SK_OK;
}

/* Behind the last step of all ranks. */
static sk_status take_change(const reader *r, const line *x)
{
    sk_commits *c = r->to;
    bool is_last = x->step == c->n;
    for (int k = 0; k < c->n_ranks && c->stale; k++) is_last &= r->done[k] == c->n;
    if (!is_last) return wrong_step(r, x->step, c->n - 1);
    c->changed_at = x->step;
    memcpy(c->changed, x->changed, sizeof c->changed);
    return SK_OK;
}

static sk_status read_text(reader *r, sk_text t)
{
    for (const char *s = t.s, *stop = t.s + t.n; s < stop;) {
        const char *end = memchr(s, '\n', (size_t)(stop - s));
        line x;
        r->at++;
        if (!end || !read_line(s, end, &x)) return damaged(r);
        if (*x.changed) SK_TRY(take_change(r, &x));
        else if (x.stale != r->to->stale) return damaged(r);
        else SK_TRY(x.stale ? take_turns(r, &x) : take_set(r, &x));
        s = end + 1;
    }
    return SK_OK;
}

/* --- turns --- */

static int by_number(const void *x, const void *y)
{
    int64_t a = **(int64_t *const *)x, b = **(int64_t *const *)y;
    return (a > b) - (a < b);
}

/* Of the steps before `steps`, as places in c->turn; *n of them. */
static int64_t **in_order(const sk_commits *c, sk_arena *a, int64_t steps, int64_t *n)
{
    int64_t **all = sk_many(a, int64_t *, 2 * c->n_ranks * (steps - c->first));
    *n = 0;
    for (int64_t i = c->n_ranks * c->first; i < c->n_ranks * steps; i++)
        for (int k = READ; k <= UPDATE && c->turn[i][UPDATE]; k++) all[(*n)++] = &c->turn[i][k];
    qsort(all, (size_t)*n, sizeof *all, by_number);
    return all;
}

/* Each number once, from the first on.  A rank that was ended between its two turns leaves one that
 * no line has; the rank of the last line has none. */
static sk_status check_turns(const reader *r)
{
    const sk_commits *c = r->to;
    int64_t most = c->first, n = 0, want = 2 * c->n_ranks * c->first, missing = 0;
    for (int k = 0; k < c->n_ranks; k++)
        if (r->done[k] > most) most = r->done[k];
    if (!c->stale || most == c->first) return SK_OK;
    int64_t **all = in_order(c, r->arena, most, &n);
    for (int64_t i = 0; i < n; i++) {
        if (*all[i] < want)
            return sk_fail(SK_EDATA,
                           "%s: turn %lld is there %s; each is of one rank, the file is damaged",
                           r->path, (long long)*all[i],
                           i ? "twice" : "before the first, of steps that are not");
        missing += *all[i] - want;
        if (missing >= c->n_ranks)
            return sk_fail(SK_EDATA, "%s: no line has turn %lld; the file is damaged", r->path,
                           (long long)want);
        want = *all[i] + 1;
    }
    return SK_OK;
}

static sk_status too_far(const sk_commits *c, const char *run, const int64_t *turn, int64_t least)
{
    int64_t i = (turn - *c->turn) / 2;
    return sk_fail(SK_EDATA,
                   "replay: %s/commits.jsonl: in turn %lld rank %lld was %lld steps ahead of the "
                   "slowest, and with sync=%s:%d it waits at more than %d; the file is damaged, "
                   "or of a run with another layout",
                   run, (long long)*turn, (long long)(i % c->n_ranks),
                   (long long)(i / c->n_ranks - least), c->way, c->most_ahead, c->most_ahead);
}

/* Or ranks would wait for each other: all[n] are turns in order, those of steps before `from` are
 * over. */
static sk_status check_ahead(const sk_commits *c, const char *run, int64_t from, int64_t **all,
                             int64_t n)
{
    int64_t done[MOST_RANKS] = {0};
    for (int64_t k = 0; k < n; k++) {
        int64_t place = all[k] - *c->turn, step = place / 2 / c->n_ranks, least = step;
        if (place % 2 == UPDATE) {
            done[place / 2 % c->n_ranks] = step + 1;
            continue;
        }
        for (int r = 0; r < c->n_ranks; r++)
            if (done[r] < least) least = done[r];
        if (step >= from && step - (least < from ? from : least) > c->most_ahead)
            return too_far(c, run, all[k], least < from ? from : least);
    }
    return SK_OK;
}

sk_status sk_commits_read(sk_arena *a, const char *run, sk_commits *out)
{
    reader r = {.arena = a, .path = path_of(a, run), .to = out};
    sk_text t = {0};
    sk_assert(out->n_ranks > 0 && out->n_ranks <= MOST_RANKS);
    if (!sk_is_there(r.path))
        return sk_fail(SK_EDATA,
                       "replay: %s is not there, and run %s cannot be repeated without it", r.path,
                       run);
    SK_TRY(sk_file_read(a, r.path, &t));
    SK_TRY(read_text(&r, t));
    return check_turns(&r);
}

/* Turns of steps that are not done leave no gap. */
sk_status sk_commits_keep(sk_commits *c, sk_arena *a, const char *run, int64_t from, int64_t steps)
{
    int64_t n = 0;
    if (steps < c->n) c->n = steps;
    if (!c->stale || c->n <= c->first) return SK_OK;
    int64_t **all = in_order(c, a, c->n, &n);
    for (int64_t i = 0; i < n; i++) *all[i] = 2 * c->n_ranks * c->first + i;
    return c->most_ahead < 0 ? SK_OK : check_ahead(c, run, from, all, n);
}

bool sk_commits_together(const sk_commits *c, int64_t steps)
{
    if (!c->stale || steps <= c->first || steps > c->n) return true;
    for (int r = 0; r < c->n_ranks; r++)
        if (c->turn[(steps - 1) * c->n_ranks + r][UPDATE] >= 2 * c->n_ranks * steps) return false;
    return true;
}

/* --- resuming --- */

/* A line "  key: value" of a job's text that steps go by; the section that it is in.  false: the
 * end. */
static bool next_key(const char **at, const char *section[2])
{
    static const char *const apart[] = {"run", "resume", "ckpt", "log", "val", "sample"};
    while (**at) {
        const char *s = *at;
        size_t n = strcspn(s, "\n"), name = strcspn(s, ":\n");
        bool free = *s == '#' || !n;
        *at = s + n + (s[n] == '\n');
        if (*s != ' ') section[0] = s;
        const char *of = section[0] ? section[0] : s;
        size_t length = strcspn(of, ":\n");
        for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
            free |= strlen(apart[i]) == length && !strncmp(of, apart[i], length);
        free |= name == 9 && !strncmp(s, "  timeout", name);
        section[1] = s;
        if (!free) return true;
    }
    return false;
}

/* The first key that differs, into `key`; false: none does. */
static bool find_change(const char *was, const char *is, char key[SK_COMMIT_KEY])
{
    const char *x[2] = {0}, *y[2] = {0};
    for (bool more = true; more;) {
        bool other = next_key(&was, x);
        more = next_key(&is, y);
        if (!more && !other) return false;
        size_t n = other ? strcspn(x[1], "\n") : 0;
        if (more && other && n == strcspn(y[1], "\n") && !strncmp(x[1], y[1], n)) continue;
        const char *const *of = more ? y : x;
        const char *inner = of[1] + strspn(of[1], " ");
        bool outer = of[0] == of[1];
        snprintf(key, SK_COMMIT_KEY, "%.*s%s%.*s", outer ? 0 : (int)strcspn(of[0], ":\n"), of[0],
                 outer ? "" : ".", (int)strcspn(inner, ":\n\""), inner);
        return true;
    }
    return false;
}

/* A file without steps has none that another job did: the checkpoint was another run's. */
static sk_status cut(sk_arena *a, const char *path, int64_t done, const char *changed)
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
    if (!at || !*changed) return at == t.n ? SK_OK : sk_file_replace(path, t.s, at);
    sk_out o = {.arena = a};
    sk_out_add(&o, "%.*s{\"step\":%lld,\"changed\":\"%s\"}\n", (int)at, t.s, (long long)done,
               changed);
    return sk_file_replace(path, o.s, o.n);
}

sk_status sk_commit_log_cut(const char *run, int64_t done, const char *was, const char *is)
{
    sk_arena a = {0};
    char changed[SK_COMMIT_KEY] = "";
    if (*was) find_change(was, is, changed);
    sk_status st = cut(&a, path_of(&a, run), done, changed);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
