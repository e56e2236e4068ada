/* deepseek.c - Dai et al. 2024, DeepSeekMoE: Llama's attention (see llama.c), and MLPs that are
 * banks of many narrow experts.
 *
 * Each token goes to the k experts with the largest logits, weighted by the softmax of all logits,
 * and to n_shared_experts more, without a gate.  Two sizes are this model's own: the width of an
 * expert, and how many of the first layers have one plain MLP instead of experts.  Letters as in
 * model/rotary_positions.h and model/experts.h; f is the width of an expert, i of a plain MLP, j
 * counts shared experts. */
#include "model/experts.h"
#include "model/rotary_positions.h"

enum { WIDTH, DENSE };
static const sk_field own[] = {
    SK_OWN_INT(WIDTH, "moe_intermediate_size", 0, 0, 1e8,
               "width of an expert; 0: intermediate_size"),
    SK_OWN_INT(DENSE, "first_k_dense_replace", 0, 0, 1e4, "first layers without experts"),
    {0}};

static bool is_dense(const sk_hyper *h, int layer)
{
    return layer < (int)sk_field_number(&own[DENSE], h);
}

static sk_tensor *experts(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, sk_mode mode)
{
    sk_experts m = sk_experts_route(g, h, x, i, mode, false);
    const char *name = sk_print(g->arena, "h.%d.experts", i);
    sk_tensor *y = sk_gated(g, h, sk_experts_send(g, m, x), name, "fec", "ebxf", "cef");
    y = sk_experts_collect(g, m, y);
    if (!h->n_shared_experts) return y;
    name = sk_print(g->arena, "h.%d.shared", i);
    return sk_apply(g, "add", .in = {y, sk_gated(g, h, x, name, "fjc", "btfj", "cfj")})->out[0];
}

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    x = sk_rotary_attend(g, h, x, pos, i, mode);
    sk_tensor *a = sk_rms_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    sk_tensor *y = is_dense(h, i)
                       ? sk_gated(g, h, a, sk_print(g->arena, "h.%d", i), "ic", "bti", "ci")
                       : experts(g, h, a, i, mode);
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_hyper narrow = *h; /* whose MLPs are as wide as an expert */
    int64_t width = (int64_t)sk_field_number(&own[WIDTH], h);
    if (width) narrow.intermediate_size = width;
    sk_rotary_sizes(g, &narrow);
    if (is_dense(h, 0)) sk_graph_size(g, 'i', h->intermediate_size);
    if (h->n_shared_experts) sk_graph_size(g, 'j', h->n_shared_experts);
    sk_experts_sizes(g, h, mode);
    sk_rotary_build(g, &narrow, mode, block);
}

/* ---- Hugging Face's form ---- */

static const char *const theirs[] = {"gate_proj", "up_proj", "down_proj"};
static const char *const names[] = {"gate", "up", "down"};

/* The k-th matrix of an MLP that is called so: gate, up, down. */
static void matrix(sk_arena *a, int layer, int k, const char *mlp, const char *name,
                   const char *hidden, sk_hf *out)
{
    sk_hf_row row = {sk_print(a, "mlp.%s%s.weight", mlp, theirs[k]),
                     sk_print(a, "%s%s.w", name, names[k]),
                     k < 2 ? sk_print(a, "%s,c", hidden) : sk_print(a, "c,%s", hidden)};
    sk_hf_in_layer(a, "model.layers", layer, &row, out);
}

/* The k-th tensor of a layer with experts: routers, shared experts, which are one MLP there, then
 * one expert after the other. */
static void in_layer(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_experts_names routers = {
        {"mlp.gate.weight", "router.w", "g,c"},
        {"mlp.group_gate.weight", "router.groups", "u,c"},
        {"mlp.gate.e_score_correction_bias", "router.bias", "g"}};
    int n = sk_experts_routers(h), shared = h->n_shared_experts ? 3 : 0, e = (k - n - shared) / 3;
    if (k < n) sk_hf_in_layer(a, "model.layers", layer, sk_experts_router(h, &routers, k), out);
    else if (k < n + shared) matrix(a, layer, k - n, "shared_experts.", "shared.", "jf", out);
    else {
        matrix(a, layer, (k - n - shared) % 3, sk_print(a, "experts.%d.", e), "experts.", "f", out);
        out->slice = 'e';
        out->from = e;
        out->to = e + 1;
    }
}

/* What all layers have comes first, then MLPs of plain layers, then those of the others. */
static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    int layers = (int)h->num_hidden_layers, dense = (int)sk_field_number(&own[DENSE], h);
    int common = (h->tie_word_embeddings ? 2 : 3) + 6 * layers;
    int each =
        sk_experts_routers(h) + (h->n_shared_experts ? 3 : 0) + 3 * (int)h->num_local_experts;
    if (dense > layers) dense = layers;
    if (i < common) return sk_rotary_hf(a, h, i, 0, NULL, out);
    i -= common;
    *out = (sk_hf){0};
    if (i < 3 * dense) {
        matrix(a, i / 3, i % 3, "", "", "i", out);
        return true;
    }
    i -= 3 * dense;
    if (i >= each * (layers - dense)) return false;
    in_layer(a, h, dense + i / each, i % each, out);
    return true;
}

static char *hf_extra(sk_arena *a, const sk_hyper *h)
{
    return sk_print(a, "%s", h->router_bias_update_speed != 0 ? "the bias of its routers" : "");
}

/* The coefficient has a key of its own, as in mixtral.c. */
static const sk_hf_key own_keys[] = {
    {"n_routed_experts", "num_local_experts"},
    {"num_experts_per_tok", "num_experts_per_tok"},
    {"n_shared_experts", "n_shared_experts"},
    {"capacity_factor", "capacity_factor"},
    {"router_bias_update_speed", "router_bias_update_speed"},
    {"skein_router_aux_loss_coef", "router_aux_loss_coef"},
    {0},
};
static const sk_hf_key *const keys[] = {sk_rotary_keys, own_keys, NULL};
static const sk_hf_only own_only[] = {
    {"attention_bias", "false"},
    {"moe_layer_freq", "1"},
    {"norm_topk_prob", "false"},
    {"scoring_func", "softmax"},
    {"aux_loss_alpha", NULL},
    {"seq_aux", NULL},
    {"pretraining_tp", NULL},
    {"auto_map", NULL}, /* where Python code of this model lies */
    {0},
};
static const sk_hf_only *const only[] = {own_only, NULL};

#define DEEPSEEK(layers, heads, keys, wide, plain, expert, words, places, experts, shared, k)  \
    {                                                                                          \
        .arch = "deepseek", .hidden_size = wide, .num_hidden_layers = layers,                  \
        .num_attention_heads = heads, .num_key_value_heads = keys, .intermediate_size = plain, \
        .vocab_size = words, .max_position_embeddings = places, .norm_eps = 1e-6,              \
        .rope_theta = 10000, .initializer_range = 0.02, .hidden_act = "silu",                  \
        .num_local_experts = experts, .num_experts_per_tok = k, .n_shared_experts = shared,    \
        .router_aux_loss_coef = 0.001, .own = {                                                \
            [WIDTH] = SK_OWN_IS(expert),                                                       \
            [DENSE] = SK_OWN_IS(1)                                                             \
        }                                                                                      \
    }

static const sk_preset presets[] = {
    {"deepseek-tiny", DEEPSEEK(2, 4, 2, 32, 88, 24, 256, 256, 6, 2, 2)},
    {"deepseek-moe-16b", DEEPSEEK(28, 16, 16, 2048, 10944, 1408, 102400, 4096, 64, 2, 6)},
    {0},
};

const sk_model sk_model_deepseek = {
    .name = "deepseek",
    .doc = "DeepSeekMoE: Llama with many narrow experts, shared ones, first layers without",
    .presets = presets,
    .usual = {.arch = "deepseek",
              .norm_eps = 1e-6,
              .rope_theta = 10000,
              .initializer_range = 0.02,
              .vocab_size = 256,
              .max_position_embeddings = 2048,
              .num_local_experts = 8,
              .num_experts_per_tok = 2,
              .router_aux_loss_coef = 0.001,
              .hidden_act = "silu"},
    .own = own,
    .build = build,
    .hf = hf,
    .hf_class = "DeepseekForCausalLM",
    .hf_default = {.arch = "deepseek",
                   .hidden_size = 4096,
                   .num_hidden_layers = 30,
                   .num_attention_heads = 32,
                   .intermediate_size = 11008,
                   .vocab_size = 102400,
                   .max_position_embeddings = 2048,
                   .norm_eps = 1e-6,
                   .rope_theta = 10000,
                   .initializer_range = 0.02,
                   .hidden_act = "silu",
                   .own = {[WIDTH] = SK_OWN_IS(1407)}},
    .hf_keys = keys,
    .hf_only = only,
    .hf_buffers = sk_rotary_buffers,
    .hf_tie = {"lm_head.weight", "model.embed_tokens.weight"},
    .hf_extra = hf_extra,
};
