/* offload.c - what a rank keeps may live in the host's memory or in a file (doc/memory.md). */
#include "layout/word.h"
#include "kernel/optim.h"

#include <stdio.h>
#include <string.h>

static int find(const char *const *names, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0) i++;
    return i < n ? i : -1;
}

static sk_status put(sk_layout *l, const char *what, const char *where)
{
    int w = find(sk_offload_kind_names, SK_N_OFFLOAD_KINDS, what),
        t = find(sk_placement_names, SK_N_PLACEMENTS, where);
    bool all = !strcmp(what, "all");
    if (w < 0 && !all)
        return sk_fail(SK_ECONF,
                       "layout: cannot offload \"%s\"; state, weights, grads, acts or all", what);
    if (t < SK_HOST)
        return sk_fail(SK_ECONF, "layout: cannot offload to \"%s\"; host or file", where);
    for (int i = all ? 0 : w; i < (all ? SK_N_OFFLOAD_KINDS : w + 1); i++) {
        if (l->home[i])
            return sk_fail(SK_ECONF, "layout: offload names %s twice; name each kind once, or all",
                           sk_offload_kind_names[i]);
        l->home[i] = (sk_placement)t;
    }
    return SK_OK;
}

/* state+grads:file: to the host where nothing else is said. */
static sk_status set(sk_reading *r, const char *value)
{
    char text[SK_WORD_TEXT], *rest = text, *item;
    r->l->home_said = true;
    if (!strcmp(value, "none")) return SK_OK;
    if (!*value) return put(r->l, "", "host");
    snprintf(text, sizeof text, "%s", value);
    while ((item = strsep(&rest, "+"))) {
        char *where = strchr(item, ':');
        if (where) *where++ = 0;
        SK_TRY(put(r->l, item, where ? where : "host"));
    }
    return SK_OK;
}

static sk_status say(sk_reading *r, const sk_phrase *s)
{
    r->l->home_said = true;
    for (int i = 0; i < s->n_many; i++) SK_TRY(put(r->l, s->many[i], s->v[0]));
    return SK_OK;
}

static void clear(sk_layout *l) { memset(l->home, 0, sizeof l->home); }

static void print_with(const sk_layout *l, sk_out *o, const char *gap)
{
    for (int t = SK_HOST; t < SK_N_PLACEMENTS; t++) {
        bool any = false;
        for (int i = 0; i < SK_N_OFFLOAD_KINDS; i++) {
            if (l->home[i] != (sk_placement)t) continue;
            sk_out_add(o, "%s%s %s", any || !o->n ? "" : gap, any ? "" : "offload",
                       sk_offload_kind_names[i]);
            any = true;
        }
        if (any) sk_out_add(o, " to %s", sk_placement_names[t]);
    }
}

static void print(const sk_layout *l, sk_out *o) { print_with(l, o, "\n"); }
static void print_brief(const sk_layout *l, sk_out *o) { print_with(l, o, " · "); }

static sk_status fits(const sk_word_ask *ask)
{
    if (!ask->late || ask->layout->home[SK_STATE] == SK_HOST) return SK_OK;
    return sk_fail(SK_ECONF, "optim.late runs the optimizer on the host beside the step, so its "
                             "state must live there; say offload=state in the layout");
}

/* Each of what a rank keeps stays, or goes to the host or to a file. */
static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    int n = snprintf(phrase, SK_WORD_TEXT, "offload="), from = n;
    if (l->replica || !sk_dice_one_in(d, 3)) return false;
    for (int w = 0; w < SK_N_OFFLOAD_KINDS; w++) {
        int t = sk_dice_pick(d, 0, SK_N_PLACEMENTS - 1);
        if (t)
            n += snprintf(phrase + n, (size_t)(SK_WORD_TEXT - n), "%s%s:%s", n > from ? "+" : "",
                          sk_offload_kind_names[w], sk_placement_names[t]);
    }
    return n > from;
}

static bool claims(const sk_word_ask *ask)
{
    return ask->layout->home[SK_STATE] && ask->optim->n_state;
}

const sk_word sk_word_offload = {
    .name = "offload",
    .doc = "what lives in the host's memory or in a file, and is fetched when it is needed",
    .value = "state|weights|grads|acts|all[:host|:file][+...]",
    .sentence = {"offload state|weights|grads|acts|all ... to host|file"},
    .example = "offload=state+grads",
    .alias = {{"cpu_offload offload_optimizer zero_offload",
               "offload=state, as in \"dp=4 offload=state\""}},
    .kind = SK_WORD_OTHER,
    .again = true,
    .place = 190,
    .set = set,
    .say = say,
    .on = sk_layout_offloads,
    .clear = clear,
    .print = print,
    .print_brief = print_brief,
    .fits = fits,
    .lowers = SK_LOWERS_DEVICE,
    .claims = claims,
    .draw = draw,
    .tries = "state all",
};
