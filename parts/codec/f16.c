/* f16.c - floats of 16 bits: fraction of 10 bits, up to 65504. */
#include "coll/codec.h"

enum { BLOCK = 256 };

static void encode(const float *x, int n, uint8_t *to) { sk_convert(to, SK_F16, x, SK_F32, n); }
static void decode(const uint8_t *from, int n, float *to)
{
    sk_convert(to, SK_F32, from, SK_F16, n);
}

const sk_codec sk_codec_f16 = {.name = "f16",
                               .doc = "fraction of 10 bits, up to 65504: 2 bytes an element",
                               .block = BLOCK,
                               .bits = 16,
                               .encode = encode,
                               .decode = decode,
                               .encode_flops = 60,
                               .decode_flops = 35};
