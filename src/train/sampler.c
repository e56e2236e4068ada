/* sampler.c - text from a model directory, one token at a time. */
#include "train/sampler.h"
#include "base/file_io.h"
#include "base/rng.h"
#include "data/data.h"
#include "run/run.h"
#include "train/companions.h"
#include "train/hf.h"
#include "train/hf_config.h"

#include <math.h>
#include <string.h>

#define DRAWS 0x73616d706c650000u /* the stream of random numbers */

struct sk_sampler {
    sk_arena arena;
    sk_sampler_opts opts;
    const sk_model *model;
    sk_hyper hyper;
    sk_graph graph;
    sk_layout layout;
    sk_program *program;
    sk_heaps *heaps;
    sk_run *run;
    sk_tokenizer *words;
    const float *logits;
    int64_t n_words; /* ids that can be drawn */
    double *odds;
    struct {
        int32_t *v;
        int n, cap;
    } text;              /* ids of the prompt and of what came after */
    int fed;             /* of them, how many the model has seen */
    int64_t pos, window; /* position of the next; how many there are */
    int32_t token;       /* being fed */
    bool was_cut;        /* what came first is forgotten */
    uint64_t drawn;
    int64_t ends[SK_MOST_ENDS]; /* ids that end a text */
    int n_ends;
};

static sk_status fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                      int64_t step, bool validation, void *to)
{
    const sk_sampler *s = ctx;
    const sk_feed_input *in = sk_source_input(input, type, box->n);
    (void)step, (void)validation;
    *(int32_t *)to = in && in->kind == SK_INPUT_PLACES ? (int32_t)s->pos : s->token;
    return SK_OK;
}

/* --- opening --- */

static sk_status read_config(sk_sampler *s, const char *dir)
{
    SK_TRY(sk_hf_config(dir, &s->model, &s->hyper));
    bool own = sk_is_there(sk_print(&s->arena, "%s/tokenizer.json", dir));
    if (!own && s->hyper.vocab_size > 256)
        return sk_fail(SK_EDATA, "%s has no tokenizer.json, and its %lld ids are not bytes", dir,
                       (long long)s->hyper.vocab_size);
    return sk_tokenizer_open(&s->arena, own ? dir : "byte", &s->words);
}

static sk_status read_ends(sk_sampler *s, const char *dir)
{
    sk_companions c;
    SK_TRY(sk_companions_read(&s->arena, dir, &c));
    s->n_ends = s->opts.ignore_eos ? 0 : sk_companions_ends(&c, s->ends);
    return SK_OK;
}

static sk_status make_program(sk_sampler *s, const char *dir)
{
    sk_graph *g = &s->graph;
    sk_compile_opts o = {.n_micro = 1, .threads = s->opts.threads > 0 ? s->opts.threads : 1};
    sk_graph_init(g, &s->arena);
    sk_graph_size(g, 'b', 1);
    sk_graph_size(g, 't', 1);
    s->model->build(g, &s->hyper, SK_DECODE);
    SK_TRY(sk_graph_status(g));
    if (!g->logits || !sk_graph_is_sequences(g))
        return sk_fail(SK_EDATA, "%s: a model of kind %s generates no text", dir, s->model->name);
    SK_TRY(sk_layout_read("dp=1", 1, &s->layout));
    return sk_compile(&s->arena, g, &s->layout, &o, 0, &s->program);
}

static const float *find_logits(const sk_sampler *s)
{
    const sk_program *p = s->program;
    for (int i = 0; i < p->bufs.n; i++)
        if (p->bufs.v[i].tensor == s->graph.logits) return sk_run_data(s->run, i);
    return NULL;
}

static sk_status load(sk_sampler *s, const char *dir)
{
    sk_run_opts o = {.fill = fill, .fill_ctx = s};
    sk_tensor_shard *boxes;
    int n = 0, n_shapes = 0;
    SK_TRY(sk_heaps_open(1, &s->program->heap_bytes, false, 0, &s->heaps));
    SK_TRY(sk_run_open(&s->arena, s->program, s->heaps, &o, &s->run));
    SK_TRY(sk_run_init(s->run, 0));
    sk_run_shards(s->run, &s->arena, &boxes, &n);
    const sk_hf_shape *shapes = sk_hf_shapes(&s->arena, &s->graph, &n_shapes);
    SK_TRY(sk_hf_check(dir, s->model, &s->hyper, shapes, n_shapes, sk_all_chunks));
    SK_TRY(sk_hf_load(dir, s->model, &s->hyper, shapes, n_shapes, boxes, n));
    s->logits = find_logits(s);
    sk_assert(s->logits);
    return SK_OK;
}

/* The text is longer than the model's positions: begin anew with the end of it.  A window of
 * attention is not that: every layer sees further back through the one below. */
static sk_status cut(sk_sampler *s)
{
    if (s->hyper.sliding_window)
        return sk_fail(
            SK_ECONF,
            "sample: the text has more than %lld tokens, the model's sliding_window, and "
            "attention that sees only a window of a text is not supported; ask for fewer",
            (long long)s->window);
    s->fed = s->text.n - (int)(s->window + 1) / 2;
    s->pos = 0;
    s->was_cut = true;
    return SK_OK;
}

static sk_status read_prompt(sk_sampler *s)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    int n_begin = 0;
    const char *text = s->opts.prompt ? s->opts.prompt : "";
    const int32_t *begin = sk_tokenizer_begin(s->words, &n_begin);
    if (!*text && !n_begin) text = sk_tokenizer_end(s->words);
    if (!*text && !n_begin) text = "\n"; /* something must come before the first token */
    SK_TRY(sk_tokenizer_encode(s->words, &s->arena, text, strlen(text), &ids, &n));
    for (int i = 0; i < n_begin; i++) *sk_push(&s->arena, &s->text) = begin[i];
    for (int64_t i = 0; i < n; i++) *sk_push(&s->arena, &s->text) = ids[i];
    for (int i = 0; i < s->text.n; i++)
        if (s->text.v[i] >= s->hyper.vocab_size)
            return sk_fail(
                SK_EDATA,
                "sample: the tokenizer makes the id %d of the prompt, the model's vocab_size "
                "is %lld",
                s->text.v[i], (long long)s->hyper.vocab_size);
    if (!s->text.n) *sk_push(&s->arena, &s->text) = 0;
    s->window = s->graph.size['n']; /* the positions that the model remembers */
    if (s->text.n > s->window) SK_TRY(cut(s));
    int64_t words = sk_tokenizer_vocab(s->words); /* tables of models are often padded */
    s->n_words = words < s->hyper.vocab_size ? words : s->hyper.vocab_size;
    s->odds = sk_many(&s->arena, double, s->n_words);
    return SK_OK;
}

static sk_status open_all(sk_sampler *s, const char *dir)
{
    SK_TRY(read_config(s, dir));
    SK_TRY(read_ends(s, dir));
    SK_TRY(make_program(s, dir));
    SK_TRY(load(s, dir));
    return read_prompt(s);
}

sk_status sk_sampler_open(const char *dir, const sk_sampler_opts *o, sk_sampler **out)
{
    sk_arena a = {0};
    sk_sampler *s = sk_new(&a, sk_sampler);
    s->arena = a;
    s->opts = *o;
    sk_status st = open_all(s, dir);
    if (st) {
        sk_sampler_close(s);
        return sk_trail(st, SK_HERE);
    }
    *out = s;
    return SK_OK;
}

void sk_sampler_close(sk_sampler *s)
{
    if (!s) return;
    if (s->run) sk_run_close(s->run);
    sk_heaps_close(s->heaps);
    sk_arena a = s->arena; /* s itself lies in it */
    sk_arena_end(&a);
}

/* --- drawing --- */

static int32_t likeliest(const sk_sampler *s)
{
    int32_t best = 0;
    for (int64_t i = 1; i < s->n_words; i++)
        if (s->logits[i] > s->logits[best]) best = (int32_t)i;
    return best;
}

static int32_t draw(sk_sampler *s)
{
    int32_t top = likeliest(s);
    if (s->opts.temp <= 0) return top;
    double sum = 0;
    for (int64_t i = 0; i < s->n_words; i++)
        sum += s->odds[i] = exp(((double)s->logits[i] - (double)s->logits[top]) / s->opts.temp);
    double left = sum * sk_rng_uniform(s->opts.seed, DRAWS, s->drawn++);
    for (int64_t i = 0; i < s->n_words; i++)
        if ((left -= s->odds[i]) < 0) return (int32_t)i;
    return top;
}

static sk_status feed(sk_sampler *s)
{
    if (s->pos == s->window) SK_TRY(cut(s));
    s->token = s->text.v[s->fed++];
    SK_TRY(sk_run_forward(s->run, 0));
    s->pos++;
    return SK_OK;
}

static bool ends(const sk_sampler *s, int32_t id)
{
    for (int i = 0; i < s->n_ends; i++)
        if (s->ends[i] == id) return true;
    return false;
}

sk_status sk_sampler_next(sk_sampler *s, const char **bytes, size_t *n)
{
    while (s->fed < s->text.n) SK_TRY(feed(s));
    int32_t id = draw(s);
    if (!isfinite(s->logits[id]))
        return sk_fail(SK_ENUM, "sample: the model's output is not finite; skein verify tells "
                                "whether all its weights are");
    *sk_push(&s->arena, &s->text) = id;
    *bytes = sk_tokenizer_piece(s->words, id, n);
    if (ends(s, id)) *bytes = NULL, *n = 0;
    return SK_OK;
}

int64_t sk_sampler_cut(const sk_sampler *s) { return s->was_cut ? s->window : 0; }

/* --- bytes to text --- */

static void bad(sk_utf8_filter *c, sk_out *o)
{
    if (c->n) sk_out_add(o, "\xEF\xBF\xBD");
    c->n = c->need = 0;
}

static int length_of(unsigned char b)
{
    if (b >= 0xC2 && b <= 0xDF) return 2;
    if (b >= 0xE0 && b <= 0xEF) return 3;
    if (b >= 0xF0 && b <= 0xF4) return 4;
    return 0;
}

/* May `b` be the second byte?  Rules out overlong forms, surrogates, what lies past U+10FFFF. */
static bool second_fits(unsigned char first, unsigned char b)
{
    if (first == 0xE0) return b >= 0xA0;
    if (first == 0xED) return b <= 0x9F;
    if (first == 0xF0) return b >= 0x90;
    if (first == 0xF4) return b <= 0x8F;
    return true;
}

static void put_byte(sk_utf8_filter *c, sk_out *o, unsigned char b)
{
    bool tail = b >= 0x80 && b <= 0xBF;
    if (c->n && (!tail || (c->n == 1 && !second_fits(c->held[0], b)))) bad(c, o);
    if (c->n) {
        c->held[c->n++] = b;
        if (c->n < c->need) return;
        if (c->n == 2 && c->held[0] == 0xC2 && b < 0xA0) sk_out_add(o, " "); /* C1 controls */
        else sk_out_add(o, "%.*s", c->n, (const char *)c->held);
        c->n = c->need = 0;
    } else if (b < 0x80) {
        bool plain = (b >= 0x20 && b != 0x7F) || (!c->one_line && (b == '\n' || b == '\t'));
        sk_out_add(o, "%c", plain ? b : ' ');
    } else {
        c->held[c->n++] = b;
        c->need = length_of(b);
        if (!c->need) bad(c, o);
    }
}

void sk_utf8_filter_put(sk_utf8_filter *c, sk_out *o, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) put_byte(c, o, (unsigned char)bytes[i]);
}

void sk_utf8_filter_end(sk_utf8_filter *c, sk_out *o) { bad(c, o); }
