/* pack_bits.c - activations in fewer bits, while they wait for the backward pass. */
#include "run/cpu/pack_bits.h"
#include "program/program.h"

#include <string.h>

enum { WORD = 64 };

static void share(const sk_pack_job *j, int part, int of, int64_t *from, int64_t *to)
{
    int64_t words = (j->n + WORD - 1) / WORD;
    *from = words * part / of;
    *to = words * (part + 1) / of;
}

static int elements_of(const sk_pack_job *j, int64_t word)
{
    int64_t left = j->n - word * WORD;
    return left < WORD ? (int)left : WORD;
}

/* The bits of a word of elements. */
static uint64_t look(const sk_pack_job *j, int64_t word)
{
    int n = elements_of(j, word);
    uint64_t bits = 0;
    const float *x = (const float *)j->data + word * WORD;
    const uint32_t *wide = (const uint32_t *)j->data + word * WORD;
    const uint16_t *narrow = (const uint16_t *)j->data + word * WORD;
    if (j->type == SK_F32 && !j->capacity)
        for (int i = 0; i < n; i++) bits |= (uint64_t)(x[i] > 0) << i;
    else if (j->type == SK_F32)
        for (int i = 0; i < n; i++) bits |= (uint64_t)(wide[i] != 0) << i;
    else if (!j->capacity) /* the sign is the first bit; NaNs are beyond infinity */
        for (int i = 0; i < n; i++) {
            uint16_t most = j->type == SK_BF16 ? 0x7f80 : 0x7c00;
            bits |= (uint64_t)(narrow[i] > 0 && narrow[i] <= most) << i;
        }
    else
        for (int i = 0; i < n; i++) bits |= (uint64_t)(narrow[i] != 0) << i;
    return bits;
}

static void bits_part(void *ctx, int part, int of)
{
    sk_pack_job *j = ctx;
    uint64_t *to = (uint64_t *)(void *)j->packed;
    int64_t from, end, count = 0;
    share(j, part, of, &from, &end);
    for (int64_t w = from; w < end; w++) {
        to[w] = look(j, w);
        count += __builtin_popcountll(to[w]);
    }
    j->from[part + 1] = count;
}

static void count_part(void *ctx, int part, int of)
{
    sk_pack_job *j = ctx;
    const uint64_t *bits = (const uint64_t *)(const void *)j->packed;
    int64_t from, end, count = 0;
    share(j, part, of, &from, &end);
    for (int64_t w = from; w < end; w++) count += __builtin_popcountll(bits[w]);
    j->from[part + 1] = count;
}

/* Each thread's values begin behind those of the threads before it. */
static void add_up(sk_pack_job *j)
{
    j->from[0] = 0;
    for (int i = 0; i < SK_THREADS_MAX; i++) j->from[i + 1] += j->from[i];
}

static void values_part(void *ctx, int part, int of)
{
    sk_pack_job *j = ctx;
    size_t size = sk_dtype_size(j->type);
    const uint64_t *bits = (const uint64_t *)(const void *)j->packed;
    char *to = j->packed + sk_pack_bits(j->n);
    int64_t from, end, at = j->from[part];
    share(j, part, of, &from, &end);
    for (int64_t w = from; w < end; w++)
        for (uint64_t left = bits[w]; left && at < j->capacity; left &= left - 1, at++) {
            const char *x =
                (const char *)j->data + (size_t)(w * WORD + __builtin_ctzll(left)) * size;
            memcpy(to + (size_t)at * size, x, size);
        }
}

bool sk_pack(sk_threads *team, sk_pack_job j)
{
    sk_threads_run(team, bits_part, &j);
    if (!j.capacity) return true;
    add_up(&j);
    sk_threads_run(team, values_part, &j);
    return j.from[SK_THREADS_MAX] <= j.capacity;
}

static void ones_part(void *ctx, int part, int of)
{
    static const uint16_t one[] = {[SK_BF16] = 0x3f80, [SK_F16] = 0x3c00};
    sk_pack_job *j = ctx;
    const uint64_t *bits = (const uint64_t *)(const void *)j->packed;
    int64_t from, end;
    share(j, part, of, &from, &end);
    for (int64_t w = from; w < end; w++)
        for (int i = 0; i < elements_of(j, w); i++) {
            bool set = bits[w] >> i & 1;
            if (j->type == SK_F32) ((float *)j->data)[w * WORD + i] = (float)set;
            else ((uint16_t *)j->data)[w * WORD + i] = set ? one[j->type] : 0;
        }
}

static void unpack_part(void *ctx, int part, int of)
{
    sk_pack_job *j = ctx;
    size_t size = sk_dtype_size(j->type);
    const uint64_t *bits = (const uint64_t *)(const void *)j->packed;
    const char *from_values = j->packed + sk_pack_bits(j->n);
    int64_t from, end, at = j->from[part];
    share(j, part, of, &from, &end);
    for (int64_t w = from; w < end; w++) {
        char *to = (char *)j->data + (size_t)(w * WORD) * size;
        memset(to, 0, (size_t)elements_of(j, w) * size);
        for (uint64_t left = bits[w]; left && at < j->capacity; left &= left - 1, at++)
            memcpy(to + (size_t)__builtin_ctzll(left) * size, from_values + (size_t)at * size,
                   size);
    }
}

void sk_unpack(sk_threads *team, sk_pack_job j)
{
    if (!j.capacity) {
        sk_threads_run(team, ones_part, &j);
        return;
    }
    sk_threads_run(team, count_part, &j);
    add_up(&j);
    sk_threads_run(team, unpack_part, &j);
}
