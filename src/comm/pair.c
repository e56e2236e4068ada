/* pair.c - from a codec to its GPU half. */
#include "comm/codec_kernel.h"

#include <string.h>

/* The table is in skein_cuda; where that is not linked, its address is NULL. */
#pragma weak sk_codec_kernel_parts

const sk_codec_kernel *sk_codec_kernel_find(const char *codec)
{
    const sk_codec_kernel *const *table = sk_codec_kernel_parts;
    for (; table && *table; table++)
        if (!strcmp((*table)->codec, codec)) return *table;
    return NULL;
}
