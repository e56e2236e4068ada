/* hyper.c - see hyper.h. */
#include "model/hyper.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A graph writes every layer out, so their number is bounded; other limits keep the product of
 * sizes that meet in one tensor inside of int64_t. */
#define LAYERS  1e4
#define SIZE    1e8
#define EXPERTS 4096

#define FIELD(x, of, room, ...)                                                         \
    {                                                                                   \
        .name = #x, .kind = of, .at = offsetof(sk_hyper, x), .bytes = room, __VA_ARGS__ \
    }
#define FROM(lowest, ...)    .least = lowest, .most = __VA_ARGS__ /* the highest, and flags */
#define WHOLE(x, least, ...) FIELD(x, SK_FIELD_INT, 8, FROM(least, __VA_ARGS__))
#define REAL(x, least, most) FIELD(x, SK_FIELD_REAL, 8, FROM(least, most))
#define TRUTH(x)             FIELD(x, SK_FIELD_BOOL, 1, FROM(0, 1))
#define TEXT(x)              FIELD(x, SK_FIELD_TEXT, sizeof((sk_hyper *)0)->x, FROM(0, 0))

const sk_field sk_hyper_fields[] = {
    WHOLE(hidden_size, 1, SIZE),
    WHOLE(num_hidden_layers, 1, LAYERS),
    WHOLE(num_attention_heads, 0, SIZE),
    WHOLE(num_key_value_heads, 0, SIZE, .derived = true),
    WHOLE(head_dim, 0, SIZE),
    WHOLE(intermediate_size, 0, SIZE),
    WHOLE(vocab_size, 1, SIZE),
    WHOLE(max_position_embeddings, 0, SIZE),
    WHOLE(sliding_window, 0, SIZE, .derived = true),
    WHOLE(input_size, 0, SIZE),
    REAL(rope_theta, 0, 1e15),
    TEXT(rope_type),
    REAL(rope_factor, 0, 1e6),
    REAL(rope_low_freq_factor, 0, 1e6),
    REAL(rope_high_freq_factor, 0, 1e6),
    WHOLE(rope_original_positions, 0, SIZE),
    REAL(norm_eps, 0, 1),
    TEXT(hidden_act),
    TRUTH(attention_bias),
    TRUTH(attention_out_bias),
    TRUTH(mlp_bias),
    TRUTH(scale_attn_by_inverse_layer_idx),
    REAL(embd_pdrop, 0, 0.999),
    REAL(resid_pdrop, 0, 0.999),
    REAL(attn_pdrop, 0, 0.999),
    REAL(initializer_range, 0, 1e3),
    TRUTH(tie_word_embeddings),
    WHOLE(num_local_experts, 0, EXPERTS),
    WHOLE(num_experts_per_tok, 0, EXPERTS),
    WHOLE(n_shared_experts, 0, EXPERTS, .none = true),
    WHOLE(expert_groups, 0, EXPERTS, .none = true),
    REAL(capacity_factor, 0, 1e6),
    REAL(router_aux_loss_coef, 0, 1e6),
    REAL(router_bias_update_speed, 0, 1),
    {0},
};

const sk_field *sk_hyper_field(const char *name)
{
    for (const sk_field *f = sk_hyper_fields; f->name; f++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

static void *place(const sk_field *f, sk_hyper *h)
{
    sk_assert(f->at + f->bytes <= sizeof *h);
    return (char *)h + f->at;
}

static const void *look(const sk_field *f, const sk_hyper *h) { return (const char *)h + f->at; }

double sk_field_number(const sk_field *f, const sk_hyper *h)
{
    const void *p = look(f, h);
    const sk_own *own = f->own ? p : NULL;
    if (own) return own->set ? own->x : f->usual;
    if (f->kind == SK_FIELD_INT) return (double)*(const int64_t *)p;
    if (f->kind == SK_FIELD_REAL) return *(const double *)p;
    return f->kind == SK_FIELD_BOOL ? *(const bool *)p : 0;
}

/* The fewest digits that read back as the same number. */
static void print_real(char *s, size_t bytes, double x)
{
    for (int digits = 6; digits <= 17; digits++) {
        double back = 0;
        snprintf(s, bytes, "%.*g", digits, x);
        if (sscanf(s, "%lf", &back) == 1 && back == x) return;
    }
}

sk_field_text sk_field_print(const sk_field *f, const sk_hyper *h)
{
    sk_field_text t = {""};
    double x = sk_field_number(f, h);
    if (f->kind == SK_FIELD_INT) snprintf(t.s, sizeof t.s, "%" PRId64, (int64_t)x);
    else if (f->kind == SK_FIELD_REAL) print_real(t.s, sizeof t.s, x);
    else if (f->kind == SK_FIELD_BOOL) snprintf(t.s, sizeof t.s, x != 0 ? "true" : "false");
    else snprintf(t.s, sizeof t.s, "%s", (const char *)look(f, h));
    return t;
}

bool sk_field_set_number(const sk_field *f, sk_hyper *h, double x)
{
    if (f->kind == SK_FIELD_TEXT || !isfinite(x) || fabs(x) > 1e15) return false;
    if (f->kind != SK_FIELD_REAL && x != floor(x)) return false;
    if (f->kind == SK_FIELD_BOOL) x = x != 0;
    if (f->own) *(sk_own *)place(f, h) = x == f->usual ? (sk_own){0, 0} : (sk_own){x, 1};
    else if (f->kind == SK_FIELD_INT) *(int64_t *)place(f, h) = (int64_t)x;
    else if (f->kind == SK_FIELD_REAL) *(double *)place(f, h) = x;
    else *(bool *)place(f, h) = x != 0;
    return true;
}

bool sk_field_set_text(const sk_field *f, sk_hyper *h, const char *s)
{
    if (f->kind != SK_FIELD_TEXT || strlen(s) >= f->bytes) return false;
    memset(place(f, h), 0, f->bytes); /* hypers are compared and hashed whole */
    memcpy(place(f, h), s, strlen(s));
    return true;
}

bool sk_field_given(const sk_field *f, const sk_hyper *h)
{
    return f->kind == SK_FIELD_TEXT ? *(const char *)look(f, h) != 0 : sk_field_number(f, h) != 0;
}

int64_t sk_hyper_key_heads(const sk_hyper *h)
{
    return h->num_key_value_heads ? h->num_key_value_heads : h->num_attention_heads;
}

int64_t sk_hyper_head_dim(const sk_hyper *h)
{
    if (h->head_dim || !h->num_attention_heads) return h->head_dim;
    return h->hidden_size / h->num_attention_heads;
}
