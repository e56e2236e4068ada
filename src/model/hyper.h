/* hyper.h - the numbers that make a model one of its family: sizes, activation, biases, positions.
 *
 * Each member of sk_hyper is a field with a name, a kind and a range.  Whoever reads or writes
 * these numbers (keys `model.NAME`, config.yaml, manifests of checkpoints, config.json) goes
 * through the table of fields, so a new member is one line here and one in hyper.c.
 *
 * A number that one model alone has is declared in that model's file (sk_model.own), with its
 * default and help, and is a field like all others: a key, a line of config.yaml, of manifests and
 * of config.json.  The values of such fields lie in sk_hyper.own, in the order of the model's list.
 *
 *     enum { DENSE };
 *     static const sk_field own[] = {SK_OWN_INT(DENSE, "dense_layers", 0, 0, 1e4, "..."), {0}};
 *     ... sk_field_number(&own[DENSE], h) ... */
#ifndef SK_MODEL_HYPER_H
#define SK_MODEL_HYPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_MAX_OWN = 8 };

/* A value of a model's own field.  One that is the default is not set, so that equal models have
 * equal bytes. */
typedef struct sk_own {
    double x;
    int64_t set;
} sk_own;

/* Under Hugging Face's names.  0, "" and false mean "not given": the model's own default. */
typedef struct sk_hyper {
    char arch[32]; /* the model part's name: "gpt2", "llama", "mlp" ... */
    int64_t hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads;
    int64_t intermediate_size, vocab_size, max_position_embeddings;
    int64_t head_dim;       /* 0: hidden_size / num_attention_heads */
    int64_t sliding_window; /* positions that attention sees; 0: all.  Sequences must fit in it */
    int64_t input_size;     /* mlp: numbers per sample */
    double norm_eps, initializer_range;
    double embd_pdrop, resid_pdrop, attn_pdrop; /* dropout: embeddings, residual, attention */
    bool tie_word_embeddings;
    bool attention_bias, attention_out_bias, mlp_bias; /* q k v; the output; all of the MLP */
    bool scale_attn_by_inverse_layer_idx; /* scores of layer i divided by i + 1 as well */
    char hidden_act[24]; /* activation of the MLP, by transformers' name (kernel/activation.h) */
    char rope_type[16];  /* "", "linear" or "llama3" */
    double rope_theta, rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_positions;
    /* mixtures of experts (model/experts.h); all 0 in other models */
    int64_t num_local_experts, num_experts_per_tok;
    int64_t n_shared_experts; /* experts that every token goes to */
    int64_t expert_groups;    /* two-level gating; 0: one level */
    double capacity_factor;   /* capacity of an expert over its even share; 0: for every token */
    double router_aux_loss_coef;
    double router_bias_update_speed; /* of a bias that only chooses; 0: there is none */
    sk_own own[SK_MAX_OWN];          /* of the model part's own fields */
} sk_hyper;

typedef enum sk_field_kind {
    SK_FIELD_INT,
    SK_FIELD_REAL,
    SK_FIELD_BOOL,
    SK_FIELD_TEXT
} sk_field_kind;

typedef struct sk_field {
    const char *name;
    sk_field_kind kind;
    size_t at, bytes;   /* in sk_hyper; bytes: room of a text */
    double least, most; /* of a number */
    /* of a config.json */
    bool derived;    /* null is a value: it follows from other fields, or there is none of it */
    bool none;       /* so is 0, though the field is a count */
    bool own;        /* declared by a model, see sk_hyper.own; these two are for such fields */
    double usual;    /* the default */
    const char *doc; /* for help */
} sk_field;

#define SK_OWN(i, called, of, value, from, to, help)                                          \
    {                                                                                         \
        .name = called, .kind = of, .at = offsetof(sk_hyper, own) + (i) * sizeof(sk_own),     \
        .bytes = sizeof(sk_own), .least = from, .most = to, .none = (from) <= 0, .own = true, \
        .usual = value, .doc = help                                                           \
    }
#define SK_OWN_INT(i, called, value, from, to, help) \
    SK_OWN(i, called, SK_FIELD_INT, value, from, to, help)
#define SK_OWN_REAL(i, called, value, from, to, help) \
    SK_OWN(i, called, SK_FIELD_REAL, value, from, to, help)
#define SK_OWN_BOOL(i, called, value, help) SK_OWN(i, called, SK_FIELD_BOOL, value, 0, 1, help)
/* In a preset: a value that is not the default. */
#define SK_OWN_IS(value) \
    {                    \
        value, 1         \
    }

extern const sk_field sk_hyper_fields[]; /* ends with one without a name */
const sk_field *sk_hyper_field(const char *name);

/* The value as text ("64", "1e-05", "true", "silu"); the number of a field that is no text. */
typedef struct sk_field_text {
    char s[32];
} sk_field_text;
sk_field_text sk_field_print(const sk_field *f, const sk_hyper *h);
double sk_field_number(const sk_field *f, const sk_hyper *h);
/* Set it; false if the kind does not take this value (a fraction for a whole number, a text that
 * is too long).  Ranges are checked by sk_model_check(). */
bool sk_field_set_number(const sk_field *f, sk_hyper *h, double x);
bool sk_field_set_text(const sk_field *f, sk_hyper *h, const char *s);
bool sk_field_given(const sk_field *f, const sk_hyper *h); /* neither 0, false nor "" */

/* Sizes that follow others where they are not given: key heads, head_dim. */
int64_t sk_hyper_key_heads(const sk_hyper *h);
int64_t sk_hyper_head_dim(const sk_hyper *h);

#ifdef __cplusplus
}
#endif

#endif
