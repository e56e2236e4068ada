/* tensor_shard.c - sizes as text. */
#include "tensor/tensor_shard.h"
#include "base/strings.h"

char *sk_sizes_print(sk_arena *a, const int64_t *size, int n)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "[");
    for (int d = 0; d < n; d++) sk_out_add(&o, d ? ", %lld" : "%lld", (long long)size[d]);
    sk_out_add(&o, "]");
    return o.s;
}
