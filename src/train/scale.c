/* scale.c - halve and skip, double and go on. */
#include "train/scale.h"

sk_scale sk_scale_begin(sk_dtype type, bool skip)
{
    bool moves = type == SK_F16;
    return (sk_scale){.value = moves ? 65536 : 1, .moves = moves, .skips_others = skip};
}

static void grow(sk_scale *s)
{
    const double most = 16777216;
    if (++s->good < SK_SCALE_GOOD) return;
    s->good = 0;
    if (s->moves && s->value < most) s->value *= 2;
}

bool sk_scale_step(sk_scale *s, bool finite)
{
    if (finite) {
        s->skips = 0;
        grow(s);
        return true;
    }
    bool shrinks = s->moves && s->value > 1;
    s->good = 0;
    if (shrinks) s->value /= 2;
    return ++s->skips <= SK_SCALE_SKIPS && (shrinks || s->skips_others);
}
