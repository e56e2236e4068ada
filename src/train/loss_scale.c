/* loss_scale.c - halve the factor and skip the step, or double it after many good ones. */
#include "train/loss_scale.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const double first = 65536, least = 1.0 / (1 << 30), most = 1 << 30;

sk_nonfinite sk_nonfinite_find(const char *word)
{
    return !strcmp(word, "rollback") ? SK_ROLLBACK : !strcmp(word, "skip") ? SK_SKIP : SK_STOP;
}

sk_loss_scale sk_loss_scale_begin(sk_dtype type, sk_nonfinite policy, double tokens)
{
    bool moves = type == SK_F16;
    return (sk_loss_scale){.value = moves ? exp2(floor(log2(first / fmax(tokens, 1)))) : 1,
                           .moves = moves,
                           .policy = policy};
}

static void grow(sk_loss_scale *s)
{
    if (++s->good < SK_LOSS_SCALE_GROWTH) return;
    s->good = 0;
    if (s->moves && s->value < most) s->value *= 2;
}

bool sk_loss_scale_step(sk_loss_scale *s, double loss, bool finite)
{
    sk_assert(s->value > 0 && (s->moves || s->value == 1));
    if (finite) {
        s->skips = 0;
        grow(s);
        return true;
    }
    if (s->policy == SK_ROLLBACK && !isfinite(loss)) return false;
    bool shrinks = s->moves && s->value > least;
    s->good = 0;
    if (shrinks) s->value /= 2;
    if (++s->skips > SK_LOSS_SCALE_SKIPS || (!shrinks && s->policy != SK_SKIP)) return false;
    s->skipped++;
    return true;
}
