/* codec.c - rows in blocks, and the scale of a block. */
#include "coll/codec.h"

#include <float.h>
#include <math.h>
#include <string.h>

const sk_codec *sk_codec_find(const char *name)
{
    for (int i = 0; sk_codec_parts[i]; i++)
        if (!strcmp(sk_codec_parts[i]->name, name)) return sk_codec_parts[i];
    return NULL;
}

static int64_t block_bytes(const sk_codec *c, int64_t n)
{
    return n ? c->head + (n * c->bits + 7) / 8 : 0;
}

int64_t sk_codec_bytes(const sk_codec *c, int64_t n)
{
    return n / c->block * block_bytes(c, c->block) + block_bytes(c, n % c->block);
}

void sk_encode(const sk_codec *c, const float *x, int64_t n, uint8_t *to)
{
    for (int64_t bytes = block_bytes(c, c->block); n > 0; n -= c->block, to += bytes) {
        c->encode(x, (int)(n < c->block ? n : c->block), to);
        x += c->block;
    }
}

void sk_decode(const sk_codec *c, const uint8_t *from, int64_t n, float *to)
{
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
