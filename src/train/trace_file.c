/* trace_file.c - trace.json of a run. */
#include "train/trace_file.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "run/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static void piece_path(const char *dir, int rank, char to[PATH_MAX])
{
    snprintf(to, PATH_MAX, "%.*s/trace.%d.part", PATH_MAX - 64, dir, rank);
}

sk_status sk_trace_file_rank(sk_run *run, const sk_program *p, const char *dir)
{
    char path[PATH_MAX];
    const double *times = sk_run_times(run);
    sk_trace_rank r = {
        p, p->rank, 1, times, sk_run_moving(run), p->n_train, sk_run_launch_names(run)};
    piece_path(dir, p->rank, path);
    int fd = -1;
    SK_TRY(sk_file_own(path, O_TRUNC, &fd));
    FILE *f = fdopen(fd, "w");
    if (!f) {
        close(fd);
        return sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
    }
    sk_status st = sk_trace_piece(f, &r, times[0]);
    if (fclose(f) && !st) st = sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
    return st;
}

sk_status sk_trace_file_merge(sk_arena *a, int n_ranks, const char *dir)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s", SK_TRACE_HEAD);
    for (int r = 0; r < n_ranks; r++) {
        char path[PATH_MAX];
        sk_text t;
        piece_path(dir, r, path);
        SK_TRY(sk_file_read(a, path, &t));
        sk_out_add(&o, "%s%.*s", r ? "," : "", (int)t.n, t.s);
        unlink(path);
    }
    sk_out_add(&o, "%s", SK_TRACE_TAIL);
    return sk_file_replace(sk_print(a, "%s/trace.json", dir), o.s, o.n);
}
