/* skipped_batches.c - batches that a training skips. */
#include "train/skipped_batches.h"
#include "base/status.h"
#include "base/strings.h"

#include <stdlib.h>
#include <string.h>

int64_t sk_batch_of_step(const sk_skipped_batches *l, int64_t step)
{
    sk_assert(step >= 0 && l->n >= 0 && l->n <= SK_SKIPPED_MOST);
    for (int i = 0; i < l->n && l->v[i] <= step; i++) {
        sk_assert(!i || l->v[i - 1] < l->v[i]);
        step++;
    }
    return step;
}

bool sk_skipped_batches_add(sk_skipped_batches *l, int64_t batch)
{
    int at = l->n;
    while (at && l->v[at - 1] > batch) at--;
    if (at && l->v[at - 1] == batch) return true;
    if (l->n == SK_SKIPPED_MOST) return false;
    memmove(&l->v[at + 1], &l->v[at], sizeof *l->v * (size_t)(l->n - at));
    l->n++;
    l->v[at] = batch;
    return true;
}

char *sk_skipped_batches_print(sk_arena *a, const sk_skipped_batches *l)
{
    char *text = sk_strdup(a, "");
    for (int i = 0; i < l->n; i++)
        text = sk_print(a, "%s%s%lld", text, i ? "," : "", (long long)l->v[i]);
    return text;
}

bool sk_skipped_batches_read(const char *text, sk_skipped_batches *l)
{
    long long last = -1;
    *l = (sk_skipped_batches){0};
    while (*text) {
        char *end;
        size_t n = strspn(text, "0123456789");
        if (!n || n > 15) return false;
        long long batch = strtoll(text, &end, 10);
        if (batch <= last || !sk_skipped_batches_add(l, batch)) return false;
        if (*end && (*end != ',' || !end[1])) return false;
        last = batch;
        text = end + (*end == ',');
    }
    return true;
}
