/* mixtral.c - Jiang et al. 2024: Llama's block (see llama.c), whose MLP is a bank of experts.
 *
 * Each token goes to the k experts with the largest logits, and their results are weighted by the
 * softmax of those logits.  By default there is room for every token, as in Mixtral: every
 * expert's bank is then as long as the sequence, most of it zeros that are multiplied too.  A
 * capacity_factor of 1 costs k / experts of that, and drops choices.  n_shared_experts more take
 * every token (Dai et al. 2024, DeepSeekMoE), and expert_groups makes the gates two levels deep
 * (two_level.c).  Letters as in llama.c and graph/experts.h, and j shared experts. */
#include "graph/build.h"
#include "graph/experts.h"

#include <math.h>
#include <string.h>

static sk_tensor *norm(sk_graph *g, sk_tensor *x, double eps, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "%s.w", name);
    return sk_apply(g, "rmsnorm", .in = {x, w}, .attr = {eps})->out[0];
}

static sk_tensor *experts(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, sk_mode mode)
{
    double std = h->initializer_range, out = std / sqrt(2.0 * (double)h->num_hidden_layers);
    sk_experts m = sk_experts_route(g, h, x, i, mode, true);
    sk_tensor *rows = sk_experts_send(g, m, x);
    sk_tensor *w = sk_param_f(g, "fec", std, "h.%d.experts.gate.w", i);
    sk_tensor *gate = sk_contract(g, "ebxc,fec->ebxf", rows, w);
    w = sk_param_f(g, "fec", std, "h.%d.experts.up.w", i);
    sk_tensor *up = sk_contract(g, "ebxc,fec->ebxf", rows, w);
    sk_tensor *y = sk_apply(g, "swiglu", .in = {gate, up})->out[0];
    w = sk_param_f(g, "cef", out, "h.%d.experts.down.w", i);
    return sk_experts_collect(g, m, sk_contract(g, "ebxf,cef->ebxc", y, w));
}

/* What every token goes through: one wide hidden layer, f units of each of j experts. */
static sk_tensor *shared(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i)
{
    double std = h->initializer_range, out = std / sqrt(2.0 * (double)h->num_hidden_layers);
    sk_tensor *w = sk_param_f(g, "fjc", std, "h.%d.shared.gate.w", i);
    sk_tensor *gate = sk_contract(g, "btc,fjc->btfj", x, w);
    w = sk_param_f(g, "fjc", std, "h.%d.shared.up.w", i);
    sk_tensor *up = sk_contract(g, "btc,fjc->btfj", x, w);
    sk_tensor *y = sk_apply(g, "swiglu", .in = {gate, up})->out[0];
    return sk_contract(g, "btfj,cfj->btc", y, sk_param_f(g, "cfj", out, "h.%d.shared.down.w", i));
}

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    double std = h->initializer_range, out = std / sqrt(2.0 * (double)h->num_hidden_layers);
    sk_tensor *a = norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln1", i));
    sk_tensor *w = sk_param_f(g, "chsd", std, "h.%d.qkv.w", i);
    sk_tensor *qkv = sk_contract(g, "btc,chsd->bthsd", a, w);
    qkv = sk_apply(g, "rope", .in = {qkv, pos}, .attr = {h->rope_theta, 1})->out[0];
    sk_tensor *y = sk_attend(g, qkv, pos, i, mode);
    y = sk_contract(g, "bthrd,chrd->btc", y, sk_param_f(g, "chrd", out, "h.%d.proj.w", i));
    x = sk_apply(g, "add", .in = {x, y})->out[0];

    a = norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    y = experts(g, h, a, i, mode);
    if (h->n_shared_experts) y = sk_apply(g, "add", .in = {y, shared(g, h, a, i)})->out[0];
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

static int64_t key_heads(const sk_hyper *h)
{
    return h->num_key_value_heads ? h->num_key_value_heads : h->num_attention_heads;
}

static void sizes(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    int64_t keys = key_heads(h);
    if (h->num_attention_heads < 1 || h->hidden_size % h->num_attention_heads)
        sk_graph_fail(g, SK_ECONF, "hidden_size %lld is not a multiple of num_attention_heads %lld",
                      (long long)h->hidden_size, (long long)h->num_attention_heads);
    if (keys < 1 || h->num_attention_heads % keys)
        sk_graph_fail(g, SK_ECONF,
                      "num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                      (long long)h->num_attention_heads, (long long)keys);
    if (g->status) return;
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'h', keys);
    sk_graph_size(g, 's', h->num_attention_heads / keys + 2);
    sk_graph_size(g, 'd', h->hidden_size / h->num_attention_heads);
    sk_graph_size(g, 'f', h->intermediate_size);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_graph_size(g, 'n', h->max_position_embeddings);
    sk_graph_size(g, 'z', 2);
    if (h->n_shared_experts) sk_graph_size(g, 'j', h->n_shared_experts);
    sk_experts_sizes(g, h, mode);
    if (g->size['d'] % 2)
        sk_graph_fail(g, SK_ECONF, "rotary positions need an even head width, not %lld",
                      (long long)g->size['d']);
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sizes(g, h, mode);
    sk_tensor *tokens = sk_input(g, "tokens", "bt", SK_I32);
    sk_tensor *pos = sk_input(g, "pos", "bt", SK_I32);
    sk_tensor *wte = sk_param(g, "wte", "vc", h->initializer_range);
    sk_tensor *x = sk_apply(g, "embedding", .in = {wte, tokens})->out[0];
    for (int i = 0; i < h->num_hidden_layers; i++) {
        g->layer = i + 1;
        x = block(g, h, x, pos, i, mode);
    }
    g->layer = (int)h->num_hidden_layers + 1;
    x = norm(g, x, h->norm_eps, "ln_f");
    sk_tensor *head =
        h->tie_word_embeddings ? wte : sk_param(g, "head", "vc", h->initializer_range);
    g->logits = sk_contract(g, "btc,vc->btv", x, head);
    if (mode == SK_TRAIN)
        sk_cross_entropy(g, g->logits, sk_input(g, "targets", "bt", SK_I32),
                         sk_input(g, "weights", "bt", SK_F32));
}

/* The k-th matrix of a bank: 3 of each expert, w1 (gate), w3 (up), w2 (down). */
static void hf_expert(sk_arena *a, int layer, int k, const char *bank, const char *ours, char slice,
                      sk_hf *out)
{
    static const char *const theirs[] = {"w1", "w3", "w2"}, *const names[] = {"gate", "up", "down"};
    out->file_name = sk_print(a, "model.layers.%d.block_sparse_moe.%s.%d.%s.weight", layer, bank,
                              k / 3, theirs[k % 3]);
    out->name = sk_print(a, "h.%d.%s.%s.w", layer, ours, names[k % 3]);
    out->dims = k % 3 < 2 ? "f,c" : "c,f";
    out->slice = slice;
    out->from = k / 3;
    out->to = k / 3 + 1;
}

/* Outside of the banks. */
static void hf_inner(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const struct {
        const char *theirs, *ours, *dims;
    } inner[] = {{"input_layernorm", "ln1.w", "c"},
                 {"self_attn.q_proj", "qkv.w", "hsd,c"},
                 {"self_attn.k_proj", "qkv.w", "hsd,c"},
                 {"self_attn.v_proj", "qkv.w", "hsd,c"},
                 {"self_attn.o_proj", "proj.w", "c,hrd"},
                 {"post_attention_layernorm", "ln2.w", "c"},
                 {"block_sparse_moe.gate", "router.w", "g,c"},
                 {"block_sparse_moe.group_gate", "router.groups", "u,c"}};
    out->file_name = sk_print(a, "model.layers.%d.%s.weight", layer, inner[k].theirs);
    out->name = sk_print(a, "h.%d.%s", layer, inner[k].ours);
    out->dims = inner[k].dims;
    if (k < 1 || k > 3) return;
    int64_t r = h->num_attention_heads / key_heads(h); /* slots of the packed tensor */
    out->slice = 's';
    out->from = k == 1 ? 0 : r + k - 2;
    out->to = k == 1 ? r : r + k - 1;
}

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    static const sk_hf ends[] = {{"model.embed_tokens.weight", "wte", "v,c", 0, 0, 0},
                                 {"model.norm.weight", "ln_f.w", "c", 0, 0, 0},
                                 {"lm_head.weight", "head", "v,c", 0, 0, 0}};
    int n_ends = h->tie_word_embeddings ? 2 : 3, inner = h->expert_groups ? 8 : 7;
    int64_t banks = 3 * h->num_local_experts, all = inner + banks + 3 * h->n_shared_experts;
    *out = (sk_hf){0};
    if (i < n_ends) *out = ends[i];
    if (i < n_ends) return true;
    int layer = (int)((i - n_ends) / all), k = (int)((i - n_ends) % all);
    if (layer >= h->num_hidden_layers) return false;
    if (k < inner) hf_inner(a, h, layer, k, out);
    else if (k < inner + banks) hf_expert(a, layer, k - inner, "experts", "experts", 'e', out);
    else hf_expert(a, layer, k - inner - (int)banks, "shared_experts", "shared", 'j', out);
    return true;
}

static bool hf_key(sk_hyper *h, const char *key, double x)
{
    int64_t n = (int64_t)x;
    if (!strcmp(key, "hidden_size")) h->hidden_size = n;
    else if (!strcmp(key, "num_hidden_layers")) h->num_hidden_layers = n;
    else if (!strcmp(key, "num_attention_heads")) h->num_attention_heads = n;
    else if (!strcmp(key, "num_key_value_heads")) h->num_key_value_heads = n;
    else if (!strcmp(key, "intermediate_size")) h->intermediate_size = n;
    else if (!strcmp(key, "max_position_embeddings")) h->max_position_embeddings = n;
    else if (!strcmp(key, "vocab_size")) h->vocab_size = n;
    else if (!strcmp(key, "rms_norm_eps")) h->norm_eps = x;
    else if (!strcmp(key, "rope_theta")) h->rope_theta = x;
    else if (!strcmp(key, "initializer_range")) h->initializer_range = x;
    else if (!strcmp(key, "tie_word_embeddings")) h->tie_word_embeddings = x != 0;
    else return sk_experts_key(h, key, x);
    return true;
}

static char *hf_config(sk_arena *a, const sk_hyper *h)
{
    return sk_print(
        a,
        "{\n  \"architectures\": [\"MixtralForCausalLM\"],\n  \"model_type\": \"mixtral\",\n"
        "  \"hidden_size\": %lld,\n  \"num_hidden_layers\": %lld,\n"
        "  \"num_attention_heads\": %lld,\n  \"num_key_value_heads\": %lld,\n"
        "  \"intermediate_size\": %lld,\n  \"max_position_embeddings\": %lld,\n"
        "  \"vocab_size\": %lld,\n  \"rms_norm_eps\": %g,\n  \"rope_theta\": %g,\n"
        "  \"initializer_range\": %g,\n  \"hidden_act\": \"silu\",\n"
        "  \"sliding_window\": null,\n%s"
        "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
        "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"float32\"\n}\n",
        (long long)h->hidden_size, (long long)h->num_hidden_layers,
        (long long)h->num_attention_heads, (long long)key_heads(h), (long long)h->intermediate_size,
        (long long)h->max_position_embeddings, (long long)h->vocab_size, h->norm_eps, h->rope_theta,
        h->initializer_range, sk_experts_config(a, h), h->tie_word_embeddings ? "true" : "false");
}

#define MIXTRAL(layers, heads, keys, width, hidden, words, places, theta, experts)              \
    {                                                                                           \
        .arch = "mixtral", .hidden_size = width, .num_hidden_layers = layers,                   \
        .num_attention_heads = heads, .num_key_value_heads = keys, .intermediate_size = hidden, \
        .vocab_size = words, .max_position_embeddings = places, .norm_eps = 1e-5,               \
        .rope_theta = theta, .initializer_range = 0.02, .num_local_experts = experts,           \
        .num_experts_per_tok = 2, .router_aux_loss_coef = 0.02,                                 \
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
              .router_aux_loss_coef = 0.001},
    .build = build,
    .hf = hf,
    .hf_key = hf_key,
    .hf_config = hf_config,
};
