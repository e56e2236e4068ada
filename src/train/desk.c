/* desk.c - what the ranks of a run and their launcher tell each other. */
#include "train/desk.h"

#include <unistd.h>

void sk_desk_decide(sk_desk *d, int64_t step, sk_verdict v)
{
    atomic_store(&d->word[step & 1].steps, v.steps);
    atomic_store(&d->word[step & 1].stop, v.stop);
    atomic_store(&d->word[step & 1].save, v.save);
}

sk_verdict sk_desk_verdict(sk_desk *d, int64_t step)
{
    return (sk_verdict){.steps = atomic_load(&d->word[step & 1].steps),
                        .stop = atomic_load(&d->word[step & 1].stop) != 0,
                        .save = atomic_load(&d->word[step & 1].save) != 0};
}

/* Only steps are dropped at once; for the rest a slow console is waited for, but not for ever. */
bool sk_desk_put(sk_desk *d, const sk_record *r)
{
    unsigned long long head = atomic_load(&d->head);
    int patience = r->kind == SK_REC_STEP ? 0 : 1000; /* milliseconds */
    while (head - atomic_load(&d->tail) >= SK_DESK_RING) {
        if (!patience--) return false;
        usleep(1000);
    }
    d->ring[head % SK_DESK_RING] = *r;
    atomic_store(&d->head, head + 1);
    return true;
}

bool sk_desk_take(sk_desk *d, sk_record *out)
{
    unsigned long long tail = atomic_load(&d->tail);
    if (tail == atomic_load(&d->head)) return false;
    *out = d->ring[tail % SK_DESK_RING];
    atomic_store(&d->tail, tail + 1);
    return true;
}
