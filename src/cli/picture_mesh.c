/* picture_mesh.c - the mesh: a box for each rank, its stage as colour, a frame around a host.
 *
 * The last axes run across and the others down, so that ranks that sit side by side in
 * the picture have neighbouring numbers.  Of a long axis only the first places and the last one are
 * drawn; the longest axis gives way first, and the one of the stages last.  A mesh of one axis is
 * written like text, in rows of sixteen. */
#include "cli/picture.h"

#include <string.h>

enum {
    MOST_ACROSS = 16,
    MOST_DOWN = 24,
    MOST_WRAPPED = 8,
    WIDE = 62,
    HIGH = 30,
    STEP = 48,
    LABEL = 120,
    GAP = 12
};

typedef struct grid {
    sk_sheet *sheet;
    const sk_picture *in;
    const sk_mesh *mesh;
    int down;               /* the axes before this one run down */
    int shown[SK_MAX_AXES]; /* places drawn along each axis */
    bool wrapped;           /* one axis, in rows */
    int row;
} grid;

static int product(const grid *g, int from, int to)
{
    int n = 1;
    for (int a = from; a < to; a++) n *= g->shown[a];
    return n;
}

static int widest(const grid *g, int from, int to, int but)
{
    int best = -1;
    for (int a = from; a < to; a++)
        if (a != but && g->shown[a] > 2 && (best < 0 || g->shown[a] > g->shown[best])) best = a;
    return best;
}

/* Fewer places along the longest of these axes, until all boxes have room. */
static void thin_out(grid *g, int from, int to, int most)
{
    int stages = g->in->setup->layout.stage_axis;
    while (product(g, from, to) > most) {
        int a = widest(g, from, to, stages);
        if (a < 0) a = widest(g, from, to, -1);
        for (int i = from; a < 0 && i < to; i++)
            if (g->shown[i] > 1) a = i; /* axes of two, and many of them */
        g->shown[a]--;
    }
}

static void arrange(grid *g)
{
    const sk_mesh *m = g->mesh;
    int across = 1;
    for (g->down = m->n; g->down > 0; g->down--) {
        int size = m->size[g->down - 1];
        if (g->down < m->n && (across >= MOST_ACROSS || size > MOST_ACROSS / across)) break;
        across = size > MOST_ACROSS ? MOST_ACROSS : across * size;
    }
    if (g->down == 0 && m->n > 1) g->down = 1; /* two directions say more than one */
    for (int a = 0; a < m->n; a++)
        g->shown[a] = m->size[a] < 2 * MOST_DOWN ? m->size[a] : 2 * MOST_DOWN;
    g->wrapped = m->n == 1 && m->size[0] > MOST_ACROSS;
    if (g->wrapped) {
        int most = MOST_ACROSS * MOST_WRAPPED;
        g->shown[0] = m->size[0] < most ? m->size[0] : most;
        return;
    }
    thin_out(g, 0, g->down, MOST_DOWN);
    thin_out(g, g->down, m->n, MOST_ACROSS);
}

/* The coordinates of the i-th row (axes before `down`) or column; is there a gap before it? */
static bool place(const grid *g, int from, int to, int i, int coord[SK_MAX_AXES])
{
    bool gap = false, inner_first = true;
    if (g->wrapped) {
        coord[0] = g->row * MOST_ACROSS + i;
        return false;
    }
    for (int a = to - 1; a >= from; a--) {
        int at = i % g->shown[a], last = g->shown[a] - 1;
        bool thin = g->shown[a] < g->mesh->size[a];
        i /= g->shown[a];
        gap |= thin && at == last && last > 0 && inner_first;
        inner_first = inner_first && at == 0;
        coord[a] = thin && at == last && last > 0 ? g->mesh->size[a] - 1 : at;
    }
    return gap;
}

static const char *label(const grid *g, int from, int to, const int *coord)
{
    sk_out o = {.arena = g->sheet->arena};
    for (int a = from; a < to; a++)
        sk_out_add(&o, "%s%s %d", a > from ? " · " : "", g->mesh->name[a], coord[a]);
    return o.s ? sk_sheet_text(o.arena, o.s, 20) : "";
}

static const char *coordinates(const grid *g, const int *coord)
{
    sk_out o = {.arena = g->sheet->arena};
    for (int a = 0; a < g->mesh->n; a++) sk_out_add(&o, "%s%d", a ? "," : "", coord[a]);
    return o.s ? o.s : "";
}

static void box(const grid *g, int x, int y, const int *coord)
{
    const sk_layout *l = &g->in->setup->layout;
    int rank = sk_mesh_rank(g->mesh, coord);
    int stage = l->stage_axis < 0 ? 0 : coord[l->stage_axis];
    sk_out_add(&g->sheet->out,
               "<rect class=\"rank\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" "
               "fill=\"%s\"/><text class=\"in\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>"
               "<text class=\"in\" x=\"%d\" y=\"%d\" font-size=\"8\" text-anchor=\"middle\">"
               "%s</text>\n",
               x, y, WIDE - 8, HIGH, sk_sheet_colours[stage % SK_SHEET_COLOURS], x + WIDE / 2 - 4,
               y + 13, rank, x + WIDE / 2 - 4, y + 25, coordinates(g, coord));
}

static void frame(const grid *g, int from_x, int to_x, int y, int host)
{
    sk_out_add(&g->sheet->out,
               "<rect class=\"line\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>"
               "<text class=\"dim\" x=\"%d\" y=\"%d\" font-size=\"8\">host %d</text>\n",
               from_x - 3, y - 3, to_x - from_x + WIDE - 2, HIGH + 6, from_x, y - 5, host);
}

/* The boxes of a row, then a frame around every run of ranks of one host. */
static void row(const grid *g, int columns, int y, int coord[SK_MAX_AXES])
{
    const int *host_of = g->in->host_of;
    int x = SK_SHEET_LEFT + LABEL, begun = x, before = -1, at = x;
    for (int c = 0; c < columns; c++) {
        bool gap = place(g, g->down, g->mesh->n, c, coord);
        if (gap) at += GAP;
        int host = host_of ? host_of[sk_mesh_rank(g->mesh, coord)] : -1;
        if (c && before >= 0 && (gap || host != before)) frame(g, begun, x, y, before);
        if (!c || gap || host != before) begun = at;
        x = at;
        before = host;
        box(g, x, y, coord);
        at += WIDE;
    }
    if (before >= 0) frame(g, begun, x, y, before);
}

static void column_labels(const grid *g, int columns)
{
    int coord[SK_MAX_AXES] = {0}, x = SK_SHEET_LEFT + LABEL;
    for (int c = 0; c < columns; c++) {
        if (place(g, g->down, g->mesh->n, c, coord)) x += GAP;
        sk_out_add(&g->sheet->out,
                   "<text class=\"dim\" x=\"%d\" y=\"%d\" font-size=\"9\" text-anchor=\"middle\">%s"
                   "</text>\n",
                   x + WIDE / 2 - 4, g->sheet->y, label(g, g->down, g->mesh->n, coord));
        x += WIDE;
    }
}

static void say_sample(const grid *g, int drawn)
{
    sk_arena *a = g->sheet->arena;
    sk_out o = {.arena = a};
    if (drawn == g->in->setup->n_ranks) return;
    sk_out_add(&o, "a sample: %d of %d ranks;", drawn, g->in->setup->n_ranks);
    for (int i = 0; i < g->mesh->n; i++)
        if (g->shown[i] < g->mesh->size[i])
            sk_out_add(&o, " %s: the first %d%s of %d", g->mesh->name[i],
                       g->shown[i] - (g->shown[i] > 1 && !g->wrapped),
                       g->shown[i] > 1 && !g->wrapped ? " and the last" : "", g->mesh->size[i]);
    sk_sheet_note(g->sheet, o.s);
}

static void say_stages(const grid *g)
{
    const sk_layout *l = &g->in->setup->layout;
    int x = SK_SHEET_LEFT, n = l->stage_axis < 0 ? 0 : g->mesh->size[l->stage_axis];
    g->sheet->y += n ? 18 : 0;
    for (int s = 0; s < n && s < SK_SHEET_COLOURS; s++)
        x = sk_sheet_key(g->sheet, x, sk_sheet_colours[s],
                         sk_print(g->sheet->arena, "stage %d", s));
    if (n > SK_SHEET_COLOURS)
        sk_sheet_note(g->sheet, sk_print(g->sheet->arena, "%d stages; colours repeat", n));
}

static void put_rows(grid *g, int rows, int columns)
{
    sk_sheet *s = g->sheet;
    int coord[SK_MAX_AXES] = {0}, left = g->mesh->size[0];
    for (g->row = 0; g->row < rows; g->row++) {
        if (place(g, 0, g->down, g->wrapped ? 0 : g->row, coord)) s->y += GAP;
        sk_out_add(&s->out, "<text class=\"dim\" x=\"%d\" y=\"%d\" font-size=\"9\">%s</text>\n",
                   SK_SHEET_LEFT, s->y + HIGH / 2 + 3,
                   label(g, 0, g->wrapped ? 1 : g->down, coord));
        row(g, g->wrapped && left < columns ? left : columns, s->y, coord);
        s->y += g->in->host_of ? STEP : STEP - 12;
        left -= columns;
    }
}

void sk_picture_mesh(sk_sheet *s, const sk_picture *in)
{
    grid g = {.sheet = s, .in = in, .mesh = &in->setup->layout.mesh};
    arrange(&g);
    int rows = product(&g, 0, g.down), columns = product(&g, g.down, g.mesh->n), drawn;
    if (g.wrapped) rows = (g.shown[0] + MOST_ACROSS - 1) / MOST_ACROSS, columns = MOST_ACROSS;
    drawn = g.wrapped ? g.shown[0] : rows * columns;
    sk_sheet_title(s, sk_print(s->arena, "1  mesh: %d rank%s", in->setup->n_ranks,
                               sk_plural(in->setup->n_ranks)));
    sk_sheet_note(s, in->host_of
                         ? "a box: rank and coordinates; a frame: one host"
                         : "a box: rank and coordinates; --cluster tells who shares a host");
    say_sample(&g, drawn);
    say_stages(&g);
    s->y += 22;
    if (!g.wrapped) column_labels(&g, columns);
    s->y += 14;
    put_rows(&g, rows, columns);
}
