/* model.c - finding model parts and their presets. */
#include "graph/model.h"

#include <string.h>

const sk_model *sk_model_find(const char *name)
{
    for (const sk_model *const *m = sk_model_parts; *m; m++)
        if (!strcmp((*m)->name, name)) return *m;
    return NULL;
}

const sk_model *sk_model_preset(const char *name, sk_hyper *out)
{
    for (const sk_model *const *m = sk_model_parts; *m; m++) {
        for (const sk_preset *p = (*m)->presets; p && p->name; p++) {
            if (strcmp(p->name, name)) continue;
            *out = p->hyper;
            return *m;
        }
    }
    return NULL;
}
