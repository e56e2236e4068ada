/* nvml.h - what nvidia-smi shows, by the driver's own library.
 *
 * libnvidia-ml.so.1 is opened when first asked; no CUDA, no context, so also a process that must
 * stay without them may look.  Without the library nothing is known, and nothing fails.  A look
 * takes about a millisecond: every few seconds is fine, every step is not. */
#ifndef SK_DEVICE_NVML_H
#define SK_DEVICE_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_nvml {
    char model[96];      /* "NVIDIA H200" */
    int64_t used, bytes; /* memory, of all processes; 0: not known, like all numbers here */
    int busy;            /* percent of the last second or so in which a kernel ran; -1: not known */
    double watts;
    int celsius;
} sk_nvml;

int sk_nvml_count(void);                           /* GPUs; 0 without the library */
const char *sk_nvml_driver(void);                  /* "580.65.06"; "" if not known */
bool sk_nvml_at(int index, sk_nvml *out);          /* as nvidia-smi counts */
bool sk_nvml_find(const char *uuid, sk_nvml *out); /* sk_device_facts.uuid */

#endif
