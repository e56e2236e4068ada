/* sweep_leftovers.c - what jobs that were killed, or met a full disk, leave in the way of the next
 * start; by the holder of the lock. */
#include "base/file_io.h"
#include "cli/sweep.h"
#include "train/checksums.h"
#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void sk_sweep_remove_temporaries(const char *dir)
{
    static const char *const names[] = {"sweep.json", "jobs.csv", "job.yaml",
                                        "outcome",    "start",    NULL};
    sk_file_remove_temporaries(dir, names);
}

/* The directory goes at once, so that a kill leaves no half of it: `train` sweeps final.tmp-NONCE.
 */
static sk_status remove_model(sk_arena *a, const char *dir)
{
    char *tmp = sk_print(a, "final.tmp-%016" PRIx64, sk_folder_nonce());
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool moved = fd >= 0 && !renameat(fd, "final", fd, tmp);
    int e = errno;
    if (moved) sk_folder_sweep(fd, tmp);
    if (fd >= 0) close(fd);
    return moved ? SK_OK : sk_fail(SK_EIO, "cannot remove %s/final: %s", dir, strerror(e));
}

/* A model that is not as a training wrote it stays, and `train` refuses the job with its name. */
sk_status sk_sweep_remove_orphan(sk_sweep *s, const sk_sweep_job *j, FILE *progress)
{
    const char *model = sk_print(s->arena, "%s/final", j->dir);
    sk_assert(!sk_sweep_finished(j));
    if (!sk_is_dir(model)) return SK_OK;
    if (sk_checksums_replaceable(model)) {
        sk_error_set("");
        return SK_OK;
    }
    SK_TRY(remove_model(s->arena, j->dir));
    fprintf(progress, "%s: its last start left a model and no checkpoint; the job begins anew\n",
            j->name);
    fflush(progress);
    return SK_OK;
}
