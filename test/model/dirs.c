/* dirs.c - config.json is computed as it says, or refused by the name of the key.
 *
 *     model_dirs               makes every directory of the table, trains one step of each,
 * compares model_dirs make FOLDER   only makes the directories, and a list for
 * test/oracle/models.py
 *
 * A case is a family, changes of its config.json, and what must come of it: the loss of the first
 * batch as a float64 forward pass gives it (test/oracle/models.py made the numbers and compares
 * them again, by transformers itself where that is installed), or the name in the refusal.  The
 * tensors of a directory are written by what config.json says, not by what skein makes of it. */
#include "base/hash.h"
#include "base/rng.h"
#include "base/strings.h"
#include "lib/check.h"
#include "skein.h"
#include "tensor/safetensors.h"
#include "train/hf_config.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 4, SEQ = 16, MOST = 256 };

#define SIZES                                                                             \
    "\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"               \
    "\"num_key_value_heads\":2,\"intermediate_size\":40,\"vocab_size\":256,"              \
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false," \
    "\"hidden_act\":\"silu\",\"torch_dtype\":\"float32\",\"use_cache\":true"

static const struct family {
    const char *name, *config;
} families[] = {
    {"llama", "{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":10000.0}"},
    {"mistral", "{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":16}"},
    {"qwen2", "{\"model_type\":\"qwen2\"," SIZES ",\"use_sliding_window\":false}"},
    {"mixtral", "{\"model_type\":\"mixtral\"," SIZES ",\"num_local_experts\":4,"
                "\"num_experts_per_tok\":2,\"rope_theta\":1e6}"},
    {"gpt2", "{\"model_type\":\"gpt2\",\"n_embd\":24,\"n_layer\":2,\"n_head\":4,\"n_positions\":64,"
             "\"vocab_size\":256,\"attn_pdrop\":0.0,\"embd_pdrop\":0.0,\"resid_pdrop\":0.0}"},
    {NULL, NULL},
};

/* changes: an object that is laid over config.json; a value of "-" takes a key out.  extra: a
 * tensor that is put into the file beside those that config.json asks for. */
static const struct one {
    const char *family, *changes, *extra;
    double loss;         /* of a float64 forward pass; 0: refused */
    const char *refused; /* in the sentence */
} cases[] = {
#include "dirs.table"
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- one directory ---- */

typedef struct file {
    sk_arena a;
    sk_st_tensor t[MOST];
    int n;
} file;

static void tensor(file *f, const char *name, int64_t rows, int64_t cols)
{
    sk_st_tensor *t = &f->t[f->n++];
    *t = (sk_st_tensor){.name = sk_strdup(&f->a, name), .type = SK_F32, .n = cols ? 2 : 1};
    t->size[0] = rows, t->size[1] = cols;
}

static int64_t number(const json_t *c, const char *key, int64_t other)
{
    const json_t *x = json_object_get(c, key);
    double n = json_is_number(x) ? json_number_value(x) : 0;
    return n >= 1 && n <= 512 ? (int64_t)n : other; /* no files of absurd sizes */
}

static bool yes(const json_t *c, const char *key, bool other)
{
    const json_t *x = json_object_get(c, key);
    return json_is_boolean(x) ? json_is_true(x) : other;
}

static void linear(file *f, const char *name, int64_t out, int64_t in, bool bias)
{
    tensor(f, sk_print(&f->a, "%s.weight", name), out, in);
    if (bias) tensor(f, sk_print(&f->a, "%s.bias", name), out, 0);
}

static void rotary_mlp(file *f, const json_t *c, const char *layer, int64_t w)
{
    static const char *const dense[] = {"gate_proj", "up_proj", "down_proj"};
    static const char *const sparse[] = {"w1", "w3", "w2"};
    int64_t hidden = number(c, "intermediate_size", 40),
            experts = number(c, "num_local_experts", 0);
    bool bias = yes(c, "mlp_bias", false);
    for (int k = 0; k < 3 && !experts; k++)
        linear(f, sk_print(&f->a, "%s.mlp.%s", layer, dense[k]), k < 2 ? hidden : w,
               k < 2 ? w : hidden, bias);
    for (int64_t e = 0; e < experts; e++)
        for (int k = 0; k < 3; k++)
            linear(f,
                   sk_print(&f->a, "%s.block_sparse_moe.experts.%d.%s", layer, (int)e, sparse[k]),
                   k < 2 ? hidden : w, k < 2 ? w : hidden, false);
    if (experts) linear(f, sk_print(&f->a, "%s.block_sparse_moe.gate", layer), experts, w, false);
}

static void rotary(file *f, const json_t *c)
{
    int64_t w = number(c, "hidden_size", 24), heads = number(c, "num_attention_heads", 4);
    int64_t keys = number(c, "num_key_value_heads", heads), d = number(c, "head_dim", w / heads);
    bool qwen = !strcmp(json_string_value(json_object_get(c, "model_type")), "qwen2");
    bool out = yes(c, "attention_bias", false), bias = qwen || out;
    tensor(f, "model.embed_tokens.weight", 256, w);
    for (int i = 0; i < number(c, "num_hidden_layers", 2); i++) {
        const char *l = sk_print(&f->a, "model.layers.%d", i);
        tensor(f, sk_print(&f->a, "%s.input_layernorm.weight", l), w, 0);
        linear(f, sk_print(&f->a, "%s.self_attn.q_proj", l), heads * d, w, bias);
        linear(f, sk_print(&f->a, "%s.self_attn.k_proj", l), keys * d, w, bias);
        linear(f, sk_print(&f->a, "%s.self_attn.v_proj", l), keys * d, w, bias);
        linear(f, sk_print(&f->a, "%s.self_attn.o_proj", l), w, heads * d, out);
        tensor(f, sk_print(&f->a, "%s.post_attention_layernorm.weight", l), w, 0);
        rotary_mlp(f, c, l, w);
    }
    tensor(f, "model.norm.weight", w, 0);
    if (!yes(c, "tie_word_embeddings", false)) tensor(f, "lm_head.weight", 256, w);
}

static void norm(file *f, const char *name, int64_t w)
{
    tensor(f, sk_print(&f->a, "%s.weight", name), w, 0);
    tensor(f, sk_print(&f->a, "%s.bias", name), w, 0);
}

/* [in, out], unlike linear(). */
static void conv(file *f, const char *name, int64_t in, int64_t out)
{
    tensor(f, sk_print(&f->a, "%s.weight", name), in, out);
    tensor(f, sk_print(&f->a, "%s.bias", name), out, 0);
}

static void gpt2(file *f, const json_t *c)
{
    int64_t w = number(c, "n_embd", 24), hidden = number(c, "n_inner", 4 * w);
    tensor(f, "transformer.wte.weight", 256, w);
    tensor(f, "transformer.wpe.weight", number(c, "n_positions", 64), w);
    for (int i = 0; i < number(c, "n_layer", 2); i++) {
        const char *l = sk_print(&f->a, "transformer.h.%d", i);
        norm(f, sk_print(&f->a, "%s.ln_1", l), w);
        conv(f, sk_print(&f->a, "%s.attn.c_attn", l), w, 3 * w);
        conv(f, sk_print(&f->a, "%s.attn.c_proj", l), w, w);
        norm(f, sk_print(&f->a, "%s.ln_2", l), w);
        conv(f, sk_print(&f->a, "%s.mlp.c_fc", l), w, hidden);
        conv(f, sk_print(&f->a, "%s.mlp.c_proj", l), hidden, w);
    }
    norm(f, "transformer.ln_f", w);
    if (!yes(c, "tie_word_embeddings", true)) tensor(f, "lm_head.weight", 256, w);
}

/* Large enough for every function and bias to show in the loss. */
static sk_status write_tensors(file *f, int dir)
{
    sk_st_writer w;
    SK_TRY(sk_st_create(&f->a, dir, "model.safetensors", 0666, f->t, f->n, NULL, 0, &w));
    for (int i = 0; i < f->n; i++) {
        const sk_st_tensor *t = &f->t[i];
        int64_t n = t->size[0] * (t->n == 2 ? t->size[1] : 1);
        bool gain = t->n == 1 && strstr(t->name, "weight");
        float *x = sk_many(&f->a, float, n);
        for (int64_t k = 0; k < n; k++) {
            double u = sk_rng_uniform(7, sk_hash_text(t->name), (uint64_t)k);
            x[k] = (float)(gain ? 1 + 0.4 * (u - 0.5) : u - 0.5);
        }
        SK_TRY(sk_st_write(&w, x, (size_t)n * sizeof *x));
    }
    return sk_st_finish(&w);
}

static json_t *config(const struct one *c)
{
    const struct family *y = families;
    while (strcmp(y->name, c->family)) y++;
    json_t *root = json_loads(y->config, 0, NULL), *over = json_loads(c->changes, 0, NULL), *v;
    const char *key;
    if (!root || !over) return NULL;
    json_object_foreach(over, key, v)
    {
        bool out = json_is_string(v) && !strcmp(json_string_value(v), "-");
        if (out) json_object_del(root, key);
        else json_object_set(root, key, v);
    }
    json_decref(over);
    return root;
}

static sk_status make(const struct one *c, const char *path)
{
    file f = {.n = 0};
    json_t *root = config(c);
    if (!root) return sk_fail(SK_EBUG, "%s: no JSON", c->changes);
    if (mkdir(path, 0777)) return sk_fail(SK_EIO, "%s is there", path);
    if (!strcmp(c->family, "gpt2")) gpt2(&f, root);
    else rotary(&f, root);
    if (c->extra) tensor(&f, c->extra, 256, 24);
    bool good = !json_dump_file(root, sk_print(&f.a, "%s/config.json", path), JSON_INDENT(1));
    json_decref(root);
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    sk_status status = good && dir >= 0 ? write_tensors(&f, dir) : SK_EIO;
    if (dir >= 0) close(dir);
    sk_arena_end(&f.a);
    return status;
}

/* ---- all of them ---- */

static sk_status write_text(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return sk_fail(SK_EIO, "%s", path);
    for (int i = 0; i <= BATCH * SEQ; i++) fputc((int)(sk_rng_uniform(3, 1, (uint64_t)i) * 256), f);
    return fclose(f) ? sk_fail(SK_EIO, "%s", path) : SK_OK;
}

static const char *path_of(sk_arena *a, const char *root, int i)
{
    return sk_print(a, "%s/%02d-%s", root, i, cases[i].family);
}

static sk_status make_all(sk_arena *a, const char *root)
{
    FILE *list = fopen(sk_print(a, "%s/list", root), "w");
    if (!list) return sk_fail(SK_EIO, "%s", root);
    for (int i = 0; i < N_CASES; i++) {
        SK_TRY(make(&cases[i], path_of(a, root, i)));
        fprintf(list, "%s\t%.10f\t%s\t%s\n", path_of(a, root, i), cases[i].loss,
                cases[i].refused ? cases[i].refused : "", cases[i].changes);
    }
    fclose(list);
    return write_text(sk_print(a, "%s/text", root));
}

static double first_loss(sk_arena *a, const char *run)
{
    FILE *f = fopen(sk_print(a, "%s/metrics.jsonl", run), "r");
    char line[4096];
    double loss = NAN;
    if (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "\"loss\":");
        if (at) loss = strtod(at + 7, NULL);
    }
    if (f) fclose(f);
    return loss;
}

/* What is written is read back as the same model. */
static bool comes_back(sk_arena *a, const char *dir)
{
    const sk_model *m, *back;
    sk_hyper h, again;
    if (sk_hf_config(dir, &m, &h)) return false;
    const char *text = sk_hf_config_print(a, m, &h, SK_F32);
    FILE *f = fopen(sk_print(a, "%s/config.json", dir), "w");
    if (!f) return false;
    fputs(text, f);
    if (fclose(f) || sk_hf_config(dir, &back, &again) || back != m) return false;
    const sk_field *k;
    for (int i = 0; (k = sk_model_field(m, i)); i++)
        if (strcmp(sk_field_print(k, &h).s, sk_field_print(k, &again).s)) {
            printf("  %s: %s comes back as %s\n%s", k->name, sk_field_print(k, &h).s,
                   sk_field_print(k, &again).s, text);
            return false;
        }
    return true;
}

static void one(sk_arena *a, const char *root, int i)
{
    const struct one *c = &cases[i];
    const char *run = sk_print(a, "%s/run-%02d", root, i);
    const char *words[] = {"train",
                           sk_print(a, "model=%s", path_of(a, root, i)),
                           sk_print(a, "data.train=%s/text", root),
                           "data.tokenizer=byte",
                           "data.order=sequential",
                           "data.val_fraction=0",
                           "train.steps=1",
                           sk_print(a, "train.batch=%d", BATCH),
                           sk_print(a, "train.seq=%d", SEQ),
                           "--launch=thread",
                           "sample.every=0",
                           sk_print(a, "run=%s", run)};
    int rc = sk_command(sizeof words / sizeof *words, words);
    double loss = rc ? NAN : first_loss(a, run);
    checks++;
    bool good = c->refused
                    ? (rc == SK_ECONF || rc == SK_EDATA) && strstr(sk_error_line(), c->refused)
                    : !rc && fabs(loss - c->loss) <= 1e-5 * c->loss;
    if (good && !c->refused) good = comes_back(a, path_of(a, root, i));
    bad += !good;
    printf("%-8s %-70.70s %s\n", c->family, c->changes,
           rc ? sk_error_line() : sk_print(a, "%.8f, wanted %.8f", loss, c->loss));
    if (!good) printf("  WRONG: %s\n", c->refused ? c->refused : "the loss of float64");
}

int main(int argc, char **argv)
{
    static char temp[] = "/tmp/skein-models-XXXXXX";
    sk_arena a = {0};
    bool only = argc == 3 && !strcmp(argv[1], "make");
    const char *root = only ? argv[2] : mkdtemp(temp);
    if (!root || make_all(&a, root)) {
        printf("%s\n", sk_error());
        return 1;
    }
    if (only) return 0;
    for (int i = 0; i < N_CASES; i++) one(&a, root, i);
    sk_assert(!system(sk_print(&a, "rm -rf %s", root)));
    printf("model_dirs: %d directories, %d bad\n", checks, bad);
    sk_arena_end(&a);
    return bad != 0;
}
