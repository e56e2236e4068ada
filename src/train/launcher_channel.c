/* desk.c - what the ranks of a run and their launcher tell each other. */
#include "train/launcher_channel.h"

#include <unistd.h>

void sk_channel_decide(sk_channel *d, int64_t step, sk_decision v)
{
    atomic_store(&d->word[step & 1].steps, v.steps);
    atomic_store(&d->word[step & 1].stop, v.stop);
    atomic_store(&d->word[step & 1].save, v.save);
}

sk_decision sk_channel_decision(sk_channel *d, int64_t step)
{
    return (sk_decision){.steps = atomic_load(&d->word[step & 1].steps),
                         .stop = atomic_load(&d->word[step & 1].stop) != 0,
                         .save = atomic_load(&d->word[step & 1].save) != 0};
}

/* Only steps are dropped at once; for the rest a slow console is waited for, but not for ever. */
bool sk_channel_put(sk_channel *d, const sk_record *r)
{
    unsigned long long head = atomic_load(&d->head);
    int patience = r->kind == SK_REC_STEP ? 0 : 1000; /* milliseconds */
    while (head - atomic_load(&d->tail) >= SK_CHANNEL_RECORDS) {
        if (!patience--) return false;
        usleep(1000);
    }
    d->ring[head % SK_CHANNEL_RECORDS] = *r;
    atomic_store(&d->head, head + 1);
    return true;
}

bool sk_channel_take(sk_channel *d, sk_record *out)
{
    unsigned long long tail = atomic_load(&d->tail);
    if (tail == atomic_load(&d->head)) return false;
    *out = d->ring[tail % SK_CHANNEL_RECORDS];
    atomic_store(&d->tail, tail + 1);
    return true;
}
