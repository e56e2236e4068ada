/* mixtral.c - Jiang et al. 2024: Llama's block (see llama.c), whose MLP is a bank of experts.
 *
 * Each token goes to the k experts with the largest logits, and their results are weighted by the
 * softmax of those logits.  By default an expert has capacity for every token, as in Mixtral: every
 * expert's bank is then as long as the sequence, most of it zeros that are multiplied too.  A
 * capacity_factor of 1 costs k / experts of that, and drops choices.  n_shared_experts more take
 * every token (Dai et al. 2024, DeepSeekMoE), and expert_groups makes the gates two levels deep
 * (parts/op/two_level.c).  Letters as in model/rotary_positions.h and model/experts.h, and j shared
 * experts.
 */
#include "model/experts.h"
#include "model/rotary_positions.h"

static sk_tensor *experts(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, sk_mode mode)
{
    sk_experts m = sk_experts_route(g, h, x, i, mode, true);
    const char *name = sk_print(g->arena, "h.%d.experts", i);
    sk_tensor *y = sk_gated(g, h, sk_experts_send(g, m, x), name, "fec", "ebxf", "cef");
    return sk_experts_collect(g, m, y);
}

/* What every token goes through: one wide hidden layer, f units of each of j experts. */
static sk_tensor *shared(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i)
{
    return sk_gated(g, h, x, sk_print(g->arena, "h.%d.shared", i), "fjc", "btfj", "cfj");
}

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    x = sk_rotary_attend(g, h, x, pos, i, mode);
    sk_tensor *a = sk_rms_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    sk_tensor *y = experts(g, h, a, i, mode);
    if (h->n_shared_experts) y = sk_apply(g, "add", .in = {y, shared(g, h, a, i)})->out[0];
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_rotary_sizes(g, h);
    if (h->mlp_bias) sk_graph_fail(g, SK_ECONF, "mlp_bias: experts have no biases");
    if (h->n_shared_experts) sk_graph_size(g, 'j', h->n_shared_experts);
    sk_experts_sizes(g, h, mode);
    sk_rotary_build(g, h, mode, block);
}

/* The k-th matrix of a bank: 3 of each expert, w1 (gate), w3 (up), w2 (down). */
static void hf_expert(sk_arena *a, int layer, int k, const char *bank, const char *ours, char slice,
                      sk_hf *out)
{
    static const char *const theirs[] = {"w1", "w3", "w2"}, *const names[] = {"gate", "up", "down"};
    sk_hf_row row = {sk_print(a, "block_sparse_moe.%s.%d.%s.weight", bank, k / 3, theirs[k % 3]),
                     sk_print(a, "%s.%s.w", ours, names[k % 3]), k % 3 < 2 ? "f,c" : "c,f"};
    sk_hf_in_layer(a, "model.layers", layer, &row, out);
    out->slice = slice;
    out->from = k / 3;
    out->to = k / 3 + 1;
}

static void own(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_experts_names names = {
        {"block_sparse_moe.gate.weight", "router.w", "g,c"},
        {"block_sparse_moe.group_gate.weight", "router.groups", "u,c"},
        {"block_sparse_moe.gate.e_score_correction_bias", "router.bias", "g"}};
    int n = sk_experts_routers(h), banks = n + 3 * (int)h->num_local_experts;
    if (k < n) sk_hf_in_layer(a, "model.layers", layer, sk_experts_router(h, &names, k), out);
    else if (k < banks) hf_expert(a, layer, k - n, "experts", "experts", 'e', out);
    else hf_expert(a, layer, k - banks, "shared_experts", "shared", 'j', out);
}

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    int64_t n = sk_experts_routers(h) + 3 * (h->num_local_experts + h->n_shared_experts);
    return sk_rotary_hf(a, h, i, n, own, out);
}

/* The coefficient has a key of its own: skein's balance loss goes by the first choices of each
 * sequence in each layer (parts/op/balance.c), that of transformers by all choices of all layers at
 * once, and it is part of the loss only with output_router_logits. */
static const sk_hf_key own_keys[] = {
    {"sliding_window", "sliding_window"},
    {"skein_router_aux_loss_coef", "router_aux_loss_coef"},
    {0},
};
static const sk_hf_key *const keys[] = {sk_rotary_keys, sk_experts_keys, own_keys, NULL};
static const sk_hf_only own_only[] = {
    {"output_router_logits", "false"},
    {"router_jitter_noise", "0.0"},
    {"router_aux_loss_coef", NULL}, /* without output_router_logits it says nothing */
    {0},
};
static const sk_hf_only *const only[] = {own_only, NULL};

static char *hf_extra(sk_arena *a, const sk_hyper *h)
{
    bool bias = h->router_bias_update_speed != 0, shared = h->n_shared_experts;
    return sk_print(a, "%s%s%s%s%s", bias ? "the bias of its routers" : "",
                    bias && (shared || h->expert_groups) ? ", " : "",
                    shared ? "its shared experts" : "", shared && h->expert_groups ? ", " : "",
                    h->expert_groups ? "its groups of experts" : "");
}

#define MIXTRAL(layers, heads, keys, width, hidden, words, places, theta, experts)              \
    {                                                                                           \
        .arch = "mixtral", .hidden_size = width, .num_hidden_layers = layers,                   \
        .num_attention_heads = heads, .num_key_value_heads = keys, .intermediate_size = hidden, \
        .vocab_size = words, .max_position_embeddings = places, .norm_eps = 1e-5,               \
        .rope_theta = theta, .initializer_range = 0.02, .num_local_experts = experts,           \
        .num_experts_per_tok = 2, .router_aux_loss_coef = 0.02, .hidden_act = "silu",           \
    }

static const sk_preset presets[] = {
    {"mixtral-tiny", MIXTRAL(2, 4, 2, 32, 48, 256, 256, 10000, 4)},
    {"mixtral-nano", MIXTRAL(6, 6, 2, 384, 512, 256, 256, 10000, 4)},
    {"mixtral-8x7b", MIXTRAL(32, 32, 8, 4096, 14336, 32000, 32768, 1000000, 8)},
    {0},
};

const sk_model sk_model_mixtral = {
    .name = "mixtral",
    .doc = "Mixtral: Llama with a mixture of SwiGLU experts",
    .presets = presets,
    .usual = {.arch = "mixtral",
              .norm_eps = 1e-5,
              .rope_theta = 1000000,
              .initializer_range = 0.02,
              .vocab_size = 256,
              .max_position_embeddings = 2048,
              .num_local_experts = 8,
              .num_experts_per_tok = 2,
              .router_aux_loss_coef = 0.001,
              .hidden_act = "silu"},
    .build = build,
    .hf = hf,
    .hf_class = "MixtralForCausalLM",
    .hf_default = {.arch = "mixtral",
                   .hidden_size = 4096,
                   .num_hidden_layers = 32,
                   .num_attention_heads = 32,
                   .num_key_value_heads = 8,
                   .intermediate_size = 14336,
                   .vocab_size = 32000,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1e-5,
                   .rope_theta = 1000000,
                   .initializer_range = 0.02,
                   .hidden_act = "silu",
                   .num_local_experts = 8,
                   .num_experts_per_tok = 2},
    .hf_keys = keys,
    .hf_only = only,
    .hf_buffers = sk_rotary_buffers,
    .hf_tie = {"lm_head.weight", "model.embed_tokens.weight"},
    .hf_extra = hf_extra,
};
