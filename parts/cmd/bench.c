/* bench.c - `skein bench`: how long collectives and training steps take on this host.
 *
 * Ranks are processes, data are made up from (step, row, column), so nothing is
 * read and nothing is left behind.  Every layout of `bench step` starts from the
 * weights and sees the data of the one-rank run that it is compared with. */
#include "base/rng.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/cmd.h"
#include "run/crew.h"
#include "run/machine.h"
#include "run/timing.h"
#include "train/host.h"
#include "train/setup.h"

#include <math.h>
#include <string.h>

enum { MAX_LAYOUTS = 256, MAX_SIZES = 64 };

static const char help[] =
    "usage: skein bench coll [--op NAME,...] [--sizes BYTES,...] [-n RANKS] [--algorithm A]\n"
    "                        [--cluster NAME|FILE] [-o csv|json|md]\n"
    "       skein bench step [FILE.yaml] [key=value ...] [-n RANKS] [--layout TEXT]...\n"
    "                        [--layouts all] [--steps N] [-o csv|json|md]\n\n"
    "coll times collectives between processes of this host: allreduce, reduce_scatter, allgather.\n"
    "Sizes are bytes of the whole buffer (1k = 1000, 1Ki = 1024) of f32.  busbw is algbw times\n"
    "2(n-1)/n for allreduce, (n-1)/n for the others; predicted_us is what the machine (usual: "
    "cpu)\n"
    "says in skein simulate; wrong counts elements that differ from the known result.\n\n"
    "step times training steps of a job under each layout; `--layouts all` takes every product of\n"
    "dp, tp, pp and zero for -n ranks.  loss_delta is the largest relative difference of a loss\n"
    "from that of one rank; mfu is of the matrix products that all ranks reach at once.\n"
    "    skein bench coll --sizes 4,1Ki,1Mi -n 2 -o csv\n"
    "    skein bench step model=demo -n 2 --layouts all -o csv\n";

/* --- collectives --- */

static const struct {
    const char *name;
    sk_coll_kind kind;
} ops[] = {{"allreduce", SK_ALLREDUCE},
           {"reduce_scatter", SK_REDUCE_SCATTER},
           {"allgather", SK_ALLGATHER}};
enum { N_OPS = sizeof ops / sizeof *ops };

static const char *const coll_columns[] = {"op",        "bytes",        "ranks",  "algorithm",
                                           "us_median", "us_p10",       "us_p90", "algbw_gbs",
                                           "busbw_gbs", "predicted_us", "wrong"};
enum { COLL_COLS = sizeof coll_columns / sizeof *coll_columns };

/* The next word of a list with commas; NULL after the last. */
static char *next_word(char **list)
{
    if (!*list) return NULL;
    char *word = *list, *comma = strchr(word, ',');
    if (comma) *comma++ = 0;
    *list = comma;
    return word;
}

static sk_status one_coll(sk_table *t, const sk_machine *m, int op, int64_t bytes, int ranks,
                          int64_t *wrong)
{
    sk_arena *a = t->arena;
    sk_coll_timing c;
    SK_TRY(sk_time_coll(ops[op].kind, bytes, ranks, &c));
    double alg = c.median > 0 ? (double)bytes / c.median * 1e-9 : 0;
    double bus = alg * (ranks - 1) / ranks * (ops[op].kind == SK_ALLREDUCE ? 2 : 1);
    int host = m->ranks_per_host;
    sk_reach reach = {ranks, (ranks + host - 1) / host, ranks < host ? ranks : host};
    double predicted = sk_machine_coll(m, ops[op].kind, bytes, reach);
    const char *cells[COLL_COLS] = {ops[op].name,
                                    sk_print(a, "%lld", (long long)bytes),
                                    sk_print(a, "%d", ranks),
                                    "shm",
                                    sk_print(a, "%.3f", 1e6 * c.median),
                                    sk_print(a, "%.3f", 1e6 * c.p10),
                                    sk_print(a, "%.3f", 1e6 * c.p90),
                                    sk_print(a, "%.4g", alg),
                                    sk_print(a, "%.4g", bus),
                                    sk_print(a, "%.3f", 1e6 * predicted),
                                    sk_print(a, "%lld", (long long)c.wrong)};
    sk_table_add(t, cells);
    *wrong += c.wrong;
    return SK_OK;
}

static sk_status find_op(const char *word, int *op)
{
    const char *names[N_OPS];
    for (*op = 0; *op < N_OPS; (*op)++) {
        names[*op] = ops[*op].name;
        if (!strcmp(word, ops[*op].name)) return SK_OK;
    }
    const char *near = sk_nearest(word, names, N_OPS);
    return sk_fail(SK_EUSAGE,
                   "command line: --op %.40s is unknown%s%s%s; there are allreduce, "
                   "reduce_scatter and allgather",
                   word, near ? " - did you mean " : "", near ? near : "", near ? "?" : "");
}

static sk_status read_sizes(char *list, int64_t *sizes, int *n)
{
    *n = 0;
    for (char *word; (word = next_word(&list));) {
        int64_t bytes = 0;
        if (!sk_read_int(word, &bytes) || bytes < 4 || bytes % 4 || bytes > (1ll << 36))
            return sk_fail(SK_EUSAGE,
                           "command line: --sizes has \"%.40s\"; bytes from 4 to 64Gi that four "
                           "divides are needed",
                           word);
        if (*n == MAX_SIZES)
            return sk_fail(SK_EUSAGE, "command line: --sizes has more than %d", MAX_SIZES);
        sizes[(*n)++] = bytes;
    }
    return SK_OK;
}

static sk_status read_ranks(const char *text, int64_t *ranks)
{
    if (sk_read_int(text, ranks) && *ranks >= 1 && *ranks <= SK_MAX_RANKS) return SK_OK;
    return sk_fail(SK_EUSAGE, "command line: -n is \"%.40s\"; 1 to %d ranks are needed", text,
                   SK_MAX_RANKS);
}

static sk_status run_coll(sk_arena *a, int argc, char **argv)
{
    const char *op_list = "allreduce", *size_list = "4,1Ki,32Ki,1Mi,16Mi", *ranks_text = "2";
    const char *algorithm = "shm", *cluster = "cpu", *format = NULL;
    const sk_ask_option options[] = {{"--op", &op_list, false},
                                     {"--sizes", &size_list, false},
                                     {"-n", &ranks_text, false},
                                     {"--algorithm", &algorithm, false},
                                     {"--cluster", &cluster, false},
                                     {"-o", &format, false},
                                     {0}};
    int64_t sizes[MAX_SIZES], ranks = 0, wrong = 0;
    int n_sizes = 0, n_words = 0;
    sk_machine m;
    SK_TRY(sk_ask_words(a, argc, argv, options, NULL, 0, &n_words));
    SK_TRY(read_sizes(sk_strdup(a, size_list), sizes, &n_sizes));
    SK_TRY(read_ranks(ranks_text, &ranks));
    SK_TRY(sk_machine_read(a, cluster, &m));
    if (strcmp(algorithm, "shm"))
        return sk_fail(SK_EUSAGE, "command line: --algorithm %.40s is unknown; there is shm",
                       algorithm);
    sk_table t = {.arena = a, .head = coll_columns, .n_cols = COLL_COLS};
    char *list = sk_strdup(a, op_list);
    for (char *word; (word = next_word(&list));) {
        int op = 0;
        SK_TRY(find_op(word, &op));
        for (int i = 0; i < n_sizes; i++)
            SK_TRY(one_coll(&t, &m, op, sizes[i], (int)ranks, &wrong));
    }
    SK_TRY(sk_table_print(&t, format, stdout));
    if (wrong) return sk_fail(SK_EBUG, "%lld elements came out wrong", (long long)wrong);
    return SK_OK;
}

/* --- steps --- */

typedef struct bench {
    sk_job *job;
    const char *layouts[MAX_LAYOUTS];
    int n, steps;
    bool all; /* layouts were not named one by one: those that do not fit the model are passed over
               */
    sk_step_timing one; /* on one rank */
    sk_table *table;
} bench;

static const char *const step_columns[] = {"layout", "ranks",     "tok_s",       "ms",
                                           "mfu",    "mem_bytes", "exposed_pct", "loss_delta"};
enum { STEP_COLS = sizeof step_columns / sizeof *step_columns };

static sk_status fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                      int64_t step, bool validation, void *to)
{
    const sk_job *job = ctx;
    int64_t cols = box->n > 1 ? box->size[1] : 1, n = 0;
    uint64_t words = (uint64_t)(job->hyper.vocab_size > 0 ? job->hyper.vocab_size : 1);
    (void)validation;
    for (int64_t r = 0; r < box->size[0]; r++)
        for (int64_t c = 0; c < cols; c++, n++) {
            int64_t row = box->at[0] + r, col = box->n > 1 ? box->at[1] + c : 0;
            int64_t place = row * (job->seq + 1) + col + !strcmp(input, "targets");
            uint64_t x = sk_rng(7, (uint64_t)step, (uint64_t)place).a;
            if (!strcmp(input, "pos")) ((int32_t *)to)[n] = (int32_t)col;
            else if (type == SK_I32) ((int32_t *)to)[n] = (int32_t)(x % words);
            else if (!strcmp(input, "weights")) ((real *)to)[n] = 1;
            else ((real *)to)[n] = (real)((double)(x % 256) / 255);
        }
    return SK_OK;
}

typedef struct peak_job {
    double *flops; /* by rank, shared */
    int threads;
} peak_job;

static sk_status peak_rank(void *ctx, int rank)
{
    peak_job *j = ctx;
    j->flops[rank] = sk_host_peak(j->threads, 0.2);
    return SK_OK;
}

/* What all ranks reach at once in matrix products. */
static sk_status measure_peak(int ranks, int threads, double *sum)
{
    int64_t bytes[SK_MAX_RANKS];
    sk_heaps *h = NULL;
    *sum = 0;
    for (int r = 0; r < ranks; r++) bytes[r] = 4096;
    SK_TRY(sk_heaps_open(ranks, bytes, true, sizeof(double) * (size_t)ranks, &h));
    peak_job j = {sk_heaps_extra(h), threads};
    sk_status st = sk_crew_run(h, ranks, peak_rank, &j);
    for (int r = 0; r < ranks; r++) *sum += j.flops[r];
    sk_heaps_close(h);
    return st;
}

static double loss_delta(const bench *b, const sk_step_timing *t)
{
    double most = 0;
    for (int s = 0; s < t->n; s++) {
        double d = fabs(t->loss[s] - b->one.loss[s]) / fmax(fabs(b->one.loss[s]), 1e-9);
        if (!(d <= most)) most = d; /* a NaN shows */
    }
    return most;
}

static sk_status time_job(bench *b, sk_setup *s, sk_step_timing *out)
{
    const sk_job *job = b->job;
    sk_run_opts o = {
        .fill = fill, .fill_ctx = b->job, .seed = job->seed, .knobs = sk_setup_knobs(job)};
    return sk_time_steps((const sk_program *const *)s->programs, &o, job->lr, b->steps, out);
}

static void add_row(bench *b, const char *layout, const sk_setup *s, const sk_step_timing *t,
                    double peak)
{
    sk_arena *a = b->table->arena;
    int64_t most = 0;
    for (int r = 0; r < s->n_ranks; r++)
        if (s->programs[r]->heap_bytes > most) most = s->programs[r]->heap_bytes;
    const char *cells[STEP_COLS] = {
        sk_strdup(a, layout),
        sk_print(a, "%d", s->n_ranks),
        sk_print(a, "%.6g", t->tokens / t->seconds),
        sk_print(a, "%.4f", 1e3 * t->seconds),
        sk_print(a, "%.4g", peak > 0 ? s->flops / t->seconds / peak : 0),
        sk_print(a, "%lld", (long long)most),
        sk_print(a, "%.3g", 100 * t->waited),
        sk_print(a, "%.3g", loss_delta(b, t)),
    };
    sk_table_add(b->table, cells);
}

static sk_status one_layout(bench *b, sk_arena *tmp, const char *layout, bool reference)
{
    sk_setup *s = sk_new(tmp, sk_setup);
    sk_step_timing t;
    double peak = 0;
    snprintf(b->job->layout, sizeof b->job->layout, "%s", layout);
    b->job->ranks = 0;
    sk_status st = sk_setup_program(tmp, b->job, true, s);
    if (st == SK_ECONF && b->all && !reference) {
        fprintf(stderr, "skein: passed over \"%s\": %s\n", layout, sk_error_line());
        return SK_OK;
    }
    if (st) return sk_trail(st, SK_HERE);
    SK_TRY(time_job(b, s, &t));
    if (reference) {
        b->one = t;
        return SK_OK;
    }
    SK_TRY(measure_peak(s->n_ranks, s->threads, &peak));
    add_row(b, layout, s, &t, peak);
    return SK_OK;
}

static sk_status run_layout(bench *b, const char *layout, bool reference)
{
    sk_arena tmp = {0};
    sk_status st = one_layout(b, &tmp, layout, reference);
    sk_arena_end(&tmp);
    return st;
}

/* Every product of dp, tp and pp, and every level of sharding where there is something to shard. */
static void every_layout(bench *b, sk_arena *a, int ranks)
{
    b->all = true;
    for (int dp = ranks; dp >= 1; dp--)
        for (int tp = 1; ranks % dp == 0 && tp <= ranks / dp; tp++)
            for (int zero = 0; ranks / dp % tp == 0 && zero <= (dp > 1 ? 3 : 0); zero++) {
                if (b->n == MAX_LAYOUTS) return;
                sk_out o = {.arena = a};
                sk_out_add(&o, "dp=%d tp=%d pp=%d", dp, tp, ranks / dp / tp);
                if (zero) sk_out_add(&o, " zero=%d", zero);
                b->layouts[b->n++] = o.s;
            }
}

/* Takes the layouts out of the words: here the key may come again and again. */
static sk_status take_layouts(bench *b, int *argc, char **argv)
{
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        const char *text = NULL;
        if (!strncmp(argv[i], "--layout=", 9)) text = argv[i] + 9;
        else if (!strncmp(argv[i], "layout=", 7)) text = argv[i] + 7;
        else if (!strcmp(argv[i], "--layout")) {
            if (i + 1 == *argc) return sk_fail(SK_EUSAGE, "command line: --layout needs a value");
            text = argv[++i];
        }
        if (!text) argv[kept++] = argv[i];
        else if (b->n == MAX_LAYOUTS)
            return sk_fail(SK_EUSAGE, "command line: more than %d layouts", MAX_LAYOUTS);
        else b->layouts[b->n++] = text;
    }
    *argc = kept;
    return SK_OK;
}

static sk_status read_step(bench *b, sk_arena *a, int argc, char **argv, const char **format)
{
    static const sk_option options[] = {
        {"layouts", "all: every product of dp, tp, pp and zero for -n ranks", true},
        {"steps", "measured steps; 10 if not said", true},
        {"o", "csv, json or md instead of text", true},
        {0},
    };
    sk_conf_rest rest = {.options = options};
    int64_t steps = 10;
    SK_TRY(take_layouts(b, &argc, argv));
    SK_TRY(sk_ask_job(a, argc, argv, help, b->job, &rest));
    const char *text = sk_conf_option(&rest, "steps"), *which = sk_conf_option(&rest, "layouts");
    if (text && (!sk_read_int(text, &steps) || steps < 1 || steps > 200))
        return sk_fail(SK_EUSAGE, "command line: --steps is \"%s\"; 1 to 200 are needed", text);
    if (which && strcmp(which, "all"))
        return sk_fail(SK_EUSAGE, "command line: --layouts %s; all is needed", which);
    b->steps = (int)steps;
    b->job->val_every = 0;
    *format = sk_conf_option(&rest, "o");
    int ranks = b->job->ranks > 0 ? (int)b->job->ranks : 1;
    if (which) every_layout(b, a, ranks);
    if (!b->n)
        b->layouts[b->n++] =
            *b->job->layout ? sk_strdup(a, b->job->layout) : sk_print(a, "dp=%d", ranks);
    return SK_OK;
}

static sk_status run_step(sk_arena *a, int argc, char **argv)
{
    bench *b = sk_new(a, bench);
    sk_table t = {.arena = a, .head = step_columns, .n_cols = STEP_COLS};
    const char *format = NULL;
    b->job = sk_new(a, sk_job);
    b->table = &t;
    SK_TRY(read_step(b, a, argc, argv, &format));
    SK_TRY(run_layout(b, "dp=1", true));
    for (int i = 0; i < b->n; i++) SK_TRY(run_layout(b, b->layouts[i], false));
    return sk_table_print(&t, format, stdout);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    if (argc && !strcmp(argv[0], "coll")) return run_coll(a, argc - 1, argv + 1);
    if (argc && !strcmp(argv[0], "step")) return run_step(a, argc - 1, argv + 1);
    return sk_fail(SK_EUSAGE, "bench what? there are coll and step: skein bench --help");
}

const sk_cmd sk_cmd_bench = {.name = "bench",
                             .doc = "time collectives and training steps on this host",
                             .help = help,
                             .run = run};
