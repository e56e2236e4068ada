/* mlp.c - a classifier of plain layers, for images such as Fashion-MNIST.
 *
 * Letters: b batch, x pixels, f g i j ... one per hidden layer, v classes. */
#include "model/blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char hidden[] = "fgijklmo";

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    int n = (int)h->num_hidden_layers;
    char from = 'x', dims[16], letters[3] = "";
    (void)mode;
    if (n < 1 || n > (int)strlen(hidden)) {
        sk_graph_fail(g, SK_ECONF, "num_hidden_layers is %d; 1 to %zu are needed", n,
                      strlen(hidden));
        return;
    }
    sk_graph_size(g, 'x', h->input_size);
    sk_graph_size(g, 'v', h->vocab_size);
    sk_tensor *y = sk_input(g, "pixels", "bx", SK_F32);
    for (int i = 0; i <= n; i++) {
        char to = i < n ? hidden[i] : 'v';
        g->layer = i + 1;
        if (i < n) sk_graph_size(g, to, h->hidden_size);
        snprintf(letters, sizeof letters, "%c%c", from, to);
        snprintf(dims, sizeof dims, "b%c,%s->b%c", from, letters, to);
        double std = sqrt(2.0 / (double)g->size[(int)from]);
        sk_tensor *w = sk_param_f(g, letters, std, "layers.%d.w", i);
        sk_tensor *b = sk_param_f(g, letters + 1, SK_ZEROS, "layers.%d.b", i);
        y = sk_contract(g, dims, y, w);
        snprintf(dims, sizeof dims, "b%c,%c->b%c", to, to, to);
        if (i < n) y = sk_apply(g, "bias_gelu", .in = {y, b})->out[0];
        else y = sk_apply(g, "bias", .dims = sk_strdup(g->arena, dims), .in = {y, b})->out[0];
        from = to;
    }
    sk_classify(g, y, sk_input(g, "targets", "b", SK_I32), sk_input(g, "weights", "b", SK_F32));
}

static bool hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    int layer = i / 2;
    if (layer > h->num_hidden_layers) return false;
    char from = layer ? hidden[layer - 1] : 'x',
         to = layer < h->num_hidden_layers ? hidden[layer] : 'v';
    *out = (sk_hf){.file_name = sk_print(a, "layers.%d.%s", layer, i % 2 ? "bias" : "weight"),
                   .name = sk_print(a, "layers.%d.%s", layer, i % 2 ? "b" : "w"),
                   .dims = i % 2 ? sk_print(a, "%c", to) : sk_print(a, "%c,%c", to, from)};
    return true;
}

static const sk_hf_key own_keys[] = {{"input_size", "input_size"},
                                     {"hidden_size", "hidden_size"},
                                     {"num_hidden_layers", "num_hidden_layers"},
                                     {"vocab_size", "vocab_size"},
                                     {0}};
static const sk_hf_key *const keys[] = {own_keys, NULL};

static const sk_preset presets[] = {
    {"mlp",
     {.arch = "mlp",
      .input_size = 784,
      .hidden_size = 500,
      .num_hidden_layers = 1,
      .vocab_size = 10}},
    {0},
};

/* No class of transformers assumes others. */
#define DEFAULTS \
    .arch = "mlp", .input_size = 784, .hidden_size = 500, .num_hidden_layers = 1, .vocab_size = 10

const sk_model sk_model_mlp = {
    .name = "mlp",
    .doc = "a classifier of plain layers with GELU",
    .presets = presets,
    .usual = {DEFAULTS},
    .build = build,
    .hf = hf,
    .hf_class = "SkeinMLP",
    .hf_default = {DEFAULTS},
    .hf_keys = keys,
};
