/* chunks.c - virtual stages: each stage has several chunks of layers (Narayanan et al. 2021). */
#include "layout/word.h"
#include "program/pipeline_schedule.h"

#include <stdio.h>

static bool works(const sk_layout *l) { return l->stage_axis >= 0; }

static sk_status fits(const sk_word_ask *ask)
{
    const sk_schedule *s = sk_schedule_find(ask->layout->schedule);
    int n = ask->layout->chunks;
    if (!n || !s || !s->chunks || s->chunks == n) return SK_OK;
    return sk_fail(SK_ECONF, "layout: schedule %s has %d chunks a stage, not %d", s->name,
                   s->chunks, n);
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    const sk_schedule *s = sk_schedule_find(l->schedule);
    if (!works(l) || s->chunks) return false;
    int n = sk_dice_one_in(d, 8) ? sk_dice_pick(d, 1, 9) : sk_dice_pick(d, 0, 3);
    snprintf(phrase, SK_WORD_TEXT, "chunks=%d", n);
    return n > 0;
}

const sk_word sk_word_chunks = {
    .name = "chunks",
    .doc = "chunks of layers that each stage has (virtual stages)",
    .value = "N",
    .sentence = {"chunks N"},
    .clause_of = "stages",
    .example = "pp=2 micro=4 chunks=2 schedule=interleaved",
    .alias = {{"virtual_pipeline virtual_pipeline_model_parallel "
               "num_layers_per_virtual_pipeline_stage vpp",
               "chunks=N, as in \"pp=4 micro=8 chunks=2 schedule=interleaved\""}},
    .kind = SK_WORD_INT,
    .least = 1,
    .at = offsetof(sk_layout, chunks),
    .place = 70,
    .works = works,
    .about = "the stages of a pipeline, and there are none",
    .cure = "pp=2 (stages over AXIS)",
    .fits = fits,
    .draw = draw,
    .tries = "2 4",
    .tries_with = "schedule=interleaved",
};
