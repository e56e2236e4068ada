/* picture.c - the sheet that the panels are drawn on, and its file.
 *
 * Colours of boxes are the same in light and dark, with black letters on them; only paper, lines
 * and letters beside boxes change.  Readers that know no media queries see the light one. */
#include "cli/picture.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const sk_sheet_colours[SK_SHEET_COLOURS] = {"#7fb2e5", "#f2b56b", "#8fcf8a", "#e58f8f",
                                                        "#b9a5e2", "#6fcfc4", "#e8d36a", "#e59ac6",
                                                        "#a9c46c", "#9db4c8", "#d6a37c", "#8ea2ee"};

static const char style[] =
    "<style>text{fill:#222}.dim{fill:#666}.in{fill:#111}.paper{fill:#fff}"
    ".line{stroke:#888;fill:none}.edge{stroke:#222;stroke-width:.6}.mono{font-family:monospace}"
    "@media (prefers-color-scheme: dark){text{fill:#e4e4e4}.dim{fill:#a8a8a8}.in{fill:#111}"
    ".paper{fill:#16181c}.line{stroke:#8a8a8a}}</style>\n";

/* How many bytes the character at s has; 0: it is no UTF-8 that XML allows. */
static int character(const unsigned char *s)
{
    int n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : *s >= 0xe0 && *s < 0xf0 ? 3 : 0;
    if (*s < 0x20 || *s == 0x7f) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (n == 3 && s[0] == 0xe0 && s[1] < 0xa0) return 0;                  /* longer than needed */
    if (n == 3 && s[0] == 0xed && s[1] >= 0xa0) return 0;                 /* half of a pair */
    if (n == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe) return 0; /* no characters */
    return n;
}

const char *sk_sheet_text(sk_arena *a, const char *text, int most)
{
    sk_out o = {.arena = a};
    const unsigned char *s = (const unsigned char *)text;
    sk_out_add(&o, "%s", "");
    for (int count = 0; *s; count++) {
        if (count == most) return sk_print(a, "%s…", o.s);
        int n = character(s);
        if (*s == '<') sk_out_add(&o, "&lt;");
        else if (*s == '>') sk_out_add(&o, "&gt;");
        else if (*s == '&') sk_out_add(&o, "&amp;");
        else if (*s == '"') sk_out_add(&o, "&quot;");
        else sk_out_add(&o, "%.*s", n ? n : 1, n ? (const char *)s : "?");
        s += n ? n : 1;
    }
    return o.s ? o.s : "";
}

void sk_sheet_title(sk_sheet *s, const char *title)
{
    s->y += 46;
    sk_out_add(&s->out, "<text x=\"%d\" y=\"%d\" font-size=\"16\" font-weight=\"bold\">%s</text>\n",
               SK_SHEET_LEFT, s->y, sk_sheet_text(s->arena, title, 120));
    s->y += 6;
}

void sk_sheet_note(sk_sheet *s, const char *note)
{
    s->y += 15;
    sk_out_add(&s->out, "<text class=\"dim\" x=\"%d\" y=\"%d\">%s</text>\n", SK_SHEET_LEFT, s->y,
               sk_sheet_text(s->arena, note, 180));
}

int sk_sheet_key(sk_sheet *s, int x, const char *colour, const char *word)
{
    sk_out_add(&s->out,
               "<rect x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" fill=\"%s\"/>"
               "<text x=\"%d\" y=\"%d\">%s</text>\n",
               x, s->y - 10, colour, x + 16, s->y, sk_sheet_text(s->arena, word, 60));
    return x + 36 + 7 * (int)strlen(word);
}

static void head(sk_sheet *s, const sk_picture *in)
{
    const sk_setup *t = in->setup;
    sk_arena *a = s->arena;
    const char *words = sk_print(a, "%s · %s parameters · %s", t->job->model_name,
                                 sk_commas(a, t->n_params), sk_layout_title(a, &t->layout));
    s->y = 30;
    sk_out_add(&s->out, "<text x=\"%d\" y=\"%d\" font-size=\"18\" font-weight=\"bold\">%s</text>\n",
               SK_SHEET_LEFT, s->y, sk_sheet_text(a, words, 110));
}

/* Height is known only when all is drawn, so the first lines are written last. */
static const char *finish(const sk_sheet *s)
{
    int high = s->y + 30;
    return sk_print(s->arena,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                    "font-family=\"sans-serif\" font-size=\"11\">\n%s"
                    "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n%s</svg>\n",
                    SK_SHEET_WIDE, high, style, SK_SHEET_WIDE, high, s->out.s);
}

/* --- which parameter --- */

static int64_t count(const sk_graph *g, const sk_tensor *t)
{
    sk_shape s = sk_tensor_shape(g, t);
    int64_t n = 1;
    for (int d = 0; d < s.n; d++) n *= s.d[d];
    return n;
}

static sk_status no_tensor(sk_arena *a, const sk_graph *g, const char *name)
{
    const char **names = sk_many(a, const char *, g->tensors.n + 1);
    const sk_tensor *other = sk_graph_find(g, name);
    int n = 0;
    for (int i = 0; i < g->tensors.n; i++)
        if (g->tensors.v[i]->role == SK_PARAM) names[n++] = g->tensors.v[i]->name;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_EUSAGE, "command line: --tensor %.80s: the model has %d parameters, %s%s%s%s",
                   name, n, other ? "and this is a tensor but none of them" : "none of this name",
                   near ? " - did you mean \"" : "; the first is \"", near ? near : names[0],
                   near ? "\"?" : "\", skein explain shows all");
}

static sk_status find_tensor(sk_arena *a, const sk_picture *in, const sk_tensor **out)
{
    const sk_graph *g = &in->setup->graph;
    int64_t most = -1;
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        if (t->role != SK_PARAM) continue;
        int64_t size = in->tensor ? !strcmp(t->name, in->tensor) - 1 : count(g, t);
        if (size > most) *out = t, most = size;
    }
    if (most >= 0) return SK_OK;
    if (in->tensor) return no_tensor(a, g, in->tensor);
    return sk_fail(SK_ECONF, "model %s has no parameters: there are no shards to draw",
                   in->setup->job->model_name);
}

/* --- the file --- */

static sk_status no_place(const char *path, int error)
{
    return sk_fail(SK_ECREATE, "cannot create the picture '%s': %s", path, strerror(error));
}

sk_status sk_picture_place(const char *path)
{
    struct stat s;
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    if (!stat(path, &s)) return S_ISDIR(s.st_mode) ? no_place(path, EISDIR) : SK_OK;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (stat(folder, &s) || access(folder, W_OK | X_OK)) return no_place(path, errno);
    return S_ISDIR(s.st_mode) ? SK_OK : no_place(path, ENOTDIR);
}

sk_status sk_sheet_save(const sk_sheet *s, const char *path)
{
    const char *text = finish(s);
    FILE *to = fopen(path, "we");
    if (!to) return no_place(path, errno);
    bool bad = fputs(text, to) < 0;
    if (fclose(to) || bad)
        return sk_fail(SK_EIO, "cannot write the picture '%s': %s", path, strerror(errno));
    return SK_OK;
}

sk_status sk_picture_write(sk_arena *a, const sk_picture *in, const char *path)
{
    sk_sheet s = {.arena = a, .out = {.arena = a}};
    const sk_tensor *t = NULL;
    SK_TRY(find_tensor(a, in, &t));
    head(&s, in);
    sk_picture_mesh(&s, in);
    SK_TRY(sk_picture_shards(&s, in, t));
    sk_picture_pipeline(&s, in);
    SK_TRY(sk_picture_memory(&s, in));
    return sk_sheet_save(&s, path);
}
