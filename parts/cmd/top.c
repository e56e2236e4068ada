/* top.c - `skein top`: the state of a running job, even of one that hangs.
 *
 * Reads the control block of the job (comm/control_block.h) through /proc, mapped read only: the
 * job does not notice.  Two samples LOOK_S apart make a frame: ranks that changed in
 * between are alive.  A frame ends with a diagnosis that names the rank that all others
 * wait for (comm/hang_diagnosis.h).  Instructions get their text by compiling the run's
 * config.yaml again; if the hash of that program is not the one in the control block,
 * only their numbers are shown. */
#include "base/clock.h"
#include "base/file_io.h"
#include "base/proc.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "comm/hang_diagnosis.h"
#include "device/nvml.h"
#include "run/flight.h"
#include "train/relayout.h"
#include "train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_S  0.3
#define STUCK_S 2.0 /* nothing moved for so long: stuck */

enum { STARTING, READY, RUNNING, DONE, FAILED, N_STATES };
static const char *const states[N_STATES + 1] = {"starting", "ready",  "running",
                                                 "done",     "failed", "?"};

typedef struct seen { /* a rank at one look */
    long long pid, step, pc, waits_for, beat;
    int state;
    char process;
    double since; /* seconds at its instruction */
} seen;

typedef struct frame {
    sk_arena *arena;
    sk_heaps *heaps;
    sk_setup *setup; /* NULL: the programs are not known */
    uint64_t *hash;  /* of the programs of each phase */
    int n;
    seen *was, *is;
    double dt;
} frame;

/* --- looking --- */

static void look(const sk_heaps *h, int n, seen *to)
{
    double now = sk_now();
    for (int r = 0; r < n; r++) {
        const sk_rank_state *l = sk_heaps_rank_state(h, r);
        double newest = sk_flight_newest(l);
        int state = atomic_load(&l->state);
        to[r] = (seen){.pid = atomic_load(&l->pid),
                       .step = atomic_load(&l->step),
                       .pc = atomic_load(&l->pc),
                       .waits_for = atomic_load(&l->waits_for),
                       .beat = atomic_load(&l->heartbeat),
                       .state = state >= 0 && state < N_STATES ? state : N_STATES,
                       .process = sk_process_state(l),
                       .since = newest > 0 && newest < now ? now - newest : 0};
    }
}

static void take(frame *f, double seconds)
{
    f->was = sk_many(f->arena, seen, f->n);
    f->is = sk_many(f->arena, seen, f->n);
    double start = sk_now();
    look(f->heaps, f->n, f->was);
    usleep((useconds_t)(seconds * 1e6));
    look(f->heaps, f->n, f->is);
    f->dt = sk_now() - start;
}

static bool over(char process) { return process == 'X' || process == 'Z'; }
static bool moved(const frame *f, int r) { return f->is[r].beat != f->was[r].beat; }

/* The run directory as the job means it: its label may be relative to where it was started. */
static const char *run_dir(sk_arena *a, const sk_heaps *heaps)
{
    char path[PATH_MAX];
    sk_control_block_info b = sk_control_block_info_of(heaps);
    if (!*b.label) return "";
    const char *dir = *b.label == '/' ? b.label : sk_print(a, "/proc/%d/cwd/%s", b.pid, b.label);
    return sk_strdup(a, realpath(dir, path) ? path : b.label);
}

/* The job's own config, compiled as it was.  Best effort: NULL if anything is missing. */
static sk_setup *compile(sk_arena *a, const sk_heaps *heaps)
{
    char *config = sk_print(a, "%s/config.yaml", run_dir(a, heaps));
    sk_job *job = sk_new(a, sk_job);
    sk_setup *s = sk_new(a, sk_setup);
    if (config[0] != '/' || !sk_is_file(config)) return NULL;
    if (sk_conf_load(a, 1, &config, job, NULL) || sk_setup_program(a, job, false, s)) {
        sk_error_set("");
        return NULL;
    }
    return s->n_ranks == sk_control_block_info_of(heaps).n_ranks ? s : NULL;
}

static int n_phases(const sk_setup *s) { return s->relayout ? s->relayout->n : 1; }

/* The phase whose program a rank has opened; -1: not known. */
static int phase_of(const frame *f, int rank)
{
    uint64_t theirs = atomic_load(&sk_heaps_rank_state(f->heaps, rank)->hash);
    if (!f->setup) return -1;
    int by_step = sk_relayout_at(f->setup, f->is ? f->is[rank].step : 0);
    if (f->hash[by_step] == theirs) return by_step; /* a layout may come back */
    for (int i = 0; i < n_phases(f->setup); i++)
        if (f->hash[i] == theirs) return i;
    return -1;
}

static const sk_program *program_of(const frame *f, int rank)
{
    sk_setup *s = f->setup;
    int phase = phase_of(f, rank);
    if (phase < 0) return NULL;
    if (phase > 0) return sk_relayout_setup(s, phase)->programs[rank];
    if (!s->programs[rank] && sk_setup_compile(s, rank, &s->programs[rank])) {
        sk_error_set("");
        return NULL;
    }
    return s->programs[rank];
}

/* --- the verdict --- */

/* The rank that holds up the others: dead or stopped first, else the one most others wait for. */
static int culprit(const frame *f)
{
    int best = -1, most = 0, *votes = sk_many(f->arena, int, f->n);
    for (int r = 0; r < f->n; r++) {
        char p = f->is[r].process;
        if (p == 'T' || p == 't' || (over(p) && f->is[r].state != DONE)) return r;
        sk_hang b = sk_hang_find(f->heaps, r);
        if (b.n > 1 && !b.cycle) votes[b.rank]++;
    }
    for (int r = 0; r < f->n; r++)
        if (votes[r] > most) most = votes[best = r];
    return best;
}

/* "; ranks 0, 1, 3 wait for it since 12 s" */
static void victims(const frame *f, int root, sk_out *o)
{
    int n = 0;
    double longest = 0;
    sk_out who = {.arena = f->arena};
    for (int r = 0; r < f->n; r++) {
        sk_hang b = sk_hang_find(f->heaps, r);
        if (r == root || b.cycle || b.rank != root) continue;
        sk_out_add(&who, "%s%d", n++ ? ", " : "", r);
        longest = fmax(longest, f->is[r].since);
    }
    if (n)
        sk_out_add(o, "; rank%s %s wait%s for it since %.3g s", n > 1 ? "s" : "", who.s,
                   n > 1 ? "" : "s", longest);
}

static void blame(const frame *f, int root, sk_out *o)
{
    const seen *s = &f->is[root];
    sk_out_add(o, "stuck: rank %d is %s", root, sk_process_state_name(s->process));
    if (s->process == 'T') sk_out_add(o, " (kill -CONT %lld)", s->pid);
    sk_out_add(o, " %s", sk_flight_place(NULL, sk_heaps_rank_state(f->heaps, root), f->arena));
    if (!over(s->process) && s->since > 0) sk_out_add(o, " since %.3g s", s->since);
    victims(f, root, o);
}

static void rate(const frame *f, sk_out *o)
{
    const seen *a = &f->was[0], *b = &f->is[0];
    const sk_program *p = program_of(f, 0);
    double beats = (double)(b->beat - a->beat) / f->dt;
    double steps = (double)(b->step - a->step) / f->dt;
    if (p && p->n_train > 0) steps = beats / p->n_train; /* finer than whole steps */
    if (steps > 0) sk_out_add(o, "running, step %lld, %.3g steps/s", b->step + 1, steps);
    else sk_out_add(o, "running, step %lld, %.3g instructions/s", b->step + 1, beats);
}

static int count_state(const frame *f, int state)
{
    int n = 0;
    for (int r = 0; r < f->n; r++) n += f->is[r].state == state;
    return n;
}

static bool ended(const frame *f)
{
    for (int r = 0; r < f->n; r++)
        if (f->is[r].pid > 0 && !over(f->is[r].process)) return false;
    return f->is[0].pid > 0;
}

static const char *verdict(const frame *f)
{
    sk_out o = {.arena = f->arena};
    const char *report = NULL;
    int root = culprit(f), moving = 0;
    double still = INFINITY; /* the rank that moved last did so then */
    for (int r = 0; r < f->n; r++) {
        moving += moved(f, r);
        if (f->is[r].since > 0) still = fmin(still, f->is[r].since);
    }
    bool bad = root >= 0 && strchr("TtXZ", f->is[root].process);
    if (sk_heaps_aborted(f->heaps, NULL, NULL, &report))
        sk_out_add(&o, "failed: %.*s", (int)strcspn(report, "\n"), report);
    else if (count_state(f, DONE) == f->n) sk_out_add(&o, "done");
    else if (ended(f)) sk_out_add(&o, "all ranks have ended");
    else if (bad || (root >= 0 && !moving && still > STUCK_S && isfinite(still)))
        blame(f, root, &o);
    else if (moving) rate(f, &o);
    else if (count_state(f, STARTING) + count_state(f, READY) > 0) sk_out_add(&o, "starting");
    else sk_out_add(&o, "nothing moved for %.3g s", isfinite(still) ? still : f->dt);
    return o.s;
}

/* --- showing --- */

static const char *number(const frame *f, long long x, long long none)
{
    return x == none ? "-" : sk_print(f->arena, "%lld", x);
}

/* The text of an instruction without its number. */
static const char *inst_text(const frame *f, int rank, bool whole)
{
    const char *text = sk_flight_inst(program_of(f, rank), f->is[rank].pc, f->arena);
    if (!text || f->is[rank].step < 0) return "";
    text += strspn(text, "0123456789");
    text += strspn(text, " ");
    return whole ? text : sk_print(f->arena, "%.60s", text);
}

static sk_status show_ranks(const frame *f, const char *format)
{
    static const char *const head[] = {"rank", "pid",       "state", "process", "step",
                                       "inst", "waits for", "since", "beats/s", "what"};
    sk_table t = {.arena = f->arena, .head = head, .n_cols = sizeof head / sizeof *head};
    for (int r = 0; r < f->n; r++) {
        const seen *s = &f->is[r];
        double beats = (double)(s->beat - f->was[r].beat) / f->dt;
        const char *cells[] = {sk_print(f->arena, "%d", r),
                               number(f, s->pid, 0),
                               states[s->state],
                               over(s->process) ? "dead" : sk_print(f->arena, "%c", s->process),
                               number(f, s->step < 0 ? -1 : s->step + 1, -1),
                               number(f, s->step < 0 ? -1 : s->pc, -1),
                               number(f, s->waits_for, -1),
                               sk_print(f->arena, "%.2f", s->since),
                               sk_print(f->arena, "%.0f", beats),
                               inst_text(f, r, format != NULL)};
        sk_table_add(&t, cells);
    }
    return sk_table_print(&t, format, stdout);
}

/* The layout at work, which train.relayout may have changed. */
static void show_layout(const frame *f)
{
    int phase = phase_of(f, 0);
    if (phase < 0) return;
    const sk_setup *s = f->setup;
    printf("layout %s", sk_layout_short(f->arena, &sk_relayout_setup(s, phase)->layout));
    if (s->relayout)
        printf(" · phase %d of %d, from step %lld", phase + 1, s->relayout->n,
               (long long)s->relayout->v[phase].from);
    printf("\n");
}

/* As nvidia-smi says it; of a job that is on them. */
static void show_gpus(const frame *f)
{
    sk_nvml g;
    if (!f->setup || strncmp(f->setup->job->device, "cuda", 4)) return;
    for (int i = 0; i < sk_nvml_count(); i++) {
        if (!sk_nvml_at(i, &g)) continue;
        printf("gpu %d %s · %s of %s", i, g.model, sk_bytes(f->arena, g.used),
               sk_bytes(f->arena, g.bytes));
        if (g.busy >= 0) printf(" · %d %% busy", g.busy);
        if (g.watts > 0) printf(" · %.0f W", g.watts);
        if (g.celsius > 0) printf(" · %d °C", g.celsius);
        printf("\n");
    }
}

static sk_status show(frame *f, const char *format)
{
    const char *dir = run_dir(f->arena, f->heaps);
    if (!format) {
        printf("job %d · %d rank%s · %s\n", sk_control_block_info_of(f->heaps).pid, f->n,
               sk_plural(f->n), *dir ? dir : "no run directory");
        show_layout(f);
        show_gpus(f);
    }
    SK_TRY(show_ranks(f, format));
    if (!format) printf("%s\n", verdict(f));
    return SK_OK;
}

/* Frame after frame on a terminal, until the job is over.  What a frame says dies with it; programs
 * that were compiled for it stay. */
static sk_status watch(frame *f, const char *format, bool once)
{
    for (double seconds = LOOK_S;; seconds = 1) {
        sk_arena tmp = {0};
        f->arena = &tmp;
        take(f, seconds);
        if (!once) fputs(sk_proc_colour(STDOUT_FILENO) ? "\033[H\033[J" : "\n", stdout);
        sk_status st = show(f, format);
        bool end = once || ended(f);
        fflush(stdout);
        sk_arena_end(&tmp);
        if (st || end) return st;
    }
}

/* --- which job --- */

static frame open_frame(sk_arena *a, sk_heaps *heaps)
{
    frame f = {.arena = a, .heaps = heaps, .n = sk_control_block_info_of(heaps).n_ranks};
    f.setup = compile(a, heaps);
    if (!f.setup) return f;
    f.hash = sk_many(a, uint64_t, n_phases(f.setup));
    for (int i = 0; i < n_phases(f.setup); i++)
        f.hash[i] = sk_program_hash(sk_setup_program_of(sk_relayout_setup(f.setup, i), 0));
    return f;
}

static sk_status show_jobs(sk_arena *a, const int *pids, int n, const char *format)
{
    static const char *const head[] = {"job", "ranks", "seconds", "run", "verdict"};
    sk_table t = {.arena = a, .head = head, .n_cols = 5};
    for (int i = 0; i < n; i++) {
        sk_heaps *h;
        if (sk_control_block_open(pids[i], &h)) continue; /* it ended while we looked */
        sk_control_block_info b = sk_control_block_info_of(h);
        frame f = open_frame(a, h);
        take(&f, LOOK_S / n);
        const char *cells[] = {sk_print(a, "%d", pids[i]), sk_print(a, "%d", b.n_ranks),
                               sk_print(a, "%.0f", (double)time(NULL) - b.started), run_dir(a, h),
                               verdict(&f)};
        sk_table_add(&t, cells);
        sk_heaps_close(h);
    }
    sk_error_set("");
    return sk_table_print(&t, format, stdout);
}

/* A run directory: the newest job that trains there. */
static int find_run(sk_arena *a, const char *dir, const int *pids, int n)
{
    char path[PATH_MAX];
    int best = 0;
    double newest = 0;
    for (int i = 0; i < n; i++) {
        sk_heaps *h;
        if (sk_control_block_open(pids[i], &h)) continue;
        sk_control_block_info b = sk_control_block_info_of(h);
        bool there = !dir || (realpath(dir, path) && !strcmp(path, run_dir(a, h)));
        if (there && b.started > newest) newest = b.started, best = pids[i];
        sk_heaps_close(h);
    }
    sk_error_set("");
    return best;
}

static sk_status find_job(sk_arena *a, const char *word, int *pid)
{
    int *pids, n = sk_control_block_jobs(a, &pids);
    int64_t number = 0;
    if (word && !sk_is_dir(word) && sk_read_int(word, &number) && number > 0 && number < INT_MAX) {
        *pid = (int)number;
        return SK_OK;
    }
    *pid = find_run(a, word, pids, n);
    if (*pid) return SK_OK;
    if (!word) return sk_fail(SK_EUSAGE, "top: no job of skein runs on this host");
    return sk_fail(SK_EUSAGE, "top: no job trains in %s now; %d job%s on this host", word, n,
                   sk_plural(n));
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    const char *words[1], *format = NULL, *once = NULL;
    const sk_argv_option options[] = {{"-o", &format, false}, {"--once", &once, true}, {0}};
    int n = 0, pid = 0, *pids;
    sk_heaps *heaps;
    SK_TRY(sk_argv_words(a, argc, argv, options, words, 1, &n));
    if (format && !strcmp(format, "text")) format = NULL;
    SK_TRY(find_job(a, n ? words[0] : NULL, &pid));
    int jobs = n ? 0 : sk_control_block_jobs(a, &pids);
    if (jobs > 1) return show_jobs(a, pids, jobs, format);
    SK_TRY(sk_control_block_open(pid, &heaps));
    frame f = open_frame(a, heaps);
    sk_status st = watch(&f, format, once || format || !sk_proc_screen(STDOUT_FILENO));
    sk_heaps_close(heaps);
    return st;
}

const sk_cmd sk_cmd_top = {
    .name = "top",
    .doc = "the state of a running job: every rank, and which one the others wait for",
    .help = "usage: skein top [PID | RUNDIR] [--once] [-o csv|json|md|text]\n\n"
            "PID is any process of the job.  Without an argument the job of this host, or a table "
            "of the\njobs if there are several.  On a terminal it is refreshed every second until "
            "the job ends;\n--once, a pipe or -o: once.  The job is not disturbed, even if it "
            "hangs.  `since`: seconds at\nthis instruction; `process`: R runs, S sleeps, T is "
            "stopped, D waits for a disk.  Of a job\nwith device=cuda the GPUs of this host are "
            "shown too.\n    skein top runs/last --once\n",
    .run = run,
};
