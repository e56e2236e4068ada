/* library.h - libraries that a kind of device opens at run time, for people who ask what is there.
 *
 * Private to device/ but for sk_device_libraries() in device.h. */
#ifndef SK_DEVICE_LIBRARY_H
#define SK_DEVICE_LIBRARY_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_device_library {
    const char *name, *use; /* "cuDNN", "attention" */
    bool here;              /* it is open */
    char version[24];       /* "9.19.0" */
    char path[512];
    char why[256]; /* it is not: the reason; "": nobody needed it so far */
} sk_device_library;

/* `open`: try to, if it is not.  Of kernel/cuda/cublaslt.cu, kernel/cuda/cudnn_sdpa.cu, nccl.cu and
 * kernel/cuda/cusolver.cu. */
void sk_lt_about(bool open, sk_device_library *out);
void sk_sdpa_about(bool open, sk_device_library *out);
void sk_nccl_about(bool open, sk_device_library *out);
void sk_solver_about(bool open, sk_device_library *out);

#ifdef __cplusplus
}
#endif

#endif
