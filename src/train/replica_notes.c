/* replica_notes.c - see replica_notes.h. */
#include "train/replica_notes.h"

#include <math.h>

sk_replica_note sk_replica_note_of(const sk_step_out *x)
{
    return (sk_replica_note){x->loss, x->tokens, x->grad_norm, x->aux, x->drops};
}

/* Means of a replica without tokens are over one, as in run/cpu/grad_norm.c. */
static double weight(double tokens) { return tokens > 0 ? tokens : 1; }

void sk_replica_notes_join(const sk_replica_note *v, int n, int stride, sk_step_out *to)
{
    double loss = 0, tokens = 0, squares = 0, aux = 0, drops = 0;
    for (int i = 0; i < n; i++) {
        const sk_replica_note *x = &v[(int64_t)i * stride];
        double w = weight(x->tokens);
        loss += x->loss * w;
        aux += x->aux * w;
        squares += x->norm * w * (x->norm * w);
        tokens += x->tokens;
        drops += x->drops;
    }
    double all = weight(tokens);
    to->loss = loss / all;
    to->tokens = tokens;
    to->aux = aux / all;
    to->drops = drops;
    to->grad_norm = sqrt(squares * n) / all;
    to->finite = isfinite(to->loss) && isfinite(to->grad_norm);
}
