/* file_io.h - whole files in one call, and writing that survives a crash.
 *
 * A size that comes from outside is checked before it reaches an arena: only
 * plain files are read, never directories, FIFOs or devices. */
#ifndef SK_BASE_FILE_IO_H
#define SK_BASE_FILE_IO_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_text {
    const char *s; /* NUL after the last byte */
    size_t n;
} sk_text;

/* Read all of path into the arena.  *out is set only on success. */
sk_status sk_file_read(sk_arena *a, const char *path, sk_text *out);

/* Open a plain file for reading; its size too.  Close the descriptor yourself. */
sk_status sk_file_open(const char *path, int *fd, int64_t *size);
sk_status sk_file_pread(int fd, const char *path, void *to, size_t n, int64_t at);

/* Write all, fsync, close.  The file must not exist (O_EXCL); who may read it, the umask says. */
sk_status sk_file_write_new(const char *path, const void *data, size_t n);
/* Replace path in one move: a temporary beside it, fsync, rename, fsync of the folder. */
sk_status sk_file_replace(const char *path, const void *data, size_t n);
/* The temporary NAME.tmp-PID of a file of that name, which a process that was killed leaves. */
bool sk_file_is_temporary(const char *entry, const char *name);
/* Remove those of `names` (NULL behind the last) from a directory.  Only if nobody else writes
 * there: hold its lock. */
void sk_file_remove_temporaries(const char *dir, const char *const *names);
/* Open a file to write to, made if it is not there; more: O_APPEND, O_TRUNC.  Never through a
 * symbolic link, and never a FIFO or a device: somebody put that there for another purpose. */
sk_status sk_file_own(const char *path, int more, int *fd);
sk_status sk_dir_sync(const char *path);
sk_status sk_dir_make(const char *path); /* and its parents; already there is fine */
/* Is there anything of that name?  Also a dead link, a FIFO, a directory: what is there and cannot
 * be read is an error, never the same as nothing. */
bool sk_is_there(const char *path);
bool sk_is_file(const char *path);
bool sk_is_dir(const char *path);

#ifdef __cplusplus
}
#endif

#endif
