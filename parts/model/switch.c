/* switch.c - Fedus et al. 2021: GPT-2's block (see gpt2.c), whose MLP is a bank of experts.
 *
 * Each token goes to the one expert with the largest logit, if that is not full, and the result is
 * weighted by the softmax of all logits; a dropped token keeps its residual.  Experts are as in the
 * paper: ReLU, no biases (the block's last bias is common to all).  expert_groups makes the gates
 * two levels deep.  Letters as in model/learned_positions.h and model/experts.h. */
#include "model/experts.h"
#include "model/learned_positions.h"

static sk_tensor *experts(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, sk_mode mode)
{
    sk_experts m = sk_experts_route(g, h, x, i, mode, false);
    sk_tensor *w = sk_param_f(g, "fec", h->initializer_range, "h.%d.experts.in.w", i);
    sk_tensor *y = sk_contract(g, "ebxc,fec->ebxf", sk_experts_send(g, m, x), w);
    y = sk_apply(g, "relu", .in = {y})->out[0];
    w = sk_param_f(g, "cef", sk_std_out(h), "h.%d.experts.out.w", i);
    return sk_experts_collect(g, m, sk_contract(g, "ebxf,cef->ebxc", y, w));
}

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    x = sk_learned_attend(g, h, x, pos, i, mode);
    sk_tensor *a = sk_layer_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    sk_tensor *y = experts(g, h, a, i, mode);
    return sk_learned_join(g, h, x, y, sk_print(g->arena, "h.%d.out", i), mode);
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_learned_sizes(g, h);
    if (h->n_shared_experts)
        sk_graph_fail(g, SK_ECONF, "n_shared_experts is %lld; a switch model has none, see mixtral",
                      (long long)h->n_shared_experts);
    sk_experts_sizes(g, h, mode);
    sk_learned_build(g, h, mode, block);
}

/* There is no such model in Hugging Face's library: names are those of GPT-2 and of the encoder of
 * its SwitchTransformers, matrices of experts [out, in]. */
static void hf_expert(sk_arena *a, int layer, int k, sk_hf *out)
{
    const char *theirs = sk_print(a, "mlp.experts.expert_%d.%s.weight", k / 2, k % 2 ? "wo" : "wi");
    sk_hf_row row = {theirs, k % 2 ? "experts.out.w" : "experts.in.w", k % 2 ? "c,f" : "f,c"};
    sk_hf_in_layer(a, "transformer.h", layer, &row, out);
    out->slice = 'e';
    out->from = k / 2;
    out->to = k / 2 + 1;
}

static void own(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_experts_names names = {
        {"mlp.router.classifier.weight", "router.w", "g,c"},
        {"mlp.router.groups.weight", "router.groups", "u,c"},
        {"mlp.router.classifier.e_score_correction_bias", "router.bias", "g"}};
    static const sk_hf_row bias = {"mlp.bias", "out.b", "c"};
    int n = sk_experts_routers(h);
    if (!k) sk_hf_in_layer(a, "transformer.h", layer, &bias, out);
    else if (k <= n)
        sk_hf_in_layer(a, "transformer.h", layer, sk_experts_router(h, &names, k - 1), out);
    else hf_expert(a, layer, k - 1 - n, out);
}

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    int64_t n = 1 + sk_experts_routers(h) + 2 * h->num_local_experts;
    return sk_learned_hf(a, h, i, n, own, out);
}

static const sk_hf_key own_keys[] = {{"router_aux_loss_coef", "router_aux_loss_coef"}, {0}};
static const sk_hf_key *const keys[] = {sk_learned_keys, sk_experts_keys, own_keys, NULL};
static const sk_hf_only own_only[] = {{"activation_function", "relu"}, {0}};
static const sk_hf_only *const only[] = {sk_learned_only, own_only, NULL};

#define SWITCH(layers, heads, width, words, places, experts)                                      \
    {                                                                                             \
        .arch = "switch", .hidden_size = width, .num_hidden_layers = layers,                      \
        .num_attention_heads = heads, .num_key_value_heads = heads,                               \
        .intermediate_size = 4 * (width), .vocab_size = words, .max_position_embeddings = places, \
        .norm_eps = 1e-5, .initializer_range = 0.02, .tie_word_embeddings = true,                 \
        .num_local_experts = experts, .num_experts_per_tok = 1, .capacity_factor = 1.25,          \
        .router_aux_loss_coef = 0.01,                                                             \
    }

static const sk_preset presets[] = {
    {"switch-tiny", SWITCH(2, 2, 32, 256, 64, 4)},
    {"switch-nano", SWITCH(6, 6, 384, 256, 256, 4)},
    {0},
};

/* No class of transformers assumes others. */
#define DEFAULTS                                                                          \
    .arch = "switch", .norm_eps = 1e-5, .initializer_range = 0.02, .vocab_size = 256,     \
    .max_position_embeddings = 1024, .tie_word_embeddings = true, .num_local_experts = 8, \
    .num_experts_per_tok = 1, .capacity_factor = 1.25, .router_aux_loss_coef = 0.01

const sk_model sk_model_switch = {
    .name = "switch",
    .doc = "Switch: GPT-2 with a mixture of ReLU experts, one a token",
    .presets = presets,
    .usual = {DEFAULTS},
    .build = build,
    .hf = hf,
    .hf_class = "SkeinSwitchLMHeadModel",
    .hf_default = {DEFAULTS},
    .hf_keys = keys,
    .hf_only = only,
    .hf_buffers = sk_learned_buffers,
    .hf_tie = {"lm_head.weight", "transformer.wte.weight"},
};
