/* model.c - finding model parts and their presets. */
#include "model/model.h"

#include <stdio.h>
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

const sk_field *sk_model_field(const sk_model *m, int i)
{
    for (const sk_field *f = sk_hyper_fields; f->name; f++)
        if (!i--) return f;
    for (const sk_field *f = m ? m->own : NULL; f && f->name; f++)
        if (!i--) return f;
    return NULL;
}

const sk_field *sk_model_field_find(const sk_model *m, const char *name)
{
    for (const sk_field *f = m ? m->own : NULL; f && f->name; f++)
        if (!strcmp(f->name, name)) return f;
    return sk_hyper_field(name);
}

static bool is_listed(const sk_model *m, const char *field)
{
    for (const sk_hf_key *const *t = m->hf_keys; t && *t; t++)
        for (const sk_hf_key *k = *t; k->name; k++)
            if (!strcmp(k->field, field)) return true;
    return false;
}

/* The i-th key: of the lists, then fields of the model's own that are in none; no name past them.
 */
static sk_hf_key key_at(const sk_model *m, int i)
{
    for (const sk_hf_key *const *t = m->hf_keys; t && *t; t++)
        for (const sk_hf_key *k = *t; k->name; k++)
            if (!i--) return *k;
    for (const sk_field *f = m->own; f && f->name; f++)
        if (!is_listed(m, f->name) && !i--) return (sk_hf_key){f->name, f->name};
    return (sk_hf_key){0};
}

bool sk_model_has(const sk_model *m, const sk_field *f)
{
    sk_hf_key k;
    for (int i = 0; (k = key_at(m, i)).name; i++)
        if (!strcmp(k.field, f->name)) return true;
    return false;
}

const sk_field *sk_model_sets(const sk_model *m, const char *name, int i)
{
    sk_hf_key k;
    bool own = false;
    for (int j = 0; (k = key_at(m, j)).name; j++) {
        if (strcmp(k.name, name)) continue;
        own = true;
        if (!i--) return sk_model_field_find(m, k.field);
    }
    const sk_field *f = own || i ? NULL : sk_model_field_find(m, name);
    return f && sk_model_has(m, f) ? f : NULL;
}

const char *sk_model_key(const sk_model *m, const char *field)
{
    sk_hf_key k;
    for (int i = 0; (k = key_at(m, i)).name; i++)
        if (!strcmp(k.field, field)) return k.name;
    return field;
}

/* ---- are the numbers possible? ---- */

enum {
    MOST_WIDTH = 100000000, /* numbers of all heads of a token */
    MOST_BANKS = 200000     /* layers times experts: each is tensors of its own in a file */
};

/* A field as a sentence names it: "hidden_size", "hidden_size (n_embd)". */
typedef struct called {
    char s[80];
} called;
static called call(const sk_model *m, const char *field)
{
    called c;
    const char *key = sk_model_key(m, field);
    bool other = strcmp(key, field);
    snprintf(c.s, sizeof c.s, "%s%s%s%s", field, other ? " (" : "", other ? key : "",
             other ? ")" : "");
    return c;
}

static sk_status check_heads(const char *who, const sk_model *m, const sk_hyper *h)
{
    long long heads = h->num_attention_heads, keys = sk_hyper_key_heads(h), wide = h->hidden_size;
    if (!h->head_dim && wide % heads)
        return sk_fail(SK_ECONF, "%s: %s is %lld; it must be a multiple of %s, which is %lld%s",
                       who, call(m, "hidden_size").s, wide, call(m, "num_attention_heads").s, heads,
                       sk_model_has(m, sk_hyper_field("head_dim")) ? ", or give head_dim" : "");
    if (heads % keys)
        return sk_fail(SK_ECONF,
                       "%s: num_attention_heads is %lld; it must be a multiple of "
                       "num_key_value_heads, which is %lld",
                       who, heads, keys);
    if ((double)sk_hyper_head_dim(h) * (double)heads > MOST_WIDTH)
        return sk_fail(SK_ECONF, "%s: %lld heads of head_dim %lld are more than %d numbers", who,
                       heads, (long long)sk_hyper_head_dim(h), MOST_WIDTH);
    return SK_OK;
}

sk_status sk_model_check(const char *who, const sk_model *m, const sk_hyper *h)
{
    const sk_field *f;
    for (int i = 0; (f = sk_model_field(m, i)); i++) {
        double x = sk_field_number(f, h);
        if (f->kind != SK_FIELD_TEXT && !(x >= f->least && x <= f->most))
            return sk_fail(SK_ECONF, "%s: %s is %.15g; needed is %g to %g", who, call(m, f->name).s,
                           x, f->least, f->most);
    }
    if ((double)h->num_hidden_layers * (double)(h->num_local_experts + h->n_shared_experts) >
        MOST_BANKS)
        return sk_fail(SK_ECONF, "%s: %lld layers of %lld experts; at most %d in all are possible",
                       who, (long long)h->num_hidden_layers,
                       (long long)(h->num_local_experts + h->n_shared_experts), MOST_BANKS);
    return h->num_attention_heads ? check_heads(who, m, h) : SK_OK;
}
