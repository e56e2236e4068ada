/* own.c - a new word is one file: here a table with three words more, as their files would
 * have them.  They are read in both forms, printed, hinted at, refused with what they exclude, told
 * where they have nothing to do, drawn, and cleared; no member of sk_layout is theirs. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "layout/word.h"

static bool has_stages(const sk_layout *l) { return l->stage_axis >= 0; }

static sk_status on_cpu(const sk_word_ask *ask);

static const sk_word sk_word_every = {
    .name = "every",
    .doc = "ranks agree every N steps",
    .value = "N",
    .sentence = {"agree every N steps"},
    .example = "dp=2 every=4",
    .alias = {{"local_sgd", "every=N, as in \"dp=2 every=8\""}},
    .kind = SK_WORD_INT,
    .least = 1,
    .most = 64,
    .off = 1,
    .place = 300,
    .brief = "every N",
    .fits = on_cpu,
    .excludes = {{"canonical", 0, "sums of another step are not those of one rank"},
                 {"zero", 2, "gradients that stay apart cannot be sharded"}},
    .tries = "4 16",
};
static const sk_word sk_word_eager = {
    .name = "eager",
    .doc = "stages send what they have at once",
    .sentence = {"eagerly"},
    .clause_of = "stages",
    .example = "pp=2 eager",
    .kind = SK_WORD_FLAG,
    .place = 75,
    .works = has_stages,
    .about = "stages, and there are none",
    .cure = "pp=2",
};
static const sk_word sk_word_rows = {
    /* an axis of its own */
    .name = "rows",       .doc = "the width of the model is split over N ranks",
    .value = "N",         .example = "rows=2",
    .kind = SK_WORD_AXIS, .letters = "c",
    .place = 59,
};

static sk_status on_cpu(const sk_word_ask *ask)
{
    if (sk_word_value(&sk_word_every, ask->layout) < 2 || !ask->gpu) return SK_OK;
    return sk_fail(SK_ECONF, "layout: every needs device=cpu");
}

/* The words that the tests below name; the table of the build is not linked. */
#define OTHERS(X) \
    X(canonical)  \
    X(cp) X(dp) X(ep) X(mesh) X(micro) X(order) X(pp) X(replica) X(schedule) X(split) X(tp) X(zero)
#define DECLARE(name) extern const sk_word sk_word_##name;
#define LIST(name)    &sk_word_##name,
OTHERS(DECLARE)
const sk_word *const sk_word_parts[] = {OTHERS(LIST) & sk_word_every, &sk_word_eager, &sk_word_rows,
                                        NULL};

static sk_arena arena;

static void reads(const char *text, const char *printed, const char *brief)
{
    sk_layout l, m;
    bool read = !sk_layout_read(text, 0, &l);
    if (!read) printf("\"%s\": %s\n", text, sk_error_line());
    check(read);
    if (!read) return;
    const char *out = sk_layout_print(&arena, &l), *few = sk_layout_short(&arena, &l);
    if (strcmp(out, printed)) printf("\"%s\" is printed as\n%s", text, out);
    check(!strcmp(out, printed));
    if (strcmp(few, brief)) printf("\"%s\" is in short \"%s\"\n", text, few);
    check(!strcmp(few, brief));
    check(!sk_layout_read(out, 0, &m) && !strcmp(sk_layout_print(&arena, &m), out));
    check(!memcmp(l.own, m.own, sizeof l.own));
}

static void refused(const char *text, const char *words)
{
    sk_layout l;
    fails(sk_layout_read(text, 0, &l), SK_ECONF, words);
}

static void values(void)
{
    sk_layout l;
    check(!sk_layout_read("pp=2 eager every=4", 0, &l));
    check(sk_word_value(&sk_word_every, &l) == 4 && sk_word_value(&sk_word_eager, &l) == 1);
    sk_word_ask ask = {.layout = &l};
    check(!sk_layout_fits(&ask));
    ask.gpu = true;
    fails(sk_layout_fits(&ask), SK_ECONF, "every needs device=cpu");
    sk_word_clear(&sk_word_every, &l);
    check(!sk_word_on(&sk_word_every, &l) && sk_word_on(&sk_word_eager, &l));
    l.canonical = true; /* the key order=canonical says it after reading */
    sk_word_put(&sk_word_every, &l, 2);
    ask.gpu = false;
    fails(sk_layout_fits(&ask), SK_ECONF, "every=2 with canonical order");
}

static void draws(void)
{
    int every = 0, eager = 0;
    sk_dice d = {.seed = 4, .most = 8};
    sk_layout l, m;
    check(!sk_layout_read("pp=2", 0, &l));
    for (int i = 0; i < 100; i++) {
        char phrase[SK_WORD_TEXT], text[2 * SK_WORD_TEXT];
        if (sk_word_draw(&sk_word_eager, &d, &l, phrase)) eager++;
        if (!sk_word_draw(&sk_word_every, &d, &l, phrase)) continue;
        every++;
        snprintf(text, sizeof text, "pp=2 %s", phrase);
        check(!sk_layout_read(text, 0, &m) && sk_word_value(&sk_word_every, &m) >= 1);
    }
    check(every > 10 && eager > 10);
}

int main(void)
{
    reads("dp=2 every=4", "mesh dp=2\nsplit b over dp\nagree every 4 steps\n", "dp 2 · every 4");
    reads("dp=2; agree every 4 steps", "mesh dp=2\nsplit b over dp\nagree every 4 steps\n",
          "dp 2 · every 4");
    reads("pp=2 eager micro=3", "mesh pp=2\nstages over pp schedule 1f1b eagerly micro 3\n",
          "pp 2 · eager · micro 3 · 1f1b");
    reads("mesh a=2; stages over a eagerly", "mesh a=2\nstages over a schedule 1f1b eagerly\n",
          "a 2 · eager · 1f1b");
    reads("tp=2 rows=3 order: rows tp",
          "mesh rows=3 tp=2\nsplit c over rows\nsplit h f v over tp\n", "rows 3 · tp 2");
    refused("dp=2 evry=4", "did you mean \"every\"");
    refused("dp=2 every", "needs a value, every=N, as in \"dp=2 every=4\"");
    refused("dp=2 every=65", "from 1 to 64, found \"65\"");
    refused("dp=2 every=4; agree every 3 steps", "'every' is said twice");
    refused("dp=2; agree every step", "reads \"agree every N steps\"; found \"agree every step\"");
    refused("dp=2 local-sgd=4", "every=N");
    refused("dp=2 every=4; canonical order", "every=4 with canonical order: sums of another step");
    refused("dp=2 zero=3 every=4", "every=4 with zero=3: gradients that stay apart");
    refused("dp=2 eager", "eager is about stages, and there are none; use pp=2 or leave it out");
    refused("mesh a=2; stages over a fast", "[eagerly]");
    values();
    draws();
    check(strstr(sk_word_about(&arena, &sk_word_every), "not with canonical, zero=2"));
    sk_arena_end(&arena);
    printf("own words: %d checks, %d failed\n", checks, bad);
    return bad != 0;
}
