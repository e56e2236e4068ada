/* Hugging Face directories: packed, transposed, sliced tensors against a brute-force reading of
 * the same lines; cuts, types, shards, wrong shapes, lies in the index; saving and reading back. */
#include "base/hash.h"
#include "base/strings.h"
#include "tensor/safetensors.h"
#include "train/checkpoint.h"
#include "train/hf.h"
#include "train/hf_config.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int checks, bad;
static char root[] = "/tmp/skein-hf-XXXXXX";
static sk_arena names;

#define CHECK(cond)                                                                     \
    do {                                                                                \
        checks++;                                                                       \
        if (!(cond)) bad++, printf("line %d: %s\n  %s\n", __LINE__, #cond, sk_error()); \
    } while (0)

/* ---- a fake model ---- */

static const sk_hf entries[] = {
    {"transformer.wte.weight", "wte", "v,c", 0, 0, 0},
    {"transformer.attn.c_attn.weight", "qkv", "c,shd", 0, 0, 0}, /* packed and permuted */
    {"transformer.attn.c_attn.bias", "qkv.b", "shd", 0, 0, 0},
    {"transformer.mlp.weight", "up", "f,c", 0, 0, 0},  /* transposed */
    {"transformer.k.weight", "kv", "gd,c", 's', 0, 1}, /* one of s: the letter is left out */
    {"transformer.v.weight", "kv", "gd,c", 's', 1, 2},
    {"transformer.rows.0", "rows", "f,c", 'f', 0, 4}, /* cut along a letter that stays */
    {"transformer.rows.1", "rows", "f,c", 'f', 4, 7},
    {"transformer.ln.weight", "ln", "c", 0, 0, 0},
    {"transformer.alpha", "alpha", "", 0, 0, 0},
};
enum { N_ENTRIES = 10, N_SHAPES = 8 };

static sk_hf_shape shapes[N_SHAPES] = {
    {"wte", "vc", {0}},  {"qkv", "chsd", {0}}, {"qkv.b", "hsd", {0}}, {"up", "cf", {0}},
    {"kv", "csgd", {0}}, {"rows", "fc", {0}},  {"ln", "c", {0}},      {"alpha", "", {0}}};

static int64_t size_of(char letter)
{
    static const char letters[] = "vchsdfg";
    static const int64_t size[] = {11, 6, 4, 3, 5, 7, 2};
    return size[strchr(letters, letter) - letters];
}

static int64_t full_of(const sk_hf_shape *s, char letter)
{
    return letter == 's' && !strcmp(s->name, "kv") ? 2 : size_of(letter);
}

static bool fake_hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    (void)a;
    if (i >= N_ENTRIES - (h->tie_word_embeddings ? 0 : 1)) return false;
    *out = entries[i];
    return true;
}

static const sk_hf_key fake_keys[] = {{"n_embd", "hidden_size"},
                                      {"rope_theta", "rope_theta"},
                                      {"rope_scaling.rope_type", "rope_type"},
                                      {"rope_scaling.factor", "rope_factor"},
                                      {"tie", "tie_word_embeddings"},
                                      {0}};
static const sk_hf_key *const fake_tables[] = {fake_keys, NULL};

static const char *const fake_buffers[] = {"a.buffer", NULL};
static const sk_model fake = {
    .name = "fake",
    .hf = fake_hf,
    .hf_class = "Fake",
    .hf_default = {.norm_eps = 1e-6, .rope_theta = 1e4, .num_hidden_layers = 1, .vocab_size = 11},
    .hf_keys = fake_tables,
    .hf_buffers = fake_buffers};
const sk_model *const sk_model_parts[] = {&fake, NULL};
static const sk_hyper hyper = {.hidden_size = 6,
                               .max_position_embeddings = 32,
                               .rope_theta = 5e5,
                               .tie_word_embeddings = true};

static const sk_hf_shape *shape(const char *name)
{
    for (int i = 0; i < N_SHAPES; i++)
        if (!strcmp(shapes[i].name, name)) return &shapes[i];
    return NULL;
}

/* Quarters below 64: exact in every floating type. */
static float value(const char *name, int64_t index)
{
    return (float)((int64_t)((sk_hash_text(name) + (uint64_t)index * 37) % 512) - 256) / 4;
}

/* The file tensor, element by element: decode the position into letters, find it in ours. */
static int64_t brute(const sk_hf *e, float *to, int64_t *dims, int *n_dims)
{
    const sk_hf_shape *s = shape(e->name);
    char order[8] = "";
    int n = 0;
    int64_t count = 1;
    *n_dims = *e->dims != 0;
    dims[0] = 1;
    for (const char *c = e->dims; *c; c++) {
        if (*c == ',') {
            dims[(*n_dims)++] = 1;
            continue;
        }
        int64_t size = *c == e->slice ? e->to - e->from : full_of(s, *c);
        order[n++] = *c;
        dims[*n_dims - 1] *= size;
        count *= size;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at[128] = {0}, rest = i, index = 0;
        if (e->slice) at[(int)e->slice] = e->from;
        for (int k = n - 1; k >= 0; k--) {
            int64_t size = order[k] == e->slice ? e->to - e->from : full_of(s, order[k]);
            at[(int)order[k]] += rest % size;
            rest /= size;
        }
        for (const char *c = s->letters; *c; c++) index = index * full_of(s, *c) + at[(int)*c];
        to[i] = value(e->name, index);
    }
    return count;
}

static const char *below(const char *dir, const char *name)
{
    return sk_print(&names, "%s/%s", dir, name);
}

/* Write entries [from, to) to a file, names without their first `strip` bytes, one shape spoilt. */
static void write_file(const char *dir, const char *name, int from, int to, int strip,
                       sk_dtype type, int spoil)
{
    sk_arena a = {0};
    sk_st_tensor t[N_ENTRIES + 1] = {0};
    float x[1024];
    char y[8192];
    sk_st_writer w;
    int n = to - from, fd = open(dir, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < n; i++) {
        t[i].name = entries[from + i].file_name + strip;
        t[i].type = type;
        brute(&entries[from + i], x, t[i].size, &t[i].n);
        if (from + i == spoil) t[i].size[0] += 1;
    }
    t[n] = (sk_st_tensor){.name = "a.buffer", .type = SK_U8, .n = 1, .size = {3}};
    unlinkat(fd, name, 0);
    if (sk_st_create(&a, fd, name, 0600, t, n + 1, NULL, 0, &w)) bad++;
    for (int i = 0; i < n; i++) {
        int64_t dims[8], count;
        int k;
        memset(x, 0, sizeof x);
        count = brute(&entries[from + i], x, dims, &k);
        if (from + i == spoil) count = t[i].size[0] * (t[i].n > 1 ? t[i].size[1] : 1);
        sk_convert(y, type, x, SK_F32, count);
        if (sk_st_write(&w, y, (size_t)(t[i].end - t[i].begin))) bad++;
    }
    if (sk_st_write(&w, "abc", 3) || sk_st_finish(&w)) bad++;
    close(fd);
    sk_arena_end(&a);
}

/* ---- loading ---- */

/* Boxes of rank r of n: the k-th dim of each tensor is cut. */
static void cut(sk_arena *a, int r, int n, int k, sk_dtype type, sk_tensor_shard *out)
{
    for (int i = 0; i < N_SHAPES; i++) {
        const sk_hf_shape *s = &shapes[i];
        sk_tensor_shard *b = &out[i];
        *b = (sk_tensor_shard){.name = s->name, .type = type, .n = (int)strlen(s->letters)};
        int64_t count = 1;
        for (int d = 0; d < b->n; d++) {
            b->full[d] = b->size[d] = s->full[d];
            if (d == k % b->n) {
                b->at[d] = s->full[d] * r / n;
                b->size[d] = s->full[d] * (r + 1) / n - b->at[d];
            }
            count *= b->size[d];
        }
        b->data = memset(sk_alloc(a, (size_t)count * 8 + 8), 0xee, (size_t)count * 8 + 8);
    }
}

static int wrong_in(const sk_tensor_shard *b)
{
    int64_t count = 1;
    int wrong = 0;
    for (int d = 0; d < b->n; d++) count *= b->size[d];
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, index = 0, i[SK_SHARD_DIM];
        for (int d = b->n - 1; d >= 0; d--) i[d] = rest % b->size[d], rest /= b->size[d];
        for (int d = 0; d < b->n; d++) index = index * b->full[d] + b->at[d] + i[d];
        float x = 0;
        sk_convert(&x, SK_F32, (char *)b->data + (size_t)k * sk_dtype_size(b->type), b->type, 1);
        wrong += x != value(b->name, index);
    }
    unsigned char *end = (unsigned char *)b->data + (size_t)count * sk_dtype_size(b->type);
    return wrong + (*end != 0xee);
}

static int load(const char *dir, int n, int k, sk_dtype type)
{
    int wrong = 0;
    for (int r = 0; r < n && wrong >= 0; r++) {
        sk_arena a = {0};
        sk_tensor_shard b[N_SHAPES];
        cut(&a, r, n, k, type, b);
        if (sk_hf_load(dir, &fake, &hyper, shapes, N_SHAPES, b, N_SHAPES)) wrong = -1;
        for (int i = 0; i < N_SHAPES && wrong >= 0; i++) wrong += wrong_in(&b[i]);
        sk_arena_end(&a);
    }
    return wrong;
}

static sk_status load_all(const char *dir)
{
    return load(dir, 1, 0, SK_F32) == 0 ? SK_OK : SK_EDATA;
}

static void loading(void)
{
    const char *dir = below(root, "one");
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16, SK_F64};
    CHECK(!mkdir(dir, 0700) && load(dir, 1, 0, SK_F32) == -1 && strstr(sk_error(), "neither"));
    for (int t = 0; t < 4; t++) {
        write_file(dir, "model.safetensors", 0, N_ENTRIES, 0, types[t], -1);
        for (int n = 1; n <= 9; n += 2)
            for (int k = 0; k < 4; k++) CHECK(load(dir, n, k, types[(t + k) % 4]) == 0);
    }
    write_file(dir, "model.safetensors", 0, N_ENTRIES, 12, SK_F32, -1); /* no "transformer." */
    CHECK(load(dir, 2, 0, SK_F32) == 0);
    write_file(dir, "model.safetensors", 0, N_ENTRIES, 0, SK_F32, 1);
    CHECK(load(dir, 1, 0, SK_F32) == -1);
    CHECK(strstr(sk_error(), "'transformer.attn.c_attn.weight' has shape [7, 60], needed [6, 60]"));
    write_file(dir, "model.safetensors", 0, N_ENTRIES - 3, 0, SK_F32, -1);
    CHECK(load(dir, 1, 0, SK_F32) == -1 && strstr(sk_error(), "no tensor 'transformer.rows.1'"));
    write_file(dir, "model.safetensors", 0, N_ENTRIES, 0, SK_I32, -1);
    CHECK(load(dir, 1, 0, SK_F32) == -1 && strstr(sk_error(), "is I32, needed F32"));
    /* a rank that owns nothing of a tensor does not need it */
    write_file(dir, "model.safetensors", 0, 1, 0, SK_F32, -1);
    sk_arena a = {0};
    sk_tensor_shard b[N_SHAPES];
    cut(&a, 0, 1, 0, SK_F32, b);
    CHECK(sk_hf_load(dir, &fake, &hyper, shapes, N_SHAPES, b, 1) == SK_OK && wrong_in(&b[0]) == 0);
    b[1].size[0] = 0;
    CHECK(sk_hf_load(dir, &fake, &hyper, shapes, N_SHAPES, b, 2) == SK_OK);
    b[0].name = "stranger";
    CHECK(sk_hf_load(dir, &fake, &hyper, shapes, N_SHAPES, b, 1) == SK_EDATA);
    b[0].name = "wte", b[0].full[0] = 12;
    CHECK(sk_hf_load(dir, &fake, &hyper, shapes, N_SHAPES, b, 1) == SK_EBUG);
    sk_arena_end(&a);
}

static void text(const char *dir, const char *name, const char *s);

/* As a Hugging Face cache has it: snapshots/x/NAME -> ../../blobs/HASH, opened through a link. */
static void links(void)
{
    const char *dir = below(root, "hub"), *blobs = below(dir, "blobs");
    const char *snap = below(dir, "snapshots/x"), *file = below(snap, "model.safetensors");
    CHECK(!mkdir(dir, 0700) && !mkdir(blobs, 0700));
    CHECK(!mkdir(below(dir, "snapshots"), 0700) && !mkdir(snap, 0700));
    write_file(blobs, "91ef", 0, N_ENTRIES, 0, SK_F32, -1);
    text(blobs, "77aa", "{\"model_type\": \"fake\", \"n_embd\": 6}");
    CHECK(!symlink("../../blobs/91ef", file));
    CHECK(!symlink("../../blobs/77aa", below(snap, "config.json")));
    CHECK(load(snap, 2, 0, SK_F32) == 0);
    const char *linked = below(root, "linked");
    const sk_model *m = NULL;
    sk_hyper h = {0};
    CHECK(!symlink("hub/snapshots/x", linked) && load(linked, 1, 0, SK_F32) == 0);
    CHECK(sk_hf_config(linked, &m, &h) == SK_OK && m == &fake && h.hidden_size == 6);
    CHECK(!unlink(below(blobs, "91ef")) && load(snap, 1, 0, SK_F32) == -1);
    CHECK(strstr(sk_error(), "a symbolic link to ../../blobs/91ef, and nothing is there"));
    CHECK(!mkfifo(below(blobs, "91ef"), 0600) && load(snap, 1, 0, SK_F32) == -1);
    CHECK(strstr(sk_error(), "not a plain file"));
    CHECK(!unlink(file) && !symlink("model.safetensors", file) && load(snap, 1, 0, SK_F32) == -1);
    CHECK(strstr(sk_error(), "leads back to itself"));
}

static void text(const char *dir, const char *name, const char *s)
{
    unlink(below(dir, name));
    if (sk_file_write_new(below(dir, name), s, strlen(s))) bad++;
}

static const char *index_text(const char *second)
{
    sk_out o = {.arena = &names};
    sk_out_add(&o, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (int i = 0; i < N_ENTRIES; i++)
        sk_out_add(&o, "%s\"%s\":\"%s\"", i ? "," : "", entries[i].file_name,
                   i % 10 < 5 ? "model-00001-of-00002.safetensors" : second);
    sk_out_add(&o, "}}");
    return o.s;
}

static void shards(void)
{
    const char *dir = below(root, "shards"), *index = "model.safetensors.index.json";
    CHECK(!mkdir(dir, 0700));
    write_file(dir, "model-00001-of-00002.safetensors", 0, 5, 0, SK_BF16, -1);
    write_file(dir, "model-00002-of-00002.safetensors", 5, N_ENTRIES, 0, SK_F32, -1);
    text(dir, index, index_text("model-00002-of-00002.safetensors"));
    for (int n = 1; n < 4; n++) CHECK(load(dir, n, n, SK_F32) == 0);
    CHECK(sk_hf_check(dir, &fake, &hyper, shapes, N_SHAPES, sk_all_chunks) == SK_OK);
    unlink(below(dir, "model-00002-of-00002.safetensors")); /* one tensor lies in both */
    write_file(dir, "model-00002-of-00002.safetensors", 4, N_ENTRIES, 0, SK_F32, -1);
    CHECK(sk_hf_check(dir, &fake, &hyper, shapes, N_SHAPES, sk_all_chunks) == SK_EDATA &&
          strstr(sk_error(), "lies in model-00001-of-00002.safetensors too"));
    unlink(below(dir, "model-00002-of-00002.safetensors")); /* and one in none */
    write_file(dir, "model-00002-of-00002.safetensors", 6, N_ENTRIES, 0, SK_F32, -1);
    CHECK(sk_hf_check(dir, &fake, &hyper, shapes, N_SHAPES, sk_all_chunks) == SK_EDATA &&
          strstr(sk_error(), "which has no such tensor"));
    unlink(below(dir, "model-00002-of-00002.safetensors"));
    write_file(dir, "model-00002-of-00002.safetensors", 5, N_ENTRIES, 0, SK_F32, -1);
    static const char *const lies[] = {"../one/model.safetensors",
                                       "..",
                                       ".",
                                       "",
                                       "/etc/passwd",
                                       "model-00001-of-00002.safetensors",
                                       "gone",
                                       "a\\u0000b",
                                       "model-00002-of-00002.safetensors\\n"};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        text(dir, index, index_text(lies[i]));
        CHECK(load_all(dir) == SK_EDATA);
    }
    static const char *const not_an_index[] = {"",
                                               "[]",
                                               "{}",
                                               "{\"weight_map\":[]}",
                                               "{\"weight_map\":1}",
                                               "{\"weight_map\":{}}",
                                               "{\"weight_map\":{},\"weight_map\":{}}"};
    for (size_t i = 0; i < sizeof not_an_index / sizeof *not_an_index; i++) {
        text(dir, index, not_an_index[i]);
        CHECK(load_all(dir) == SK_EDATA);
    }
}

/* Models whose list is wrong are bugs, told and not crashed on. */
static sk_hf odd[2];
static int n_odd;
static bool odd_hf(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    (void)a, (void)h;
    if (i < n_odd) *out = odd[i];
    return i < n_odd;
}

static void bad_models(void)
{
    static const sk_hf list[][2] = {
        {{"x", "nothing", "v,c", 0, 0, 0}, {0}},
        {{"x", "wte", "v", 0, 0, 0}, {0}},
        {{"x", "wte", "v,c,c", 0, 0, 0}, {0}},
        {{"x", "wte", "v,z", 0, 0, 0}, {0}},
        {{"x", "wte", "v,c", 'v', 0, 5}, {0}},
        {{"x", "wte", "v,c", 'v', 0, 99}, {0}},
        {{"x", "wte", "v,c", 'v', -1, 3}, {0}},
        {{"x", "wte", "v,c", 'v', 3, 3}, {0}},
        {{"x", "wte", "v,c", 0, 0, 0}, {"y", "wte", "v,c", 0, 0, 0}},
        {{"x", "wte", "v,c", 'v', 0, 6}, {"y", "wte", "v,c", 'v', 5, 11}},
        {{"x", "wte", "v,c", 'v', 0, 6}, {"y", "wte", "v,c", 'c', 0, 3}},
        {{"x", "wte", "v,c,,,,,,,", 0, 0, 0}, {0}},
    };
    sk_model m = fake;
    m.hf = odd_hf;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        memcpy(odd, list[i], sizeof odd);
        n_odd = 1 + (odd[1].name != NULL);
        CHECK(sk_hf_load(root, &m, &hyper, shapes, N_SHAPES, NULL, 0) == SK_EBUG);
    }
    m.hf = NULL;
    CHECK(sk_hf_load(root, &m, &hyper, shapes, N_SHAPES, NULL, 0) == SK_ECONF);
}

/* ---- saving ---- */

static sk_status from_air(void *ctx, sk_tensor_shard *whole)
{
    int *calls = ctx;
    int64_t count = 1;
    if (!whole->data) return SK_OK; /* nothing to lend */
    for (int d = 0; d < whole->n; d++) count *= whole->size[d];
    for (int64_t i = 0; i < count; i++) ((float *)whole->data)[i] = value(whole->name, i);
    if (++*calls > 100) return sk_fail(SK_EIO, "enough");
    return SK_OK;
}

static int count(const char *dir, const char *start)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += !strncmp(e->d_name, start, strlen(start));
    if (d) closedir(d);
    return n;
}

/* Every tensor of the file against brute force. */
static void check_saved(const char *path, sk_dtype type)
{
    sk_arena a = {0};
    sk_st st;
    CHECK(sk_st_open(&a, path, &st) == SK_OK && st.n == N_ENTRIES && st.n_meta == 1);
    CHECK(!strcmp(st.meta[0].key, "format") && !strcmp(st.meta[0].value, "pt"));
    for (int i = 0; i < N_ENTRIES; i++) {
        const sk_st_tensor *t = sk_st_find(&st, entries[i].file_name);
        float want[1024], got[1024];
        char raw[8192];
        int64_t dims[8];
        int n = 0;
        int64_t k = brute(&entries[i], want, dims, &n);
        CHECK(t && t->type == type && t->n == n && !memcmp(t->size, dims, 8 * (size_t)n));
        CHECK(sk_st_read(&st, t, 0, t->end - t->begin, raw) == SK_OK);
        sk_convert(got, SK_F32, raw, type, k);
        CHECK(!memcmp(want, got, sizeof *got * (size_t)k));
    }
    sk_st_close(&st);
    sk_arena_end(&a);
}

static const sk_companions none, words = {.tokenizer_json = "{}"};

/* A number that 16 bits cannot hold. */
static sk_status too_large(void *ctx, sk_tensor_shard *whole)
{
    sk_status st = from_air(ctx, whole);
    if (whole->data) *(float *)whole->data = 1e6F;
    return st;
}

static sk_status save_with(const char *dir, const sk_companions *c)
{
    int calls = 0;
    return sk_hf_save(dir, &fake, &hyper, shapes, N_SHAPES, SK_F32, from_air, &calls, c);
}

static void saving(void)
{
    sk_arena a = {0};
    sk_text config = {0};
    const char *dir = below(root, "models/final");
    static const sk_dtype types[] = {SK_F32, SK_BF16, SK_F16};
    sk_hyper h = {0};
    const sk_model *m = NULL;
    int calls = 0;
    for (int i = 0; i < 3; i++) { /* the second and third replace */
        calls = 0;
        CHECK(sk_hf_save(dir, &fake, &hyper, shapes, N_SHAPES, types[i], from_air, &calls,
                         i ? &words : &none) == SK_OK);
        CHECK(calls == N_SHAPES); /* slices that follow each other share one reading */
        check_saved(below(dir, "model.safetensors"), types[i]);
        CHECK(load(dir, 3, i, SK_F32) == 0);
        CHECK(count(below(root, "models"), "final") == 1 && count(dir, "tokenizer.json") == !!i);
    }
    CHECK(sk_hf_config(dir, &m, &h) == SK_OK && m == &fake && h.hidden_size == 6);
    CHECK(sk_file_read(&a, below(dir, "config.json"), &config) == SK_OK);
    CHECK(h.tie_word_embeddings && h.norm_eps == 1e-6 && !strcmp(h.arch, "fake"));
    CHECK(sk_hf_check(dir, &fake, &hyper, shapes, N_SHAPES, sk_all_chunks) == SK_OK);
    text(dir, "config.json", "{\"model_type\":\"fake\",\"n_embd\":6,\"other\":null}");
    CHECK(sk_hf_config(dir, &m, &h) == SK_EDATA && strstr(sk_error(), "config.json has"));
    CHECK(!rename(below(dir, "checksums.json"), below(root, "sums")));
    CHECK(sk_hf_config(dir, &m, &h) == SK_ECONF && strstr(sk_error(), "the key other"));
    text(dir, "config.json", "{\"n_embd\":6}");
    CHECK(sk_hf_config(dir, &m, &h) == SK_EDATA);
    text(dir, "config.json", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[");
    CHECK(sk_hf_config(dir, &m, &h) == SK_EDATA);
    calls = 0;
    CHECK(sk_hf_save(below(root, "large"), &fake, &hyper, shapes, N_SHAPES, SK_F16, too_large,
                     &calls, &(sk_companions){0}) == SK_ENUM &&
          strstr(sk_error(), "f16 holds up to 65504") && count(root, "large") == 0);
    CHECK(!rename(below(root, "sums"), below(dir, "checksums.json")));
    /* a model that somebody changed, or that has no sums, is not ours to remove */
    CHECK(save_with(dir, &none) == SK_ECREATE && strstr(sk_error(), "config.json has"));
    CHECK(!rename(below(dir, "checksums.json"), below(root, "sums")));
    CHECK(save_with(dir, &none) == SK_ECREATE && strstr(sk_error(), "it has no checksums.json"));
    CHECK(!rename(below(root, "sums"), below(dir, "checksums.json")));
    text(dir, "config.json", config.s);
    /* failures leave the old model and nothing else */
    calls = 97;
    CHECK(sk_hf_save(dir, &fake, &hyper, shapes, N_SHAPES, SK_F32, from_air, &calls, &none) ==
          SK_EIO);
    struct rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t n = 0; n < 3000; n += 100) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){n, old.rlim_max});
        calls = 0;
        CHECK(sk_hf_save(dir, &fake, &hyper, shapes, N_SHAPES, SK_F32, from_air, &calls, &words) ==
              SK_EIO);
        setrlimit(RLIMIT_FSIZE, &old);
        CHECK(count(below(root, "models"), "final") == 1);
    }
    check_saved(below(dir, "model.safetensors"), SK_F16);
    text(dir, "notes.txt", "mine");
    calls = 0;
    CHECK(sk_hf_save(dir, &fake, &hyper, shapes, N_SHAPES, SK_F32, from_air, &calls, &none) ==
              SK_ECREATE &&
          strstr(sk_error(), "notes.txt") && calls == 0);
    CHECK(sk_hf_save("/", &fake, &hyper, shapes, N_SHAPES, SK_F32, from_air, &calls, &none) ==
          SK_ECREATE);
    sk_arena_end(&a);
}

/* Is this file of a directory exactly this text?  NULL: it is not there. */
static bool reads(const char *dir, const char *name, const char *want)
{
    sk_arena a = {0};
    sk_text got = {0};
    bool there = sk_is_file(below(dir, name));
    if (there) CHECK(sk_file_read(&a, below(dir, name), &got) == SK_OK);
    bool same = want ? there && !strcmp(got.s, want) : !there;
    if (!same) printf("%s/%s: %s\n", dir, name, there ? got.s : "(none)");
    sk_arena_end(&a);
    return same;
}

/* Files that go with the tokens: read from a directory of links, kept with a run, read again when
 * the first directory is gone, saved. */
static void companions(void)
{
    sk_arena a = {0};
    sk_companions c, d;
    int64_t ends[SK_MOST_ENDS];
    const char *cache = below(root, "cache"), *src = below(root, "source");
    const char *run = below(root, "run"), *kept = below(root, "run/tokenizer");
    const char *out = below(root, "models/carried");
    static const char generation[] =
        "{\n  \"temperature\": 0.6,\n  \"eos_token_id\": [\n    7,\n    9\n  ]\n}\n";
    CHECK(!mkdir(cache, 0700) && !mkdir(src, 0700) && !mkdir(run, 0700));
    CHECK(sk_companions_read(&a, src, &c) == SK_OK && !sk_companions_ends(&c, ends));
    CHECK(save_with(out, &c) == SK_OK); /* nothing is known: nothing is said */
    CHECK(reads(out, "generation_config.json", "{\n  \"_from_model_config\": true\n}\n"));
    text(cache, "blob", "{\"chat_template\": \"{{ x }}\"}");
    CHECK(!symlink("../cache/blob", below(src, "tokenizer_config.json")));
    text(src, "special_tokens_map.json", "{\"eos_token\": \"</s>\"}\n");
    text(src, "chat_template.jinja", "{% for m in messages %}");
    text(src, "notes.txt", "not one of them");
    text(src, "generation_config.json",
         "{\"max_length\": 20, \"temperature\": 0.6, \"eos_token_id\": [7, 9]}");
    text(src, "config.json", "{\"bos_token_id\": 1, \"eos_token_id\": 2, \"vocab_size\": 3}");
    CHECK(sk_companions_for(&a, src, "", &c) == SK_OK && sk_companions_ends(&c, ends) == 3);
    CHECK(ends[0] == 2 && ends[1] == 7 && ends[2] == 9);
    c.tokenizer_json = "{}";
    CHECK(!mkdir(below(run, "tokenizer.tmp-0123456789abcdef"), 0700)); /* of one that was killed */
    text(below(run, "tokenizer.tmp-0123456789abcdef"), "tokenizer.json", "{");
    for (int i = 0; i < 2; i++) CHECK(sk_companions_keep(&a, run, &c) == SK_OK); /* and replaced */
    CHECK(count(run, "tokenizer") == 1);
    CHECK(!rename(src, below(root, "gone")) && sk_companions_for(&a, src, src, &d) == SK_OK);
    CHECK(!sk_companions_ends(&d, ends) && !d.text[0].s);
    CHECK(!strcmp(sk_companions_tokenizer(&a, src, kept), kept));
    CHECK(!strcmp(sk_companions_tokenizer(&a, "byte", kept), "byte"));
    CHECK(sk_companions_read(&a, kept, &d) == SK_OK && sk_companions_ends(&d, ends) == 3);
    CHECK(save_with(out, &d) == SK_OK && load(out, 1, 0, SK_F32) == 0);
    CHECK(reads(out, "tokenizer_config.json", "{\"chat_template\": \"{{ x }}\"}"));
    CHECK(reads(out, "special_tokens_map.json", "{\"eos_token\": \"</s>\"}\n"));
    CHECK(reads(out, "chat_template.jinja", "{% for m in messages %}"));
    CHECK(reads(out, "generation_config.json", generation) && reads(out, "notes.txt", NULL));
    CHECK(sk_companions_read(&a, out, &c) == SK_OK && !strcmp(c.ids[0], "1"));
    CHECK(!strcmp(c.ids[1], "2") && !c.ids[2]);
    CHECK(save_with(out, &none) == SK_OK); /* what it held before goes */
    CHECK(reads(out, "tokenizer_config.json", NULL));
    sk_arena_end(&a);
}

/* Weights from one directory, the tokenizer from another; and what cannot be. */
static void companions_mixed(void)
{
    sk_arena a = {0};
    sk_companions c;
    const char *src = below(root, "gone"), *odd_dir = below(root, "odd");
    CHECK(!mkdir(odd_dir, 0700));
    text(odd_dir, "tokenizer.json", "{}");
    text(odd_dir, "added_tokens.json", "{}");
    CHECK(sk_companions_for(&a, below(odd_dir, "tokenizer.json"), src, &c) == SK_OK);
    CHECK(c.text[2].s && !c.text[0].s && !strcmp(c.ids[1], "2")); /* ids of the model */
    CHECK(sk_companions_for(&a, "byte", src, &c) == SK_OK && !c.text[0].s && c.ids[1]);
    static const char *const wrong[] = {"{\"eos_token_id\": \"</s>\"}",
                                        "{\"bos_token_id\": [1, null]}", "[1]", "{"};
    for (int i = 0; i < 4; i++) {
        text(odd_dir, "config.json", wrong[i]);
        CHECK(sk_companions_read(&a, odd_dir, &c) == SK_EDATA);
        text(odd_dir, "config.json", "{}");
        text(odd_dir, "generation_config.json", wrong[i]);
        CHECK(sk_companions_read(&a, odd_dir, &c) == SK_EDATA);
        CHECK(!unlink(below(odd_dir, "generation_config.json")));
    }
    CHECK(!truncate(below(odd_dir, "added_tokens.json"), 17 << 20));
    CHECK(sk_companions_read(&a, odd_dir, &c) == SK_EDATA && strstr(sk_error(), "17825792 bytes"));
    CHECK(!unlink(below(odd_dir, "added_tokens.json")) &&
          !mkdir(below(odd_dir, "added_tokens.json"), 0700));
    CHECK(sk_companions_read(&a, odd_dir, &c) == SK_EIO && strstr(sk_error(), "a directory"));
    sk_arena_end(&a);
}

/* Checkpoint by three ranks, export, import by two. */
static void from_checkpoint(void)
{
    const char *dir = below(root, "ckpt"), *out = below(root, "exported");
    char name[SK_CKPT_NAME];
    sk_ckpt_dir *h = NULL;
    sk_arena a = {0};
    sk_ckpt c;
    sk_ckpt_found f;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && sk_ckpt_begin(h, 3, 0, name) == SK_OK);
    for (int r = 0; r < 3; r++) {
        sk_tensor_shard b[N_SHAPES];
        sk_ckpt_report rep;
        cut(&a, r, 3, 1, SK_F32, b);
        CHECK(load(below(root, "models/final"), 1, 0, SK_F32) == 0);
        CHECK(sk_hf_load(below(root, "models/final"), &fake, &hyper, shapes, N_SHAPES, b,
                         N_SHAPES) == SK_OK);
        for (int i = 0; i < N_SHAPES; i++) b[i].mine = b[i].n || !r;
        sk_ckpt_share share = {.model = b, .n_model = N_SHAPES};
        CHECK(sk_ckpt_write_rank(dir, name, r, &share, &rep) == SK_OK);
    }
    CHECK(sk_ckpt_commit(h, name, 3, &(sk_ckpt_state){.step = 3}) == SK_OK);
    CHECK(sk_ckpt_find(&a, dir, -1, true, &f) == SK_OK && sk_ckpt_read(&a, f.path, &c) == SK_OK);
    CHECK(sk_hf_save(out, &fake, &hyper, shapes, N_SHAPES, SK_BF16, sk_hf_from_ckpt, &c, &none) ==
          SK_OK);
    check_saved(below(out, "model.safetensors"), SK_BF16);
    CHECK(load(out, 2, 0, SK_F32) == 0);
    sk_ckpt_close(h);
    sk_arena_end(&a);
}

static void table(void)
{
    sk_tensor t[2] = {{.name = "w", .letters = "cv", .role = SK_PARAM},
                      {.name = "x", .letters = "bt", .role = SK_INPUT}};
    sk_tensor *list[] = {&t[1], &t[0]};
    sk_graph g = {.tensors = {.v = list, .n = 2}};
    g.size['c'] = 3, g.size['v'] = 4;
    int n = 0;
    sk_hf_shape *s = sk_hf_shapes(&names, &g, &n);
    CHECK(n == 1 && !strcmp(s[0].name, "w") && s[0].full[0] == 3 && s[0].full[1] == 4);
}

int main(void)
{
    if (!mkdtemp(root)) return 1;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < N_SHAPES; i++)
        for (int d = 0; shapes[i].letters[d]; d++)
            shapes[i].full[d] = full_of(&shapes[i], shapes[i].letters[d]);
    table();
    loading();
    links();
    shards();
    bad_models();
    saving();
    companions();
    companions_mixed();
    from_checkpoint();
    char sweep[300];
    snprintf(sweep, sizeof sweep, "rm -rf %s", root);
    CHECK(!system(sweep));
    sk_arena_end(&names);
    printf("hf: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
