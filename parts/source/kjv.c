/* kjv.c - the King James Bible from Debian's bible-kjv, 4.4 MB of plain English.
 *
 * The program prints the text in 0.1 s, the same bytes each time, one verse a
 * line.  It is started without a shell. */
#include "data/data.h"
#include "base/strings.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { FIRST_BYTES = 5 << 20, MOST = 80 << 20 };

static bool knows(const char *what) { return !strcmp(what, "kjv"); }

/* Start the program with its output going into `to`; an errno value. */
static int launch(int to, int to_close, pid_t *pid)
{
    char name[] = "bible", flat[] = "-f", wide[] = "-l20000", all[] = "ge1:1-re22:21";
    char *argv[] = {name, flat, wide, all, NULL};
    posix_spawn_file_actions_t acts;
    posix_spawn_file_actions_init(&acts);
    posix_spawn_file_actions_adddup2(&acts, to, 1);
    posix_spawn_file_actions_addclose(&acts, to_close);
    posix_spawn_file_actions_addopen(&acts, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&acts, 2, "/dev/null", O_WRONLY, 0);
    int e = posix_spawnp(pid, name, &acts, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&acts);
    return e;
}

static sk_status drain(sk_arena *a, int from, char **text, size_t *n)
{
    size_t cap = FIRST_BYTES;
    *text = sk_alloc(a, cap);
    for (;;) {
        if (*n == cap) {
            if (cap >= MOST) return sk_fail(SK_EDATA, "kjv: bible prints over %zu bytes", cap);
            *text = sk_grow(a, *text, *n, 2 * cap);
            cap *= 2;
        }
        ssize_t got = read(from, *text + *n, cap - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sk_fail(SK_EIO, "kjv: %s", strerror(errno));
        if (!got) return SK_OK;
        *n += (size_t)got;
    }
}

static sk_status print(sk_arena *a, char **text, size_t *n)
{
    int pipes[2], code = 0;
    pid_t pid = 0;
    if (pipe2(pipes, O_CLOEXEC)) return sk_fail(SK_EIO, "kjv: pipe: %s", strerror(errno));
    int e = launch(pipes[1], pipes[0], &pid);
    close(pipes[1]);
    if (e) {
        close(pipes[0]);
        if (e == ENOENT)
            return sk_fail(SK_EDATA,
                           "kjv: the program bible is not installed; "
                           "apt-get install bible-kjv, or give a text file as data.train");
        return sk_fail(SK_EDATA, "kjv: cannot start bible: %s", strerror(e));
    }
    sk_status status = drain(a, pipes[0], text, n);
    close(pipes[0]);
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) continue;
    if (status) return sk_trail(status, SK_HERE);
    if (code || !*n)
        return sk_fail(SK_EDATA,
                       "kjv: bible printed %zu bytes and ended with status %d; is the "
                       "package bible-kjv-text installed?",
                       *n, WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code));
    return SK_OK;
}

static sk_status open_kjv(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                          sk_store *out)
{
    char *text = NULL;
    size_t n = 0;
    (void)what, (void)validation; /* one text: the trainer cuts its end off for validation */
    SK_TRY(print(a, &text, &n));
    SK_TRY(sk_store_text(a, t, (sk_text){text, n}, NULL, 0, out));
    snprintf(out->describe, sizeof out->describe, "kjv · %s bytes", sk_commas(a, (int64_t)n));
    return SK_OK;
}

const sk_source sk_source_kjv = {
    .name = "kjv",
    .doc = "the King James Bible, 4.4 MB, from the Debian package bible-kjv",
    .known = "kjv",
    .knows = knows,
    .open = open_kjv,
    .inputs = {{"tokens", "bt", SK_I32, .kind = SK_INPUT_IDS},
               {"targets", "bt", SK_I32, .kind = SK_INPUT_NEXT},
               {"pos", "bt", SK_I32, .kind = SK_INPUT_PLACES},
               {"weights", "bt", SK_F32, .kind = SK_INPUT_ONES, .weighs = true}},
};
