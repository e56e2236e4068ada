/* coll_timing.c - collectives by the clock.
 *
 * What lies in the heap of a rank that times collectives:
 *
 *     note call | numbers of the note | its workspace | counts | a call for each root | src | dst |
 * workspace
 *
 * The note is an all-reduce of a few doubles by which ranks agree: on how long
 * something took, so that all of them choose the same batch, and on the samples.
 * It stands at the same place for all points; the rest is laid anew for each. */
#include "plan/coll_timing.h"
#include "base/clock.h"
#include "coll/choose.h"
#include "coll/execute.h"
#include "plan/workers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST = 201,
    LEAST = 9,
    STARTS = 5,
    ROOTS = 8,    /* a batch goes through so many roots at most */
    PERIOD = 251, /* of the pattern; a prime, so that no piece of a buffer looks like another */
    LINE = 64,
    PAGE = 4096
};
static const double default_seconds = 0.2, timeout_s = 300;
static const double batch_here = 200e-6,
                    batch_between = 5e-3; /* seconds; on one host, on several */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(const double *sorted, int n, double part)
{
    return sorted[(int)(part * (n - 1) + 0.5)];
}

/* --- shapes --- */

static int64_t whole(const sk_coll_spec *s)
{
    int64_t n = s->bytes / (int64_t)sk_dtype_size(s->type);
    return s->kind == SK_ALLTOALLV ? n / s->n_ranks * s->n_ranks : n;
}

static int64_t edge(const sk_coll_spec *s, int i) { return whole(s) * i / s->n_ranks; }
static int64_t part(const sk_coll_spec *s, int i) { return edge(s, i + 1) - edge(s, i); }

static int roots(const sk_coll_spec *s)
{
    return !sk_kind_rooted(s->kind) ? 1 : s->n_ranks < ROOTS ? s->n_ranks : ROOTS;
}

/* The source is only my part. */
static bool part_in(sk_coll_kind k) { return sk_kind_rows[k].src == SK_OPERAND_PART; }

/* --- where things lie --- */

typedef struct place {
    int64_t note, numbers, note_workspace,
        note_workspace_bytes; /* alike for all points of n_ranks */
    int64_t counts, calls, call_bytes, src, dst, workspace, workspace_bytes, end;
} place;

static int64_t take(int64_t *at, int64_t bytes, int64_t align)
{
    int64_t here = (*at + align - 1) / align * align;
    *at = here + bytes;
    return here;
}

/* Most workspace that any member needs. */
static int64_t most_workspace(const sk_coll_spec *s, const sk_seg *seg, const int *host_of)
{
    int64_t most = 0;
    if (s->algorithm < 0 ||
        (sk_coll_parts[s->algorithm]->native && sk_coll_parts[s->algorithm]->build))
        return 0;
    sk_arena tmp = {0};
    int *ranks = sk_many(&tmp, int, s->n_ranks);
    for (int r = 0; r < s->n_ranks; r++) ranks[r] = r;
    for (int root = 0; root < roots(s); root++)
        for (int me = 0; me < s->n_ranks; me++) {
            sk_coll_ask ask;
            sk_coll_ask_for(s->kind, ranks, s->n_ranks, me, root, host_of, NULL, &ask);
            ask.degrees = s->degrees;
            int64_t bytes = sk_coll_workspace(sk_coll_parts[s->algorithm], &ask, s->type, seg, 1);
            if (bytes > most) most = bytes;
        }
    sk_arena_end(&tmp);
    return most;
}

static sk_seg shape(const sk_coll_spec *s, int64_t src, int64_t dst)
{
    int64_t n = whole(s);
    if (s->kind == SK_ALLTOALLV) n /= s->n_ranks;
    return (sk_seg){.src = src, .dst = dst, .outer = 1, .n = n, .inner = 1};
}

/* Of the note: the same on all ranks, as the preset's numbers are. */
static int note_algorithm(int n, const int *host_of, uint64_t *degrees)
{
    sk_arena tmp = {0};
    sk_coll_ask ask;
    int *ranks = sk_many(&tmp, int, n);
    for (int r = 0; r < n; r++) ranks[r] = r;
    sk_coll_ask_for(SK_ALLREDUCE, ranks, n, 0, 0, host_of, NULL, &ask);
    int at = sk_choose(&sk_costs_preset, &ask, sk_hosts_count(ranks, n, host_of), SK_SUM,
                       MOST * (int64_t)sizeof(double), NULL);
    *degrees = ask.degrees;
    sk_arena_end(&tmp);
    return at;
}

static place arrange(const sk_coll_spec *s, const int *host_of)
{
    place p = {.call_bytes = sizeof(sk_coll_call) + sizeof(sk_seg)};
    int64_t at = 0, n = s->n_ranks, size = (int64_t)sk_dtype_size(s->type);
    sk_coll_spec note = {.kind = SK_ALLREDUCE, .type = SK_F64, .n_ranks = s->n_ranks};
    sk_seg numbers = {.outer = 1, .n = MOST, .inner = 1}, seg = shape(s, 0, 0);
    note.algorithm = note_algorithm(s->n_ranks, host_of, &note.degrees);
    p.call_bytes = (p.call_bytes + LINE - 1) / LINE * LINE;
    p.note = take(&at, p.call_bytes, LINE);
    p.numbers = take(&at, MOST * (int64_t)sizeof(double), LINE);
    p.note_workspace_bytes = most_workspace(&note, &numbers, host_of);
    p.note_workspace = take(&at, p.note_workspace_bytes, LINE);
    p.counts = take(&at, 2 * n * (int64_t)sizeof(int64_t), LINE);
    p.calls = take(&at, roots(s) * p.call_bytes, LINE);
    p.src = take(&at, s->bytes + n * size, PAGE);   /* all-to-all: n parts, each rounded up */
    at = (at + PAGE - 1) / PAGE * PAGE + 33 * LINE; /* not in the cache sets of src */
    p.dst = take(&at, s->bytes + n * size, LINE);
    p.workspace_bytes = most_workspace(s, &seg, host_of);
    p.workspace = take(&at, p.workspace_bytes, PAGE);
    p.end = at;
    return p;
}

int64_t sk_time_heap(const sk_coll_spec *specs, int n, const int *host_of)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        int64_t end = arrange(&specs[i], host_of).end;
        if (end > most) most = end;
    }
    return most;
}

/* --- one rank --- */

typedef struct timer {
    sk_comm *comm;
    char *base;
    int rank;
    int note_algorithm;
    uint64_t note_degrees;
    double batch_seconds;
    const int *host_of;
    const sk_coll_spec *spec; /* the point at hand, and where it lies */
    place at;
    double seconds[MOST];
} timer;

static sk_coll_call *call_at(const timer *t, int64_t at)
{
    return (sk_coll_call *)(void *)(t->base + at);
}

static sk_coll_call *call_of(const timer *t, int root)
{
    return call_at(t, t->at.calls + root * t->at.call_bytes);
}

static sk_status do_call(timer *t, const sk_coll_call *call)
{
    SK_TRY(sk_comm_start(t->comm, call));
    return sk_comm_wait(t->comm, call);
}

/* v[i] becomes the sum or the largest over all ranks.  The barrier: nobody reads the last note. */
static sk_status agree(timer *t, sk_reduce reduce, double *v, int n)
{
    sk_coll_call *note = call_at(t, t->at.note);
    double *numbers = (double *)(void *)(t->base + t->at.numbers);
    SK_TRY(sk_comm_barrier(t->comm));
    *note = (sk_coll_call){.id = 1 + reduce,
                           .kind = SK_ALLREDUCE,
                           .reduce = reduce,
                           .type = SK_F64,
                           .n_segs = 1,
                           .algorithm = t->note_algorithm,
                           .degrees = t->note_degrees,
                           .workspace = t->at.note_workspace,
                           .workspace_bytes = t->at.note_workspace_bytes};
    note->segs[0] =
        (sk_seg){.src = t->at.numbers, .dst = t->at.numbers, .outer = 1, .n = n, .inner = 1};
    memcpy(numbers, v, (size_t)n * sizeof *v);
    SK_TRY(do_call(t, note));
    memcpy(v, numbers, (size_t)n * sizeof *v);
    return SK_OK;
}

static void lay_calls(timer *t, int64_t id)
{
    const sk_coll_spec *s = t->spec;
    int64_t size = (int64_t)sk_dtype_size(s->type), before = edge(s, t->rank) * size;
    int64_t src = t->at.src, dst = t->at.dst, *counts = (int64_t *)(void *)(t->base + t->at.counts);
    if (s->in_place && (s->kind == SK_ALLREDUCE || s->kind == SK_BROADCAST)) dst = src;
    if (s->in_place && s->kind == SK_REDUCE_SCATTER) dst = src + before;
    if (s->in_place && s->kind == SK_ALLGATHER) src = dst + before;
    for (int i = 0; i < s->n_ranks; i++) counts[i] = whole(s) / s->n_ranks;
    for (int r = 0; r < roots(s); r++) {
        sk_coll_call *call = call_of(t, r);
        *call = (sk_coll_call){.id = id + r,
                               .kind = s->kind,
                               .reduce = s->reduce,
                               .type = s->type,
                               .n_segs = 1,
                               .algorithm = s->algorithm,
                               .degrees = s->degrees,
                               .root = r,
                               .workspace = t->at.workspace,
                               .workspace_bytes = t->at.workspace_bytes,
                               .counts = t->at.counts};
        call->segs[0] = shape(s, src, dst);
    }
}

/* --- is it right? --- */

/* In place of a rank: -n stands for the reduction over the first n ranks. */

typedef struct pattern {
    char elements[PERIOD * 8];
} pattern;

/* Whole numbers so small that every sum is exact in the type. */
static double value(const sk_coll_spec *s, int rank, int i)
{
    static const int64_t exact[SK_N_DTYPES] = {
        [SK_F32] = 1 << 24, [SK_BF16] = 1 << 8,   [SK_F16] = 1 << 11, [SK_F64] = 1ll << 53,
        [SK_I32] = 1 << 30, [SK_I64] = 1ll << 53, [SK_U8] = 255};
    int64_t span = exact[s->type] / s->n_ranks;
    span = span > PERIOD ? PERIOD : span < 2 ? 2 : span;
    if (s->reduce == SK_ADASUM) rank = 0; /* of equal vectors it is that vector, exactly */
    return (double)((i * 7 + rank * 13) % span);
}

static double reduced(const sk_coll_spec *s, int n, int i)
{
    double x = value(s, 0, i);
    if (s->reduce == SK_ADASUM) return x;
    for (int r = 1; r < n; r++) {
        double y = value(s, r, i);
        x = s->reduce == SK_MAXIMUM ? fmax(x, y) : s->reduce == SK_MINIMUM ? fmin(x, y) : x + y;
    }
    return s->reduce == SK_MEAN ? x / n : x;
}

static void draw(const sk_coll_spec *s, int rank, pattern *out)
{
    double x[PERIOD];
    for (int i = 0; i < PERIOD; i++) x[i] = rank < 0 ? reduced(s, -rank, i) : value(s, rank, i);
    sk_convert(out->elements, s->type, x, SK_F64, PERIOD);
}

/* n elements that begin at the from-th of the whole vector. */
static void fill(const sk_coll_spec *s, int rank, char *to, int64_t from, int64_t n)
{
    size_t size = sk_dtype_size(s->type);
    pattern p;
    draw(s, rank, &p);
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t phase = (from + done) % PERIOD;
        run = PERIOD - phase < n - done ? PERIOD - phase : n - done;
        memcpy(to + done * (int64_t)size, p.elements + phase * (int64_t)size, (size_t)run * size);
    }
}

static int64_t differ(const sk_coll_spec *s, int rank, const char *x, int64_t from, int64_t n)
{
    size_t size = sk_dtype_size(s->type);
    int64_t wrong = 0;
    pattern p;
    draw(s, rank, &p);
    for (int64_t done = 0, run; done < n; done += run, x += run * (int64_t)size) {
        int64_t phase = (from + done) % PERIOD;
        const char *want = p.elements + phase * (int64_t)size;
        run = PERIOD - phase < n - done ? PERIOD - phase : n - done;
        if (!memcmp(x, want, (size_t)run * size)) continue;
        for (int64_t i = 0; i < run * (int64_t)size; i += (int64_t)size)
            wrong += memcmp(x + i, want + i, size) != 0;
    }
    return wrong;
}

static int64_t count_wrong(const timer *t, const sk_coll_call *call)
{
    const sk_coll_spec *s = t->spec;
    const char *dst = t->base + call->segs[0].dst;
    int64_t n = whole(s), from = edge(s, t->rank), mine = part(s, t->rank), wrong = 0;
    int64_t size = (int64_t)sk_dtype_size(s->type);
    const sk_kind_row *row = &sk_kind_rows[s->kind];
    bool part_out = row->dst == SK_OPERAND_PART;
    if (!sk_kind_gets(s->kind, t->rank == call->root)) return 0;
    if (sk_kind_sums(s->kind) || row->origin == SK_FROM_ROOT) {
        int whose =
            sk_kind_sums(s->kind) ? -sk_kind_terms(s->kind, t->rank, s->n_ranks) : call->root;
        return differ(s, whose, dst, part_out ? from : 0, part_out ? mine : n);
    }
    bool whole_out = part_in(s->kind); /* all-gather, gather; else what all-to-all brought me */
    for (int r = 0; r < s->n_ranks; r++)
        wrong += whole_out ? differ(s, r, dst + edge(s, r) * size, edge(s, r), part(s, r))
                           : differ(s, r, dst + r * mine * size, from, mine);
    return wrong;
}

/* Its time depends on the numbers: zeros would flatter it. */
static bool looks_at_data(const sk_coll_spec *s)
{
    return s->reduce == SK_ADASUM || (s->algorithm >= 0 && sk_coll_parts[s->algorithm]->packs);
}

static void write_source(timer *t, const sk_coll_call *call)
{
    const sk_coll_spec *s = t->spec;
    bool mine = part_in(s->kind);
    fill(s, t->rank, t->base + call->segs[0].src, mine ? edge(s, t->rank) : 0,
         mine ? part(s, t->rank) : whole(s));
}

static sk_status check(timer *t, int64_t *wrong)
{
    const sk_coll_spec *s = t->spec;
    const sk_coll_call *call = call_of(t, 1 % roots(s));
    size_t bytes = (size_t)s->bytes + (size_t)s->n_ranks * sk_dtype_size(s->type);
    memset(t->base + t->at.dst, 0xff, bytes);
    write_source(t, call);
    SK_TRY(sk_comm_barrier(t->comm));
    SK_TRY(do_call(t, call));
    double all = (double)count_wrong(t, call);
    SK_TRY(agree(t, SK_SUM, &all, 1)); /* after it all have looked */
    *wrong = (int64_t)all;
    if (looks_at_data(s)) return SK_OK;
    memset(t->base + t->at.src, 0, bytes);
    memset(t->base + t->at.dst, 0, bytes);
    return SK_OK;
}

/* --- samples --- */

static sk_status sample_fresh(timer *t, int batch, double *seconds)
{
    int n = roots(t->spec);
    double sum = 0;
    for (int i = 0; i < batch; i++) {
        const sk_coll_call *call = call_of(t, i % n);
        write_source(t, call);
        SK_TRY(sk_comm_barrier(t->comm));
        double start = sk_now();
        SK_TRY(do_call(t, call));
        sum += sk_now() - start;
    }
    *seconds = sum / batch;
    return SK_OK;
}

static sk_status sample(timer *t, int batch, double *seconds)
{
    int n = roots(t->spec);
    if (t->spec->fresh) return sample_fresh(t, batch, seconds);
    SK_TRY(sk_comm_barrier(t->comm));
    double start = sk_now();
    for (int i = 0; i < batch; i++) SK_TRY(do_call(t, call_of(t, i % n)));
    *seconds = (sk_now() - start) / batch;
    return SK_OK;
}

/* The quickest of three samples of one batch: {seconds of a call, of a sample with its barrier}. */
static sk_status estimate(timer *t, int batch, double best[2])
{
    best[0] = best[1] = HUGE_VAL;
    for (int i = 0; i < 3; i++) {
        double start = sk_now(), v[2];
        SK_TRY(sample(t, batch, &v[0]));
        v[1] = sk_now() - start;
        SK_TRY(agree(t, SK_MAXIMUM, v, 2));
        best[0] = fmin(best[0], v[0]);
        best[1] = fmin(best[1], v[1]);
    }
    return SK_OK;
}

static sk_status choose_batch(timer *t, int *batch, int *samples)
{
    double best[2], seconds = t->spec->seconds > 0 ? t->spec->seconds : default_seconds;
    int n = roots(t->spec);
    SK_TRY(estimate(t, 1, best));
    *batch = best[0] < t->batch_seconds / 2 ? (int)(t->batch_seconds / best[0]) + 1 : 1;
    if (best[0] < 10 * t->batch_seconds) *batch = (*batch + n - 1) / n * n; /* all roots alike */
    if (*batch > 1) SK_TRY(estimate(t, *batch, best));
    double fit = seconds / best[1];
    *samples = fit < LEAST ? LEAST : fit > MOST ? MOST : (int)fit;
    return SK_OK;
}

static double core_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sk_status time_start(timer *t, double *out)
{
    const sk_coll_call *call = call_of(t, 0);
    double took[STARTS], mean = 0;
    if (t->spec->algorithm < 0 || !sk_coll_parts[t->spec->algorithm]->build) return SK_OK;
    for (int i = 0; i < STARTS; i++) {
        SK_TRY(sk_comm_barrier(t->comm));
        double begin = core_now();
        SK_TRY(sk_comm_start(t->comm, call));
        took[i] = core_now() - begin;
        SK_TRY(sk_comm_wait(t->comm, call));
    }
    qsort(took, STARTS, sizeof *took, by_size);
    mean = took[STARTS / 2];
    SK_TRY(agree(t, SK_SUM, &mean, 1));
    *out = mean / t->spec->n_ranks;
    return SK_OK;
}

static sk_status time_point(timer *t, sk_coll_timing *out)
{
    int batch = 0, n = 0;
    *out = (sk_coll_timing){0};
    SK_TRY(check(t, &out->wrong));
    if (t->spec->starts) SK_TRY(time_start(t, &out->start));
    SK_TRY(choose_batch(t, &batch, &n));
    for (int k = 0; k < n; k++) SK_TRY(sample(t, batch, &t->seconds[k]));
    SK_TRY(agree(t, SK_MAXIMUM, t->seconds, n));
    qsort(t->seconds, (size_t)n, sizeof *t->seconds, by_size);
    out->median = at(t->seconds, n, 0.5);
    out->p10 = at(t->seconds, n, 0.1);
    out->p90 = at(t->seconds, n, 0.9);
    out->samples = n;
    out->batch = batch;
    return SK_OK;
}

static sk_status time_points(timer *t, const sk_coll_spec *specs, int n, sk_coll_timing *out)
{
    for (int i = 0; i < n; i++) {
        SK_TRY(sk_comm_barrier(t->comm)); /* nobody reads the calls of the last point any more */
        t->spec = &specs[i];
        t->at = arrange(t->spec, t->host_of);
        lay_calls(t, 16 + (int64_t)i * ROOTS);
        SK_TRY(time_point(t, &out[i]));
    }
    return SK_OK;
}

sk_status sk_time_rank(sk_heaps *h, const sk_comm_opts *ends, const sk_coll_spec *specs, int n,
                       sk_coll_timing *out)
{
    int n_ranks = specs[0].n_ranks;
    sk_arena a = {0};
    timer *t = sk_new(&a, timer);
    int *ranks = sk_many(&a, int, n_ranks);
    for (int r = 0; r < n_ranks; r++) ranks[r] = r;
    sk_group all = {.n = n_ranks, .me = ends->rank, .ranks = ranks};
    sk_comm_opts mine = *ends;
    mine.groups = &all;
    mine.n_groups = 1;
    t->rank = ends->rank;
    t->base = sk_heap_base(h, t->rank);
    t->host_of = ends->host_of;
    t->batch_seconds = t->host_of ? batch_between : batch_here;
    t->note_algorithm = note_algorithm(n_ranks, t->host_of, &t->note_degrees);
    sk_status st = sk_comm_open(h, &mine, &t->comm);
    if (!st) st = time_points(t, specs, n, out);
    sk_comm_close(t->comm);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

/* --- ranks of our own --- */

typedef struct coll_job {
    sk_heaps *heaps;
    const sk_coll_spec *specs;
    int n;
    sk_coll_timing *out; /* shared; rank 0 writes it */
} coll_job;

static sk_status coll_rank(void *ctx, int rank)
{
    const coll_job *j = ctx;
    sk_arena a = {0};
    sk_coll_timing *out = rank ? sk_many(&a, sk_coll_timing, j->n) : j->out;
    sk_comm_opts ends = {.rank = rank, .timeout_s = timeout_s};
    sk_worker_pin(rank);
    sk_status st = sk_time_rank(j->heaps, &ends, j->specs, j->n, out);
    sk_arena_end(&a);
    return st;
}

sk_status sk_time_colls(const sk_coll_spec *specs, int n, sk_coll_timing *out)
{
    if (n == 0) return SK_OK;
    sk_arena tmp = {0};
    int n_ranks = specs[0].n_ranks;
    int64_t *heap = sk_many(&tmp, int64_t, n_ranks), bytes = sk_time_heap(specs, n, NULL);
    coll_job j = {.specs = specs, .n = n};
    sk_assert(n_ranks > 0 && n_ranks <= SK_TIMED_RANKS);
    for (int i = 0; i < n; i++) sk_assert(specs[i].n_ranks == n_ranks);
    for (int r = 0; r < n_ranks; r++) heap[r] = bytes;
    sk_status st = sk_heaps_open(n_ranks, heap, true, (size_t)n * sizeof *out, &j.heaps);
    if (!st) {
        j.out = sk_heaps_extra(j.heaps);
        st = sk_workers_run(j.heaps, n_ranks, coll_rank, &j);
        if (!st) memcpy(out, j.out, (size_t)n * sizeof *out);
        sk_heaps_close(j.heaps);
    }
    sk_arena_end(&tmp);
    return st;
}
