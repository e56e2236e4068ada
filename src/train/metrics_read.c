/* metrics_read.c - metrics.jsonl, line by line. */
#include "train/metrics_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 10 }; /* the last of so many parts is averaged */

/* The number behind "key": in the line; false: the line has no such key. */
static bool number(const char *line, const char *end, const char *key, double *out)
{
    const char *at = memmem(line, (size_t)(end - line), key, strlen(key));
    char *stop = NULL;
    if (!at) return false;
    at += strlen(key);
    *out = strtod(at, &stop);
    if (stop == at) *out = NAN; /* null */
    return stop <= end;
}

static void read_line(sk_arena *a, const char *line, const char *end, sk_curve *c)
{
    double step, loss, ms = 0, tokens = 0;
    int n = c->train.n;
    if (end == line || end[-1] != '}' || !number(line, end, "{\"step\":", &step)) return;
    if (!(step >= 0 && step < 1e15)) return; /* 0: of a validation before any step */
    sk_curve_point before = n ? c->train.v[n - 1] : (sk_curve_point){0}, p = before;
    p.step = (int64_t)step;
    p.accuracy = p.noise = p.lr = NAN;
    if (number(line, end, "\"val_loss\":", &p.loss)) {
        if (!number(line, end, "\"val_accuracy\":", &p.accuracy)) p.accuracy = NAN;
        *(sk_curve_point *)sk_push(a, &c->val) = p;
        return;
    }
    if (step < 1 || !number(line, end, "\"loss\":", &loss) || !number(line, end, "\"ms\":", &ms))
        return;
    if (number(line, end, "\"tokens\":", &tokens) && isfinite(tokens)) p.tokens = tokens;
    if (!number(line, end, "\"noise_scale\":", &p.noise)) p.noise = NAN;
    if (!number(line, end, "\"lr\":", &p.lr)) p.lr = NAN;
    p.loss = loss;
    p.seconds = before.seconds + (ms > 0 && isfinite(ms) ? 1e-3 * ms : 0);
    *(sk_curve_point *)sk_push(a, &c->train) = p;
}

void sk_curve_lines(sk_arena *a, sk_text t, sk_curve *out)
{
    sk_curve c = {0};
    for (const char *s = t.s, *end; t.n && (end = memchr(s, '\n', (size_t)(t.s + t.n - s)));
         s = end + 1)
        read_line(a, s, end, &c);
    *out = c;
}

sk_status sk_curve_read(sk_arena *a, const char *path, sk_curve *out)
{
    sk_text t = {0};
    if (sk_is_there(path)) SK_TRY(sk_file_read(a, path, &t));
    sk_curve_lines(a, t, out);
    return SK_OK;
}

/* Of n steps so many are averaged. */
static int window(int n) { return (n + WINDOW - 1) / WINDOW; }

static double mean_at(const sk_curve *c, int n)
{
    double sum = 0;
    for (int i = n - window(n); i < n; i++) sum += c->train.v[i].loss;
    return n ? sum / window(n) : NAN;
}

double sk_curve_loss(const sk_curve *c) { return mean_at(c, c->train.n); }
double sk_curve_val(const sk_curve *c) { return c->val.n ? c->val.v[c->val.n - 1].loss : NAN; }

double sk_curve_accuracy(const sk_curve *c)
{
    return c->val.n ? c->val.v[c->val.n - 1].accuracy : NAN;
}

static bool reach_val(const sk_curve *c, double target, sk_curve_point *out)
{
    int i = 0;
    while (i < c->val.n && !(c->val.v[i].loss <= target)) i++;
    if (i == c->val.n) return false;
    const sk_curve_point *p = &c->val.v[i], *q = i ? p - 1 : p;
    double part =
        isfinite(q->loss) && q->loss > p->loss ? (q->loss - target) / (q->loss - p->loss) : 1;
    *out =
        (sk_curve_point){.step = q->step + (int64_t)ceil(part * (double)(p->step - q->step) - 1e-9),
                         .loss = target,
                         .tokens = q->tokens + part * (p->tokens - q->tokens),
                         .seconds = q->seconds + part * (p->seconds - q->seconds)};
    return true;
}

static bool reach_train(const sk_curve *c, double target, sk_curve_point *out)
{
    double sum = 0; /* of the finite losses of the window */
    int from = 0, bad = 0;
    for (int n = 1; n <= c->train.n; n++) {
        double x = c->train.v[n - 1].loss;
        if (isfinite(x)) sum += x;
        else bad++;
        for (; from < n - window(n); from++) {
            x = c->train.v[from].loss;
            if (isfinite(x)) sum -= x;
            else bad--;
        }
        if (bad || sum / window(n) > target) continue;
        *out = c->train.v[n - 1];
        return true;
    }
    return false;
}

bool sk_curve_reach(const sk_curve *c, bool val, double target, sk_curve_point *out)
{
    return val ? reach_val(c, target, out) : reach_train(c, target, out);
}
