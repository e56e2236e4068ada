/* device_rates.h - what a device and its host do besides kernels: copies, files, launches.
 *
 * Measured in a worker of its own, so that the caller may go on forking ranks after a GPU was
 * opened.  `device` is "cuda", "cuda:1" or "cpu"; of a processor, where device and host are one
 * memory, copies are memcpy, and there are no launches.  Each number is the best of a few turns. */
#ifndef SK_PLAN_DEVICE_RATES_H
#define SK_PLAN_DEVICE_RATES_H

#include "device/device.h"

enum { SK_COPY_SIZES = 6 };

typedef struct sk_device_rates {
    double size[SK_COPY_SIZES], inside[SK_COPY_SIZES]; /* bytes of a copy in the device's memory,
                                                          read and written; its seconds.  0: none */
    double in, out;         /* bytes per second from pinned memory of the host, and to it */
    double read, written;   /* and of a file in the folder; 0: not measured */
    const char *how;        /* the file is read and written; or why there is none */
    double issue;           /* seconds of the host's thread for one launch */
    double alone, in_graph; /* seconds of the device for an empty launch: issued, in a graph */
    double replay;          /* seconds of the host's thread to launch a graph */
    sk_device_facts facts;  /* of a GPU */
} sk_device_rates;

/* folder: for the file; NULL: no file.  most: bytes of the largest copy. */
sk_status sk_measure_device(sk_arena *a, const char *device, const char *folder, int64_t most,
                            sk_device_rates *out);

#endif
