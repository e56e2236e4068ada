/* file.c - a schedule that somebody wrote down.
 *
 * A layout that names a path (schedule=./order.txt) reads it: a line per stage, a word per task,
 * # begins a comment, empty lines do not count.
 *
 *     F0 F1 B0 F2 B1 B2        # stage 0: forward of micro-batch 0, 1, backward of 0 ...
 *     F0 I0 F1 I1 W0 F2 I2 W1 W2
 *
 * F3.1 is micro-batch 3 through the stage's second chunk; without a point the first is meant.
 * What the list says as a whole (a task twice, a W before its I, stages that wait for
 * each other) is for sk_schedule_check(). */
#include "base/file_io.h"
#include "program/pipeline_schedule.h"

#include <string.h>

enum { LONGEST = 32 }; /* a word that is quoted in an error is cut here */

typedef struct reader {
    const sk_pipe *pipe;
    const char *at, *word;
    int line, length; /* length of the word */
} reader;

static bool read_number(const char **s, const char *end, int *out)
{
    int n = 0, digits = 0;
    for (; *s < end && **s >= '0' && **s <= '9' && n < 1000000; ++*s, digits++)
        n = n * 10 + (**s - '0');
    *out = n;
    return digits > 0;
}

static sk_status wrong(const reader *r, const char *why, int found, int most)
{
    int n = r->length < LONGEST ? r->length : LONGEST;
    if (found < 0)
        return sk_fail(SK_ECONF, "%s:%d: '%.*s' %s", r->pipe->file, r->line, n, r->word, why);
    return sk_fail(SK_ECONF, "%s:%d: '%.*s' has %s %d; there are %d, counted from 0", r->pipe->file,
                   r->line, n, r->word, why, found, most);
}

static sk_status read_task(const reader *r, int stage, sk_tasks *to)
{
    static const char letters[] = "FBIW";
    const char *s = r->word + 1, *end = r->word + r->length;
    const char *letter = memchr(letters, *r->word, 4);
    int micro, lap = 0;
    bool ok = letter && read_number(&s, end, &micro);
    if (ok && s < end && *s == '.') ok = (s++, read_number(&s, end, &lap));
    if (!ok || s != end)
        return wrong(
            r, "is no task: F, B, I or W, a micro-batch, and optionally a chunk (F3, F3.1)", -1, 0);
    if (micro >= r->pipe->n_micro) return wrong(r, "micro-batch", micro, r->pipe->n_micro);
    if (lap >= r->pipe->n_chunks) return wrong(r, "chunk", lap, r->pipe->n_chunks);
    sk_task_add(to, (sk_task_kind)(letter - letters), micro, lap * r->pipe->n_stages + stage);
    return SK_OK;
}

/* The next word of this line, or none. */
static bool next_word(reader *r)
{
    r->at += strspn(r->at, " \t\r");
    if (*r->at == '#') r->at += strcspn(r->at, "\n");
    r->word = r->at;
    r->length = (int)strcspn(r->at, " \t\r\n#");
    r->at += r->length;
    return r->length > 0;
}

static sk_status read_lines(reader *r, sk_tasks *tasks)
{
    int stage = 0, n = r->pipe->n_stages;
    for (;; r->at++, r->line++) {
        bool any = false;
        for (; next_word(r); any = true) {
            if (stage == n)
                return sk_fail(SK_ECONF, "%s:%d: a line too many: there are %d stages",
                               r->pipe->file, r->line, n);
            SK_TRY(read_task(r, stage, &tasks[stage]));
        }
        stage += any;
        if (!*r->at) break;
    }
    if (stage == n) return SK_OK;
    return sk_fail(SK_ECONF, "%s: tasks for %d stages; there are %d, and each has its line",
                   r->pipe->file, stage, n);
}

static sk_status list_tasks(const sk_pipe *pipe, sk_tasks *tasks)
{
    if (!pipe->file || !strchr(pipe->file, '/'))
        return sk_fail(SK_ECONF, "schedule file: no file is named; write its path, with a '/': "
                                 "schedule=./order.txt");
    sk_text text;
    SK_TRY(sk_file_read(tasks->arena, pipe->file, &text));
    if (strlen(text.s) != text.n)
        return sk_fail(SK_ECONF, "%s: has a zero byte, and is no text", pipe->file);
    reader r = {.pipe = pipe, .at = text.s, .line = 1};
    return read_lines(&r, tasks);
}

const sk_schedule sk_schedule_file = {
    .name = "file",
    .doc = "read from a file: schedule=./order.txt",
    .list_tasks = list_tasks,
};
