/* llama.c - Touvron et al. 2023: RMS norm, rotary positions, SwiGLU, grouped keys.
 *
 * Letters as in gpt2.c, but h counts key heads: each has r queries, so that a
 * head group (r queries, one key, one value: s = r + 2 slots) is never torn
 * apart by a split.  Weights begin with a long dim (see gpt2.c). */
#include "graph/build.h"

#include <math.h>
#include <string.h>

static sk_tensor *norm(sk_graph *g, sk_tensor *x, double eps, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "%s.w", name);
    return sk_apply(g, "rmsnorm", .in = {x, w}, .attr = {eps})->out[0];
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
    sk_tensor *gate = sk_contract(g, "btc,fc->btf", a, sk_param_f(g, "fc", std, "h.%d.gate.w", i));
    sk_tensor *up = sk_contract(g, "btc,fc->btf", a, sk_param_f(g, "fc", std, "h.%d.up.w", i));
    y = sk_apply(g, "swiglu", .in = {gate, up})->out[0];
    y = sk_contract(g, "btf,cf->btc", y, sk_param_f(g, "cf", out, "h.%d.down.w", i));
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

static int64_t key_heads(const sk_hyper *h)
{
    return h->num_key_value_heads ? h->num_key_value_heads : h->num_attention_heads;
}

static void sizes(sk_graph *g, const sk_hyper *h)
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
    if (g->size['d'] % 2)
        sk_graph_fail(g, SK_ECONF, "rotary positions need an even head width, not %lld",
                      (long long)g->size['d']);
}

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sizes(g, h);
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

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    static const struct {
        const char *theirs, *ours, *dims;
    } ends[] = {{"model.embed_tokens.weight", "wte", "v,c"},
                {"model.norm.weight", "ln_f.w", "c"},
                {"lm_head.weight", "head", "v,c"}},
      inner[] = {
          {"input_layernorm", "ln1.w", "c"},       {"self_attn.q_proj", "qkv.w", "hsd,c"},
          {"self_attn.k_proj", "qkv.w", "hsd,c"},  {"self_attn.v_proj", "qkv.w", "hsd,c"},
          {"self_attn.o_proj", "proj.w", "c,hrd"}, {"post_attention_layernorm", "ln2.w", "c"},
          {"mlp.gate_proj", "gate.w", "f,c"},      {"mlp.up_proj", "up.w", "f,c"},
          {"mlp.down_proj", "down.w", "c,f"}};
    enum { INNER = sizeof inner / sizeof *inner };
    int n_ends = h->tie_word_embeddings ? 2 : 3;
    *out = (sk_hf){0};
    if (i < n_ends) {
        *out = (sk_hf){.file_name = ends[i].theirs, .name = ends[i].ours, .dims = ends[i].dims};
        return true;
    }
    int layer = (i - n_ends) / INNER, k = (i - n_ends) % INNER;
    if (layer >= h->num_hidden_layers) return false;
    out->file_name = sk_print(a, "model.layers.%d.%s.weight", layer, inner[k].theirs);
    out->name = sk_print(a, "h.%d.%s", layer, inner[k].ours);
    out->dims = inner[k].dims;
    if (k >= 1 && k <= 3) { /* queries, key, value: slots of the packed tensor */
        int64_t r = h->num_attention_heads / key_heads(h);
        out->slice = 's';
        out->from = k == 1 ? 0 : r + k - 2;
        out->to = k == 1 ? r : r + k - 1;
    }
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
    else return false;
    return true;
}

static char *hf_config(sk_arena *a, const sk_hyper *h)
{
    return sk_print(
        a,
        "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
        "  \"hidden_size\": %lld,\n  \"num_hidden_layers\": %lld,\n"
        "  \"num_attention_heads\": %lld,\n  \"num_key_value_heads\": %lld,\n"
        "  \"intermediate_size\": %lld,\n  \"max_position_embeddings\": %lld,\n"
        "  \"vocab_size\": %lld,\n  \"rms_norm_eps\": %g,\n  \"rope_theta\": %g,\n"
        "  \"initializer_range\": %g,\n  \"hidden_act\": \"silu\",\n"
        "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n"
        "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
        "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"float32\"\n}\n",
        (long long)h->hidden_size, (long long)h->num_hidden_layers,
        (long long)h->num_attention_heads, (long long)key_heads(h), (long long)h->intermediate_size,
        (long long)h->max_position_embeddings, (long long)h->vocab_size, h->norm_eps, h->rope_theta,
        h->initializer_range, h->tie_word_embeddings ? "true" : "false");
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
    .hf_key = hf_key,
    .hf_config = hf_config,
};
