/* Checkpoints: any cut to any cut, every kind of damage found, a full disk, kills at random
 * moments, the lock, retention. */
#include "base/hash.h"
#include "base/rng.h"
#include "base/strings.h"
#include "tensor/safetensors.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks, bad, skipped;
static sk_arena names;
static char root[] = "/tmp/skein-ckpt-XXXXXX";

#define CHECK(cond)                                                                     \
    do {                                                                                \
        checks++;                                                                       \
        if (!(cond)) bad++, printf("line %d: %s\n  %s\n", __LINE__, #cond, sk_error()); \
    } while (0)

/* ---- a small model, and ways of cutting it ---- */

typedef struct logical {
    const char *name;
    sk_dtype type;
    int n;
    int64_t full[SK_SHARD_DIM];
} logical;

static const logical model[] = {{"wte", SK_F32, 2, {37, 8}},
                                {"qkv \"w\"", SK_F32, 4, {5, 3, 2, 7}},
                                {"scale", SK_BF16, 1, {11}},
                                {"one", SK_F64, 0, {0}}};
static const logical state[] = {{"wte#m", SK_F32, 2, {37, 8}}, {"steps", SK_I64, 1, {3}}};
enum { N_MODEL = 4, N_STATE = 2, N_ALL = 6, MOST = 64 };

static const logical *tensor(int i) { return i < N_MODEL ? &model[i] : &state[i - N_MODEL]; }

/* A value that depends on tensor and logical position only (and on the step). */
static void put(const logical *t, int64_t index, int64_t step, void *to)
{
    uint64_t r = sk_rng(3, sk_hash_text(t->name) + (uint64_t)step, (uint64_t)index).a;
    double x = (double)(r % 4096) / 16;
    int64_t whole = (int64_t)r;
    if (t->type == SK_I64) memcpy(to, &whole, 8);
    else sk_convert(to, t->type, &x, SK_F64, 1);
}

static int64_t volume(const sk_tensor_shard *b)
{
    int64_t v = 1;
    for (int d = 0; d < b->n; d++) v *= b->size[d];
    return v;
}

/* Walk the box; wrong elements are counted, or all are written. */
static int walk(const sk_tensor_shard *b, const logical *t, int64_t step, bool write)
{
    int wrong = 0;
    size_t width = sk_dtype_size(b->type);
    for (int64_t k = 0; k < volume(b); k++) {
        int64_t rest = k, index = 0, i[SK_SHARD_DIM];
        for (int d = b->n - 1; d >= 0; d--) i[d] = rest % b->size[d], rest /= b->size[d];
        for (int d = 0; d < b->n; d++) index = index * b->full[d] + b->at[d] + i[d];
        char want[8], *here = (char *)b->data + (size_t)k * width;
        put(t, index, step, want);
        if (write) memcpy(here, want, width);
        else wrong += memcmp(here, want, width) != 0;
    }
    return wrong;
}

/* Rank r of n owns part of one dim of each tensor; `way` chooses dim and evenness. */
static void cut(sk_arena *a, int rank, int n, int way, int64_t step, bool fill,
                sk_tensor_shard *out)
{
    for (int i = 0; i < N_ALL; i++) {
        const logical *t = tensor(i);
        sk_tensor_shard *b = &out[i];
        *b = (sk_tensor_shard){.name = t->name, .type = t->type, .n = t->n, .mine = true};
        for (int d = 0; d < t->n; d++) b->full[d] = b->size[d] = t->full[d];
        int d = t->n ? (way + i) % t->n : -1;
        if (d >= 0) {
            int64_t f = t->full[d], from = f * rank / n, to = f * (rank + 1) / n;
            if (way % 3 == 1) { /* as much as fits to the first ranks: the last ones get nothing */
                int64_t each = (f + n - 1) / n;
                from = each * rank < f ? each * rank : f;
                to = from + each < f ? from + each : f;
            }
            b->at[d] = from, b->size[d] = to - from;
        } else if (rank != way % n) b->mine = false;
        if (way % 3 == 2 && i == 0) { /* replicated, one owner */
            b->at[d] = 0, b->size[d] = t->full[d];
            b->mine = rank == n - 1;
        }
        size_t bytes = (size_t)volume(b) * sk_dtype_size(t->type);
        b->data = memset(sk_alloc(a, bytes + 1), 0xee, bytes + 1);
        if (fill) walk(b, t, step, true);
    }
}

static sk_status save(sk_ckpt_dir *h, const char *dir, int64_t step, int n, int way)
{
    char name[SK_CKPT_NAME];
    sk_status status = SK_OK;
    sk_ckpt_state s = {
        .step = step,
        .seed = UINT64_MAX - 5,
        .tokens = 12345,
        .program = 0xabcdef,
        .hyper = {.arch = "fake", .hidden_size = 64, .norm_eps = 1e-5, .tie_word_embeddings = true},
        .config = "model: fake\n\"quoted\" \xff",
        .layout = "dp=2"};
    SK_TRY(sk_ckpt_begin(h, step, 4096, name));
    for (int r = 0; r < n && !status; r++) {
        sk_arena a = {0};
        sk_tensor_shard b[N_ALL];
        sk_ckpt_report rep;
        cut(&a, r, n, way, step, true, b);
        sk_ckpt_share share = {
            .model = b, .n_model = N_MODEL, .state = b + N_MODEL, .n_state = N_STATE};
        status = sk_ckpt_write_rank(dir, name, r, &share, &rep);
        if (rep.status != (int32_t)status) status = SK_EBUG;
        sk_arena_end(&a);
    }
    if (status) {
        sk_ckpt_abandon(h, name);
        return status;
    }
    return sk_ckpt_commit(h, name, n, &s);
}

/* Load under another cut; count wrong elements, -1 if the load fails. */
static int load(const char *path, int64_t step, int n, int way)
{
    int wrong = 0;
    for (int r = 0; r < n; r++) {
        sk_arena a = {0};
        sk_tensor_shard b[N_ALL];
        cut(&a, r, n, way, step, false, b);
        if (sk_ckpt_load(path, b, N_ALL)) wrong = -1;
        for (int i = 0; wrong >= 0 && i < N_ALL; i++) {
            wrong += walk(&b[i], tensor(i), step, false);
            size_t bytes = (size_t)volume(&b[i]) * sk_dtype_size(b[i].type);
            wrong += ((unsigned char *)b[i].data)[bytes] != 0xee;
        }
        sk_arena_end(&a);
        if (wrong < 0) break;
    }
    return wrong;
}

static const char *below(const char *dir, const char *name)
{
    static char p[4][512];
    static int k;
    k = (k + 1) % 4;
    snprintf(p[k], sizeof p[k], "%s/%s", dir, name);
    return p[k];
}

static const char *step_dir(const char *dir, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "step-%010lld", (long long)step);
    return below(dir, name);
}

/* Entries whose name starts so. */
static int count(const char *dir, const char *start)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += !strncmp(e->d_name, start, strlen(start));
    if (d) closedir(d);
    return n;
}

static void remove_all(const char *dir)
{
    char line[600];
    snprintf(line, sizeof line, "rm -rf '%s'", dir);
    if (system(line)) bad++;
}

static void edit(const char *path, int64_t at, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || pwrite(fd, p, n, (off_t)at) != (ssize_t)n) bad++, printf("edit %s\n", path);
    if (fd >= 0) close(fd);
}

/* ---- round trips ---- */

static void round_trips(void)
{
    static const int ranks[] = {1, 2, 3, 4, 7, 40};
    const char *dir = sk_strdup(&names, below(root, "trips"));
    sk_ckpt_dir *h = NULL;
    sk_arena a = {0};
    sk_ckpt c;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK);
    int64_t step = 0;
    for (int i = 0; i < 6; i++)
        for (int way = 0; way < 4; way++) {
            CHECK(save(h, dir, ++step, ranks[i], way) == SK_OK);
            CHECK(sk_ckpt_verify(step_dir(dir, step), true) == SK_OK);
            for (int k = 0; k < 6; k++)
                CHECK(load(step_dir(dir, step), step, ranks[k], way + k) == 0);
        }
    CHECK(count(dir, "tmp-") == 0 && count(step_dir(dir, step), "r-") == 0);
    CHECK(sk_ckpt_read(&a, step_dir(dir, step), &c) == SK_OK);
    CHECK(c.state.step == step && c.state.seed == UINT64_MAX - 5 && c.state.tokens == 12345);
    CHECK(c.state.ranks == 40 && c.state.generation == 1 && c.state.program == 0xabcdef);
    CHECK(!strcmp(c.state.hyper.arch, "fake") && c.state.hyper.hidden_size == 64);
    CHECK(c.state.hyper.norm_eps == 1e-5 && c.state.hyper.tie_word_embeddings);
    CHECK(!strcmp(c.state.config, "model: fake\n\"quoted\" ?") && !strcmp(c.state.layout, "dp=2"));
    CHECK(!strcmp(c.state.extra, ""));
    /* the same step again: swapped */
    CHECK(save(h, dir, step, 2, 0) == SK_OK && load(step_dir(dir, step), step, 3, 1) == 0);
    CHECK(count(dir, "tmp-") == 0 && count(dir, "trash-") == 0 && count(dir, "step-") == (int)step);
    sk_ckpt_close(h);
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && sk_ckpt_generation(h) == 2);
    sk_ckpt_close(h);
    /* a LOCK with a number that cannot be: what the manifests know counts */
    static const char much[] = "{\"generation\":999999999999999999,";
    edit(below(dir, "LOCK"), 0, much, sizeof much - 1);
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && sk_ckpt_generation(h) == 2);
    sk_ckpt_close(h);
    /* a lost LOCK: the manifests still know the generation, which never falls */
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && sk_ckpt_generation(h) == 3);
    CHECK(save(h, dir, step + 1, 1, 0) == SK_OK);
    sk_ckpt_close(h);
    CHECK(!unlink(below(dir, "LOCK")));
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && sk_ckpt_generation(h) == 4);
    sk_ckpt_close(h);
    sk_arena_end(&a);
    remove_all(dir);
}

/* Boxes that the checkpoint cannot fill, and types that it can. */
static void mismatches(void)
{
    const char *dir = sk_strdup(&names, below(root, "mismatch"));
    sk_ckpt_dir *h = NULL;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && save(h, dir, 5, 2, 0) == SK_OK);
    const char *path = sk_strdup(&names, step_dir(dir, 5));
    uint16_t half[37 * 8];
    float full[37 * 8], line[24];
    sk_tensor_shard b = {
        .name = "wte", .type = SK_F32, .n = 2, .full = {37, 8}, .size = {37, 8}, .data = full};
    CHECK(sk_ckpt_load(path, &b, 1) == SK_OK);
    b.type = SK_BF16, b.data = half;
    CHECK(sk_ckpt_load(path, &b, 1) == SK_OK);
    int wrong = 0;
    for (int i = 0; i < 37 * 8; i++) wrong += half[i] != sk_to_bf16(full[i]);
    CHECK(wrong == 0);
    b.type = SK_I32, b.data = full;
    CHECK(sk_ckpt_load(path, &b, 1) == SK_EDATA && strstr(sk_error(), "is f32, needed i32"));
    b.type = SK_F32, b.full[0] = 38;
    CHECK(sk_ckpt_load(path, &b, 1) == SK_EDATA && strstr(sk_error(), "[37, 8], needed [38, 8]"));
    b.full[0] = 37, b.name = "wpe";
    CHECK(sk_ckpt_load(path, &b, 1) == SK_EDATA && strstr(sk_error(), "no tensor 'wpe'"));
    b.name = "wte"; /* a box in the middle, across the writers' border */
    b.at[0] = 17, b.size[0] = 4, b.at[1] = 2, b.size[1] = 6, b.data = line;
    CHECK(sk_ckpt_load(path, &b, 1) == SK_OK && walk(&b, &model[0], 5, false) == 0);
    CHECK(sk_ckpt_load(below(dir, "step-0000000006"), &b, 1) == SK_EDATA);
    sk_ckpt_close(h);
}

/* Part `at` of n parts of a sum; rows [from, to) of 5. */
static sk_tensor_shard part(int at, int n, int from, int to, float *data)
{
    return (sk_tensor_shard){.name = "w.error",
                             .type = SK_F32,
                             .n = 3,
                             .full = {n, 5, 6},
                             .at = {at, from, 0},
                             .size = {1, to - from, 6},
                             .data = data,
                             .parts = true,
                             .mine = true};
}

/* Every part is written by two ranks, each some rows of it. */
static void save_parts(sk_ckpt_dir *h, const char *dir, int64_t step, int n)
{
    char name[SK_CKPT_NAME];
    sk_ckpt_report rep;
    CHECK(sk_ckpt_begin(h, step, 0, name) == SK_OK);
    for (int r = 0; r < 2 * n; r++) {
        float x[30];
        sk_tensor_shard b = part(r / 2, n, r % 2 ? 2 : 0, r % 2 ? 5 : 2, x);
        for (int i = 0; i < 30; i++) x[i] = (float)(1 + r / 2) * (float)(i + 6 * (int)b.at[1] + 1);
        sk_ckpt_share share = {.state = &b, .n_state = 1};
        CHECK(sk_ckpt_write_rank(dir, name, r, &share, &rep) == SK_OK);
    }
    CHECK(sk_ckpt_commit(h, name, 2 * n, &(sk_ckpt_state){.step = step}) == SK_OK);
}

/* The parts of a sum may be more or fewer when they are read: the sum is the same. */
static void parts(void)
{
    const char *dir = sk_strdup(&names, below(root, "parts"));
    sk_ckpt_dir *h = NULL;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK);
    for (int n = 1; n <= 5; n++) {
        save_parts(h, dir, n, n);
        for (int m = 1; m <= 7; m++) {
            float sum[30] = {0}, x[30];
            int wrong = 0;
            for (int k = 0; k < m; k++) {
                for (int half = 0; half < 2; half++) { /* rows 0 to 3, and 3 and 4 */
                    sk_tensor_shard b = part(k, m, 3 * half, half ? 5 : 3, x + 18 * half);
                    CHECK(sk_ckpt_load(step_dir(dir, n), &b, 1) == SK_OK);
                }
                for (int i = 0; i < 30; i++) sum[i] += x[i];
                for (int i = 0; i < 30 && m == n; i++) wrong += x[i] != (float)((1 + k) * (i + 1));
            }
            for (int i = 0; i < 30; i++) wrong += sum[i] != (float)(n * (n + 1) / 2 * (i + 1));
            CHECK(wrong == 0);
        }
    }
    float x[30] = {1};
    sk_tensor_shard b = part(0, 2, 0, 5, x);
    b.name = "v.error"; /* not there: nothing was lost */
    CHECK(sk_ckpt_load(step_dir(dir, 3), &b, 1) == SK_OK && x[0] == 0 && x[29] == 0);
    b = part(0, 2, 0, 5, x);
    b.full[1] = 6;
    CHECK(sk_ckpt_load(step_dir(dir, 3), &b, 1) == SK_EDATA && strstr(sk_error(), "another model"));
    sk_ckpt_close(h);
}

/* Ranks that disagree are found at the commit: nothing is published. */
static void disagree(void)
{
    const char *dir = sk_strdup(&names, below(root, "disagree"));
    sk_ckpt_dir *h = NULL;
    float x[8] = {0};
    CHECK(sk_ckpt_open(dir, &h) == SK_OK);
    for (int kind = 0; kind < 5; kind++) {
        char name[SK_CKPT_NAME];
        sk_tensor_shard b = {
            .name = "w", .type = SK_F32, .n = 1, .full = {8}, .size = {4}, .data = x, .mine = true};
        sk_ckpt_share share = {.model = &b, .n_model = 1};
        sk_ckpt_report rep;
        CHECK(sk_ckpt_begin(h, 9, 0, name) == SK_OK);
        CHECK(sk_ckpt_write_rank(dir, name, 0, &share, &rep) == SK_OK && rep.n_tensors == 1);
        b.at[0] = kind == 0 ? 3 : 4;           /* overlap */
        b.size[0] = kind == 1 ? 3 : 4;         /* hole */
        b.full[0] = kind == 2 ? 9 : 8;         /* another shape */
        b.type = kind == 3 ? SK_BF16 : SK_F32; /* another type */
        if (kind != 4) CHECK(sk_ckpt_write_rank(dir, name, 1, &share, &rep) == SK_OK);
        CHECK(sk_ckpt_write_rank(dir, name, 0, &share, &rep) == SK_EIO); /* exclusive */
        CHECK(sk_ckpt_commit(h, name, 2, &(sk_ckpt_state){.step = 9}) ==
              (kind == 4 ? SK_EDATA : SK_EBUG));
        CHECK(count(dir, "tmp-") == 0 && count(dir, "step-") == 0);
        CHECK(sk_ckpt_write_rank(dir, name, 0, &share, &rep) == SK_EIO); /* directory gone */
    }
    char name[SK_CKPT_NAME];
    CHECK(sk_ckpt_begin(h, 9, INT64_MAX / 2, name) == SK_EIO && strstr(sk_error(), "bytes free"));
    sk_ckpt_close(h);
}

/* ---- damage ---- */

static int64_t size_of(const char *path)
{
    struct stat s;
    return stat(path, &s) ? -1 : s.st_size;
}

static void flip(const char *path, int64_t bit)
{
    unsigned char c = 0;
    int fd = open(path, O_RDWR);
    if (pread(fd, &c, 1, (off_t)(bit / 8)) != 1) bad++;
    c = (unsigned char)(c ^ 1u << bit % 8);
    if (pwrite(fd, &c, 1, (off_t)(bit / 8)) != 1) bad++;
    close(fd);
}

static void bit_flips(const char *path)
{
    static const char *const files[] = {"MANIFEST.json", "m-00000.safetensors",
                                        "o-00001.safetensors"};
    int missed = 0;
    for (uint64_t i = 0; i < 600; i++) {
        const char *f = below(path, files[i % 3]);
        int64_t bit = (int64_t)(sk_rng(1, 2, i).a % (uint64_t)(8 * size_of(f)));
        flip(f, bit);
        missed += sk_ckpt_verify(path, true) != SK_EDATA;
        flip(f, bit);
        checks++;
    }
    CHECK(missed == 0);
    CHECK(sk_ckpt_verify(path, true) == SK_OK);
}

static void truncations(const char *path)
{
    static const char *const files[] = {"MANIFEST.json", "m-00001.safetensors"};
    sk_arena a = {0};
    for (int k = 0; k < 2; k++) {
        sk_text all;
        char *f = sk_strdup(&a, below(path, files[k]));
        if (sk_file_read(&a, f, &all)) exit(1);
        for (size_t n = 0; n < all.n; n += 97) {
            CHECK(!truncate(f, (off_t)n) && sk_ckpt_verify(path, false) == SK_EDATA);
            CHECK(load(path, 7, 2, 0) == -1);
        }
        unlink(f);
        CHECK(sk_ckpt_verify(path, false) == SK_EDATA && strstr(sk_error(), "missing"));
        CHECK(!symlink("/etc/passwd", f) && sk_ckpt_verify(path, false) == SK_EDATA);
        CHECK(!unlink(f) && !mkfifo(f, 0600) && sk_ckpt_verify(path, false) == SK_EDATA);
        unlink(f);
        CHECK(sk_file_write_new(f, all.s, all.n) == SK_OK && sk_ckpt_verify(path, true) == SK_OK);
    }
    sk_arena_end(&a);
}

/* A manifest edited by hand, its checksum made right again. */
static sk_status edited(sk_arena *a, const char *path, const char *from, const char *to)
{
    sk_text all;
    char *f = sk_print(a, "%s/MANIFEST.json", path);
    if (sk_file_read(a, f, &all)) exit(1);
    const char *at = strstr(all.s, from);
    if (!at) return printf("no '%s' in the manifest\n", from), SK_OK;
    sk_out o = {.arena = a};
    sk_out_add(&o, "%.*s%s%s", (int)(at - all.s), all.s, to, at + strlen(from));
    o.n -= 27;
    o.s[o.n] = 0;
    sk_out_add(&o, "\"check\":\"crc32c:%08x\"}\n", sk_crc32c(0, o.s, o.n));
    unlink(f);
    if (sk_file_write_new(f, o.s, o.n)) exit(1);
    sk_status status = sk_ckpt_verify(path, true);
    unlink(f);
    if (sk_file_write_new(f, all.s, all.n)) exit(1);
    return status;
}

static void edits(const char *path)
{
    sk_arena a = {0};
    CHECK(edited(&a, path, "\"minor\":0", "\"minor\":7,\"new\":[1]") == SK_OK);
    CHECK(edited(&a, path, "\"major\":1", "\"major\":2") == SK_EDATA &&
          strstr(sk_error(), "newer"));
    CHECK(edited(&a, path, "m-00000.safetensors", "../../../etc/passwd") == SK_EDATA);
    CHECK(edited(&a, path, "m-00000.safetensors", "..") == SK_EDATA);
    CHECK(edited(&a, path, "m-00000.safetensors", "m-00001.safetensors") == SK_EDATA);
    CHECK(edited(&a, path, "\"bytes\":", "\"bytes\":9") == SK_EDATA);
    CHECK(edited(&a, path, "\"full\":[37,8]", "\"full\":[36,8]") == SK_EDATA);
    CHECK(edited(&a, path, "\"full\":[37,8]", "\"full\":[38,8]") == SK_EDATA);
    CHECK(edited(&a, path, "\"full\":[37,8]", "\"full\":[4611686018427387904,8]") == SK_EDATA);
    CHECK(edited(&a, path, "\"full\":[37,8]", "\"full\":[-37,-8]") == SK_EDATA);
    CHECK(edited(&a, path, "\"full\":[37,8]", "\"full\":[1,1,1,1,1,37,8]") == SK_EDATA);
    CHECK(edited(&a, path, "\"boxes\":[[0,", "\"boxes\":[[99,") == SK_EDATA);
    CHECK(edited(&a, path, "\"boxes\":[[0,", "\"boxes\":[[-1,") == SK_EDATA);
    CHECK(edited(&a, path, "\"boxes\":[[0,", "\"boxes\":[[0,9223372036854775807,") == SK_EDATA);
    CHECK(edited(&a, path, "\"boxes\":[[0,", "\"boxes\":[[0,1") == SK_EDATA);
    CHECK(edited(&a, path, "\"name\":\"wte\"", "\"name\":\"scale\"") == SK_EDATA);
    CHECK(edited(&a, path, "\"name\":\"wte\"", "\"name\":\"wtf\"") == SK_EDATA);
    CHECK(edited(&a, path, "\"name\":\"wte\"", "\"name\":\"w\",\"name\":\"w\"") == SK_EDATA);
    CHECK(edited(&a, path, "\"dtype\":\"bf16\"", "\"dtype\":\"f16\"") == SK_EDATA);
    CHECK(edited(&a, path, "\"dtype\":\"bf16\"", "\"dtype\":\"f99\"") == SK_EDATA);
    CHECK(edited(&a, path, "\"state\":{", "\"state\":[{") == SK_EDATA);
    static const char *const steps[] = {"-7",  "7.5", "\"7\"", "10000000000", "9223372036854775807",
                                        "null"};
    for (int i = 0; i < 6; i++) {
        CHECK(edited(&a, path, "\"step\":7,", sk_print(&a, "\"step\":%s,", steps[i])) == SK_EDATA);
        CHECK(strstr(sk_error(), "step is ") || strstr(sk_error(), "no state"));
    }
    CHECK(edited(&a, path, "\"step\":7,", "\"step\":8,") == SK_EDATA &&
          strstr(sk_error(), "step-0000000007 holds step 8: it was renamed"));
    CHECK(edited(&a, path, "\"tokens\":12345", "\"tokens\":-1") == SK_EDATA);
    CHECK(edited(&a, path, "\"tokens\":12345", "\"tokens\":true") == SK_EDATA);
    CHECK(edited(&a, path, "\"ranks\":2", "\"ranks\":100001") == SK_EDATA);
    CHECK(edited(&a, path, "\"generation\":1", "\"generation\":9223372036854775807") == SK_EDATA);
    CHECK(edited(&a, path, "\"generation\":1", "\"generation\":-1") == SK_EDATA);
    CHECK(edited(&a, path, "\"hidden_size\":64", "\"hidden_size\":-64") == SK_EDATA);
    CHECK(edited(&a, path, "\"hidden_size\":64", "\"hidden_size\":9223372036854775807") ==
          SK_EDATA);
    CHECK(edited(&a, path, "\"hidden_size\":64", "\"hidden_size\":\"64\"") == SK_EDATA);
    CHECK(edited(&a, path, "\"num_hidden_layers\":0", "\"num_hidden_layers\":7") == SK_EDATA);
    CHECK(edited(&a, path, "\"norm_eps\":1", "\"norm_eps\":[],\"x\":1") == SK_EDATA);
    CHECK(edited(&a, path, "\"tie_word_embeddings\":true", "\"tie_word_embeddings\":1") ==
          SK_EDATA);
    CHECK(edited(&a, path, "\"seed\":\"", "\"seed\":\"-") == SK_EDATA);
    CHECK(edited(&a, path, "\"seed\":\"", "\"seed\":\"9") == SK_EDATA); /* 21 digits */
    CHECK(edited(&a, path, "\"program\":\"", "\"program\":\"x") == SK_EDATA);
    CHECK(edited(&a, path, "\"tensors\":[", "\"tensors\":[[[[[[[[[") == SK_EDATA);
    CHECK(sk_ckpt_verify(path, true) == SK_OK);
    sk_arena_end(&a);
}

static void damage(void)
{
    const char *dir = sk_strdup(&names, below(root, "damage"));
    sk_ckpt_dir *h = NULL;
    sk_arena a = {0};
    sk_ckpt_found f;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK);
    CHECK(sk_ckpt_find(&a, dir, -1, true, &f) == SK_EDATA && strstr(sk_error(), "no checkpoint"));
    for (int64_t step = 5; step <= 7; step++) CHECK(save(h, dir, step, 2, 0) == SK_OK);
    CHECK(sk_ckpt_find(&a, dir, -1, true, &f) == SK_OK && f.step == 7 && !f.skipped && !*f.why);
    char *seven = sk_strdup(&a, step_dir(dir, 7)), *six = sk_strdup(&a, step_dir(dir, 6));
    bit_flips(seven);
    truncations(seven);
    edits(seven);
    /* swapped shards of one checkpoint, and one from another step */
    char *x = sk_strdup(&a, below(seven, "m-00000.safetensors"));
    char *y = sk_strdup(&a, below(seven, "m-00001.safetensors"));
    CHECK(!renameat2(AT_FDCWD, x, AT_FDCWD, y, RENAME_EXCHANGE));
    CHECK(sk_ckpt_verify(seven, true) == SK_EDATA && load(seven, 7, 2, 1) == -1);
    CHECK(!renameat2(AT_FDCWD, x, AT_FDCWD, y, RENAME_EXCHANGE));
    char *z = sk_strdup(&a, below(six, "m-00000.safetensors"));
    CHECK(!renameat2(AT_FDCWD, x, AT_FDCWD, z, RENAME_EXCHANGE));
    CHECK(sk_ckpt_verify(seven, true) == SK_EDATA && load(seven, 7, 2, 1) == -1);
    /* a renamed one is not newer */
    char *nine = sk_strdup(&a, step_dir(dir, 9)), *five = sk_strdup(&a, step_dir(dir, 5));
    CHECK(!rename(five, nine) && sk_ckpt_verify(nine, true) == SK_EDATA);
    CHECK(sk_ckpt_find(&a, dir, 9, false, &f) == SK_EDATA && strstr(sk_error(), "was renamed"));
    CHECK(!rename(nine, below(dir, "kept")) && sk_ckpt_verify(below(dir, "kept"), true) == SK_OK);
    CHECK(!rename(below(dir, "kept"), five));
    /* now 7 and 6 are both bad: 5 is found, with two reasons */
    CHECK(sk_ckpt_find(&a, dir, -1, true, &f) == SK_OK && f.step == 5 && f.skipped == 2);
    CHECK(strstr(f.why, "step 7 is not usable") && strstr(f.why, "step 6 is not usable"));
    CHECK(load(f.path, 5, 3, 2) == 0);
    CHECK(sk_ckpt_find(&a, dir, 7, true, &f) == SK_EDATA);
    CHECK(sk_ckpt_find(&a, dir, 5, true, &f) == SK_OK);
    edit(below(step_dir(dir, 5), "MANIFEST.json"), 3, "xxxx", 4);
    CHECK(sk_ckpt_find(&a, dir, -1, true, &f) == SK_EDATA && strstr(sk_error(), "newest 3"));
    CHECK(sk_ckpt_find(&a, dir, -1, false, &f) == SK_OK); /* shallow does not see 7's wound */
    /* training went on from nothing: the bad 7 is replaced, and bad ones do not count */
    CHECK(save(h, dir, 7, 3, 0) == SK_OK && sk_ckpt_verify(seven, true) == SK_OK);
    CHECK(sk_ckpt_retain(h, 2) == SK_OK && count(dir, "step-") == 2); /* committed here: trusted */
    sk_ckpt_close(h);
    sk_arena_end(&a);
}

/* ---- retention and lock ---- */

static void retention(void)
{
    const char *dir = sk_strdup(&names, below(root, "keep"));
    sk_ckpt_dir *h = NULL;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK);
    CHECK(!mkdir(below(dir, "step-000000001x"), 0700) &&
          !mkdir(below(dir, "xstep-0000000001"), 0700));
    for (int64_t step = 1; step <= 6; step++) {
        CHECK(save(h, dir, step, 2, 0) == SK_OK && sk_ckpt_retain(h, 3) == SK_OK);
        CHECK(count(dir, "step-0") == (step < 3 ? (int)step : 3) + 1); /* and the stranger */
    }
    CHECK(sk_ckpt_retain(h, 0) == SK_OK && count(dir, "step-0") == 4);
    CHECK(sk_ckpt_retain(h, 1) == SK_OK && count(dir, "step-0") == 3); /* never fewer than two */
    CHECK(sk_ckpt_verify(step_dir(dir, 6), true) == SK_OK);
    CHECK(sk_ckpt_verify(step_dir(dir, 5), true) == SK_OK);
    CHECK(count(dir, "xstep") == 1 && count(dir, "trash") == 0);
    sk_ckpt_close(h);
    /* a new run: 6 is damaged, so 5 and 7 are the two good ones and 4 would have gone */
    flip(below(step_dir(dir, 6), "m-00000.safetensors"), 4000);
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && save(h, dir, 7, 1, 0) == SK_OK);
    CHECK(sk_ckpt_retain(h, 2) == SK_OK && sk_ckpt_verify(step_dir(dir, 5), true) == SK_OK);
    CHECK(save(h, dir, 8, 1, 0) == SK_OK && sk_ckpt_retain(h, 2) == SK_OK);
    CHECK(count(dir, "step-0") == 3 && sk_ckpt_verify(step_dir(dir, 7), true) == SK_OK);
    sk_ckpt_close(h);
}

static void lock(void)
{
    const char *dir = sk_strdup(&names, below(root, "lock"));
    sk_ckpt_dir *h = NULL, *other = NULL;
    int ready[2], status = 0;
    char c;
    CHECK(!pipe(ready));
    pid_t pid = fork();
    if (!pid) {
        if (sk_ckpt_open(dir, &h) || write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    CHECK(read(ready[0], &c, 1) == 1);
    char holder[32];
    snprintf(holder, sizeof holder, "\"pid\":%ld", (long)pid);
    CHECK(sk_ckpt_open(dir, &other) == SK_ECREATE && strstr(sk_error(), holder));
    CHECK(!mkdir(below(dir, "tmp-0000000009-g1-0123456789abcdef"), 0700));
    CHECK(!mkdir(below(dir, "trash-0000000009-0123456789abcdef"), 0700));
    CHECK(!mkdir(below(dir, "tmp-mine"), 0700));
    CHECK(sk_file_write_new(below(dir, "tmp-0000000009-g1-0123456789abcdef/m-00000.safetensors"),
                            "x", 1) == SK_OK);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    CHECK(sk_ckpt_open(dir, &other) == SK_OK && sk_ckpt_generation(other) == 2);
    CHECK(count(dir, "tmp-0") == 0 && count(dir, "trash") == 0 && count(dir, "tmp-mine") == 1);
    CHECK(sk_ckpt_open(dir, &h) == SK_ECREATE); /* also within one process */
    sk_ckpt_close(other);
}

/* ---- a full disk, and sudden death ---- */

/* Save 2 where step 1 is good: if it fails, step 1 is untouched and nothing is left over. */
static sk_status save_or_not(sk_ckpt_dir *h, const char *dir)
{
    sk_status status = save(h, dir, 2, 3, 0);
    if (status) CHECK(status == SK_EIO && count(dir, "step-") == 1);
    else CHECK(sk_ckpt_verify(step_dir(dir, 2), true) == SK_OK);
    CHECK(count(dir, "tmp-") == 0 && sk_ckpt_verify(step_dir(dir, 1), true) == SK_OK);
    return status;
}

static void small_files(void)
{
    const char *dir = sk_strdup(&names, below(root, "fsize"));
    sk_ckpt_dir *h = NULL;
    struct rlimit old;
    int failures = 0;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && save(h, dir, 1, 2, 0) == SK_OK);
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t n = 0; n < 20000; n += 64) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){n, old.rlim_max});
        sk_status status = save_or_not(h, dir);
        setrlimit(RLIMIT_FSIZE, &old);
        if (!status) break;
        failures++;
    }
    CHECK(failures > 20 && count(dir, "step-") == 2);
    sk_ckpt_close(h);
}

/* A tmpfs that grows page by page until a save fits: no space at every possible moment. */
static int full_disk_child(void)
{
    const char *dir = sk_strdup(&names, below(root, "full"));
    sk_ckpt_dir *h = NULL;
    int failures = 0;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 77;
    if (mkdir(dir, 0700) || mount("tmpfs", dir, "tmpfs", 0, "size=4m")) return 77;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && save(h, dir, 1, 2, 0) == SK_OK);
    for (int pages = 1; pages < 100; pages++) {
        char size[32];
        snprintf(size, sizeof size, "size=%dk", 4 * pages + 36);
        if (mount("tmpfs", dir, "tmpfs", MS_REMOUNT, size)) continue; /* less than is in use */
        if (!save_or_not(h, dir)) break;
        failures++;
    }
    CHECK(failures > 3 && count(dir, "step-") == 2);
    sk_ckpt_close(h);
    return bad ? 1 : 0;
}

static void full_disk(void)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        int rc = full_disk_child();
        fflush(stdout);
        _exit(rc);
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skipped++;
    else CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Killed at a random moment of saving without pause: every step that was reported is there. */
static void kills(void)
{
    const char *dir = sk_strdup(&names, below(root, "kill"));
    for (uint64_t trial = 0; trial < 40; trial++) {
        int told[2], status = 0;
        int64_t step = 0, last = -1;
        CHECK(!pipe(told));
        pid_t pid = fork();
        if (!pid) {
            sk_ckpt_dir *h = NULL;
            if (sk_ckpt_open(dir, &h)) _exit(1);
            for (int64_t s = (int64_t)trial * 10000;; s++) {
                if (save(h, dir, s, 3, (int)(s % 4))) _exit(2);
                if (write(told[1], &s, sizeof s) != sizeof s || sk_ckpt_retain(h, 2)) _exit(3);
            }
        }
        close(told[1]);
        if (read(told[0], &last, sizeof last) != sizeof last) last = -1;
        usleep((useconds_t)(sk_rng(5, 6, trial).a % 30000));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        while (read(told[0], &step, sizeof step) == sizeof step) last = step;
        close(told[0]);
        sk_arena a = {0};
        sk_ckpt_found f = {0};
        CHECK(WIFSIGNALED(status));
        CHECK(sk_ckpt_find(&a, dir, -1, true, &f) == SK_OK && f.skipped == 0 && f.step >= last);
        CHECK(load(f.path, f.step, 2, (int)trial) == 0);
        sk_arena_end(&a);
    }
    sk_ckpt_dir *h = NULL;
    CHECK(sk_ckpt_open(dir, &h) == SK_OK && sk_ckpt_generation(h) == 41);
    CHECK(count(dir, "tmp-") == 0 && count(dir, "trash-") == 0);
    sk_ckpt_close(h);
}

int main(void)
{
    if (!mkdtemp(root)) return 1;
    signal(SIGXFSZ, SIG_IGN);
    round_trips();
    mismatches();
    parts();
    disagree();
    damage();
    retention();
    lock();
    small_files();
    full_disk();
    kills();
    remove_all(root);
    sk_arena_end(&names);
    printf("checkpoint: %d checks, %d bad, %d skipped\n", checks, bad, skipped);
    return bad != 0;
}
