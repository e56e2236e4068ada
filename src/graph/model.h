/* model.h - a model part: a function that writes a graph, and how its tensors are called elsewhere.
 *
 * A model file knows letters and arithmetic, nothing of ranks.  Its parameters
 * have names of their own; `hf` tells, tensor by tensor, where each lies in a
 * Hugging Face directory. */
#ifndef SK_GRAPH_MODEL_H
#define SK_GRAPH_MODEL_H

#include "graph/graph.h"

/* The sizes of a model, under Hugging Face's names. */
typedef struct sk_hyper {
    char arch[32]; /* the model part's name: "gpt2", "llama", "mlp" ... */
    int64_t hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads;
    int64_t intermediate_size, vocab_size, max_position_embeddings;
    int64_t input_size; /* mlp: numbers per sample */
    double rope_theta, norm_eps, dropout, initializer_range;
    bool tie_word_embeddings;
    /* mixtures of experts (graph/experts.h); all 0 in other models */
    int64_t num_local_experts, num_experts_per_tok;
    int64_t n_shared_experts; /* experts that every token goes to */
    int64_t expert_groups;    /* two-level gating; 0: one level */
    double capacity_factor;   /* room of an expert over its even share; 0: for every token */
    double router_aux_loss_coef;
    double router_bias_update_speed; /* of a bias that only chooses; 0: there is none */
} sk_hyper;

typedef enum sk_mode { SK_TRAIN, SK_DECODE } sk_mode;

/* One tensor of a Hugging Face directory.  `dims` lists the letters of our tensor in the order
 * of their file, with ',' between the dims of the file: "c,shd" is a matrix [c, s*h*d].  `slice`
 * (0: none) is a letter of which the file tensor holds only [from, to). */
typedef struct sk_hf {
    const char *file_name; /* "transformer.h.0.attn.c_attn.weight" */
    const char *name;      /* ours: "h.0.attn.qkv.w" */
    const char *dims;
    char slice;
    int64_t from, to;
} sk_hf;

typedef struct sk_preset {
    const char *name;
    sk_hyper hyper;
} sk_preset;

typedef struct sk_model {
    const char *name, *doc;
    const sk_preset *presets; /* a preset without a name ends the list */
    sk_hyper usual;           /* values for keys that a config leaves out (0: must be given) */
    /* Write the graph.  Letters b and t are already sized; the rest is the model's.  Inputs:
     * "tokens" and "pos" (i32 bt), "targets" (i32 bt), "weights" (f32 bt) for language models;
     * "pixels" (f32 bx), "targets" (i32 b), "weights" (f32 b) for classifiers. */
    void (*build)(sk_graph *g, const sk_hyper *h, sk_mode mode);
    /* The i-th tensor of the Hugging Face form; false past the end. */
    bool (*hf)(sk_arena *a, const sk_hyper *h, int i, sk_hf *out);
    /* Hugging Face's config.json differs in key names between families: write ours from a key
     * of theirs.  Called for every number or boolean in the file. */
    bool (*hf_key)(sk_hyper *h, const char *key, double value);
    /* The text of config.json for export. */
    char *(*hf_config)(sk_arena *a, const sk_hyper *h);
    /* What other programs would leave out of that form, in words; "" for nothing.  May be NULL. */
    char *(*hf_extra)(sk_arena *a, const sk_hyper *h);
} sk_model;

extern const sk_model *const sk_model_parts[];
const sk_model *sk_model_find(const char *name);
/* A preset of any model part by name: fills *out and returns its model, or NULL. */
const sk_model *sk_model_preset(const char *name, sk_hyper *out);

#endif
