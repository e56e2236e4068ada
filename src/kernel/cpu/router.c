/* router.c - see router.h. */
#include "kernel/cpu/router.h"
#include "base/status.h"
#include "kernel/slots.h"
#include "kernel/cpu/vecmath.h"

/* The scratch memory of one thread. */
typedef struct scratch {
    real *score;             /* of one token, with a bias */
    int32_t *chosen, *queue; /* choices of all tokens of a sequence; tokens of each expert so far */
} scratch;

static scratch scratch_of(const sk_args *a)
{
    int64_t experts = a->in[0].size[2];
    real *score = a->scratch;
    int32_t *queue = (int32_t *)(void *)(score + experts);
    return (scratch){score, queue + experts, queue};
}

size_t sk_route_scratch(const sk_args *a)
{
    size_t experts = (size_t)a->in[0].size[2],
           choices = (size_t)(a->in[0].size[1] * a->out[0].size[2]);
    return experts * sizeof(real) + (choices + experts) * sizeof(int32_t);
}

static int32_t best(const real *score, int64_t experts, const int32_t *taken, int64_t n)
{
    int32_t top = -1;
    for (int32_t e = 0; e < experts; e++) {
        bool free = true;
        for (int64_t k = 0; k < n; k++) free &= taken[k] != e;
        if (free && (top < 0 || score[e] > score[top])) top = e;
    }
    return top;
}

/* By what a token chooses. */
static const real *scores(const real *logit, int64_t experts, const real *bias, real *to)
{
    real top = logit[0], sum = 0;
    if (!bias) return logit;
    for (int64_t e = 1; e < experts; e++) top = logit[e] > top ? logit[e] : top;
    for (int64_t e = 0; e < experts; e++) sum += to[e] = sk_exp(logit[e] - top);
    for (int64_t e = 0; e < experts; e++) to[e] = to[e] / sum + bias[e];
    return to;
}

/* With a bias the largest logit need not be the first choice, nor any. */
static void gates(const real *logit, int64_t experts, const int32_t *chosen, int64_t choices,
                  bool among_chosen, real *gate)
{
    real top = logit[chosen[0]], sum = 0;
    for (int64_t k = 1; k < choices && among_chosen; k++)
        top = logit[chosen[k]] > top ? logit[chosen[k]] : top;
    for (int64_t e = 0; e < experts && !among_chosen; e++) top = logit[e] > top ? logit[e] : top;
    for (int64_t k = 0; k < choices; k++) gate[k] = sk_exp(logit[chosen[k]] - top);
    for (int64_t k = 0; k < choices && among_chosen; k++) sum += gate[k];
    for (int64_t e = 0; e < experts && !among_chosen; e++) sum += sk_exp(logit[e] - top);
    for (int64_t k = 0; k < choices; k++) gate[k] /= sum;
}

static void choices_of(const sk_args *a, const real *logit, const real *bias, const scratch *d)
{
    int64_t time = a->in[0].size[1], experts = a->in[0].size[2], choices = a->out[0].size[2];
    for (int64_t t = 0; t < time; t++) {
        const real *score = scores(logit + t * experts, experts, bias, d->score);
        int32_t *chosen = d->chosen + t * choices;
        for (int64_t k = 0; k < choices; k++) chosen[k] = best(score, experts, chosen, k);
    }
}

/* Slots of the tokens [from, to) of one sequence. */
static void queue_up(const sk_args *a, int64_t from, int64_t to, const scratch *d, real *slot)
{
    int64_t time = a->in[0].size[1], experts = a->in[0].size[2], choices = a->out[0].size[2];
    int64_t capacity = (int64_t)a->attr[1];
    sk_assert(capacity > 0 && capacity * experts <= SK_MOST_SLOTS); /* exact in f32 */
    memset(d->queue, 0, (size_t)experts * sizeof *d->queue);

    for (int64_t k = 0; k < choices; k++)
        for (int64_t at = 0; at < time; at++) {
            int64_t t = sk_zigzag_index(at, time, a->in[0].zigzag[1]);
            int64_t i = t * choices + k, e = d->chosen[i], place = d->queue[e]++;
            if (t >= from && t < to)
                slot[i] = (real)(place < capacity ? e * capacity + place : -1 - e);
        }
}

static void sequence(const sk_args *a, const real *bias, int64_t b, int64_t from, int64_t to)
{
    int64_t time = a->in[0].size[1], experts = a->in[0].size[2], choices = a->out[0].size[2];
    const real *logit = (const real *)a->in[0].data + b * time * experts;
    real *gate = (real *)a->out[1].data + b * time * choices;
    scratch d = scratch_of(a);
    choices_of(a, logit, bias, &d);
    for (int64_t t = from; t < to; t++)
        gates(logit + t * experts, experts, d.chosen + t * choices, choices, a->attr[2] != 0,
              gate + t * choices);
    queue_up(a, from, to, &d, (real *)a->out[0].data + b * time * choices);
}

void sk_route(const sk_args *a, const real *bias)
{
    int64_t time = a->in[0].size[1], from, to;
    sk_share(a, a->in[0].size[0] * time, &from, &to);
    while (from < to) {
        int64_t b = from / time, end = (b + 1) * time < to ? (b + 1) * time : to;
        sequence(a, bias, b, from - b * time, end - b * time);
        from = end;
    }
}
