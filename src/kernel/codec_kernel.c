/* codec_kernel.c - from a codec to its GPU half, and what that takes. */
#include "kernel/codec_kernel.h"

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

sk_status sk_code_takes(const char *codec, sk_dtype type)
{
    if (type == SK_F32 || type == SK_BF16 || type == SK_F16) return SK_OK;
    return sk_fail(SK_ECONF, "%s: elements are %s; on a GPU f32, bf16 and f16 are known", codec,
                   sk_dtype_name(type));
}
