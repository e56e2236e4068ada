/* qwen2.c - Yang et al. 2024: Llama's decoder with biases of queries, keys and values.
 *
 * All of it is in model/rotary_positions.h, letters too. */
#include "model/rotary_positions.h"

/* The biases are part of the model: no key turns them off. */
static const sk_hf_key *const keys[] = {sk_rotary_keys, NULL};
static const sk_hf_only own_only[] = {
    {"use_sliding_window", "false"}, {"sliding_window", NULL}, /* without use_sliding_window they
                                                                  say nothing */
    {"max_window_layers", NULL},     {"use_mrope", "false"},   {0},
};
static const sk_hf_only *const only[] = {own_only, NULL};

#define QWEN2(layers, heads, keys, width, hidden, words, places, theta, tied)                   \
    {                                                                                           \
        .arch = "qwen2", .hidden_size = width, .num_hidden_layers = layers,                     \
        .num_attention_heads = heads, .num_key_value_heads = keys, .intermediate_size = hidden, \
        .vocab_size = words, .max_position_embeddings = places, .norm_eps = 1e-6,               \
        .rope_theta = theta, .initializer_range = 0.02, .tie_word_embeddings = tied,            \
        .hidden_act = "silu", .attention_bias = true,                                           \
    }

static const sk_preset presets[] = {
    {"qwen2-tiny", QWEN2(2, 4, 2, 32, 88, 256, 256, 10000, true)},
    {"qwen2-0.5b", QWEN2(24, 14, 2, 896, 4864, 151936, 32768, 1000000, true)},
    {"qwen2-7b", QWEN2(28, 28, 4, 3584, 18944, 152064, 32768, 1000000, false)},
    {0},
};

const sk_model sk_model_qwen2 = {
    .name = "qwen2",
    .doc = "Qwen2: Llama with biases of queries, keys and values",
    .presets = presets,
    .usual = {.arch = "qwen2",
              .norm_eps = 1e-6,
              .rope_theta = 10000,
              .initializer_range = 0.02,
              .hidden_act = "silu",
              .attention_bias = true,
              .vocab_size = 256,
              .max_position_embeddings = 2048},
    .build = sk_rotary_dense,
    .hf = sk_rotary_dense_hf,
    .hf_class = "Qwen2ForCausalLM",
    .hf_default = {.arch = "qwen2",
                   .hidden_size = 4096,
                   .num_hidden_layers = 32,
                   .num_attention_heads = 32,
                   .num_key_value_heads = 32,
                   .intermediate_size = 22016,
                   .vocab_size = 151936,
                   .max_position_embeddings = 32768,
                   .norm_eps = 1e-6,
                   .rope_theta = 10000,
                   .initializer_range = 0.02,
                   .hidden_act = "silu",
                   .attention_bias = true},
    .hf_keys = keys,
    .hf_only = only,
    .hf_buffers = sk_rotary_buffers,
    .hf_tie = {"lm_head.weight", "model.embed_tokens.weight"},
};
