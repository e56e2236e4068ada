/* part_help.c - see part_help.h. */
#include "cli/part_help.h"
#include "base/strings.h"
#include "cli/setting.h"
#include "coll/algorithm.h"
#include "coll/codec.h"
#include "data/data.h"
#include "graph/op.h"
#include "layout/word.h"
#include "model/model.h"
#include "program/pipeline_schedule.h"
#include "program/sync.h"

#include <ctype.h>
#include <string.h>

enum { COLUMNS = 100 };

const sk_part_head *sk_part_find(const sk_part_kind *k, const char *name)
{
    for (const void *const *p = k->parts; *p; p++) {
        const sk_part_head *h = *p;
        if (!strcmp(h->name, name)) return h;
    }
    return NULL;
}

/* ---- one line */

/* The default of a number, or its word. */
static const char *default_of(sk_arena *a, const sk_knob *k)
{
    const char *w = k->words;
    if (!w) return sk_print(a, "%.9g", k->usual);
    for (int i = (int)k->usual; i > 0; i--) w += strcspn(w, " ") + 1;
    return sk_print(a, "%.*s", (int)strcspn(w, " "), w);
}

/* The defaults of an optimizer or of a schedule, under the names of the keys. */
static const char *knobs_of(sk_arena *a, const sk_knob *knobs)
{
    sk_out text = {.arena = a};
    for (const sk_knob *k = knobs; k->name; k += sk_knob_list(k))
        for (int i = 0; i < sk_knob_list(k) && !(i && k[i].fewer); i++)
            sk_out_add(&text, "%s%s%s %s", k == knobs || i ? "" : ", ", i ? "" : sk_knob_key(k),
                       i ? " and" : "", default_of(a, &k[i]));
    return text.s ? text.s : "";
}

/* The forms of a word, and what it is for. */
static const char *forms_of(sk_arena *a, const sk_word *w)
{
    const char *about = sk_word_about(a, w);
    if (w->no_short) return about;
    return sk_print(a, "%s%s%s", sk_word_spell(a, w), *about ? "; " : "", about);
}

/* What is chosen by numbers shows them. */
const char *sk_part_cost(sk_arena *a, const char *kind, const void *part)
{
    if (!strcmp(kind, "schedule")) {
        const sk_schedule *s = part;
        if (!s->bubble) return "";
        return sk_print(a, "bubble %s, %s micro-batches in flight", s->bubble, s->memory);
    }
    if (!strcmp(kind, "optim")) return knobs_of(a, ((const sk_optim *)part)->knobs);
    if (!strcmp(kind, "lr")) return knobs_of(a, ((const sk_lr *)part)->knobs);
    if (!strcmp(kind, "word")) return forms_of(a, part);
    if (strcmp(kind, "coll")) return "";
    const sk_coll *c = part;
    const char *order = c->order == SK_ORDER_TREE ? "order of the tree" : "an order of its own";
    return sk_print(a, "%s; %s", order, c->cost ? c->cost : "cost unknown");
}

/* ---- all of it */

static void of_optim(sk_out *o, const void *part)
{
    const sk_optim *p = part;
    sk_conf_knobs_help(o, p->knobs);
    if (p->rest) sk_out_add(o, "  what is no matrix is updated by %s\n", p->rest);
    if (p->schedule) sk_out_add(o, "  goes with optim.schedule=%s alone\n", p->schedule);
}

static void of_lr(sk_out *o, const void *part)
{
    const sk_lr *p = part;
    sk_conf_knobs_help(o, p->knobs);
    if (p->rises) sk_out_add(o, "  rises by itself: optim.warmup does not apply\n");
    if (p->level) sk_out_add(o, "  never falls: optim.min_lr does not apply\n");
}

static void of_word(sk_out *o, const void *part)
{
    const sk_word *w = part;
    const char *about = sk_word_about(o->arena, w);
    sk_out_add(o, "  short form           %s\n", w->no_short ? "none" : sk_word_spell(o->arena, w));
    if (w->kind == SK_WORD_INT && w->most)
        sk_out_add(o, "  value                a whole number from %d to %d\n", w->least, w->most);
    if (*about) sk_out_add(o, "  about                %s\n", about);
    if (w->example) sk_out_add(o, "  example              layout=\"%s\"\n", w->example);
}

/* The number behind the colon, by what a way does with it. */
static const struct {
    const char *letter, *doc, *not_with;
} sync_kinds[] = {
    [SK_SYNC_STEPS] = {"H", "steps from one synchronisation to the next",
                       "zero, grads and reduce over the same axis; offload, replica, optim.late, "
                       "train.relayout, train.noise, train.backward"},
    [SK_SYNC_BACKUP] = {"B", "gradients of a step that are dropped: those that come last",
                        "other axes, several hosts, GPUs, zero, grads, reduce, order=canonical; "
                        "doc/sync.md has all"},
    [SK_SYNC_STALE] = {"S", "steps that a rank may be ahead of the slowest; inf: any number",
                       "other axes, several hosts, GPUs, zero, grads, reduce, order=canonical; "
                       "doc/sync.md has all"}};

static const char must[] = "must be said";

/* Numbers behind that: those of the part, and how what replicas send is encoded. */
static void sync_numbers(sk_out *o, const sk_sync *p)
{
    if (p->after)
        sk_conf_help_line(o, "STEP", "synchronous steps at first; decay: until the rate falls",
                          must);
    for (const sk_knob *k = p->knobs; k->name; k++)
        sk_conf_help_line(o, k->name, sk_conf_knob_text(o->arena, k), default_of(o->arena, k));
    if (!p->outer) return;
    sk_conf_help_line(o, "codec", "of what replicas send: skein list codec", "none");
    sk_conf_help_line(o, "feedback", "after a codec: what was lost is sent later", "");
}

/* "topk" for "dgc": what other programs call it. */
static void elsewhere(sk_out *o, const char *names)
{
    if (names) sk_conf_help_line(o, "called elsewhere", names, "");
}

static void of_sync(sk_out *o, const void *part)
{
    const sk_sync *p = part;
    const char *letter = sync_kinds[p->kind].letter;
    const char *steps = sk_print(o->arena, "%d", p->usual ? p->usual : 8);
    const char *form = sk_print(o->arena, "%s:%s%s", p->name, letter, p->after ? "@STEP" : "");
    for (const sk_knob *k = p->knobs; k->name; k++)
        form = sk_print(o->arena, "%s:%s=%s", form, k->name, default_of(o->arena, k));
    sk_out_add(o, "  short form           sync=%s\n", form);
    sk_out_add(o, "  about                \"synchronize AXIS by %s\"\n", form);
    sk_conf_help_line(o, letter, sync_kinds[p->kind].doc, p->usual ? steps : must);
    sync_numbers(o, p);
    sk_out_add(o, "  example              layout=\"dp=4 sync=%s:%s%s%s\"\n", p->name, steps,
               p->after ? "@100" : "", p->outer ? ":codec=q4" : "");
    sk_conf_help_line(o, "not with", sync_kinds[p->kind].not_with, "");
    for (int i = 0; i < 2; i++) elsewhere(o, p->alias[i].theirs);
}

/* The first way whose replicas send changes, which may be encoded. */
static const sk_sync *coded_sync(void)
{
    const sk_sync *const *p = sk_sync_parts;
    while (*p && !(*p)->outer) p++;
    return *p;
}

static void of_codec(sk_out *o, const void *part)
{
    const sk_codec *p = part;
    const sk_sync *by = coded_sync();
    const char *form = p->name;
    if (p->value_name) {
        form = sk_print(o->arena, "%s:%.9g", p->name, p->value_usual);
        sk_conf_help_line(
            o, sk_print(o->arena, "%s:%s", p->name, p->value_name),
            sk_print(o->arena,
                     p->low_rank ? "a whole number from 1 to %.9g" : "above 0, at most %.9g",
                     p->value_most),
            must);
    }
    sk_out_add(o, "  gradients            layout=\"dp=4 grads=%s%s\"\n", form,
               p->needs_feedback ? " feedback" : "");
    if (!p->low_rank && by)
        sk_out_add(o, "  replicas             layout=\"dp=4 sync=%s:%d:codec=%s%s\"\n", by->name,
                   by->usual, form, p->needs_feedback ? ":feedback" : "");
    elsewhere(o, p->also);
    if (!p->sums_only)
        sk_out_add(o, "  weights              layout=\"dp=4 zero=3 weights=%s\"\n", form);
}

static void of_model(sk_out *o, const void *part)
{
    const sk_model *m = part;
    for (const sk_field *f = m->own; f && f->name; f++)
        sk_conf_help_line(o, sk_print(o->arena, "model.%s", f->name), sk_or_empty(f->doc),
                          sk_field_print(f, &(sk_hyper){0}).s);
    sk_out_add(o, "  sizes of all models: skein help model\n");
}

static void of_source(sk_out *o, const void *part)
{
    const sk_source *p = part;
    if (p->known) sk_out_add(o, "  data.train=%s needs no file\n", p->known);
    for (const sk_feed_input *x = p->inputs; x->name; x++)
        sk_out_add(o, "  input                %s, dims %s\n", x->name, x->letters);
}

static void of_op(sk_out *o, const void *part)
{
    const sk_op *p = part;
    if (p->dims) sk_out_add(o, "  dims                 %s\n", p->dims);
}

static void of_cmd(sk_out *o, const void *part)
{
    const sk_cmd *p = part;
    if (p->help) sk_out_add(o, "%s", p->help);
    else sk_out_add(o, "  skein %s --help says all of it\n", p->name);
}

/* Kinds whose parts declare more than a line. */
static const struct {
    const char *kind;
    void (*more)(sk_out *o, const void *part);
} kinds[] = {{"optim", of_optim}, {"lr", of_lr},         {"word", of_word},
             {"model", of_model}, {"source", of_source}, {"op", of_op},
             {"cmd", of_cmd},     {"sync", of_sync},     {"codec", of_codec}};

char *sk_part_help(sk_arena *a, const char *kind, const void *part)
{
    const sk_part_head *h = part;
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s %s: %s\n", kind, h->name, sk_or_empty(h->doc));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].kind, kind)) {
            kinds[i].more(&o, part);
            return o.s;
        }
    const char *cost = sk_part_cost(a, kind, part);
    if (*cost) sk_out_add(&o, "  %s\n", cost);
    return o.s;
}

int sk_part_near(sk_arena *a, const char *name, const char *out[2])
{
    int n = 0, most = 0;
    for (const sk_part_kind *k = sk_kinds; k->kind; k++)
        for (const void *const *p = k->parts; *p; p++) most++;
    const char **names = sk_many(a, const char *, most + 1);
    for (const sk_part_kind *k = sk_kinds; k->kind; k++)
        for (const void *const *p = k->parts; *p; p++) {
            const char *own = ((const sk_part_head *)*p)->name;
            bool seen = false; /* parts of several kinds may have one name */
            for (int i = 0; i < n && !seen; i++) seen = !strcmp(names[i], own);
            if (!seen) names[n++] = own;
        }
    return sk_nearest_all(name, names, n, out, 2);
}

/* Of a kind: how many parts it has, and their names. */
static void of_kind(sk_out *o, const sk_part_kind *k)
{
    int n = 0;
    while (k->parts[n]) n++;
    sk_out_add(o,
               "%d part%s of kind %s; skein list %s has a line about each, skein help NAME all:\n ",
               n, sk_plural(n), k->kind, k->kind);
    size_t line = o->n - 1;
    for (int i = 0; i < n; i++) {
        const char *name = ((const sk_part_head *)k->parts[i])->name;
        bool full = o->n - line + strlen(name) > COLUMNS - 2;
        if (full) line = o->n;
        sk_out_add(o, "%s %s%s", full ? "\n " : "", name, i + 1 < n ? "," : "\n");
    }
}

char *sk_part_help_on(sk_arena *a, const char *name, const char *but)
{
    sk_out o = {.arena = a};
    char *bare = sk_print(a, "%.*s", (int)strcspn(name, ":"), name);     /* topk:0.01 */
    for (char *c = bare; *c; c++) *c = (char)tolower((unsigned char)*c); /* DiLoCo */
    for (const sk_part_kind *k = sk_kinds; k->kind; k++) {
        const sk_part_head *h = sk_part_find(k, bare);
        if (h && strcmp(k->kind, but) != 0) sk_out_add(&o, "%s", sk_part_help(a, k->kind, h));
    }
    for (const sk_part_kind *k = sk_kinds; k->kind && !*but; k++)
        if (!strcmp(k->kind, name)) of_kind(&o, k);
    return o.s;
}
