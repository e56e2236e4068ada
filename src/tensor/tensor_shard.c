/* tensor_shard.c - elements of a shard as f32, their mean over replicas; sizes as text. */
#include "tensor/tensor_shard.h"
#include "base/strings.h"

#include <string.h>

char *sk_sizes_print(sk_arena *a, const int64_t *size, int n)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "[");
    for (int d = 0; d < n; d++) sk_out_add(&o, d ? ", %lld" : "%lld", (long long)size[d]);
    sk_out_add(&o, "]");
    return o.s;
}

sk_tensor_shard sk_shard_each(const sk_tensor_shard *b)
{
    sk_tensor_shard s = *b;
    if (!b->each) return s;
    s.name = b->each;
    s.each = NULL;
    s.n--;
    memmove(s.full, b->full + 1, sizeof *s.full * (size_t)s.n);
    memmove(s.at, b->at + 1, sizeof *s.at * (size_t)s.n);
    memmove(s.size, b->size + 1, sizeof *s.size * (size_t)s.n);
    return s;
}

int64_t sk_shard_count(const sk_tensor_shard *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    return n;
}

void sk_shard_read(const sk_tensor_shard *b, int64_t from, float *to, int64_t n)
{
    const char *at = (const char *)b->data + from * (int64_t)sk_dtype_size(b->type);
    if (b->q8) sk_q8_decode(b->q8, b->data, sk_shard_count(b), from, to, n);
    else sk_convert(to, SK_F32, at, b->type, n);
}

void sk_mean_add(float *sum, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

void sk_mean_end(float *sum, int64_t n, int64_t replicas)
{
    for (int64_t i = 0; i < n; i++) sum[i] /= (float)replicas;
}
