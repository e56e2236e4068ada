/* parts.c - the schedules, without running them: what is in their lists, how long they take and
 * what they keep, against the closed forms of their papers.
 *
 * The replay here is not the engine's: a task starts when its stage is free and what it needs is
 * there.  F, I and W of a chunk take one unit each, B two.  Counted are: the idle time of the
 * stage whose time from its first task to its last is longest (what the zero-bubble papers call the
 * bubble), the same from the first start to the last end of all, and the most forwards of a
 * stage without their W or B. */
#include "lib/check.h"

#include "base/file_io.h"
#include "base/strings.h"
#include "program/pipeline_schedule.h"

#include <stdlib.h>
#include <unistd.h>

enum { MOST_STAGES = 16, MOST_MICRO = 32, UNKNOWN = -1 };

typedef struct lists {
    sk_tasks of[MOST_STAGES];
} lists;

static sk_status make(sk_arena *a, const sk_schedule *s, const sk_pipe *pipe, lists *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < pipe->n_stages; i++) out->of[i].arena = a;
    SK_TRY(s->list_tasks(pipe, out->of));
    return sk_schedule_check(s, pipe, out->of);
}

static bool equal(const lists *a, const lists *b, int n)
{
    for (int s = 0; s < n; s++) {
        if (a->of[s].n != b->of[s].n) return false;
        if (memcmp(a->of[s].v, b->of[s].v, sizeof(sk_task) * (size_t)a->of[s].n)) return false;
    }
    return true;
}

/* --- the replay --- */

typedef struct cost {
    int f, i, w, pair; /* pair: of an F with a B right behind it, as one task; 0: they are two */
} cost;
static const cost unit = {1, 1, 1, 0};

typedef struct replay {
    const sk_pipe *pipe;
    const lists *l;
    cost cost;
    int n_chunks;
    int *f_end, *i_end; /* [chunk][micro]; UNKNOWN */
    int at[MOST_STAGES], free[MOST_STAGES], first[MOST_STAGES];
} replay;

typedef struct result {
    bool ended;
    int span, all, peak; /* of the longest stage, of the pipeline; chunks in flight */
} result;

static int *end_of(const replay *r, int *ends, int chunk, int micro)
{
    return &ends[chunk * r->pipe->n_micro + micro];
}

/* When what the task needs is there; UNKNOWN so far. */
static int ready(const replay *r, sk_task t)
{
    if (t.work == SK_WORK_F) return t.chunk ? *end_of(r, r->f_end, t.chunk - 1, t.micro) : 0;
    if (t.work >= SK_WORK_W || t.chunk == r->n_chunks - 1) return 0;
    return *end_of(r, r->i_end, t.chunk + 1, t.micro);
}

static int takes(const replay *r, sk_task t)
{
    const cost *c = &r->cost;
    return t.work == SK_WORK_F   ? c->f
           : t.work == SK_WORK_I ? c->i
           : t.work == SK_WORK_W ? c->w
           : t.work == SK_WORK_U ? 0
                                 : c->i + c->w;
}

/* How many tasks a stage starts together: none if they must wait. */
static int together(const replay *r, int stage, int *start, int *length)
{
    const sk_tasks *list = &r->l->of[stage];
    int at = r->at[stage], n = 1;
    if (at == list->n) return 0;
    const sk_task *t = &list->v[at];
    *length = takes(r, *t);
    if (r->cost.pair && at + 1 < list->n && t[0].work == SK_WORK_F && t[1].work == SK_WORK_B)
        n = 2, *length = r->cost.pair;
    *start = r->free[stage];
    for (int i = 0; i < n; i++) {
        int from = ready(r, t[i]);
        if (from == UNKNOWN) return 0;
        if (from > *start) *start = from;
    }
    return n;
}

static bool go(replay *r, int stage)
{
    int start, length, n = together(r, stage, &start, &length);
    if (!n) return false;
    if (!r->at[stage]) r->first[stage] = start;
    r->free[stage] = start + length;
    for (; n; n--) {
        sk_task t = r->l->of[stage].v[r->at[stage]++];
        if (t.work == SK_WORK_F) *end_of(r, r->f_end, t.chunk, t.micro) = start + length;
        else if (t.work < SK_WORK_W) *end_of(r, r->i_end, t.chunk, t.micro) = start + length;
    }
    return true;
}

static int peak_of(const sk_tasks *t)
{
    int now = 0, most = 0;
    for (int i = 0; i < t->n; i++) {
        now += t->v[i].work == SK_WORK_F;
        if (now > most) most = now;
        now -= t->v[i].work == SK_WORK_B || t->v[i].work == SK_WORK_W;
    }
    return most;
}

static result run(sk_arena *a, const sk_pipe *pipe, const lists *l, cost c)
{
    replay r = {.pipe = pipe, .l = l, .cost = c, .n_chunks = pipe->n_stages * pipe->n_chunks};
    int n = r.n_chunks * pipe->n_micro;
    result out = {.ended = true};
    r.f_end = sk_many(a, int, n);
    r.i_end = sk_many(a, int, n);
    for (int i = 0; i < n; i++) r.f_end[i] = r.i_end[i] = UNKNOWN;
    for (bool moves = true; moves;) {
        moves = false;
        for (int s = 0; s < pipe->n_stages; s++)
            while (go(&r, s)) moves = true;
    }
    for (int s = 0; s < pipe->n_stages; s++) {
        int span = r.free[s] - r.first[s], peak = peak_of(&l->of[s]);
        out.ended &= r.at[s] == l->of[s].n;
        if (span > out.span) out.span = span;
        if (r.free[s] > out.all) out.all = r.free[s];
        if (peak > out.peak) out.peak = peak;
    }
    return out;
}

/* --- closed forms, in units of chunks: p stages, v chunks a stage, m micro-batches --- */

typedef struct form {
    bool holds;
    int idle, fill, peak; /* fill: what is idle beside it, from the first start to the last end */
} form;

static int least(int a, int b) { return a < b ? a : b; }

static form gpipe(int p, int v, int m) { return (form){true, 3 * (p - 1), 0, v * m}; }
static form one_one(int p, int v, int m) { return (form){true, 3 * (p - 1), 0, least(v * p, m)}; }

static form interleaved(int p, int v, int m)
{
    int peak = v == 1 ? p : 2 * (p - 1) + (v - 1) * p + 1;
    return (form){m % p == 0, 3 * (p - 1), 0, least(peak, v * m)};
}

static form zb_h1(int p, int v, int m) { return (form){m >= p, p - 1, 0, v * p}; }
static form zb_h2(int p, int v, int m) { return (form){m >= 2 * p - 1, 0, p - 1, v * (2 * p - 1)}; }
static form zb_v(int p, int v, int m) { return (form){m >= 2 * p - 1, 0, p - 1, v * p}; }

/* One unit under the paper's half, one under or over its two thirds. */
static form v_half(int p, int v, int m)
{
    return (form){m >= p, 3 * (p - 1) - (p > 2), 0, v * (p / 2 + 1)};
}

static form v_min(int p, int v, int m)
{
    int idle = p == 1 ? 0 : 4 * (p - 1) + (p % 3 ? -1 : 1);
    return (form){m >= p, idle, 0, v * ((p + 4) / 3)};
}

static form dualpipe_v(int p, int v, int m) { return (form){m >= 2 * p, p - 1, 0, v * p + 1}; }

static const struct {
    const char *name;
    form (*form)(int p, int v, int m);
} forms[] = {
    {"gpipe", gpipe},       {"1f1b", one_one},          {"interleaved", interleaved},
    {"zb-h1", zb_h1},       {"zb-h2", zb_h2},           {"zb-v", zb_v},
    {"v-half", v_half},     {"v-min", v_min},           {"dualpipe-v", dualpipe_v},
    {"pipedream", one_one}, {"pipedream-2bw", one_one}, {"pb", one_one},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static void wrong(const sk_schedule *s, const sk_pipe *p, const char *what, int got, int want)
{
    checks++;
    if (got == want) return;
    bad++;
    printf("%s, %d stages, %d chunks, %d micro-batches: %s is %d, not %d\n", s->name, p->n_stages,
           p->n_chunks, p->n_micro, what, got, want);
}

static void against(const sk_schedule *s, const sk_pipe *p, result r, form f)
{
    int ideal = 3 * p->n_chunks * p->n_micro;
    wrong(s, p, "a peak over its form", r.peak > f.peak, 0);
    if (!f.holds) return;
    wrong(s, p, "idle time", r.span - ideal, f.idle);
    wrong(s, p, "idle time of all", r.all - ideal, f.idle + f.fill);
    wrong(s, p, "peak", r.peak, f.peak);
}

static void one(const sk_schedule *s, const sk_pipe *p, form (*closed)(int, int, int))
{
    sk_arena a = {0};
    lists l, again;
    wrong(s, p, "the check", (int)make(&a, s, p, &l), SK_OK);
    wrong(s, p, "making it again", (int)make(&a, s, p, &again), SK_OK);
    wrong(s, p, "being the same again", equal(&l, &again, p->n_stages), true);
    result r = run(&a, p, &l, unit);
    wrong(s, p, "coming to an end", r.ended, true);
    /* Whatever the number of micro-batches: no worse than 1F1B with whole stages. */
    int ideal = 3 * p->n_chunks * p->n_micro;
    wrong(s, p, "a bubble over 1F1B's", r.all - ideal > 3 * p->n_chunks * (p->n_stages - 1), 0);
    if (closed) against(s, p, r, closed(p->n_stages, p->n_chunks, p->n_micro));
    sk_arena_end(&a);
}

static void all_sizes(const sk_schedule *s, form (*closed)(int, int, int))
{
    int from = s->chunks ? s->chunks : 1, to = s->chunks ? s->chunks : 4;
    for (int v = from; v <= to; v++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= MOST_MICRO; m++)
                one(s, &(sk_pipe){.n_stages = p, .n_chunks = v, .n_micro = m}, closed);
}

static void parts(void)
{
    int known = 0;
    for (const sk_schedule *const *s = sk_schedule_parts; *s; s++) {
        if (!strcmp((*s)->name, "file")) continue;
        int i = 0;
        while (i < N_FORMS && strcmp(forms[i].name, (*s)->name)) i++;
        known += i < N_FORMS;
        all_sizes(*s, i < N_FORMS ? forms[i].form : NULL);
    }
    check(known == N_FORMS);
}

/* --- other costs, other sizes --- */

static result timed(const char *name, sk_pipe p, cost c)
{
    sk_arena a = {0};
    lists l;
    result r = {0};
    if (!make(&a, sk_schedule_find(name), &p, &l)) r = run(&a, &p, &l, c);
    sk_arena_end(&a);
    check(r.ended);
    return r;
}

/* F, I and W are not equal: what the papers say in letters. */
static void letters(int p, cost c)
{
    int b = c.i + c.w, m = 3 * p, ideal = m * (c.f + b);
    check(timed("gpipe", (sk_pipe){p, 1, m, NULL}, c).span - ideal == (p - 1) * (c.f + b));
    check(timed("1f1b", (sk_pipe){p, 1, m, NULL}, c).span - ideal == (p - 1) * (c.f + b));
    check(timed("zb-h1", (sk_pipe){p, 1, m, NULL}, c).span - ideal ==
          (p - 1) * (c.f + b - 2 * c.w));
    check(timed("interleaved", (sk_pipe){p, 3, m, NULL}, c).span - 3 * ideal ==
          (p - 1) * (c.f + b));
    c.pair = c.f + b;
    check(timed("dualpipe-v", (sk_pipe){p, 2, m, NULL}, c).span - 2 * ideal ==
          (p - 1) * (c.pair + b - 3 * c.w));
}

static bool near(double a, double b) { return a - b < 5e-5 && b - a < 5e-5; }

static double bubble(const char *name, int p, int v, int m)
{
    int ideal = 3 * v * m;
    result r = timed(name, (sk_pipe){p, v, m, NULL}, unit);
    return (double)(r.span - ideal) / ideal;
}

static void costs(void)
{
    for (int p = 1; p <= 8; p++) {
        letters(p, unit);
        letters(p, (cost){2, 3, 2, 0});
        letters(p, (cost){4, 5, 3, 0});
    }
    check(near(bubble("interleaved", 8, 8, 24), 0.0365));
    check(near(bubble("interleaved", 16, 8, 16), 0.1172));
}

static void table(void)
{
    printf("%-12s %2s %2s %8s %8s %6s\n", "schedule", "p", "m", "bubble", "closed", "memory");
    for (int i = 0; i < N_FORMS; i++)
        for (int p = 2; p <= 8; p *= 2) {
            const sk_schedule *s = sk_schedule_find(forms[i].name);
            int v = s->chunks ? s->chunks : 4, ideal = 3 * v * MOST_MICRO;
            result r = timed(s->name, (sk_pipe){p, v, MOST_MICRO, NULL}, unit);
            form f = forms[i].form(p, v, MOST_MICRO);
            printf("%-12s %2d %2d %8.4f %8.4f %6.2f\n", s->name, p, MOST_MICRO,
                   (double)(r.span - ideal) / ideal, (double)f.idle / ideal, (double)r.peak / v);
        }
}

/* --- lists that are wrong --- */

static const sk_schedule line = {.name = "line"}, fold = {.name = "fold", .folded = true};

static char path[] = "/tmp/skein-schedule-XXXXXX";

/* Tasks as a file says them, for two stages and two micro-batches. */
static sk_status says(const char *text, int chunks, const sk_schedule *as)
{
    sk_arena a = {0};
    sk_pipe pipe = {.n_stages = 2, .n_chunks = chunks, .n_micro = 2, .file = path};
    lists l = {0};
    l.of[0].arena = l.of[1].arena = &a;
    check(!sk_file_replace(path, text, strlen(text)));
    sk_status st = sk_schedule_find(path)->list_tasks(&pipe, l.of);
    if (!st) st = sk_schedule_check(as, &pipe, l.of);
    sk_arena_end(&a);
    return st;
}

static void files(void)
{
    check(!says("F0 F1 B0 B1\nF0 B0 F1 B1", 1, &line));
    check(!says("# two stages\n\n F0\tF1 B0 B1 # the first\r\n\nF0 I0 F1 I1 W0 W1\n\n", 1, &line));
    check(!says("F0.0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1\nF0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1", 2, &line));
    fails(says("", 1, &line), SK_ECONF, "tasks for 0 stages; there are 2");
    fails(says("F0 F1 B0 B1\n", 1, &line), SK_ECONF, "tasks for 1 stages; there are 2");
    fails(says("F0\nF0\n# no\nF1", 1, &line), SK_ECONF, ":4: a line too many: there are 2 stages");
    fails(says("F0 F1\n\nF0 X1", 1, &line), SK_ECONF, ":3: 'X1' is no task");
    fails(says("F", 1, &line), SK_ECONF, ":1: 'F' is no task");
    fails(says("F0.", 1, &line), SK_ECONF, "'F0.' is no task");
    fails(says("F0x", 1, &line), SK_ECONF, "'F0x' is no task");
    fails(says("F-1", 1, &line), SK_ECONF, "'F-1' is no task");
    fails(says("F99999999999999999999", 1, &line), SK_ECONF, "is no task");
    fails(says("F0 F2", 1, &line), SK_ECONF, "'F2' has micro-batch 2; there are 2");
    fails(says("F0.1", 1, &line), SK_ECONF, "'F0.1' has chunk 1; there are 1");
}

static void error_messages(void)
{
    fails(says("F0 F1 B0 B1\nF0 F0 B0 F1 B1", 1, &line), SK_ECONF, "stage 1: F0 does again");
    fails(says("F0 F1 B0 B1\nF0 I0 B0 F1 B1", 1, &line), SK_ECONF, "stage 1: B0 does again");
    fails(says("F0 F1 B0 B1\nF0 B0 W0 F1 B1", 1, &line), SK_ECONF, "stage 1: W0 does again");
    fails(says("F0 F1 W0 I0 B1\nF0 B0 F1 B1", 1, &line), SK_ECONF, "W0 comes before its I");
    fails(says("F0 B1 F1 B0\nF0 B0 F1 B1", 1, &line), SK_ECONF, "B1 comes before its F");
    fails(says("I1 F0 F1 B0 W1\nF0 B0 F1 B1", 1, &line), SK_ECONF, "I1 comes before its F");
    fails(says("F0 F1 B0 B1\nF0 B0 B1 F1", 1, &line), SK_ECONF, "stage 1: B1 comes before its F");
    fails(says("F0 F1 B0 B1\nF0 B0 F1", 1, &line), SK_ECONF, "stage 1: B1 is missing");
    fails(says("F0 F1 B0 B1\nF0 I0 F1 B1", 1, &line), SK_ECONF, "stage 1: W0 is missing");
    fails(says("F0 F0.1 F1 F1.1\nF0 F0.1 F1 F1.1", 2, &line), SK_ECONF, "stage 0: B0.0 is missing");
    fails(says("F0 B0 F1 B1\nF1 B1 F0 B0", 1, &line), SK_ECONF,
          "stage 0 stands at B0 and waits for stage 1, which stands at F1");
    fails(says("F0.1 F0 F1 F1.1 B0.1 B0 B1.1 B1\nF0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1", 2, &line),
          SK_ECONF, "stage 0 stands at F0.1 and waits for stage 1, which stands at F0.0");
    fails(says("F0.1\nF0", 2, &fold), SK_ECONF, "chunk 2, which sits on stage 1");
    sk_pipe pipe = {.n_stages = 1, .n_chunks = 2, .n_micro = 1};
    lists l = {0};
    fails(sk_schedule_check(sk_schedule_find("gpipe"), &pipe, l.of), SK_ECONF, "1 chunks a stage");
    fails(sk_schedule_find("file")->list_tasks(&pipe, l.of), SK_ECONF, "no file is named");
    pipe.file = "/nowhere/order.txt";
    sk_arena a = {0};
    l.of[0].arena = &a;
    fails(sk_schedule_find(pipe.file)->list_tasks(&pipe, l.of), SK_EIO, "/nowhere/order.txt");
    sk_arena_end(&a);
}

static void write_down(sk_out *o, const sk_pipe *p, const lists *l)
{
    for (int s = 0; s < p->n_stages; s++) {
        for (int i = 0; i < l->of[s].n; i++) {
            sk_task t = l->of[s].v[i];
            sk_out_add(o, "%c%d.%d ", "FBIW"[t.work], t.micro, t.chunk / p->n_stages);
        }
        sk_out_add(o, "\n");
    }
}

/* A schedule that is written down and read again is the same. */
static void there_and_back(const char *name, int p, int v, int m)
{
    sk_arena a = {0};
    sk_out o = {.arena = &a};
    lists l, again;
    sk_pipe pipe = {.n_stages = p, .n_chunks = v, .n_micro = m, .file = path};
    check(!make(&a, sk_schedule_find(name), &pipe, &l));
    write_down(&o, &pipe, &l);
    check(!sk_file_replace(path, o.s, o.n));
    check(!make(&a, sk_schedule_find(path), &pipe, &again));
    check(equal(&l, &again, p));
    sk_arena_end(&a);
}

/* A pattern in which a chunk begins before the one it needs can have no list. */
static int backwards(const sk_pipe *p, sk_task_kind work, int chunk)
{
    (void)work;
    return p->n_stages - chunk;
}

static void bad_pattern(void)
{
    sk_arena a = {0};
    lists l = {0};
    sk_pipe pipe = {.n_stages = 1, .n_chunks = 2, .n_micro = 1};
    sk_weave w = {.every = 6, .most = 2, .when = backwards};
    l.of[0].arena = &a;
    fails(sk_schedule_weave(&line, &pipe, &w, l.of), SK_EBUG, "6 tasks that wait for each other");
    sk_arena_end(&a);
}

int main(void)
{
    int fd = mkstemp(path);
    check(fd >= 0 && !close(fd));
    parts();
    costs();
    files();
    error_messages();
    there_and_back("1f1b", 4, 1, 9);
    there_and_back("zb-h1", 4, 1, 9);
    there_and_back("interleaved", 3, 3, 8);
    bad_pattern();
    table();
    unlink(path);
    printf("%d checks, %d bad\n", checks, bad);
    return bad ? 1 : 0;
}
