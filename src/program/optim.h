/* optim.h - an optimizer is a few passes over a piece of one parameter.
 *
 * A parameter may lie whole on this rank or be cut in pieces over many; the
 * optimizer must not care.  Each pass sees this rank's piece and may return
 * sums; the engine adds them over the ranks that hold the other pieces and
 * gives the totals to the next pass.  So LARS, LAMB and NovoGrad, which need
 * the norm of the whole, are written as if the whole were here, and every
 * ZeRO stage is only a different way of cutting.  A pass may be called for
 * several parts of a piece by several threads: it must treat elements alike. */
#ifndef SK_PROGRAM_OPTIM_H
#define SK_PROGRAM_OPTIM_H

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_MAX_STATE = 4, SK_MAX_SUM = 4, SK_MAX_KNOB = 8, SK_MAX_PASS = 3 };

typedef struct sk_piece {
    int64_t n;
    real *param;
    const real *grad;          /* of the loss sum */
    real *state[SK_MAX_STATE]; /* zero before step 1 */
    float scale;               /* grad[i] * scale is the gradient of the mean loss, clipped */
    float knob[SK_MAX_KNOB];   /* in the order of sk_optim.knobs */
    int64_t step;              /* of the optimizer; counts from 1 */
    int delay;                 /* updates since the weights that this gradient is of; usually 0 */
    double sum[SK_MAX_SUM];    /* totals of the pass before; returned by this pass */
} sk_piece;

typedef struct sk_knob {
    const char *name; /* lr, beta1, beta2, eps, decay, momentum, compensate, predict */
    double usual;     /* what it is where nobody says otherwise */
} sk_knob;

typedef struct sk_optim {
    const char *name, *doc;
    int n_state, n_sums;
    const char *state[SK_MAX_STATE]; /* names of the state tensors: "m", "v" */
    sk_knob knobs[SK_MAX_KNOB + 1];
    void (*pass[SK_MAX_PASS + 1])(sk_piece *p); /* NULL ends the list */
    /* NULL, or: makes of param, a copy, what it will probably be `delay` updates later.  Forward
     * passes whose gradients come late in a pipeline read that. */
    void (*ahead)(sk_piece *p);
} sk_optim;

extern const sk_optim *const sk_optim_parts[]; /* every file in parts/optim; NULL ends it */
const sk_optim *sk_optim_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
