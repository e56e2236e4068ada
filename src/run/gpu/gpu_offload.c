/* gpu_offload.c - copies between a GPU, the host and a file, and the optimizer on the host. */
#include "run/gpu/gpu_offload.h"
#include "base/clock.h"
#include "run/cpu/optimize.h"
#include "run/gpu/gpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

enum { IN, OUT, DIRECTIONS }; /* to the device, from it */
enum { NAP_US = 20, PAGE = 4096 };

typedef struct copying { /* by copy */
    sk_offload *w;
    const sk_inst *in;        /* that began it */
    sk_event *ready;          /* the compute stream has come to the COPY */
    sk_event *begin, *over;   /* of the copy itself, on its stream */
    sk_event *before, *after; /* the wait of the compute stream for it */
    int64_t order;            /* among those of its direction in this section */
    int first[DIRECTIONS];    /* of a file: copies that must be over before it; -1: none */
    double began;             /* of a file: when its bytes began to move */
    double waited;            /* by the host */
} copying;

typedef struct slot {
    char *data;
    sk_event *used; /* recorded after the latest copy from it or to it */
} slot;

struct sk_offload {
    sk_run *r;
    sk_device *d;
    sk_stream *compute, *copy_stream[DIRECTIONS];
    sk_stream *disk;          /* of the background worker */
    char *base;               /* of the pool */
    sk_step_scalars *scalars; /* on the device */
    sk_step_scalars *clip;    /* pinned: the results of CLIP */
    double *squares;          /* pinned: of offloaded gradients, for STATS */
    copying *copies;
    int64_t given[DIRECTIONS]; /* copies begun in this section */
    int due[DIRECTIONS]; /* the latest copy that the program has waited for and the host has not;
                            -1: none */
    sk_event *clipped;   /* the results of CLIP have arrived */
    bool unread;         /* and the host has not read them */
    int made, seen;      /* sums of the optimizer: computed by the host and not copied yet; as they
                            are on the device.  -1: none */
    sk_event *begun;     /* the section */
    double begun_at;
    slot slots[SK_OFFLOAD_SLOTS];
    int64_t next_slot;
    atomic_bool stop;
};

/* --- which instructions --- */

static bool by_host(const sk_program *p, const sk_inst *in)
{
    bool either = in->act == SK_DO_UPDATE || in->act == SK_DO_AVERAGE || in->act == SK_DO_NARROW;
    return in->act == SK_DO_JOIN || in->act == SK_DO_PEND || in->act == SK_DO_SQUARES ||
           (either && p->bufs.v[in->in[0]].placement);
}

bool sk_offload_does(const sk_program *p, const sk_inst *in)
{
    return in->act == SK_DO_COPY || in->act == SK_DO_COPIED || by_host(p, in);
}

bool sk_offload_any(const sk_program *p, int from, int to)
{
    for (int pc = from; pc < to; pc++)
        if (sk_offload_does(p, &p->insts.v[pc])) return true;
    return false;
}

/* A copy to a file or from one. */
static bool of_file(const sk_program *p, const sk_inst *in)
{
    return p->bufs.v[in->in[0]].placement == SK_FILE || p->bufs.v[in->out[0]].placement == SK_FILE;
}

/* --- opening --- */

typedef struct touch_job {
    char *base;
    size_t bytes;
} touch_job;

/* The kernel zeroes pages when they are first touched, which takes longer than pinning them. */
static void touch_part(void *ctx, int part, int of)
{
    const touch_job *j = ctx;
    size_t n = j->bytes / PAGE, at = n * (size_t)part / (size_t)of,
           end = n * ((size_t)part + 1) / (size_t)of;
    if (at < end && madvise(j->base + at * PAGE, (end - at) * PAGE, MADV_POPULATE_WRITE))
        return; /* then pinning touches them */
}

/* One region, since a copy must not cross the border of two.  Its first page may also hold
 * addresses of the device's part; these belong to this rank too. */
static void pin_host(sk_offload *w)
{
    const sk_program *p = w->r->p;
    size_t from = (size_t)p->kind_at[SK_HOSTED] / PAGE * PAGE;
    touch_job j = {w->r->base + from, ((size_t)p->heap_bytes - from + PAGE - 1) / PAGE * PAGE};
    if (!p->kind_bytes[SK_HOSTED]) return;
    sk_threads *team = sk_threads_open(p->threads);
    sk_threads_run(team, touch_part, &j);
    sk_threads_close(team);
    if (!sk_pin(w->d, j.base, j.bytes)) return;
    fprintf(stderr, "skein: rank %d: copies to and from the GPU will be slow: %s\n", p->rank,
            sk_error_line());
}

static sk_status open_copies(sk_arena *a, sk_offload *w)
{
    const sk_program *p = w->r->p;
    w->copies = sk_many(a, copying, p->n_copies + 1);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act != SK_DO_COPY) continue;
        copying *c = &w->copies[in->copy];
        *c = (copying){.w = w, .in = in};
        SK_TRY(sk_event_open(w->d, &c->ready));
        SK_TRY(sk_event_open(w->d, &c->begin));
        SK_TRY(sk_event_open(w->d, &c->over));
        SK_TRY(sk_event_open(w->d, &c->before));
        SK_TRY(sk_event_open(w->d, &c->after));
    }
    return SK_OK;
}

static sk_status open_slots(sk_offload *w)
{
    void *base = NULL;
    if (!w->r->p->file_bytes) return SK_OK;
    SK_TRY(sk_stream_open(w->d, &w->disk));
    SK_TRY(sk_pinned_open(w->d, (size_t)SK_OFFLOAD_SLOTS * SK_OFFLOAD_SLOT, &base));
    for (int i = 0; i < SK_OFFLOAD_SLOTS; i++) {
        w->slots[i].data = (char *)base + (size_t)i * SK_OFFLOAD_SLOT;
        SK_TRY(sk_event_open(w->d, &w->slots[i].used));
    }
    return SK_OK;
}

static sk_status open_all(sk_arena *a, sk_offload *w)
{
    void *numbers = NULL;
    for (int k = 0; k < DIRECTIONS; k++) SK_TRY(sk_stream_open(w->d, &w->copy_stream[k]));
    SK_TRY(sk_event_open(w->d, &w->clipped));
    SK_TRY(sk_event_open(w->d, &w->begun));
    SK_TRY(sk_pinned_open(w->d, sizeof *w->clip + sizeof *w->squares, &numbers));
    w->clip = numbers;
    w->squares = (double *)(void *)(w->clip + 1);
    SK_TRY(open_copies(a, w));
    SK_TRY(open_slots(w));
    pin_host(w);
    return SK_OK;
}

sk_status sk_offload_open(sk_arena *a, sk_run *r, sk_device *d, sk_stream *compute, char *base,
                          sk_step_scalars *scalars, sk_offload **out)
{
    *out = NULL;
    if (!sk_offload_any(r->p, 0, r->p->insts.n)) return SK_OK;
    sk_offload *w = sk_new(a, sk_offload);
    w->r = r;
    w->d = d;
    w->compute = compute;
    w->base = base;
    w->scalars = scalars;
    *out = w;
    return open_all(a, w);
}

void sk_offload_stop(sk_offload *w)
{
    if (w) atomic_store(&w->stop, true);
}

/* --- waiting --- */

/* `watch`: on the thread of the rank, which checks meanwhile whether the other ranks are well. */
static sk_status await(sk_offload *w, sk_event *e, bool watch)
{
    bool done = false;
    SK_TRY(sk_event_done(w->d, e, &done));
    while (!done) {
        if (atomic_load(&w->stop)) return sk_fail(SK_EIO, "the run was ended while bytes moved");
        if (watch) SK_TRY(sk_gpu_watch(w->r));
        usleep(NAP_US);
        SK_TRY(sk_event_done(w->d, e, &done));
    }
    return SK_OK;
}

/* Before the host touches its memory: waits for the copies that the program has waited for. */
static sk_status settle(sk_offload *w)
{
    for (int k = 0; k < DIRECTIONS; k++) {
        if (w->due[k] < 0) continue;
        copying *c = &w->copies[w->due[k]];
        double before = sk_now();
        SK_TRY(await(w, c->over, true));
        c->waited += sk_now() - before;
        w->due[k] = -1;
    }
    return SK_OK;
}

/* --- copies between the host and the device --- */

static char *place(const sk_offload *w, int buf)
{
    const sk_buffer *b = &w->r->p->bufs.v[buf];
    return (b->placement ? w->r->base : w->base) + b->offset;
}

static int direction_of(const sk_program *p, const sk_inst *in)
{
    return p->bufs.v[in->out[0]].placement == SK_DEVICE ? IN : OUT;
}

static sk_status copy(sk_offload *w, copying *c)
{
    const sk_inst *in = c->in;
    int k = direction_of(w->r->p, in);
    SK_TRY(sk_event_record(w->d, c->ready, w->compute));
    SK_TRY(sk_event_wait(w->d, c->ready, w->copy_stream[k]));
    SK_TRY(sk_event_record(w->d, c->begin, w->copy_stream[k]));
    SK_TRY(sk_device_copy(w->d, place(w, in->out[0]), place(w, in->in[0]),
                          (size_t)w->r->p->bufs.v[in->out[0]].bytes, w->copy_stream[k]));
    c->order = w->given[k]++;
    return sk_event_record(w->d, c->over, w->copy_stream[k]);
}

/* A stream executes in order, so the host needs to wait only for the latest copy of a direction. */
static sk_status copied(sk_offload *w, copying *c)
{
    int k = direction_of(w->r->p, c->in), *due = &w->due[k];
    SK_TRY(sk_event_record(w->d, c->before, w->compute));
    SK_TRY(sk_event_wait(w->d, c->over, w->compute));
    SK_TRY(sk_event_record(w->d, c->after, w->compute));
    if (*due < 0 || w->copies[*due].order < c->order) *due = c->in->copy;
    return SK_OK;
}

/* --- copies to and from the file, by the background worker --- */

static int64_t part_of(int64_t bytes, int64_t at)
{
    return bytes - at < SK_OFFLOAD_SLOT ? bytes - at : SK_OFFLOAD_SLOT;
}

static sk_status take_slot(sk_offload *w, slot **out)
{
    *out = &w->slots[w->next_slot++ % SK_OFFLOAD_SLOTS];
    return await(w, (*out)->used, false);
}

static sk_status from_file(copying *c, int64_t at, char *to, int64_t bytes)
{
    sk_offload *w = c->w;
    slot *s = NULL;
    c->began = sk_now();
    SK_TRY(sk_event_wait(w->d, c->ready, w->disk));
    for (int64_t i = 0; i < bytes; i += SK_OFFLOAD_SLOT) {
        int64_t n = part_of(bytes, i);
        SK_TRY(take_slot(w, &s));
        SK_TRY(sk_disk_read(w->r->disk, s->data, at + i, n));
        SK_TRY(sk_device_copy(w->d, to + i, s->data, (size_t)n, w->disk));
        SK_TRY(sk_event_record(w->d, s->used, w->disk));
    }
    return sk_event_record(w->d, c->over, w->disk);
}

/* Slots are filled ahead of the disk, and written in the order in which they were filled. */
static sk_status to_file(copying *c, int64_t at, char *from, int64_t bytes)
{
    sk_offload *w = c->w;
    slot *full[SK_OFFLOAD_SLOTS];
    SK_TRY(await(w, c->ready, false));
    c->began = sk_now();
    for (int64_t given = 0, i = 0; i < bytes; i += SK_OFFLOAD_SLOT) {
        for (; given < bytes && given < i + SK_OFFLOAD_SLOTS * (int64_t)SK_OFFLOAD_SLOT;
             given += SK_OFFLOAD_SLOT) {
            slot **s = &full[given / SK_OFFLOAD_SLOT % SK_OFFLOAD_SLOTS];
            SK_TRY(take_slot(w, s));
            SK_TRY(sk_device_copy(w->d, (*s)->data, from + given, (size_t)part_of(bytes, given),
                                  w->disk));
            SK_TRY(sk_event_record(w->d, (*s)->used, w->disk));
        }
        const slot *s = full[i / SK_OFFLOAD_SLOT % SK_OFFLOAD_SLOTS];
        SK_TRY(await(w, s->used, false));
        SK_TRY(sk_disk_write(w->r->disk, at + i, s->data, part_of(bytes, i)));
    }
    return SK_OK;
}

/* Between file and host.  Copies that the program has waited for may use the same host memory. */
static sk_status with_host(copying *c, const sk_buffer *from, const sk_buffer *to)
{
    sk_run *r = c->w->r;
    for (int k = 0; k < DIRECTIONS; k++)
        if (c->first[k] >= 0) SK_TRY(await(c->w, c->w->copies[c->first[k]].over, false));
    c->began = sk_now();
    return from->placement == SK_FILE
               ? sk_disk_read(r->disk, r->base + to->offset, from->offset, to->bytes)
               : sk_disk_write(r->disk, to->offset, r->base + from->offset, from->bytes);
}

static sk_status file_copy(void *ctx)
{
    copying *c = ctx;
    const sk_buffer *v = c->w->r->p->bufs.v, *from = &v[c->in->in[0]], *to = &v[c->in->out[0]];
    if (to->placement == SK_DEVICE)
        return from_file(c, from->offset, c->w->base + to->offset, to->bytes);
    if (from->placement == SK_DEVICE)
        return to_file(c, to->offset, c->w->base + from->offset, from->bytes);
    return with_host(c, from, to);
}

static sk_status begin_file_copy(sk_offload *w, copying *c)
{
    SK_TRY(sk_event_record(w->d, c->ready, w->compute));
    memcpy(c->first, w->due, sizeof c->first);
    sk_background_begin(w->r->copier, c->in->copy, file_copy, c);
    return SK_OK;
}

/* Bytes that are in a slot have left the device; those read from the file are on their way to it.
 */
static sk_status end_file_copy(sk_offload *w, copying *c, int pc)
{
    sk_run *r = w->r;
    double before = sk_now();
    SK_TRY(sk_background_wait(r->copier, c->in->copy, r->timeout_s));
    double waited = sk_now() - before, end = sk_background_times(r->copier, c->in->copy)[1];
    double took = end - c->began;
    r->copied += took;
    r->uncovered += waited < took ? waited : took;
    r->waited += waited;
    if (r->moving) r->moving[2 * pc] = c->began, r->moving[2 * pc + 1] = end;
    return r->p->bufs.v[c->in->out[0]].placement ? SK_OK : sk_event_wait(w->d, c->over, w->compute);
}

/* --- instructions of the host --- */

sk_status sk_offload_clipped(sk_offload *w)
{
    SK_TRY(sk_device_copy(w->d, w->clip, w->scalars, sizeof *w->clip, w->compute));
    w->unread = true;
    return sk_event_record(w->d, w->clipped, w->compute);
}

static sk_status read_clip(sk_offload *w)
{
    if (!w->unread) return SK_OK;
    SK_TRY(await(w, w->clipped, true));
    w->unread = false;
    w->r->scale = w->clip->scale;
    w->r->skip = w->clip->skip;
    w->r->out.grad_norm = w->clip->norm;
    return SK_OK;
}

sk_status sk_offload_squares(sk_offload *w, const double **out)
{
    *out = NULL;
    if (!w->r->p->layout.home[SK_GRAD]) return SK_OK;
    *w->squares = sk_offloaded_squares(w->r);
    *out = &w->scalars->more;
    return sk_device_copy(w->d, &w->scalars->more, w->squares, sizeof *w->squares, w->compute);
}

/* Sums of an optimizer with several passes lie on the device.  Those that the host computes are at
 * the same offset of the heap until ranks add them up. */
static sk_status take_sums(sk_offload *w, const sk_inst *in)
{
    const sk_buffer *v = w->r->p->bufs.v;
    int before = in->in[1], after = in->out[1];
    if (after >= 0 && after != w->made) {
        memset(w->r->base + v[after].offset, 0, (size_t)v[after].bytes);
        w->made = after;
    }
    if (before < 0 || before == w->seen || w->r->p->n_ranks == 1) return SK_OK;
    SK_TRY(sk_device_copy(w->d, w->r->base + v[before].offset, w->base + v[before].offset,
                          (size_t)v[before].bytes, w->compute));
    SK_TRY(sk_event_record(w->d, w->clipped, w->compute));
    w->seen = before;
    return await(w, w->clipped, true);
}

sk_status sk_offload_start(sk_offload *w, const sk_inst *in)
{
    const sk_call_plan *c = &w->r->p->calls.v[in->call];
    for (int s = 0; w->made >= 0 && s < c->n_segs; s++) {
        const sk_buffer *b = &w->r->p->bufs.v[c->segs[s].src];
        if (c->segs[s].src != w->made) continue;
        w->made = -1;
        SK_TRY(sk_device_copy(w->d, w->base + b->offset, w->r->base + b->offset, (size_t)b->bytes,
                              w->compute));
    }
    return SK_OK;
}

static sk_status update(sk_offload *w, const sk_inst *in)
{
    if (in->background) { /* until JOIN only the optimizer uses that memory */
        sk_do_update(w->r, in);
        return SK_OK;
    }
    SK_TRY(read_clip(w));
    SK_TRY(settle(w));
    SK_TRY(take_sums(w, in));
    sk_do_update(w->r, in);
    return SK_OK;
}

sk_status sk_offload_issue(sk_offload *w, int pc)
{
    sk_run *r = w->r;
    const sk_inst *in = &r->p->insts.v[pc];
    copying *c = in->copy < 0 ? NULL : &w->copies[in->copy];
    switch (in->act) {
    case SK_DO_COPY:
        return of_file(r->p, in) ? begin_file_copy(w, c) : copy(w, c);
    case SK_DO_COPIED:
        return of_file(r->p, in) ? end_file_copy(w, c, pc) : copied(w, c);
    case SK_DO_UPDATE:
        return update(w, in);
    case SK_DO_JOIN:
        return sk_do_join(r);
    case SK_DO_NARROW:
        SK_TRY(settle(w));
        sk_do_narrow(r, in);
        return SK_OK;
    case SK_DO_PEND:
    case SK_DO_AVERAGE:
        SK_TRY(read_clip(w));
        SK_TRY(settle(w));
        (in->act == SK_DO_PEND ? sk_do_pend : sk_do_average)(r, in);
        return SK_OK;
    default:
        SK_TRY(settle(w));
        sk_do_squares(r, in);
        return SK_OK;
    }
}

/* --- a section --- */

sk_status sk_offload_begin(sk_offload *w)
{
    for (int k = 0; k < DIRECTIONS; k++) w->given[k] = 0, w->due[k] = -1;
    for (int i = 0; i < w->r->p->n_copies; i++) w->copies[i].waited = 0;
    w->unread = false;
    w->made = w->seen = -1;
    w->begun_at = sk_now();
    return sk_event_record(w->d, w->begun, w->compute);
}

/* Of the seconds of a copy, those are exposed that the compute stream or the host waited. */
static sk_status read_times(sk_offload *w, copying *c, int pc)
{
    sk_run *r = w->r;
    double took = 0, waited = 0, at = 0;
    SK_TRY(sk_event_seconds(w->d, c->begin, c->over, &took));
    SK_TRY(sk_event_seconds(w->d, c->before, c->after, &waited));
    r->waited += c->waited;
    if (waited < c->waited) waited = c->waited;
    r->copied += took;
    r->uncovered += waited < took ? waited : took;
    if (!r->moving) return SK_OK;
    SK_TRY(sk_event_seconds(w->d, w->begun, c->begin, &at));
    r->moving[2 * pc] = w->begun_at + at;
    r->moving[2 * pc + 1] = w->begun_at + at + took;
    return SK_OK;
}

sk_status sk_offload_end(sk_offload *w, int from, int to)
{
    for (int pc = from; pc < to; pc++) {
        const sk_inst *in = &w->r->p->insts.v[pc];
        if (in->act == SK_DO_COPIED && !of_file(w->r->p, in))
            SK_TRY(read_times(w, &w->copies[in->copy], pc));
    }
    return SK_OK;
}
