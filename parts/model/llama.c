/* llama.c - Touvron et al. 2023: RMS norm, rotary positions, SwiGLU, grouped keys.
 *
 * All but the place of the MLP is in graph/rotary.h, letters too. */
#include "graph/rotary.h"

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    x = sk_rotary_attend(g, h, x, pos, i, mode);
    sk_tensor *a = sk_rms_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    sk_tensor *y = sk_gated(g, h, a, sk_print(g->arena, "h.%d", i), "fc", "btf", "cf");
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_rotary_sizes(g, h);
    sk_rotary_build(g, h, mode, block);
}

static void own(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_hf_row rows[] = {{"mlp.gate_proj.weight", "gate.w", "f,c"},
                                     {"mlp.up_proj.weight", "up.w", "f,c"},
                                     {"mlp.down_proj.weight", "down.w", "c,f"}};
    (void)h;
    sk_hf_in_layer(a, "model.layers", layer, &rows[k], out);
}

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    return sk_rotary_hf(a, h, i, 3, own, out);
}

static char *hf_config(sk_arena *a, const sk_hyper *h)
{
    return sk_rotary_config(a, h, "LlamaForCausalLM",
                            "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n");
}

#define LLAMA(layers, heads, keys, width, hidden, words, places, tied)                          \
    {                                                                                           \
        .arch = "llama", .hidden_size = width, .num_hidden_layers = layers,                     \
        .num_attention_heads = heads, .num_key_value_heads = keys, .intermediate_size = hidden, \
        .vocab_size = words, .max_position_embeddings = places, .norm_eps = 1e-5,               \
        .rope_theta = 10000, .initializer_range = 0.02, .tie_word_embeddings = tied,            \
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
              .vocab_size = 256,
              .max_position_embeddings = 2048},
    .build = build,
    .hf = hf,
    .hf_key = sk_rotary_key,
    .hf_config = hf_config,
};
