/* io_uring.h - io_uring without a library: reads and writes of one file that are under way
 * together. */
#ifndef SK_DEVICE_IO_URING_H
#define SK_DEVICE_IO_URING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_uring sk_uring;

sk_uring *
sk_uring_open(int most); /* under way at a time; NULL: the kernel has none, or not for us */
void sk_uring_close(sk_uring *r); /* NULL is fine */
/* Begin one; `tag` comes back with its end.  False: errno says why. */
bool sk_uring_begin(sk_uring *r, int fd, bool write, void *data, unsigned bytes, int64_t at,
                    int tag);
/* Until one has ended: its tag; *done has its bytes, or -errno.  -1: errno says why. */
int sk_uring_end(sk_uring *r, int *done);

#endif
