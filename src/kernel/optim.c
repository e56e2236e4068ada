/* optim.c - the knobs of optimizers, by key and by name. */
#include "kernel/optim.h"

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

int sk_optim_phases(const sk_optim *rest, const sk_param_group *groups, int n_groups)
{
    for (int g = 0; g < n_groups; g++)
        if (groups[g].optim->perturb) return 2;
    return rest && rest->perturb ? 2 : 1;
}
