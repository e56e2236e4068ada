/* conf.c - the table of keys, and what is done with it: set, check, print, help.  Keys of models
 * and optimizers are declared by the parts: conf_model.c, conf_knob.c. */
#include "cli/setting.h"
#include "data/data_files.h"
#include "layout/word.h"
#include "kernel/optim.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef enum kind { WHOLE, REAL, SECONDS, BYTES, EVERY, TEXT, LAYOUT, DTYPE } kind;

/* Defaults are text and go through the same door as what people write.  `one_of` lists the only
 * words a text may be.  on, off: what --key and --no-key mean; NULL: a value must be given. */
typedef struct key {
    const char *name;
    kind kind;
    size_t at, size;
    const char *usual, *doc;
    double least, most;
    const char *one_of, *on, *off;
    const char *knob; /* its default is that of the optimizer's knob (kernel/optim.h) */
    bool after_knobs; /* the keys that optimizers declare stand before this one */
} key;

#define KEY(key_name, key_kind, field, ...)                                \
    {                                                                      \
        .name = key_name, .kind = key_kind, .at = offsetof(sk_job, field), \
        .size = sizeof(((sk_job *)0)->field), __VA_ARGS__                  \
    }
#define USUAL(text, help)     .usual = text, .doc = help
#define FROM(lowest, highest) .least = lowest, .most = highest
#define HUGE_COUNT            1e15

static const key keys[] = {
    KEY("data.train", TEXT, data_train,
        USUAL("kjv", "file, directory, glob or known name (kjv, fashion-mnist)")),
    KEY("data.val", TEXT, data_val,
        USUAL("", "the same for validation; empty: data.train's own, or its end"), .off = ""),
    KEY("data.tokenizer", TEXT, data_tokenizer,
        USUAL("byte", "byte, or where tokenizer.json is; a model's directory has its own")),
    KEY("data.format", TEXT, data_format,
        USUAL("auto", "text: plain text, whatever it looks like; auto: by content and name"),
        .one_of = "auto text"),
    KEY("data.dtype", TEXT, data_dtype,
        USUAL("auto", "of token files without a header: uint16 or uint32; auto: by their ids"),
        .one_of = "auto uint16 uint32"),
    KEY("data.order", TEXT, data_order, USUAL("shuffle", "shuffle or sequential"),
        .one_of = "shuffle sequential"),
    KEY("data.val_fraction", REAL, data_val_fraction,
        USUAL("0.1", "how much of data.train is kept for validation"), FROM(0, 0.9), .off = "0"),
    KEY("data.changed", WHOLE, data_changed,
        USUAL("0", "1: resume although data.train is not what the checkpoint was trained on"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("train.steps", WHOLE, steps, USUAL("200", "steps of the optimizer"), FROM(1, HUGE_COUNT)),
    KEY("train.batch", WHOLE, batch, USUAL("12", "sequences per step, over all ranks"),
        FROM(1, 1e9)),
    KEY("train.seq", WHOLE, seq, USUAL("256", "tokens per sequence; fewer if the model has less"),
        FROM(1, 1e9)),
    KEY("train.micro_batch", WHOLE, micro_batch,
        USUAL("0", "sequences per micro-batch; 0: as the layout says"), FROM(0, 1e9)),
    KEY("train.dtype", DTYPE, dtype,
        USUAL("f32", "what results and weights are kept in: f32, bf16 or f16"),
        .one_of = "f32 bf16 f16"),
    KEY("train.matmul", TEXT, matmul,
        USUAL("same", "products with weights of blocks: same as train.dtype, or fp8"),
        .one_of = "same fp8"),
    KEY("train.nonfinite", TEXT, nonfinite,
        USUAL("stop", "a step without finite numbers: stop, skip it, or rollback"),
        .one_of = "stop skip rollback"),
    KEY("train.scratch", TEXT, scratch,
        USUAL("", "folder on a disk for what is offloaded to a file; the run directory if empty")),
    KEY("train.seed", WHOLE, seed, USUAL("1", "start values, dropout and data order follow"),
        FROM(0, 9e18)),
    KEY("train.threads", WHOLE, threads,
        USUAL("0", "per rank; 0: OMP_NUM_THREADS, or else the host's cores shared out"),
        FROM(0, 256)),
    KEY("train.time", SECONDS, time_limit,
        USUAL("0", "choose the steps to take about 90, 90s, 2m or 1h; 0: train.steps"),
        FROM(0, 1e9), .off = "0"),
    KEY("train.relayout", TEXT, relayout,
        USUAL("", "another layout from a step on: \"100: dp=2 tp=2, 200: dp=4\""), .off = ""),
    KEY("train.dropless", WHOLE, dropless,
        USUAL("0", "1: a step in which an expert was full is run again with room for all"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("optim.name", TEXT, optim_name, USUAL("adamw", "an optimizer: skein list optim")),
    KEY("optim.state", DTYPE, state_dtype,
        USUAL("f32", "what the optimizer's state is kept in: f32, or bf16, rounded by lot"),
        .one_of = "f32 bf16"),
    KEY("optim.lr", REAL, lr, USUAL("1e-3", "learning rate at its peak"), FROM(0, 1e6),
        .knob = "lr"),
    KEY("optim.min_lr", REAL, min_lr, USUAL("0", "learning rate at the end"), FROM(0, 1e6)),
    KEY("optim.clip", REAL, clip, USUAL("1", "the largest norm of all gradients; 0: any"),
        FROM(0, 1e9), .off = "0", .after_knobs = true),
    KEY("optim.late", WHOLE, late,
        USUAL("0", "1: a step's update runs beside the next step, on the host (offload=state)"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("optim.schedule", TEXT, schedule, USUAL("cosine", "constant, cosine or linear"),
        .one_of = "constant cosine linear"),
    KEY("optim.warmup", WHOLE, warmup, USUAL("10", "steps to the peak"), FROM(0, HUGE_COUNT),
        .off = "0"),
    KEY("layout", LAYOUT, layout,
        USUAL("", "words (skein help layout), lines, or a file; empty: dp=RANKS")),
    KEY("device", TEXT, device,
        USUAL("cpu", "cpu, or cuda: a GPU of this host for each rank; cuda:1: that one")),
    KEY("budget", BYTES, budget,
        USUAL("0", "bytes a rank may take: recomputation and sharding make it fit; 0: any"),
        FROM(0, 1e18), .off = "0"),
    KEY("comm.algorithm", TEXT, algorithm,
        USUAL("auto", "of all collectives: skein list coll; auto: by cost")),
    KEY("comm.timeout", SECONDS, timeout,
        USUAL("0", "longest wait for a rank; 0: from the price of a step"), FROM(0, 1e9),
        .off = "0"),
    KEY("order", TEXT, order, USUAL("fast", "fast, or canonical: the same bits on any layout"),
        .one_of = "fast canonical"),
    KEY("ranks", WHOLE, ranks, USUAL("1", "processes on this host; also -n"), FROM(1, 1 << 20)),
    KEY("run", TEXT, run, USUAL("", "the run directory; empty: runs/<time>-<name>")),
    KEY("resume", TEXT, resume, USUAL("", "a checkpoint; auto: the newest of the run"),
        .on = "auto", .off = ""),
    KEY("ckpt.every", EVERY, ckpt_every,
        USUAL("10m", "time (10m; costs at most 1 % of the run) or steps; 0: only at the end"),
        FROM(0, HUGE_COUNT), .off = "0"),
    KEY("ckpt.keep", WHOLE, ckpt_keep, USUAL("2", "how many checkpoints stay; 0: all"),
        FROM(0, HUGE_COUNT)),
    KEY("log.every", WHOLE, log_every, USUAL("-1", "steps; 0: never, -1: chosen"),
        FROM(-1, HUGE_COUNT), .off = "0"),
    KEY("log.trace", WHOLE, trace, USUAL("0", "1: write trace.json, the last step of all ranks"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("val.every", WHOLE, val_every, USUAL("-1", "steps; 0: never, -1: chosen"),
        FROM(-1, HUGE_COUNT), .off = "0"),
    KEY("val.batches", WHOLE, val_batches, USUAL("-1", "batches per validation; -1: chosen"),
        FROM(-1, HUGE_COUNT)),
    KEY("sample.every", WHOLE, sample_every, USUAL("-1", "steps; 0: never, -1: chosen"),
        FROM(-1, HUGE_COUNT), .off = "0"),
    KEY("sample.prompt", TEXT, sample_prompt, USUAL("In the beginning", "what samples begin with")),
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static const key *find(const char *name)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].name, name)) return &keys[i];
    return NULL;
}

bool sk_conf_is_key(const char *name)
{
    return find(name) || sk_conf_knob(name) || !strcmp(name, "model") ||
           (!strncmp(name, "model.", 6) && name[6]);
}

bool sk_conf_is_section(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < N_KEYS; i++)
        if (!strncmp(keys[i].name, name, n) && keys[i].name[n] == '.') return true;
    return false;
}

const char *sk_conf_on(const char *name)
{
    const key *k = find(name);
    const sk_knob *own = k ? NULL : sk_conf_knob(name);
    return k ? k->on : own ? sk_conf_knob_on(own) : NULL;
}

const char *sk_conf_off(const char *name)
{
    const key *k = find(name);
    if (!k && !strncmp(name, "model.", 6)) return "false";
    const sk_knob *own = k ? NULL : sk_conf_knob(name);
    return k ? k->off : own ? sk_conf_knob_off(own) : NULL;
}

const char *sk_conf_name(sk_arena *a, int i)
{
    return i < N_KEYS ? keys[i].name : sk_conf_knob_name(a, i - N_KEYS);
}

const char *sk_setting_where(sk_arena *a, const sk_setting *s, bool value)
{
    sk_spot at = value ? s->value_at : s->key_at;
    if (!s->file) return "command line";
    return *s->file ? sk_print(a, "%s:%d:%d", s->file, at.line, at.column) : "default";
}

const sk_setting *sk_setting_find(const sk_settings *s, const char *name)
{
    for (int i = s->n; i-- > 0;)
        if (!strcmp(s->v[i].key, name)) return &s->v[i];
    return NULL;
}

/* ---- setting one key */

const char *sk_conf_range(sk_arena *a, double least, double most)
{
    return sk_print(a, "from %.10g to %.10g", least, most);
}

bool sk_conf_has_unit(const char *s)
{
    while (*s && !(*s >= '0' && *s <= '9' && s[1] && strchr("kmgtKMGTB", s[1]))) s++;
    return *s;
}

static sk_status wrong(sk_arena *a, const key *k, const sk_setting *s)
{
    static const char *const what[] = {"a whole number", "a number", "a time (90, 90s, 2m, 1h)",
                                       "bytes (8GiB, 500M)",
                                       "a time (90s, 10m, 1h) or a number of steps"};
    return sk_fail(sk_setting_code(s), "%s: %s is \"%.80s\"; %s %s is needed%s",
                   sk_setting_where(a, s, true), k->name, s->value, what[k->kind],
                   sk_conf_range(a, k->least, k->most),
                   k->kind == REAL && sk_conf_has_unit(s->value) ? sk_conf_no_units : "");
}

static bool inside(const key *k, double x) { return x >= k->least && x <= k->most; }

static bool set_whole(const key *k, const char *value, void *to)
{
    int64_t x = 0;
    if (!sk_read_int(value, &x) || !inside(k, (double)x)) return false;
    memcpy(to, &x, sizeof x); /* seed is unsigned, but never negative */
    return true;
}

static bool set_real(const key *k, const char *value, double *to)
{
    double x = 0;
    if (!sk_read_plain(value, &x) || !inside(k, x)) return false;
    *to = x;
    return true;
}

/* "8GiB", "500MB", "64Mi", "1e9" */
static bool set_bytes(const key *k, const char *value, void *to)
{
    char number[64];
    size_t n = strlen(value);
    if (n >= sizeof number) return false;
    memcpy(number, value, n + 1);
    if (n > 1 && number[n - 1] == 'B') number[n - 1] = 0;
    return set_whole(k, number, to);
}

static bool set_seconds(const key *k, const char *value, double *to)
{
    char word[32];
    size_t n = strlen(value);
    double unit = 1, x = 0;
    if (!n || n >= sizeof word) return false;
    memcpy(word, value, n + 1);
    if (strchr("smh", word[n - 1])) {
        unit = word[n - 1] == 's' ? 1 : word[n - 1] == 'm' ? 60 : 3600;
        word[n - 1] = 0;
    }
    if (!sk_read_plain(word, &x) || !inside(k, x * unit)) return false;
    *to = x * unit;
    return true;
}

/* "10m" is a time, "10" are steps. */
static bool set_every(const key *k, const char *value, sk_every *to)
{
    size_t n = strlen(value);
    *to = (sk_every){0};
    if (n && strchr("smh", value[n - 1])) return set_seconds(k, value, &to->seconds);
    return set_whole(k, value, &to->steps);
}

bool sk_conf_among(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)) && n; p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
    return false;
}

static sk_status set_text(sk_arena *a, const key *k, const sk_setting *s, const char *value,
                          char *to)
{
    if (k->one_of && !sk_conf_among(k->one_of, value))
        return sk_fail(sk_setting_code(s), "%s: %s is \"%.80s\"; needed is one of: %s",
                       sk_setting_where(a, s, true), k->name, value, k->one_of);
    if (strlen(value) >= k->size)
        return sk_fail(sk_setting_code(s), "%s: %s has %zu bytes, at most %zu fit",
                       sk_setting_where(a, s, true), k->name, strlen(value), k->size - 1);
    memset(to, 0, k->size);
    memcpy(to, value, strlen(value));
    return SK_OK;
}

/* A layout that is one word and a file means the lines of the file. */
static sk_status set_layout(sk_arena *a, const key *k, const sk_setting *s, char *to)
{
    sk_text text = {0};
    if (strpbrk(s->value, " =\n") || !sk_is_file(s->value)) return set_text(a, k, s, s->value, to);
    SK_TRY(sk_data_read(a, s->value, SK_LAYOUT_TEXT, &text));
    if (sk_utf8_span(text.s, text.n) != text.n || memchr(text.s, 0, text.n))
        return sk_fail(SK_ECONF, "%s: a layout is plain text", s->value);
    while (text.n && text.s[text.n - 1] == '\n') text.n--;
    return set_text(a, k, s, sk_print(a, "%.*s", (int)text.n, text.s), to);
}

static sk_status set_dtype(sk_arena *a, const key *k, const sk_setting *s, sk_dtype *to)
{
    sk_dtype t = SK_F32;
    if (!sk_dtype_find(s->value, &t) || !sk_conf_among(k->one_of, sk_dtype_name(t)))
        return sk_fail(sk_setting_code(s), "%s: %s is \"%.80s\"; needed is one of: %s",
                       sk_setting_where(a, s, true), k->name, s->value, k->one_of);
    *to = t;
    return SK_OK;
}

/* "resume: no" and "optim.clip: off" are said like this in YAML. */
static const char *switched(const key *k, const char *value)
{
    if (k->off && sk_conf_among("no off false", value)) return k->off;
    if (k->on && sk_conf_among("yes on true", value)) return k->on;
    return value;
}

static sk_status set(sk_arena *a, const key *k, sk_setting s, sk_job *job)
{
    void *to = (char *)job + k->at;
    bool ok = true;
    s.value = switched(k, s.value);
    switch (k->kind) {
    case WHOLE:
        ok = set_whole(k, s.value, to);
        break;
    case REAL:
        ok = set_real(k, s.value, to);
        break;
    case SECONDS:
        ok = set_seconds(k, s.value, to);
        break;
    case BYTES:
        ok = set_bytes(k, s.value, to);
        break;
    case EVERY:
        ok = set_every(k, s.value, to);
        break;
    case TEXT:
        return set_text(a, k, &s, s.value, to);
    case LAYOUT:
        return set_layout(a, k, &s, to);
    case DTYPE:
        return set_dtype(a, k, &s, to);
    }
    return ok ? SK_OK : sk_trail(wrong(a, k, &s), SK_HERE);
}

/* ---- the whole job */

/* train.steps and train.time say how long in two ways: steps of the command line win over a time of
 * the file, and on the command line only one of them can be meant.  A file may have both, as
 * config.yaml has: there the time is what was asked for. */
static sk_status how_long(const sk_settings *s, sk_job *job)
{
    const sk_setting *steps = sk_setting_find(s, "train.steps");
    const sk_setting *time = sk_setting_find(s, "train.time");
    if (!steps || steps->file || !time || job->time_limit <= 0) return SK_OK;
    if (!time->file)
        return sk_fail(sk_setting_code(time),
                       "train.steps is %s and train.time is %s; leave one of them out",
                       steps->value, time->value);
    job->time_limit = 0;
    return SK_OK;
}

/* Defaults that depend on other keys. */
static sk_status complete(sk_arena *a, const sk_settings *s, sk_job *job)
{
    int64_t places = job->hyper.max_position_embeddings, window = job->hyper.sliding_window;
    if (window && (!places || window < places)) places = window;
    SK_TRY(sk_conf_knobs(a, s, job));
    SK_TRY(how_long(s, job));
    if (!sk_setting_find(s, "train.seq")) {
        if (places && places < job->seq) job->seq = places;
        if (job->hyper.input_size) job->seq = 1; /* images: a sample is a row */
    }
    if (!sk_setting_find(s, "data.tokenizer") && *job->model_dir) {
        bool own = sk_data_has(job->model_dir, "tokenizer.json");
        snprintf(job->data_tokenizer, sizeof job->data_tokenizer, "%s",
                 own ? job->model_dir : "none");
    }
    if (!*job->layout && job->ranks > 1)
        snprintf(job->layout, sizeof job->layout, "dp=%lld", (long long)job->ranks);
    if (places && job->hyper.rope_theta == 0 && job->seq > places)
        return sk_fail(SK_ECONF,
                       "train.seq is %lld, but the model has %lld positions; lower train.seq or "
                       "raise model.max_position_embeddings",
                       (long long)job->seq, (long long)places);
    if (job->micro_batch > job->batch)
        return sk_fail(SK_ECONF, "train.micro_batch is %lld, more than train.batch, which is %lld",
                       (long long)job->micro_batch, (long long)job->batch);
    if (job->min_lr > job->lr)
        return sk_fail(SK_ECONF, "optim.min_lr is %g, more than optim.lr, which is %g", job->min_lr,
                       job->lr);
    if (!*job->data_train)
        return sk_fail(SK_ECONF, "data.train is empty; a file or name is needed");
    return SK_OK;
}

/* All that is said, and every key that needs no model. */
static sk_status read_keys(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest,
                           sk_settings *all)
{
    sk_settings words = {0};
    const char *file = NULL;
    memset(job, 0, sizeof *job); /* padding too: jobs are compared and hashed whole */
    SK_TRY(sk_conf_args(a, argc, argv, &words, rest, &file));
    if (rest && rest->help) return SK_OK;
    if (file) {
        if (strlen(file) >= sizeof job->source) return sk_fail(SK_EUSAGE, "a too long file name");
        snprintf(job->source, sizeof job->source, "%s", file);
        SK_TRY(sk_conf_yaml(a, file, all));
    }
    for (int i = 0; i < words.n; i++) *sk_push(a, all) = words.v[i];
    for (int i = 0; i < N_KEYS; i++)
        SK_TRY(set(a, &keys[i], (sk_setting){keys[i].name, keys[i].usual, .file = ""}, job));
    for (int i = 0; i < all->n; i++) {
        const key *k = find(all->v[i].key);
        if (k) SK_TRY(set(a, k, all->v[i], job));
    }
    return SK_OK;
}

sk_status sk_conf_keys(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest)
{
    sk_settings all = {0};
    return read_keys(a, argc, argv, job, rest, &all);
}

/* The caller brings a graph. */
static sk_status no_model(sk_arena *a, const sk_settings *all)
{
    for (int i = 0; i < all->n; i++) {
        const sk_setting *s = &all->v[i];
        if (!strcmp(s->key, "model") || !strncmp(s->key, "model.", 6))
            return sk_fail(sk_setting_code(s),
                           "%s: %s is given beside a graph, which is the model; leave it out",
                           sk_setting_where(a, s, false), s->key);
    }
    return SK_OK;
}

sk_status sk_conf_load(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest)
{
    sk_settings all = {0};
    SK_TRY(read_keys(a, argc, argv, job, rest, &all));
    if (rest && rest->help) return SK_OK;
    SK_TRY(rest && rest->own_graph ? no_model(a, &all) : sk_conf_model(a, &all, job));
    return complete(a, &all, job);
}

const char *sk_conf_option(const sk_conf_rest *rest, const char *name)
{
    for (int i = rest->n_given; i-- > 0;)
        if (!strcmp(rest->given[i].name, name)) return rest->given[i].value;
    return NULL;
}

/* ---- printing */

/* One character of good UTF-8 and its length. */
static unsigned decode(const char *s, int *n)
{
    const unsigned char *p = (const unsigned char *)s;
    *n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    unsigned c = *n == 1 ? *p : *p & (0xffu >> (*n + 1));
    for (int i = 1; i < *n; i++) c = c << 6 | (p[i] & 0x3f);
    return c;
}

/* Signs that YAML gives a meaning or refuses (controls, marks, odd spaces) are escaped. */
char *sk_conf_quote(sk_arena *a, const char *s)
{
    static const char easy[] = "abcdefghijklmnopqrstuvwxyz_/ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    static const char words[] = "null true false yes no on off True False Null";
    sk_out o = {.arena = a};
    if (*s && strspn(s, easy) == strlen(s) && !strchr("0123456789.-", *s) &&
        !sk_conf_among(words, s))
        return sk_strdup(a, s);
    sk_out_add(&o, "\"");
    for (int n = 0; *s; s += n) {
        unsigned c = decode(s, &n);
        if (c == '"' || c == '\\') sk_out_add(&o, "\\%c", (int)c);
        else if ((c >= 0x20 && c < 0x7f) || (c > 0xa0 && c < 0x2000) || (c > 0x3000 && c < 0xd800))
            sk_out_add(&o, "%.*s", n, s);
        else sk_out_add(&o, "\\U%08x", c);
    }
    sk_out_add(&o, "\"");
    return o.s;
}

char *sk_conf_real(sk_arena *a, double x)
{
    for (int digits = 6; digits < 17; digits++) {
        double back = 0;
        char *s = sk_print(a, "%.*g", digits, x);
        if (sk_read_real(s, &back) && back == x) return s;
    }
    return sk_print(a, "%.17g", x);
}

/* A layout of several lines is a list. */
static void print_layout(sk_out *o, const char *text)
{
    if (!strchr(text, '\n')) {
        sk_out_add(o, " %s\n", sk_conf_quote(o->arena, text));
        return;
    }
    sk_out_add(o, "\n");
    for (const char *line = text; line;) {
        const char *end = strchr(line, '\n');
        int n = end ? (int)(end - line) : (int)strlen(line);
        sk_out_add(o, "  - %s\n", sk_conf_quote(o->arena, sk_print(o->arena, "%.*s", n, line)));
        line = end ? end + 1 : NULL;
    }
}

static void print_every(sk_out *o, const sk_every *e)
{
    if (e->seconds > 0) sk_out_add(o, " %ss\n", sk_conf_real(o->arena, e->seconds));
    else sk_out_add(o, " %lld\n", (long long)e->steps);
}

static void print_key(sk_out *o, const key *k, const sk_job *job)
{
    const void *from = (const char *)job + k->at;
    const double *x = from;
    sk_arena *a = o->arena;
    switch (k->kind) {
    case WHOLE:
    case BYTES:
        sk_out_add(o, " %lld\n", (long long)*(const int64_t *)from);
        break;
    case REAL:
    case SECONDS:
        sk_out_add(o, " %s\n", sk_conf_real(a, *x));
        break;
    case EVERY:
        print_every(o, from);
        break;
    case TEXT:
        sk_out_add(o, " %s\n", sk_conf_quote(a, from));
        break;
    case LAYOUT:
        print_layout(o, from);
        break;
    case DTYPE:
        sk_out_add(o, " %s\n", sk_dtype_name(*(const sk_dtype *)from));
        break;
    }
}

char *sk_conf_print(sk_arena *a, const sk_job *job)
{
    sk_out o = {.arena = a};
    size_t section = 0; /* length of the name of the open one */
    sk_conf_model_print(&o, job);
    for (int i = 0; i < N_KEYS; i++) {
        const char *name = keys[i].name, *dot = strchr(name, '.');
        size_t n = dot ? (size_t)(dot - name) : 0;
        if (n && (n != section || !i || strncmp(name, keys[i - 1].name, n + 1)))
            sk_out_add(&o, "%.*s:\n", (int)n, name);
        section = n;
        if (keys[i].after_knobs) sk_conf_knobs_print(&o, job);
        sk_out_add(&o, "%s%s:", n ? "  " : "", n ? dot + 1 : name);
        print_key(&o, &keys[i], job);
    }
    return o.s;
}

static void help_line(sk_out *o, const key *k)
{
    sk_conf_help_line(o, k->name, k->doc,
                      k->knob ? sk_conf_knob_default(o->arena, k->knob) : k->usual);
}

static bool is_below(const char *name, const char *section)
{
    size_t n = strlen(section);
    return !strncmp(name, section, n) && (!name[n] || name[n] == '.' || !n);
}

/* Of a key, of a section, or ("") of all. */
static void help_lines(sk_out *o, const char *name)
{
    for (int i = 0; i < N_KEYS; i++) {
        for (int k = 0; keys[i].after_knobs && sk_conf_knob_name(o->arena, k); k++)
            if (is_below(sk_conf_knob_name(o->arena, k), name)) sk_conf_knob_help(o, k);
        if (is_below(keys[i].name, name)) help_line(o, &keys[i]);
    }
}

static const char model_help[] =
    "  model                a preset, a directory with config.json (preset:X and ./X where\n"
    "                       both are there), or names such as\n"
    "                       model.hidden_size=128 (nano)\n";

static void word_lines(sk_out *o, const sk_word *w)
{
    const char *spell = sk_word_spell(o->arena, w);
    bool wide = strlen(spell) > 20;
    sk_out_add(o, "  %-*s%s%-*s%s\n", wide ? 0 : 21, spell, wide ? "\n" : "", wide ? 23 : 0, "",
               w->doc);
    sk_out_add(o, "%-23s%s\n", "", sk_word_about(o->arena, w));
    sk_out_add(o, "%-23sas in layout=\"%s\"\n", "", w->example);
}

/* A word of a layout, or all of them. */
static void layout_help(sk_out *o, const char *name)
{
    bool all = !strcmp(name, "layout");
    size_t n = strcspn(name, "="); /* zero=3: zero */
    for (const sk_word *const *w = sk_word_parts; *w; w++)
        if (all || (!strncmp((*w)->name, name, n) && !(*w)->name[n])) word_lines(o, *w);
    if (all) sk_out_add(o, "The long form, and what goes with what: doc/layout.md\n");
}

char *sk_conf_help_on(sk_arena *a, const char *name)
{
    sk_out o = {.arena = a};
    bool model = !strncmp(name, "model", 5) && (!name[5] || name[5] == '.');
    if (model) sk_out_add(&o, "%s", model_help);
    if (model && !name[5]) sk_conf_model_help(&o);
    help_lines(&o, name);
    layout_help(&o, name);
    return o.s;
}

char *sk_conf_help(sk_arena *a, const sk_option *options)
{
    sk_out o = {.arena = a};
    if (options && options->name) sk_out_add(&o, "options:\n");
    for (const sk_option *p = options; p && p->name; p++)
        sk_out_add(&o, "  %s%-20s %s\n", p->name[1] ? "--" : "-", p->name, p->doc);
    sk_out_add(&o, "keys (key=value, --key=value, or in FILE.yaml):\n%s", model_help);
    help_lines(&o, "");
    return o.s;
}
