/* rotary_positions.c - see rotary_positions.h. */
#include "model/rotary_positions.h"

#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void check(sk_graph *g, const sk_hyper *h)
{
    int64_t keys = sk_hyper_key_heads(h), window = h->sliding_window;
    if (!h->head_dim) sk_heads_check(g, h);
    if (keys < 1 || h->num_attention_heads % keys)
        sk_graph_fail(g, SK_ECONF,
                      "num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                      (long long)h->num_attention_heads, (long long)keys);
    if (window && g->size['t'] > window)
        sk_graph_fail(g, SK_ECONF,
                      "train.seq is %lld, sliding_window %lld: attention that sees only a window "
                      "of a sequence is not supported; sequences of at most %lld are exact",
                      (long long)g->size['t'], (long long)window, (long long)window);
}

void sk_rotary_sizes(sk_graph *g, const sk_hyper *h)
{
    int64_t keys = sk_hyper_key_heads(h), places = h->max_position_embeddings;
    check(g, h);
    if (g->status) return;
    sk_graph_size(g, 'c', h->hidden_size);
    sk_graph_size(g, 'h', keys);
    sk_graph_size(g, 's', h->num_attention_heads / keys + 2);
    sk_graph_size(g, 'd', sk_hyper_head_dim(h));
    sk_graph_size(g, 'f', h->intermediate_size);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_graph_size(g, 'n', h->sliding_window ? least(places, h->sliding_window) : places);
    sk_graph_size(g, 'z', 2);
    if (g->size['d'] % 2)
        sk_graph_fail(g, SK_ECONF, "head_dim is %lld; rotary positions need an even head width",
                      (long long)g->size['d']);
}

sk_tensor *sk_rms_norm(sk_graph *g, sk_tensor *x, double eps, const char *name)
{
    sk_tensor *w = sk_param_f(g, "c", SK_ONES, "%s.w", name);
    return sk_apply(g, "rmsnorm", .in = {x, w}, .attr = {eps})->out[0];
}

/* The attributes of rope (parts/op/rope.c). */
static sk_tensor *rope(sk_graph *g, const sk_hyper *h, sk_tensor *qkv, sk_tensor *pos)
{
    bool llama3 = !strcmp(h->rope_type, "llama3"), linear = !strcmp(h->rope_type, "linear");
    if (!linear && !llama3)
        return sk_apply(g, "rope", .in = {qkv, pos}, .attr = {h->rope_theta, 1})->out[0];
    return sk_apply(g, "rope", .in = {qkv, pos},
                    .attr = {h->rope_theta, 1, h->rope_factor, llama3 ? h->rope_low_freq_factor : 0,
                             llama3 ? h->rope_high_freq_factor : 0,
                             llama3 ? (double)h->rope_original_positions : 0})
        ->out[0];
}

sk_tensor *sk_rotary_attend(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                            sk_mode mode)
{
    double std = h->initializer_range, out = sk_std_out(h);
    sk_tensor *a = sk_rms_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln1", i));
    sk_tensor *w = sk_param_f(g, "chsd", std, "h.%d.qkv.w", i);
    sk_tensor *qkv = sk_contract(g, "btc,chsd->bthsd", a, w);
    if (h->attention_bias) qkv = sk_biased(g, "hsd", qkv, sk_print(g->arena, "h.%d.qkv.b", i));
    sk_tensor *y = sk_attend(g, rope(g, h, qkv, pos), pos, i, mode);
    y = sk_contract(g, "bthrd,chrd->btc", y, sk_param_f(g, "chrd", out, "h.%d.proj.w", i));
    if (h->attention_out_bias) y = sk_biased(g, "c", y, sk_print(g->arena, "h.%d.proj.b", i));
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

/* One of the three products of an MLP: its letters are those of x, of the weight, of the result. */
static sk_tensor *product(sk_graph *g, const sk_hyper *h, sk_tensor *x, double std,
                          const char *name, const char *in, const char *to, const char *units)
{
    const char *dims = sk_print(g->arena, "%s,%s->%s", x->letters, in, to);
    sk_tensor *y = sk_contract(g, dims, x, sk_param_f(g, in, std, "%s.w", name));
    return h->mlp_bias ? sk_biased(g, units, y, sk_print(g->arena, "%s.b", name)) : y;
}

sk_tensor *sk_gated(sk_graph *g, const sk_hyper *h, sk_tensor *x, const char *name, const char *in,
                    const char *hidden, const char *out)
{
    double std = h->initializer_range;
    sk_arena *a = g->arena;
    sk_tensor *gate = product(g, h, x, std, sk_print(a, "%s.gate", name), in, hidden, "f");
    sk_tensor *up = product(g, h, x, std, sk_print(a, "%s.up", name), in, hidden, "f");
    sk_tensor *y = sk_gate(g, h->hidden_act, gate, up);
    return product(g, h, y, sk_std_out(h), sk_print(a, "%s.down", name), out, x->letters, "c");
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

/* The tensors of a layer, k-th: weights first, then the biases that there are. */
static int n_inner(const sk_hyper *h)
{
    return 6 + (h->attention_bias ? 3 : 0) + (h->attention_out_bias ? 1 : 0);
}

static void inner(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_hf_row rows[] = {{"input_layernorm.weight", "ln1.w", "c"},
                                     {"self_attn.q_proj.weight", "qkv.w", "hsd,c"},
                                     {"self_attn.k_proj.weight", "qkv.w", "hsd,c"},
                                     {"self_attn.v_proj.weight", "qkv.w", "hsd,c"},
                                     {"self_attn.o_proj.weight", "proj.w", "c,hrd"},
                                     {"post_attention_layernorm.weight", "ln2.w", "c"},
                                     {"self_attn.q_proj.bias", "qkv.b", "hsd"},
                                     {"self_attn.k_proj.bias", "qkv.b", "hsd"},
                                     {"self_attn.v_proj.bias", "qkv.b", "hsd"},
                                     {"self_attn.o_proj.bias", "proj.b", "c"}};
    if (k >= 6 && !h->attention_bias) k += 3;
    sk_hf_in_layer(a, "model.layers", layer, &rows[k], out);
    int part = k >= 6 ? k - 5 : k; /* 1, 2, 3: queries, keys, values */
    if (part < 1 || part > 3) return;
    int64_t r = h->num_attention_heads / sk_hyper_key_heads(h); /* slots of the packed tensor */
    out->slice = 's';
    out->from = part == 1 ? 0 : r + part - 2;
    out->to = part == 1 ? r : r + part - 1;
}

bool sk_rotary_hf(sk_arena *a, const sk_hyper *h, int i, int64_t n_own, sk_hf_own *own, sk_hf *out)
{
    static const sk_hf ends[] = {{"model.embed_tokens.weight", "wte", "v,c", 0, 0, 0},
                                 {"model.norm.weight", "ln_f.w", "c", 0, 0, 0},
                                 {"lm_head.weight", "head", "v,c", 0, 0, 0}};
    int n_ends = h->tie_word_embeddings ? 2 : 3, n_layer = n_inner(h) + (int)n_own;
    *out = (sk_hf){0};
    if (i < n_ends) *out = ends[i];
    if (i < n_ends) return true;
    int layer = (i - n_ends) / n_layer, k = (i - n_ends) % n_layer;
    if (layer >= h->num_hidden_layers) return false;
    if (k < n_inner(h)) inner(a, h, layer, k, out);
    else own(a, h, layer, k - n_inner(h), out);
    return true;
}

/* ---- dense decoders ---- */

static sk_tensor *dense_block(sk_graph *g, const sk_hyper *h, sk_tensor *x, sk_tensor *pos, int i,
                              sk_mode mode)
{
    x = sk_rotary_attend(g, h, x, pos, i, mode);
    sk_tensor *a = sk_rms_norm(g, x, h->norm_eps, sk_print(g->arena, "h.%d.ln2", i));
    sk_tensor *y = sk_gated(g, h, a, sk_print(g->arena, "h.%d", i), "fc", "btf", "cf");
    return sk_apply(g, "add", .in = {x, y})->out[0];
}

void sk_rotary_dense(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_rotary_sizes(g, h);
    if (!g->status) sk_rotary_build(g, h, mode, dense_block);
}

static void dense_own(sk_arena *a, const sk_hyper *h, int layer, int k, sk_hf *out)
{
    static const sk_hf_row rows[] = {
        {"mlp.gate_proj.weight", "gate.w", "f,c"}, {"mlp.up_proj.weight", "up.w", "f,c"},
        {"mlp.down_proj.weight", "down.w", "c,f"}, {"mlp.gate_proj.bias", "gate.b", "f"},
        {"mlp.up_proj.bias", "up.b", "f"},         {"mlp.down_proj.bias", "down.b", "c"}};
    (void)h;
    sk_hf_in_layer(a, "model.layers", layer, &rows[k], out);
}

bool sk_rotary_dense_hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    return sk_rotary_hf(a, h, i, h->mlp_bias ? 6 : 3, dense_own, out);
}

/* ---- config.json ---- */

const sk_hf_key sk_rotary_keys[] = {
    {"hidden_size", "hidden_size"},
    {"num_hidden_layers", "num_hidden_layers"},
    {"num_attention_heads", "num_attention_heads"},
    {"num_key_value_heads", "num_key_value_heads"},
    {"head_dim", "head_dim"},
    {"intermediate_size", "intermediate_size"},
    {"max_position_embeddings", "max_position_embeddings"},
    {"vocab_size", "vocab_size"},
    {"hidden_act", "hidden_act"},
    {"rms_norm_eps", "norm_eps"},
    {"rope_theta", "rope_theta"},
    {"rope_scaling.rope_type", "rope_type"},
    {"rope_scaling.factor", "rope_factor"},
    {"rope_scaling.low_freq_factor", "rope_low_freq_factor"},
    {"rope_scaling.high_freq_factor", "rope_high_freq_factor"},
    {"rope_scaling.original_max_position_embeddings", "rope_original_positions"},
    {"attention_dropout", "attn_pdrop"},
    {"initializer_range", "initializer_range"},
    {"tie_word_embeddings", "tie_word_embeddings"},
    {0},
};

const char *const sk_rotary_buffers[] = {"rotary_emb.inv_freq", NULL};
