/* activation.c - see activation.h. */
#include "kernel/activation.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    sk_formula formula;
} table[SK_N_ACTIVATIONS] = {
#define ONE(name, formula) [SK_ACT_##name] = {#name, SK_FORMULA_##formula},
    SK_ACTIVATIONS(ONE)
#undef ONE
};

int sk_activation_find(const char *name)
{
    for (int i = SK_ACT_NONE + 1; i < SK_N_ACTIVATIONS; i++)
        if (!strcmp(table[i].name, name)) return i;
    return -1;
}

const char *sk_activation_name(int act)
{
    return act > SK_ACT_NONE && act < SK_N_ACTIVATIONS ? table[act].name : NULL;
}

sk_formula sk_activation_formula(double act)
{
    return act > SK_ACT_NONE && act < SK_N_ACTIVATIONS ? table[(int)act].formula : SK_N_FORMULAS;
}
