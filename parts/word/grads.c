/* grads.c - gradients travel in fewer bits to where they are summed (parts/codec, doc/codec.md). */
#include "coll/codec.h"
#include "layout/word.h"
#include "program/sync.h"

#include <stdio.h>
#include <string.h>

static sk_status set(sk_reading *r, const char *value)
{
    return sk_word_codec(value, r->l->grads_as);
}

/* Codecs that are for gradients alone; of others, bf16 say, nobody knows what is meant. */
static void value_named(const char *name, sk_out *o)
{
    char text[SK_CODEC_TEXT];
    const sk_codec *c = sk_codec_meant(name, text);
    if (!c || !c->sums_only) return;
    sk_out_add(o, "grads, as in \"dp=4 grads=%s%s\"", text, c->needs_feedback ? " feedback" : "");
}

static bool on(const sk_layout *l) { return *l->grads_as; }

static void clear(sk_layout *l) { *l->grads_as = 0; }

static void print(const sk_layout *l, sk_out *o)
{
    if (on(l)) sk_out_add(o, "encode gradients as %s", l->grads_as);
}

static void print_brief(const sk_layout *l, sk_out *o)
{
    if (on(l))
        sk_out_add(o, "grads %s%s%s", l->grads_as, l->feedback ? " with feedback" : "",
                   l->union_sums ? " as a union" : "");
}

/* Ranks along this axis are replicas, who sum no gradients: the codec of what they send is said
 * behind sync. */
static sk_status of_replicas(const sk_layout *l, int axis)
{
    const sk_axis_sync *s = &l->sync[axis];
    const sk_sync *by = sk_sync_find(s->name);
    char cure[256] = "";
    sk_codec codec;
    SK_TRY(sk_codec_read(l->grads_as, &codec));
    if (by->outer && !*s->codec && !codec.low_rank)
        snprintf(cure, sizeof cure, "; sync=%s:%d:codec=%s%s encodes what they send", s->name,
                 s->every, l->grads_as, l->feedback ? ":feedback" : "");
    return sk_fail(SK_ECONF,
                   "layout: grads=%s is about gradients that are summed, and with sync=%s:%d the "
                   "ranks along '%s' update alone and sum none; leave grads out%s",
                   l->grads_as, s->name, s->every, l->mesh.name[axis], cure);
}

static sk_status check(const sk_layout *l)
{
    int axis = sk_layout_code_axis(l, 'b');
    for (int a = 0; a < l->mesh.n && axis < 0; a++)
        if (sk_layout_local(l, a) && *l->sync[a].name) return of_replicas(l, a);
    if (axis >= 0 && strpbrk(l->split[axis], "bt")) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: grads=%s is about gradients that are summed over %s%s%s; use dp=2 "
                   "(split b over AXIS) or leave it out",
                   l->grads_as, axis < 0 ? "the batch, and no axis splits it" : "'",
                   axis < 0 ? "" : l->mesh.name[axis],
                   axis < 0 ? "" : "', which shards, and it splits neither batch nor time");
}

static bool draw(sk_dice *d, const sk_layout *l, char phrase[SK_WORD_TEXT])
{
    static const char *const names[] = {"f16",
                                        "bf16",
                                        "fp8",
                                        "int8",
                                        "int4",
                                        "topk:0.5 feedback",
                                        "randk:0.9",
                                        "sign feedback",
                                        "q2",
                                        "q4",
                                        "q8",
                                        "q4 feedback",
                                        "topk:0.1 feedback",
                                        "randk:0.5 feedback",
                                        "threshold:1.5 feedback",
                                        "threshold:3 feedback",
                                        "chunks:0.4 feedback",
                                        "topk8:0.3 feedback",
                                        "topk4:0.2 feedback",
                                        "powersgd:1 feedback",
                                        "powersgd:4 feedback"};
    (void)l;
    snprintf(phrase, SK_WORD_TEXT, "grads=%s",
             names[sk_dice_pick(d, 0, (int)(sizeof names / sizeof *names) - 1)]);
    return sk_dice_one_in(d, 8);
}

/* Ranks along the axis have gradients to sum where it splits the batch. */
static bool claims(const sk_word_ask *ask)
{
    int axis = sk_layout_code_axis(ask->layout, 'b');
    return sk_axis_size(ask->layout, axis) > 1 && strchr(ask->layout->split[axis], 'b') &&
           ask->dtype == SK_F32;
}

static void idle(const sk_layout *l, sk_out *o)
{
    if (sk_axis_size(l, sk_layout_code_axis(l, 'b')) < 2)
        sk_out_add(o, "grads has nothing to do: one rank sums them, dp=N makes more");
    sk_codec c;
    if (!sk_codec_read(l->grads_as, &c) && sk_codec_sends_all(&c))
        sk_out_add(o, "%sgrads=%s chooses elements, and sends all of them: none sends fewer bytes",
                   o->n ? "; " : "", l->grads_as);
}

const sk_word sk_word_grads = {
    .name = "grads",
    .doc = "gradients are encoded where ranks sum them: skein list codec",
    .value = "CODEC",
    .sentence = {"encode gradients as CODEC"},
    .example = "dp=2 grads=int4",
    .alias = {{"compress compression gradient_compression grad_compression compressor codec",
               "grads=CODEC, as in \"dp=4 grads=topk:0.01 feedback\""}},
    .value_named = value_named,
    .kind = SK_WORD_OTHER,
    .place = 140,
    .set = set,
    .on = on,
    .clear = clear,
    .print = print,
    .print_brief = print_brief,
    .check = check,
    .idle = idle,
    .lowers = SK_LOWERS_WIRE,
    .claims = claims,
    .draw = draw,
    .tries = "bf16 int8",
    .lossy = true,
};
