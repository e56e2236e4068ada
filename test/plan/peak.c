/* peak.c - the peak that `skein plan` tells, against the lines of memory one by one. */
#include "lib/check.h"
#include "lib/ranks.h"
#include "plan/peak.h"

#include <stdio.h>
#include <stdlib.h>

enum { LINE = 64 };

/* Lines that some result occupies at an instruction. */
static int64_t occupied(const sk_program *p, int pc, char *line)
{
    int64_t n = 0;
    memset(line, 0, (size_t)(p->heap_bytes / LINE + 2));
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->keep || b->within >= 0 || b->first < 0 || b->first > pc || b->last < pc) continue;
        for (int64_t at = b->offset / LINE; at * LINE < b->offset + b->bytes; at++)
            n += !line[at], line[at] = 1;
    }
    return n * LINE;
}

static void one(const char *model, const char *layout)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int n = 0;
    sk_trial t = {.model = sk_model_find(model), .layout = layout, .batch = 6, .seq = 8};
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 16;
    t.hyper.num_hidden_layers = 3;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 24;
    t.hyper.vocab_size = 23;
    t.hyper.input_size = 9;
    t.hyper.max_position_embeddings = 8;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n && p; r++) {
        sk_peak peak;
        char *line = calloc((size_t)(p[r]->heap_bytes / LINE + 2), 1);
        int64_t most = 0, named = 0;
        for (int pc = 0; pc < p[r]->insts.n; pc++) {
            int64_t now = occupied(p[r], pc, line);
            if (now > most) most = now;
        }
        sk_peak_find(p[r], &peak);
        for (int i = 0; i < peak.n; i++) named += peak.top[i].bytes;
        if (peak.live != most)
            printf("%s, %s: %lld, not %lld\n", model, layout, (long long)peak.live,
                   (long long)most);
        check(peak.live == most);
        check(occupied(p[r], peak.pc, line) == most);
        check(peak.region >= peak.live && peak.region <= p[r]->kind_bytes[SK_ACTS]);
        check(peak.n > 0 && named > 0 && peak.top[0].bytes >= peak.top[peak.n - 1].bytes);
        free(line);
    }
    sk_arena_end(&a);
}

int main(void)
{
    static const char *const models[] = {"gpt2", "llama", "mixtral", "mlp"};
    static const char *const layouts[] = {
        "dp=1",         "dp=2 zero=3 micro=2", "tp=2 sp",       "pp=2 micro=3 schedule=zb-h1",
        "cp=2 by=ring", "dp=2 recompute=full", "tp=2 overlap=2"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) one(models[m], layouts[l]);
    printf("peak: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
