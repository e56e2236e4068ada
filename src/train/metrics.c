/* metrics.c - metrics.jsonl, one write per line. */
#include "train/metrics.h"
#include "base/strings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ASIDE = 10000 };

/* The step that a line is about.  (Not by sscanf(), which looks for the end of all that follows.)
 */
static bool step_of(const char *line, long long *step)
{
    static const char begin[] = "{\"step\":";
    char *end = NULL;
    if (strncmp(line, begin, sizeof begin - 1)) return false;
    line += sizeof begin - 1;
    *step = strtoll(line, &end, 10);
    return end != line;
}

/* Bytes before the first line that is about a step after `done`, or is no line of ours. */
static size_t kept(sk_text t, int64_t done)
{
    size_t at = 0;
    while (at < t.n) {
        long long step;
        const char *end = memchr(t.s + at, '\n', t.n - at);
        if (!end || !step_of(t.s + at, &step) || step > done) break;
        at = (size_t)(end + 1 - t.s);
    }
    return at;
}

/* The rest of the lines into the first of path.1, path.2 ... that is free. */
static sk_status move_aside(sk_metrics *m, const char *path, sk_text rest)
{
    for (int i = 1; i < MOST_ASIDE; i++) {
        char name[PATH_MAX];
        struct stat s;
        int n = snprintf(name, sizeof name, "%s.%d", path, i);
        if (n < 0 || (size_t)n >= sizeof name) return sk_fail(SK_EIO, "%s: name too long", path);
        if (!lstat(name, &s)) continue;
        SK_TRY(sk_file_write_new(name, rest.s, rest.n));
        const char *slash = strrchr(name, '/');
        snprintf(m->aside, sizeof m->aside, "%.*s", (int)sizeof m->aside - 1,
                 slash ? slash + 1 : name);
        return SK_OK;
    }
    return sk_fail(SK_ECREATE, "%s: there are %d older ones beside it; move them away", path,
                   MOST_ASIDE - 1);
}

/* Steps told there, and what they took. */
static void count(sk_metrics *m, sk_text t)
{
    for (const char *s = t.s, *end; (end = memchr(s, '\n', (size_t)(t.s + t.n - s))); s = end + 1) {
        const char *ms = memmem(s, (size_t)(end - s), "\"ms\":", 5);
        char *number = NULL;
        double x = ms ? strtod(ms + 5, &number) : 0;
        if (!ms || number == ms + 5) continue;
        m->n_again++;
        m->again_s += x > 0 && isfinite(x) ? 1e-3 * x : 0;
    }
}

/* The validation behind step `done`, among the lines that stay. */
static void find_val(sk_metrics *m, const char *s, size_t n, int64_t done)
{
    static const char key[] = "\"val_loss\":";
    long long step;
    while (n) { /* from the last line back */
        const char *before = memrchr(s, '\n', n - 1), *line = before ? before + 1 : s;
        if (!step_of(line, &step) || step != done) return;
        const char *at = memmem(line, (size_t)(s + n - line), key, sizeof key - 1);
        char *end = NULL;
        if (at) {
            m->val_step = done;
            m->val_loss = strtod(at + sizeof key - 1, &end);
            if (end == at + sizeof key - 1) m->val_loss = NAN; /* null */
            return;
        }
        n = (size_t)(line - s);
    }
}

/* What does not stay is safe under another name before it is cut off here. */
static sk_status divide(sk_metrics *m, const char *path, int64_t done)
{
    sk_arena a = {0};
    sk_text t = {0};
    sk_status st = sk_file_read(&a, path, &t);
    size_t keep = st ? 0 : kept(t, done);
    sk_text rest = {t.s + keep, t.n - keep};
    if (!st) find_val(m, t.s, keep, done);
    if (!st && rest.n) count(m, rest);
    if (!st && rest.n) st = move_aside(m, path, rest);
    sk_arena_end(&a);
    if (st) return sk_trail(st, SK_HERE);
    if (ftruncate(m->fd, (off_t)keep)) return sk_fail(SK_ECREATE, "%s: %s", path, strerror(errno));
    return SK_OK;
}

sk_status sk_metrics_open(sk_metrics *m, const char *path, int64_t mem_bytes, int64_t done)
{
    *m = (sk_metrics){.mem_bytes = mem_bytes, .fd = -1, .val_step = -1};
    SK_TRY(sk_file_own(path, O_APPEND, &m->fd));
    sk_status st = divide(m, path, done);
    if (st) sk_metrics_close(m);
    return st;
}

void sk_metrics_close(sk_metrics *m)
{
    if (m->fd >= 0) close(m->fd);
    m->fd = -1;
}

static bool put(sk_metrics *m, const char *line)
{
    size_t n = strlen(line);
    ssize_t put = write(m->fd, line, n);
    if (put == (ssize_t)n || m->told) return true;
    m->told = true;
    snprintf(m->why, sizeof m->why, "metrics.jsonl lacks lines from here on: %s",
             put < 0 ? strerror(errno) : "a line was cut");
    return false;
}

typedef struct number {
    char s[32];
} number;

static number json(double x)
{
    number t = {"null"};
    if (isfinite(x)) snprintf(t.s, sizeof t.s, "%.9g", x);
    return t;
}

static void print_choices(const sk_choices *c, char *to, size_t size)
{
    const char *again = !c->twice ? "" : c->again ? ",\"again\":1" : ",\"again\":0";
    if (c->all <= 0) snprintf(to, size, "%s", again);
    else
        snprintf(to, size, ",\"aux\":%s,\"drops\":%.0f,\"drop_pct\":%.4g%s", json(c->aux).s,
                 c->drops, 100 * c->drops / c->all, again);
}

static void print_copies(const sk_record *r, char *to, size_t size)
{
    *to = 0;
    if (r->copied > 0)
        snprintf(to, size, ",\"copy_ms\":%.4g,\"copy_hidden_pct\":%.3g", 1e3 * r->copied,
                 100 * fmax(0, 1 - r->uncovered / r->copied));
}

static void print_noise(const sk_record *r, char *to, size_t size)
{
    int n = 0;
    *to = 0;
    if (r->noise)
        n = snprintf(to, size, ",\"grad_var\":%s,\"noise_scale\":%s", json(r->grad_var).s,
                     json(r->noise_scale).s);
    if (r->gain > 0) snprintf(to + n, size - (size_t)n, ",\"gain\":%.9g", r->gain);
}

static void print_backward(const sk_backward_sums *b, char *to, size_t size)
{
    size_t n = 0;
    *to = 0;
    if (b->norms)
        n += (size_t)snprintf(to, size,
                              ",\"sample_norm_mean\":%s,\"sample_norm_max\":%s,"
                              "\"sample_variance\":%s",
                              json(b->mean).s, json(b->most).s, json(b->variance).s);
    if (b->ggn) n += (size_t)snprintf(to + n, size - n, ",\"ggn_trace\":%s", json(b->trace).s);
    if (b->ggn_mc) snprintf(to + n, size - n, ",\"ggn_mc_trace\":%s", json(b->trace_mc).s);
}

static void print_gpu(const sk_nvml *g, char *to, size_t size)
{
    size_t n = 0;
    *to = 0;
    if (g->bytes) n += (size_t)snprintf(to, size, ",\"gpu_mem\":%lld", (long long)g->used);
    if (g->bytes && g->busy >= 0)
        n += (size_t)snprintf(to + n, size - n, ",\"gpu_util\":%d", g->busy);
    if (g->watts > 0) snprintf(to + n, size - n, ",\"gpu_watt\":%.4g", g->watts);
}

static void print_momentum(const sk_record *r, char *to, size_t size)
{
    *to = 0;
    if (r->momentum > 0) snprintf(to, size, ",\"momentum\":%.9g", r->momentum);
}

static void print_dropped(const sk_record *r, char *to, size_t size)
{
    *to = 0;
    if (r->dropped) snprintf(to, size, ",\"dropped\":%d", r->dropped);
}

/* Per cent, or null where the step was made without rank 0. */
static number exposed(const sk_record *r, double seconds)
{
    number t = {"null"};
    if (isfinite(r->waited)) snprintf(t.s, sizeof t.s, "%.3g", 100 * r->waited / seconds);
    return t;
}

static void print_batch(const sk_record *r, char *to, size_t size)
{
    *to = 0;
    if (r->batch) snprintf(to, size, ",\"batch\":%lld", (long long)r->batch);
}

bool sk_metrics_batch(sk_metrics *m, int64_t done, int64_t batch)
{
    char line[128];
    snprintf(line, sizeof line, "{\"step\":%lld,\"batch\":%lld}\n", (long long)done,
             (long long)batch);
    return put(m, line);
}

bool sk_metrics_step(sk_metrics *m, const sk_record *r, double tokens, const sk_choices *c)
{
    char line[1024], batch[32], dropped[32], experts[128], momentum[40], copies[64], noise[128],
        gpu[96], mfu[32] = "null", backward[240];
    double s = r->seconds > 0 ? r->seconds : 1e-9;
    print_batch(r, batch, sizeof batch);
    print_dropped(r, dropped, sizeof dropped);
    print_choices(c, experts, sizeof experts);
    print_momentum(r, momentum, sizeof momentum);
    print_copies(r, copies, sizeof copies);
    print_noise(r, noise, sizeof noise);
    print_backward(&r->backward, backward, sizeof backward);
    print_gpu(&r->gpu, gpu, sizeof gpu);
    if (r->mfu > 0) snprintf(mfu, sizeof mfu, "%.4g", r->mfu);
    snprintf(line, sizeof line,
             "{\"step\":%lld,\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,\"tokens\":%.0f,\"ms\":%.4g,"
             "\"tok_s\":%.5g,\"mfu\":%s,\"mem_bytes\":%lld,\"exposed_pct\":%s,\"scale\":%.9g,"
             "\"skipped\":%lld,\"left_out\":%lld%s%s%s%s%s%s%s%s}\n",
             (long long)r->step, json(r->loss).s, json(r->grad_norm).s, json(r->lr).s, tokens,
             1e3 * s, r->tokens / s, mfu, (long long)m->mem_bytes, exposed(r, s).s, r->scale,
             (long long)r->skipped, (long long)r->left_out, batch, dropped, experts, momentum,
             copies, noise, backward, gpu);
    return put(m, line);
}

/* Another layout adds up in another order. */
static bool is_told(const sk_metrics *m, const sk_record *r)
{
    if (m->val_step != r->step) return false;
    if (!isfinite(m->val_loss) || !isfinite(r->loss))
        return isfinite(m->val_loss) == isfinite(r->loss);
    return fabs(m->val_loss - r->loss) <= 1e-5 * fabs(r->loss);
}

bool sk_metrics_val(sk_metrics *m, const sk_record *r)
{
    char line[160], accuracy[56] = "";
    if (is_told(m, r)) return true;
    if (isfinite(r->accuracy))
        snprintf(accuracy, sizeof accuracy, ",\"val_accuracy\":%s", json(r->accuracy).s);
    snprintf(line, sizeof line, "{\"step\":%lld,\"val_loss\":%s%s}\n", (long long)r->step,
             json(r->loss).s, accuracy);
    return put(m, line);
}
