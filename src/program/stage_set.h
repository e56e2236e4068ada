/* stage_set.h - sets of pipeline stages: those that read a tensor, those that share a weight. */
#ifndef SK_PROGRAM_STAGE_SET_H
#define SK_PROGRAM_STAGE_SET_H

#include <stdbool.h>
#include <stdint.h>

enum { SK_MOST_STAGES = 512 };

typedef struct sk_stages {
    uint64_t bits[SK_MOST_STAGES / 64];
} sk_stages;

static inline bool sk_stages_has(const sk_stages *s, int stage)
{
    return s->bits[stage / 64] >> stage % 64 & 1;
}

static inline void sk_stages_add(sk_stages *s, int stage)
{
    s->bits[stage / 64] |= 1ull << stage % 64;
}

static inline sk_stages sk_stages_one(int stage)
{
    sk_stages s = {0};
    sk_stages_add(&s, stage);
    return s;
}

/* How many of them come before this one; SK_MOST_STAGES: all. */
static inline int sk_stages_before(const sk_stages *s, int stage)
{
    int n = 0;
    for (int i = 0; i < stage; i += 64)
        n += __builtin_popcountll(stage - i < 64 ? s->bits[i / 64] & ((1ull << (stage - i)) - 1)
                                                 : s->bits[i / 64]);
    return n;
}

static inline bool sk_stages_any(const sk_stages *s)
{
    return sk_stages_before(s, SK_MOST_STAGES) > 0;
}

/* Is there another one than this? */
static inline bool sk_stages_others(const sk_stages *s, int stage)
{
    return sk_stages_before(s, SK_MOST_STAGES) > sk_stages_has(s, stage);
}

static inline bool sk_stages_equal(const sk_stages *a, const sk_stages *b)
{
    bool equal = true;
    for (int i = 0; i < SK_MOST_STAGES / 64; i++) equal &= a->bits[i] == b->bits[i];
    return equal;
}

#endif
