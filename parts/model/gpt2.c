/* gpt2.c - Radford et al. 2019: pre-norm blocks, learned positions, tied head.
 *
 * Letters: b batch, t time, c width, h heads, s slots of a head (query, key,
 * value), r queries per key (1), d head width, f hidden, v words, p positions,
 * and when decoding n remembered positions of z = 2 (key, value).
 * The packed qkv weight is [c, h, s, d]: a head's query, key and value lie
 * together, so that splitting h splits all three at once.  Weights begin with a
 * long dim, never with the heads: shards are cut along the first one. */
#include "graph/build.h"

#include <math.h>
#include <string.h>

static sk_tensor *norm(sk_graph *g, sk_tensor *x, double eps, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "%s.w", name);
    sk_tensor *b = sk_param_f(g, "c", SK_ZEROS, "%s.b", name);
    return sk_apply(g, "layernorm", .in = {x, w, b}, .attr = {eps})->out[0];
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
    y = sk_contract(g, "btc,cf->btf", a, sk_param_f(g, "cf", std, "h.%d.fc.w", i));
    bias = sk_param_f(g, "f", SK_ZEROS, "h.%d.fc.b", i);
    y = sk_apply(g, "bias_gelu", .in = {y, bias})->out[0];
    y = sk_contract(g, "btf,fc->btc", y, sk_param_f(g, "fc", out, "h.%d.out.w", i));
    bias = sk_param_f(g, "c", SK_ZEROS, "h.%d.out.b", i);
    return sk_apply(g, "residual", .in = {x, sk_dropout(g, y, drop), bias})->out[0];
}

static void sizes(sk_graph *g, const sk_hyper *h)
{
    if (h->num_attention_heads < 1 || h->hidden_size % h->num_attention_heads)
        sk_graph_fail(g, SK_ECONF, "hidden_size %lld is not a multiple of num_attention_heads %lld",
                      (long long)h->hidden_size, (long long)h->num_attention_heads);
    if (g->size['t'] > h->max_position_embeddings)
        sk_graph_fail(g, SK_ECONF, "train.seq is %lld, max_position_embeddings only %lld",
                      (long long)g->size['t'], (long long)h->max_position_embeddings);
    if (g->status) return;
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
    sizes(g, h);
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

/* Their linear layers are [in, out], as ours. */
static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    static const struct {
        const char *theirs, *ours, *dims;
    } ends[] = {{"wte.weight", "wte", "v,c"},
                {"wpe.weight", "wpe", "p,c"},
                {"ln_f.weight", "ln_f.w", "c"},
                {"ln_f.bias", "ln_f.b", "c"}},
      inner[] = {{"ln_1.weight", "ln1.w", "c"},
                 {"ln_1.bias", "ln1.b", "c"},
                 {"attn.c_attn.weight", "qkv.w", "c,shd"},
                 {"attn.c_attn.bias", "qkv.b", "shd"},
                 {"attn.c_proj.weight", "proj.w", "hrd,c"},
                 {"attn.c_proj.bias", "proj.b", "c"},
                 {"ln_2.weight", "ln2.w", "c"},
                 {"ln_2.bias", "ln2.b", "c"},
                 {"mlp.c_fc.weight", "fc.w", "c,f"},
                 {"mlp.c_fc.bias", "fc.b", "f"},
                 {"mlp.c_proj.weight", "out.w", "f,c"},
                 {"mlp.c_proj.bias", "out.b", "c"}};
    enum { ENDS = sizeof ends / sizeof *ends, INNER = sizeof inner / sizeof *inner };
    *out = (sk_hf){0};
    if (i < ENDS) {
        out->file_name = sk_print(a, "transformer.%s", ends[i].theirs);
        out->name = ends[i].ours;
        out->dims = ends[i].dims;
        return true;
    }
    int layer = (i - ENDS) / INNER, k = (i - ENDS) % INNER;
    if (layer >= h->num_hidden_layers) return false;
    out->file_name = sk_print(a, "transformer.h.%d.%s", layer, inner[k].theirs);
    out->name = sk_print(a, "h.%d.%s", layer, inner[k].ours);
    out->dims = inner[k].dims;
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
    else return false;
    return true;
}

static char *hf_config(sk_arena *a, const sk_hyper *h)
{
    return sk_print(
        a,
        "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
        "  \"n_embd\": %lld,\n  \"n_layer\": %lld,\n  \"n_head\": %lld,\n  \"n_inner\": %lld,\n"
        "  \"n_positions\": %lld,\n  \"n_ctx\": %lld,\n  \"vocab_size\": %lld,\n"
        "  \"layer_norm_epsilon\": %g,\n  \"initializer_range\": %g,\n"
        "  \"activation_function\": \"gelu_new\",\n  \"tie_word_embeddings\": true,\n"
        "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
        "  \"torch_dtype\": \"float32\"\n}\n",
        (long long)h->hidden_size, (long long)h->num_hidden_layers,
        (long long)h->num_attention_heads,
        (long long)(h->intermediate_size ? h->intermediate_size : 4 * h->hidden_size),
        (long long)h->max_position_embeddings, (long long)h->max_position_embeddings,
        (long long)h->vocab_size, h->norm_eps, h->initializer_range);
}

#define GPT(layers, heads, width, words, places)                                                  \
    {                                                                                             \
        .arch = "gpt2", .hidden_size = width, .num_hidden_layers = layers,                        \
        .num_attention_heads = heads, .num_key_value_heads = heads,                               \
        .intermediate_size = 4 * (width), .vocab_size = words, .max_position_embeddings = places, \
        .norm_eps = 1e-5, .initializer_range = 0.02, .tie_word_embeddings = true,                 \
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
    .doc = "GPT-2: learned positions, layer norm, GELU, tied head",
    .presets = presets,
    .usual = {.arch = "gpt2",
              .norm_eps = 1e-5,
              .initializer_range = 0.02,
              .vocab_size = 256,
              .max_position_embeddings = 1024,
              .tie_word_embeddings = true},
    .build = build,
    .hf = hf,
    .hf_key = hf_key,
    .hf_config = hf_config,
};
