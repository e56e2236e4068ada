/* goodput_job.c - the step and the checkpoints of a job on some number of GPUs. */
#include "cli/goodput_job.h"
#include "base/strings.h"
#include "run/run.h"
#include "train/setup_simulate.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts of other sizes */

/* The axis along which ranks are replicas; -1: there is none. */
static int replica_axis(const sk_layout *l)
{
    int dp = sk_mesh_axis(&l->mesh, "dp");
    for (int i = 0; dp < 0 && i < l->mesh.n; i++)
        if (i != l->stage_axis && sk_layout_splits(l, i, SK_LETTER_BATCH) &&
            !sk_layout_repeats(l, i))
            dp = i;
    return dp;
}

static int replicas_of(const sk_layout *l)
{
    int axis = replica_axis(l);
    return axis < 0 ? 1 : l->mesh.size[axis];
}

/* A layout without such an axis gets one, unless it is in the long form. */
static sk_status can_grow(const sk_job *job, const sk_layout *l)
{
    if (replica_axis(l) >= 0 || !strstr(job->layout, "mesh")) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: --gpus changes the number of replicas, and no axis of '%.200s' splits "
                   "the batch alone; add one, as 'mesh dp=1 ...; split b over dp'",
                   job->layout);
}

/* The job with so many replicas. */
static sk_status with_replicas(sk_arena *a, const sk_job *job, const sk_layout *l, int replicas,
                               sk_job *out)
{
    sk_layout other = *l;
    int axis = replica_axis(l);
    if (axis >= 0) other.mesh.size[axis] = replicas;
    const char *text =
        axis >= 0 ? sk_layout_print(a, &other) : sk_print(a, "dp=%d %s", replicas, job->layout);
    *out = *job;
    out->ranks = 0;
    if (strlen(text) >= sizeof out->layout)
        return sk_fail(SK_ECONF, "layout: with %d replicas it has %zu bytes, at most %zu are taken",
                       replicas, strlen(text), sizeof out->layout - 1);
    memcpy(out->layout, text, strlen(text) + 1);
    return SK_OK;
}

static sk_status base_layout(sk_arena *a, const sk_job *job, sk_layout *out)
{
    sk_setup *s = sk_new(a, sk_setup);
    SK_TRY(sk_setup_layout(a, job, s));
    *out = s->layout;
    return SK_OK;
}

/* ---- what a checkpoint holds */

typedef struct names {
    const sk_tensor_shard **v;
    int n, cap;
} names;

static int by_name(const void *x, const void *y)
{
    const sk_tensor_shard *const *a = x, *const *b = y;
    return strcmp((*a)->name, (*b)->name);
}

static double element_bytes(const sk_tensor_shard *b) { return (double)sk_dtype_size(b->type); }

/* Shapes of ranks have parts of the same tensors: each tensor is counted once, whole. */
static int64_t whole_bytes(names *all)
{
    double bytes = 0;
    qsort(all->v, (size_t)all->n, sizeof *all->v, by_name);
    for (int i = 0; i < all->n; i++) {
        const sk_tensor_shard *b = all->v[i];
        double each = element_bytes(b);
        if (i && !strcmp(b->name, all->v[i - 1]->name)) continue;
        for (int d = 0; d < b->n; d++) each *= (double)b->full[d];
        bytes += each;
    }
    return (int64_t)bytes;
}

/* A program is that of the first rank of its shape, which owns all shards that its shape has more
 * than one of (program/params.c): no rank of the shape writes more. */
static void count_state(sk_arena *a, const sk_program *const *programs, const int *shape_of,
                        sk_goodput_size *out)
{
    names all = {0};
    int n_shapes = 0;
    for (int r = 0; r < out->gpus; r++)
        if (shape_of[r] >= n_shapes) n_shapes = shape_of[r] + 1;
    double *kept = sk_many(a, double, n_shapes);
    for (int k = 0; k < n_shapes; k++) {
        sk_tensor_shard *v;
        double mine = 0;
        int n;
        sk_program_shards(programs[k], a, NULL, &v, &n);
        for (int i = 0; i < n; i++) {
            double bytes = element_bytes(&v[i]) * (double)sk_shard_count(&v[i]);
            kept[k] += bytes;
            if (!v[i].mine) continue;
            *(const sk_tensor_shard **)sk_push(a, &all) = &v[i];
            mine += bytes;
        }
        if (mine > (double)out->written) out->written = (int64_t)mine;
        if (kept[k] > (double)out->read) out->read = (int64_t)kept[k];
    }
    for (int r = 0; r < out->gpus; r++) out->read_all += kept[shape_of[r]];
    out->state = whole_bytes(&all);
}

/* ---- the step */

static sk_status simulate(sk_arena *a, const sk_setup *s, const sk_machine *m, sk_goodput_size *out)
{
    sk_simulated_step step;
    SK_TRY(sk_setup_simulate(a, s, m, &step));
    out->step = step.sim.seconds;
    out->memory = step.bytes;
    count_state(a, step.programs, step.shape_of, out);
    return SK_OK;
}

/* One line that can be read again. */
static const char *one_line(sk_arena *a, const sk_layout *l)
{
    sk_out o = {.arena = a};
    for (const char *p = sk_layout_print(a, l), *end; *p; p = end + (*end == '\n')) {
        end = p + strcspn(p, "\n");
        if (end > p) sk_out_add(&o, "%s%.*s", o.n ? "; " : "", (int)(end - p), p);
    }
    return o.s ? o.s : "";
}

static sk_status measure(sk_arena *tmp, sk_arena *a, const sk_job *job, const sk_machine *m,
                         int gpus, sk_goodput_size *out)
{
    sk_job *sized = sk_new(tmp, sk_job);
    sk_setup *s = sk_new(tmp, sk_setup);
    sk_goodput_size z = {0};
    *sized = *job;
    if (gpus) {
        sk_layout l;
        SK_TRY(base_layout(tmp, job, &l));
        int unit = sk_mesh_ranks(&l.mesh) / replicas_of(&l);
        SK_TRY(with_replicas(tmp, job, &l, gpus / unit, sized));
    }
    SK_TRY(sk_setup_layout(tmp, sized, s));
    SK_TRY(sk_setup_second_programs(s)); /* refuses what a run would */
    z.gpus = s->n_ranks;
    z.hosts = z.gpus / m->ranks_per_host + (z.gpus % m->ranks_per_host != 0);
    z.replicas = replicas_of(&s->layout);
    z.tokens = (double)job->batch * (sk_graph_is_sequences(&s->graph) ? (double)job->seq : 1);
    SK_TRY(simulate(tmp, s, m, &z));
    z.fits = !m->memory || z.memory <= m->memory;
    z.layout = one_line(a, &s->layout);
    z.title = sk_layout_title(a, &s->layout);
    *out = z;
    return SK_OK;
}

sk_status sk_goodput_size_of(sk_arena *a, const sk_job *job, const sk_machine *m, int gpus,
                             sk_goodput_size *out)
{
    sk_arena tmp = {0};
    sk_status st = measure(&tmp, a, job, m, gpus, out);
    sk_arena_end(&tmp);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

/* ---- which sizes */

static sk_status not_sizes(const char *text)
{
    return sk_fail(SK_EUSAGE,
                   "command line: --gpus is \"%.80s\"; a range is needed, as 1..64, or ascending "
                   "numbers, as 8,16,24, at most %d of them, each from 1 to %d",
                   text, SK_GOODPUT_SIZES, 1 << 20);
}

static bool read_count(const char *text, int *out)
{
    int64_t n;
    if (!sk_read_int(text, &n) || n < 1 || n > 1 << 20) return false;
    *out = (int)n;
    return true;
}

static sk_status read_range(sk_arena *a, const char *text, const char *dots, int unit, int *sizes,
                            int *n)
{
    int from, to;
    if (!read_count(sk_print(a, "%.*s", (int)(dots - text), text), &from) ||
        !read_count(dots + 2, &to) || from > to)
        return not_sizes(text);
    int last = to / unit * unit;
    for (int64_t k = ((int64_t)from + unit - 1) / unit * unit; k < last; k *= 2)
        sizes[(*n)++] = (int)k;
    if (last >= from) sizes[(*n)++] = last;
    if (!*n)
        return sk_fail(SK_EUSAGE,
                       "command line: --gpus is \"%.80s\"; a replica of the layout takes %d, and "
                       "no multiple of it is there",
                       text, unit);
    return SK_OK;
}

static sk_status read_list(sk_arena *a, const char *text, int unit, int *sizes, int *n)
{
    for (const char *p = text; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        int k = 0, last = *n ? sizes[*n - 1] : 0;
        const char *word = sk_print(a, "%.*s", (int)strcspn(p, ","), p);
        if (*n == SK_GOODPUT_SIZES || !read_count(word, &k) || k <= last) return not_sizes(text);
        if (k % unit)
            return sk_fail(SK_EUSAGE,
                           "command line: --gpus has %d; a replica of the layout takes %d, so "
                           "multiples of that are needed, as %d",
                           k, unit, (k / unit + 1) * unit);
        sizes[(*n)++] = k;
    }
    return SK_OK;
}

sk_status sk_goodput_sizes(sk_arena *a, const sk_job *job, const char *text, int *sizes, int *n)
{
    sk_layout l;
    const char *dots = strstr(text, "..");
    SK_TRY(base_layout(a, job, &l));
    SK_TRY(can_grow(job, &l));
    int unit = sk_mesh_ranks(&l.mesh) / replicas_of(&l);
    *n = 0;
    return dots ? read_range(a, text, dots, unit, sizes, n) : read_list(a, text, unit, sizes, n);
}
