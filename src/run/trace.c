/* trace.c - a step as a timeline. */
#include "run/trace.h"
#include "program/acts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    DOING = 0,
    GROUPS = 1,
    STAGES = 300,
    COPIES = 400
}; /* threads of a rank; groups are at most 256 */

typedef struct trace {
    FILE *to;
    double begin;
    bool any;
} trace;

static void comma(trace *t)
{
    fputs(t->any ? ",\n" : "\n", t->to);
    t->any = true;
}

/* Names of tensors and groups are plain words, but come from users. */
static void quoted(FILE *to, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', to);
        fputc((unsigned char)*s < ' ' ? ' ' : *s, to);
    }
}

static void thread_name(trace *t, int rank, int thread, const char *kind, const char *name)
{
    comma(t);
    fprintf(t->to,
            "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"",
            rank, thread);
    fputs(kind, t->to);
    quoted(t->to, name);
    fputs("\"}}", t->to);
}

static void names(trace *t, const sk_trace_rank *r)
{
    comma(t);
    fprintf(t->to,
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d",
            r->rank, r->rank);
    if (r->ranks > 1) fprintf(t->to, " and %d like it", r->ranks - 1);
    fputs("\"}}", t->to);
    thread_name(t, r->rank, DOING, "rank", "");
    if (!r->moving) return;
    if (r->program->n_copies) thread_name(t, r->rank, COPIES, "copies between memories", "");
    for (int g = 0; g < r->program->n_groups; g++)
        thread_name(t, r->rank, GROUPS + g, "bytes over ", sk_group_name(r->program, g));
    for (int s = 0; s < r->program->spread.n_stages; s++) {
        char name[16];
        snprintf(name, sizeof name, "%d", s);
        if (s != r->program->stage) thread_name(t, r->rank, STAGES + s, "bytes from stage ", name);
    }
}

static double grid(const trace *t, double seconds) /* in 1/64 us */
{
    return round((seconds - t->begin) * 64e6);
}

/* True: the slice was begun, and its arguments may follow. */
static bool slice(trace *t, int rank, int thread, const double *at)
{
    double from = grid(t, at[0]), to = grid(t, at[1]);
    if (!(to > from)) return false;
    comma(t);
    fprintf(t->to, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.6f,\"dur\":%.6f,\"name\":\"", rank,
            thread, from / 64, (to - from) / 64);
    return true;
}

static void rest(trace *t, const sk_inst *in, int pc)
{
    fprintf(t->to, "\",\"args\":{\"pc\":%d,\"micro\":%d,\"layer\":%d,\"phase\":\"%c\"", pc,
            in->micro, in->layer, in->phase == SK_FORWARD ? 'F' : 'B');
    if (in->flops > 0) fprintf(t->to, ",\"flops\":%.6g", in->flops);
    if (in->wire > 0) fprintf(t->to, ",\"bytes\":%" PRId64, in->wire);
    fputs("}}", t->to);
}

static void what(trace *t, const sk_trace_rank *r, const sk_inst *in)
{
    const sk_program *p = r->program;
    const char *joined = r->joined ? r->joined[in - p->insts.v] : NULL;
    if (joined) {
        quoted(t->to, joined);
        return;
    }
    if (in->act == SK_DO_OP) {
        quoted(t->to, in->node->op->name);
        return;
    }
    fprintf(t->to, "%s ", sk_act_row_of(in)->name);
    if (in->call >= 0) quoted(t->to, p->calls.v[in->call].what);
    else if (in->peer >= 0) fprintf(t->to, "rank %d", in->peer);
    else if (in->copy >= 0)
        fprintf(t->to, "to the %s ", sk_placement_names[p->bufs.v[in->out[0]].placement]);
    if (in->call < 0 && in->peer < 0 && in->out[0] >= 0) quoted(t->to, p->bufs.v[in->out[0]].name);
}

static void one(trace *t, const sk_trace_rank *r, int pc)
{
    const sk_program *p = r->program;
    const sk_inst *in = &p->insts.v[pc];
    bool waits = in->act == SK_DO_WAIT || in->act == SK_DO_RECV || in->act == SK_DO_COPIED;
    if (slice(t, r->rank, DOING, &r->times[2 * pc])) {
        what(t, r, in);
        rest(t, in, pc);
    }
    if (!r->moving || !waits) return;
    int thread = STAGES;
    if (in->copy >= 0) thread = COPIES;
    else if (in->call >= 0) thread = GROUPS + p->calls.v[in->call].group;
    else {
        int coord[SK_MAX_AXES];
        sk_mesh_coords(&p->layout.mesh, in->peer, coord);
        thread += coord[p->layout.stage_axis];
    }
    if (!slice(t, r->rank, thread, &r->moving[2 * pc])) return;
    what(t, r, in);
    rest(t, in, pc);
}

static sk_status written(FILE *to)
{
    if (ferror(to)) return sk_fail(SK_EIO, "cannot write the trace: the disk may be full");
    return SK_OK;
}

static void all_of(trace *t, const sk_trace_rank *r)
{
    names(t, r);
    for (int pc = 0; pc < r->n; pc++) one(t, r, pc);
}

sk_status sk_trace_write(FILE *to, const sk_trace_rank *ranks, int n, double begin)
{
    trace t = {.to = to, .begin = begin};
    fputs(SK_TRACE_HEAD, to);
    for (int i = 0; i < n; i++) all_of(&t, &ranks[i]);
    fputs(SK_TRACE_TAIL, to);
    return written(to);
}

sk_status sk_trace_piece(FILE *to, const sk_trace_rank *rank, double begin)
{
    trace t = {.to = to, .begin = begin};
    all_of(&t, rank);
    return written(to);
}
