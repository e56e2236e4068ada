/* verify.c - `skein verify`: are these files complete and undamaged?
 *
 * Every byte is read.  A checkpoint is checked against its manifest, a tensor file
 * against its own header, a model directory against the model that its config
 * names: shapes, and numbers that must be finite.  Files that skein exported are
 * checked against checksums.json beside them; where there is none a flipped bit cannot
 * be seen, and the result says so. */
#include "base/file_io.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "tensor/safetensors.h"
#include "train/checkpoint.h"
#include "train/checksums.h"
#include "train/hf.h"
#include "train/hf_config.h"
#include "train/model_export.h"
#include "train/rundir.h"

#include <libgen.h>
#include <math.h>
#include <string.h>

enum { MOST = 256 };

static sk_status verify_file(sk_arena *a, const char *path, const char **what, bool *summed)
{
    sk_st f;
    SK_TRY(sk_st_open(a, path, &f));
    sk_st_close(&f);
    *what = sk_print(a, "safetensors, %d tensors, %s", f.n, sk_bytes(a, f.bytes));
    return sk_checksums_verify(dirname(sk_strdup(a, path)), basename(sk_strdup(a, path)), summed);
}

/* Reads each parameter whole, one at a time. */
static sk_status read_model(sk_arena *a, const char *dir, int *n)
{
    const sk_model *m;
    sk_hyper h;
    sk_hf_shape *shapes = NULL;
    SK_TRY(sk_hf_config(dir, &m, &h));
    SK_TRY(sk_hf_shapes_of(a, m, &h, &shapes, n));
    SK_TRY(sk_hf_check(dir, m, &h, shapes, *n, sk_all_chunks));
    for (int i = 0; i < *n; i++) {
        sk_mark mark = sk_arena_mark(a);
        sk_tensor_shard b = {.name = shapes[i].name, .n = (int)strlen(shapes[i].letters)};
        int64_t count = 1;
        for (int d = 0; d < b.n; d++) count *= b.size[d] = b.full[d] = shapes[i].full[d];
        float *x = sk_many(a, float, count);
        b.data = x;
        SK_TRY(sk_hf_load(dir, m, &h, shapes, *n, &b, 1));
        for (int64_t k = 0; k < count; k++)
            if (!isfinite(x[k]))
                return sk_fail(SK_ENUM, "%s: element %lld of '%s' is %g", dir, (long long)k, b.name,
                               (double)x[k]);
        sk_arena_back(a, mark);
    }
    return SK_OK;
}

static sk_status verify_model(sk_arena *a, const char *path, const char **what, bool *summed)
{
    int n = 0;
    SK_TRY(
        sk_checksums_verify(path, NULL, summed)); /* first: damage is not a mistake of the model */
    SK_TRY(read_model(a, path, &n));
    *what = sk_print(a, "model, %d parameters, all finite", n);
    return SK_OK;
}

/* The rows so far, and the first error. */
typedef struct checks {
    sk_table t;
    sk_status status;
    const char *report;
    int n_bad;
} checks;

static sk_status verify_checkpoint(sk_arena *a, const char *path, const char **what)
{
    sk_ckpt c;
    sk_extra x;
    SK_TRY(sk_rundir_verify(a, path, true, &c, &x));
    *what = "checkpoint, all checksums match";
    return SK_OK;
}

static void put(checks *c, const char *path, const char *verdict, const char *what)
{
    const char *cells[] = {path, verdict, what};
    sk_table_add(&c->t, cells);
}

static void bad(checks *c, const char *path, sk_status st)
{
    const char *report = sk_strdup(c->t.arena, sk_error_line());
    if (!c->n_bad++) c->status = st, c->report = report;
    put(c, path, "bad", report);
}

static void one(checks *c, const char *path);

/* A run: each of its checkpoints, and its final model. */
static sk_status verify_run(checks *c, const char *path)
{
    sk_arena *a = c->t.arena;
    int64_t *steps;
    int n = 0;
    const char *home = sk_print(a, "%s/ckpt", path), *final = sk_print(a, "%s/final", path);
    SK_TRY(sk_ckpt_list(a, home, &steps, &n));
    for (int i = 0; i < n; i++) one(c, sk_print(a, "%s/step-%010lld", home, (long long)steps[i]));
    if (sk_is_dir(final)) one(c, final);
    else if (!n)
        return sk_fail(SK_EDATA,
                       "%s: a run that has no checkpoint and no final/ so far: there is "
                       "nothing to check",
                       path);
    return SK_OK;
}

static void one(checks *c, const char *path)
{
    sk_arena *a = c->t.arena;
    sk_status st = SK_OK;
    const char *what = "";
    bool summed = true, run = false;
    if (sk_is_file(path)) st = verify_file(a, path, &what, &summed);
    else if (sk_is_file(sk_print(a, "%s/MANIFEST.json", path)))
        st = verify_checkpoint(a, path, &what);
    else if (sk_is_file(sk_print(a, "%s/config.json", path)))
        st = verify_model(a, path, &what, &summed);
    else if ((run = sk_is_dir(sk_print(a, "%s/ckpt", path)))) st = verify_run(c, path);
    else
        st = sk_fail(SK_EDATA, "%s: no checkpoint, run, model directory or tensor file is there",
                     path);
    if (st) bad(c, path, st);
    else if (!run) put(c, path, summed ? "good" : "not checksummed", what);
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    static const char *const head[] = {"path", "verdict", "what"};
    const char *words[MOST], *format = NULL;
    const sk_argv_option options[] = {{"-o", &format, false}, {0}};
    checks c = {.t = {.arena = a, .head = head, .n_cols = 3}};
    int n = 0;
    SK_TRY(sk_argv_words(a, argc, argv, options, words, MOST, &n));
    if (!n) return sk_fail(SK_EUSAGE, "verify: a file or directory is needed");
    for (int i = 0; i < n; i++) one(&c, words[i]);
    SK_TRY(sk_table_print(&c.t, format, stdout));
    if (c.n_bad > 1)
        return sk_fail(c.status, "%d of %d are bad, the first: %s", c.n_bad, c.t.rows.n, c.report);
    return c.n_bad ? sk_fail(c.status, "%s", c.report) : SK_OK;
}

const sk_cmd sk_cmd_verify = {
    .name = "verify",
    .doc = "check checkpoints, runs, models and tensor files",
    .help = "usage: skein verify PATH ... [-o csv|json|md]\n\n"
            "PATH is a checkpoint, a run (all its checkpoints and final/), a Hugging Face "
            "directory or a\n.safetensors file.  Each gets a line, in order, even if others are "
            "bad; where one is bad the\nexit code is that of the first, 65 for damage and 79 for "
            "numbers that are not finite.  A\nmodel without checksums.json, which skein writes "
            "beside what it exports, is read completely\nand called not checksummed.\n"
            "    skein verify runs/last\n",
    .run = run,
};
