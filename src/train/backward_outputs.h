/* backward_outputs.h - train.backward: what the backward pass tells besides gradients, by the names
 * and in the units of BackPACK (Dangel, Kunstner, Hennig 2020).
 *
 * The loss of a step is L = 1/W sum over samples n of l_n, where l_n is the weighted sum over the
 * tokens of a sample and W the sum of all weights (the number of samples of a classifier, of tokens
 * of a language model).  N is the number of samples, g_n = grad l_n / W; so the gradient is the sum
 * of all g_n.
 *
 *     gradients       g_n
 *     norms           |g_n|^2
 *     second_moment   sum of g_n^2, element by element
 *     variance        N sum of g_n^2 - (sum of g_n)^2
 *     diag_ggn        diagonal of 1/W sum over rows of J' H J: J of the logits, H the Hessian of
 *                     the row's loss by the logits, times its weight
 *     diag_ggn_mc     the same, with one label drawn from the model's distribution for every row
 *     kron            kron_a: 1/W sum over rows of a a', the inputs of products with the weight;
 *                     kron_g: 1/W sum over rows of g g', the gradients of l_n by their results */
#ifndef SK_TRAIN_BACKWARD_OUTPUTS_H
#define SK_TRAIN_BACKWARD_OUTPUTS_H

#include "graph/graph.h"
#include "layout/layout.h"
#include "train/job.h"

typedef struct sk_backward_sums { /* of a step, over all parameters */
    bool norms, ggn, ggn_mc;      /* measured? */
    double mean, most;            /* of |g_n|, not squared */
    double variance;              /* the sum of all elements of `variance` */
    double trace, trace_mc;       /* of the Gauss-Newton matrix */
} sk_backward_sums;

/* job->backward, read: the extras that the graph must have (sk_graph.extras). */
sk_status sk_backward_ask(const sk_job *job, sk_graph *g);
/* Does a run leave all that job->backward asks for, in its metrics or in files? */
sk_status sk_backward_used(const sk_job *job);
/* Is the gradient that the variance is taken from the sum of those of the samples? */
sk_status sk_backward_fits(const sk_job *job, const sk_layout *l);
bool sk_backward_wants(const sk_job *job, const char *name);

/* A tensor that the user sees, and the sums of the program (sk_program_sum_shards) it is made of.
 */
typedef struct sk_backward_output {
    const char *name;      /* "h.0.fc.w.variance"; "h.0.fc.w.grad" is the gradient */
    const char *sum;       /* "h.0.fc.w.second_moment" */
    const char *grad;      /* of variance, which takes the gradient too; else NULL */
    const sk_tensor *like; /* has its shape */
    int kind;              /* of `sum`, for sk_backward_unit */
} sk_backward_output;

/* All that job->backward asks for, in the order of the graph; none, where it asks for nothing. */
int sk_backward_list(sk_arena *a, const sk_job *job, const sk_graph *g, sk_backward_output **out);
/* Is it the name of an output of some parameter, or of all, asked for or not? */
bool sk_backward_is_name(const char *name);
/* N times the second moment less the square of the gradient; both in units, into `square`. */
void sk_backward_variance(float *square, const float *grad, int64_t n, int64_t samples);

/* What the sum in the program is multiplied by: an extra of sk_extra_kind `kind`, or, with -1, a
 * gradient. */
double sk_backward_unit(int kind, double weight, double loss_scale);

#endif
