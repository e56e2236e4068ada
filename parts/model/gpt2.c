/* gpt2.c - Radford et al. 2019: pre-norm blocks, learned positions, head tied to the embedding or
 * not.
 *
 * All but the MLP is in model/learned_positions.h, letters too. */
#include "model/learned_positions.h"

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    x = sk_learned_attend(g, h, x, pos, i, mode);
    sk_tensor *a = sk_layer_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    sk_tensor *w = sk_param_f(g, "cf", h->initializer_range, "h.%d.fc.w", i);
    sk_tensor *y = sk_contract(g, "btc,cf->btf", a, w);
    y = sk_hidden(g, h->hidden_act, y, sk_print(g->arena, "h.%d.fc.b", i));
    y = sk_contract(g, "btf,fc->btc", y, sk_param_f(g, "fc", sk_std_out(h), "h.%d.out.w", i));
    return sk_learned_join(g, h, x, y, sk_print(g->arena, "h.%d.out", i), mode);
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_learned_sizes(g, h);
    sk_learned_build(g, h, mode, block);
}

static void own(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_hf_row rows[] = {{"mlp.c_fc.weight", "fc.w", "c,f"},
                                     {"mlp.c_fc.bias", "fc.b", "f"},
                                     {"mlp.c_proj.weight", "out.w", "f,c"},
                                     {"mlp.c_proj.bias", "out.b", "c"}};
    (void)h;
    sk_hf_in_layer(a, "transformer.h", layer, &rows[k], out);
}

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    return sk_learned_hf(a, h, i, 4, own, out);
}

static const sk_hf_key own_keys[] = {{"activation_function", "hidden_act"}, {0}};
static const sk_hf_key *const keys[] = {sk_learned_keys, own_keys, NULL};
/* Heads of other classes than the language model's, which are not in its file. */
static const sk_hf_only own_only[] = {
    {"summary_type", NULL},           {"summary_use_proj", NULL},      {"summary_activation", NULL},
    {"summary_proj_to_labels", NULL}, {"summary_first_dropout", NULL}, {0}};
static const sk_hf_only *const only[] = {sk_learned_only, own_only, NULL};

#define GPT(layers, heads, width, words, places)                                                  \
    {                                                                                             \
        .arch = "gpt2", .hidden_size = width, .num_hidden_layers = layers,                        \
        .num_attention_heads = heads, .num_key_value_heads = heads,                               \
        .intermediate_size = 4 * (width), .vocab_size = words, .max_position_embeddings = places, \
        .norm_eps = 1e-5, .initializer_range = 0.02, .tie_word_embeddings = true,                 \
        .hidden_act = "gelu_new",                                                                 \
    }

static const sk_preset presets[] = {
    {"tiny", GPT(2, 2, 32, 256, 64)},
    {"demo", GPT(4, 4, 128, 256, 64)},
    {"nano", GPT(6, 6, 384, 256, 256)},
    {"gpt2", GPT(12, 12, 768, 50304, 1024)},
    {"gpt2-medium", GPT(24, 16, 1024, 50304, 1024)},
    {"gpt2-large", GPT(36, 20, 1280, 50304, 1024)},
    {"gpt2-xl", GPT(48, 25, 1600, 50304, 1024)},
    {0},
};

const sk_model sk_model_gpt2 = {
    .name = "gpt2",
    .doc = "GPT-2: learned positions, layer norm, GELU",
    .presets = presets,
    .usual = {.arch = "gpt2",
              .norm_eps = 1e-5,
              .initializer_range = 0.02,
              .vocab_size = 256,
              .max_position_embeddings = 1024,
              .hidden_act = "gelu_new",
              .tie_word_embeddings = true},
    .build = build,
    .hf = hf,
    .hf_class = "GPT2LMHeadModel",
    .hf_default = {.arch = "gpt2",
                   .hidden_size = 768,
                   .num_hidden_layers = 12,
                   .num_attention_heads = 12,
                   .vocab_size = 50257,
                   .max_position_embeddings = 1024,
                   .norm_eps = 1e-5,
                   .initializer_range = 0.02,
                   .embd_pdrop = 0.1,
                   .resid_pdrop = 0.1,
                   .attn_pdrop = 0.1,
                   .hidden_act = "gelu_new",
                   .tie_word_embeddings = true},
    .hf_keys = keys,
    .hf_only = only,
    .hf_buffers = sk_learned_buffers,
    .hf_tie = {"lm_head.weight", "transformer.wte.weight"},
};
