/* random.c - any layout that type-checks gives the result of one rank.
 *
 * Random small models with sizes that do not divide, in f32, bf16 or f16, on CPUs or on GPUs that
 * are none (lib/fake_gpu.h), under any optimizer and random mixes of everything a layout can say,
 * on 1 to 16 ranks: lib/draw.h.  A pair of both must plan, verify, run, and match the same model on
 * one rank of a CPU, in the same dtype: in fast order every loss within a tolerance (f32: 1e-5); in
 * canonical order every loss, norm, weight and number of the optimizer's state to the bit, of one
 * rank on the same kind of device, which must be near to the CPU.  Where ranks keep one copy of the
 * weights (replica), every bit is that of the same ranks with copies of their own.
 *
 * Batches and layouts that change on the way are not drawn: these are phases of a run
 * (train/relayout.h), which has more than the programs that are run here; test/train/batches.sh
 * draws them.
 *
 *     layout_random [--features] [SEED [COUNT]]     seed 1; 30 pairs, 800 with SKEIN_LONG
 *     layout_random --pair "MODEL" "LAYOUT"         one pair; both texts as they are printed here
 *
 * Some pairs are refused with a sentence: those are counted by its kind, and it must be on a list
 * (`refusals`).  Any other end is a failure: it is made smaller while it still fails in the same
 * way, and printed as a --pair.  Each pair runs in a process of its own, so that one that crashes
 * is a failure like others.
 *
 * Which expert a token goes to is a comparison of two numbers, and in fast order they have
 * another last bit on another layout.  So there is no result to match where they are nearly equal.
 * Whether that is so is found out, not believed: losses of one rank that leave the
 * tolerance when the initial weights are off by 1e-6 of them are undecided, and such a pair must
 * match in canonical order instead.  Stages that update within a step amplify roundings likewise:
 * there is no canonical order for them, so that the first step must match, and the rest is
 * undecided where one rank with other roundings leaves the tolerance, too.  The same goes for
 * narrow types: optimizers that divide a gradient by its size (lion, lamb) turn the rounding of one
 * that is nearly 0 into a step.  And for optimizers that decompose matrices: where a factor has
 * less than full rank, SOAP divides the rounding of a gradient by its own size. */
#include "lib/draw.h"

#include "coll/codec.h"
#include "layout/word.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = SK_PAIR_TEXT };
typedef sk_pair pair;

static uint64_t seed;
static const sk_pair_most most = {.ranks = 16, .stages = 12, .micro = 24, .layers = 9, .batch = 30};
static const char canonical[] = "; canonical order";

/* --- judging a pair --- */

typedef enum verdict {
    FINE,
    REFUSED,
    UNDECIDED,
    WRONG,
    FAILED,
    CRASHED,
    UNLISTED,
    N_VERDICTS
} verdict;
static const char *const verdicts[] = {
    "fine", "refused", "undecided", "WRONG", "FAILED", "CRASHED", "REFUSED, and not on the list"};

typedef struct outcome {
    verdict verdict;
    char message[1000];
    double worst; /* relative difference of a loss */
    bool drops;
} outcome;

static void tell(outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(outcome *o, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    vsnprintf(o->message, sizeof o->message, fmt, list);
    va_end(list);
}

static double apart(double a, double b)
{
    if (!isfinite(a) || !isfinite(b)) return INFINITY;
    return fabs(a - b) / fmax(1e-3, fmax(fabs(a), fabs(b)));
}

/* Numbers of 16 bits are rounded at other places when ranks meet, or launches are joined: a result
 * passes a few dozen roundings of half a step (2^-9 of bf16, 2^-12 of f16), which mostly cancel, so
 * eight steps are allowed; and a lot that falls otherwise shows in the state. */
static double tolerance(const sk_trial *one, bool codes)
{
    double step = one->dtype == SK_BF16 ? 0x1p-8 : one->dtype == SK_F16 ? 0x1p-11 : 0;
    return codes ? 5e-2 : fmax(8 * step, one->state_type ? 3e-3 : 1e-5);
}

/* As programs have it: an optimizer may send something in place of gradients. */
static sk_layout layout_of(const sk_trial *t)
{
    sk_layout l = {0};
    sk_assert(!sk_layout_read(t->layout, 0, &l));
    const sk_optim *o = t->optim ? sk_optim_find(t->optim) : NULL;
    if (!o || !o->sends) return l;
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n;
    if (!sk_trial_compile(&a, t, &g, &p, &n)) l = p[0]->layout;
    sk_arena_end(&a);
    return l;
}

static bool is_coded(const sk_layout *l)
{
    bool changes = false;
    for (int a = 0; a < l->mesh.n; a++) changes |= *l->sync[a].codec != 0;
    return changes || *l->weights_as || *l->grads_as || l->own_grads;
}

/* Sums of absolute values of what the backward pass tells.  A drawn label can be another one. */
static bool extras_near(const sk_trial *one, const sk_trial *many, bool codes, outcome *o)
{
    double limit = codes || one->dtype || one->state_type ? 0.5 : 2e-2;
    for (int k = 0; k < SK_N_EXTRAS; k++)
        if (k != SK_EXTRA_GGN_MC && apart(one->extra_sum[k], many->extra_sum[k]) > limit)
            tell(o, "%s of the backward pass: sum %.9g on one rank, %.9g on %d",
                 sk_extra_name((sk_extra_kind)k), one->extra_sum[k], many->extra_sum[k],
                 many->n_ranks);
    return !*o->message;
}

/* Factors of low rank are a projection of the gradient: a part of its norm, however small. */
static bool norm_near(const sk_layout *l, double one, double many, double limit)
{
    sk_codec c = {0};
    if (*l->grads_as) sk_assert(!sk_codec_read(l->grads_as, &c));
    return (c.low_rank && many > 0 && many < one) || apart(one, many) <= limit;
}

static bool near(const sk_trial *one, const sk_trial *many, outcome *o)
{
    sk_layout l = layout_of(many);
    bool codes = is_coded(&l);
    double limit = tolerance(one, codes);
    double norm = codes ? 0.5 : one->dtype || one->state_type ? 0.2 : 1e-3;
    o->worst = apart(one->valid, many->valid);
    if (o->worst > limit)
        tell(o, "validation: loss %.9g on one rank, %.9g on %d", one->valid, many->valid,
             many->n_ranks);
    for (int s = one->steps - 1; s >= 0; s--) {
        double loss = apart(one->loss[s], many->loss[s]);
        if (loss > limit || !norm_near(&l, one->norm[s], many->norm[s], norm))
            tell(o, "step %d: loss %.9g on one rank, %.9g on %d; norm %.9g, %.9g", s, one->loss[s],
                 many->loss[s], many->n_ranks, one->norm[s], many->norm[s]);
        o->worst = fmax(o->worst, loss);
    }
    return !*o->message && extras_near(one, many, codes, o);
}

static bool same_bits(const sk_trial *a, const sk_trial *b, const char *what, outcome *o)
{
    for (int s = 0; s < a->steps; s++)
        if (a->loss[s] != b->loss[s] || a->norm[s] != b->norm[s]) {
            tell(o, "%s: other bits in step %d: loss %.17g, %.17g on %d; norm %.17g, %.17g", what,
                 s, a->loss[s], b->loss[s], b->n_ranks, a->norm[s], b->norm[s]);
            return false;
        }
    if (a->valid != b->valid)
        tell(o, "%s: other bits in validation: loss %.17g, %.17g on %d", what, a->valid, b->valid,
             b->n_ranks);
    else if (a->elements != b->elements)
        tell(o, "%s: %lld weights and states have an owner, %lld on %d", what,
             (long long)a->elements, (long long)b->elements, b->n_ranks);
    else if (a->digest != b->digest) tell(o, "%s: other bits in weights or state", what);
    else if (a->extra_digest != b->extra_digest)
        tell(o, "%s: other bits in what the backward pass tells", what);
    return !*o->message;
}

/* The same ranks with weights of their own. */
static bool replica_holds(const sk_trial *t, outcome *o)
{
    sk_arena a = {0};
    sk_layout l = layout_of(t);
    sk_trial own = *t;
    if (!l.replica) return true;
    l.replica = false;
    own.layout = sk_layout_print(&a, &l);
    if (sk_trial_run(&own)) tell(o, "without replica: %.900s", sk_error());
    bool same = !*o->message && same_bits(&own, t, "without replica", o);
    sk_arena_end(&a);
    return same;
}

/* Replicas of one rank each; where Adasum joins gradients, ranks with the same parts of the batch.
 */
static void only_replicas(const sk_layout *l, char text[TEXT])
{
    sk_arena a = {0};
    sk_layout r;
    bool joins = sk_layout_adasum(l) >= 0;
    sk_assert(!sk_layout_read("dp=1", 0, &r));
    r.mesh.n = 0;
    if (joins) r.n_micro = l->n_micro;
    for (int i = 0; i < l->mesh.n; i++) {
        if (!sk_layout_local(l, i) && !(joins && sk_layout_splits(l, i, 'b'))) continue;
        int to = r.mesh.n++;
        strcpy(r.mesh.name[to], l->mesh.name[i]);
        strcpy(r.split[to], l->split[i]);
        r.mesh.size[to] = l->mesh.size[i];
        r.sync[to] = l->sync[i];
        r.adasum[to] = l->adasum[i];
    }
    snprintf(text, TEXT, "%s", sk_layout_print(&a, &r));
    sk_arena_end(&a);
}

/* Stages that update on their own read other weights than one rank would: there the reference has
 * the stages, and nothing else; replicas have weights of their own: there it has the replicas.  A
 * late optimizer runs on the host. */
static const char *reference(const sk_trial *t, bool in_order)
{
    static char text[TEXT];
    sk_layout l = layout_of(t);
    if (sk_layout_any_local(&l) || sk_layout_adasum(&l) >= 0) {
        only_replicas(&l, text);
        if (in_order) strncat(text, canonical, sizeof text - strlen(text) - 1);
        return text;
    }
    if (t->late) return in_order ? "offload=state; canonical order" : "offload=state";
    if (in_order) return "dp=1; canonical order";
    if (!sk_schedule_find(l.schedule)->async) return "dp=1";
    snprintf(text, sizeof text, "pp=%d micro=%d schedule=%s%s%s%s",
             l.stage_axis < 0 ? 1 : l.mesh.size[l.stage_axis], l.n_micro ? l.n_micro : 1,
             l.schedule, l.balance ? " balance" : "", *l.layers ? " layers=" : "", l.layers);
    return text;
}

/* The truth is the CPU; but the bits of canonical order are those of one kind of device, and one
 * GPU must then be near to one CPU (fast_agrees). */
static sk_trial alone(const sk_trial *t, bool in_order)
{
    sk_trial one = *t;
    one.layout = reference(t, in_order);
    one.gpu = t->gpu && in_order;
    one.threads = 1;
    one.noise = false;
    one.adascale = 0; /* with the gains of t, whose small batches are those of its layout */
    one.bucket_bytes = 0;
    return one;
}

/* Do losses of one rank leave the tolerance by as little as rounding, or as what a codec loses? */
static bool sensitive(const sk_trial *one, bool codes)
{
    for (int k = 0; k < 6; k++) {
        sk_trial off = *one;
        outcome o = {0};
        off.perturb = codes || one->dtype == SK_BF16 ? 4e-3 : one->dtype ? 5e-4 : 1e-6;
        off.perturb_seed = k;
        if (sk_trial_run(&off) || !near(one, &off, &o)) return true;
    }
    return false;
}

static bool holds_in_order(const sk_trial *t, outcome *o)
{
    char text[TEXT + sizeof canonical];
    sk_trial many = *t, one = alone(t, true);
    outcome again = {0};
    snprintf(text, sizeof text, "%s%s", t->layout, canonical);
    many.layout = text;
    many.adascale = 0;
    many.noise = false; /* changes no bit, and more layouts have it in fast order than here */
    if (sk_trial_run(&one) || sk_trial_run(&many)) {
        tell(o, "undecided in fast order, and in canonical order: %.900s", sk_error());
        return false;
    }
    if (same_bits(&one, &many, "undecided, so in canonical order", &again)) return true;
    *o = again;
    return false;
}

static bool decomposes(const sk_trial *t)
{
    bool any = t->optim && sk_optim_find(t->optim)->exact;
    for (int i = 0; i < t->n_groups; i++) any |= t->groups[i].optim->exact;
    return any;
}

/* On one rank both orders are roundings of the same sums. */
static bool fast_agrees(const sk_trial *one, outcome *o)
{
    sk_trial fast = alone(one, false);
    if (sk_model_routes(one->model) || (!sk_trial_run(&fast) && near(&fast, one, o))) return true;
    if (decomposes(one) && apart(one->loss[0], fast.loss[0]) <= tolerance(one, false) &&
        sensitive(&fast, false)) {
        *o = (outcome){.drops = o->drops};
        return true;
    }
    o->verdict = WRONG;
    if (!*o->message) tell(o, "on one rank, in fast order: %.900s", sk_error());
    return false;
}

/* The micro-batch that is measured; -1: it cannot be told. */
static int small_micro(const sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **programs;
    int n = 0, micro = -1;
    if (sk_trial_compile(&a, t, &g, &programs, &n)) n = 0;
    for (int r = 0; r < n; r++)
        for (int pc = 0; pc < programs[r]->insts.n; pc++)
            if (programs[r]->insts.v[pc].act == SK_DO_SUMSQ) micro = programs[r]->insts.v[pc].micro;
    sk_arena_end(&a);
    return micro;
}

/* The axes that split the batch, and micro-batches: the same small batches, and nothing else.
 * gpipe measures the last micro-batch. */
static void small_batches(const sk_layout *l, bool last, char text[TEXT])
{
    char splits[TEXT / 2] = "";
    size_t n = (size_t)snprintf(text, TEXT, "mesh"), m = 0;
    for (int a = 0; a < l->mesh.n; a++) {
        if (!sk_layout_splits(l, a, 'b')) continue;
        n += (size_t)snprintf(text + n, TEXT - n, " %s=%d", l->mesh.name[a], l->mesh.size[a]);
        m += (size_t)snprintf(splits + m, sizeof splits - m, "; split %s over %s", l->split[a],
                              l->mesh.name[a]);
    }
    if (!m) n += (size_t)snprintf(text + n, TEXT - n, " dp=1; split b over dp");
    snprintf(text + n, TEXT - n, "%s; micro=%d%s%s", splits, l->n_micro > 1 ? l->n_micro : 1,
             last ? " schedule=gpipe" : "", l->canonical ? canonical : "");
}

/* In the first step, where weights are equal. */
static bool noise_holds(const sk_trial *t, outcome *o)
{
    char text[TEXT];
    sk_layout l = layout_of(t);
    sk_trial plain = alone(t, l.canonical);
    if (!t->noise) return true;
    int micro = l.canonical ? 0 : small_micro(t), n_micro = l.n_micro > 1 ? l.n_micro : 1;
    if (micro > 0 && micro < n_micro - 1) return true;
    small_batches(&l, micro > 0, text);
    plain.layout = text;
    plain.noise = true;
    plain.late = false;
    plain.steps = 1;
    if (sk_trial_run(&plain)) tell(o, "noise, as %s: %.600s", text, sk_error());
    else if (l.canonical && plain.small[0] != t->small[0]) /* all micro-batches, to the bit */
        tell(o, "squares of small batches: %a, as %s %a", t->small[0], text, plain.small[0]);
    else if (!(apart(plain.small[0], t->small[0]) < (t->dtype || *l.weights_as ? 0.2 : 1e-3)))
        tell(o, "squares of small batches: %.9g, as %s %.9g", t->small[0], text, plain.small[0]);
    return !*o->message;
}

static void compare(const sk_trial *t, bool in_order, outcome *o)
{
    sk_trial one = alone(t, in_order);
    if (sk_trial_run(&one)) {
        o->verdict = FAILED;
        tell(o, "on one rank: %.900s", sk_error());
        return;
    }
    o->drops = one.drops > 0;
    if (in_order && !fast_agrees(&one, o)) return;
    bool agree = in_order ? same_bits(&one, t, "canonical order", o)
                          : near(&one, t, o) && replica_holds(t, o);
    if (agree && noise_holds(t, o)) return;
    o->verdict = WRONG;
    sk_layout l = layout_of(t);
    bool codes = is_coded(&l);
    bool amplifies = sk_model_routes(t->model) || sk_schedule_find(l.schedule)->async || t->dtype ||
                     decomposes(t);
    if (in_order || !amplifies || apart(one.loss[0], t->loss[0]) > tolerance(&one, codes)) return;
    if (!sensitive(&one, codes)) return;
    bool own = (strcmp(one.layout, "dp=1") && !sk_layout_any_local(&l)) || t->dtype ||
               l.slices > 1 || l.tiles > 1 || codes || sk_layout_adasum(&l) >= 0 ||
               (t->gpu && sk_layout_offloads(&l)); /* canonical order cannot decide */
    if (!own && !holds_in_order(t, o)) return;
    o->verdict = UNDECIDED;
}

static void judge(const pair *p, double timeout_s, outcome *o)
{
    sk_trial t;
    sk_layout l;
    sk_status st = sk_pair_read(p, &t);
    t.timeout_s = timeout_s;
    if (t.gpu) sk_fake_gpu(t.delay_us);
    if (t.gpu && t.fuse) unsetenv("SKEIN_FUSE");
    if (!st) st = sk_layout_read(p->layout, 0, &l);
    if (!st) st = sk_trial_run(&t);
    if (!st) {
        compare(&t, l.canonical, o);
        return;
    }
    o->verdict = st == SK_ECONF || st == SK_EUSAGE ? REFUSED : FAILED;
    tell(o, "%.980s", o->verdict == REFUSED ? sk_error_line() : sk_error());
}

/* --- in a process of its own --- */

/* What a process that crashed said last. */
static void last_words(FILE *errors, int status, outcome *o)
{
    char said[800];
    rewind(errors);
    size_t n = fread(said, 1, sizeof said - 1, errors);
    said[n] = 0;
    o->verdict = CRASHED;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) tell(o, "does not end. %s", said);
    else if (WIFSIGNALED(status)) tell(o, "signal %d. %s", WTERMSIG(status), said);
    else tell(o, "exit code %d. %s", WEXITSTATUS(status), said);
}

typedef struct attempt {
    pair p;
    pid_t child;
    FILE *errors;
    outcome *shared;
} attempt;

static attempt begin(const pair *p, double timeout_s)
{
    attempt t = {.p = *p, .child = -1, .errors = tmpfile()};
    t.shared =
        mmap(NULL, sizeof *t.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    if (t.errors && t.shared != MAP_FAILED) t.child = fork();
    if (t.child == 0) {
        dup2(fileno(t.errors), STDERR_FILENO);
        alarm((unsigned)(4 * timeout_s));
        judge(p, timeout_s, t.shared);
        _exit(0);
    }
    if (t.child > 0) return t;
    perror("layout_random: a process for a pair");
    exit(1);
}

static outcome end(attempt *t)
{
    int status = -1;
    if (waitpid(t->child, &status, 0) != t->child) {
        perror("layout_random: the process of a pair");
        exit(1);
    }
    if (status) last_words(t->errors, status, t->shared);
    outcome o = *t->shared;
    munmap(t->shared, sizeof *t->shared);
    fclose(t->errors);
    return o;
}

static outcome try(const pair *p, double timeout_s)
{
    attempt t = begin(p, timeout_s);
    return end(&t);
}

/* --- making a failure smaller --- */

typedef struct shrinker {
    pair best;
    verdict verdict;
    char kind[TEXT]; /* of its message, where that says more than numbers */
    time_t until;
    int tries;
} shrinker;

static bool same_failure(const shrinker *s, const outcome *o)
{
    char kind[TEXT];
    sk_sentence_kind(o->message, kind, sizeof kind);
    return o->verdict == s->verdict && (o->verdict == WRONG || !strcmp(kind, s->kind));
}

/* Does the pair fail in the same way with [from, to) of its text replaced?  Then keep it. */
static bool smaller(shrinker *s, bool layout, size_t from, size_t to, const char *with)
{
    pair p = s->best;
    char *text = layout ? p.layout : p.model;
    const char *old = layout ? s->best.layout : s->best.model;
    if (time(NULL) > s->until) return false;
    int n = snprintf(text, TEXT, "%.*s%s%s", (int)from, old, with, old + to);
    if (n >= TEXT) return false;
    outcome o = try(&p, 10);
    s->tries++;
    if (!same_failure(s, &o)) return false;
    s->best = p;
    return true;
}

/* A number: least first. */
static bool lower(shrinker *s, bool layout, size_t from, size_t to)
{
    const char *text = layout ? s->best.layout : s->best.model;
    if (!from || isalpha((unsigned char)text[from - 1]) || text[from - 1] == '.' || text[to] == '.')
        return false;
    int n = atoi(text + from), next[] = {1, n / 2, n - 1};
    for (int i = 0; i < 3; i++) {
        char with[16];
        snprintf(with, sizeof with, "%d", next[i]);
        if (next[i] >= 1 && next[i] < n && smaller(s, layout, from, to, with)) return true;
    }
    return false;
}

static bool shrink_text(shrinker *s, bool layout, const char *ends)
{
    bool any = false;
    for (size_t at = 0;;) {
        const char *text = layout ? s->best.layout : s->best.model;
        if (at >= strlen(text)) return any;
        size_t to = at + strcspn(text + at, ends);
        if (smaller(s, layout, at, text[to] ? to + 1 : to, "")) any = true;
        else at = text[to] ? to + 1 : to;
    }
}

static bool shrink_numbers(shrinker *s, bool layout)
{
    bool any = false;
    for (size_t at = 0;;) {
        const char *text = layout ? s->best.layout : s->best.model;
        at += strcspn(text + at, "0123456789");
        if (!text[at]) return any;
        size_t to = at + strspn(text + at, "0123456789");
        if (lower(s, layout, at, to)) any = true;
        else at = to;
    }
}

static void trim(char *text)
{
    size_t n = strlen(text);
    while (n && strchr(" ;", text[n - 1])) text[--n] = 0;
}

static void shrink(pair *p, const outcome *o)
{
    shrinker s = {.best = *p, .verdict = o->verdict, .until = time(NULL) + 120};
    sk_sentence_kind(o->message, s.kind, sizeof s.kind);
    for (bool any = true; any;) {
        any = shrink_text(&s, true, ";");
        for (int layout = 1; layout >= 0; layout--) {
            any |= shrink_text(&s, layout, " ");
            any |= shrink_numbers(&s, layout);
        }
    }
    printf("  after %d smaller ones:\n", s.tries);
    *p = s.best;
    trim(p->model);
    trim(p->layout);
}

static void show(const pair *p, const outcome *o)
{
    printf("%s: %s\n  layout_random --pair \"%s\" \"%s\"\n", verdicts[o->verdict], o->message,
           p->model, p->layout);
}

/* --- counting --- */

typedef struct tally {
    char name[200];
    int n;
    pair first;
} tally;

typedef struct counts {
    tally v[400];
    int n;
} counts;

static void count(counts *c, const char *name, const pair *p)
{
    int i = 0;
    while (i < c->n && strcmp(c->v[i].name, name)) i++;
    if (i == (int)(sizeof c->v / sizeof *c->v)) return;
    if (i == c->n) {
        snprintf(c->v[i].name, sizeof c->v[i].name, "%s", name);
        c->v[c->n++].first = *p;
    }
    c->v[i].n++;
}

static void count_f(counts *c, const pair *p, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void count_f(counts *c, const pair *p, const char *fmt, ...)
{
    char name[64];
    va_list list;
    va_start(list, fmt);
    vsnprintf(name, sizeof name, fmt, list);
    va_end(list);
    count(c, name, p);
}

static const char *const ways[] = {"gather", "exchange", "ring"};

static void axis_features(counts *c, const pair *p, const sk_layout *l)
{
    int times = 0, batches = 0, split = 0;
    for (int a = 0; a < l->mesh.n; a++) {
        if (l->mesh.size[a] == 1) continue;
        count_f(c, p, "split %s", a == l->stage_axis ? "layers" : l->split[a]);
        if (l->split[a][0] == 't') times++, count_f(c, p, "by %s", ways[l->by[a]]);
        batches += sk_layout_splits(l, a, 'b');
        split++;
    }
    count_f(c, p, "axes %d", split);
    if (times > 1) count(c, "two-level time", p);
    if (batches > 1) count(c, l->shard ? "two batch axes, sharded" : "two batch axes", p);
}

static void stage_features(counts *c, const pair *p, const sk_layout *l)
{
    if (l->n_micro) count_f(c, p, "micro %d", l->n_micro);
    if (l->stage_axis < 0 || l->mesh.size[l->stage_axis] == 1) return;
    count_f(c, p, "schedule %s", l->schedule);
    if (l->chunks) count_f(c, p, "chunks %d", l->chunks);
    if (l->balance) count(c, "balance", p);
}

static void expert_features(counts *c, const pair *p, const sk_trial *t, const outcome *o)
{
    const sk_hyper *h = &t->hyper;
    if (!sk_model_routes(t->model)) return;
    count_f(c, p, "experts %d", (int)h->num_local_experts);
    count_f(c, p, "choices %d", (int)h->num_experts_per_tok);
    if (h->n_shared_experts) count(c, "shared experts", p);
    if (h->expert_groups) count(c, "two-level gates", p);
    if (h->router_bias_update_speed > 0) count(c, "biased router", p);
    if (o->drops) count(c, "drops", p);
}

static void model_features(counts *c, const pair *p, const sk_trial *t)
{
    const sk_hyper *h = &t->hyper;
    count(c, t->model->name, p);
    count(c, t->optim, p);
    count_f(c, p, "threads %d", t->threads);
    if (h->num_key_value_heads < h->num_attention_heads) count(c, "grouped keys", p);
    if (h->tie_word_embeddings) count(c, "tied", p);
    if (h->resid_pdrop > 0) count(c, "dropout", p);
    if (t->bucket_bytes) count(c, "small buckets", p);
    if (t->clip > 0) count(c, "clip", p);
    count(c, sk_dtype_name(t->dtype), p);
    count(c, t->gpu ? "cuda" : "cpu", p);
    if (t->gpu) count_f(c, p, "cuda, %s", sk_dtype_name(t->dtype));
    if (t->gpu) count_f(c, p, "cuda, %s", t->model->name);
    if (t->fuse) count(c, "launches joined", p);
    if (t->delay_us) count(c, "slow copies", p);
    if (t->late) count(c, "late updates", p);
    if (t->cycle > 0) count(c, "cycled momentum", p);
    if (t->noise) count(c, "noise scale", p);
    if (t->adascale > 1) count(c, "adascale", p);
    if (t->first) count(c, "rates of layer 0", p);
    if (t->all_kron) count(c, "groups of what has factors", p);
    if (t->ema > 0) count(c, "averaged weights", p);
    if (t->state_type) count_f(c, p, "state of %s", sk_state_type_name(t->state_type));
    if (h->vocab_size >= 100) count(c, "many words", p);
    if (t->smoothing > 0) count(c, "label smoothing", p);
    if (t->z_loss > 0) count(c, "z-loss", p);
    if (t->layer_decay > 0) count(c, "layer decay", p);
    for (int k = 0; k < SK_N_EXTRAS; k++)
        if (t->extras >> k & 1) count_f(c, p, "backward %s", sk_extra_name((sk_extra_kind)k));
    if (t->extras >> SK_EXTRA_NORMS & 1)
        count_f(c, p, "norms by way %d of sk_norms_by", t->norms_by);
}

static void sync_features(counts *c, const pair *p, const sk_layout *l)
{
    int n = 0;
    for (int a = 0; a < l->mesh.n; a++) {
        const sk_axis_sync *s = &l->sync[a];
        if (!*s->name) continue;
        count_f(c, p, "sync %s", s->name);
        if (*s->codec) count_f(c, p, "sync codec %s%s", s->codec, s->feedback ? ", feedback" : "");
        n++;
    }
    if (n > 1) count(c, "sync of two axes", p);
}

static void features(counts *c, const pair *p, const outcome *o)
{
    sk_trial t;
    sk_layout l;
    if (sk_pair_read(p, &t) || sk_layout_read(p->layout, 0, &l)) return;
    model_features(c, p, &t);
    expert_features(c, p, &t, o);
    axis_features(c, p, &l);
    stage_features(c, p, &l);
    count_f(c, p, "ranks %d", sk_mesh_ranks(&l.mesh));
    count_f(c, p, "zero %d", (int)l.shard);
    count(c, strncmp(p->layout, "mesh", 4) ? "short form" : "long form", p);
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if (sk_word_on(*w, &l)) count_f(c, p, "word %s%s", (*w)->name, (*w)->value ? "=" : "");
    if (*l.recompute)
        count_f(c, p, "recompute %s%s", l.recompute, l.recompute_blocks ? ", some blocks" : "");
    if (*l.weights_as) count_f(c, p, "weights as %s", l.weights_as);
    sync_features(c, p, &l);
    if (*l.grads_as) count_f(c, p, "grads as %s%s", l.grads_as, l.feedback ? ", feedback" : "");
    for (int w = 0; w < SK_N_OFFLOAD_KINDS; w++)
        if (l.home[w])
            count_f(c, p, "%s to %s", sk_offload_kind_names[w], sk_placement_names[l.home[w]]);
    count(c, l.canonical ? "canonical order" : "fast order", p);
}

/* In one line, or a line each. */
static void show_counts(const counts *c, bool table)
{
    for (int i = 0; i < c->n && table; i++) printf("%6d  %s\n", c->v[i].n, c->v[i].name);
    for (int i = 0; i < c->n && !table; i++)
        printf("%s%s %d", i ? ", " : "features: ", c->v[i].name, c->v[i].n);
    printf("\n");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tally *)a)->name, ((const tally *)b)->name);
}

/* --- the whole --- */

/* What may be refused, of all that is drawn: a sentence begins so, without its names and numbers.
 * Any other refusal is a failure, so that the list grows only where somebody lengthens it. */
static const char *const refusals[] = {
    "layout: shards over two axes do not go with",
    "rank #: device=cuda: order=canonical gives the same bits on any layout, and the host would do",
    "rank #: device=cuda: weights are not foreseen from what lives outside of the GPU",
    "optimizer sgd-pb foresees weights of f#, and train.dtype is",
    "layout: replica keeps one copy of weights for the ranks of a host, and GPUs have no memory",
    "optim.state is int#: with order=canonical no layout may cut a block",
    "optim.state is bf#: on a GPU with order=canonical, muon takes its matrices in f#",
    "layout: muon works on whole matrices, on the device, and offload= keeps the optimizer",
    "layout: adafactor works on whole matrices, on the device, and offload= keeps the optimizer",
    "layout: kfac works on whole matrices, on the device, and offload= keeps the optimizer",
    "layout: shampoo works on whole matrices, on the device, and offload= keeps the optimizer",
    "layout: soap works on whole matrices, on the device, and offload= keeps the optimizer",
    "train.noise",
    "optim.state is bf#, and the state of schedulefree is weights",
    "optim.state is int#, and the state of schedulefree is weights",
    "optim: a step of sam takes two gradients of its batch, and error feedback",
    "train.backward",
    "kfac: gradients are offloaded",
    "layout: order=canonical would deal # of # samples to replica #",
    "layout: sync lets each replica clip and scale its own gradient",
    "layout: sync gives replicas weights of their own, and train.noise",
    "layout: sync averages weights behind their update, and with optim.late",
    "layout: sync=backup runs on CPUs",
    "layout: rank # has no samples: a batch of # in # micro-batch",
    "layout: # of # replicas have no samples in a batch of #",
    "layout: with train.dtype=f# all ranks move one scale of the loss together, and sync=backup",
    "layout: sync=backup updates behind its gradients",
    "layout: sync=backup lets ranks read each other's memory",
    "layout: the optimizer takes # gradients a step, and sync=backup",
    "layout: the optimizer has sums of the backward pass beside gradients",
    "layout: train.noise compares the gradients of all ranks, and with sync=backup",
    "layout: reduce=adasum joins the gradients of a step, and schedule",
    "layout: reduce=adasum runs on CPUs",
    "layout: grads=powersgd:# factors gradients of the whole step",
    "layout: grads=powersgd:# keeps what it owes from step to step",
    "optim.name is onebit-adam, whose ranks send momentum in place of gradients",
    "optim.groups: ranks of onebit-adam send momentum in place of gradients",
    "optim.groups: ranks of onebit-adam, which the group",
    "optim.name is onebit-lamb, whose ranks send momentum in place of gradients",
    "optim.groups: ranks of onebit-lamb send momentum in place of gradients",
    "optim.groups: ranks of onebit-lamb, which the group",
    "optim.name is zeroone-adam, whose ranks send momentum in place of gradients",
    "optim.groups: ranks of zeroone-adam send momentum in place of gradients",
    "optim.groups: ranks of zeroone-adam, which the group",
};

static bool may_refuse(const char *kind)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (!strncmp(kind, refusals[i], strlen(refusals[i]))) return true;
    return false;
}

typedef struct totals {
    counts seen, refusals;
    int end[N_VERDICTS], bad;
    double worst;
} totals;

static void take(totals *t, attempt *a)
{
    outcome o = end(a);
    pair *p = &a->p;
    char kind[200];
    sk_sentence_kind(o.message, kind, sizeof kind);
    if (o.verdict == REFUSED) count(&t->refusals, kind, p);
    if (o.verdict == REFUSED && !may_refuse(kind)) o.verdict = UNLISTED;
    if (o.verdict == FINE) features(&t->seen, p, &o), t->worst = fmax(t->worst, o.worst);
    t->end[o.verdict]++;
    if (o.verdict <= UNDECIDED) return;
    show(p, &o);
    if (t->bad++ < 8 && o.verdict != UNLISTED) shrink(p, &o), o = try(p, 10), show(p, &o);
}

/* Pairs that failed once: stages without layers; a shard axis of one rank; one copy of weights on
 * GPUs, which is refused now. */
static const pair known[] = {
    {"gpt2 layers=2 b=12 t=12 optim=adamw", "pp=10 micro=12"},
    {"gpt2 layers=2 b=12 t=12 device=cuda optim=adamw", "pp=7 micro=12"},
    {"mlp device=cuda optim=adamw", "dp=1 zero=1"},
    {"llama layers=2 b=4 t=4 device=cuda optim=sgd", "dp=1 tp=2 zero=3"},
    {"gpt2 b=4 device=cuda optim=adamw", "dp=2 zero=2 replica"},
    /* what is drawn too seldom */
    {"gpt2 layers=2 b=9 steps=5 tie=1 optim=adamw", "pp=2 dp=3 micro=2 zero=1 reduce=adasum"},
    {"llama b=8 steps=5 dtype=bf16 optim=sgd", "dp=2 tp=2 reduce=adasum"},
    {"gpt2 b=8 steps=5 optim=adamw bucket=900",
     "mesh hosts=2 dp=2; split b over hosts; split b over dp; shard state over dp; "
     "reduce gradients over hosts by adasum"},
    {"gpt2 layers=2 b=9 steps=5 tie=1 optim=adamw",
     "pp=2 dp=3 micro=2 zero=1 grads=powersgd:2 feedback"},
    {"mixtral b=8 t=8 steps=4 experts=4 room=4 device=cuda dtype=bf16 optim=adamw",
     "dp=2 tp=2 grads=powersgd:1 feedback"},
    {"llama b=8 t=8 steps=5 optim=muon",
     "mesh hosts=2 dp=2; split b over hosts; split b over dp; synchronize hosts by diloco:2; "
     "encode gradients as powersgd:1 with feedback"},
    {"gpt2 b=8 steps=5 optim=adamw noise=1 adascale=8", "dp=2 zero=1 micro=2"},
    {"llama b=8 steps=5 optim=sgd noise=1 adascale=4", "pp=2 dp=2 micro=2; canonical order"},
    {"gpt2 b=8 steps=5 device=cuda dtype=bf16 optim=adamw", "dp=2 tp=2 sync=stream:4"},
    {"llama b=8 steps=5 optim=adamw",
     "mesh d2=2 dp=2; split b over d2; split b over dp; grads=q4 feedback"},
    {"gpt2 b=8 steps=5 optim=adamw", "mesh hosts=2 dp=2; split b over hosts; split b over dp; "
                                     "synchronize hosts by diloco:4; synchronize dp by local:2"},
    {"llama b=8 steps=5 optim=sgd", "mesh hosts=2 dp=2; split b over hosts; split b over dp; "
                                    "synchronize hosts by local:4; synchronize dp by local:2; "
                                    "canonical order"},
    {"qwen2 b=8 steps=5 device=cuda dtype=bf16 optim=adamw",
     "mesh dp=2 hosts=2; split b over hosts; split b over dp; synchronize dp by gossip:2; "
     "synchronize hosts by local:2"},
    {"llama b=8 steps=5 tie=1 layers=2 optim=adamw",
     "mesh pp=2 dp.2=2 dp=2; stages over pp; split b over dp.2; split b over dp; shard grads over "
     "dp.2; micro 2; synchronize dp by postlocal:3@1; canonical order"},
    {"gpt2 layers=2 b=8 steps=5 optim=adamw matrix=kfac all_kron=1", "dp=2 zero=1 tp=2"},
    {"llama layers=2 b=8 steps=5 optim=muon first=1", "dp=2 zero=2; canonical order"},
    {"gpt2 layers=2 b=8 steps=5 optim=kfac first=1", "pp=2 dp=2 micro=2"},
    {"llama keys=2 v=400 b=8 t=6 steps=5 optim=adamw", "dp=2 offload=state"},
    {"mixtral v=400 b=8 t=6 steps=5 optim=sgd", "dp=4 micro=2 offload=state+weights:file"},
    {"gpt2 layers=2 v=400 b=8 t=6 steps=5 optim=lion", "pp=2 dp=2 micro=2 offload=weights+state"},
    /* rank 1 leaves half of the norm; fast order cannot decide the next, and canonical order
       measures no noise of tied weights */
    {"qwen2 keys=4 v=34 t=6 optim=adamw", "mesh ep=2; split be over ep; grads=powersgd:1 feedback"},
    {"switch layers=2 keys=2 f=8 v=11 x=4 tie=1 b=6 t=5 steps=5 noise=1 optim=soap experts=3 "
     "choices=2",
     "dp=3"},
};
enum { KNOWN_UNDECIDED = 1 };

/* As many pairs at a time as there are cores on the smallest machine that is used. */
enum { AT_A_TIME = 2 };

static int run_pairs(int n, bool all_features)
{
    static totals t;
    attempt under_way[AT_A_TIME];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        take(&t, (attempt[]){begin(&known[i], 60)});
    for (int i = 0; i < n + AT_A_TIME; i++) {
        attempt *a = &under_way[i % AT_A_TIME];
        if (i >= AT_A_TIME) take(&t, a);
        pair p = sk_pair_draw(seed, (uint64_t)i, &most);
        if (i < n) *a = begin(&p, 60);
    }
    for (int i = 0; i < t.refusals.n; i++)
        printf("refused %d times: %s\n  layout_random --pair \"%s\" \"%s\"\n", t.refusals.v[i].n,
               t.refusals.v[i].name, t.refusals.v[i].first.model, t.refusals.v[i].first.layout);
    qsort(t.seen.v, (size_t)t.seen.n, sizeof *t.seen.v, by_name);
    show_counts(&t.seen, all_features);
    printf("layouts: %d random pairs (seed %llu), %d features, worst difference of a loss %.1e, "
           "%d refused with %d kinds of refusals, %d undecided, %d bad\n",
           n, (unsigned long long)seed, t.seen.n, t.worst, t.end[REFUSED], t.refusals.n,
           t.end[UNDECIDED], t.bad);
    return t.bad || t.end[REFUSED] > n / 3 || t.end[UNDECIDED] > n / 20 + KNOWN_UNDECIDED;
}

static int run_one(const char *model, const char *layout)
{
    pair p = {0};
    snprintf(p.model, sizeof p.model, "%s", model);
    snprintf(p.layout, sizeof p.layout, "%s", layout);
    outcome o = try(&p, 60);
    show(&p, &o);
    return o.verdict > UNDECIDED;
}

int main(int argc, char **argv)
{
    bool all_features = argc > 1 && !strcmp(argv[1], "--features");
    int at = all_features ? 2 : 1;
    sk_fake_gpu(0);
    sk_fake_nccl();
    if (argc == 4 && !strcmp(argv[1], "--pair")) return run_one(argv[2], argv[3]);
    seed = argc > at ? strtoull(argv[at], NULL, 10) : 1;
    return run_pairs(argc > at + 1          ? atoi(argv[at + 1])
                     : getenv("SKEIN_LONG") ? 800
                                            : 30,
                     all_features);
}
