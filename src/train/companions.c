/* companions.c - see companions.h. */
#include "train/companions.h"
#include "base/strings.h"
#include "tensor/strict.h"
#include "train/checksums.h"
#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20, GENERATION = SK_N_COMPANIONS - 1, EOS = 1 };

static const char *const names[SK_N_COMPANIONS] = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja",   "chat_template.json",      "generation_config.json"};
static const char tmp_name[] = "tokenizer.tmp-";
static const char *const keys[SK_N_TOKEN_IDS] = {"bos_token_id", "eos_token_id", "pad_token_id"};

bool sk_companions_name(const char *file)
{
    for (int i = 0; i < SK_N_COMPANIONS; i++)
        if (!strcmp(file, names[i])) return true;
    return false;
}

/* ---- reading ---- */

static sk_status read_text(sk_arena *a, const char *path, sk_text *out)
{
    int fd = -1;
    int64_t size = 0;
    SK_TRY(sk_file_open(path, &fd, &size));
    if (size > MOST_BYTES) {
        close(fd);
        return sk_fail(SK_EDATA, "%s has %" PRId64 " bytes, at most %d make sense", path, size,
                       MOST_BYTES);
    }
    char *s = sk_alloc(a, (size_t)size + 1);
    sk_status status = sk_file_pread(fd, path, s, (size_t)size, 0);
    close(fd);
    s[size] = 0;
    if (!status) *out = (sk_text){.s = s, .n = (size_t)size};
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

static sk_status parse(const char *path, sk_text text, json_t **out)
{
    static const sk_strict limits = {.depth = 16, .objects = 100000, .values = 2000000};
    SK_TRY(sk_strict_json(path, text.s, text.n, &limits, out));
    if (json_is_object(*out)) return SK_OK;
    json_decref(*out);
    return sk_fail(SK_EDATA, "%s is no mapping", path);
}

/* A token id, a list of them, or nothing. */
static bool is_id(const json_t *x)
{
    if (!json_is_array(x)) return json_is_integer(x) || json_is_null(x);
    for (size_t i = 0; i < json_array_size(x); i++)
        if (!json_is_integer(json_array_get(x, i))) return false;
    return json_array_size(x) <= SK_MOST_ENDS;
}

static sk_status check_ids(const char *path, const json_t *root)
{
    for (int i = 0; i < SK_N_TOKEN_IDS; i++) {
        const json_t *x = json_object_get(root, keys[i]);
        if (x && !is_id(x))
            return sk_fail(SK_EDATA,
                           "%s: %s is neither a token id, nor a list of at most %d, nor null", path,
                           keys[i], SK_MOST_ENDS);
    }
    return SK_OK;
}

static char *dump(sk_arena *a, const json_t *x, size_t how)
{
    char *s = json_dumps(x, how | JSON_ENCODE_ANY);
    sk_assert(s);
    char *out = sk_strdup(a, s);
    free(s);
    return out;
}

static sk_status read_ids(sk_arena *a, const char *path, sk_companions *out)
{
    sk_text text = {0};
    json_t *root = NULL;
    if (!sk_is_there(path)) return SK_OK;
    SK_TRY(read_text(a, path, &text));
    SK_TRY(parse(path, text, &root));
    sk_status status = check_ids(path, root);
    for (int i = 0; i < SK_N_TOKEN_IDS && !status; i++) {
        const json_t *x = json_object_get(root, keys[i]);
        if (x) out->ids[i] = dump(a, x, 0);
    }
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* Without max_length: what was written stays as it is, unless it has one. */
static sk_status clean_generation(sk_arena *a, const char *path, sk_text *text)
{
    json_t *root = NULL, *again = NULL;
    SK_TRY(parse(path, *text, &root));
    sk_status status = check_ids(path, root);
    if (!status && !json_object_del(root, "max_length")) {
        const char *s = dump(a, root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        again = json_loads(s, 0, NULL);
        if (!json_equal(root, again)) s = dump(a, root, JSON_INDENT(2)); /* 15 digits are too few */
        s = sk_print(a, "%s\n", s);
        *text = (sk_text){s, strlen(s)};
        json_decref(again);
    }
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_companions_read(sk_arena *a, const char *dir, sk_companions *out)
{
    *out = (sk_companions){0};
    SK_TRY(sk_checksums_check_texts(dir));
    for (int i = 0; i < SK_N_COMPANIONS; i++) {
        const char *path = sk_print(a, "%s/%s", dir, names[i]);
        if (!sk_is_there(path)) continue;
        SK_TRY(read_text(a, path, &out->text[i]));
        if (i == GENERATION) SK_TRY(clean_generation(a, path, &out->text[i]));
    }
    return read_ids(a, sk_print(a, "%s/config.json", dir), out);
}

static bool has_ids(const sk_companions *c)
{
    return c->ids[0] || c->ids[1] || c->ids[2] || c->text[GENERATION].s;
}

sk_status sk_companions_for(sk_arena *a, const char *tokenizer, const char *model_dir,
                            sk_companions *out)
{
    bool own = strcmp(tokenizer, "byte") && sk_is_there(tokenizer);
    *out = (sk_companions){0};
    if (own) {
        const char *dir = sk_is_dir(tokenizer) ? tokenizer : dirname(sk_strdup(a, tokenizer));
        SK_TRY(sk_companions_read(a, dir, out));
    }
    if (has_ids(out) || !*model_dir || !sk_is_dir(model_dir)) return SK_OK;
    sk_companions model;
    SK_TRY(sk_companions_read(a, model_dir, &model));
    memcpy(out->ids, model.ids, sizeof out->ids);
    out->text[GENERATION] = model.text[GENERATION];
    return SK_OK;
}

/* ---- writing ---- */

/* `text`, one of our own, with `"key": value`: in the place of the key, or as its first. */
static char *with_key(sk_arena *a, const char *text, const char *key, const char *value)
{
    const char *at = strstr(text, sk_print(a, "\"%s\":", key));
    size_t name = strlen(key) + 3;
    if (at)
        return sk_print(a, "%.*s %s%s", (int)((size_t)(at - text) + name), text, value,
                        at + name + strcspn(at + name, ",\n}"));
    at = strchr(text, '{');
    return at ? sk_print(a, "{\n  \"%s\": %s,%s", key, value, at + 1) : sk_strdup(a, text);
}

/* generation_config.json where there was none: the ids again. */
static sk_text plain_generation(sk_arena *a, const sk_companions *c)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "{\n  \"_from_model_config\": true");
    for (int i = 0; i < SK_N_TOKEN_IDS; i++)
        if (c->ids[i] && strcmp(c->ids[i], "null"))
            sk_out_add(&o, ",\n  \"%s\": %s", keys[i], c->ids[i]);
    sk_out_add(&o, "\n}\n");
    return (sk_text){o.s, o.n};
}

static sk_text generation_of(sk_arena *a, const sk_companions *c)
{
    return c->text[GENERATION].s ? c->text[GENERATION] : plain_generation(a, c);
}

static sk_status put(int dir, const char *name, sk_text text)
{
    return sk_folder_write(dir, name, 0666, text.s, text.n);
}

static sk_status write_texts(int dir, const sk_companions *c)
{
    for (int i = 0; i < GENERATION; i++)
        if (c->text[i].s) SK_TRY(put(dir, names[i], c->text[i]));
    if (c->tokenizer_json)
        SK_TRY(put(dir, "tokenizer.json", (sk_text){c->tokenizer_json, strlen(c->tokenizer_json)}));
    return SK_OK;
}

sk_status sk_companions_write(sk_arena *a, int dir, const sk_companions *c, const char *config)
{
    sk_text generation = generation_of(a, c);
    for (int i = 0; i < SK_N_TOKEN_IDS; i++)
        if (c->ids[i]) config = with_key(a, config, keys[i], c->ids[i]);
    SK_TRY(put(dir, "config.json", (sk_text){config, strlen(config)}));
    SK_TRY(put(dir, names[GENERATION], generation));
    return write_texts(dir, c);
}

/* ---- comparing ---- */

static bool same(const char *x, const char *y) { return x && y ? !strcmp(x, y) : x == y; }

/* Ids that are not said are those that config.json has by itself. */
const char *sk_companions_differ(sk_arena *a, const sk_companions *x, const sk_companions *y)
{
    if (!same(x->tokenizer_json, y->tokenizer_json)) return "tokenizer.json";
    for (int i = 0; i < GENERATION; i++)
        if (!same(x->text[i].s, y->text[i].s)) return names[i];
    for (int i = 0; i < SK_N_TOKEN_IDS; i++)
        if (x->ids[i] && y->ids[i] && strcmp(x->ids[i], y->ids[i]) != 0) return keys[i];
    return same(generation_of(a, x).s, generation_of(a, y).s) ? NULL : names[GENERATION];
}

/* ---- with a run ---- */

static bool empty(const sk_companions *c)
{
    for (int i = 0; i < SK_N_COMPANIONS; i++)
        if (c->text[i].s) return false;
    return !c->tokenizer_json && !has_ids(c);
}

static sk_status keep_in(sk_arena *a, int dir, const sk_companions *c)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "{");
    for (int i = 0; i < SK_N_TOKEN_IDS; i++)
        if (c->ids[i]) sk_out_add(&o, "%s\"%s\": %s", o.n > 1 ? ", " : "", keys[i], c->ids[i]);
    sk_out_add(&o, "}\n");
    SK_TRY(write_texts(dir, c));
    if (c->text[GENERATION].s) SK_TRY(put(dir, names[GENERATION], c->text[GENERATION]));
    return put(dir, "config.json", (sk_text){o.s, o.n});
}

static sk_status keep_new(sk_arena *a, int run, const char *tmp, const sk_companions *c)
{
    bool old = false;
    int fd = mkdirat(run, tmp, 0777) ? -1 : openat(run, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return sk_fail(SK_EIO, "making %s: %s", tmp, strerror(errno));
    sk_status status = keep_in(a, fd, c);
    if (!status) status = sk_checksums_write(fd, NULL, 0); /* so that it is known as ours later */
    if (!status && fsync(fd)) status = sk_fail(SK_EIO, "%s: fsync: %s", tmp, strerror(errno));
    close(fd);
    if (!status) status = sk_folder_publish(run, tmp, "tokenizer", &old);
    if (status || old) sk_folder_sweep(run, tmp); /* what failed, or what was replaced */
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* What a keeper that was killed has left; the run's lock keeps others away. */
static void sweep(int run)
{
    int fd = openat(run, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *rest = e->d_name + sizeof tmp_name - 1;
        if (!strncmp(e->d_name, tmp_name, sizeof tmp_name - 1) &&
            strspn(rest, "0123456789abcdef") == 16 && !rest[16])
            sk_folder_sweep(run, e->d_name);
    }
    if (d) closedir(d);
}

sk_status sk_companions_keep(sk_arena *a, const char *run, const sk_companions *c)
{
    sk_status status = SK_OK;
    SK_TRY(sk_checksums_replaceable(sk_print(a, "%s/tokenizer", run)));
    int fd = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return sk_fail(SK_EIO, "%s: %s", run, strerror(errno));
    const char *tmp = sk_print(a, "%s%016" PRIx64, tmp_name, sk_folder_nonce());
    sweep(fd);
    if (empty(c)) sk_folder_sweep(fd, "tokenizer");
    else status = keep_new(a, fd, tmp, c);
    close(fd);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

const char *sk_companions_tokenizer(sk_arena *a, const char *tokenizer, const char *kept)
{
    if (!kept || !*tokenizer || !strcmp(tokenizer, "byte") || sk_is_there(tokenizer))
        return tokenizer;
    return sk_is_there(sk_print(a, "%s/tokenizer.json", kept)) ? kept : tokenizer;
}

/* ---- where texts end ---- */

static int add_ends(json_t *x, int64_t ids[SK_MOST_ENDS], int n)
{
    if (json_is_integer(x) && n < SK_MOST_ENDS) ids[n++] = json_integer_value(x);
    for (size_t i = 0; i < json_array_size(x); i++)
        if (n < SK_MOST_ENDS) ids[n++] = json_integer_value(json_array_get(x, i));
    return n;
}

int sk_companions_ends(const sk_companions *c, int64_t ids[SK_MOST_ENDS])
{
    json_t *own = c->ids[EOS] ? json_loads(c->ids[EOS], JSON_DECODE_ANY, NULL) : NULL;
    sk_text text = c->text[GENERATION];
    json_t *more = text.s ? json_loadb(text.s, text.n, 0, NULL) : NULL;
    int n = add_ends(own, ids, 0);
    n = add_ends(json_object_get(more, keys[EOS]), ids, n);
    json_decref(own);
    json_decref(more);
    return n;
}
