/* picture_memory.c - what lives in a rank's heap at each of its instructions, by kind.
 *
 * Kept buffers, tables of calls and scratch are there all the time: their regions are those
 * of the memory plan.  Transient buffers live from their first instruction to their last, and a
 * result that takes over the memory of its operand is counted once.  So the drawn sum is
 * what any packing needs; the heap is larger by what the holes between buffers cost, and that is
 * said beside it.  The validation section, which shares the heap, is drawn behind the step. */
#include "cli/picture.h"

#include <inttypes.h>
#include <string.h>

enum { LINE = 64, WIDE = 520, HIGH = 150, COLUMNS = 260, STEP = 240, MOST = 8 }; /* MOST: charts */

/* From below. */
static const sk_kind order[SK_N_KINDS] = {SK_WEIGHTS, SK_GRADS,   SK_OPTIM, SK_WIRE,
                                          SK_ACTS,    SK_SCRATCH, SK_HOSTED};
static const char *const colours[SK_N_KINDS] = {
    [SK_WEIGHTS] = "#7fb2e5", [SK_GRADS] = "#f2b56b", [SK_OPTIM] = "#b9a5e2",
    [SK_WIRE] = "#e58f8f",    [SK_ACTS] = "#8fcf8a",  [SK_SCRATCH] = "#9db4c8",
    [SK_HOSTED] = "#d9d2c0"};

typedef struct moment {
    int64_t bytes[SK_N_KINDS];
} moment;

typedef struct profile {
    const sk_program *program;
    int class, classes, ranks; /* the first class, how many are alike, ranks of all of them */
    moment *at;                /* by instruction */
    int peak;
    int64_t peak_bytes;
} profile;

typedef struct profiles {
    profile *v;
    int n, cap;
} profiles;

static int64_t lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static int64_t total(const moment *m)
{
    int64_t sum = 0;
    for (int k = 0; k < SK_N_KINDS; k++) sum += m->bytes[k];
    return sum;
}

/* --- lives --- */

static bool transient(const sk_buffer *b)
{
    return !b->keep && b->within < 0 && b->first >= 0 && !b->placement && !b->joins;
}

/* The operand whose memory the first result of an instruction took over, or NULL. */
static const sk_buffer *taken_over(const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    const sk_buffer *y = in->act == SK_DO_OP && in->out[0] >= 0 ? &p->bufs.v[in->out[0]] : NULL;
    if (!y || !transient(y) || y->first != pc) return NULL;
    for (int i = 0; i < SK_MAX_IN && in->in[i] >= 0; i++) {
        const sk_buffer *x = &p->bufs.v[in->in[i]];
        if (transient(x) && x->last == pc && x->bytes && x->offset == y->offset) return x;
    }
    return NULL;
}

/* First what changes at each instruction. */
static void changes(const sk_program *p, moment *m)
{
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (!transient(b)) continue;
        m[b->first].bytes[b->kind] += lines(b->bytes);
        m[b->last + 1].bytes[b->kind] -= lines(b->bytes);
    }
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_buffer *x = taken_over(p, pc);
        if (!x) continue;
        m[pc].bytes[x->kind] -= lines(x->bytes);
        m[pc + 1].bytes[x->kind] += lines(x->bytes);
    }
}

static moment always(const sk_program *p)
{
    moment m;
    memcpy(m.bytes, p->kind_bytes, sizeof m.bytes);
    m.bytes[SK_ACTS] = 0;
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->keep && b->within < 0 && b->kind == SK_ACTS) m.bytes[SK_ACTS] += lines(b->bytes);
    }
    return m;
}

static sk_status measure(sk_arena *a, profile *f)
{
    const sk_program *p = f->program;
    moment now = always(p);
    f->at = sk_many(a, moment, p->insts.n + 1);
    f->peak_bytes = total(&now); /* of a program without instructions */
    changes(p, f->at);
    for (int pc = 0; pc < p->insts.n; pc++) {
        for (int k = 0; k < SK_N_KINDS; k++) now.bytes[k] += f->at[pc].bytes[k];
        f->at[pc] = now;
        if (total(&now) > f->peak_bytes) f->peak = pc, f->peak_bytes = total(&now);
    }
    if (f->peak_bytes <= p->own_bytes) return SK_OK;
    return sk_fail(SK_EBUG, "picture: %" PRId64 " bytes live on rank %d, its heap has %" PRId64,
                   f->peak_bytes, p->rank, p->own_bytes);
}

/* --- which ranks --- */

static bool alike(const sk_program *a, const sk_program *b)
{
    return a->stage == b->stage && a->own_bytes == b->own_bytes && a->n_train == b->n_train &&
           a->insts.n == b->insts.n && !memcmp(a->kind_bytes, b->kind_bytes, sizeof a->kind_bytes);
}

static void add_class(sk_arena *a, profiles *l, const sk_setup *s, int rank, int ranks)
{
    for (int i = 0; i < l->n; i++) {
        if (!alike(l->v[i].program, s->programs[rank])) continue;
        l->v[i].classes++;
        l->v[i].ranks += ranks;
        return;
    }
    *sk_push(a, l) = (profile){
        .program = s->programs[rank], .class = s->class_of[rank], .classes = 1, .ranks = ranks};
}

/* Classes that differ only in which rank owns a shard look the same here. */
static profiles collect(sk_arena *a, const sk_setup *s)
{
    profiles l = {0};
    int *ranks = sk_many(a, int, s->n_ranks + 1);
    for (int r = 0; r < s->n_ranks; r++) ranks[s->class_of[r]]++;
    for (int r = 0; r < s->n_ranks; r++)
        if (s->programs[r]) add_class(a, &l, s, r, ranks[s->class_of[r]]);
    return l;
}

static int fullest(const profiles *l)
{
    int best = 0;
    for (int i = 0; i < l->n; i++)
        if (l->v[i].program->own_bytes > l->v[best].program->own_bytes) best = i;
    return best;
}

/* Of too many, the fullest and some at equal distances. */
static int choose(const profiles *l, int pick[MOST])
{
    int n = 0, full = fullest(l);
    if (l->n <= MOST) {
        for (int i = 0; i < l->n; i++) pick[n++] = i;
        return n;
    }
    for (int i = 0; i < MOST; i++) {
        int at = (int)((int64_t)i * (l->n - 1) / (MOST - 1));
        int next = (int)((int64_t)(i + 1) * (l->n - 1) / (MOST - 1));
        pick[n++] = full >= at && full < next ? full : at;
    }
    return n;
}

/* --- drawing --- */

typedef struct plot {
    sk_sheet *sheet;
    const profile *f;
    int x, y;               /* of its lower left corner */
    int bins, bin[COLUMNS]; /* the instruction that each column shows */
} plot;

/* A column shows the fullest of its instructions, so that no peak gets lost. */
static void fill_bins(plot *t)
{
    int n = t->f->program->insts.n;
    t->bins = n < COLUMNS ? n : COLUMNS;
    for (int b = 0; b < t->bins; b++) {
        int from = (int)((int64_t)b * n / t->bins), to = (int)((int64_t)(b + 1) * n / t->bins);
        t->bin[b] = from;
        for (int pc = from; pc < to; pc++)
            if (total(&t->f->at[pc]) > total(&t->f->at[t->bin[b]])) t->bin[b] = pc;
    }
}

static double x_at(const plot *t, int bin) { return t->x + (double)WIDE * bin / t->bins; }

static double y_at(const plot *t, int64_t bytes)
{
    int64_t heap = t->f->program->own_bytes;
    return t->y - HIGH * (double)bytes / (double)(heap ? heap : 1);
}

/* The first `kinds` of the order, stacked. */
static double level(const plot *t, int bin, int kinds)
{
    int64_t sum = 0;
    for (int k = 0; k < kinds; k++) sum += t->f->at[t->bin[bin]].bytes[order[k]];
    return y_at(t, sum);
}

/* From the floor up to the top of kind k.  Kinds are drawn from above, each over the one before, so
 * that an edge is written once. */
static void put_area(const plot *t, int k)
{
    sk_out *o = &t->sheet->out;
    double before = -1;
    bool any = false;
    for (int b = 0; b < t->bins; b++) any |= t->f->at[t->bin[b]].bytes[order[k]] > 0;
    if (!any) return;
    sk_out_add(o, "<path fill=\"%s\" d=\"M%d %d", colours[order[k]], t->x, t->y);
    for (int b = 0; b < t->bins; b++) {
        double y = level(t, b, k + 1);
        if (y > before - 0.05 && y < before + 0.05) continue;
        if (b) sk_out_add(o, "H%.1f", x_at(t, b));
        sk_out_add(o, "V%.1f", y);
        before = y;
    }
    sk_out_add(o, "H%dV%dz\"><title>%s</title></path>\n", t->x + WIDE, t->y,
               sk_kind_names[order[k]]);
}

static void put_words(const plot *t)
{
    const profile *f = t->f;
    const sk_program *p = f->program;
    sk_arena *a = t->sheet->arena;
    int64_t loss = p->own_bytes - f->peak_bytes;
    const char *like = f->classes > 1 ? sk_print(a, " and %d like it", f->classes - 1) : "";
    const char *line = p->insts.n ? sk_inst_print(p, f->peak, a) : "no instructions";
    sk_out_add(
        &t->sheet->out,
        "<text x=\"%d\" y=\"%d\">class %d%s · stage %d · %d rank%s, the first is %d</text>\n"
        "<text x=\"%d\" y=\"%d\">heap %s B = peak %s B + packing loss %s B (%.1f %%)</text>\n"
        "<text class=\"mono\" font-size=\"9\" x=\"%d\" y=\"%d\"><title>%s</title>peak: %s"
        "</text>\n",
        t->x, t->y - HIGH - 42, f->class, like, p->stage, f->ranks, sk_plural(f->ranks), p->rank,
        t->x, t->y - HIGH - 28, sk_commas(a, p->own_bytes), sk_commas(a, f->peak_bytes),
        sk_commas(a, loss), p->own_bytes ? 100.0 * (double)loss / (double)p->own_bytes : 0, t->x,
        t->y - HIGH - 14, sk_sheet_text(a, line, 400), sk_sheet_text(a, line, 92));
}

static void put_marks(const plot *t)
{
    const profile *f = t->f;
    const sk_program *p = f->program;
    sk_arena *a = t->sheet->arena;
    int n = p->insts.n;
    double x = t->x + WIDE * (f->peak + 0.5) / n, end = t->x + (double)WIDE * p->n_train / n;
    sk_out_add(&t->sheet->out,
               "<path class=\"line\" d=\"M%d %dv%dh%d\"/><path class=\"line\" stroke-dasharray="
               "\"4 3\" d=\"M%d %dh%d\"/>\n<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#c03030\""
               "/>\n<text class=\"dim\" x=\"%d\" y=\"%d\">0</text><text class=\"dim\" x=\"%.1f\" "
               "y=\"%d\" text-anchor=\"end\">instruction %d</text>\n",
               t->x, t->y - HIGH, HIGH, WIDE, t->x, t->y - HIGH, WIDE, x, y_at(t, f->peak_bytes),
               t->x, t->y + 13, end, t->y + 13, p->n_train);
    if (p->n_train < n)
        sk_out_add(&t->sheet->out,
                   "<path class=\"line\" stroke-dasharray=\"2 3\" d=\"M%.1f %dv%d\"/><text "
                   "class=\"dim\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                   end, t->y - HIGH, HIGH, t->x + WIDE, t->y + 13,
                   end < t->x + WIDE - 60 ? sk_print(a, "validation %d", n) : "");
}

static void put_plot(plot *t)
{
    const profile *f = t->f;
    sk_out_add(&t->sheet->out,
               "<g class=\"memory\" data-class=\"%d\" data-ranks=\"%d\" data-heap=\"%" PRId64
               "\" data-peak=\"%" PRId64 "\" data-at=\"%d\">\n",
               f->class, f->ranks, f->program->own_bytes, f->peak_bytes, f->peak);
    put_words(t);
    if (f->program->insts.n) {
        fill_bins(t);
        for (int k = SK_N_KINDS - 1; k >= 0; k--) put_area(t, k);
        put_marks(t);
    }
    sk_out_add(&t->sheet->out, "</g>\n");
}

static void put_keys(sk_sheet *s)
{
    int x = SK_SHEET_LEFT;
    s->y += 18;
    for (int k = 0; k < SK_N_KINDS; k++)
        x = sk_sheet_key(s, x, colours[order[k]], sk_kind_names[order[k]]);
}

sk_status sk_picture_memory(sk_sheet *s, const sk_picture *in)
{
    profiles l = collect(s->arena, in->setup);
    int pick[MOST], n = choose(&l, pick);
    sk_sheet_title(s, "4  memory of a rank, instruction by instruction");
    sk_sheet_note(s, "dashed: the heap, as planned and mapped; the red dot: most bytes alive; the "
                     "rest of the heap is holes between buffers");
    if (n < l.n)
        sk_sheet_note(s, sk_print(s->arena,
                                  "a sample: %d of %d classes of ranks, the fullest among them", n,
                                  l.n));
    put_keys(s);
    for (int i = 0; i < n; i++) {
        plot *t = sk_new(s->arena, plot);
        SK_TRY(measure(s->arena, &l.v[pick[i]]));
        *t = (plot){.sheet = s, .f = &l.v[pick[i]]};
        t->x = SK_SHEET_LEFT + i % 2 * (WIDE + 60);
        t->y = s->y + STEP;
        put_plot(t);
        if (i % 2 || i == n - 1) s->y += STEP;
    }
    s->y += 20;
    return SK_OK;
}
