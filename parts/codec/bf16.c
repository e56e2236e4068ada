/* bf16.c - floats of 16 bits: fraction of 7 bits, the range of f32. */
#include "coll/codec.h"

enum { BLOCK = 256 };

static void encode(const float *x, int n, uint8_t *to) { sk_convert(to, SK_BF16, x, SK_F32, n); }
static void decode(const uint8_t *from, int n, float *to)
{
    sk_convert(to, SK_F32, from, SK_BF16, n);
}

const sk_codec sk_codec_bf16 = {.name = "bf16",
                                .doc = "fraction of 7 bits, the range of f32: 2 bytes an element",
                                .block = BLOCK,
                                .bits = 16,
                                .encode = encode,
                                .decode = decode,
                                .encode_flops = 45,
                                .decode_flops = 15};
