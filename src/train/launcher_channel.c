/* launcher_channel.c - shared memory between the ranks of a run and their launcher. */
#include "train/launcher_channel.h"
#include "base/status.h"

#include <unistd.h>

void sk_channel_decide(sk_channel *c, int64_t step, sk_decision d)
{
    sk_assert(step >= 0);
    atomic_store(&c->decision[step % SK_CHANNEL_DECISIONS].steps, d.steps);
    atomic_store(&c->decision[step % SK_CHANNEL_DECISIONS].stop, d.stop);
    atomic_store(&c->decision[step % SK_CHANNEL_DECISIONS].save, d.save);
    atomic_store(&c->decision[step % SK_CHANNEL_DECISIONS].phase, d.phase);
}

sk_decision sk_channel_decision(sk_channel *c, int64_t step)
{
    sk_assert(step >= 0);
    return (sk_decision){.steps = atomic_load(&c->decision[step % SK_CHANNEL_DECISIONS].steps),
                         .stop = atomic_load(&c->decision[step % SK_CHANNEL_DECISIONS].stop) != 0,
                         .save = atomic_load(&c->decision[step % SK_CHANNEL_DECISIONS].save) != 0,
                         .phase = atomic_load(&c->decision[step % SK_CHANNEL_DECISIONS].phase)};
}

/* Only records of steps are dropped at once; for the rest a slow console is waited for, up to a
 * timeout. */
bool sk_channel_put(sk_channel *c, const sk_record *r)
{
    unsigned long long head = atomic_load(&c->head);
    int timeout = r->kind == SK_REC_STEP ? 0 : 1000; /* milliseconds */
    while (head - atomic_load(&c->tail) >= SK_CHANNEL_RECORDS) {
        if (!timeout--) return false;
        usleep(1000);
    }
    c->ring[head % SK_CHANNEL_RECORDS] = *r;
    atomic_store(&c->head, head + 1);
    return true;
}

bool sk_channel_take(sk_channel *c, sk_record *out)
{
    unsigned long long tail = atomic_load(&c->tail), head = atomic_load(&c->head);
    sk_assert(head - tail <= SK_CHANNEL_RECORDS);
    if (tail == head) return false;
    *out = c->ring[tail % SK_CHANNEL_RECORDS];
    atomic_store(&c->tail, tail + 1);
    return true;
}
