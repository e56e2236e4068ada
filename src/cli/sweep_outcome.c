/* sweep_outcome.c - DIR/outcome: how a job ended, written by the job as its last act, and what its
 * files are held to from then on.
 *
 *     0                           exit code
 *                                 error report, one line
 *     412 8a1b22ff                bytes of metrics.jsonl, and their CRC-32C
 *     final 0123456789abcdef      of the model that it left: hash of final/checksums.json
 *     model 0123456789abcdef      of the model that it began with, model=DIR
 *
 * The last two are there if the models have checksums.  An outcome with the bytes alone is read
 * too: nothing is known of the rest. */
#include "base/file_io.h"
#include "base/hash.h"
#include "cli/sweep.h"
#include "train/checksums.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
    int64_t bytes;
    bool summed;
    uint32_t crc;
} record;

uint64_t sk_sweep_model_sum(sk_arena *a, const char *model)
{
    const char *path = sk_print(a, "%s/" SK_CHECKSUMS_FILE, model);
    sk_text t;
    if (!*model || !sk_is_there(path)) return 0;
    if (sk_file_read(a, path, &t)) {
        sk_error_set(""); /* what cannot be read is not what was there */
        return 1;
    }
    uint64_t sum = sk_hash(SK_HASH_SEED, t.s, t.n);
    return sum > 1 ? sum : 2;
}

/* ---- writing */

static void add_sum(sk_out *o, const char *what, const char *model)
{
    uint64_t sum = sk_sweep_model_sum(o->arena, model);
    if (sum) sk_out_add(o, "%s %016" PRIx64 "\n", what, sum);
}

void sk_sweep_outcome(const sk_sweep_job *j, sk_status code, const char *why)
{
    sk_arena a = {0};
    sk_out o = {.arena = &a};
    sk_text t = {.s = "", .n = 0};
    if (sk_file_read(&a, sk_print(&a, "%s/metrics.jsonl", j->dir), &t)) sk_error_set("");
    sk_out_add(&o, "%d\n%.*s\n%zu %08" PRIx32 "\n", (int)code, (int)strcspn(why, "\n"), why, t.n,
               sk_crc32c(0, t.s, t.n));
    add_sum(&o, "final", sk_print(&a, "%s/final", j->dir));
    add_sum(&o, "model", j->job->model_dir);
    /* Without one the job counts as broken and is started again: there is nobody to tell. */
    if (sk_file_replace(sk_print(&a, "%s/outcome", j->dir), o.s, o.n)) sk_error_set("");
    sk_arena_end(&a);
}

/* ---- reading */

/* "WORD 0123456789abcdef" at *s, which moves behind it; 0: another line is there. */
static uint64_t read_sum(const char **s, const char *word)
{
    size_t n = strlen(word);
    char *end = NULL;
    if (strncmp(*s, word, n) != 0) return 0;
    uint64_t sum = strtoull(*s + n, &end, 16);
    if (end != *s + n + 16 || *end != '\n') return 0;
    *s = end + 1;
    return sum;
}

/* False: the text is not that of an outcome. */
static bool parse(sk_sweep *s, sk_sweep_job *j, const char *text, record *out)
{
    char *end = NULL;
    long code = strtol(text, &end, 10);
    if (end == text || *end != '\n' || code < 0 || code > 255) return false;
    const char *why = end + 1;
    size_t n = strcspn(why, "\n");
    if (!why[n]) return false;
    const char *number = why + n + 1;
    out->bytes = strtoll(number, &end, 10);
    if (end == number || out->bytes < 0) return false;
    out->summed = *end == ' ';
    if (out->summed) {
        number = end + 1;
        out->crc = (uint32_t)strtoul(number, &end, 16);
        if (end != number + 8) return false;
    }
    if (*end != '\n') return false;
    const char *rest = end + 1;
    j->final_sum = read_sum(&rest, "final ");
    j->model_sum = read_sum(&rest, "model ");
    if (*rest) return false;
    j->ended = true;
    j->code = (sk_status)code;
    j->why = sk_print(s->arena, "%.*s", (int)n, why);
    return true;
}

/* ---- files of a job that is done */

static void damaged(sk_sweep *s, sk_sweep_job *j, const char *what, const char *bring)
{
    j->damaged = true;
    j->code = SK_EDATA;
    j->why = sk_print(s->arena, "%s/%s; bring %s back, or remove %s to train the job again", j->dir,
                      what, bring, j->dir);
}

/* The losses are in metrics.jsonl alone.  Of a model that was validated it never grows. */
static void check_losses(sk_sweep *s, sk_sweep_job *j, const record *r, sk_text t)
{
    bool grown = (int64_t)t.n > r->bytes && sk_job_validates_only(j->job);
    if (!t.n || (int64_t)t.n < r->bytes || grown)
        damaged(s, j,
                sk_print(s->arena, "metrics.jsonl has %zu bytes, and %lld were written: losses %s",
                         t.n, (long long)r->bytes, grown ? "were added" : "are lost"),
                "the file");
    else if (r->summed && sk_crc32c(0, t.s, (size_t)r->bytes) != r->crc)
        damaged(s, j,
                sk_print(s->arena,
                         "metrics.jsonl is damaged, or was changed: the sum of its first %lld "
                         "bytes is %08" PRIx32 ", and %08" PRIx32 " was written",
                         (long long)r->bytes, sk_crc32c(0, t.s, (size_t)r->bytes), r->crc),
                "the file");
}

static int64_t last_step(const sk_curve *c)
{
    return c->train.n ? c->train.v[c->train.n - 1].step : 0;
}

/* Was the job trained further, by hand?  Then there are more steps, and another model.  Other lines
 * behind those of the job are not of its curve: a validation by hand, a training that did not end,
 * or lines that no training wrote. */
static bool went_further(sk_sweep *s, sk_sweep_job *j, const record *r, sk_text t)
{
    sk_curve own;
    sk_curve_lines(s->arena, (sk_text){.s = t.s, .n = (size_t)r->bytes}, &own);
    uint64_t is = sk_sweep_model_sum(s->arena, sk_print(s->arena, "%s/final", j->dir));
    bool other = !j->final_sum || (is && is != j->final_sum);
    if (other && last_step(&j->curve) > last_step(&own)) return true;
    j->curve = own;
    return false;
}

/* Its bytes are not read: a sweep may have thousands of models. */
static void check_model(sk_sweep *s, sk_sweep_job *j, bool further)
{
    const char *model = sk_print(s->arena, "%s/final", j->dir);
    if (sk_job_validates_only(j->job)) return;
    if (!sk_is_file(sk_print(s->arena, "%s/config.json", model)))
        damaged(s, j, "final/config.json is not there: the model of the job is lost", "final/");
    else if (j->final_sum && !further && j->final_sum != sk_sweep_model_sum(s->arena, model))
        damaged(s, j, "final/ is not the model that the job left", "that model");
    else if (sk_checksums_check_sizes(model)) {
        const char *why = sk_error_line();
        size_t n = strlen(j->dir) + 1;
        damaged(s, j, strncmp(why, model, strlen(model)) ? why : why + n, "final/");
        sk_error_set("");
    }
}

/* The outcome before the curve: one that is there is of a curve that is complete. */
static sk_status read_record(sk_sweep *s, sk_sweep_job *j, record *out)
{
    const char *path = sk_print(s->arena, "%s/outcome", j->dir);
    sk_text t = {0};
    if (!sk_is_there(path)) return SK_OK;
    SK_TRY(sk_file_read(s->arena, path, &t));
    if (strlen(t.s) == t.n && parse(s, j, t.s, out)) return SK_OK;
    return sk_fail(SK_EDATA, "%s is not the outcome of a job; remove it", path);
}

sk_status sk_sweep_read_outcome(sk_sweep *s, sk_sweep_job *j)
{
    const char *path = sk_print(s->arena, "%s/metrics.jsonl", j->dir);
    record r = {0};
    sk_text t = {.s = "", .n = 0};
    j->final_sum = j->model_sum = 0;
    SK_TRY(read_record(s, j, &r));
    if (sk_is_there(path)) SK_TRY(sk_file_read(s->arena, path, &t));
    sk_curve_lines(s->arena, t, &j->curve);
    if (!j->ended || j->code) return SK_OK;
    check_losses(s, j, &r, t);
    if (j->damaged) return SK_OK;
    bool further = went_further(s, j, &r, t);
    if (!j->curve.train.n && !j->curve.val.n)
        damaged(s, j, "metrics.jsonl is damaged: it has no losses", "the file");
    else check_model(s, j, further);
    return SK_OK;
}
