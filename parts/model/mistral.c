/* mistral.c - Jiang et al. 2023: Llama's decoder with grouped keys and a window of attention.
 *
 * Sequences must fit into the window (sliding_window); there it changes nothing.  All of it is in
 * model/rotary_positions.h, letters too. */
#include "model/rotary_positions.h"

static const sk_hf_key own[] = {{"sliding_window", "sliding_window"}, {0}};
static const sk_hf_key *const keys[] = {sk_rotary_keys, own, NULL};

#define MISTRAL(layers, heads, keys, width, hidden, words, places, window)                      \
    {                                                                                           \
        .arch = "mistral", .hidden_size = width, .num_hidden_layers = layers,                   \
        .num_attention_heads = heads, .num_key_value_heads = keys, .intermediate_size = hidden, \
        .vocab_size = words, .max_position_embeddings = places, .sliding_window = window,       \
        .norm_eps = 1e-5, .rope_theta = 10000, .initializer_range = 0.02, .hidden_act = "silu", \
    }

static const sk_preset presets[] = {
    {"mistral-tiny", MISTRAL(2, 4, 2, 32, 88, 256, 256, 128)},
    {"mistral-7b", MISTRAL(32, 32, 8, 4096, 14336, 32000, 32768, 4096)},
    {0},
};

const sk_model sk_model_mistral = {
    .name = "mistral",
    .doc = "Mistral: Llama with grouped keys and a window of attention",
    .presets = presets,
    .usual = {.arch = "mistral",
              .norm_eps = 1e-5,
              .rope_theta = 10000,
              .initializer_range = 0.02,
              .hidden_act = "silu",
              .vocab_size = 256,
              .max_position_embeddings = 2048},
    .build = sk_rotary_dense,
    .hf = sk_rotary_dense_hf,
    .hf_class = "MistralForCausalLM",
    .hf_default = {.arch = "mistral",
                   .hidden_size = 4096,
                   .num_hidden_layers = 32,
                   .num_attention_heads = 32,
                   .num_key_value_heads = 8,
                   .intermediate_size = 14336,
                   .vocab_size = 32000,
                   .max_position_embeddings = 131072,
                   .sliding_window = 4096,
                   .norm_eps = 1e-6,
                   .rope_theta = 10000,
                   .initializer_range = 0.02,
                   .hidden_act = "silu"},
    .hf_keys = keys,
    .hf_buffers = sk_rotary_buffers,
    .hf_tie = {"lm_head.weight", "model.embed_tokens.weight"},
};
