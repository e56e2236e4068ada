/* optim.c - the knobs of optimizers, by key and by name, passes that several have, and names of
 * types of state. */
#include "kernel/optim.h"

#include <math.h>
#include <string.h>

const char *sk_knob_key(const sk_knob *k) { return k->key ? k->key : k->name; }

const sk_knob *sk_optim_key(const sk_optim *o, const char *key)
{
    for (const sk_knob *k = o->knobs; k->name; k++)
        if (!strcmp(sk_knob_key(k), key)) return k;
    return NULL;
}

int sk_knob_list(const sk_knob *first)
{
    int n = 1;
    while (first[n].name && !strcmp(sk_knob_key(&first[n]), sk_knob_key(first))) n++;
    return n;
}

int sk_optim_knob(const sk_optim *o, const char *name)
{
    for (int k = 0; o->knobs[k].name; k++)
        if (!strcmp(o->knobs[k].name, name)) return k;
    return -1;
}

/* The words of a knob are numbered from 0. */
static bool has_word(const sk_knob *k, double number, const char *word)
{
    const char *w = k->words;
    for (int i = (int)number; w && *w && i > 0; i--) w += strcspn(w, " ") + (*w != 0);
    return w && strcspn(w, " ") == strlen(word) && !strncmp(w, word, strlen(word));
}

bool sk_knob_used(const sk_knob *knobs, const sk_knob *k, const double *numbers)
{
    const char *equals = k->only ? strchr(k->only, '=') : NULL;
    if (!equals) return true;
    for (int i = 0; knobs[i].name; i++)
        if (!strncmp(knobs[i].name, k->only, (size_t)(equals - k->only)))
            return has_word(&knobs[i], numbers[i], equals + 1);
    return true;
}

double sk_knob_usual(const sk_optim *o, int i, const double *numbers)
{
    for (int b = 0; o->knobs[b].name; b++)
        for (const sk_optim *const *p = sk_optim_parts; o->knobs[b].base && *p; p++) {
            int k = sk_optim_knob(*p, o->knobs[i].name);
            if (k >= 0 && has_word(&o->knobs[b], numbers[b], (*p)->name))
                return (*p)->knobs[k].usual;
        }
    return o->knobs[i].usual;
}

void sk_pass_gradient(sk_piece *p)
{
    real scale = p->scale, *restrict u = p->state[0];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) u[i] = grad[i] * scale;
}

void sk_pass_step(sk_piece *p)
{
    real rate = p->knob[SK_WHOLE_LR], keep = 1 - rate * p->knob[SK_WHOLE_DECAY];
    real *restrict w = p->param;
    const real *restrict u = p->state[0];
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) w[i] = keep * w[i] - rate * u[i];
}

/* Reads and writes each number once. */
void sk_pass_adamw(sk_piece *p)
{
    const float *k = p->knob;
    real lr = k[SK_ADAMW_LR], b1 = k[SK_ADAMW_BETA1], b2 = k[SK_ADAMW_BETA2];
    real eps = k[SK_ADAMW_EPS], keep = 1 - lr * k[SK_ADAMW_DECAY], scale = p->scale;
    double fix1 = 1 - pow((double)b1, (double)p->step), fix2 = 1 - pow((double)b2, (double)p->step);
    real rate = (real)((double)lr / fix1), root = (real)(1 / sqrt(fix2));
    real *restrict w = p->param, *restrict m = p->state[0], *restrict v = p->state[1];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        real g = grad[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] = keep * w[i] - rate * m[i] / (sqrtf((float)v[i]) * root + eps);
    }
}

void sk_pass_sgd(sk_piece *p)
{
    const float *k = p->knob;
    real lr = k[SK_SGD_LR], mu = k[SK_SGD_MOMENTUM], decay = k[SK_SGD_DECAY], scale = p->scale;
    real *restrict w = p->param, *restrict m = p->state[0];
    const real *restrict grad = p->grad;
#pragma omp simd
    for (int64_t i = 0; i < p->n; i++) {
        m[i] = mu * m[i] + grad[i] * scale + decay * w[i];
        w[i] -= lr * m[i];
    }
}

const char *sk_state_type_name(sk_dtype t)
{
    return t == SK_STATE_AUTO ? "auto" : t == SK_U8 ? "int8" : sk_dtype_name(t);
}

bool sk_state_type_find(const char *name, sk_dtype *out)
{
    sk_dtype t = !strcmp(name, "auto") ? SK_STATE_AUTO : SK_U8;
    if (strcmp(name, sk_state_type_name(t)) && !sk_dtype_find(name, &t)) return false;
    if (t == SK_U8 && strcmp(name, "int8")) return false; /* "u8" */
    *out = t;
    return true;
}

int sk_optim_phases(const sk_optim *rest, const sk_param_group *groups, int n_groups)
{
    for (int g = 0; g < n_groups; g++)
        if (groups[g].optim->perturb) return 2;
    return rest && rest->perturb ? 2 : 1;
}
