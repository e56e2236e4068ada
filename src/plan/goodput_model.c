/* goodput_model.c - closed forms of goodput, and runs with failures played event by event. */
#include "plan/goodput_model.h"
#include "base/rng.h"

#include <math.h>
#include <stddef.h>

/* ---- the best interval */

/* -(x + log(1 - x)), for 0 <= x < 1, also where the two nearly cancel. */
static double excess(double x)
{
    double sum = 0, power = x;
    if (x > 0.1) return -(x + log1p(-x));
    for (int k = 2; k < 20; k++) {
        power *= x;
        sum += power / k;
    }
    return sum;
}

/* (1 - x) e^x = e^-c, or excess(x) = c, has one solution in [0, 1). */
double sk_goodput_interval(double checkpoint, double mtbf)
{
    enum { HALVINGS = 200 };
    double low = 0, high = 1;
    if (isinf(mtbf)) return INFINITY;
    if (checkpoint <= 0) return 0;
    for (int i = 0; i < HALVINGS; i++) {
        double x = (low + high) / 2;
        if (x < 1 && excess(x) < checkpoint / mtbf) low = x;
        else high = x;
    }
    return high * mtbf;
}

/* Work that lasts, as part of the time that hosts are whole, up to a factor. */
static double progress(double interval, double checkpoint, double mtbf)
{
    return interval / mtbf / expm1((interval + checkpoint) / mtbf);
}

/* The time is convex in the interval, so the best number of steps is next to the best interval. */
int64_t sk_goodput_steps(double checkpoint, double mtbf, double step)
{
    const double most = 9e15;
    double k = fmin(floor(sk_goodput_interval(checkpoint, mtbf) / step), most);
    if (isinf(mtbf)) return 0;
    if (k < 1) return 1;
    bool more = progress((k + 1) * step, checkpoint, mtbf) > progress(k * step, checkpoint, mtbf);
    return (int64_t)k + more;
}

double sk_goodput_young(double checkpoint, double mtbf) { return sqrt(2 * checkpoint * mtbf); }

double sk_goodput_first_order(const sk_goodput_in *in)
{
    double mtbf = in->host_mtbf / (double)in->hosts, saving = in->checkpoint / in->interval;
    if (isinf(mtbf)) return fmax(0, 1 - saving);
    return fmax(0, 1 - saving - (in->interval / 2 + in->detect + in->restart) / mtbf);
}

/* ---- what is asked */

static sk_status check(const sk_goodput_in *in)
{
    const struct {
        const char *what;
        double x;
    } times[] = {{"checkpoint", in->checkpoint},
                 {"detection", in->detect},
                 {"restart", in->restart},
                 {"repair", in->repair}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (!(times[i].x >= 0 && isfinite(times[i].x)))
            return sk_fail(SK_EDATA, "goodput: the time of a %s is %g s; 0 or more is needed",
                           times[i].what, times[i].x);
    if (!(in->host_mtbf > 0))
        return sk_fail(SK_EDATA, "goodput: a host fails every %g s; a time above 0 is needed",
                       in->host_mtbf);
    if (!(in->interval > 0) || (isinf(in->interval) && !isinf(in->host_mtbf)))
        return sk_fail(SK_EDATA,
                       "goodput: the interval between checkpoints is %g s; a time above 0 is "
                       "needed, without end only where no host fails",
                       in->interval);
    if (in->hosts < 1 || in->spares < 0 || in->replicas < 1)
        return sk_fail(SK_EDATA,
                       "goodput: %lld hosts, %lld spares, %lld replicas; at least 1, 0 and 1 are "
                       "needed",
                       (long long)in->hosts, (long long)in->spares, (long long)in->replicas);
    return SK_OK;
}

/* Replicas that train while so many hosts are broken. */
static double live(const sk_goodput_in *in, int64_t broken)
{
    int64_t missing = broken - in->spares;
    if (missing <= 0) return (double)in->replicas;
    if (!in->elastic || missing >= in->hosts) return 0;
    return floor((double)(in->hosts - missing) * (double)in->replicas / (double)in->hosts);
}

static double speed(const sk_goodput_in *in, int64_t broken)
{
    return live(in, broken) / (double)in->replicas;
}

/* Failures of the job per second while so many hosts are broken: idle hosts do not fail. */
static double failures(const sk_goodput_in *in, int64_t broken)
{
    return speed(in, broken) * (double)in->hosts / in->host_mtbf;
}

/* ---- what is expected */

/* Parts of the time of a job that fails so often and always restarts at once. */
static sk_goodput steady(const sk_goodput_in *in, double rate)
{
    double up = exp(-rate * in->restart) / (1 + rate * in->detect), t = in->interval;
    sk_goodput g = {.work = 1};
    if (isinf(t)) return g;
    g.work = rate > 0 ? up * progress(t, in->checkpoint, 1 / rate) : t / (t + in->checkpoint);
    g.checkpoint = g.work * in->checkpoint / t;
    g.lost = fmax(0, up - g.work - g.checkpoint);
    g.down = 1 - up;
    return g;
}

/* The same while so many hosts are broken; elastic jobs also stop to grow. */
static sk_goodput state(const sk_goodput_in *in, int64_t broken)
{
    double part = speed(in, broken);
    if (part <= 0)
        return (sk_goodput){.wait = 1, .idle = (double)(in->hosts + in->spares - broken)};
    sk_goodput g = steady(in, failures(in, broken));
    if (broken && live(in, broken - 1) > live(in, broken)) {
        double grows = fmin(1, (double)broken / in->repair * (in->checkpoint + in->restart));
        g.work *= 1 - grows;
        g.checkpoint *= 1 - grows;
        g.lost *= 1 - grows;
        g.down = 1 - g.work - g.checkpoint - g.lost;
    }
    g.goodput = g.work * part;
    g.busy = part * (double)in->hosts * (1 - g.down);
    g.idle = (double)(in->hosts + in->spares - broken) - g.busy;
    return g;
}

/* log(p(broken + 1) / p(broken)) of the chain, -INFINITY where it ends.  Nothing fails while a
 * failure is not noticed. */
static double climb(const sk_goodput_in *in, int64_t broken)
{
    double rate = failures(in, broken);
    if (rate <= 0 || in->repair <= 0) return -INFINITY;
    return log(rate / (1 + rate * in->detect) * in->repair / (double)(broken + 1));
}

static void add(sk_goodput *sum, const sk_goodput *g, double p)
{
    sum->goodput += p * g->goodput;
    sum->work += p * g->work;
    sum->checkpoint += p * g->checkpoint;
    sum->lost += p * g->lost;
    sum->down += p * g->down;
    sum->wait += p * g->wait;
    sum->busy += p * g->busy;
    sum->idle += p * g->idle;
}

sk_status sk_goodput_expect(const sk_goodput_in *in, sk_goodput *out)
{
    double top = 0, at = 0, sum = 0;
    SK_TRY(check(in));
    for (int64_t k = 0; isfinite(at); at += climb(in, k++)) top = fmax(top, at);
    *out = (sk_goodput){0};
    at = 0;
    for (int64_t k = 0; isfinite(at); at += climb(in, k++)) sum += exp(at - top);
    at = 0;
    for (int64_t k = 0; isfinite(at); at += climb(in, k++)) {
        sk_goodput g = state(in, k);
        add(out, &g, exp(at - top) / sum);
    }
    return SK_OK;
}

/* ---- one run */

typedef struct sim {
    const sk_goodput_in *in;
    uint64_t seed, draws;
    double now, saved; /* seconds; work that is in a checkpoint */
    double since;      /* seconds since then, those of the next checkpoint included */
    int64_t broken, failures;
} sim;

/* Seconds until something that happens so often. */
static double draw(sim *s, double rate)
{
    return rate > 0 ? -log1p(-sk_rng_uniform(s->seed, 0, s->draws++)) / rate : INFINITY;
}

static double repairs(const sim *s) { return s->broken ? (double)s->broken / s->in->repair : 0; }

static void fail_host(sim *s)
{
    s->failures++;
    s->since = 0;
    if (s->in->repair > 0) s->broken++;
}

/* So many seconds pass, in which hosts are repaired, and fail if they `may`; false: one did. */
static bool pass(sim *s, double seconds, bool may)
{
    while (seconds > 0) {
        double fails = draw(s, may ? failures(s->in, s->broken) : 0), back = draw(s, repairs(s));
        double dt = fmin(seconds, fmin(fails, back));
        s->now += dt;
        seconds -= dt;
        if (dt == fails) {
            fail_host(s);
            return false;
        }
        if (dt == back) s->broken--;
    }
    return true;
}

static void wait_for_repairs(sim *s)
{
    while (live(s->in, s->broken) <= 0) {
        s->now += draw(s, repairs(s));
        s->broken--;
    }
}

/* From a failure until all ranks train again. */
static void recover(sim *s, int64_t most)
{
    do {
        if (s->failures >= most) return;
        pass(s, s->in->detect, false);
        wait_for_repairs(s);
    } while (!pass(s, s->in->restart, true));
}

/* Time passes in intervals and checkpoints; what is saved grows with each. */
static void advance(sim *s, double dt)
{
    double cycle = s->in->interval + s->in->checkpoint, whole = floor((s->since + dt) / cycle);
    s->now += dt;
    s->since += dt;
    if (whole < 1) return;
    s->saved += whole * s->in->interval * speed(s->in, s->broken);
    s->since = fmax(0, s->since - whole * cycle);
}

/* A host is back, and more replicas can train: save, and start again with them. */
static bool grow(sim *s)
{
    double more = fmin(s->since, s->in->interval) * speed(s->in, s->broken + 1);
    if (!pass(s, s->in->checkpoint, true)) return false;
    s->saved += more;
    s->since = 0;
    return pass(s, s->in->restart, true);
}

/* Seconds to the end if nothing happens: whole intervals with their checkpoints, and the rest. */
static double to_end(const sim *s, double work)
{
    double t = s->in->interval, left = (work - s->saved) / speed(s->in, s->broken);
    double whole = isinf(t) ? 0 : fmax(0, ceil(left / t) - 1);
    return fmax(0, left + whole * s->in->checkpoint - s->since);
}

/* Trains until the end, or until a failure: false. */
static bool train(sim *s, double work)
{
    for (;;) {
        double fails = draw(s, failures(s->in, s->broken)), back = draw(s, repairs(s));
        double end = to_end(s, work), dt = fmin(end, fmin(fails, back));
        if (dt == end) {
            s->now += dt;
            return true;
        }
        advance(s, dt);
        if (dt == fails) {
            fail_host(s);
            return false;
        }
        bool more = live(s->in, s->broken - 1) > live(s->in, s->broken);
        s->broken--;
        if (more && !grow(s)) return false;
    }
}

sk_status sk_goodput_simulate(const sk_goodput_in *in, double work, uint64_t seed, int64_t most,
                              sk_goodput_run *out)
{
    SK_TRY(check(in));
    if (!(work >= 0 && isfinite(work)))
        return sk_fail(SK_EDATA, "goodput: a run has %g s of work; 0 or more is needed", work);
    sim s = {.in = in, .seed = seed};
    bool done = train(&s, work);
    while (!done && s.failures < most) {
        recover(&s, most);
        done = s.failures < most && train(&s, work);
    }
    *out = (sk_goodput_run){.seconds = s.now, .failures = s.failures, .done = done};
    return SK_OK;
}
