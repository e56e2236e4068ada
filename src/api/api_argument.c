/* api_argument.c - what all functions of skein.h do with their arguments. */
#include "api/handles.h"
#include "tensor/tensor_shard.h"

#include <string.h>

enum { LEAST = 16, MOST = 4096 }; /* bytes of a struct that a caller may mean */

_Static_assert((int)SKEIN_EUSAGE == SK_EUSAGE && (int)SKEIN_EDATA == SK_EDATA &&
                   (int)SKEIN_EPEER == SK_EPEER && (int)SKEIN_EBUG == SK_EBUG &&
                   (int)SKEIN_ECREATE == SK_ECREATE && (int)SKEIN_EIO == SK_EIO &&
                   (int)SKEIN_ESTOP == SK_ESTOP && (int)SKEIN_ECONF == SK_ECONF &&
                   (int)SKEIN_ENUM == SK_ENUM,
               "public codes are those of status.h");
_Static_assert((int)SKEIN_F32 == SK_F32 && (int)SKEIN_BF16 == SK_BF16 && (int)SKEIN_F16 == SK_F16 &&
                   (int)SKEIN_F64 == SK_F64 && (int)SKEIN_I32 == SK_I32 &&
                   (int)SKEIN_I64 == SK_I64 && (int)SKEIN_U8 == SK_U8 &&
                   (int)SKEIN_MAX_DIMS == (int)SK_SHARD_DIM &&
                   (int)SKEIN_MAX_DIMS == (int)SK_MAX_DIM,
               "public types are those of dtype.h");

int skein_api(void) { return SKEIN_API; }

static sk_status sized(const char *who, const void *s, size_t *bytes)
{
    if (!s) return sk_fail(SK_EUSAGE, "%s: the struct is NULL", who);
    int64_t size;
    memcpy(&size, s, sizeof size);
    if (size < LEAST || size > MOST)
        return sk_fail(SK_EUSAGE, "%s: size of the struct is %lld; set it to sizeof of its type",
                       who, (long long)size);
    *bytes = (size_t)size;
    return SK_OK;
}

sk_status sk_struct_to_caller(const char *who, void *out, const void *ours, size_t bytes)
{
    size_t theirs = 0, head = sizeof(int64_t);
    SK_TRY(sized(who, out, &theirs));
    size_t n = theirs < bytes ? theirs : bytes;
    memcpy((char *)out + head, (const char *)ours + head, n - head);
    memset((char *)out + n, 0, theirs - n);
    return SK_OK;
}

sk_status sk_struct_from_caller(const char *who, const void *in, void *ours, size_t bytes)
{
    size_t theirs = 0;
    SK_TRY(sized(who, in, &theirs));
    size_t n = theirs < bytes ? theirs : bytes;
    memset(ours, 0, bytes);
    memcpy(ours, in, n);
    for (size_t i = n; i < theirs; i++)
        if (((const char *)in)[i])
            return sk_fail(SK_EUSAGE,
                           "%s: the struct says something that this version of skein (%s) does not "
                           "know; its first %zu bytes are known",
                           who, SKEIN_VERSION, bytes);
    return SK_OK;
}

/* Dims from d on; whole and shard point at their first elements. */
static void copy_dims(const sk_box_move *m, int d, char *whole, char *shard)
{
    int64_t inner = 1, outer = 1;
    int64_t wide = (int64_t)sk_dtype_size(m->whole_type);
    int64_t narrow = (int64_t)sk_dtype_size(m->shard_type);
    for (int k = d + 1; k < m->n; k++) inner *= m->full[k], outer *= m->size[k];
    if (d < m->n) whole += m->at[d] * inner * wide;
    if (d >= m->n - 1) {
        int64_t n = m->n ? m->size[m->n - 1] : 1;
        if (m->out) sk_convert(whole, m->whole_type, shard, m->shard_type, n);
        else sk_convert(shard, m->shard_type, whole, m->whole_type, n);
        return;
    }
    for (int64_t i = 0; i < m->size[d]; i++)
        copy_dims(m, d + 1, whole + i * inner * wide, shard + i * outer * narrow);
}

void sk_box_copy(const sk_box_move *m)
{
    for (int d = 0; d < m->n; d++)
        if (!m->size[d]) return;
    copy_dims(m, 0, m->whole, m->shard);
}
