/* program_golden.c - the listings of a few small programs, against stored ones.
 *
 * A change that is meant is stored with SKEIN_GOLDEN=write and read in the diff.
 * Source lines of the model and the size of scratch (which follows the kernels,
 * not the compiler) are left out. */
#include "lib/ranks.h"

#include "base/file.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct golden {
    const char *name, *model, *layout;
    int layers, rank;
} cases[] = {
    {"gpt2-dp2", "gpt2", "dp=2", 1, 0},
    {"gpt2-tp2", "gpt2", "tp=2", 1, 0},
    {"gpt2-pp2-rank0", "gpt2", "pp=2 micro=2", 2, 0},
    {"gpt2-pp2-rank1", "gpt2", "pp=2 micro=2", 2, 1},
    {"gpt2-dp2-zero3", "gpt2", "dp=2 zero=3", 1, 0},
    {"llama-codec", "llama", "dp=4 zero=3 weights=int8 grads=int4 feedback copy=2", 1, 1},
    {"llama-tp2", "llama", "tp=2", 1, 1},
    {"llama-slices", "llama", "tp=2 slices=2", 1, 1},
    {"llama-overlap", "llama", "tp=2 sp overlap=2", 1, 1},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* One line without what is not compared; NULL if nothing is left. */
static char *plain(sk_arena *a, const char *line, size_t n)
{
    char *s = sk_print(a, "%.*s", (int)n, line), *gap = strrchr(s, ' ');
    if (!strncmp(s, "memory scratch", 14) || !strncmp(s, "memory total", 12)) return NULL;
    char *colon = gap ? strrchr(gap, ':') : NULL;
    if (!colon || !isdigit((unsigned char)colon[1])) return s;
    while (gap > s && gap[-1] == ' ') gap--;
    *gap = 0;
    return s;
}

static char *stripped(sk_arena *a, const char *text)
{
    sk_out o = {.arena = a};
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        char *line = plain(a, p, n);
        if (line) sk_out_add(&o, "%s\n", line);
        p += n + (p[n] != 0);
    }
    return o.s;
}

static sk_status listing(sk_arena *a, const struct golden *c, char **out)
{
    sk_trial t = {.batch = 4, .seq = 4, .layout = c->layout, .clip = 1};
    sk_graph *g = sk_new(a, sk_graph);
    sk_program **p = NULL;
    int n = 0;
    t.model = sk_model_find(c->model);
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 8;
    t.hyper.num_hidden_layers = c->layers;
    t.hyper.num_attention_heads = 2;
    t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 12;
    t.hyper.vocab_size = 11;
    t.hyper.max_position_embeddings = 8;
    SK_TRY(sk_trial_compile(a, &t, g, &p, &n));
    *out = stripped(a, sk_program_print(p[c->rank], a));
    return SK_OK;
}

/* Returns whether they are equal; shows the first line that is not. */
static bool compare(const char *name, const char *want, const char *got)
{
    for (int line = 1; *want || *got; line++) {
        size_t n = strcspn(want, "\n"), m = strcspn(got, "\n");
        if (n != m || memcmp(want, got, n)) {
            printf("%s, line %d:\n  stored %.*s\n  now    %.*s\n", name, line, (int)n, want, (int)m,
                   got);
            return false;
        }
        want += n + (want[n] != 0);
        got += m + (got[m] != 0);
    }
    return true;
}

static sk_status one(const struct golden *c, bool write, bool *same)
{
    sk_arena a = {0};
    sk_text want = {0};
    char *got = NULL, *path = sk_print(&a, "test/golden/%s.txt", c->name);
    sk_status st = listing(&a, c, &got);
    if (!st && write) st = sk_file_replace(path, got, strlen(got));
    if (!st) st = sk_file_read(&a, path, &want);
    *same = !st && compare(c->name, want.s, got);
    sk_arena_end(&a);
    return st;
}

int main(void)
{
    const char *mode = getenv("SKEIN_GOLDEN");
    bool write = mode && !strcmp(mode, "write");
    int wrong = 0;
    for (int i = 0; i < N_CASES; i++) {
        bool same = false;
        if (one(&cases[i], write, &same)) printf("%s: %s\n", cases[i].name, sk_error());
        wrong += !same;
    }
    if (wrong) printf("if the change is meant: SKEIN_GOLDEN=write, and read the diff\n");
    printf("golden: %d listings, %d differ\n", N_CASES, wrong);
    return wrong != 0;
}
