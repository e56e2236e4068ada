/* saved.c - the saved set as `skein explain --pass saved` shows it: which forms the words
 * of a layout give to what tasks leave to later ones. */
#include "lib/check.h"
#include "lib/draw.h"

#include "program/program.h"

#include <stdio.h>
#include <string.h>

#define LLAMA  "llama layers=2 keys=2 width=4 f=12 v=11 b=4 t=4"
#define SWITCH "switch layers=2 experts=4 choices=1 keys=2 width=4 f=12 v=11 b=4 t=4"

static const struct line {
    const char *model, *layout;
    const char *has, *lacks; /* in lines that begin with "saved"; NULL: nothing is asked */
} lines[] = {
    {LLAMA, "tp=2", "as made, F0 -> B0", "gathered"},
    {LLAMA, "tp=2 sp", "gathered, F0 -> B0", "a shard"},
    {LLAMA, "tp=2 sp recompute=full", "as made, F0 -> B0",
     "attention"}, /* none inside of a block */
    {LLAMA, "tp=2 partition", "a shard, F0 -> B0", "signs"},
    {LLAMA, "tp=2 sp pp=2 micro=2 schedule=zb-h1", "gathered, I0 -> W0", "B0"},
    {LLAMA, "pp=2 micro=2 schedule=zb-v", "as made, I3 -> W3", "-> B"},
    {LLAMA, "dp=2 zero=3", "as made, F0 -> B0", "gathered"},
    {LLAMA, "dp=2 zero=3 keep", "gathered, F0 -> B0", NULL},
    {SWITCH, "dp=2 keep=cheap gist=60", "without zeros, F0 -> B0", NULL},
    {SWITCH, "dp=2 keep=cheap", "as made, F0 -> B0", "without zeros"},
};
enum { N_LINES = sizeof lines / sizeof *lines };

/* Lines of a text that begin with "saved". */
static char *saved_lines(sk_arena *a, const char *text)
{
    char *s = sk_print(a, "%s", "");
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, "\n");
        if (!strncmp(p, "saved ", 6)) s = sk_print(a, "%s%.*s\n", s, (int)n, p);
        p += n + (p[n] != 0);
    }
    return s;
}

static sk_status saved_of(sk_arena *a, const struct line *x, char **out)
{
    sk_pair pair = {0};
    sk_trial t;
    sk_layout l;
    sk_compile_opts o;
    sk_graph *g = sk_new(a, sk_graph);
    char *text = NULL;
    snprintf(pair.model, sizeof pair.model, "%s", x->model);
    snprintf(pair.layout, sizeof pair.layout, "%s", x->layout);
    SK_TRY(sk_pair_read(&pair, &t));
    SK_TRY(sk_layout_read(t.layout, 0, &l));
    SK_TRY(sk_trial_graph(a, &t, g));
    sk_trial_options(&t, &o);
    SK_TRY(sk_compile_until(a, g, &l, &o, 0, "saved", &text));
    *out = saved_lines(a, text);
    return SK_OK;
}

int main(void)
{
    int wrong = 0;
    for (int i = 0; i < N_LINES; i++) {
        const struct line *x = &lines[i];
        sk_arena a = {0};
        char *got = "";
        if (saved_of(&a, x, &got)) printf("%s\n", sk_error());
        bool good = strstr(got, x->has) && (!x->lacks || !strstr(got, x->lacks));
        if (!good)
            printf("%s | %s: wanted \"%s\" and no \"%s\", found\n%s", x->model, x->layout, x->has,
                   x->lacks ? x->lacks : "", got);
        wrong += !good;
        sk_arena_end(&a);
    }
    printf("saved: %d layouts, %d wrong\n", N_LINES, wrong);
    return wrong != 0;
}
