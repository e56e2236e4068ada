/* bench_coll.c - points of a benchmark of collectives: which ones, and the table of them.
 *
 * A point is a collective, an algorithm and a size.  All points are put together
 * first and then timed by one set of ranks (plan/coll_timing.h). */
#include "cli/bench_coll.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/bench_choice.h"
#include "cli/bench_fit.h"
#include "comm/boot.h"
#include "coll/choose.h"
#include "plan/coll_calibration.h"
#include "plan/machine.h"
#include "plan/coll_timing.h"
#include "train/setup.h"

#include <math.h>
#include <string.h>

enum { MAX_SIZES = 64, MAX_OPS = 2 * SK_N_COLLS, FIT_TURNS = 5 };
static const double calibrate_seconds = 20, meet_seconds = 60;

typedef struct asked {
    sk_coll_kind kinds[MAX_OPS];
    int64_t sizes[MAX_SIZES];
    int n_kinds, n_sizes, n_ranks;
    const char *algorithms; /* names with commas between them, or "all" */
    bool fresh, choice, any_order;
    const char *fit; /* a file to write; NULL: none */
    double seconds;  /* a point; 0: the usual */
    sk_machine machine;
    sk_boot boot; /* n_ranks above 1: this process is one rank of them */
    struct {
        sk_coll_spec *v;
        int n, cap;
    } points;
} asked;

static const char *const columns[] = {"op",        "bytes",        "ranks",  "algorithm",
                                      "us_median", "us_p10",       "us_p90", "algbw_gbs",
                                      "busbw_gbs", "predicted_us", "wrong"};
enum { COLS = sizeof columns / sizeof *columns };

/* --- reading --- */

/* The next word of a list with commas; NULL after the last. */
static char *next_word(char **list)
{
    if (!*list) return NULL;
    char *word = *list, *comma = strchr(word, ',');
    if (comma) *comma++ = 0;
    *list = comma;
    return word;
}

/* "allreduce, allgather and broadcast" */
static const char *names_of(sk_arena *a, const char *const *names, int n)
{
    sk_out o = {.arena = a};
    for (int i = 0; i < n; i++)
        sk_out_add(&o, "%s%s", !i ? "" : i + 1 < n ? ", " : " and ", names[i]);
    return o.n ? o.s : "none";
}

static sk_status unknown(sk_arena *a, const char *option, const char *word,
                         const char *const *names, int n)
{
    const char *near = sk_nearest(word, names, n);
    return sk_fail(SK_EUSAGE, "command line: %s %.40s is unknown%s%s%s; there are %s", option, word,
                   near ? " - did you mean " : "", near ? near : "", near ? "?" : "",
                   names_of(a, names, n));
}

static sk_status read_ops(sk_arena *a, const char *text, asked *q)
{
    char *list = sk_strdup(a, text);
    for (char *word; (word = next_word(&list));) {
        int k = strcmp(word, "bcast") ? sk_kind_find(word) : SK_BROADCAST;
        if (k == SK_N_COLLS) return unknown(a, "--op", word, sk_coll_names, SK_N_COLLS);
        if (q->n_kinds == MAX_OPS)
            return sk_fail(SK_EUSAGE, "command line: --op has more than %d", MAX_OPS);
        q->kinds[q->n_kinds++] = (sk_coll_kind)k;
    }
    return SK_OK;
}

static sk_status add_size(asked *q, const char *word, int64_t bytes)
{
    if (bytes < 4 || bytes % 4 || bytes > (1ll << 36))
        return sk_fail(SK_EUSAGE,
                       "command line: --sizes has \"%.40s\"; bytes from 4 to 64Gi that four "
                       "divides are needed, or 4..256Mi for powers of four from the first",
                       word);
    if (q->n_sizes == MAX_SIZES)
        return sk_fail(SK_EUSAGE, "command line: --sizes has more than %d", MAX_SIZES);
    q->sizes[q->n_sizes++] = bytes;
    return SK_OK;
}

/* "64" or "4..256Mi" */
static sk_status read_size(sk_arena *a, const char *word, asked *q)
{
    char *first = sk_strdup(a, word), *dots = strstr(first, "..");
    int64_t from = 0, to = 0;
    if (dots) *dots = 0;
    if (!sk_read_int(first, &from)) from = 0;
    if (!dots) to = from;
    else if (!sk_read_int(dots + 2, &to) || to < from) from = 0;
    do SK_TRY(add_size(q, word, from));
    while ((from *= 4) <= to);
    return SK_OK;
}

static sk_status read_sizes(sk_arena *a, const char *text, asked *q)
{
    char *list = sk_strdup(a, text);
    for (char *word; (word = next_word(&list));) SK_TRY(read_size(a, word, q));
    return SK_OK;
}

static sk_status read_ranks(const char *text, int *ranks)
{
    int64_t n = 0;
    if (sk_read_int(text, &n) && n >= 1 && n <= SK_TIMED_RANKS) {
        *ranks = (int)n;
        return SK_OK;
    }
    return sk_fail(SK_EUSAGE, "command line: -n is \"%.40s\"; 1 to %d ranks are needed", text,
                   SK_TIMED_RANKS);
}

static sk_status read_seconds(const char *text, double *seconds)
{
    if (sk_read_real(text, seconds) && *seconds > 0 && *seconds <= 3600) return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "command line: --seconds is \"%.40s\"; more than 0 and up to 3600 for each "
                   "point are needed",
                   text);
}

/* --- algorithms --- */

/* Can these ranks do it?  Heaps need one host, other native ones the library that started us. */
static bool fits(const asked *q, const sk_coll *c, sk_coll_kind kind, uint64_t degrees)
{
    sk_coll_ask ask = {.kind = kind, .n = q->n_ranks, .degrees = degrees};
    if (c->heaps ? q->boot.n_hosts > 1 : c->native && !q->boot.wire) return false;
    return sk_coll_can(c, &ask);
}

/* What is timed where nobody says: every part straight to where it belongs, in the heaps of one
 * host or as a list between hosts. */
static const char *plainest(const asked *q)
{
    int i = 0;
    if (q->boot.n_hosts <= 1) return sk_algorithm_name(SK_BUILTIN);
    while (sk_coll_parts[i]->build != sk_steps_direct || sk_coll_parts[i]->native) i++;
    return sk_coll_parts[i]->name;
}

static int list_names(sk_arena *a, const asked *q, int kind, const char *const **out)
{
    int n = 0, all = 0;
    while (sk_coll_parts[all]) all++;
    const char **names = sk_many(a, const char *, all + 1);
    for (int i = 0; i < all; i++)
        if (kind < 0 || fits(q, sk_coll_parts[i], (sk_coll_kind)kind, 0))
            names[n++] = sk_coll_parts[i]->name;
    *out = names;
    return n;
}

static void add_points(sk_arena *a, asked *q, sk_coll_kind kind, const sk_coll *c, uint64_t degrees)
{
    for (int i = 0; i < q->n_sizes; i++) {
        sk_coll_spec *s = sk_push(a, &q->points);
        *s = (sk_coll_spec){.kind = kind,
                            .reduce = c->adasum ? SK_ADASUM : SK_SUM,
                            .type = SK_F32,
                            .bytes = q->sizes[i],
                            .n_ranks = q->n_ranks,
                            .algorithm = c->heaps ? SK_BUILTIN : sk_coll_find(c->name),
                            .degrees = degrees,
                            .in_place = kind == SK_ALLREDUCE || kind == SK_BROADCAST,
                            .fresh = q->fresh,
                            .starts = q->fit != NULL && i == 0,
                            .seconds = q->seconds};
    }
}

static bool fitted(const asked *q, sk_coll_kind kind, const sk_coll *c)
{
    return c->build && c->price && !c->native && !c->packs && !c->adasum && fits(q, c, kind, 0);
}

/* One list of each cost: what tells the numbers of links apart is that costs differ. */
static void add_fitted(sk_arena *a, asked *q, sk_coll_kind kind)
{
    const sk_coll_ask ask = {.kind = kind, .n = q->n_ranks};
    for (int i = 0; sk_coll_parts[i]; i++) {
        bool again = !fitted(q, kind, sk_coll_parts[i]);
        sk_coll_cost mine = again ? (sk_coll_cost){0} : sk_coll_price(sk_coll_parts[i], &ask);
        for (int j = 0; j < i && !again; j++) {
            if (!fitted(q, kind, sk_coll_parts[j])) continue;
            sk_coll_cost c = sk_coll_price(sk_coll_parts[j], &ask);
            again = c.rounds == mine.rounds && c.sent == mine.sent && c.summed == mine.summed;
        }
        if (!again) add_points(a, q, kind, sk_coll_parts[i], 0);
    }
}

static sk_status add_named(sk_arena *a, asked *q, sk_coll_kind kind, const char *name)
{
    const char *const *names;
    uint64_t degrees = 0;
    int at = sk_coll_find(name), pin;
    if (strchr(name, ':')) {
        SK_TRY(sk_pin_find("command line: --algorithm", name, &pin, &degrees));
        at = pin - 1;
    }
    if (at < 0) {
        int n = list_names(a, q, -1, &names);
        return unknown(a, "--algorithm", name, names, n);
    }
    if (!fits(q, sk_coll_parts[at], kind, degrees)) {
        int n = list_names(a, q, (int)kind, &names);
        return sk_fail(SK_EUSAGE,
                       "command line: --algorithm %s cannot do %s on %d ranks of %s; those that "
                       "can: %s",
                       name, sk_coll_names[kind], q->n_ranks,
                       q->boot.n_hosts > 1 ? "several hosts" : "one host", names_of(a, names, n));
    }
    add_points(a, q, kind, sk_coll_parts[at], degrees);
    return SK_OK;
}

/* --- what --choice times: no list twice, and none that is for other sums --- */

typedef struct choosing {
    sk_arena *arena;
    asked *q;
    sk_coll_ask ask;
    int first; /* point of the kind */
} choosing;

static void add_once(void *ctx, int algorithm, uint64_t degrees)
{
    choosing *k = ctx;
    const sk_coll *c = sk_coll_parts[algorithm];
    const sk_coll_spec s = {.algorithm = c->heaps ? SK_BUILTIN : algorithm, .degrees = degrees};
    if (c->packs || c->adasum) return;
    for (int i = k->first; i < k->q->points.n; i++)
        if (sk_choice_same(&k->ask, &k->q->points.v[i], &s)) return;
    add_points(k->arena, k->q, k->ask.kind, c, degrees);
}

static void add_choice(sk_arena *a, asked *q, sk_coll_kind kind)
{
    const int *host_of = q->boot.n_hosts > 1 ? q->boot.host_of : NULL;
    choosing k = {a, q, sk_choice_ask(a, kind, q->n_ranks, host_of, q->any_order), q->points.n};
    for (int i = 0; sk_coll_parts[i]; i++)
        if (fits(q, sk_coll_parts[i], kind, 0)) add_once(&k, i, 0);
    sk_candidates(&k.ask, host_of ? q->boot.n_hosts : 1, SK_SUM, add_once, &k);
}

static sk_status make_points(sk_arena *a, asked *q)
{
    for (int k = 0; k < q->n_kinds; k++) {
        if (!q->algorithms || q->choice) {
            if (q->choice) add_choice(a, q, q->kinds[k]);
            else add_fitted(a, q, q->kinds[k]);
            continue;
        }
        char *list = sk_strdup(a, q->algorithms);
        if (!strcmp(list, "all")) {
            for (int i = 0; sk_coll_parts[i]; i++)
                if (fits(q, sk_coll_parts[i], q->kinds[k], 0))
                    add_points(a, q, q->kinds[k], sk_coll_parts[i], 0);
            continue;
        }
        for (char *word; (word = next_word(&list));) SK_TRY(add_named(a, q, q->kinds[k], word));
    }
    return SK_OK;
}

/* --- showing --- */

/* What the links would have to carry, as nccl-tests count it. */
static double bus_share(sk_coll_kind kind, int n)
{
    double rest = (double)(n - 1) / n;
    if (kind == SK_ALLREDUCE) return 2 * rest;
    return kind == SK_BROADCAST || kind == SK_REDUCE ? 1 : rest;
}

/* By the algorithm if the machine is one whose collectives are skein's own. */
static double predict(const sk_machine *m, const sk_coll_spec *s)
{
    int host = m->ranks_per_host, hosts = 1 + (s->n_ranks - 1) / host;
    sk_reach reach = {s->n_ranks, hosts, s->n_ranks < host ? s->n_ranks : host};
    sk_coll_ask ask = {.kind = s->kind, .n = s->n_ranks, .degrees = s->degrees};
    if (!m->chosen) return sk_machine_coll(m, s->kind, s->bytes, reach);
    return sk_call_price(&m->costs, s->algorithm, &ask, hosts, s->bytes);
}

static void add_row(sk_table *t, const sk_machine *m, const sk_coll_spec *s,
                    const sk_coll_timing *c)
{
    sk_arena *a = t->arena;
    double alg = c->median > 0 ? (double)s->bytes / c->median * 1e-9 : 0;
    double predicted = predict(m, s);
    const char *cells[COLS] = {sk_coll_names[s->kind],
                               sk_print(a, "%lld", (long long)s->bytes),
                               sk_print(a, "%d", s->n_ranks),
                               sk_spec_name(a, s),
                               sk_print(a, "%.3f", 1e6 * c->median),
                               sk_print(a, "%.3f", 1e6 * c->p10),
                               sk_print(a, "%.3f", 1e6 * c->p90),
                               sk_print(a, "%.4g", alg),
                               sk_print(a, "%.4g", alg * bus_share(s->kind, s->n_ranks)),
                               isfinite(predicted) ? sk_print(a, "%.3f", 1e6 * predicted) : "",
                               sk_print(a, "%lld", (long long)c->wrong)};
    sk_table_add(t, cells);
}

/* On ranks that another launcher started. */
static sk_status time_joined(sk_arena *a, asked *q, sk_coll_timing *times)
{
    sk_boot *b = &q->boot;
    const int *host_of = b->n_hosts > 1 ? b->host_of : NULL;
    int64_t *bytes = sk_many(a, int64_t, b->n_ranks);
    sk_heaps *h = NULL;
    sk_comm_opts ends = {.rank = b->rank, .timeout_s = meet_seconds};
    if (host_of) ends.wire = b->wire;
    ends.host_of = host_of;
    for (int r = 0; r < b->n_ranks; r++) bytes[r] = sk_time_heap(q->points.v, q->points.n, host_of);
    SK_TRY(sk_boot_heaps(b, bytes, (sk_heap_aliases){0}, 4096, &h));
    sk_status st = sk_time_rank(h, &ends, q->points.v, q->points.n, times);
    sk_heaps_close(h);
    return st;
}

static sk_status time_points(sk_arena *a, asked *q, sk_coll_timing *times)
{
    if (q->boot.n_ranks > 1) return time_joined(a, q, times);
    return sk_time_colls(q->points.v, q->points.n, times);
}

static sk_status time_and_show(sk_arena *a, asked *q, const char *format)
{
    sk_coll_timing *times = sk_many(a, sk_coll_timing, q->points.n);
    sk_table t = {.arena = a, .head = columns, .n_cols = COLS};
    int64_t wrong = 0;
    SK_TRY(time_points(a, q, times));
    if (q->boot.rank) return SK_OK; /* rank 0 has the same */
    for (int i = 0; i < q->points.n; i++) {
        add_row(&t, &q->machine, &q->points.v[i], &times[i]);
        wrong += times[i].wrong;
    }
    SK_TRY(sk_table_print(&t, format, stdout));
    if (wrong) return sk_fail(SK_EBUG, "%lld elements came out wrong", (long long)wrong);
    return SK_OK;
}

/* The choice, the best and the choice again of each row, one after the other: the median of their
 * ratios is not that of a best which was lucky, and the two times of the choice tell noise. */
static sk_status time_pairs(sk_arena *a, asked *q, const sk_choice_times *t, sk_choice_row *rows,
                            int n)
{
    double took[SK_CHOICE_PAIRS][3];
    q->points.n = 0;
    q->points.v = NULL;
    q->points.cap = 0;
    for (int turn = 0; turn < SK_CHOICE_PAIRS; turn++)
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 3 && rows[i].chosen != rows[i].best; k++)
                *(sk_coll_spec *)sk_push(a, &q->points) =
                    t->spec[k % 2 ? rows[i].best : rows[i].chosen];
    if (!q->points.n) return SK_OK;
    sk_coll_timing *times = sk_many(a, sk_coll_timing, q->points.n);
    SK_TRY(time_points(a, q, times));
    int pairs = q->points.n / (3 * SK_CHOICE_PAIRS);
    for (int i = 0, at = 0; i < n; i++) {
        if (rows[i].chosen == rows[i].best) continue;
        for (int turn = 0; turn < SK_CHOICE_PAIRS; turn++)
            for (int k = 0; k < 3; k++) took[turn][k] = times[3 * (turn * pairs + at) + k].median;
        sk_choice_pair(&rows[i], took);
        at++;
    }
    return SK_OK;
}

/* All points again and again, one turn after the other: what slows a machine down for a while then
 * slows all of them.  A point has as long as ever. */
static void repeat(sk_arena *a, asked *q, int turns)
{
    int n = q->points.n;
    for (int i = 0; i < n; i++)
        q->points.v[i].seconds = (q->seconds > 0 ? q->seconds : 0.2) / turns;
    for (int i = n; i < turns * n; i++) {
        sk_coll_spec s = q->points.v[i - n];
        *(sk_coll_spec *)sk_push(a, &q->points) = s;
    }
}

static sk_status show_choice(sk_arena *a, asked *q, const char *format)
{
    sk_choice_row *rows = NULL;
    int n = q->points.n, all = SK_CHOICE_TURNS * n;
    sk_coll_timing *times = sk_many(a, sk_coll_timing, all);
    sk_choice_times t = {
        .time = times, .n = n, .costs = &q->machine.costs, .any_order = q->any_order};
    repeat(a, q, SK_CHOICE_TURNS);
    t.spec = q->points.v;
    if (q->boot.n_hosts > 1) t.host_of = q->boot.host_of;
    SK_TRY(time_points(a, q, times));
    for (int i = 0; i < all; i++)
        if (times[i].wrong)
            return sk_fail(SK_EBUG, "%lld elements of %s by %s came out wrong",
                           (long long)times[i].wrong, sk_coll_names[t.spec[i].kind],
                           sk_algorithm_name(t.spec[i].algorithm));
    n = sk_choice_rows(a, &t, &rows);
    SK_TRY(time_pairs(a, q, &t, rows, n));
    return q->boot.rank ? SK_OK : sk_choice_show(a, &t, rows, n, format);
}

/* --- fitting --- */

static sk_status can_fit(const asked *q)
{
    const sk_boot *b = &q->boot;
    for (int i = 0; i < q->points.n; i++) {
        const sk_coll_spec *s = &q->points.v[i];
        const sk_coll *c = s->algorithm >= 0 ? sk_coll_parts[s->algorithm] : NULL;
        if (c && c->build && c->price && !c->packs) continue;
        return sk_fail(SK_EUSAGE,
                       "command line: --fit needs algorithms that are lists with a price, and %s "
                       "is none; leave --algorithm out",
                       sk_algorithm_name(s->algorithm));
    }
    if (b->n_ranks < 2 || b->n_hosts < 2 || b->n_hosts == b->n_ranks) return SK_OK;
    return sk_fail(
        SK_EUSAGE,
        "bench: --fit wants links of one kind, and %d ranks are on %d hosts; one rank of "
        "each host is needed, or ranks of one host",
        b->n_ranks, b->n_hosts);
}

/* Of each point the median of its turns, in times[0] to times[n - 1]. */
static void take_medians(sk_coll_timing *times, int n)
{
    for (int i = 0; i < n; i++) {
        double took[FIT_TURNS], start[FIT_TURNS];
        for (int k = 0; k < FIT_TURNS; k++) {
            took[k] = times[k * n + i].median;
            start[k] = times[k * n + i].start;
        }
        times[i].median = sk_choice_median(took, FIT_TURNS);
        times[i].start = sk_choice_median(start, FIT_TURNS);
    }
}

static sk_status show_fit(sk_arena *a, asked *q, const char *format)
{
    int n = q->points.n;
    sk_coll_timing *times = sk_many(a, sk_coll_timing, FIT_TURNS * n);
    SK_TRY(can_fit(q));
    if (!q->boot.rank) SK_TRY(sk_machine_can_write(a, q->fit));
    repeat(a, q, FIT_TURNS);
    SK_TRY(time_points(a, q, times));
    take_medians(times, n);
    if (q->boot.rank) return SK_OK;
    sk_fit_times t = {q->points.v, times, n, q->boot.n_hosts > 1};
    SK_TRY(sk_fit_show(a, &t, format, &q->machine));
    return sk_machine_write(a, q->fit, &q->machine);
}

/* --- calibrating --- */

/* The lines "key: value" of a file as a table. */
static sk_status show_file(sk_arena *a, const char *path, const char *format)
{
    static const char *const head[] = {"key", "value"};
    sk_table t = {.arena = a, .head = head, .n_cols = 2};
    sk_text text;
    SK_TRY(sk_file_read(a, path, &text));
    char *rest = sk_strdup(a, text.s);
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *colon = strstr(line, ": ");
        if (*line == '#' || !colon) continue;
        *colon = 0;
        sk_table_add(&t, (const char *[]){line, colon + 2});
    }
    return sk_table_print(&t, format, stdout);
}

static sk_status calibrate(sk_arena *a, const char *path, double seconds, const char *format)
{
    sk_costs costs;
    sk_machine m;
    const char *warning = NULL;
    double start = sk_now();
    SK_TRY(sk_argv_alone(a, "bench coll --calibrate", false));
    if (!path) path = sk_machine_path(a);
    if (!path)
        return sk_fail(SK_EUSAGE, "bench: neither XDG_CONFIG_HOME nor HOME is set; say where to "
                                  "write: skein bench coll --calibrate FILE");
    SK_TRY(sk_machine_can_write(a, path));
    SK_TRY(sk_calibrate(a, seconds, &costs));
    SK_TRY(sk_machine_default(a, NULL, &m, &warning));
    if (!strcmp(m.costs.host, costs.host))
        m.costs = costs; /* kernels as skein calibrate has them */
    else SK_TRY(sk_calibrate_machine(a, &costs, &m));
    SK_TRY(sk_machine_write(a, path, &m));
    SK_TRY(show_file(a, path, format));
    fprintf(format ? stderr : stdout, "measured in %.1f s, written to %s\n", sk_now() - start,
            path);
    return SK_OK;
}

/* --- the command --- */

static sk_status read_points(sk_arena *a, asked *q, const char *ops, const char *sizes,
                             const char *ranks)
{
    SK_TRY(read_ops(a, ops, q));
    SK_TRY(read_sizes(a, sizes, q));
    SK_TRY(read_ranks(ranks, &q->n_ranks));
    return make_points(a, q);
}

static void tell_late(const char *text) { fprintf(stderr, "skein waits: %s\n", text); }

static sk_status join(sk_arena *a, asked *q, const char **ranks)
{
    SK_TRY(sk_boot_detect(a, &q->boot));
    if (q->boot.n_ranks < 2) {
        q->boot = (sk_boot){0};
        *ranks = *ranks ? *ranks : "2";
        return SK_OK;
    }
    if (*ranks)
        return sk_fail(SK_EUSAGE,
                       "command line: -n is for ranks that skein starts itself; %s "
                       "started %d",
                       q->boot.by, q->boot.n_ranks);
    *ranks = sk_print(a, "%d", q->boot.n_ranks);
    q->boot.late = tell_late;
    return sk_boot_join(&q->boot, meet_seconds);
}

sk_status sk_bench_coll(sk_arena *a, int argc, char **argv)
{
    const char *ops = NULL, *sizes = NULL, *ranks = NULL, *seconds = NULL;
    const char *cluster = NULL, *format = NULL, *calibrating = NULL, *file = NULL, *warning = NULL;
    const char *fresh = NULL, *choice = NULL, *any_order = NULL;
    asked *q = sk_new(a, asked);
    const sk_argv_option options[] = {{"--op", &ops, false},
                                      {"--sizes", &sizes, false},
                                      {"-n", &ranks, false},
                                      {"--algorithm", &q->algorithms, false},
                                      {"--seconds", &seconds, false},
                                      {"--cluster", &cluster, false},
                                      {"--fresh", &fresh, true},
                                      {"--calibrate", &calibrating, true},
                                      {"--choice", &choice, true},
                                      {"--any-order", &any_order, true},
                                      {"--fit", &q->fit, false},
                                      {"-o", &format, false},
                                      {0}};
    int n = 0;
    SK_TRY(sk_argv_words(a, argc, argv, options, &file, 1, &n));
    if (choice && (q->algorithms || calibrating))
        return sk_fail(SK_EUSAGE,
                       "command line: --choice times all algorithms that fit; leave "
                       "out %s",
                       q->algorithms ? "--algorithm" : "--calibrate");
    if (q->fit && (choice || calibrating || fresh))
        return sk_fail(SK_EUSAGE, "command line: --fit is neither --choice nor --calibrate, and "
                                  "not of --fresh data; leave one of them out");
    if (any_order && !choice)
        return sk_fail(SK_EUSAGE, "command line: --any-order is for --choice");
    if (choice) q->algorithms = "all";
    q->any_order = any_order != NULL;
    if (!ops) ops = q->fit ? "allreduce,allgather" : "allreduce";
    if (!sizes) sizes = q->fit ? "64,16Ki,256Ki" : "4,1Ki,32Ki,1Mi,16Mi";
    q->choice = choice != NULL;
    if (file && !calibrating)
        return sk_fail(SK_EUSAGE, "command line: \"%.80s\" is one word too many", file);
    if (seconds) SK_TRY(read_seconds(seconds, &q->seconds));
    q->fresh = fresh != NULL;
    if (calibrating) return calibrate(a, file, seconds ? q->seconds : calibrate_seconds, format);
    SK_TRY(join(a, q, &ranks));
    if (!q->algorithms && !q->fit) q->algorithms = plainest(q);
    SK_TRY(read_points(a, q, ops, sizes, ranks));
    SK_TRY(sk_machine_default(a, cluster, &q->machine, &warning));
    if (warning) fprintf(stderr, "skein: %s\n", warning);
    if (q->boot.n_ranks > 1) /* rank 0's, or ranks would choose differently */
        SK_TRY(sk_boot_bcast(&q->boot, &q->machine.costs, sizeof q->machine.costs));
    sk_status st = choice   ? show_choice(a, q, format)
                   : q->fit ? show_fit(a, q, format)
                            : time_and_show(a, q, format);
    if (!st && q->boot.n_ranks) sk_boot_leave(&q->boot);
    return st;
}
