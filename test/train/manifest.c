/* manifest.c - a manifest that somebody edited, its sum made right again.
 *
 * Every value of a real manifest becomes -1, 0, huge, another type, the next number, another dtype,
 * or is taken out.  What a run asks before it resumes, and what `skein verify` asks, must agree:
 * both refuse it with code 65, or both take it, and then every tensor has the bytes that it had.
 * Needs the program in $SKEIN, for one checkpoint. */
#include "lib/check.h"
#include "tensor/safetensors.h"
#include "train/model_export.h"
#include "train/rundir.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TENSORS = 3 /* whose values are edited: the others look alike */ };

static sk_arena arena;
static char dir[] = "/tmp/skein-manifest-XXXXXX";
static const char *path; /* of the checkpoint */
static sk_ckpt good;
static char **bytes; /* of each tensor of the good one */
static size_t *n_bytes;
static int refused, taken;
static json_t *root; /* the manifest; edited in place */

static void write_manifest(void)
{
    sk_arena a = {0};
    sk_out o = {.arena = &a};
    sk_out_add(&o, "{\"format\":\"skein-checkpoint\",\"major\":1,\"minor\":0");
    static const char *const parts[] = {"state", "files", "tensors"};
    for (int i = 0; i < 3; i++) {
        char *text = json_dumps(json_object_get(root, parts[i]), JSON_COMPACT | JSON_ENCODE_ANY);
        if (text) sk_out_add(&o, ",\n\"%s\":%s", parts[i], text);
        free(text);
    }
    sk_out_add(&o, ",\n");
    sk_manifest_seal(&o);
    FILE *f = fopen(sk_print(&a, "%s/MANIFEST.json", path), "w");
    check(f && fwrite(o.s, 1, o.n, f) == o.n && !fclose(f));
    sk_arena_end(&a);
}

/* All tensors of the good one, as the manifest of now has them. */
static sk_status load(sk_arena *a, char **to)
{
    sk_tensor_shard *all = sk_many(a, sk_tensor_shard, good.tensors.n);
    for (int i = 0; i < good.tensors.n; i++) {
        const sk_ckpt_tensor *t = &good.tensors.v[i];
        sk_tensor_shard *b = &all[i];
        int64_t n = 1;
        *b = (sk_tensor_shard){.name = t->name, .type = t->type, .n = t->n};
        for (int d = 0; d < t->n; d++) n *= b->size[d] = b->full[d] = t->full[d];
        n_bytes[i] = (size_t)n * sk_dtype_size(t->type);
        b->data = to[i] = sk_alloc(a, n_bytes[i] + 1);
    }
    return sk_ckpt_load(path, all, good.tensors.n);
}

static bool same_bytes(sk_arena *a)
{
    char **now = sk_many(a, char *, good.tensors.n);
    bool same = !load(a, now);
    for (int i = 0; i < good.tensors.n && same; i++) same = !memcmp(now[i], bytes[i], n_bytes[i]);
    return same;
}

/* As it stands now: do both say the same, and is it right? */
static void judge(const char *what, const char *how)
{
    sk_arena a = {0};
    sk_ckpt c;
    sk_extra x;
    write_manifest();
    sk_status shallow = sk_rundir_verify(&a, path, false, &c, &x);
    char *report = sk_strdup(&a, shallow ? sk_error_line() : "");
    /* deep asks the same and more: only what is taken can come out another way */
    sk_status deep = shallow ? shallow : sk_rundir_verify(&a, path, true, &c, &x);
    bool right =
        shallow == deep && (shallow == SK_EDATA ? *report != 0 : !shallow && same_bytes(&a));
    if (!right) printf("%s %s: resume %d, verify %d: %s\n", what, how, shallow, deep, report);
    check(right);
    refused += shallow != SK_OK, taken += shallow == SK_OK;
    sk_arena_end(&a);
}

/* `in` is an object or an array; its member is set to each of the values, and then taken out. */
static void edit(json_t *in, const char *key, size_t at, const char *what)
{
    json_t *old = json_incref(key ? json_object_get(in, key) : json_array_get(in, at));
    json_int_t n = json_integer_value(old);
    bool type = key && !strcmp(key, "dtype");
    json_t *values[] = {json_integer(-1),
                        json_integer(0),
                        json_integer((json_int_t)1 << 62),
                        json_integer(n + 1),
                        json_integer(2 * n),
                        json_string(type ? "bf16" : "x"),
                        json_string(type ? "f64" : ""),
                        json_string(type ? "i32" : "m-00000.safetensors"),
                        json_null(),
                        json_true(),
                        json_array(),
                        json_object()};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (json_equal(values[i], old)) {
            json_decref(values[i]);
            continue;
        }
        if (key) json_object_set_new(in, key, values[i]);
        else json_array_set_new(in, at, values[i]);
        judge(what, "edited");
    }
    if (key) json_object_del(in, key);
    else json_array_remove(in, at);
    judge(what, "taken out");
    if (key) json_object_set_new(in, key, old);
    else json_array_insert_new(in, at, old);
}

static void walk(json_t *j, const char *what)
{
    const char *key;
    void *next;
    json_t *value;
    size_t most = json_array_size(j);
    if (!strcmp(what, ".tensors") && most > MOST_TENSORS) most = MOST_TENSORS;
    for (size_t i = 0; i < most; i++) {
        const char *name = sk_print(&arena, "%s.%zu", what, i);
        walk(json_array_get(j, i), name);
        edit(j, NULL, i, name);
    }
    json_t *keys = json_is_object(j) ? json_deep_copy(j) : NULL; /* edits change the order */
    json_object_foreach_safe(keys, next, key, value)
    {
        const char *name = sk_print(&arena, "%s.%s", what, key);
        walk(json_object_get(j, key), name);
        if (strcmp(what, "")) edit(j, key, 0, name);
    }
    json_decref(keys);
}

/* Two tensors of the same sizes whose places are exchanged: only the file knows. */
static void exchange(void)
{
    json_t *list = json_object_get(root, "tensors"), *x = NULL, *y = NULL, *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (!strcmp(name, "h.0.fc.w")) x = one;
        if (!strcmp(name, "h.1.fc.w")) y = one;
    }
    check(x && y);
    json_t *was = json_incref(json_object_get(x, "boxes"));
    json_object_set(x, "boxes", json_object_get(y, "boxes"));
    json_object_set(y, "boxes", was);
    int before = refused;
    judge("two boxes", "exchanged");
    check(refused == before + 1);
    json_object_set(y, "boxes", json_object_get(x, "boxes"));
    json_object_set_new(x, "boxes", was);
    judge("two boxes", "put back");
}

int main(void)
{
    const char *skein = getenv("SKEIN");
    if (!skein || !mkdtemp(dir)) return printf("there is no $SKEIN\n"), 77;
    const char *text = "model=tiny data.train=example/one_file.c train.batch=2 train.seq=32 "
                       "train.steps=2 sample.every=0 val.every=0 layout='dp=2 zero=1'";
    check(!system(sk_print(&arena, "%s train %s run=%s/run >%s/said 2>&1", skein, text, dir, dir)));
    path = sk_print(&arena, "%s/run/ckpt/step-0000000002", dir);
    sk_extra x;
    json_error_t e;
    check(!sk_rundir_verify(&arena, path, true, &good, &x));
    if (bad) return 1;
    bytes = sk_many(&arena, char *, good.tensors.n);
    n_bytes = sk_many(&arena, size_t, good.tensors.n);
    check(!load(&arena, bytes));
    root = json_load_file(sk_print(&arena, "%s/MANIFEST.json", path), 0, &e);
    judge("nothing", "edited");
    check(taken == 1);
    exchange();
    walk(root, "");
    check(refused > 500 && taken > 20); /* else nothing was tried */
    check(!system(sk_print(&arena, "rm -r %s", dir)));
    json_decref(root);
    sk_arena_end(&arena);
    printf("manifests: %d refused, %d taken with the same bytes, %d checks, %d bad\n", refused,
           taken, checks, bad);
    return bad != 0;
}
