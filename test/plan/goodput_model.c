/* goodput_model.c - closed forms against published figures, against brute force, and against runs
 * that are played event by event. */
#include "plan/goodput_model.h"
#include "lib/check.h"

#include <math.h>

#define HOUR 3600.0

static bool near(double got, double want, double by)
{
    if (fabs(got - want) <= by) return true;
    printf("%.9g is not %.9g within %g\n", got, want, by);
    return false;
}

static sk_goodput expect(const sk_goodput_in *in)
{
    sk_goodput g = {0};
    check(!sk_goodput_expect(in, &g));
    check(near(g.work + g.checkpoint + g.lost + g.down + g.wait, 1, 1e-12));
    check(g.goodput >= 0 && g.goodput <= g.work + 1e-12 && g.busy >= 0 && g.idle >= -1e-9);
    check(g.busy + g.idle <= (double)(in->hosts + in->spares) * (1 + 1e-12));
    return g;
}

static sk_goodput_in job(double mtbf, double checkpoint, double detect, double restart)
{
    return (sk_goodput_in){.hosts = 1,
                           .replicas = 1,
                           .host_mtbf = mtbf,
                           .checkpoint = checkpoint,
                           .detect = detect,
                           .restart = restart,
                           .interval = sk_goodput_young(checkpoint, mtbf)};
}

/* The failures that Meta measured on 1,024 GPUs and projected to 16,384 and 131,072 (arXiv
 * 2410.21680), and four ways to meet them: per cent of the time to first order. */
static void first_order(void)
{
    static const double mtbf[] = {7.9 * HOUR, 1.8 * HOUR, 14 * 60};
    static const double costs[][3] = {{30, 600, 600}, {5, 60, 120}, {1, 10, 60}, {0.2, 5, 15}};
    static const double percent[][4] = {
        {91.2, 97.5, 98.9, 99.6}, {71.9, 93.3, 97.2, 98.9}, {0, 67.7, 86.8, 95.4}};
    for (int m = 0; m < 3; m++)
        for (int c = 0; c < 4; c++) {
            sk_goodput_in in = job(mtbf[m], costs[c][0], costs[c][1], costs[c][2]);
            check(near(100 * sk_goodput_first_order(&in), percent[m][c], 0.0501));
            double exact = expect(&in).goodput; /* at the same interval */
            check(near(exact, percent[m][c] / 100, 4 * pow(1 - percent[m][c] / 100, 2) + 1e-3));
            check(exact > sk_goodput_first_order(&in) - 1e-4);
        }
    check(near(sk_goodput_young(1, 7.9 * HOUR), 238, 0.5));
    check(near(sk_goodput_young(1, 1.8 * HOUR), 114, 0.5));
    check(near(sk_goodput_young(0.2, 1.8 * HOUR), 51, 0.5));
}

/* The optima of Daly (2006), figures 3 to 5, for a dump of 5 minutes, which he has from his
 * third-order form; it is within 0.5 % as long as a checkpoint is far shorter than the time between
 * failures. */
static void daly(void)
{
    check(near(sk_goodput_interval(300, 24 * HOUR) / 60, 117, 0.5));
    check(near(sk_goodput_interval(300, 6 * HOUR) / 60, 57, 0.5));
    check(near(sk_goodput_interval(300, 900) / 60, 9.1, 0.1));
    for (double part = 1e-9; part < 0.05; part *= 3) { /* checkpoint over time between failures */
        double x = part / 2, t = sk_goodput_interval(part, 1);
        double third = sqrt(2 * part) * (1 + sqrt(x) / 3 + x / 9) - part;
        check(near(t / third, 1, 5e-3));
        check(near(t / sk_goodput_young(part, 1), 1, sqrt(2 * part)));
        check(near((1 - t) * exp(t), exp(-part), 1e-12));
    }
}

/* No other interval has more goodput, and no other number of steps. */
static void best(void)
{
    static const double costs[] = {1e-3, 0.2, 5, 300, 4000};
    for (int i = 0; i < 5; i++) {
        sk_goodput_in in = job(2 * HOUR, costs[i], 10, 60);
        double t = sk_goodput_interval(costs[i], 2 * HOUR), top;
        in.interval = t;
        top = expect(&in).goodput;
        for (double f = 0.5; f < 2; f *= 1.07) {
            in.interval = t * f;
            check(expect(&in).goodput <= top + 1e-12);
        }
        for (double step = 0.7; step < 9000; step *= 5.1) {
            int64_t k = sk_goodput_steps(costs[i], 2 * HOUR, step), from = k > 3 ? k - 3 : 1;
            in.interval = (double)k * step;
            top = expect(&in).goodput;
            for (int64_t other = from; other < k + 4; other++) {
                in.interval = (double)other * step;
                check(expect(&in).goodput <= top + 1e-12);
            }
        }
    }
}

/* The goodput of one long run, or the mean of several. */
static double played(const sk_goodput_in *in, double work, int runs)
{
    double seconds = 0;
    for (int i = 0; i < runs; i++) {
        sk_goodput_run r = {0};
        check(!sk_goodput_simulate(in, work, (uint64_t)i + 1, 10000000, &r) && r.done);
        seconds += r.seconds;
    }
    return work * runs / seconds;
}

/* Without repairs the form is exact: what is left is the spread of some 400,000 failures. */
static void exact_is_played(void)
{
    static const double costs[][4] = {
        /* time between failures, checkpoint, detection, restart */
        {7.9 * HOUR, 30, 600, 600}, {1.8 * HOUR, 1, 10, 60}, {840, 30, 600, 600},
        {840, 0.2, 5, 15},          {840, 0, 0, 0},          {60, 90, 20, 30},
        {1e5, 10, 0, 3e4}};
    for (int i = 0; i < 7; i++) {
        sk_goodput_in in = job(costs[i][0] * 16, costs[i][1], costs[i][2], costs[i][3]);
        in.hosts = in.replicas = 16;
        in.interval = fmax(10, sk_goodput_interval(costs[i][1], costs[i][0]));
        double want = expect(&in).goodput, got = played(&in, 4e5 * costs[i][0] * want, 1);
        check(near(got / want, 1, 0.01));
    }
}

/* With repairs: hosts, replicas, spares, hours between failures of a host, hours of a repair. */
static void chain_is_played(void)
{
    static const struct {
        int64_t hosts, replicas, spares;
        double mtbf, repair;
    } jobs[] = {{1, 1, 0, 500, 12},     {1, 8, 1, 500, 12},    {16, 16, 0, 1000, 10},
                {16, 16, 1, 1000, 10},  {16, 4, 1, 1000, 30},  {64, 256, 2, 2000, 24},
                {2048, 64, 0, 8000, 8}, {2048, 64, 8, 8000, 8}};
    for (int i = 0; i < 8; i++)
        for (int elastic = 0; elastic < 2; elastic++) {
            sk_goodput_in in = job(jobs[i].mtbf * HOUR, 5, 30, 120);
            in.hosts = jobs[i].hosts;
            in.replicas = jobs[i].replicas;
            in.spares = jobs[i].spares;
            in.repair = jobs[i].repair * HOUR;
            in.elastic = elastic;
            in.interval = sk_goodput_interval(5, in.host_mtbf / (double)in.hosts);
            double want = expect(&in).goodput, failure = in.host_mtbf / (double)in.hosts;
            double got = played(&in, 40000 * fmax(failure, in.repair) * want, 2);
            check(near(got / want, 1, 0.01));
        }
}

/* Where hosts come back often and restarts are long, growing costs what it should: with and without
 * that the goodput differs by several times what form and runs do. */
static void growth_is_played(void)
{
    sk_goodput_in in = job(400 * HOUR, 300, 30, 900);
    in.hosts = in.replicas = 16;
    in.elastic = true;
    in.repair = 10 * HOUR;
    in.interval = sk_goodput_interval(300, 25 * HOUR);
    double want = expect(&in).goodput, got = played(&in, 4e5 * HOUR, 2);
    check(near(got / want, 1, 0.005));
}

/* What spares and elastic restarts are worth. */
static void helps(void)
{
    sk_goodput_in in = job(1000 * HOUR, 5, 30, 120);
    in.hosts = in.replicas = 64;
    in.interval = sk_goodput_interval(5, 1000 * HOUR / 64);
    double at_once = expect(&in).goodput, last = 0;
    in.repair = 24 * HOUR;
    for (in.spares = 0; in.spares < 12; in.spares++) {
        sk_goodput rigid, elastic;
        in.elastic = false;
        rigid = expect(&in);
        in.elastic = true;
        elastic = expect(&in);
        check(rigid.goodput > last && rigid.goodput < at_once + 1e-12);
        check(elastic.goodput > rigid.goodput - 2e-4 && elastic.wait < 1e-6);
        last = rigid.goodput;
    }
    check(near(last, at_once, 1e-3));
    in.spares = 0;
    in.replicas = 1; /* there is nothing to shrink */
    double one = expect(&in).goodput;
    in.elastic = false;
    check(near(expect(&in).goodput, one, 1e-12));
}

static void odd(void)
{
    sk_goodput_in in = job(INFINITY, 10, 10, 10); /* nothing fails */
    in.interval = INFINITY;
    check(expect(&in).goodput == 1 && sk_goodput_first_order(&in) == 1);
    check(isinf(sk_goodput_interval(10, INFINITY)) && !sk_goodput_steps(10, INFINITY, 1));
    check(near(played(&in, 1e6, 1), 1, 0));
    in.interval = 90; /* and is saved all the same */
    check(near(expect(&in).goodput, 0.9, 1e-12) && near(played(&in, 9e6, 1), 0.9, 1e-5));
    in = job(HOUR, 0, 0, 0); /* all is free: every step is saved, and lost work is half a step */
    check(sk_goodput_interval(0, HOUR) == 0 && sk_goodput_steps(0, HOUR, 2) == 1);
    in.interval = 2;
    check(near(expect(&in).goodput, 1 - 1 / HOUR, 1e-6));
    in = job(10, 3600, 10, 60); /* it fails long before it could be saved */
    in.interval = sk_goodput_interval(3600, 10);
    check(in.interval <= 10 && expect(&in).goodput < 1e-100);
    check(sk_goodput_steps(3600, 10, 1) == 10 || sk_goodput_steps(3600, 10, 1) == 9);
    sk_goodput_run r;
    check(!sk_goodput_simulate(&in, HOUR, 1, 1000, &r) && !r.done && r.failures == 1000);
    in = job(3.7e7, 10, 10, 60); /* a million GPUs in hosts of 8, a failure every 5 minutes */
    in.hosts = in.replicas = 125000;
    in.interval = sk_goodput_interval(10, 3.7e7 / 125000);
    double at_once = expect(&in).goodput;
    check(near(at_once, 0.6, 0.01));
    in.repair = 24 * HOUR;
    check(expect(&in).goodput < 0.01); /* some host is always broken */
    in.elastic = true;
    check(near(expect(&in).goodput, at_once, 0.25)); /* and it restarts as often to grow */
    in.elastic = false;
    in.spares = 1000;
    check(near(expect(&in).goodput, at_once, 1e-3));
    check(!sk_goodput_simulate(&in, 0, 1, 10, &r) && r.done && r.seconds == 0);
}

/* The same seed, the same run. */
static void repeats(void)
{
    sk_goodput_in in = job(HOUR, 5, 10, 60);
    sk_goodput_run x, y, z;
    check(!sk_goodput_simulate(&in, 1e6, 1, 100000, &x));
    check(!sk_goodput_simulate(&in, 1e6, 1, 100000, &y));
    check(!sk_goodput_simulate(&in, 1e6, 2, 100000, &z));
    check(x.seconds == y.seconds && x.failures == y.failures && x.seconds != z.seconds);
}

static void refused(void)
{
    sk_goodput_in good = job(HOUR, 5, 10, 60), in = good;
    sk_goodput g = {.goodput = 7};
    sk_goodput_run r = {.seconds = 7};
    double *times[] = {&in.checkpoint, &in.detect, &in.restart, &in.repair};
    static const char *const names[] = {"checkpoint", "detection", "restart", "repair"};
    static const double wrong[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) {
            in = good;
            *times[i] = wrong[k];
            fails(sk_goodput_expect(&in, &g), SK_EDATA, names[i]);
            fails(sk_goodput_simulate(&in, 1, 1, 1, &r), SK_EDATA, names[i]);
        }
    for (int k = 0; k < 3; k++) {
        in = good;
        in.interval = wrong[k];
        fails(sk_goodput_expect(&in, &g), SK_EDATA, "the interval between checkpoints is");
        in = good;
        in.host_mtbf = k < 2 ? wrong[k] : 0;
        fails(sk_goodput_expect(&in, &g), SK_EDATA, "a host fails every");
        fails(sk_goodput_simulate(&good, wrong[k], 1, 1, &r), SK_EDATA, "s of work");
    }
    in = good;
    in.hosts = 0;
    fails(sk_goodput_expect(&in, &g), SK_EDATA, "0 hosts");
    in = good;
    in.spares = -1;
    fails(sk_goodput_expect(&in, &g), SK_EDATA, "-1 spares");
    in = good;
    in.replicas = 0;
    fails(sk_goodput_expect(&in, &g), SK_EDATA, "0 replicas");
    check(g.goodput == 7 && r.seconds == 7); /* outputs only on success */
}

int main(void)
{
    first_order();
    daly();
    best();
    exact_is_played();
    chain_is_played();
    growth_is_played();
    helps();
    odd();
    repeats();
    refused();
    printf("goodput: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
