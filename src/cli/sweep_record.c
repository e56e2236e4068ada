/* sweep_record.c - what the directory of a sweep keeps, and reading it again. */
#include "cli/sweep.h"
#include "base/file_io.h"
#include "tensor/strict.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const sk_strict limits = {.depth = 3, .objects = 4096, .values = 65536};
enum { MOST_BYTES = 1 << 20 };

/* ---- states */

bool sk_sweep_done(const sk_sweep_job *j) { return j->ended && !j->code; }

bool sk_sweep_finished(const sk_sweep_job *j)
{
    return !j->job || j->damaged || (j->ended && (!j->code || j->code == SK_ENUM));
}

const char *sk_sweep_state(const sk_sweep_job *j)
{
    if (j->damaged) return "damaged";
    if (!j->ended) return j->running ? "running" : j->begun ? "broken" : "waiting";
    switch (j->code) {
    case SK_OK:
        return "done";
    case SK_ENUM:
        return "diverged";
    case SK_ESTOP:
        return "stopped";
    case SK_EUSAGE:
    case SK_EDATA:
    case SK_ECONF:
        return "refused";
    default:
        return "failed";
    }
}

/* ---- sweep.json */

sk_status sk_sweep_save(const sk_sweep *s)
{
    sk_out o = {.arena = s->arena};
    sk_out_add(&o, "{\"format\": \"skein-sweep\", \"version\": 1,\n \"words\": [");
    for (int i = 0; i < s->n_said; i++) {
        if (i) sk_out_add(&o, ",\n  ");
        sk_strict_quote(&o, s->said[i]);
    }
    sk_out_add(&o, "]}\n");
    return sk_file_replace(sk_print(s->arena, "%s/sweep.json", s->dir), o.s, o.n);
}

static sk_status read_words(sk_arena *a, const char *command, const char *path, json_t *root,
                            char ***words, int *n)
{
    json_t *list = json_object_get(root, "words");
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, sk_print(a, "skein-%s", command)) || !json_is_array(list))
        return sk_fail(SK_EDATA, "%s is not the file of a %s", path, command);
    json_t *version = json_object_get(root, "version");
    if (!json_is_integer(version) || json_integer_value(version) != 1)
        return sk_fail(SK_EDATA,
                       "%s: \"version\" is not 1, the only one that this skein reads: the file is "
                       "damaged, or a newer skein wrote it",
                       path);
    *n = (int)json_array_size(list);
    *words = sk_many(a, char *, *n + 1);
    for (int i = 0; i < *n; i++) {
        const char *word = json_string_value(json_array_get(list, (size_t)i));
        if (!word) return sk_fail(SK_EDATA, "%s: one of its words is no text", path);
        (*words)[i] = sk_strdup(a, word);
    }
    return SK_OK;
}

sk_status sk_sweep_recall(sk_arena *a, const char *command, const char *dir, char ***words, int *n)
{
    const char *path = sk_print(a, "%s/%s.json", dir, command);
    sk_text t;
    json_t *root = NULL;
    if (!sk_is_there(path))
        return sk_fail(SK_EUSAGE,
                       "%s: there is no %s to go on with; give the keys of a new one: skein %s "
                       "--help",
                       command, path, command);
    SK_TRY(sk_file_read(a, path, &t));
    if (t.n > MOST_BYTES) return sk_fail(SK_EDATA, "%s is not the file of a %s", path, command);
    SK_TRY(sk_strict_json(path, t.s, t.n, &limits, &root));
    sk_status st = read_words(a, command, path, root, words, n);
    json_decref(root);
    return st;
}

/* ---- console.log */

void sk_sweep_streams(const char *dir)
{
    sk_arena a = {0};
    int log = -1, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, 0);
    if (!sk_file_own(sk_print(&a, "%s/console.log", dir), O_TRUNC | O_APPEND, &log)) {
        flock(log, LOCK_EX | LOCK_NB);
        dup2(log, 1);
        dup2(log, 2);
        close(log);
    }
    sk_arena_end(&a);
}

static bool is_running(sk_sweep *s, const sk_sweep_job *j)
{
    int fd = open(sk_print(s->arena, "%s/console.log", j->dir), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return locked;
}

/* ---- a job as it is now */

sk_status sk_sweep_look(sk_sweep *s, sk_sweep_job *j)
{
    j->loss = j->val = NAN;
    if (!j->job) return SK_OK;
    j->ended = j->running = j->damaged = false;
    j->code = SK_OK;
    j->why = "";
    j->begun = sk_is_dir(j->dir);
    if (!j->begun) return SK_OK;
    SK_TRY(sk_sweep_read_outcome(s, j));
    j->running = !j->ended && is_running(s, j);
    if (j->damaged) return SK_OK; /* losses of another step than the last */
    j->loss = sk_curve_loss(&j->curve);
    j->val = sk_curve_val(&j->curve);
    return SK_OK;
}

/* ---- job.yaml */

/* The first line of `is` that is not in `was` at the same place; "" if there is none. */
static const char *first_change(sk_arena *a, const char *was, const char *is)
{
    while (*was && *is) {
        size_t x = strcspn(was, "\n"), y = strcspn(is, "\n");
        size_t p = strspn(was, " "), q = strspn(is, " "); /* indent */
        if (x != y || strncmp(was, is, x))
            return sk_print(a, "\"%.*s\" is \"%.*s\" now", (int)(x - p), was + p, (int)(y - q),
                            is + q);
        was += x + (was[x] != 0);
        is += y + (is[y] != 0);
    }
    return *was || *is ? "its keys are others" : "";
}

static sk_status damaged_job(const sk_sweep_job *j, const char *path, const char *why)
{
    return sk_fail(SK_EDATA,
                   "%s%s: it is damaged; bring it back, or remove %s to train the job again", path,
                   why, j->dir);
}

/* Path of a model of the job as it was begun: where it is now, if it lay in s->home then.  True: it
 * has moved. */
static bool follow(const sk_sweep *s, char *was, size_t most, const char *is)
{
    size_t home = s->home ? strlen(s->home) : 0;
    if (!home || strncmp(is, s->home, home) != 0 || is[home] != '/' || !strcmp(was, is))
        return false;
    size_t n = strlen(was), tail = strlen(is + home);
    if (n < tail || strcmp(was + n - tail, is + home) != 0) return false;
    return (size_t)snprintf(was, most, "%s", is) < most;
}

/* Loaded and printed again, so that a key that is newer than the file has its default there. */
static sk_status same_job(sk_sweep *s, const sk_sweep_job *j, char *path)
{
    sk_job *was = sk_new(s->arena, sk_job);
    sk_text text;
    SK_TRY(sk_file_read(s->arena, path, &text));
    if (strlen(text.s) != text.n || !strchr(text.s, ':'))
        return damaged_job(j, path, ": it has no keys");
    sk_status st = sk_conf_load(s->arena, 1, &path, was, NULL);
    const char *why = st ? sk_strdup(s->arena, sk_error_line()) : "";
    if (!strncmp(why, path, strlen(path))) return damaged_job(j, path, why + strlen(path));
    SK_TRY(st);
    bool moved = follow(s, was->model_dir, sizeof was->model_dir, j->job->model_dir);
    moved |= follow(s, was->data_tokenizer, sizeof was->data_tokenizer, j->job->data_tokenizer);
    const char *change = first_change(s->arena, sk_conf_print(s->arena, was), j->config);
    if (!*change) return moved ? sk_file_replace(path, j->config, strlen(j->config)) : SK_OK;
    return sk_fail(SK_ECREATE,
                   "%s was begun as another job: %s; give the keys it was begun with, or another "
                   "run=DIR",
                   j->dir, change);
}

/* ---- jobs of another sweep */

static bool is_job_of(const sk_sweep *s, const char *name)
{
    for (int i = 0; i < s->jobs.n; i++)
        if (!strcmp(s->jobs.v[i].name, name)) return true;
    return false;
}

/* The first by name, so that the sentence is the same everywhere. */
static int count_others(sk_sweep *s, const char **first)
{
    int n = 0;
    DIR *d = opendir(s->dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (is_job_of(s, e->d_name)) continue;
        if (!sk_is_there(sk_print(s->arena, "%s/%s/job.yaml", s->dir, e->d_name))) continue;
        if (!n++ || strcmp(e->d_name, *first) < 0) *first = sk_strdup(s->arena, e->d_name);
    }
    if (d) closedir(d);
    return n;
}

sk_status sk_sweep_has_all(sk_sweep *s)
{
    const char *first = "";
    int n = count_others(s, &first);
    if (!n) return SK_OK;
    return sk_fail(SK_ECREATE,
                   "%s has %d job%s of a sweep over other values, %s%s, which this command would "
                   "drop from its table; give keys and lists that hold %s too, or another run=DIR",
                   s->dir, n, sk_plural(n), n > 1 ? "the first " : "", first,
                   n > 1 ? "them" : "it");
}

sk_status sk_sweep_keep(sk_sweep *s, const sk_sweep_job *j)
{
    char *path = sk_print(s->arena, "%s/job.yaml", j->dir);
    if (sk_is_there(path)) return same_job(s, j, path);
    SK_TRY(sk_dir_make(j->dir));
    return sk_file_replace(path, j->config, strlen(j->config));
}
