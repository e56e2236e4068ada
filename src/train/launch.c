/* launch.c - a whole training run on this host. */
#include "train/launch.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/proc.h"
#include "base/strings.h"
#include "comm/control_block.h"
#include "device/blas_setup.h"
#include "program/alike.h"
#include "run/flight.h"
#include "train/fits.h"
#include "train/idle.h"
#include "train/relayout.h"
#include "train/console.h"
#include "train/rundir.h"
#include "train/sampler.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 50, SAMPLE_TOKENS = 72, LOG_TAIL = 600 };
#define GRACE_S 0.7  /* from a failure to the end of patience with the other ranks */
#define CHECK_S 0.05 /* of a tick, for ids that were not checked yet */

typedef struct seat { /* a rank */
    struct launcher *l;
    int rank;
    pid_t pid;
    int fd; /* readable when the process is over; -1 if the kernel is too old */
    pthread_t thread;
    atomic_bool left; /* the thread is over */
    bool alive;
    sk_status code;
} seat;

typedef struct launcher {
    sk_arena *arena;
    const sk_job *job;
    const sk_launch_opts *o;
    sk_boot *boot;   /* NULL: all ranks are mine */
    bool as_threads; /* ranks are threads of this process */
    sk_setup setup;
    sk_training t;
    sk_console console;
    seat *seats;            /* by rank */
    struct pollfd *endings; /* by rank: for nap() */
    int alive;
    int phase;       /* of the newest step that was heard of: train/relayout.h */
    double patience; /* until then the others may leave by themselves; 0: nothing happened */
    bool keeps;      /* memory.csv is written anew */
    bool due;        /* config.yaml and memory.csv are: the checkpoint has not been read so far */
    bool told_gpu;   /* it has what is known of the GPU */
    bool stopped;    /* a rank left because it was asked to */
    bool killed;     /* a rank was ended by a signal that is not ours */
    int fruitless;   /* beginnings without a newer checkpoint */
    sk_sampler *sampler;
    char sampling[PATH_MAX]; /* the directory it reads, removed afterwards */
    sk_arena words;          /* what it said so far */
    sk_out said;
    sk_utf8_filter clean;
    int to_say;
    char final[PATH_MAX];
} launcher;

/* --- signals --- */

static sk_heaps *asked_heaps;
static volatile sig_atomic_t asked, asked_by;

/* `timeout` and some shells send a signal to the process and to its group: what comes within half a
 * second of another is the same wish. */
static void on_signal(int sig)
{
    static double last;
    double now = sk_now();
    if (asked && now - last < 0.5) return;
    last = now;
    asked++;
    asked_by = sig;
    if (asked_heaps) sk_heaps_ask_stop(asked_heaps);
}

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { N_SIGNALS = sizeof stop_signals / sizeof *stop_signals };
/* A console that is gone does not end training; a file at its limit (ulimit -f) is an error that
 * the write returns. */
static const int deaf_to[] = {SIGPIPE, SIGXFSZ};
enum { N_DEAF = sizeof deaf_to / sizeof *deaf_to };

static void catch_signals(sk_heaps *h, struct sigaction *before)
{
    struct sigaction s = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    asked = 0;
    asked_heaps = h;
    for (int i = 0; i < N_SIGNALS; i++) sigaction(stop_signals[i], &s, &before[i]);
}

static void give_signals_back(const struct sigaction *before)
{
    for (int i = 0; i < N_SIGNALS; i++) sigaction(stop_signals[i], &before[i], NULL);
    asked_heaps = NULL;
}

/* --- who does what --- */

/* Does this process speak for the run: console, directory, records? */
static bool leads(const launcher *l) { return !l->boot || l->boot->rank == 0; }
/* Is that rank started here?  Under another launcher a process is one rank. */
static bool is_mine(const launcher *l, int rank) { return !l->boot || l->boot->rank == rank; }

/* --- a rank --- */

static void log_path(const launcher *l, int rank, char to[PATH_MAX])
{
    snprintf(to, PATH_MAX, "%.*s/rank%d.log", PATH_MAX - 64, l->t.dir, rank);
}

/* Standard error to the rank's log; nothing to read, nobody to print to. */
static void own_streams(int log)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, 0);
        dup2(null, 1);
    }
    dup2(log, 2);
}

static _Noreturn void be_process(launcher *l, int rank, pid_t parent, int log)
{
    struct rlimit none = {0, 0}; /* a core file would hold the weights */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(SK_EPEER);
    for (int i = 0; i < N_SIGNALS; i++) signal(stop_signals[i], SIG_IGN);
    setrlimit(RLIMIT_CORE, &none);
    own_streams(log);
    _exit((int)sk_loop_rank(&l->t, rank));
}

static void *be_thread(void *arg)
{
    seat *s = arg;
    s->code = sk_loop_rank(&s->l->t, s->rank);
    atomic_store(&s->left, true);
    return NULL;
}

/* What is at its limit, the kernel does not say. */
static sk_status cannot_start(const launcher *l, int rank, int err)
{
    struct rlimit most = {0};
    getrlimit(RLIMIT_NPROC, &most);
    long long user = most.rlim_cur < INT64_MAX ? (long long)most.rlim_cur : INT64_MAX;
    return sk_fail(SK_EIO,
                   "cannot start rank %d of %d: %s; %d %s are needed, a user may have %lld of both "
                   "kinds (ulimit -u), this host %lld (kernel.threads-max), and a control group "
                   "may have fewer (pids.max)",
                   rank, l->setup.n_ranks, strerror(err), l->setup.n_ranks,
                   l->as_threads ? "threads" : "processes", user,
                   (long long)sk_proc_number("/proc/sys/kernel/threads-max", "", 1));
}

static sk_status start_process(launcher *l, seat *s)
{
    char path[PATH_MAX];
    pid_t parent = getpid();
    int log = -1;
    log_path(l, s->rank, path);
    SK_TRY(sk_file_own(path, O_TRUNC | O_APPEND, &log));
    s->pid = fork();
    if (!s->pid) be_process(l, s->rank, parent, log);
    int err = errno;
    close(log);
    if (s->pid < 0) return cannot_start(l, s->rank, err);
    s->fd = (int)syscall(SYS_pidfd_open, s->pid, 0);
    atomic_store(&sk_heaps_rank_state(l->t.heaps, s->rank)->pid, (long long)s->pid);
    return SK_OK;
}

static sk_status start_one(launcher *l, int rank)
{
    seat *s = &l->seats[rank];
    *s = (seat){.l = l, .rank = rank, .fd = -1};
    if (l->as_threads) {
        int err = pthread_create(&s->thread, NULL, be_thread, s);
        if (err) return cannot_start(l, rank, err);
    } else SK_TRY(start_process(l, s));
    s->alive = true;
    l->alive++;
    return SK_OK;
}

static void kill_all(launcher *l)
{
    for (int r = 0; r < l->setup.n_ranks; r++)
        if (l->seats[r].alive && l->seats[r].pid > 0) kill(l->seats[r].pid, SIGKILL);
}

static sk_status start_ranks(launcher *l)
{
    fflush(NULL); /* or every rank would print it again */
    for (int r = 0; r < l->setup.n_ranks; r++) {
        sk_status st = is_mine(l, r) ? start_one(l, r) : SK_OK;
        if (!st) continue;
        sk_heaps_abort(l->t.heaps, st, r, sk_error_line());
        return sk_trail(st, SK_HERE);
    }
    return SK_OK;
}

/* --- a rank that is over --- */

/* The last five lines of a log; "" if it is empty. */
static const char *last_words(sk_arena *a, const char *path)
{
    sk_text t;
    int lines = 0;
    if (!sk_is_file(path) || sk_file_read(a, path, &t) || !t.n) return "";
    const char *end = t.s + t.n - (t.s[t.n - 1] == '\n'), *p = end;
    while (p > t.s && end - p < LOG_TAIL && !(p[-1] == '\n' && ++lines == 5)) p--;
    return sk_print(a, "\n%.*s", (int)(end - p), p);
}

/* The program that a rank is in, by its line; its newest instructions are of that one. */
static const sk_program *program_of(const launcher *l, int rank, sk_arena *a)
{
    long long step = atomic_load(&sk_heaps_rank_state(l->t.heaps, rank)->step);
    int phase = sk_relayout_at(&l->setup, step < 0 ? l->t.step : step);
    if (atomic_load(&l->t.tally->roomy[rank])) return l->setup.roomy->programs[rank];
    return sk_program_as(a, sk_relayout_setup(&l->setup, phase)->programs[rank], rank);
}

/* It went without a word of its own: tell its story for it. */
static void tell_for(launcher *l, int rank, const char *how, const char *hint)
{
    char path[PATH_MAX];
    const sk_rank_state *line = sk_heaps_rank_state(l->t.heaps, rank);
    log_path(l, rank, path);
    const char *story = sk_print(l->arena, "rank %d %s %s%s; its log: %s%s", rank, how,
                                 sk_flight_place(program_of(l, rank, l->arena), line, l->arena),
                                 hint, path, last_words(l->arena, path));
    sk_heaps_abort(l->t.heaps, SK_EPEER, rank, story);
}

static void judge(launcher *l, seat *s, int wait_status)
{
    if (WIFSIGNALED(wait_status)) {
        int sig = WTERMSIG(wait_status);
        const char *hint = "";
        s->code = SK_EPEER;
        if (l->patience <= 0 && !asked) l->killed = true;
        if (sig == SIGKILL && l->patience <= 0)
            hint = sk_print(l->arena,
                            " (if nobody killed it, the kernel ran out of memory; planned are %s)",
                            sk_fits_kinds(l->arena, l->setup.programs[s->rank]));
        tell_for(l, s->rank, sk_print(l->arena, "died: signal %d (%s)", sig, strsignal(sig)), hint);
        return;
    }
    s->code = (sk_status)WEXITSTATUS(wait_status);
    if (s->code && s->code != SK_ESTOP)
        tell_for(l, s->rank, sk_print(l->arena, "ended with code %d", (int)s->code), "");
}

static void reap(launcher *l)
{
    for (int r = 0; r < l->setup.n_ranks; r++) {
        seat *s = &l->seats[r];
        int wait_status = 0;
        if (!s->alive) continue;
        if (l->as_threads) {
            if (!atomic_load(&s->left)) continue;
            pthread_join(s->thread, NULL);
        } else if (waitpid(s->pid, &wait_status, WNOHANG) != s->pid) continue;
        else judge(l, s, wait_status);
        if (s->fd >= 0) close(s->fd);
        s->alive = false;
        l->alive--;
        if (s->code == SK_ESTOP) l->stopped = true;
    }
}

/* --- samples --- */

static void warn(launcher *l, const char *text)
{
    sk_record r = {.kind = SK_REC_WARN};
    snprintf(r.text, sizeof r.text, "%s", text);
    sk_console_record(&l->console, &r);
}

static void end_sample(launcher *l)
{
    if (!l->sampler) return;
    sk_utf8_filter_end(&l->clean, &l->said);
    sk_console_sample(&l->console, l->job->sample_prompt, l->said.s ? l->said.s : "");
    sk_sampler_close(l->sampler);
    l->sampler = NULL;
    if (*l->sampling) sk_rundir_remove(l->sampling);
    sk_arena_end(&l->words);
}

/* A few tokens, so that the launcher never looks away for long. */
static void sample_some(launcher *l, int n)
{
    while (l->sampler && n--) {
        const char *bytes;
        size_t len;
        if (l->to_say-- <= 0 || sk_sampler_next(l->sampler, &bytes, &len)) {
            end_sample(l);
            return;
        }
        if (!bytes) l->to_say = 0; /* the text has ended */
        sk_utf8_filter_put(&l->clean, &l->said, bytes, len);
    }
}

static void begin_sample(launcher *l, const char *dir, bool remove)
{
    sk_sampler_opts o = {.prompt = l->job->sample_prompt, .temp = 0.8, .seed = l->job->seed};
    sample_some(l, SAMPLE_TOKENS + 1); /* one that is not finished */
    l->words = (sk_arena){0};
    l->said = (sk_out){.arena = &l->words};
    l->clean = (sk_utf8_filter){.one_line = true};
    l->to_say = SAMPLE_TOKENS;
    snprintf(l->sampling, sizeof l->sampling, "%s", remove ? dir : "");
    if (sk_sampler_open(dir, &o, &l->sampler))
        warn(l, sk_print(l->arena, "no sample: %s", sk_error_line()));
}

/* --- watching --- */

/* The text of config.yaml, which checkpoints have as well.  steps: what train.time has become; from
 * now on that is the job, also when it is resumed. */
static void make_config(launcher *l, int64_t steps)
{
    sk_job *job = sk_new(l->arena, sk_job);
    *job = *l->job;
    snprintf(job->run, sizeof job->run, "%s", l->t.dir);
    job->resume[0] = 0;
    job->data_changed = 0; /* said for this time */
    job->ranks = l->setup.n_ranks;
    if (steps) {
        job->steps = steps;
        job->time_limit = 0;
    }
    l->t.config = l->o->config ? l->o->config(l->arena, job) : "";
}

static void warn_lines(launcher *l, const char *text) /* NULL: none */
{
    for (size_t n; text && *text; text += n + (text[n] != 0)) {
        n = strcspn(text, "\n");
        if (n) warn(l, sk_print(l->arena, "%.*s", (int)n, text));
    }
}

static sk_status write_steps(launcher *l, int64_t steps)
{
    warn_lines(l, sk_idle_steps(l->arena, &l->setup, steps));
    make_config(l, steps);
    return sk_rundir_config(&l->t, l->t.config);
}

/* Before the row of the first step under a new layout. */
static void tell_phase(launcher *l, int64_t step)
{
    int phase = sk_relayout_at(&l->setup, step - 1);
    if (phase == l->phase) return;
    l->phase = phase;
    sk_console_clear(&l->console);
    fprintf(l->o->to, "%-10s%s\n", "layout", sk_relayout_line(l->arena, &l->setup, phase));
    fflush(l->o->to);
}

static sk_status write_memory(launcher *l);

/* The ranks have read what they go on from: now config.yaml is that of this job.  Until then it
 * stays as it was, or a resume that is refused would spoil the next one. */
static void settle(launcher *l)
{
    if (!l->due) return;
    l->due = false;
    if (sk_rundir_config(&l->t, l->t.config)) {
        warn(l, sk_print(l->arena, "config.yaml stays as it was: %s", sk_error_line()));
        return;
    }
    l->keeps = true;
    if (write_memory(l)) warn(l, sk_error_line());
}

/* Records that only ranks with their weights send. */
static bool is_under_way(const sk_record *r)
{
    return r->kind != SK_REC_WARN && r->kind != SK_REC_DEVICE;
}

static void tell_gpu(launcher *l)
{
    if (!l->keeps || l->told_gpu || !atomic_load(&l->t.desk->gpu.pool)) return;
    l->told_gpu = true;
    if (write_memory(l)) warn(l, sk_error_line());
}

static void read_records(launcher *l)
{
    sk_record r;
    while (sk_channel_take(l->t.desk, &r)) {
        if (is_under_way(&r)) settle(l);
        tell_gpu(l);
        if (r.kind == SK_REC_STEP) tell_phase(l, r.step);
        sk_console_record(&l->console, &r);
        if (r.kind == SK_REC_STEPS && write_steps(l, r.step)) warn(l, sk_error_line());
        if (r.kind == SK_REC_SAMPLE) begin_sample(l, r.text, true);
        if (r.kind == SK_REC_FINAL) snprintf(l->final, sizeof l->final, "%s", r.text);
    }
}

static void nap(launcher *l)
{
    for (int r = 0; r < l->setup.n_ranks; r++)
        l->endings[r] =
            (struct pollfd){.fd = l->seats[r].alive ? l->seats[r].fd : -1, .events = POLLIN};
    poll(l->endings, (nfds_t)l->setup.n_ranks, l->sampler ? 0 : TICK_MS);
}

/* The rest of the ids: a bad one ends the run in its first minutes, not when its window comes. */
static void check_ids(launcher *l)
{
    if (sk_heaps_aborted(l->t.heaps, NULL, NULL, NULL)) return;
    sk_status st = sk_setup_check_more(&l->setup, CHECK_S);
    if (st) sk_heaps_abort(l->t.heaps, st, 0, sk_error_line());
}

static void watch(launcher *l)
{
    while (l->alive) {
        nap(l);
        reap(l);
        if (leads(l)) read_records(l);
        sample_some(l, 4);
        if (leads(l)) check_ids(l);
        if (l->patience <= 0 && sk_heaps_aborted(l->t.heaps, NULL, NULL, NULL))
            l->patience = sk_now() + GRACE_S;
        if (asked > 1 || (l->patience > 0 && sk_now() > l->patience)) {
            kill_all(l);
            if (l->boot && l->alive) return; /* a thread cannot be killed: the process ends */
        }
        if (leads(l)) sk_console_tick(&l->console);
    }
    if (leads(l)) read_records(l);
}

/* --- the whole --- */

static sk_status open_heaps(launcher *l)
{
    int n = l->setup.n_ranks;
    int64_t *bytes = sk_many(l->arena, int64_t, n);
    /* shared memory beside the heaps */
    size_t tally = (sizeof(sk_channel) + 63) / 64 * 64;
    size_t extra = tally + sizeof(sk_fallback_stats) + (size_t)n * sizeof(atomic_int);
    sk_heap_aliases twins =
        sk_program_twins(l->arena, (const sk_program *const *)l->setup.programs, n, bytes);
    if (l->boot) SK_TRY(sk_boot_heaps(l->boot, bytes, twins, extra, &l->t.heaps));
    else SK_TRY(sk_heaps_open_aliased(n, bytes, twins, !l->as_threads, extra, &l->t.heaps));
    sk_heaps_label(l->t.heaps, l->t.dir);
    char *at = sk_heaps_extra(l->t.heaps);
    l->t.desk = (sk_channel *)(void *)at;
    l->t.tally = (sk_fallback_stats *)(void *)(at + tally);
    return SK_OK;
}

/* Known after the first step: the pool, and what is not of the plan. */
static void memory_of_gpu(const launcher *l, sk_out *o)
{
    const sk_channel *d = l->t.desk;
    if (!atomic_load(&d->gpu.pool)) return;
    sk_out_add(o, "0,gpu_pool,0,%lld\n0,gpu_before,0,%lld\n0,gpu_since,0,%lld\n",
               (long long)atomic_load(&d->gpu.pool), (long long)d->gpu.before,
               (long long)d->gpu.since);
}

/* memory.csv: where each kind lies in each rank's heap, as it was mapped.  `skein plan` says the
 * same numbers beforehand.  What a twin keeps is told in its lines. */
static sk_status write_memory(launcher *l)
{
    sk_out o = {.arena = l->arena};
    sk_out_add(&o, "rank,kind,at,bytes\n");
    for (int r = 0; r < l->setup.n_ranks; r++) {
        const sk_program *p = l->setup.programs[r];
        for (int k = 0; k < SK_N_KINDS; k++)
            sk_out_add(&o, "%d,%s,%lld,%lld\n", r, sk_kind_names[k], (long long)p->kind_at[k],
                       (long long)p->kind_bytes[k]);
        sk_out_add(&o, "%d,file,0,%lld\n", r, (long long)p->file_bytes);
        int64_t own = sk_heap_own(l->t.heaps, r), at = sk_heap_bytes(l->t.heaps, r) - own;
        if (sk_heap_base(l->t.heaps, r)) /* on another host nobody here has seen it */
            sk_out_add(&o, "%d,mapped,%lld,%lld\n", r, (long long)at, (long long)own);
    }
    memory_of_gpu(l, &o);
    return sk_file_replace(sk_print(l->arena, "%s/memory.csv", l->t.dir), o.s, o.n);
}

/* The directory, and what goes on from where: rank 0 finds out, the others hear it. */
typedef struct found {
    sk_status code;
    char story[SK_REPORT_BYTES];
    char dir[PATH_MAX], ckpt[PATH_MAX], from[PATH_MAX];
    int64_t step, tokens, updates, steps, good, skipped;
    bool pending;
    double scale;
    sk_skipped_batches left;
} found;

static sk_status open_dir(launcher *l, const char **note)
{
    SK_TRY(sk_rundir_open(l->arena, l->job, &l->t, note));
    SK_TRY(sk_rundir_keep_tokenizer(l->arena, l->job, &l->t, l->setup.tokenizer));
    make_config(l, 0);
    l->due = *l->t.from;
    return l->due ? SK_OK : sk_rundir_config(&l->t, l->t.config);
}

static sk_status share_dir(launcher *l, sk_status st)
{
    found *f = sk_new(l->arena, found);
    sk_training *t = &l->t;
    *f = (found){.code = st,
                 .step = t->step,
                 .tokens = t->tokens,
                 .updates = t->updates,
                 .steps = t->steps,
                 .good = t->good,
                 .skipped = t->skipped,
                 .pending = t->pending,
                 .scale = t->scale,
                 .left = t->left};
    snprintf(f->story, sizeof f->story, "%s", st ? sk_error() : "");
    const char *own = sk_strdup(l->arena, f->story);
    memcpy(f->dir, t->dir, PATH_MAX);
    memcpy(f->ckpt, t->ckpt, PATH_MAX);
    memcpy(f->from, t->from, PATH_MAX);
    SK_TRY(sk_boot_bcast(l->boot, f, sizeof *f));
    if (leads(l)) {
        if (f->code) sk_error_set(f->story);
        return f->code;
    }
    memcpy(t->dir, f->dir, PATH_MAX);
    memcpy(t->ckpt, f->ckpt, PATH_MAX);
    memcpy(t->from, f->from, PATH_MAX);
    t->step = f->step;
    t->tokens = f->tokens;
    t->updates = f->updates;
    t->steps = f->steps;
    t->good = f->good;
    t->skipped = f->skipped;
    t->pending = f->pending;
    t->scale = f->scale;
    t->left = f->left;
    if (st && !f->code) { /* only this rank failed: it says why */
        sk_error_set(own);
        return st;
    }
    sk_error_set(""); /* rank 0 speaks */
    return f->code;
}

static sk_status set_up(launcher *l, const char **note)
{
    SK_TRY(sk_setup_run(l->arena, l->job, &l->setup));
    l->seats = sk_many(l->arena, seat, l->setup.n_ranks);
    l->endings = sk_many(l->arena, struct pollfd, l->setup.n_ranks);
    if (l->boot && l->boot->n_ranks != l->setup.n_ranks)
        return sk_fail(SK_ECONF,
                       "the layout has %d ranks, %s started %d; give layout= a product of %d, or "
                       "start %d",
                       l->setup.n_ranks, l->boot->by, l->boot->n_ranks, l->boot->n_ranks,
                       l->setup.n_ranks);
    if (leads(l)) SK_TRY(sk_fits_host(&l->setup, l->as_threads && !l->boot));
    if (!leads(l)) return SK_OK; /* once rank 0 has made what is to be made of the data */
    SK_TRY(sk_setup_data(&l->setup));
    SK_TRY(sk_setup_check(&l->setup));
    sk_store_digest(&l->setup.data, l->t.data);
    l->t.windows = l->setup.feed.n_windows;
    return open_dir(l, note);
}

/* config.yaml is gone and a checkpoint's own config was read (cli/argv.c). */
static bool lost_config(launcher *l)
{
    const char *source = l->job->source, *slash = strrchr(source, '/');
    return slash && !strcmp(slash + 1, SK_MANIFEST_FILE) &&
           !sk_is_file(sk_print(l->arena, "%s/config.yaml", l->t.dir));
}

static void head(launcher *l, const char *note)
{
    sk_console_open(&l->console, l->o->to, &l->t);
    sk_console_head(&l->console);
    fprintf(l->o->to, "%s", sk_relayout_print(l->arena, &l->setup));
    l->phase = sk_relayout_at(&l->setup, l->t.step);
    const char *idle = sk_idle_setup(l->arena, &l->setup);
    int64_t places = l->job->hyper.max_position_embeddings;
    if (idle) warn(l, idle);
    warn_lines(l, sk_idle_steps(l->arena, &l->setup, l->t.steps));
    if (l->setup.val_note && l->job->val_every) warn(l, l->setup.val_note);
    if (places && l->job->seq > places)
        warn(l, sk_print(l->arena,
                         "train.seq is %lld, and the model says max_position_embeddings=%lld; "
                         "model.max_position_embeddings=%lld says what it is trained for",
                         (long long)l->job->seq, (long long)places, (long long)l->job->seq));
    if (lost_config(l))
        warn(l, sk_print(l->arena, "%s/config.yaml is gone: the job is that of %s", l->t.dir,
                         l->job->source));
    warn_lines(l, note);
    if (l->t.steps && l->t.step >= l->t.steps)
        warn(l, sk_print(l->arena, "%lld steps are done already and train.steps is %lld",
                         (long long)l->t.step, (long long)l->t.steps));
}

static sk_status prepare(launcher *l)
{
    const char *note = "";
    sk_status st = set_up(l, &note);
    if (l->boot) st = share_dir(l, st);
    if (st) return sk_trail(st, SK_HERE);
    if (!leads(l)) SK_TRY(sk_setup_data(&l->setup));
    l->t.setup = &l->setup;
    if (l->as_threads && !l->boot) SK_TRY(sk_blas_reserve(l->setup.n_ranks * l->setup.threads));
    SK_TRY(open_heaps(l));
    l->keeps = leads(l) && !l->due;
    if (l->keeps) SK_TRY(write_memory(l));
    if (leads(l)) head(l, note);
    return SK_OK;
}

/* What every rank did last, for whoever wants to know why: flight.txt. */
static void write_flight(launcher *l)
{
    sk_out o = {.arena = l->arena};
    double until = 0;
    for (int r = 0; r < l->setup.n_ranks; r++)
        until = fmax(until, sk_flight_newest(sk_heaps_rank_state(l->t.heaps, r)));
    for (int r = 0; r < l->setup.n_ranks; r++) {
        sk_arena tmp = {0};
        sk_flight_print(program_of(l, r, &tmp), sk_heaps_rank_state(l->t.heaps, r), until, &o);
        sk_arena_end(&tmp);
    }
    if (sk_file_replace(sk_print(l->arena, "%s/flight.txt", l->t.dir), o.s, o.n))
        warn(l, sk_error_line());
}

/* Another process tells the story. */
static sk_status quiet(sk_status code)
{
    sk_error_set("");
    return code;
}

static sk_status verdict(launcher *l)
{
    sk_status code;
    int rank;
    const char *story;
    if (leads(l)) sk_console_clear(&l->console);
    if (asked > 1 && !l->stopped)
        return sk_fail((sk_status)(128 + asked_by),
                       "ended at once by a second signal; skein train --resume run=%s continues "
                       "from the newest checkpoint, if there is one",
                       l->t.dir);
    if (sk_heaps_aborted(l->t.heaps, &code, &rank, &story)) {
        bool nobody = rank < 0 && l->boot && l->boot->local == 0; /* it died while it told */
        if (l->boot && l->boot->rank != rank && !nobody) return quiet(code);
        write_flight(l);
        return sk_fail(code, "%s", story);
    }
    if (!leads(l)) return l->stopped ? quiet(SK_ESTOP) : SK_OK;
    if (l->stopped)
        return sk_fail(SK_ESTOP,
                       "stopped after step %lld, everything is saved; skein train --resume run=%s "
                       "continues",
                       (long long)l->console.last.step, l->t.dir);
    if (l->setup.tokenizer && l->job->sample_every) {
        begin_sample(l, l->final, false);
        sample_some(l, SAMPLE_TOKENS + 1);
    }
    sk_console_done(&l->console, l->final);
    return SK_OK;
}

/* A rank was killed: everything anew from the newest checkpoint, if that is still worth trying. */
static bool try_again(launcher *l)
{
    const char *story = "";
    int64_t before = l->t.step;
    if (!l->killed || l->as_threads || l->fruitless >= l->o->restarts) return false;
    sk_heaps_aborted(l->t.heaps, NULL, NULL, &story);
    story = sk_strdup(l->arena, story);
    l->t.steps = l->console.steps; /* train.time is not measured twice */
    asked_heaps = NULL;
    sk_heaps_close(l->t.heaps);
    l->t.heaps = NULL;
    if (sk_rundir_restart(l->arena, &l->t) || open_heaps(l)) return false;
    l->fruitless = l->t.step > before ? 0 : l->fruitless + 1;
    l->phase = sk_relayout_at(&l->setup, l->t.step);
    l->killed = false;
    l->patience = 0;
    asked_heaps = l->t.heaps;
    warn(l, sk_print(l->arena, "%s", story));
    warn(l, sk_print(l->arena, "beginning again from step %lld", (long long)l->t.step));
    return true;
}

static sk_status run(launcher *l)
{
    struct sigaction before[N_SIGNALS];
    SK_TRY(prepare(l));
    catch_signals(l->t.heaps, before);
    sk_status st;
    do {
        st = start_ranks(l);
        watch(l);
    } while (!st && try_again(l));
    if (leads(l) && l->t.heaps && !st && !sk_heaps_aborted(l->t.heaps, NULL, NULL, NULL)) settle(l);
    if (!st) st = l->t.heaps ? verdict(l) : SK_EPEER;
    give_signals_back(before);
    return st;
}

static sk_status launch(sk_arena *a, const sk_job *job, const sk_launch_opts *o)
{
    launcher *l = sk_new(a, launcher);
    l->arena = a;
    l->job = job;
    l->o = o;
    l->boot = o->boot;
    l->as_threads = o->threads || o->boot;
    if (o->boot && o->boot->n_hosts > 1) {
        l->t.wire = o->boot->wire;
        l->t.host_of = o->boot->host_of;
    }
    sk_status st = run(l);
    if (l->sampler) {
        sk_sampler_close(l->sampler);
        if (*l->sampling) sk_rundir_remove(l->sampling);
    }
    if (l->boot && l->alive) return st; /* its thread is still there: the process is about to end */
    if (l->t.home) sk_ckpt_close(l->t.home);
    sk_heaps_close(l->t.heaps);
    return st;
}

sk_status sk_launch(sk_arena *a, const sk_job *job, const sk_launch_opts *o)
{
    struct sigaction deaf = {.sa_handler = SIG_IGN}, before[N_DEAF];
    for (int i = 0; i < N_DEAF; i++) sigaction(deaf_to[i], &deaf, &before[i]);
    sk_status st = launch(a, job, o);
    for (int i = 0; i < N_DEAF; i++) sigaction(deaf_to[i], &before[i], NULL);
    return st;
}
