/* left.c - batches that are left out of a training. */
#include "train/left.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

int64_t sk_left_batch(const sk_left *l, int64_t step)
{
    for (int i = 0; i < l->n && l->v[i] <= step; i++) step++;
    return step;
}

bool sk_left_add(sk_left *l, int64_t batch)
{
    int at = l->n;
    while (at && l->v[at - 1] > batch) at--;
    if (at && l->v[at - 1] == batch) return true;
    if (l->n == SK_LEFT_MOST) return false;
    memmove(&l->v[at + 1], &l->v[at], sizeof *l->v * (size_t)(l->n - at));
    l->n++;
    l->v[at] = batch;
    return true;
}

char *sk_left_print(sk_arena *a, const sk_left *l)
{
    char *text = sk_strdup(a, "");
    for (int i = 0; i < l->n; i++)
        text = sk_print(a, "%s%s%lld", text, i ? "," : "", (long long)l->v[i]);
    return text;
}

void sk_left_read(const char *text, sk_left *l)
{
    *l = (sk_left){0};
    for (char *end; *text >= '0' && *text <= '9'; text = end + (*end == ',')) {
        long long batch = strtoll(text, &end, 10);
        if (!sk_left_add(l, batch)) return;
    }
}
