/* copier.h - the stream of copies between memories: a thread that does them in order.
 *
 * The rank begins copies and goes on; it waits for one when it needs it.  The CPU's device and host
 * memory are regions of one heap; the file is device/disk.h. */
#ifndef SK_RUN_COPIER_H
#define SK_RUN_COPIER_H

#include "device/disk.h"

typedef struct sk_copier sk_copier;

typedef struct sk_copy {
    char *to;         /* NULL: the file */
    const char *from; /* NULL: the file */
    int64_t at;       /* in the file */
    int64_t bytes;
} sk_copy;

/* n: numbers of copies, 0 to n - 1; disk may be NULL. */
sk_status sk_copier_open(sk_disk *disk, int n, sk_copier **out);
void sk_copier_close(sk_copier *c); /* NULL is fine */
void sk_copier_begin(sk_copier *c, int number, sk_copy copy);
sk_status sk_copier_wait(sk_copier *c, int number, double timeout_s);
/* When the newest copy of that number ran: from, to.  After it was waited for. */
const double *sk_copier_times(const sk_copier *c, int number);

#endif
