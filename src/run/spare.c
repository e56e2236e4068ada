/* spare.c - which launches fill what others leave, and who waits for them. */
#include "run/spare.h"

#include <stdlib.h>

/* Such a launch. */
typedef struct one {
    int join; /* the instruction that waits for it */
    int next; /* another of those that this one waits for; -1: none */
    sk_event *ready, *over;
} one;

struct sk_spare {
    sk_device *d;
    sk_launch launch;
    void *compute;
    one **at;   /* by instruction; NULL: none */
    int *first; /* by instruction: one that it waits for; -1: none */
};

/* The first of those behind it that touches what it does. */
static int join_of(const sk_program *p, int pc)
{
    int to = pc < p->n_train ? p->n_train : p->insts.n, at = pc + 1;
    while (at < to && sk_fuse_may_wait(p, &p->insts.v[pc], 0, &p->insts.v[at])) at++;
    return at;
}

static sk_status add(sk_arena *a, const sk_program *p, sk_spare *s, int pc)
{
    one *x = sk_new(a, one);
    x->join = join_of(p, pc);
    if (x->join == pc + 1) return SK_OK; /* it would be alone all the same */
    x->next = s->first[x->join];
    s->first[x->join] = pc;
    s->at[pc] = x;
    SK_TRY(sk_event_open(s->d, &x->ready));
    return sk_event_open(s->d, &x->over);
}

sk_status sk_spare_open(sk_arena *a, const sk_program *p, sk_device *d, const bool *gone,
                        const sk_launch *l, char *base, sk_spare **out)
{
    const char *wish = getenv("SKEIN_SPARE");
    sk_stream *stream = NULL;
    *out = NULL;
    if (!p->spare_bytes || (wish && *wish == '0')) return SK_OK;
    sk_spare *s = sk_new(a, sk_spare);
    SK_TRY(sk_stream_open_low(d, &stream));
    *s = (sk_spare){.d = d, .launch = *l, .compute = l->stream};
    s->launch.stream = stream;
    s->launch.room = base + sk_room_at(p) + SK_ROOM;
    s->launch.room_bytes = (size_t)p->spare_bytes;
    s->at = sk_many(a, one *, p->insts.n);
    s->first = sk_many(a, int, p->insts.n + 1);
    for (int pc = 0; pc <= p->insts.n; pc++) s->first[pc] = -1;
    for (int pc = 0; pc < p->insts.n; pc++)
        if (p->insts.v[pc].until && !gone[pc]) SK_TRY(add(a, p, s, pc));
    *out = s;
    return SK_OK;
}

sk_status sk_spare_begin(sk_spare *s, int pc, sk_launch *l)
{
    const one *x = s ? s->at[pc] : NULL;
    if (!x) return SK_OK;
    *l = s->launch;
    SK_TRY(sk_event_record(s->d, x->ready, s->compute));
    return sk_event_wait(s->d, x->ready, s->launch.stream);
}

sk_status sk_spare_end(sk_spare *s, int pc)
{
    const one *x = s ? s->at[pc] : NULL;
    return x ? sk_event_record(s->d, x->over, s->launch.stream) : SK_OK;
}

sk_status sk_spare_join(sk_spare *s, int pc)
{
    for (int at = s ? s->first[pc] : -1; at >= 0; at = s->at[at]->next)
        SK_TRY(sk_event_wait(s->d, s->at[at]->over, s->compute));
    return SK_OK;
}
