/* disk.h - a file as a memory: bytes at offsets, read and written past the page cache.
 *
 * The file has no name and is gone with the process.  All its bytes are had from the disk when it
 * is opened, so that it cannot be full in the middle of a run; they are zeros.  Bytes pass a
 * bounce buffer of the caller's, on pages, in slots: with io_uring several are under way at a time,
 * and one after the other where the kernel has no io_uring.
 *
 * The file is mapped too, for those who look at it or fill it between copies (checkpoints, first
 * values); sk_disk_settle() must be called before copies go on. */
#ifndef SK_DEVICE_DISK_H
#define SK_DEVICE_DISK_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { SK_DISK_SLOTS = 8, SK_DISK_SLOT = 512 << 10, SK_DISK_BOUNCE = SK_DISK_SLOTS * SK_DISK_SLOT };

typedef struct sk_disk sk_disk;

/* A file of `bytes` in a folder; `bounce` has SK_DISK_BOUNCE bytes and begins with a page. */
sk_status sk_disk_open(const char *dir, int64_t bytes, void *bounce, sk_disk **out);
void sk_disk_close(sk_disk *d); /* NULL is fine */
void *sk_disk_map(const sk_disk *d);
sk_status sk_disk_settle(sk_disk *d);
/* Offsets begin with a page; what lies behind the bytes on their last page may change. */
sk_status sk_disk_read(sk_disk *d, void *to, int64_t at, int64_t bytes);
sk_status sk_disk_write(sk_disk *d, int64_t at, const void *from, int64_t bytes);
const char *sk_disk_how(const sk_disk *d); /* "io_uring, past the page cache": for people */

#endif
