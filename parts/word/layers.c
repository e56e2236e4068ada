/* layers.c - the word `layers`: how many layers each chunk of a pipeline has, where these are not
 * equal numbers (Llama 3, 405B, on 16 stages: 7+8x14+7, for the first stage has the embeddings and
 * the last one the head).  layers=auto: a job puts those numbers in its place that make the slowest
 * stage of its machine fastest (train/auto_layers.h). */
#include "layout/stage_balance.h"
#include "layout/word.h"
#include "program/pipeline_schedule.h"

#include <stdio.h>
#include <string.h>

enum { MOST_CHUNKS = 1 << 15 };

static sk_status set(sk_reading *r, const char *value)
{
    sk_arena tmp = {0};
    sk_layout *l = r->l;
    bool is_auto = !strcmp(value, SK_LAYERS_AUTO);
    int *blocks = sk_many(&tmp, int, MOST_CHUNKS);
    int n = is_auto ? 0 : sk_layers_read(value, blocks, MOST_CHUNKS);
    bool fine = is_auto || (n && sk_layers_print(blocks, n, l->layers));
    if (is_auto) snprintf(l->layers, sizeof l->layers, "%s", value);
    sk_arena_end(&tmp);
    if (fine) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: layers=%.60s; the numbers of layers of all stages are needed, as in "
                   "layers=5+6+6+5, or with 6x2 for 6+6, in %d characters; or layers=auto",
                   value, SK_LAYERS_TEXT - 1);
}

static bool on(const sk_layout *l) { return *l->layers; }
static void clear(sk_layout *l) { *l->layers = 0; }
static bool works(const sk_layout *l) { return l->stage_axis >= 0; }

static void print(const sk_layout *l, sk_out *o)
{
    if (on(l)) sk_out_add(o, "layers %s", l->layers);
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (sk_axis_size(l, l->stage_axis) < 2)
        sk_out_add(o, "layers=%s has nothing to do: there is one stage, pp=N makes more",
                   l->layers);
}

static sk_status adds_up(const sk_word_ask *ask, const int *blocks, int n, int chunks)
{
    int sum = 0;
    const char *list = ask->layout->layers;
    for (int i = 0; i < n; i++) sum += blocks[i];
    if (n != chunks)
        return sk_fail(SK_ECONF,
                       "layout: layers=%s has the layers of %d chunk%s, and there are %d: %d for "
                       "each of %d stages; as many numbers are needed, first to last as layers "
                       "follow each other",
                       list, n, sk_plural(n), chunks, sk_schedule_chunks(ask->layout),
                       sk_axis_size(ask->layout, ask->layout->stage_axis));
    if (ask->graph && sum != ask->graph->n_layers - 2)
        return sk_fail(SK_ECONF,
                       "layout: layers=%s are %d, and the model has %d; numbers with that sum are "
                       "needed (embeddings and head are not counted)",
                       list, sum, ask->graph->n_layers - 2);
    return SK_OK;
}

static sk_status fits(const sk_word_ask *ask)
{
    sk_arena tmp = {0};
    const sk_layout *l = ask->layout;
    if (!on(l) || !works(l)) return SK_OK;
    if (!strcmp(l->layers, SK_LAYERS_AUTO))
        return !ask->graph ? SK_OK
                           : sk_fail(SK_ECONF, "layout: layers=auto: a job and its machine choose "
                                               "the numbers, and here is none; give them, as in "
                                               "layers=5+6+6+5");
    int *blocks = sk_many(&tmp, int, MOST_CHUNKS);
    int chunks = sk_schedule_chunks(l) * sk_axis_size(l, l->stage_axis);
    sk_status st = adds_up(ask, blocks, sk_layers_read(l->layers, blocks, MOST_CHUNKS), chunks);
    sk_arena_end(&tmp);
    return st;
}

/* Each block to any chunk, the chunks in order. */
static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    int blocks[256] = {0};
    char list[SK_LAYERS_TEXT];
    if (!works(l) || !d->blocks || !sk_dice_one_in(d, 3)) return false;
    int n = sk_schedule_chunks(l) * sk_axis_size(l, l->stage_axis);
    if (n > 256) return false;
    for (int i = 0; i < d->blocks; i++) blocks[sk_dice_pick(d, 0, n - 1)]++;
    if (!sk_layers_print(blocks, n, list)) return false;
    snprintf(phrase, SK_WORD_TEXT, "layers=%s", list);
    return true;
}

const sk_word sk_word_layers = {
    .name = "layers",
    .doc = "the layers of each stage, 7+8x14+7: 7, 14 times 8, 7 (of each chunk, if a stage has "
           "several); auto: as a search finds them for the machine",
    .value = "N+N..|auto",
    .sentence = {"layers LIST"},
    .clause_of = "stages",
    .example = "pp=2 micro=4 layers=3+1",
    .alias = {{"num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage "
               "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
               "pipeline_model_parallel_layout pipeline_layer_split split_points",
               "layers=N+N.., as in \"pp=4 micro=8 layers=5+6+6+5\""}},
    .kind = SK_WORD_OTHER,
    .place = 75,
    .brief_place = 167,
    .set = set,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print,
    .works = works,
    .about = "the stages of a pipeline, and there are none",
    .cure = "pp=2 (stages over AXIS)",
    .fits = fits,
    .idle = idle,
    .excludes = {{"balance", 0, "both say which stage has which layers"}},
    .lowers = SK_LOWERS_FLOPS,
    .draw = draw,
    .tries = "auto",
};
