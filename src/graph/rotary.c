/* rotary.c - see rotary.h. */
#include "graph/rotary.h"

#include <math.h>
#include <string.h>

static int64_t key_heads(const sk_hyper *h)
{
    return h->num_key_value_heads ? h->num_key_value_heads : h->num_attention_heads;
}

void sk_rotary_sizes(sk_graph *g, const sk_hyper *h)
{
    int64_t keys = key_heads(h);
    sk_heads_check(g, h);
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

sk_tensor *sk_rms_norm(sk_graph *g, sk_tensor *x, double eps, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "%s.w", name);
    return sk_apply(g, "rmsnorm", .in = {x, w}, .attr = {eps})->out[0];
}

sk_tensor *sk_rotary_attend(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                            sk_mode mode)
{
    double std = h->initializer_range, out = sk_std_out(h);
    sk_tensor *a = sk_rms_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln1", i));
    sk_tensor *w = sk_param_f(g, "chsd", std, "h.%d.qkv.w", i);
    sk_tensor *qkv = sk_contract(g, "btc,chsd->bthsd", a, w);
    qkv = sk_apply(g, "rope", .in = {qkv, pos}, .attr = {h->rope_theta, 1})->out[0];
    sk_tensor *y = sk_attend(g, qkv, pos, i, mode);
    y = sk_contract(g, "bthrd,chrd->btc", y, sk_param_f(g, "chrd", out, "h.%d.proj.w", i));
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

sk_tensor *sk_gated(sk_graph *g, const sk_hyper *h, sk_tensor *x, const char *name, const char *in,
                    const char *hidden, const char *out)
{
    double std = h->initializer_range;
    const char *dims = sk_print(g->arena, "%s,%s->%s", x->letters, in, hidden);
    sk_tensor *gate = sk_contract(g, dims, x, sk_param_f(g, in, std, "%s.gate.w", name));
    sk_tensor *up = sk_contract(g, dims, x, sk_param_f(g, in, std, "%s.up.w", name));
    sk_tensor *y = sk_apply(g, "swiglu", .in = {gate, up})->out[0];
    dims = sk_print(g->arena, "%s,%s->%s", hidden, out, x->letters);
    return sk_contract(g, dims, y, sk_param_f(g, out, sk_std_out(h), "%s.down.w", name));
}

void sk_rotary_build(sk_graph *g, const sk_hyper *h, sk_mode mode, sk_block *block)
{
    sk_tensor *tokens = sk_input(g, "tokens", "bt", SK_I32);
    sk_tensor *pos = sk_input(g, "pos", "bt", SK_I32);
    sk_tensor *wte = sk_param(g, "wte", "vc", h->initializer_range);
    sk_tensor *x = sk_apply(g, "embedding", .in = {wte, tokens})->out[0];
    x = sk_blocks(g, h, x, pos, mode, block);
    x = sk_rms_norm(g, x, h->norm_eps, "ln_f");
    sk_tensor *head =
        h->tie_word_embeddings ? wte : sk_param(g, "head", "vc", h->initializer_range);
    sk_head(g, x, head, mode);
}

/* The k-th tensor of a layer. */
static void inner(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_hf_row rows[] = {{"input_layernorm.weight", "ln1.w", "c"},
                                     {"self_attn.q_proj.weight", "qkv.w", "hsd,c"},
                                     {"self_attn.k_proj.weight", "qkv.w", "hsd,c"},
                                     {"self_attn.v_proj.weight", "qkv.w", "hsd,c"},
                                     {"self_attn.o_proj.weight", "proj.w", "c,hrd"},
                                     {"post_attention_layernorm.weight", "ln2.w", "c"}};
    sk_hf_in_layer(a, "model.layers", layer, &rows[k], out);
    if (k < 1 || k > 3) return;
    int64_t r = h->num_attention_heads / key_heads(h); /* slots of the packed tensor */
    out->slice = 's';
    out->from = k == 1 ? 0 : r + k - 2;
    out->to = k == 1 ? r : r + k - 1;
}

bool sk_rotary_hf(sk_arena *a, const sk_hyper *h, int i, int64_t n_own, sk_hf_own *own, sk_hf *out)
{
    static const sk_hf ends[] = {{"model.embed_tokens.weight", "wte", "v,c", 0, 0, 0},
                                 {"model.norm.weight", "ln_f.w", "c", 0, 0, 0},
                                 {"lm_head.weight", "head", "v,c", 0, 0, 0}};
    enum { INNER = 6 };
    int n_ends = h->tie_word_embeddings ? 2 : 3;
    *out = (sk_hf){0};
    if (i < n_ends) *out = ends[i];
    if (i < n_ends) return true;
    int layer = (int)((i - n_ends) / (INNER + n_own)), k = (int)((i - n_ends) % (INNER + n_own));
    if (layer >= h->num_hidden_layers) return false;
    if (k < INNER) inner(a, h, layer, k, out);
    else own(a, h, layer, k - INNER, out);
    return true;
}

bool sk_rotary_key(sk_hyper *h, const char *key, double x)
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

char *sk_rotary_config(sk_arena *a, const sk_hyper *h, const char *class_name, const char *lines)
{
    return sk_print(a,
                    "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n"
                    "  \"hidden_size\": %lld,\n  \"num_hidden_layers\": %lld,\n"
                    "  \"num_attention_heads\": %lld,\n  \"num_key_value_heads\": %lld,\n"
                    "  \"intermediate_size\": %lld,\n  \"max_position_embeddings\": %lld,\n"
                    "  \"vocab_size\": %lld,\n  \"rms_norm_eps\": %g,\n  \"rope_theta\": %g,\n"
                    "  \"initializer_range\": %g,\n  \"hidden_act\": \"silu\",\n%s"
                    "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
                    "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"float32\"\n}\n",
                    class_name, h->arch, (long long)h->hidden_size, (long long)h->num_hidden_layers,
                    (long long)h->num_attention_heads, (long long)key_heads(h),
                    (long long)h->intermediate_size, (long long)h->max_position_embeddings,
                    (long long)h->vocab_size, h->norm_eps, h->rope_theta, h->initializer_range,
                    lines, h->tie_word_embeddings ? "true" : "false");
}
