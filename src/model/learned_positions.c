/* learned_positions.c - see learned_positions.h. */
#include "model/learned_positions.h"

static int64_t hidden(const sk_hyper *h)
{
    return h->intermediate_size ? h->intermediate_size : 4 * h->hidden_size;
}

void sk_learned_sizes(sk_graph *g, const sk_hyper *h)
{
    sk_heads_check(g, h);
    if (sk_hyper_key_heads(h) != h->num_attention_heads)
        sk_graph_fail(g, SK_ECONF, "num_key_value_heads is %lld; a %s has as many as heads, %lld",
                      (long long)h->num_key_value_heads, h->arch,
                      (long long)h->num_attention_heads);
    if (g->size['t'] > h->max_position_embeddings)
        sk_graph_fail(g, SK_ECONF, "train.seq is %lld, max_position_embeddings only %lld",
                      (long long)g->size['t'], (long long)h->max_position_embeddings);
    if (g->status) return;
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'h', h->num_attention_heads);
    sk_graph_size(g, 's', 3);
    sk_graph_size(g, 'd', h->hidden_size / h->num_attention_heads);
    sk_graph_size(g, 'f', hidden(h));
    sk_graph_size(g, 'v', h->vocab_size);
    sk_graph_size(g, 'p', h->max_position_embeddings);
    sk_graph_size(g, 'n', h->max_position_embeddings);
    sk_graph_size(g, 'z', 2);
}

sk_tensor *sk_layer_norm(sk_graph *g, sk_tensor *x, double eps, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "%s.w", name);
    sk_tensor *b = sk_param_f(g, "c", SK_ZEROS, "%s.b", name);
    return sk_apply(g, "layernorm", .in = {x, w, b}, .attr = {eps})->out[0];
}

sk_tensor *sk_learned_join(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *y,
                           const char *name, sk_mode mode)
{
    sk_tensor *bias = sk_param_f(g, "c", SK_ZEROS, "%s.b", name);
    y = sk_dropout(g, y, mode == SK_TRAIN ? h->resid_pdrop : 0);
    return sk_apply(g, "residual", .in = {x, y, bias})->out[0];
}

sk_tensor *sk_learned_attend(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                             sk_mode mode)
{
    sk_tensor *a = sk_layer_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln1", i));
    sk_tensor *w = sk_param_f(g, "chsd", h->initializer_range, "h.%d.qkv.w", i);
    sk_tensor *qkv = sk_contract(g, "btc,chsd->bthsd", a, w);
    qkv = sk_biased(g, "hsd", qkv, sk_print(g->arena, "h.%d.qkv.b", i));
    if (h->scale_attn_by_inverse_layer_idx && i)
        qkv = sk_apply(g, "scale_queries", .in = {qkv}, .attr = {1.0 / (i + 1)})->out[0];
    sk_tensor *y = sk_attend(g, qkv, pos, i, mode);
    w = sk_param_f(g, "chrd", sk_std_out(h), "h.%d.proj.w", i);
    y = sk_contract(g, "bthrd,chrd->btc", y, w);
    return sk_learned_join(g, h, x, y, sk_print(g->arena, "h.%d.proj", i), mode);
}

void sk_learned_build(sk_graph *g, const sk_hyper *h, sk_mode mode, sk_block *block)
{
    sk_tensor *tokens = sk_input(g, "tokens", "bt", SK_I32);
    sk_tensor *pos = sk_input(g, "pos", "bt", SK_I32);
    sk_tensor *wte = sk_param(g, "wte", "vc", h->initializer_range);
    sk_tensor *wpe = sk_param(g, "wpe", "pc", h->initializer_range);
    sk_tensor *word = sk_apply(g, "embedding", .in = {wte, tokens})->out[0];
    sk_tensor *place = sk_apply(g, "embedding", .in = {wpe, pos})->out[0];
    sk_tensor *x = sk_apply(g, "add", .in = {word, place})->out[0];
    x = sk_dropout(g, x, mode == SK_TRAIN ? h->embd_pdrop : 0);
    x = sk_blocks(g, h, x, pos, mode, block);
    x = sk_layer_norm(g, x, h->norm_eps, "ln_f");
    sk_tensor *head =
        h->tie_word_embeddings ? wte : sk_param(g, "head", "vc", h->initializer_range);
    sk_head(g, x, head, mode);
}

/* Their linear layers are [in, out], as ours. */
bool sk_learned_hf(sk_arena *a, const sk_hyper *h, int i, int64_t n_own, sk_hf_own *own, sk_hf *out)
{
    static const sk_hf ends[] = {{"transformer.wte.weight", "wte", "v,c", 0, 0, 0},
                                 {"transformer.wpe.weight", "wpe", "p,c", 0, 0, 0},
                                 {"transformer.ln_f.weight", "ln_f.w", "c", 0, 0, 0},
                                 {"transformer.ln_f.bias", "ln_f.b", "c", 0, 0, 0},
                                 {"lm_head.weight", "head", "v,c", 0, 0, 0}};
    static const sk_hf_row inner[] = {{"ln_1.weight", "ln1.w", "c"},
                                      {"ln_1.bias", "ln1.b", "c"},
                                      {"attn.c_attn.weight", "qkv.w", "c,shd"},
                                      {"attn.c_attn.bias", "qkv.b", "shd"},
                                      {"attn.c_proj.weight", "proj.w", "hrd,c"},
                                      {"attn.c_proj.bias", "proj.b", "c"},
                                      {"ln_2.weight", "ln2.w", "c"},
                                      {"ln_2.bias", "ln2.b", "c"}};
    enum { INNER = sizeof inner / sizeof *inner };
    int n_ends = h->tie_word_embeddings ? 4 : 5;
    *out = (sk_hf){0};
    if (i < n_ends) *out = ends[i];
    if (i < n_ends) return true;
    int layer = (int)((i - n_ends) / (INNER + n_own)), k = (int)((i - n_ends) % (INNER + n_own));
    if (layer >= h->num_hidden_layers) return false;
    if (k < INNER) sk_hf_in_layer(a, "transformer.h", layer, &inner[k], out);
    else own(a, h, layer, k - INNER, out);
    return true;
}

const sk_hf_key sk_learned_keys[] = {
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "intermediate_size"},
    {"n_positions", "max_position_embeddings"},
    {"vocab_size", "vocab_size"},
    {"layer_norm_epsilon", "norm_eps"},
    {"initializer_range", "initializer_range"},
    {"embd_pdrop", "embd_pdrop"},
    {"resid_pdrop", "resid_pdrop"},
    {"attn_pdrop", "attn_pdrop"},
    {"scale_attn_by_inverse_layer_idx", "scale_attn_by_inverse_layer_idx"},
    {"tie_word_embeddings", "tie_word_embeddings"},
    {0},
};

const sk_hf_only sk_learned_only[] = {
    {"scale_attn_weights", "true"},
    {"add_cross_attention", "false"},
    {"reorder_and_upcast_attn", NULL},
    {"n_ctx", NULL},
    {0},
};

/* Causal masks, as older files have them. */
const char *const sk_learned_buffers[] = {"attn.bias", "attn.masked_bias", NULL};
