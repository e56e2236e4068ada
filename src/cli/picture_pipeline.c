/* picture_pipeline.c - the tasks of a simulated step, over time.
 *
 * A row is a stage, shown by its first rank; without a pipeline, a simulated rank of each class.  A
 * box is a run of ops of one micro-batch, chunk and task kind in the program of the rank, from the
 * first that takes time to the last; the strip at its foot is as long as the part of that time in
 * which the rank waits.  Time without a task is blank.  Of a long step the middle is not drawn: the
 * beginning and the end are what differs between schedules. */
#include "cli/picture.h"

#include <math.h>
#include <stdio.h>

enum { LABEL = 90, WIDE = SK_SHEET_WIDE - 2 * SK_SHEET_LEFT - LABEL, HIGH = 22, STEP = 27 };
enum { MOST_ROWS = 16, MOST_TASKS = 150, BREAK = 20, SHADES = 4 }; /* tasks of a row */

typedef struct task {
    sk_task_kind work;
    int micro, chunk;
    double begin, end, waits;
} task;

typedef struct tasks {
    task *v;
    int n, cap;
    task last; /* sums, clipping, optimizer */
} tasks;

typedef struct view {            /* two windows on the step, or one */
    double seconds, left, right; /* drawn are [0, left] and [right, seconds] */
    double scale;                /* pixels a second */
} view;

typedef struct chart {
    sk_sheet *sheet;
    const sk_picture *in;
    const sk_simulated_rank *rows[MOST_ROWS];
    tasks of[MOST_ROWS];
    int n, all; /* rows drawn, rows there are */
    int stages;
    view view;
} chart;

static const char *const duty_colours[] = {"#7fb2e5", "#8fcf8a", "#6fcfc4", "#f2b56b", "#b9a5e2"};
static const char *const duty_words[] = {"F forward", "B backward", "I input half", "W weight half",
                                         "U update"};
static const char last_colour[] = "#b9a5e2", wait_colour[] = "#c03030";

/* --- what a row does --- */

static bool waits(const sk_inst *in)
{
    return in->act == SK_DO_WAIT || in->act == SK_DO_RECV || in->act == SK_DO_SENT;
}

/* A task goes on as long as its ops have the same three numbers. */
static task *task_of(sk_arena *a, tasks *l, const sk_program *p, const sk_inst *in)
{
    int chunk = in->node && in->node->id != SK_NO_NODE ? p->spread.chunk[in->node->id] : p->stage;
    task *t = l->n ? &l->v[l->n - 1] : NULL;
    if (t && t->work == in->work && t->micro == in->micro && t->chunk == chunk) return t;
    t = sk_push(a, l);
    *t = (task){.work = in->work, .micro = in->micro, .chunk = chunk};
    return t;
}

/* Until an op takes time the task has not begun; true if this one does. */
static bool stretch(task *t, double from, double to, double waited)
{
    if (t->end <= t->begin) {
        t->begin = from;
        t->end = to;
    } else if (to > from) {
        t->waits += waited;
        t->end = to;
    }
    return to > from;
}

/* Waiting counts when the task goes on afterwards. */
static tasks read_row(sk_arena *a, const sk_simulated_rank *r)
{
    const sk_program *p = r->program;
    tasks l = {0};
    double waited = 0;
    for (int pc = 0; pc < p->n_train; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        double from = r->times[2 * pc], to = r->times[2 * pc + 1];
        bool own = in->act == SK_DO_UPDATE && in->scale > 0; /* a task among the others */
        bool ending =
            (in->act == SK_DO_UPDATE && !own) || in->act == SK_DO_CLIP || in->act == SK_DO_STATS;
        if (waits(in)) waited += to - from;
        if (!ending && !own && in->act != SK_DO_OP) continue;
        int before = l.n;
        task *t = ending ? &l.last : task_of(a, &l, p, in);
        if (l.n > before) waited = 0;
        if (stretch(t, from, to, waited)) waited = 0;
    }
    return l;
}

/* --- which rows --- */

static void add_row(chart *c, const sk_simulated_rank *r)
{
    c->of[c->n] = read_row(c->sheet->arena, r);
    c->rows[c->n++] = r;
}

static const sk_simulated_rank *first_of_stage(const sk_simulation *p, int stage)
{
    for (int i = 0; i < p->n; i++)
        if (p->v[i].stage == stage) return &p->v[i];
    return NULL;
}

/* Too many: the first and the last half. */
static void choose_rows(chart *c)
{
    const sk_simulation *p = c->in->simulated;
    bool pipe = c->in->setup->layout.stage_axis >= 0;
    c->all = pipe ? c->stages : p->n;
    for (int i = 0; i < c->all; i++) {
        if (c->all > MOST_ROWS && i >= MOST_ROWS / 2 && i < c->all - MOST_ROWS / 2) continue;
        const sk_simulated_rank *r = pipe ? first_of_stage(p, i) : &p->v[i];
        if (r) add_row(c, r);
    }
}

static void choose_view(chart *c)
{
    view *v = &c->view;
    int most = 0;
    for (int i = 0; i < c->n; i++)
        if (c->of[i].n > most) most = c->of[i].n;
    v->seconds = c->in->simulated->seconds;
    v->left = v->right = v->seconds;
    v->scale = v->seconds > 0 ? WIDE / v->seconds : 0;
    if (most <= MOST_TASKS) return;
    v->left = v->seconds * MOST_TASKS / most / 2;
    v->right = v->seconds - v->left;
    v->scale = (WIDE - BREAK) / (2 * v->left);
}

/* --- drawing --- */

static double x_of(const view *v, double t)
{
    double x = SK_SHEET_LEFT + LABEL;
    if (t <= v->left) return x + v->scale * t;
    if (t >= v->right && v->right > v->left) return x + WIDE - v->scale * (v->seconds - t);
    return x + v->scale * v->left + BREAK / 2.0;
}

/* What is partly in the part left out ends at its edge. */
static bool visible(const view *v, const task *t, double *x, double *wide)
{
    if (t->begin >= v->left && t->end <= v->right && v->right > v->left) return false;
    double begin = t->begin > v->left && t->begin < v->right ? v->right : t->begin;
    double end = t->end > v->left && t->end < v->right ? v->left : t->end;
    *x = x_of(v, begin);
    *wide = x_of(v, end) - *x;
    return true;
}

static const char *when(const chart *c, double t)
{
    sk_arena *a = c->sheet->arena;
    if (c->in->machine->unit) return sk_print(a, "%g units", t);
    return t < 1e-3 ? sk_print(a, "%.4g us", 1e6 * t)
           : t < 1  ? sk_print(a, "%.4g ms", 1e3 * t)
                    : sk_print(a, "%.4g s", t);
}

/* A micro-batch as in doc/pipelines.md: F3, or F3.1 where a stage has several chunks. */
static const char *name_of(const chart *c, const task *t, int chunks)
{
    sk_arena *a = c->sheet->arena;
    if (chunks > c->stages)
        return sk_print(a, "%c%d.%d", "FBIWU"[t->work], t -> micro, t -> chunk / c -> stages);
    return sk_print(a, "%c%d", "FBIWU"[t->work], t -> micro);
}

static void put_box(chart *c, const task *t, int y, const char *kind, const char *name)
{
    double x, wide;
    if (!visible(&c->view, t, &x, &wide)) return;
    sk_out_add(&c->sheet->out,
               "<rect class=\"%s%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>%s: "
               "%s to %s</title></rect>\n",
               kind, wide < 3 ? "" : " edge", x, y, fmax(wide, 0.4), HIGH, name, when(c, t->begin),
               when(c, t->end));
    double share = t->end > t->begin ? t->waits / (t->end - t->begin) : 0;
    if (share * wide >= 0.5)
        sk_out_add(&c->sheet->out, "<path d=\"M%.1f %dh%.1f\" stroke=\"%s\" stroke-width=\"3\"/>\n",
                   x, y + HIGH - 2, share * wide, wait_colour);
}

static void put_number(chart *c, const task *t, int y)
{
    double x, wide;
    int digits = t->micro < 10 ? 1 : t->micro < 100 ? 2 : t->micro < 1000 ? 3 : 5;
    if (!visible(&c->view, t, &x, &wide) || wide < 5.6 * digits) return;
    sk_out_add(&c->sheet->out,
               "<text class=\"in\" x=\"%.1f\" y=\"%d\" font-size=\"9\" text-anchor=\"middle\">%d"
               "</text>\n",
               x + wide / 2, y + 14, t->micro);
}

static void put_row(chart *c, int i)
{
    const sk_simulated_rank *r = c->rows[i];
    const tasks *l = &c->of[i];
    sk_arena *a = c->sheet->arena;
    int y = c->sheet->y;
    sk_out_add(&c->sheet->out, "<g class=\"row\" data-stage=\"%d\" data-rank=\"%d\">\n", r->stage,
               r->rank);
    sk_out_add(&c->sheet->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", SK_SHEET_LEFT, y + 14,
               c->in->setup->layout.stage_axis >= 0
                   ? sk_print(a, "stage %d", r->stage)
                   : sk_print(a, "rank %d × %d", r->rank, r->ranks));
    for (int k = 0; k < l->n; k++) {
        const task *t = &l->v[k];
        int shade = t->chunk / c->stages % SHADES;
        put_box(c, t, y, sk_print(a, "task %c%d", "FBIWU"[t->work], shade),
                name_of(c, t, r->program->spread.n_chunks));
        put_number(c, t, y);
    }
    if (l->last.end > l->last.begin) put_box(c, &l->last, y, "U", "sums, clipping, optimizer");
    sk_out_add(&c->sheet->out, "</g>\n");
    c->sheet->y += STEP;
}

/* Towards white: the chunks of a stage, one after the other. */
static const char *shaded(sk_arena *a, const char *colour, int shade)
{
    unsigned rgb = 0;
    sscanf(colour, "#%6x", &rgb);
    unsigned part[3] = {rgb >> 16 & 255, rgb >> 8 & 255, rgb & 255};
    for (int i = 0; i < 3; i++) part[i] += (255 - part[i]) * (unsigned)shade / (SHADES + 1);
    return sk_print(a, "#%02x%02x%02x", part[0], part[1], part[2]);
}

static void put_colours(chart *c)
{
    sk_arena *a = c->sheet->arena;
    sk_out_add(&c->sheet->out, "<style>");
    for (int w = 0; w < SK_N_WORKS; w++)
        for (int k = 0; k < SHADES; k++)
            sk_out_add(&c->sheet->out, ".%c%d{fill:%s}", "FBIWU"[w], k,
                       shaded(a, duty_colours[w], k));
    sk_out_add(&c->sheet->out, ".U{fill:%s}</style>\n", last_colour);
}

static void put_keys(chart *c)
{
    bool seen[SK_N_WORKS] = {0}, last = false, chunks = false;
    int x = SK_SHEET_LEFT;
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < c->of[i].n; k++) seen[c->of[i].v[k].work] = true;
        last |= c->of[i].last.end > c->of[i].last.begin;
        chunks |= c->rows[i]->program->spread.n_chunks > c->stages;
    }
    c->sheet->y += 18;
    for (int w = 0; w < SK_N_WORKS; w++)
        if (seen[w]) x = sk_sheet_key(c->sheet, x, duty_colours[w], duty_words[w]);
    if (last) x = sk_sheet_key(c->sheet, x, last_colour, "sums, clipping, optimizer");
    if (!c->in->machine->unit) x = sk_sheet_key(c->sheet, x, wait_colour, "share spent waiting");
    if (chunks) sk_sheet_note(c->sheet, "lighter: the later chunks of a stage");
}

static const char *title(const chart *c)
{
    const sk_simulation *p = c->in->simulated;
    const sk_layout *l = &c->in->setup->layout;
    double step = p->seconds > 0 ? p->seconds : 1;
    return sk_print(c->sheet->arena, "3  %s: %s, bubble %.1f %%, exposed %.1f %% of the step",
                    l->stage_axis >= 0 ? sk_print(c->sheet->arena, "pipeline %s", l->schedule)
                                       : "tasks of a step",
                    when(c, p->seconds), 100 * p->bubble / step, 100 * p->exposed / step);
}

static void say_sample(chart *c)
{
    sk_arena *a = c->sheet->arena;
    bool pipe = c->in->setup->layout.stage_axis >= 0;
    sk_out o = {.arena = a};
    sk_out_add(
        &o, "machine %s%s; %s; bubble and exposed are means over all ranks", c->in->machine->name,
        c->in->machine->unit ? ": a block costs 1 forward and 2 backward, the rest nothing" : "",
        pipe ? "a row is the first rank of a stage"
             : "a row is a class of ranks, its first × how many");
    sk_sheet_note(c->sheet, o.s);
    if (c->n < c->all)
        sk_sheet_note(c->sheet, sk_print(a, "a sample: the first and the last %d of %d %s",
                                         MOST_ROWS / 2, c->all, pipe ? "stages" : "classes"));
    if (c->view.right > c->view.left)
        sk_sheet_note(c->sheet, sk_print(a, "a sample: the first and the last %.2g %% of the step",
                                         100 * c->view.left / c->view.seconds));
}

static void put_time(chart *c)
{
    const view *v = &c->view;
    int x = SK_SHEET_LEFT + LABEL, y = c->sheet->y + 10;
    sk_out_add(&c->sheet->out,
               "<text class=\"dim\" x=\"%d\" y=\"%d\">0</text><text class=\"dim\" x=\"%d\" "
               "y=\"%d\" text-anchor=\"end\">%s</text>\n",
               x, y, x + WIDE, y, when(c, v->seconds));
    if (v->right > v->left)
        sk_out_add(&c->sheet->out,
                   "<path class=\"line\" stroke-dasharray=\"3 3\" d=\"M%.1f %dv%d\"/>\n",
                   x_of(v, (v->left + v->right) / 2), c->sheet->y - STEP * c->n, STEP * c->n);
    c->sheet->y += 12;
}

void sk_picture_pipeline(sk_sheet *s, const sk_picture *in)
{
    const sk_layout *l = &in->setup->layout;
    chart *c = sk_new(s->arena, chart);
    *c = (chart){.sheet = s, .in = in};
    c->stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis];
    choose_rows(c);
    choose_view(c);
    sk_sheet_title(s, title(c));
    say_sample(c);
    put_colours(c);
    put_keys(c);
    s->y += 10;
    for (int i = 0; i < c->n; i++) put_row(c, i);
    put_time(c);
}
