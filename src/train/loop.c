/* loop.c - training as one rank lives it. */
#include "train/loop.h"
#include "base/clock.h"
#include "base/strings.h"
#include "device/disk.h"
#include "run/flight.h"
#include "run/run.h"
#include "run/slow_kernels.h"
#include "train/trace_file.h"
#include "train/model_export.h"
#include "train/fault.h"
#include "train/fits.h"
#include "train/hf.h"
#include "train/host_peak.h"
#include "train/idle.h"
#include "train/metrics.h"
#include "train/save_interval.h"
#include "train/lr_schedule.h"
#include "train/relayout.h"
#include "train/rundir.h"
#include "train/loss_scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BAD_SAVES = 3, SAMPLE_TIMES = 4, VAL_BATCHES = 8, EXPORT_TAG = -7 };
#define PEAK_S 0.3 /* spent on measuring the peak where none is kept, after the first step */
#define TRY_S  2.0 /* of steps that train.time is judged by, and at least TRY_N of them */
#define TRY_N  6
#define LOOK_S 3.0  /* between two looks at temperature and the like */
#define SPARE  0.06 /* of train.time: validation, samples and saves */

typedef struct word { /* a rank's, on its share of a save */
    sk_ckpt_report report;
    char why[SK_WHY];
} word;

typedef struct loop {
    const sk_training *t;
    const sk_setup *s; /* of the phase */
    int phase;         /* train/relayout.h */
    sk_channel *desk;
    int rank;
    sk_arena arena, life;       /* of this rank; of the phase: run and boxes */
    const sk_program *own;      /* of the phase */
    sk_run *run, *roomy;        /* roomy: with room for all choices, see relayout.h; NULL: none */
    sk_flight_book book, large; /* the text of instructions, for stories */
    sk_lr_schedule rate;
    sk_loss_scale scale;
    sk_skipped_batches left; /* batches that are not used */
    int64_t back_to;         /* the checkpoint that the run went back to last; -1: none */
    int backs, in_row;   /* how often it went back; of these, to that one since it went elsewhere */
    int64_t done, tried; /* steps; tried: at which the last save was, alike on all ranks */
    int64_t saved;       /* rank 0: at which the newest checkpoint is; -1: none */
    double tokens;
    int64_t updates;           /* of the optimizer */
    double started, second_at; /* when the loop began; when its second step began */
    sk_tensor_shard *boxes;    /* parameters first, then state */
    int n_boxes, n_model;
    int64_t save_bytes; /* of a checkpoint, all ranks */
    word *shares;       /* rank 0: of all ranks */
    int bad_saves;
    char why_not[SK_WHY];  /* rank 0: the last save that failed */
    sk_save_interval pace; /* rank 0: of saves by the clock */
    double hurry;          /* how fast that clock is: 1 but in tests */
    double step_s;         /* the last step took */
    bool told_late;
    sk_metrics metrics; /* rank 0 */
    bool on_gpu;
    sk_nvml gpu;   /* rank 0: as it was at `looked` */
    double looked; /* sk_now(); 0: never */
    char uuid[48]; /* of its GPU */
} loop;

bool sk_loop_due(int64_t every, int64_t times, int64_t done, int64_t steps)
{
    if (!every || !steps || done >= steps) return false;
    if (every > 0) return done % every == 0;
    return done * times / steps != (done - 1) * times / steps;
}

static void note(loop *l, sk_record_kind kind, const char *text)
{
    sk_record r = {.kind = kind, .step = l->done};
    snprintf(r.text, sizeof r.text, "%s", text);
    sk_channel_put(l->desk, &r);
}

static bool far(const loop *l, int rank) /* from rank 0 */
{
    if (rank && l->s->layout.home[SK_PARAMS] == SK_FILE) return true;
    if (rank && l->s->layout.home[SK_STATE] == SK_FILE) return true; /* masters */
    return l->t->host_of && l->t->host_of[rank] != l->t->host_of[0];
}

/* How many ranks of its host come before this one? */
static int place_on_host(const loop *l)
{
    int n = 0;
    for (int r = 0; l->t->host_of && r < l->rank; r++)
        n += l->t->host_of[r] == l->t->host_of[l->rank];
    return l->t->host_of ? n : l->rank;
}

/* For sk_comm_small_gather: room for what all ranks say, on rank 0, which reads it. */
static void *of_all(loop *l, size_t bytes)
{
    return l->rank ? NULL : sk_alloc_n(&l->arena, bytes, (size_t)l->s->n_ranks);
}

/* --- beginning --- */

static int64_t bytes_of(const sk_tensor_shard *b)
{
    int64_t n = b->mine ? (int64_t)sk_dtype_size(b->type) : 0;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    return n;
}

/* Rank 0: ranks of a class save as much. */
static void count_bytes(loop *l)
{
    const sk_setup *s = l->s;
    sk_mark m = sk_arena_mark(&l->arena);
    int64_t *bytes = sk_many(&l->arena, int64_t, s->n_classes);
    l->save_bytes = 0;
    for (int k = 0; k < s->n_classes; k++) {
        sk_mark each = sk_arena_mark(&l->arena);
        sk_tensor_shard *b;
        int n;
        sk_program_shards(s->programs[s->first_of[k]], &l->arena, NULL, &b, &n);
        for (int i = 0; i < n; i++) bytes[k] += bytes_of(&b[i]);
        sk_arena_back(&l->arena, each);
    }
    for (int r = 0; r < s->n_ranks; r++) l->save_bytes += bytes[s->class_of[r]];
    sk_arena_back(&l->arena, m);
}

static sk_run_opts run_opts(const loop *l, sk_flight_book *book)
{
    const sk_job *job = l->s->job;
    sk_run_opts o = {.fill = sk_setup_fill,
                     .fill_ctx = (void *)l->s,
                     .seed = job->seed,
                     .knobs = sk_setup_knobs(job),
                     .timeout_s = job->timeout,
                     .scratch = *job->scratch ? job->scratch : l->t->dir,
                     .where = sk_flight_where,
                     .where_ctx = book,
                     .wire = l->t->wire,
                     .host_of = l->t->host_of,
                     .device = job->device,
                     .no_room = sk_fits_device,
                     .no_room_ctx = (void *)l->s};
    sk_fault_arm(&o, l->rank);
    return o;
}

/* Nobody opens the next before all have compared this one. */
static sk_status open_roomy(loop *l)
{
    const sk_setup *s = l->s->roomy;
    sk_run_opts o = run_opts(l, &l->large);
    if (!s) return SK_OK;
    l->large.all = (const sk_program *const *)s->programs;
    SK_TRY(sk_run_open(&l->life, s->runs[l->rank], l->t->heaps, &o, &l->roomy));
    return sk_run_barrier(l->roomy);
}

static sk_status open_run(loop *l)
{
    sk_run_opts o = run_opts(l, &l->book);
    SK_TRY(open_roomy(l));
    o.beside = l->roomy;
    o.trace = l->s->job->trace != 0;
    o.no_drops = l->roomy && l->s->job->dropless;
    o.no_full = l->roomy && sk_layout_may_fill(&l->s->layout);
    SK_TRY(sk_setup_own_program(l->s, &l->life, l->rank, &l->own));
    l->book.mine = l->own;
    l->book.all = (const sk_program *const *)l->s->programs;
    const sk_program *p = l->phase ? sk_relayout_run(l->t->setup, l->phase, l->rank) : l->own;
    SK_TRY(sk_run_open(&l->life, p, l->t->heaps, &o, &l->run));
    sk_run_shards(l->run, &l->life, &l->boxes, &l->n_boxes);
    l->n_model = sk_shards_sort(&l->s->graph, l->boxes, l->n_boxes);
    if (!l->rank) count_bytes(l);
    return SK_OK;
}

static void close_run(loop *l)
{
    if (l->run) sk_run_close(l->run);
    if (l->roomy) sk_run_close(l->roomy);
    l->run = l->roomy = NULL;
    sk_arena_end(&l->life);
    l->life = (sk_arena){0};
}

static sk_status set_rate(loop *l)
{
    const sk_job *job = l->s->job;
    l->rate = (sk_lr_schedule){
        .lr = job->lr, .min_lr = job->min_lr, .warmup = job->warmup, .steps = l->t->steps};
    return sk_lr_find(job->schedule, &l->rate.kind);
}

/* --- GPUs --- */

typedef struct seat { /* a rank's word on its GPU */
    char uuid[48];
    double flops;
} seat;

/* Ranks that share a GPU share its peak.  Returns how many GPUs there are. */
static int share_peaks(loop *l, const seat *all)
{
    int n = l->s->n_ranks, gpus = 0;
    l->desk->peak = 0;
    for (int r = 0; r < n; r++) {
        int same = 0, before = 0;
        for (int k = 0; k < n; k++) {
            bool is = !strcmp(all[k].uuid, all[r].uuid);
            same += is;
            before += is && k < r;
        }
        l->desk->peak += all[r].flops / same;
        gpus += !before;
    }
    return gpus;
}

static const char *device_line(sk_arena *a, const sk_gpu_usage *g, int ranks, int gpus)
{
    const sk_device_facts *f = &g->facts;
    sk_device_library tools[SK_MAX_LIBRARIES];
    sk_out o = {.arena = a};
    int n = sk_device_libraries("cuda", false, tools);
    sk_out_add(&o, "%s %s · %s · sm_%d · CUDA %d.%d, driver %d.%d", g->name, f->model,
               sk_bytes(a, f->bytes), f->capability, f->runtime / 1000, f->runtime / 10 % 100,
               f->driver / 1000, f->driver / 10 % 100);
    const char *gap = " · ";
    for (int i = 0; i < n; i++) {
        if (!tools[i].here) continue;
        sk_out_add(&o, "%s%s %s", gap, tools[i].name, tools[i].version);
        gap = ", ";
    }
    sk_out_add(&o, " · %d rank%s", ranks, ranks > 1 ? "s" : "");
    if (ranks > 1) sk_out_add(&o, " on %d GPU%s", gpus, gpus > 1 ? "s" : "");
    return o.s;
}

/* All ranks come here when their runs are open. */
/* What does not run on the kernels that it should. */
static void tell_slow(loop *l)
{
    for (const char *line = sk_run_slow_kernels(&l->arena, l->run); line && *line;) {
        int n = (int)strcspn(line, "\n");
        note(l, SK_REC_WARN, sk_print(&l->arena, "%.*s", n, line));
        line += n + (line[n] != 0);
    }
}

static sk_status meet_gpus(loop *l)
{
    sk_gpu_usage g;
    seat mine = {0};
    l->on_gpu = sk_run_gpu_usage(l->run, &g);
    if (!sk_run_program(l->run)->gpu) return SK_OK;
    if (l->on_gpu) {
        snprintf(mine.uuid, sizeof mine.uuid, "%s", g.facts.uuid);
        mine.flops = g.facts.flops[l->s->job->dtype == SK_F32 ? SK_PEAK_F32 : SK_PEAK_NARROW];
    }
    seat *all = of_all(l, sizeof *all);
    SK_TRY(sk_comm_small_gather(sk_run_comm(l->run), &mine, sizeof mine, all));
    if (l->rank || !l->on_gpu) return SK_OK;
    memcpy(l->uuid, mine.uuid, sizeof l->uuid);
    int gpus = share_peaks(l, all);
    note(l, SK_REC_DEVICE, device_line(&l->arena, &g, l->s->n_ranks, gpus));
    tell_slow(l);
    return SK_OK;
}

/* What the first step took beyond the pool; for the console and memory.csv. */
static void tell_memory(loop *l)
{
    sk_gpu_usage g;
    if (l->rank || !sk_run_gpu_usage(l->run, &g)) return;
    l->desk->gpu.before = g.before;
    l->desk->gpu.taken = g.taken;
    l->desk->gpu.since = g.since;
    atomic_store(&l->desk->gpu.pool, (long long)g.pool);
}

/* Rank 0: how warm it is, now and then. */
static void look_at_gpu(loop *l)
{
    double now = sk_now();
    if (!l->on_gpu || (l->looked > 0 && now - l->looked < LOOK_S)) return;
    l->looked = now;
    if (!sk_nvml_find(l->uuid, &l->gpu)) l->gpu = (sk_nvml){0};
}

/* --- another layout --- */

static void enter(loop *l, int phase)
{
    l->phase = phase;
    l->s = sk_relayout_setup(l->t->setup, phase);
}

/* The numbers of instructions that are noted there are those of the old program. */
static void clear_flight(loop *l)
{
    sk_rank_state *line = sk_heaps_rank_state(l->t->heaps, l->rank);
    atomic_store(&line->ring_n, 0);
    atomic_store(&line->pc, 0);
}

/* Is the next step of another phase?  All ranks find the same, and meet in the move.  A run that
 * went back to an earlier one stays in the layout it has: any layout reads any checkpoint. */
static sk_status change_layout(loop *l)
{
    int next = sk_relayout_at(l->t->setup, l->done);
    if (next <= l->phase) return SK_OK;
    const sk_moves *m = &l->t->setup->relayout->v[next].moves;
    SK_TRY(sk_run_pull(l->run));
    SK_TRY(sk_relayout_move(m, l->rank, l->t->heaps, sk_run_comm(l->run)));
    close_run(l);
    clear_flight(l);
    enter(l, next);
    SK_TRY(open_run(l));
    SK_TRY(sk_run_push(l->run));
    atomic_store(&sk_heaps_rank_state(l->t->heaps, l->rank)->step, (long long)l->done);
    return SK_OK;
}

static int64_t most_bytes(const loop *l)
{
    int64_t most = 0;
    for (int r = 0; r < l->s->n_ranks; r++)
        if (sk_device_bytes(l->s->programs[r]) > most) most = sk_device_bytes(l->s->programs[r]);
    return most;
}

static bool all_finite(const sk_tensor_shard *b)
{
    float x[1024];
    int64_t size = (int64_t)sk_dtype_size(b->type), n = bytes_of(b) / size, m;
    bool real_type = b->type == SK_F32 || b->type == SK_BF16 || b->type == SK_F16;
    for (int64_t i = 0; real_type && i < n; i += m) {
        float bad = 0;
        m = n - i < 1024 ? n - i : 1024;
        sk_convert(x, SK_F32, (const char *)b->data + i * size, b->type, m);
        for (int64_t k = 0; k < m; k++) bad += x[k] * 0;
        if (isnan(bad)) return false;
    }
    return true;
}

static sk_status load_model(loop *l)
{
    const sk_job *job = l->s->job;
    int n = 0;
    const sk_hf_shape *shapes = sk_hf_shapes(&l->arena, &l->s->graph, &n);
    SK_TRY(sk_hf_check(job->model_dir, job->model, &job->hyper, shapes, n));
    SK_TRY(sk_hf_load(job->model_dir, job->model, &job->hyper, shapes, n, l->boxes, l->n_model));
    for (int i = 0; i < l->n_model; i++)
        if (!all_finite(&l->boxes[i]))
            return sk_fail(SK_ENUM,
                           "%s: '%s' has numbers that are not finite in %s; skein verify %s tells "
                           "whether they are in the file",
                           job->model_dir, l->boxes[i].name, sk_dtype_name(l->boxes[i].type),
                           job->model_dir);
    return SK_OK;
}

static const char *aside_text(loop *l)
{
    const sk_metrics *m = &l->metrics;
    if (!l->done)
        return sk_print(&l->arena, "metrics.jsonl of an earlier beginning is now %s", m->aside);
    if (!m->n_again)
        return sk_print(&l->arena,
                        "the end of metrics.jsonl is no whole line of a step; it is now in %s",
                        m->aside);
    return sk_print(&l->arena,
                    "the run had come %lld steps (%.3g s) past the checkpoint of step %lld: they "
                    "are done again, and their lines are now in %s",
                    (long long)m->n_again, m->again_s, (long long)l->done, m->aside);
}

static sk_status open_metrics(loop *l)
{
    if (l->rank) return SK_OK;
    const char *path = sk_print(&l->arena, "%s/metrics.jsonl", l->t->dir);
    sk_metrics_close(&l->metrics);
    SK_TRY(sk_metrics_open(&l->metrics, path, most_bytes(l), l->done));
    if (*l->metrics.aside) note(l, SK_REC_WARN, aside_text(l));
    return SK_OK;
}

/* All that a checkpoint has.  What is not said of the scale stays as it is. */
static sk_status load_state(loop *l, const sk_training *t)
{
    SK_TRY(sk_ckpt_load(t->from, l->boxes, l->n_boxes));
    l->done = l->tried = l->saved = t->step;
    l->tokens = (double)t->tokens;
    bool drops = t->pending && !l->s->job->late; /* an update that was counted is never made */
    l->updates = t->updates - drops;
    l->scale.skipped = t->skipped;
    l->scale.skips = 0;
    sk_run_set_pending(l->run, t->pending && l->s->job->late);
    if (l->scale.moves && t->scale > 0) l->scale.value = t->scale, l->scale.good = t->good;
    SK_TRY(sk_run_push(l->run));
    SK_TRY(open_metrics(l));
    return sk_run_barrier(l->run);
}

/* State starts at zero in any case; what a checkpoint or a model directory holds goes over it. */
static sk_status first_weights(loop *l)
{
    const sk_job *job = l->s->job;
    SK_TRY(sk_run_init(l->run, job->seed));
    l->scale = sk_loss_scale_begin(job->dtype, sk_nonfinite_find(job->nonfinite),
                                   (double)(job->batch * job->seq));
    l->left = l->t->left;
    if (*l->t->from && l->t->pending && !job->late && !l->rank)
        note(l, SK_REC_WARN,
             "the gradient that a late optimizer left in the checkpoint is dropped; "
             "optim.late=1 would take it");
    if (*l->t->from) return load_state(l, l->t);
    if (*job->model_dir) {
        SK_TRY(load_model(l));
        SK_TRY(sk_run_push(l->run));
    }
    SK_TRY(open_metrics(l));
    return sk_run_barrier(l->run);
}

/* --- going back --- */

static const char *newest(loop *l)
{
    return l->tried < 0 ? "none" : sk_print(&l->arena, "that of step %lld", (long long)l->tried);
}

/* Which checkpoint rank 0 found, as it tells the others. */
typedef struct found {
    sk_status code;
    char why[SK_WHY];
    bool first; /* the one that the run began from */
    bool pending;
    int64_t step, tokens, updates, good, skipped;
    double scale;
} found;

static found look_back(loop *l)
{
    sk_training *t = sk_new(&l->arena, sk_training);
    found f = {.code = sk_rundir_rollback(&l->arena, l->t, l->done, t)};
    if (f.code) {
        snprintf(f.why, sizeof f.why, "%s", sk_error_line());
        return f;
    }
    return (found){.first = !strcmp(t->from, l->t->from),
                   .step = t->step,
                   .tokens = t->tokens,
                   .updates = t->updates,
                   .good = t->good,
                   .skipped = t->skipped,
                   .pending = t->pending,
                   .scale = t->scale};
}

static sk_status find_back(loop *l, sk_training *t)
{
    found f = {0};
    if (!l->rank) f = look_back(l);
    SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), &f, sizeof f));
    if (f.code) return sk_fail(f.code, "%s", f.why);
    *t = *l->t;
    t->step = f.step;
    t->tokens = f.tokens;
    t->updates = f.updates;
    t->good = f.good;
    t->skipped = f.skipped;
    t->pending = f.pending;
    t->scale = f.scale;
    if (!f.first)
        snprintf(t->from, sizeof t->from, "%.*s/step-%010lld", PATH_MAX - 64, l->t->ckpt,
                 (long long)f.step);
    return SK_OK;
}

/* All ranks have met since they touched weights.  `what` is wrong with the step, from 0. */
static sk_status go_back(loop *l, int64_t step, const char *what)
{
    sk_training *t = sk_new(&l->arena, sk_training);
    int64_t batch = sk_batch_of_step(&l->left, step);
    sk_status st = find_back(l, t);
    if (st == SK_ENUM) return sk_fail(st, "%s; %s", what, sk_error_line());
    if (st) return sk_trail(st, SK_HERE);
    l->backs++;
    l->in_row = t->step == l->back_to ? l->in_row + 1 : 1;
    l->back_to = t->step;
    if (l->in_row > SK_LOSS_SCALE_SKIPS || !sk_skipped_batches_add(&l->left, batch))
        return sk_fail(
            SK_ENUM,
            "%s; the run went back to the checkpoint of step %lld %d times in a row, and "
            "left out %d batches in all: no more. A lower optim.lr, a longer "
            "optim.warmup or optim.clip=1 may help",
            what, (long long)t->step, l->in_row - 1, l->left.n);
    SK_TRY(load_state(l, t));
    if (l->rank) return SK_OK;
    note(l, SK_REC_WARN,
         sk_print(&l->arena,
                  "%s: all ranks go back to the checkpoint of step %lld and leave batch %lld out",
                  what, (long long)l->done, (long long)batch + 1));
    return SK_OK;
}

/* --- saving: phases with barriers between them, see checkpoint.h --- */

static sk_status write_share(loop *l)
{
    sk_ckpt_share share = {.model = l->boxes,
                           .n_model = l->n_model,
                           .state = l->boxes + l->n_model,
                           .n_state = l->n_boxes - l->n_model};
    word mine = {0};
    if (!l->shares) l->shares = of_all(l, sizeof *l->shares);
    bool bad = l->desk->save.begun &&
               sk_ckpt_write_rank(l->t->ckpt, l->desk->save.name, l->rank, &share, &mine.report);
    if (bad) snprintf(mine.why, SK_WHY, "%s", sk_error_line());
    return sk_comm_small_gather(sk_run_comm(l->run), &mine, sizeof mine, l->shares);
}

/* The name of the checkpoint, or that there is none, from rank 0 to all; each host has a desk. */
static sk_status share_name(loop *l)
{
    struct {
        char name[SK_CKPT_NAME];
        bool begun;
    } w = {0};
    if (!l->rank) { /* who may be writing it still, when others come here */
        w.begun = l->desk->save.begun;
        memcpy(w.name, l->desk->save.name, sizeof w.name);
    }
    SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), &w, sizeof w));
    if (place_on_host(l) || !l->rank) return sk_run_barrier(l->run);
    memcpy(l->desk->save.name, w.name, sizeof w.name);
    l->desk->save.begun = w.begun;
    return sk_run_barrier(l->run);
}

static sk_status commit(loop *l)
{
    sk_channel *d = l->desk;
    for (int r = 0; r < l->s->n_ranks; r++) {
        const word *w = &l->shares[r];
        if (!w->report.status) continue;
        sk_ckpt_abandon(l->t->home, d->save.name);
        return sk_fail((sk_status)w->report.status, "%s", w->why);
    }
    sk_mark m = sk_arena_mark(&l->arena);
    sk_extra extra = {.steps = l->rate.steps,
                      .updates = l->updates,
                      .scale = l->scale.moves ? l->scale.value : 0,
                      .good = l->scale.good,
                      .skipped = l->scale.skipped,
                      .pending = sk_run_pending(l->run),
                      .left = l->left,
                      .data = l->t->data,
                      .batch = l->s->job->batch,
                      .seq = l->s->job->seq,
                      .windows = l->s->feed.n_windows,
                      .order = l->s->job->data_order,
                      .tokenizer = l->s->tokenizer ? l->s->job->data_tokenizer : ""};
    sk_ckpt_state st = {.step = l->done,
                        .tokens = (int64_t)l->tokens,
                        .seed = l->s->job->seed,
                        .program = sk_program_hash(l->s->programs[0]),
                        .hyper = l->s->job->hyper,
                        .config = l->t->config,
                        .layout = sk_layout_print(&l->arena, &l->s->layout),
                        .extra = sk_extra_print(&l->arena, &extra)};
    sk_status status = sk_ckpt_commit(l->t->home, d->save.name, l->s->n_ranks, &st);
    sk_arena_back(&l->arena, m);
    return status;
}

/* What rank 0 makes of a save that was tried. */
static sk_status judge_save(loop *l, sk_status st)
{
    char text[SK_WHY];
    if (!st) {
        l->bad_saves = 0;
        l->saved = l->done;
        snprintf(text, sizeof text, "step-%010lld", (long long)l->done);
        note(l, SK_REC_SAVED, text);
        if (!sk_ckpt_retain(l->t->home, l->s->job->ckpt_keep)) return SK_OK;
        note(l, SK_REC_WARN, sk_error_line());
        return SK_OK;
    }
    snprintf(l->why_not, sizeof l->why_not, "%s", sk_error_line());
    snprintf(text, sizeof text, "checkpoint of step %lld was not saved: %s", (long long)l->done,
             sk_error_line());
    note(l, SK_REC_WARN, text);
    if (++l->bad_saves < MAX_BAD_SAVES) return SK_OK;
    return sk_fail(SK_EIO, "%d checkpoints in a row could not be saved, the last at step %lld: %s",
                   l->bad_saves, (long long)l->done, sk_error_line());
}

/* Numbers of a step can be finite and what it makes of the weights not.  `why`: the first tensor
 * that is not, of those that would be saved, the same text on all ranks; "": all is well. */
static sk_status check_state(loop *l, word *w)
{
    sk_mark m = sk_arena_mark(&l->arena);
    word *all = of_all(l, sizeof *all);
    *w = (word){0};
    for (int i = 0; i < l->n_boxes && !*w->why; i++)
        if (!all_finite(&l->boxes[i]))
            snprintf(w->why, SK_WHY, "after step %lld '%.128s' is not finite any more",
                     (long long)l->done, l->boxes[i].name);
    SK_TRY(sk_comm_small_gather(sk_run_comm(l->run), w, sizeof *w, all));
    for (int r = 0; !l->rank && !*w->why && r < l->s->n_ranks; r++) *w = all[r];
    sk_arena_back(&l->arena, m);
    return sk_comm_small_bcast(sk_run_comm(l->run), w, sizeof *w);
}

static sk_status bad_state(loop *l, const char *what)
{
    if (l->scale.policy == SK_ROLLBACK && l->done) return go_back(l, l->done - 1, what);
    return sk_fail(SK_ENUM,
                   "%s; it is not saved, the newest checkpoint is %s. optim.lr is %g: a lower one, "
                   "a longer optim.warmup or optim.clip=1 may help",
                   what, newest(l), l->s->job->lr);
}

/* The run may have gone back afterwards. */
static sk_status save(loop *l)
{
    sk_channel *d = l->desk;
    sk_status st = SK_OK;
    word w;
    SK_TRY(sk_run_pull(l->run));
    SK_TRY(check_state(l, &w));
    if (*w.why) return bad_state(l, w.why);
    l->tried = l->done;
    if (!l->rank) {
        memset(&d->save, 0, sizeof d->save);
        st = sk_ckpt_begin(l->t->home, l->done, l->save_bytes, d->save.name);
        d->save.begun = !st;
    }
    SK_TRY(share_name(l));
    SK_TRY(write_share(l));
    if (l->rank) return SK_OK;
    if (!st) st = commit(l);
    return judge_save(l, st);
}

/* --- models for others: rank 0 reads all heaps while the rest wait --- */

static int64_t letter_of(int64_t left) { return left < SK_DISK_BOUNCE ? left : SK_DISK_BOUNCE; }

/* Only what lies in the heap can be sent: what lies in a file passes a room there. */
static sk_status send_box(loop *l, const sk_tensor_shard *b)
{
    sk_comm *c = sk_run_comm(l->run);
    char *room = sk_run_bounce(l->run);
    for (int64_t at = 0, n; at < bytes_of(b); at += n) {
        char *from = (char *)b->data + at;
        n = letter_of(bytes_of(b) - at);
        if (room) from = memcpy(room, from, (size_t)n);
        SK_TRY(sk_comm_send(c, 0, EXPORT_TAG, from, n));
        if (room) SK_TRY(sk_comm_sent(c, 0, sk_comm_sends(c, 0)));
    }
    return SK_OK;
}

/* What rank 0 cannot read is sent to it: the boxes of the model that count as this rank's. */
static sk_status send_model(loop *l)
{
    for (int i = 0; i < l->n_model; i++) SK_TRY(send_box(l, &l->boxes[i]));
    return SK_OK;
}

static sk_status take_box(loop *l, int r, const sk_tensor_shard *b)
{
    for (int64_t at = 0, n; at < bytes_of(b); at += n) {
        n = letter_of(bytes_of(b) - at);
        SK_TRY(sk_comm_recv(sk_run_comm(l->run), r, EXPORT_TAG, (char *)b->data + at, n));
    }
    return SK_OK;
}

/* Rank r's boxes into memory of my own, in the order in which it sends them. */
static sk_status take_model(loop *l, int r, sk_tensor_shard **boxes, int *n)
{
    sk_program_weight_shards(l->s->programs[r], r, &l->arena, NULL, boxes, n);
    for (int i = 0; i < *n; i++) {
        sk_tensor_shard *b = &(*boxes)[i];
        if (!bytes_of(b)) continue;
        b->data = sk_many(&l->arena, char, bytes_of(b));
        SK_TRY(take_box(l, r, b));
    }
    return SK_OK;
}

static sk_status export_here(loop *l, const char *path)
{
    sk_tensor_shard **boxes = sk_many(&l->arena, sk_tensor_shard *, l->s->n_ranks);
    int *n = sk_many(&l->arena, int, l->s->n_ranks);
    for (int r = 0; r < l->s->n_ranks; r++) {
        if (far(l, r)) SK_TRY(take_model(l, r, &boxes[r], &n[r]));
        else if (r == l->rank) sk_run_shards(l->run, &l->arena, &boxes[r], &n[r]);
        else
            sk_program_weight_shards(l->s->programs[r], r, &l->arena, sk_heap_base(l->t->heaps, r),
                                     &boxes[r], &n[r]);
    }
    const char *tokens = sk_print(&l->arena, "%s/tokenizer", l->t->dir);
    return sk_export_boxes(&l->arena, l->s, boxes, n, tokens, path);
}

static sk_status export_model(loop *l, const char *name, sk_record_kind kind)
{
    SK_TRY(sk_run_pull(l->run));
    SK_TRY(sk_run_barrier(l->run));
    if (far(l, l->rank)) SK_TRY(send_model(l));
    if (!l->rank) {
        sk_mark m = sk_arena_mark(&l->arena);
        const char *path = sk_print(&l->arena, "%s/%s", l->t->dir, name);
        sk_status st = export_here(l, path);
        if (st && kind == SK_REC_FINAL) return sk_trail(st, SK_HERE);
        note(l, st ? SK_REC_WARN : kind, st ? sk_error_line() : path);
        sk_arena_back(&l->arena, m);
    }
    return sk_run_barrier(l->run);
}

/* --- validation --- */

static sk_status validate(loop *l)
{
    int64_t n = l->s->job->val_batches;
    double loss = 0, tokens = 0;
    if (n < 0) {
        n = l->s->val_feed.n_windows / l->s->job->batch;
        n = n < 1 ? 1 : n > VAL_BATCHES ? VAL_BATCHES : n;
    }
    for (int64_t i = 0; i < n; i++) {
        sk_step_out out = {0};
        SK_TRY(sk_run_validate(l->run, i, &out));
        loss += out.loss * out.tokens;
        tokens += out.tokens;
    }
    if (l->rank || tokens <= 0) return SK_OK;
    sk_record r = {.kind = SK_REC_VAL, .step = l->done, .loss = loss / tokens};
    sk_metrics_val(&l->metrics, &r);
    sk_channel_put(l->desk, &r);
    return SK_OK;
}

/* --- steps --- */

static double pace_now(const loop *l) { return l->hurry * sk_now(); }

/* Rank 0, after a save that began then.  That one comes late is said once. */
static void keep_pace(loop *l, double began)
{
    sk_save_interval *p = &l->pace;
    sk_save_interval_saved(p, pace_now(l), sk_now() - began);
    double wait = sk_save_interval_next(p) - p->last;
    if (p->every <= 0 || l->told_late || wait < 1.01 * p->every) return;
    l->told_late = true;
    note(l, SK_REC_WARN,
         sk_print(&l->arena,
                  "the run stood still for %.2f s to save step %lld: the next checkpoint comes in "
                  "%.2f s, not %g s, so that saving takes at most %g %% of the time; "
                  "ckpt.every=STEPS saves whatever it takes",
                  p->stall, (long long)l->done, wait, p->every, 100 * SK_SAVE_INTERVAL_COST));
}

/* train.time: from the steps so far, how many fit in all?  The first is not like the others. */
static int64_t choose_steps(const loop *l)
{
    int64_t n = l->done - l->t->step - 1;
    double now = sk_now(), spent = now - l->second_at, limit = l->s->job->time_limit;
    if (n < TRY_N || (spent < TRY_S && spent < 0.1 * limit)) return 0;
    double left = (1 - SPARE) * limit - (now - l->started);
    int64_t more = (int64_t)(left * (double)n / spent);
    return l->done + 1 + (more > 0 ? more : 0); /* the verdict is read one step from now */
}

/* A save that would become due while the step runs comes after it. */
static void decide(loop *l)
{
    sk_decision v = {.steps = l->rate.steps, .stop = sk_heaps_stop_asked(l->t->heaps)};
    v.save = pace_now(l) + l->hurry * l->step_s >= sk_save_interval_next(&l->pace);
    if (!v.steps) v.steps = choose_steps(l);
    sk_channel_decide(l->desk, l->done, v);
}

typedef struct speed {     /* flops per second */
    double kept, measured; /* of the host, where that is known; of this rank, where it is not */
} speed;

static int host_of(const loop *l, int rank) { return l->t->host_of ? l->t->host_of[rank] : 0; }

/* Rank 0: hosts[h] is the peak of host h.  Some ranks of a host may have found one kept that was
 * not there when others looked. */
static void sum_hosts(const loop *l, const speed *all, double *hosts, int n_hosts)
{
    for (int h = 0; h < n_hosts; h++) {
        double kept = 0, measured = 0;
        for (int r = 0; r < l->s->n_ranks; r++) {
            if (host_of(l, r) != h) continue;
            kept = fmax(kept, all[r].kept);
            measured += all[r].measured;
        }
        hosts[h] = kept > 0 ? kept : measured;
    }
}

static int ranks_here(const loop *l) /* of the host of this rank */
{
    int n = 0;
    for (int r = 0; r < l->s->n_ranks; r++) n += host_of(l, r) == host_of(l, l->rank);
    return n;
}

/* Rank 0's to all, however long. */
static sk_status share_all(sk_comm *c, double *v, int n)
{
    for (int at = 0, some; at < n; at += some) {
        some = n - at < SK_SMALL_BYTES / 8 ? n - at : SK_SMALL_BYTES / 8;
        SK_TRY(sk_comm_small_bcast(c, v + at, (size_t)some * sizeof *v));
    }
    return SK_OK;
}

/* As many ranks of a host as its cores can serve at once: there is no more to be had. */
static sk_status look_for_peak(loop *l, int here, sk_kept_peak *kept, double *measured)
{
    const sk_setup *s = l->s;
    int fit = s->cores > s->threads ? s->cores / s->threads : 1, some = fit < here ? fit : here;
    sk_peak_rate rate;
    if (place_on_host(l) >= some) return SK_OK;
    *kept = sk_host_peak_find(&l->arena, sk_host_busy(here, s->threads, s->cores));
    if (kept->flops > 0) return SK_OK;
    SK_TRY(sk_host_peak(s->threads, PEAK_S, &rate));
    *measured = rate.flops * sk_host_share(some, s->threads, s->cores);
    return SK_OK;
}

/* As kept on each host (host_peak.h); where none is, ranks measure at once, and it is kept. */
static sk_status find_peak(loop *l)
{
    if (sk_run_program(l->run)->gpu) return SK_OK; /* known: meet_gpus */
    sk_mark mark = sk_arena_mark(&l->arena);
    int n_hosts = 1, here = ranks_here(l);
    for (int r = 0; r < l->s->n_ranks; r++)
        if (host_of(l, r) >= n_hosts) n_hosts = host_of(l, r) + 1;
    sk_kept_peak kept = {0};
    speed mine = {0}, *all = of_all(l, sizeof *all);
    double *hosts = sk_many(&l->arena, double, n_hosts);
    SK_TRY(look_for_peak(l, here, &kept, &mine.measured));
    mine.kept = kept.flops;
    SK_TRY(sk_comm_small_gather(sk_run_comm(l->run), &mine, sizeof mine, all));
    if (!l->rank) sum_hosts(l, all, hosts, n_hosts);
    SK_TRY(share_all(sk_run_comm(l->run), hosts, n_hosts));
    const char *why = kept.why;
    if (!place_on_host(l) && !(mine.kept > 0)) {
        int busy = sk_host_busy(here, l->s->threads, l->s->cores);
        kept = sk_host_peak_keep(&l->arena, busy, hosts[host_of(l, l->rank)]);
        if (kept.why) why = kept.why;
    }
    if (!l->rank) {
        if (why) note(l, SK_REC_WARN, why);
        l->desk->peak = kept.flops;
        for (int h = 0; h < n_hosts; h++)
            if (h != host_of(l, 0)) l->desk->peak += hosts[h];
    }
    sk_arena_back(&l->arena, mark);
    return SK_OK;
}

/* What stands behind the row of the step. */
static void behind_row(const loop *l, const sk_choices *c, sk_record *r)
{
    char experts[96] = "", scale[96] = "";
    if (c->all > 0)
        snprintf(experts, sizeof experts, "aux %.4f  drops %.1f %%%s", c->aux,
                 100 * c->drops / c->all, c->again ? ", run again" : "");
    if (l->scale.moves)
        snprintf(scale, sizeof scale, "scale %g, %lld skipped", r->scale, (long long)r->skipped);
    snprintf(r->text, sizeof r->text, "%s%s%s", experts, *experts && *scale ? "  " : "", scale);
}

static void report(loop *l, const sk_step_out *out, const sk_step_in *in, double seconds)
{
    sk_choices c = {.aux = out->aux,
                    .drops = out->drops,
                    .all = l->s->choices,
                    .twice = l->roomy != NULL,
                    .again = out->again};
    double peak = l->desk->peak;
    bool works = !sk_idle(l->own); /* or its clock says nothing of a step */
    look_at_gpu(l);
    sk_record r = {.kind = SK_REC_STEP,
                   .step = l->done,
                   .loss = out->loss,
                   .grad_norm = out->grad_norm,
                   .lr = in->lr,
                   .scale = in->loss_scale,
                   .skipped = l->scale.skipped,
                   .left_out = l->left.n,
                   .tokens = out->tokens,
                   .seconds = seconds,
                   .at = sk_now(),
                   .waited = out->waited,
                   .copied = out->copied,
                   .uncovered = out->uncovered,
                   .mfu = peak > 0 && works ? l->s->flops / seconds / peak : 0,
                   .gpu = l->gpu};
    behind_row(l, &c, &r);
    bool ok = sk_metrics_step(&l->metrics, &r, l->tokens, &c);
    if (!ok) note(l, SK_REC_WARN, l->metrics.why);
    sk_channel_put(l->desk, &r);
}

/* Do stages update within the step?  Then they have, whatever its numbers are. */
static bool apart(const loop *l) { return l->own->apart; }

static sk_status bad_numbers(loop *l, const sk_step_out *out)
{
    const char *what = sk_print(&l->arena, "step %lld: loss %g, norm of the gradient %g",
                                (long long)l->done + 1, out->loss, out->grad_norm);
    if (l->scale.policy == SK_ROLLBACK) return go_back(l, l->done, what);
    return sk_fail(
        SK_ENUM,
        "%s; they must be finite. %s; the newest checkpoint is "
        "%s. optim.lr is %g: a lower one, a longer optim.warmup or optim.clip=1 may help",
        what,
        apart(l) ? "Stages update on their own within a step: weights were changed, and "
                   "no step can be skipped"
                 : "Weights were not changed",
        newest(l), l->s->job->lr);
}

/* All ranks see the same sums, and so decide alike.  The run may have gone back afterwards. */
static sk_status after_numbers(loop *l, const sk_step_out *out)
{
    double before = l->scale.value;
    if (!sk_loss_scale_step(&l->scale, out->loss, out->finite) || (!out->finite && apart(l)))
        return bad_numbers(l, out);
    if (out->finite || l->rank) return SK_OK;
    note(l, SK_REC_WARN,
         sk_print(&l->arena, "step %lld: loss %g, norm of the gradient %g: skipped by all ranks%s",
                  (long long)l->done + 1, out->loss, out->grad_norm,
                  l->scale.value < before
                      ? sk_print(&l->arena, ", gradients are scaled by %g now", l->scale.value)
                      : ""));
    return SK_OK;
}

static sk_status change_program(loop *l, sk_run *from, sk_run *to)
{
    clear_flight(l);
    atomic_store(&l->t->tally->roomy[l->rank], to == l->roomy);
    return sk_run_switch(from, to);
}

/* The step has changed nothing.  What it tells of drops is what made this necessary. */
static sk_status with_room(loop *l, const sk_step_in *in, sk_step_out *out)
{
    sk_step_out tried = *out;
    SK_TRY(change_program(l, l->run, l->roomy));
    SK_TRY(sk_run_step(l->roomy, in, out));
    SK_TRY(change_program(l, l->roomy, l->run));
    out->drops = tried.drops;
    out->waited += tried.waited;
    out->again = true;
    return SK_OK;
}

static void count(loop *l, const sk_step_out *out)
{
    atomic_fetch_add(&l->t->tally->steps, 1);
    if (out->again) atomic_fetch_add(&l->t->tally->again, 1);
}

static sk_status one_step(loop *l)
{
    int64_t each = l->own->n_updates;
    sk_step_in in = {.step = l->done,
                     .lr = sk_lr_at(&l->rate, l->done),
                     .shift = l->updates - l->done * each,
                     .loss_scale = l->scale.value,
                     .ahead = sk_batch_of_step(&l->left, l->done) - l->done};
    sk_step_out out = {0};
    if (l->done == l->t->step + 1) l->second_at = sk_now();
    if (!l->rank) decide(l);
    double start = sk_now();
    SK_TRY(sk_run_step(l->run, &in, &out));
    if (out.again) SK_TRY(with_room(l, &in, &out));
    double seconds = l->step_s = sk_now() - start;
    int backs = l->backs;
    SK_TRY(after_numbers(l, &out));
    if (l->backs != backs) return SK_OK;
    if (l->done == l->t->step) {
        SK_TRY(find_peak(l));
        tell_memory(l);
    }
    l->done++;
    l->tokens += out.tokens;
    if (out.finite) l->updates += each;
    if (l->rank) return SK_OK;
    count(l, &out);
    report(l, &out, &in, seconds);
    return SK_OK;
}

/* The verdict on the step just done; a number of steps that is new is told to the console. */
static sk_status hear(loop *l, sk_decision *v)
{
    *v = sk_channel_decision(l->desk, l->done - 1);
    if (l->t->wire) SK_TRY(sk_comm_small_bcast(sk_run_comm(l->run), v, sizeof *v));
    if (l->rate.steps || !v->steps) return SK_OK;
    l->rate.steps = v->steps;
    sk_record r = {.kind = SK_REC_STEPS, .step = v->steps};
    if (!l->rank) sk_channel_put(l->desk, &r);
    return SK_OK;
}

/* The last step's save is that of the end. */
static bool save_due(const loop *l, const sk_decision *v)
{
    int64_t steps = l->rate.steps ? l->rate.steps : l->done + 1;
    return sk_loop_due(l->s->job->ckpt_every.steps, 0, l->done, steps) ||
           (v->save && l->done < steps);
}

static sk_status between(loop *l, const sk_decision *v)
{
    const sk_job *job = l->s->job;
    int64_t steps = l->rate.steps;
    int backs = l->backs;
    if (l->s->has_val && sk_loop_due(job->val_every, SK_VAL_TIMES, l->done, steps))
        SK_TRY(validate(l));
    if (save_due(l, v)) {
        double began = sk_now();
        SK_TRY(save(l));
        if (!l->rank) keep_pace(l, began);
    }
    if (l->backs != backs) return SK_OK;
    if (l->s->tokenizer && sk_loop_due(job->sample_every, SAMPLE_TIMES, l->done, steps)) {
        char name[64];
        snprintf(name, sizeof name, "sample-%010lld", (long long)l->done);
        SK_TRY(export_model(l, name, SK_REC_SAMPLE));
    }
    return SK_OK;
}

static sk_status stopped(loop *l)
{
    SK_TRY(save(l));
    SK_TRY(sk_run_barrier(l->run));
    if (!l->rank && l->saved != l->done)
        return sk_fail(SK_EIO, "stopped at step %lld, but it could not be saved: %s",
                       (long long)l->done, l->why_not);
    return SK_ESTOP;
}

static sk_status draw(loop *l)
{
    sk_status st = sk_trace_file_rank(l->run, l->own, l->t->dir);
    SK_TRY(sk_run_barrier(l->run)); /* a piece that is not there is rank 0's to complain of */
    if (st && !l->rank) note(l, SK_REC_WARN, sk_error_line());
    if (l->rank) return SK_OK;
    if (sk_trace_file_merge(&l->arena, l->s->n_ranks, l->t->dir))
        note(l, SK_REC_WARN, sk_error_line());
    return SK_OK;
}

/* The run may have gone back afterwards. */
static sk_status finish(loop *l)
{
    if (l->s->job->trace && l->done > l->t->step) SK_TRY(draw(l));
    if (l->s->has_val && l->s->job->val_every) SK_TRY(validate(l));
    if (l->tried != l->done) SK_TRY(save(l));
    return SK_OK;
}

static sk_status steps(loop *l)
{
    while (!l->rate.steps || l->done < l->rate.steps) {
        sk_decision v;
        int64_t before = l->done;
        SK_TRY(change_layout(l));
        SK_TRY(one_step(l));
        if (l->done <= before) continue; /* it went back */
        SK_TRY(hear(l, &v));
        if (v.stop && l->done != l->rate.steps) return stopped(l);
        SK_TRY(between(l, &v));
    }
    return SK_OK;
}

static sk_status train(loop *l)
{
    enter(l, sk_relayout_at(l->t->setup, *l->t->from ? l->t->step : 0));
    SK_TRY(open_run(l));
    SK_TRY(meet_gpus(l));
    SK_TRY(set_rate(l));
    SK_TRY(first_weights(l));
    if (!l->rank) l->desk->began = sk_now();
    l->started = sk_now();
    l->hurry = sk_fault_clock();
    l->pace.every = l->s->job->ckpt_every.seconds;
    l->pace.began = l->pace.last = pace_now(l);
    do {
        SK_TRY(steps(l));
        SK_TRY(finish(l));
    } while (l->done < l->rate.steps);
    SK_TRY(export_model(l, "final", SK_REC_FINAL));
    if (l->rank || l->saved == l->done) return SK_OK;
    return sk_fail(SK_EIO,
                   "all %lld steps are done and the model is in %s/final, but the last checkpoint "
                   "was not saved: %s",
                   (long long)l->done, l->t->dir, l->why_not);
}

/* Before anything is closed, which may wait for others, and they for this rank. */
static void tell(const loop *l, sk_status st)
{
    if (sk_heaps_abort(l->t->heaps, st, l->rank, sk_error_line()))
        fprintf(stderr, "rank %d: %s\n", l->rank, sk_error());
}

sk_status sk_loop_rank(const sk_training *t, int rank)
{
    loop l = {.t = t,
              .desk = t->desk,
              .rank = rank,
              .tried = -1,
              .saved = -1,
              .back_to = -1,
              .metrics.fd = -1};
    sk_status st = train(&l);
    if (st && st != SK_ESTOP) tell(&l, st);
    sk_metrics_close(&l.metrics);
    close_run(&l);
    sk_arena_end(&l.arena);
    return st;
}
