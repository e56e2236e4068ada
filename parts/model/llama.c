/* llama.c - Touvron et al. 2023: RMS norm, rotary positions, SwiGLU, grouped keys; Llama 3's
 * stretched angles (rope_type llama3), biases where the directory has them.
 *
 * All of it is in model/rotary_positions.h, letters too. */
#include "model/rotary_positions.h"

static const sk_hf_key own[] = {
    {"attention_bias", "attention_bias"},
    {"attention_bias", "attention_out_bias"},
    {"mlp_bias", "mlp_bias"},
    {0},
};
static const sk_hf_key *const keys[] = {sk_rotary_keys, own, NULL};
/* How transformers once split products over ranks; the sums are the same. */
static const sk_hf_only own_only[] = {{"pretraining_tp", NULL}, {0}};
static const sk_hf_only *const only[] = {own_only, NULL};

#define LLAMA(layers, heads, keys, width, hidden, words, places, tied)                          \
    {                                                                                           \
        .arch = "llama", .hidden_size = width, .num_hidden_layers = layers,                     \
        .num_attention_heads = heads, .num_key_value_heads = keys, .intermediate_size = hidden, \
        .vocab_size = words, .max_position_embeddings = places, .norm_eps = 1e-5,               \
        .rope_theta = 10000, .initializer_range = 0.02, .tie_word_embeddings = tied,            \
        .hidden_act = "silu",                                                                   \
    }

static const sk_preset presets[] = {
    {"llama-tiny", LLAMA(2, 4, 2, 32, 88, 256, 256, false)},
    {"llama-nano", LLAMA(6, 6, 2, 384, 1024, 256, 256, true)},
    {"llama-1b", LLAMA(16, 16, 16, 2048, 5632, 32768, 2048, true)},
    {"llama-7b", LLAMA(32, 32, 32, 4096, 11008, 32000, 4096, false)},
    {"llama-13b", LLAMA(40, 40, 40, 5120, 13824, 32000, 4096, false)},
    {"llama-70b", LLAMA(80, 64, 8, 8192, 28672, 32000, 4096, false)},
    {0},
};

const sk_model sk_model_llama = {
    .name = "llama",
    .doc = "Llama: rotary positions, RMS norm, SwiGLU, grouped keys",
    .presets = presets,
    .usual = {.arch = "llama",
              .norm_eps = 1e-5,
              .rope_theta = 10000,
              .initializer_range = 0.02,
              .hidden_act = "silu",
              .vocab_size = 256,
              .max_position_embeddings = 2048},
    .build = sk_rotary_dense,
    .hf = sk_rotary_dense_hf,
    .hf_class = "LlamaForCausalLM",
    .hf_default = {.arch = "llama",
                   .hidden_size = 4096,
                   .num_hidden_layers = 32,
                   .num_attention_heads = 32,
                   .intermediate_size = 11008,
                   .vocab_size = 32000,
                   .max_position_embeddings = 2048,
                   .norm_eps = 1e-6,
                   .rope_theta = 10000,
                   .initializer_range = 0.02,
                   .hidden_act = "silu"},
    .hf_keys = keys,
    .hf_only = only,
    .hf_buffers = sk_rotary_buffers,
    .hf_tie = {"lm_head.weight", "model.embed_tokens.weight"},
};
