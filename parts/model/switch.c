/* switch.c - Fedus et al. 2021: GPT-2's block (see gpt2.c), whose MLP is a bank of experts.
 *
 * Each token goes to the one expert with the largest logit, if that has room, and the result is
 * weighted by the softmax of all logits; a token without room passes by on the residual.  Experts
 * are as in the paper: ReLU, no biases (the block's last bias is common to all).  expert_groups
 * makes the gates two levels deep.  Letters as in gpt2.c and graph/experts.h. */
#include "graph/build.h"
#include "graph/experts.h"

#include <math.h>
#include <string.h>

static sk_tensor *norm(sk_graph *g, sk_tensor *x, double eps, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "%s.w", name);
    sk_tensor *b = sk_param_f(g, "c", SK_ZEROS, "%s.b", name);
    return sk_apply(g, "layernorm", .in = {x, w, b}, .attr = {eps})->out[0];
}

static sk_tensor *experts(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, sk_mode mode)
{
    double std = h->initializer_range, out = std / sqrt(2.0 * (double)h->num_hidden_layers);
    sk_experts m = sk_experts_route(g, h, x, i, mode, false);
    sk_tensor *w = sk_param_f(g, "fec", std, "h.%d.experts.in.w", i);
    sk_tensor *y = sk_contract(g, "ebxc,fec->ebxf", sk_experts_send(g, m, x), w);
    y = sk_apply(g, "relu", .in = {y})->out[0];
    w = sk_param_f(g, "cef", out, "h.%d.experts.out.w", i);
    return sk_experts_collect(g, m, sk_contract(g, "ebxf,cef->ebxc", y, w));
}

static sk_tensor *block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                        sk_mode mode)
{
    double std = h->initializer_range, out = std / sqrt(2.0 * (double)h->num_hidden_layers);
    double drop = mode == SK_TRAIN ? h->dropout : 0;
    sk_tensor *a = norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln1", i));
    sk_tensor *w = sk_param_f(g, "chsd", std, "h.%d.qkv.w", i);
    sk_tensor *qkv = sk_contract(g, "btc,chsd->bthsd", a, w);
    sk_tensor *bias = sk_param_f(g, "hsd", SK_ZEROS, "h.%d.qkv.b", i);
    qkv = sk_apply(g, "bias", .dims = "bthsd,hsd->bthsd", .in = {qkv, bias})->out[0];
    sk_tensor *y = sk_attend(g, qkv, pos, i, mode);
    y = sk_contract(g, "bthrd,chrd->btc", y, sk_param_f(g, "chrd", out, "h.%d.proj.w", i));
    bias = sk_param_f(g, "c", SK_ZEROS, "h.%d.proj.b", i);
    x = sk_apply(g, "residual", .in = {x, sk_dropout(g, y, drop), bias})->out[0];

    a = norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    y = experts(g, h, a, i, mode);
    bias = sk_param_f(g, "c", SK_ZEROS, "h.%d.out.b", i);
    return sk_apply(g, "residual", .in = {x, sk_dropout(g, y, drop), bias})->out[0];
}

static void sizes(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    if (h->num_attention_heads < 1 || h->hidden_size % h->num_attention_heads)
        sk_graph_fail(g, SK_ECONF, "hidden_size %lld is not a multiple of num_attention_heads %lld",
                      (long long)h->hidden_size, (long long)h->num_attention_heads);
    if (g->size['t'] > h->max_position_embeddings)
        sk_graph_fail(g, SK_ECONF, "train.seq is %lld, max_position_embeddings only %lld",
                      (long long)g->size['t'], (long long)h->max_position_embeddings);
    if (h->n_shared_experts)
        sk_graph_fail(g, SK_ECONF, "n_shared_experts is %lld; a switch model has none, see mixtral",
                      (long long)h->n_shared_experts);
    if (g->status) return;
    sk_experts_sizes(g, h, mode);
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'h', h->num_attention_heads);
    sk_graph_size(g, 's', 3);
    sk_graph_size(g, 'd', h->hidden_size / h->num_attention_heads);
    sk_graph_size(g, 'f', h->intermediate_size ? h->intermediate_size : 4 * h->hidden_size);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_graph_size(g, 'p', h->max_position_embeddings);
    sk_graph_size(g, 'n', h->max_position_embeddings);
    sk_graph_size(g, 'z', 2);
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sizes(g, h, mode);
    sk_tensor *tokens = sk_input(g, "tokens", "bt", SK_I32);
    sk_tensor *pos = sk_input(g, "pos", "bt", SK_I32);
    sk_tensor *wte = sk_param(g, "wte", "vc", h->initializer_range);
    sk_tensor *wpe = sk_param(g, "wpe", "pc", h->initializer_range);
    sk_tensor *word = sk_apply(g, "embedding", .in = {wte, tokens})->out[0];
    sk_tensor *place = sk_apply(g, "embedding", .in = {wpe, pos})->out[0];
    sk_tensor *x = sk_apply(g, "add", .in = {word, place})->out[0];
    x = sk_dropout(g, x, mode == SK_TRAIN ? h->dropout : 0);
    for (int i = 0; i < h->num_hidden_layers; i++) {
        g->layer = i + 1;
        x = block(g, h, x, pos, i, mode);
    }
    g->layer = (int)h->num_hidden_layers + 1;
    x = norm(g, x, h->norm_eps, "ln_f");
    g->logits = sk_contract(g, "btc,vc->btv", x, wte);
    if (mode == SK_TRAIN)
        sk_cross_entropy(g, g->logits, sk_input(g, "targets", "bt", SK_I32),
                         sk_input(g, "weights", "bt", SK_F32));
}

/* There is no such model in Hugging Face's library: names are those of GPT-2 and of the encoder of
 * its SwitchTransformers, matrices of experts [out, in]. */
static void hf_inner(sk_arena *a, int layer, int k, sk_hf *out)
{
    static const struct {
        const char *theirs, *ours, *dims;
    } inner[] = {{"ln_1.weight", "ln1.w", "c"},
                 {"ln_1.bias", "ln1.b", "c"},
                 {"attn.c_attn.weight", "qkv.w", "c,shd"},
                 {"attn.c_attn.bias", "qkv.b", "shd"},
                 {"attn.c_proj.weight", "proj.w", "hrd,c"},
                 {"attn.c_proj.bias", "proj.b", "c"},
                 {"ln_2.weight", "ln2.w", "c"},
                 {"ln_2.bias", "ln2.b", "c"},
                 {"mlp.bias", "out.b", "c"},
                 {"mlp.router.classifier.weight", "router.w", "g,c"},
                 {"mlp.router.groups.weight", "router.groups", "u,c"}};
    out->file_name = sk_print(a, "transformer.h.%d.%s", layer, inner[k].theirs);
    out->name = sk_print(a, "h.%d.%s", layer, inner[k].ours);
    out->dims = inner[k].dims;
}

static void hf_expert(sk_arena *a, int layer, int k, sk_hf *out)
{
    out->file_name = sk_print(a, "transformer.h.%d.mlp.experts.expert_%d.%s.weight", layer, k / 2,
                              k % 2 ? "wo" : "wi");
    out->name = sk_print(a, "h.%d.experts.%s.w", layer, k % 2 ? "out" : "in");
    out->dims = k % 2 ? "c,f" : "f,c";
    out->slice = 'e';
    out->from = k / 2;
    out->to = k / 2 + 1;
}

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    static const sk_hf ends[] = {{"transformer.wte.weight", "wte", "v,c", 0, 0, 0},
                                 {"transformer.wpe.weight", "wpe", "p,c", 0, 0, 0},
                                 {"transformer.ln_f.weight", "ln_f.w", "c", 0, 0, 0},
                                 {"transformer.ln_f.bias", "ln_f.b", "c", 0, 0, 0}};
    enum { ENDS = sizeof ends / sizeof *ends };
    int inner = h->expert_groups ? 11 : 10;
    int64_t all = inner + 2 * h->num_local_experts;
    *out = (sk_hf){0};
    if (i < ENDS) *out = ends[i];
    if (i < ENDS) return true;
    int layer = (int)((i - ENDS) / all), k = (int)((i - ENDS) % all);
    if (layer >= h->num_hidden_layers) return false;
    if (k < inner) hf_inner(a, layer, k, out);
    else hf_expert(a, layer, k - inner, out);
    return true;
}

static bool hf_key(sk_hyper *h, const char *key, double x)
{
    int64_t n = (int64_t)x;
    if (!strcmp(key, "n_embd")) h->hidden_size = n;
    else if (!strcmp(key, "n_layer")) h->num_hidden_layers = n;
    else if (!strcmp(key, "n_head")) h->num_attention_heads = n;
    else if (!strcmp(key, "n_inner")) h->intermediate_size = n;
    else if (!strcmp(key, "n_positions")) h->max_position_embeddings = n;
    else if (!strcmp(key, "vocab_size")) h->vocab_size = n;
    else if (!strcmp(key, "layer_norm_epsilon")) h->norm_eps = x;
    else if (!strcmp(key, "initializer_range")) h->initializer_range = x;
    else return sk_experts_key(h, key, x);
    return true;
}

static char *hf_config(sk_arena *a, const sk_hyper *h)
{
    return sk_print(
        a,
        "{\n  \"architectures\": [\"SkeinSwitchLMHeadModel\"],\n  \"model_type\": \"switch\",\n"
        "  \"n_embd\": %lld,\n  \"n_layer\": %lld,\n  \"n_head\": %lld,\n  \"n_inner\": %lld,\n"
        "  \"n_positions\": %lld,\n  \"n_ctx\": %lld,\n  \"vocab_size\": %lld,\n"
        "  \"layer_norm_epsilon\": %g,\n  \"initializer_range\": %g,\n"
        "%s  \"activation_function\": \"relu\",\n  \"tie_word_embeddings\": true,\n"
        "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
        "  \"torch_dtype\": \"float32\"\n}\n",
        (long long)h->hidden_size, (long long)h->num_hidden_layers,
        (long long)h->num_attention_heads,
        (long long)(h->intermediate_size ? h->intermediate_size : 4 * h->hidden_size),
        (long long)h->max_position_embeddings, (long long)h->max_position_embeddings,
        (long long)h->vocab_size, h->norm_eps, h->initializer_range, sk_experts_config(a, h));
}

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

const sk_model sk_model_switch = {
    .name = "switch",
    .doc = "Switch: GPT-2 with a mixture of ReLU experts, one a token",
    .presets = presets,
    .usual = {.arch = "switch",
              .norm_eps = 1e-5,
              .initializer_range = 0.02,
              .vocab_size = 256,
              .max_position_embeddings = 1024,
              .tie_word_embeddings = true,
              .num_local_experts = 8,
              .num_experts_per_tok = 1,
              .capacity_factor = 1.25,
              .router_aux_loss_coef = 0.01},
    .build = build,
    .hf = hf,
    .hf_key = hf_key,
    .hf_config = hf_config,
};
