/* golden.c - the listings of small programs, against stored ones.
 *
 * Every technique has one listing to read, test/golden/NAME.txt.  Of many random pairs of a model
 * and a layout (lib/draw.h) test/golden/pairs.txt has one line each: a hash over the listings of
 * all ranks and over the segments of all calls; "refused" instead of a hash where the layout is
 * refused.
 *
 * A change that is meant is stored with SKEIN_GOLDEN=write and read in the diff; SKEIN_GOLDEN=draw
 * draws the pairs anew, and SKEIN_GOLDEN=dump prints the listings of all of them, for a diff with
 * those of another commit.  Source lines of the model and the size of scratch (which follows the
 * kernels, not the compiler) are left out. */
#include "lib/draw.h"

#include "base/file_io.h"
#include "base/hash.h"
#include "base/strings.h"
#include "program/fuse.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PAIRS = 240 };
static const sk_pair_most most = {.ranks = 16, .stages = 6, .micro = 8, .layers = 6, .batch = 40};

static const struct golden {
    const char *name;
    sk_pair pair;
    int rank;
} cases[] = {
#define GPT2  "gpt2 keys=2 width=4 f=12 v=11 tie=1 positions=8 b=4 t=4 clip=1"
#define LLAMA "llama keys=2 width=4 f=12 v=11 b=4 t=4 clip=1"
    {"gpt2-dp2", {GPT2, "dp=2"}, 0},
    {"gpt2-tp2", {GPT2, "tp=2"}, 0},
    {"gpt2-pp2-rank0", {GPT2 " layers=2", "pp=2 micro=2"}, 0},
    {"gpt2-pp2-rank1", {GPT2 " layers=2", "pp=2 micro=2"}, 1},
    {"gpt2-dp2-zero3", {GPT2, "dp=2 zero=3"}, 0},
    {"llama-codec", {LLAMA, "dp=4 zero=3 weights=int8 grads=int4 feedback copy=2"}, 1},
    {"llama-adasum", {LLAMA, "dp=3 tp=2 reduce=adasum"}, 1},
    {"llama-tp2", {LLAMA, "tp=2"}, 1},
    {"llama-slices", {LLAMA, "tp=2 slices=2"}, 1},
    {"llama-overlap", {LLAMA, "tp=2 sp overlap=2"}, 1},
    {"llama-overlap-ring",
     {"llama keys=2 width=4 f=12 v=11 b=1 t=4 clip=1", "tp=2 sp overlap=2"},
     1},
    {"llama-zero-two-axes", {LLAMA, "dp=2 cp=2 zero=1:dp+cp"}, 1},
    {"llama-zero2", {LLAMA, "dp=2 zero=2 micro=2"}, 1},
    {"llama-buckets", {LLAMA " layers=2 bucket=800", "dp=2 zero=1 micro=2"}, 0},
    {"llama-recompute-full", {LLAMA " layers=2", "tp=2 recompute=full"}, 0},
    {"llama-recompute-selective", {LLAMA, "tp=2 recompute=selective micro=2"}, 0},
    {"llama-partition", {LLAMA, "tp=2 partition"}, 1},
    {"mlp-gist", {"mlp layers=2 f=12 v=11 x=9 b=4", "dp=2 gist=60 micro=2"}, 0},
    {"llama-ring", {LLAMA, "cp=2 by=ring"}, 1},
    {"llama-exchange", {LLAMA, "cp=2 by=exchange"}, 1},
    {"llama-interleaved", {LLAMA " layers=4", "pp=2 schedule=interleaved chunks=2 micro=2"}, 0},
    {"llama-zb-v", {LLAMA " layers=4", "pp=2 schedule=zb-v micro=2"}, 0},
    {"llama-pipedream", {LLAMA " layers=2 clip=0", "pp=2 schedule=pipedream micro=2"}, 0},
    {"llama-2bw", {LLAMA " layers=2 clip=0", "pp=2 schedule=pipedream-2bw micro=4"}, 0},
    {"llama-canonical", {LLAMA, "dp=2 micro=3; canonical order"}, 1},
    {"llama-offload", {LLAMA, "dp=2 zero=1 offload=state+weights:file tiles=2"}, 0},
    {"llama-offload-acts", {LLAMA " layers=2", "micro=2 prefetch=1 offload=acts"}, 0},
    {"llama-late", {LLAMA " late=1", "dp=2 zero=1 offload=state"}, 0},
    {"mixtral-ep2", {"mixtral keys=2 width=4 f=12 v=11 b=4 t=4 experts=4 choices=2", "ep=2"}, 1},
    {"llama-zb-h1", {LLAMA " layers=2", "pp=2 tp=2 sp schedule=zb-h1 micro=2"}, 0},
    {"llama-hoist", {LLAMA " layers=2", "dp=2 zero=3 hoist micro=2"}, 0},
    {"llama-local", {LLAMA, "dp=2 sync=postlocal:4@8"}, 0},
    {"llama-stream", {LLAMA " layers=2 dtype=bf16", "dp=2 sync=stream:4:fragments=2"}, 1},
    {"llama-gossip", {LLAMA, "dp=4 sync=gossip:2"}, 2},
    {"llama-gpu-dp2", {LLAMA " dtype=bf16 device=cuda", "dp=2"}, 0},
    {"gpt2-gpu", {GPT2 " f=16 dtype=bf16 device=cuda", "micro=2"}, 0},
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

static sk_status compile(sk_arena *a, const sk_pair *pair, sk_program ***p, int *n)
{
    sk_trial t;
    sk_graph *g = sk_new(a, sk_graph);
    SK_TRY(sk_pair_read(pair, &t));
    return sk_trial_compile(a, &t, g, p, n);
}

static sk_status listing(sk_arena *a, const struct golden *c, char **out)
{
    sk_program **p = NULL;
    int n = 0;
    SK_TRY(compile(a, &c->pair, &p, &n));
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

static bool fused[32]; /* by place in sk_fuse_parts: a listing has such a launch */

static void see_fused(const char *listing)
{
    sk_arena a = {0};
    for (int i = 0; sk_fuse_parts[i]; i++)
        if (strstr(listing, sk_print(&a, "launch %s of", sk_fuse_parts[i]->name))) fused[i] = true;
    sk_arena_end(&a);
}

static int not_fused(void)
{
    int n = 0;
    for (int i = 0; sk_fuse_parts[i]; i++)
        if (!fused[i])
            n++, printf("no listing has a launch of fuse part %s\n", sk_fuse_parts[i]->name);
    return n;
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
    if (!st) see_fused(got);
    sk_arena_end(&a);
    return st;
}

/* --- random pairs --- */

static uint64_t hash_segs(uint64_t h, const sk_program *p, sk_arena *a)
{
    for (int i = 0; i < p->calls.n; i++)
        for (int s = 0; s < p->calls.v[i].n_segs; s++) {
            const sk_call_seg *x = &p->calls.v[i].segs[s];
            const char *text = sk_print(
                a, "%d %" PRIx64 " %" PRIx64 " %" PRId64 " %" PRId64 " %" PRId64, i,
                p->bufs.v[x->src].offset, p->bufs.v[x->dst].offset, x->outer, x->n, x->inner);
            h = sk_hash(h, text, strlen(text));
        }
    return h;
}

/* "refused", or the hash of all that the ranks of a pair will do. */
static sk_status digest(sk_arena *a, const sk_pair *pair, bool dump, const char **out)
{
    sk_program **p = NULL;
    int n = 0;
    uint64_t h = SK_HASH_SEED;
    sk_status st = compile(a, pair, &p, &n);
    *out = "refused         ";
    if (st) return st == SK_ECONF ? SK_OK : st;
    for (int r = 0; r < n; r++) {
        const char *text = stripped(a, sk_program_print(p[r], a));
        h = hash_segs(sk_hash(h, text, strlen(text)), p[r], a);
        if (dump) printf("%s", text);
    }
    *out = sk_print(a, "%016" PRIx64, h);
    return SK_OK;
}

/* A line of pairs.txt is "HASH MODEL | LAYOUT"; returns where the next one begins. */
static const char *read_pair(const char *line, char hash[17], sk_pair *p)
{
    const char *end = line + strcspn(line, "\n"), *bar = strstr(line, " | ");
    *p = (sk_pair){0};
    snprintf(hash, 17, "%.16s", line);
    if (!bar || bar > end || bar - line < 17) return NULL;
    snprintf(p->model, sizeof p->model, "%.*s", (int)(bar - line - 17), line + 17);
    snprintf(p->layout, sizeof p->layout, "%.*s", (int)(end - bar - 3), bar + 3);
    return *end ? end + 1 : end;
}

static char *draw_pairs(sk_arena *a)
{
    sk_out o = {.arena = a};
    for (int i = 0; i < N_PAIRS; i++) {
        sk_pair p = sk_pair_draw(18, (uint64_t)i, &most);
        sk_out_add(&o, "%-16s %s | %s\n", "?", p.model, p.layout);
    }
    return o.s;
}

static int pairs(const char *mode)
{
    sk_arena a = {0};
    sk_out o = {.arena = &a};
    sk_text file = {0};
    char want[17];
    sk_pair p;
    int wrong = 0, n = 0;
    static const char path[] = "test/golden/pairs.txt";
    if (!strcmp(mode, "draw")) file.s = draw_pairs(&a);
    else if (sk_file_read(&a, path, &file)) return printf("%s\n", sk_error()), 1;
    for (const char *at = file.s; at && *at; n++) {
        const char *got = "";
        sk_arena tmp = {0};
        at = read_pair(at, want, &p);
        if (!at) return printf("%s: line %d reads \"HASH MODEL | LAYOUT\"\n", path, n + 1), 1;
        if (!strcmp(mode, "dump")) printf("%s | %s\n", p.model, p.layout);
        if (digest(&tmp, &p, !strcmp(mode, "dump"), &got))
            printf("%s | %s: %s\n", p.model, p.layout, sk_error());
        sk_out_add(&o, "%s %s | %s\n", got, p.model, p.layout);
        if (strcmp(got, want) && (!*mode || !strcmp(mode, "dump"))) {
            wrong++;
            printf("another program than stored: %s | %s\n", p.model, p.layout);
        }
        sk_arena_end(&tmp);
    }
    if ((!strcmp(mode, "write") || !strcmp(mode, "draw")) &&
        sk_file_replace(path, o.s, strlen(o.s)))
        printf("%s\n", sk_error());
    printf("golden: %d pairs, %d differ\n", n, wrong);
    sk_arena_end(&a);
    return wrong + (n < N_PAIRS);
}

int main(void)
{
    const char *mode = getenv("SKEIN_GOLDEN");
    int wrong = 0;
    if (!mode) mode = "";
    for (int i = 0; i < N_CASES; i++) {
        bool same = false;
        if (one(&cases[i], !strcmp(mode, "write") || !strcmp(mode, "draw"), &same))
            printf("%s: %s\n", cases[i].name, sk_error());
        wrong += !same;
    }
    printf("golden: %d listings, %d differ\n", N_CASES, wrong);
    wrong += not_fused() + pairs(mode);
    if (wrong) printf("if the change is meant: SKEIN_GOLDEN=write, and read the diff\n");
    return wrong != 0;
}
