/* on_gpu.h - the frame of a test that needs a GPU: opens it, or skips; tells what went wrong, and
 * how many checks there were.  G has the device as `d`; the exit code is returned.
 *
 *     return on_gpu("rows", &g, all, &n_checks, &n_bad); */
#ifndef TEST_ON_GPU_H
#define TEST_ON_GPU_H

#include "device/device.h"
#include "lib/told.h"

#include <stdio.h>

template <class G>
static int on_gpu(const char *name, G *g, sk_status (*all)(G *), const int *n_checks,
                  const int *n_bad)
{
    sk_status st = sk_device_open("cuda:0", &g->d);
    if (st == SK_ECONF) {
        printf("%s\nno GPU\n", sk_error_line());
        return 77;
    }
    if (!st) st = all(g);
    if (st) tell("%s: %s", name, sk_error());
    sk_device_close(g->d);
    told_again();
    printf("%s: %d checks, %d bad%s\n", name, *n_checks, *n_bad,
           st ? ", and not all were made" : "");
    return st || *n_bad;
}

#endif
