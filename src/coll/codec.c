/* codec.c - rows in blocks, and the scale of a block. */
#include "coll/codec.h"

#include "base/strings.h"
#include "coll/nonzero_rows.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const sk_codec *sk_codec_find(const char *name)
{
    for (int i = 0; sk_codec_parts[i]; i++)
        if (!strcmp(sk_codec_parts[i]->name, name)) return sk_codec_parts[i];
    return NULL;
}

const sk_codec *sk_codec_meant(const char *name, char to[SK_CODEC_TEXT])
{
    for (const sk_codec *const *c = sk_codec_parts; *c; c++) {
        const sk_alias also = {(*c)->also, (*c)->name};
        if (strcasecmp((*c)->name, name) != 0 && !sk_alias_find(&also, 1, name)) continue;
        if ((*c)->value_name) snprintf(to, SK_CODEC_TEXT, "%s:%g", (*c)->name, (*c)->value_usual);
        else snprintf(to, SK_CODEC_TEXT, "%s", (*c)->name);
        return *c;
    }
    return NULL;
}

static sk_status no_codec(const char *name)
{
    const char *names[64];
    char meant[SK_CODEC_TEXT];
    int n = 0;
    if (sk_codec_meant(name, meant))
        return sk_fail(SK_ECONF, "layout: no codec is called '%s' (did you mean '%s'?)", name,
                       meant);
    while (n < 64 && sk_codec_parts[n]) names[n] = sk_codec_parts[n]->name, n++;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_ECONF, "layout: no codec is called '%s'%s%s%s", name,
                   near ? " (did you mean '" : "; see skein list codec", near ? near : "",
                   near ? "'?)" : "");
}

sk_status sk_codec_read(const char *text, sk_codec *out)
{
    char name[64];
    const char *colon = strchr(text, ':');
    double value = 0;
    snprintf(name, sizeof name, "%.*s", (int)(colon ? colon - text : 63), text);
    const sk_codec *c = sk_codec_find(name);
    if (!c) return no_codec(name);
    if (colon && !c->value_name)
        return sk_fail(SK_ECONF, "layout: the codec '%s' has no value, found \"%s\"; write %s",
                       c->name, text, c->name);
    if (c->low_rank && (!colon || !sk_read_plain(colon + 1, &value) ||
                        !(value >= 1 && value <= c->value_most && value == floor(value))))
        return sk_fail(SK_ECONF,
                       "layout: the codec '%s' needs a %s, a whole number from 1 to %g, found "
                       "\"%s\"; for example %s:4",
                       c->name, c->value_name, c->value_most, text, c->name);
    if (c->value_name &&
        (!colon || !sk_read_plain(colon + 1, &value) || !(value > 0 && value <= c->value_most)))
        return sk_fail(SK_ECONF,
                       "layout: the codec '%s' needs a %s over 0 and up to %g, found \"%s\"; for "
                       "example %s:%g",
                       c->name, c->value_name, c->value_most, text, c->name, c->value_usual);
    *out = *c;
    out->value = value;
    return SK_OK;
}

static int64_t block_bytes(const sk_codec *c, int64_t n)
{
    return n ? c->head + (n * c->bits + 7) / 8 : 0;
}

int64_t sk_codec_bytes(const sk_codec *c, int64_t n)
{
    if (c->unit) return sk_nonzero_rows_bytes(c);
    if (c->row_bytes) return n ? c->row_bytes(n, c->value) : 0;
    return n / c->block * block_bytes(c, c->block) + block_bytes(c, n % c->block);
}

int64_t sk_codec_kept(int64_t n, double share)
{
    int64_t k = (int64_t)ceil((double)n * share * (1 - 1e-12)); /* 7 of 100 * 0.07 */
    return k < 1 ? n > 0 : k < n ? k : n;
}

bool sk_codec_sends_all(const sk_codec *c)
{
    enum { ROW = 4096 };
    return c->row_kept && c->row_kept(ROW, c->value) >= ROW;
}

/* sk_code_random() of n places from `first` on: four of them have one draw. */
static void draw(uint64_t own, uint64_t first, int n, uint16_t *to)
{
    uint64_t bits = 0;
    for (int i = 0; i < n; i++) {
        uint64_t place = first + (uint64_t)i;
        if (!i || place % 4 == 0) bits = sk_rng(own, 0, place / 4).a;
        to[i] = (uint16_t)(bits >> 16 * (place % 4));
    }
}

static void encode_block(const sk_codec *c, const sk_code_row *r, int64_t at, const float *x, int n,
                         uint8_t *to)
{
    uint16_t random[SK_CODEC_RUN];
    if (c->encode) {
        c->encode(x, n, to);
        return;
    }
    draw(r->own, (uint64_t)(r->first + at), n, random);
    c->encode_random(x, n, random, to);
}

void sk_encode_run(const sk_codec *c, const sk_code_row *r, int64_t at, const float *x, int64_t n,
                   uint8_t *to)
{
    to += sk_codec_bytes(c, at);
    for (int64_t i = 0; i < n; i += c->block, to += block_bytes(c, c->block))
        encode_block(c, r, at + i, x + i, (int)(n - i < c->block ? n - i : c->block), to);
}

void sk_encode(const sk_codec *c, const sk_code_row *r, uint8_t *to)
{
    float x[SK_CODEC_RUN];
    if (c->unit) {
        sk_nonzero_rows_put(c, r, to);
        return;
    }
    if (c->encode_row) {
        c->encode_row(r, c->value, to);
        return;
    }
    for (int64_t at = 0, n; at < r->n; at += n) {
        n = r->n - at < SK_CODEC_RUN ? r->n - at : SK_CODEC_RUN;
        r->read(r->of, at, n, x);
        sk_encode_run(c, r, at, x, n, to);
    }
}

void sk_decode(const sk_codec *c, const sk_code_row *r, const uint8_t *from, int64_t at, int64_t n,
               float *to)
{
    if (c->unit) {
        sk_nonzero_rows_get(c, from, at, n, to);
        return;
    }
    if (c->decode_row) {
        c->decode_row(r, c->value, from, at, n, to);
        return;
    }
    from += sk_codec_bytes(c, at);
    for (int64_t bytes = block_bytes(c, c->block); n > 0; n -= c->block, from += bytes) {
        c->decode(from, (int)(n < c->block ? n : c->block), to);
        to += c->block;
    }
}

/* The largest of the block; not finite if one of them is not.  Without their sign, bits are in the
 * order of the numbers, and what is not finite comes last. */
static float largest(const float *x, int n)
{
    uint32_t most = 0;
    float top;
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    memcpy(&top, &most, sizeof top);
    return top;
}

float sk_scale_put(const float *x, int n, float most, uint8_t *to)
{
    float top = largest(x, n), scale = top / most;
    uint16_t bits = sk_to_bf16(scale);
    if (isfinite(scale) && sk_from_bf16(bits) < scale) bits++; /* never too small */
    if (scale < FLT_MIN) bits = 0;
    memcpy(to, &bits, sizeof bits);
    return isfinite(scale) && bits ? 1 / sk_from_bf16(bits) : 0;
}

float sk_scale_get(const uint8_t *from)
{
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return sk_from_bf16(bits);
}
