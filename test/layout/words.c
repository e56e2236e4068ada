/* words.c - the table of words: it is sound, all of it is drawn, and every word does what it
 * says it is for.
 *
 * Equal losses cannot show that a word has become idle: a pass that comes too late finds nothing to
 * do, and every result stays right.  So each word says what it lowers (sk_word.lowers), and
 * programs of all ranks with the word are measured against those of the same layout without it: of
 * its example, where one of the models must have less of it; and of random layouts that it claims
 * (sk_word.claims), where nine of ten models must: some are so small that a word costs more than
 * it saves.  Nothing is run.
 *
 *     layout_words [SEED [PAIRS]]     1; 1500, or 8000 with SKEIN_LONG; more, until each word was
 * measured */
#include "lib/check.h"
#include "lib/draw.h"
#include "lib/measure.h"

#include "program/pass.h"
#include "program/pipeline_schedule.h"

#include <stdlib.h>

static const sk_pair_most most = {.ranks = 8, .stages = 4, .micro = 8, .layers = 5, .batch = 30};
static int enough = 10; /* claims that are measured of a word; all, where pairs are asked for */

/* --- the table --- */

static void needs(const sk_word *w, bool there, const char *else_)
{
    if (!there) printf("the word %s: %s\n", w->name, else_);
    check(there);
}

/* A pass of a word that is wrong is refused, whatever the mistake. */
static sk_status list_nothing(sk_program *p, sk_arena *tmp)
{
    (void)p, (void)tmp;
    return SK_OK;
}

static void refused(const char *name, sk_pass pass, const char *why)
{
    sk_word w = {.name = name, .pass = {&pass}};
    check(sk_pass_check(&w) == SK_EBUG);
    check(strstr(sk_error_line(), why) != NULL);
}

static void wrong_passes(void)
{
    refused("mine", (sk_pass){.station = "bucket", .doc = "d", .list = list_nothing}, "'bucket'");
    refused("mine", (sk_pass){.station = "memory", .doc = "d", .list = list_nothing}, "'memory'");
    refused("mine", (sk_pass){.station = "edges", .doc = "d", .list = list_nothing}, "'edges'");
    refused("mine", (sk_pass){.doc = "d", .list = list_nothing}, "station ''");
    refused("mine", (sk_pass){.station = "lower", .list = list_nothing}, "no .doc");
    refused("mine", (sk_pass){.station = "lower", .doc = "d"}, "no .list");
    sk_pass fine = {.station = "lower", .doc = "d", .list = list_nothing};
    refused("slices", fine, "another pass"); /* a station */
    refused("hoist", fine, "another pass");  /* the pass of a word */
    fine.name = "slices-2";
    check(!sk_pass_check(&(sk_word){.name = "slices", .pass = {&fine}}));
}

static void sound(void)
{
    for (const sk_word *const *p = sk_word_parts; *p; p++) {
        const sk_word *w = *p;
        needs(w, w->doc && *w->doc, "has no .doc");
        needs(w, w->example && *w->example, "has no .example, a whole layout");
        needs(w, w->place, "has no .place, the number of its sentence in a printed layout");
        needs(w, !w->no_short || w->sentence[0], "has .no_short and no .sentence");
        needs(w, w->kind != SK_WORD_OTHER || w->on, "is SK_WORD_OTHER and has no .on");
        needs(w, w->kind != SK_WORD_OTHER || w->set || w->say,
              "is SK_WORD_OTHER and has neither .set nor .say");
        needs(w, !w->works || w->about, "has .works and no .about");
        needs(w, !w->works || w->cure, "has .works and no .cure");
        needs(w, !w->claims || w->lowers, "has .claims and no .lowers");
        needs(w, !sk_pass_check(w), sk_error_line());
        for (const sk_word *const *q = p + 1; *q; q++) {
            check(w->place != (*q)->place);
            check(strcmp(w->name, (*q)->name) != 0 || !w->value != !(*q)->value);
        }
        for (int i = 0; w->excludes[i].word; i++) {
            const sk_word *x = sk_word_find(w->excludes[i].word);
            check(x && w->excludes[i].why);
            for (int k = 0; x && x->excludes[k].word; k++) /* a pair stands once */
                check(strcmp(x->excludes[k].word, w->name) != 0);
        }
    }
}

/* Values for a planner can be read where the example has its own. */
static void tries(const sk_word *w)
{
    char name[SK_WORD_TEXT], text[SK_PAIR_TEXT];
    sk_layout l;
    if (!w->value) {
        check(!strcmp(w->tries, "yes") && strstr(w->example, w->name));
        return;
    }
    snprintf(name, sizeof name, "%s=", w->name);
    const char *at = strstr(w->example, name);
    check(at != NULL);
    for (const char *v = w->tries; at && *v; v += strspn(v, " ")) {
        size_t n = strcspn(v, " "), old = strcspn(at, " ");
        snprintf(text, sizeof text, "%.*s%s%.*s%s", (int)(at - w->example), w->example, name,
                 (int)n, v, at + old);
        bool read = !sk_layout_read(text, 0, &l) || strstr(sk_error_line(), "that divides");
        if (!read) printf("\"%s\": %s\n", text, sk_error_line());
        check(read);
        v += n;
    }
}

/* --- measuring --- */

typedef struct subject {
    sk_arena arena;
    sk_trial trial;
    sk_graph graph;
    sk_layout layout;
    sk_word_ask ask;
    double has[SK_N_LOWERS];
    bool measured;
} subject;

/* Large enough that bytes are not those of pages, nor times those of a few elements. */
static void enlarge(sk_trial *t)
{
    t->hyper.hidden_size *= 16;
    t->hyper.intermediate_size *= 16;
    t->hyper.vocab_size *= 16;
    t->hyper.input_size *= 16;
    t->hyper.head_dim *= 16;
    t->hyper.max_position_embeddings *= 4;
    t->seq *= 4;
}

static sk_status look_at(subject *s)
{
    SK_TRY(sk_layout_read(s->trial.layout, 0, &s->layout));
    SK_TRY(sk_trial_graph(&s->arena, &s->trial, &s->graph));
    s->ask = (sk_word_ask){.layout = &s->layout,
                           .graph = &s->graph,
                           .optim = sk_optim_find(s->trial.optim ? s->trial.optim : "adamw"),
                           .async = sk_schedule_find(s->layout.schedule)->async,
                           .gpu = s->trial.gpu,
                           .dtype = s->trial.dtype};
    return SK_OK;
}

static sk_status measure(const sk_trial *t, double has[SK_N_LOWERS])
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n;
    sk_status st = sk_trial_compile(&a, t, &g, &p, &n);
    if (!st) st = sk_measure(&a, p, n, has);
    sk_arena_end(&a);
    return st;
}

/* 1: the layout has less of it with the word than without; 0: it has not; -1: others need the word,
 * so that there is no layout without it. */
static int lowers(const sk_word *w, const subject *s, double *with, double *without)
{
    sk_arena a = {0};
    sk_layout rest = s->layout;
    sk_trial t = s->trial;
    double has[SK_N_LOWERS];
    sk_word_clear(w, &rest);
    t.layout = sk_layout_print(&a, &rest);
    sk_status st = measure(&t, has);
    sk_arena_end(&a);
    if (st) return -1;
    *with = s->has[w->lowers];
    *without = has[w->lowers];
    return *with < *without;
}

/* --- examples --- */

static void example(const sk_word *w)
{
    double with = 0, without = 0;
    bool any = false;
    for (const sk_model *const *m = sk_model_parts; *m && !any; m++) {
        subject s = {.trial = sk_trial_small((*m)->name, w->example)};
        enlarge(&s.trial);
        bool fits = !look_at(&s) && !measure(&s.trial, s.has);
        any = fits && lowers(w, &s, &with, &without) == 1;
        sk_arena_end(&s.arena);
    }
    if (!any)
        printf("\"%s\": %s does not lower %s: %g with it, %g without\n", w->example, w->name,
               sk_lowers_names[w->lowers], with, without);
    check(any);
}

/* --- claims --- */

static int drawn[SK_MOST_WORDS], claimed[SK_MOST_WORDS], untrue[SK_MOST_WORDS];

static void claim(const sk_word *w, int i, const sk_pair *p, subject *s)
{
    double with, without;
    if (!w->lowers || !w->claims || claimed[i] >= enough || !w->claims(&s->ask)) return;
    if (!s->measured && measure(&s->trial, s->has)) return; /* refused by the compiler */
    s->measured = true;
    int less = lowers(w, s, &with, &without);
    if (less < 0) return;
    claimed[i]++;
    untrue[i] += !less;
    if (!less)
        printf("%s does not lower %s: %g with it, %g without\n  \"%s\" \"%s\"\n", w->name,
               sk_lowers_names[w->lowers], with, without, p->model, p->layout);
}

static void one_pair(const sk_pair *p)
{
    subject s = {0};
    check(!sk_pair_read(p, &s.trial));
    enlarge(&s.trial);
    if (!look_at(&s))
        for (int i = 0; sk_word_parts[i]; i++) {
            if (!sk_word_on(sk_word_parts[i], &s.layout)) continue;
            drawn[i]++;
            claim(sk_word_parts[i], i, p, &s);
        }
    sk_arena_end(&s.arena);
}

/* Some word was not drawn yet, or nothing of what it claims was measured. */
static bool unseen(void)
{
    for (int i = 0; sk_word_parts[i]; i++) {
        const sk_word *w = sk_word_parts[i];
        if (!drawn[i] && w->kind != SK_WORD_ORDER) return true;
        if (w->claims && !claimed[i]) return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int n = argc > 2 ? atoi(argv[2]) : getenv("SKEIN_LONG") ? 8000 : 1500, all = 0;
    if (argc > 2 || getenv("SKEIN_LONG")) enough = n;
    sound();
    wrong_passes();
    for (const sk_word *const *w = sk_word_parts; *w; w++) {
        if ((*w)->lowers) example(*w);
        if ((*w)->tries) tries(*w);
    }
    int made = 0;
    for (; made < n || (made < 10 * n && unseen()); made++) {
        sk_pair p = sk_pair_draw(seed, (uint64_t)made, &most);
        one_pair(&p);
    }
    for (int i = 0; sk_word_parts[i]; i++) {
        const sk_word *w = sk_word_parts[i];
        if ((!drawn[i] && w->kind != SK_WORD_ORDER) || (w->claims && !claimed[i]))
            printf("%s: drawn %d times, %d claims measured\n", w->name, drawn[i], claimed[i]);
        check(untrue[i] * 10 <= claimed[i]);
        all += claimed[i];
    }
    check(!unseen());
    printf("words: %d random layouts (seed %llu), %d claims measured, %d checks, %d failed\n", made,
           (unsigned long long)seed, all, checks, bad);
    return bad != 0;
}
