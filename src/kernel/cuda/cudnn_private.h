/* cudnn_private.h - what cudnn_sdpa.cu and cudnn_graph.cu share: the library, descriptors, and the
 * shape of one call.  Where cuDNN's headers are missing, SK_HAS_CUDNN is 0 and there is nothing. */
#ifndef SK_KERNEL_CUDNN_PRIVATE_H
#define SK_KERNEL_CUDNN_PRIVATE_H

#include "kernel/cuda/cudnn_sdpa.h"

#include <cuda_runtime.h>

#if __has_include(<cudnn_graph.h>)
#define SK_HAS_CUDNN 1

#include <cudnn_graph.h>

typedef cudnnBackendDescriptor_t desc;

enum { MOST_DESCS = 256, MOST_OPS = 48, MOST_DEVICES = 64 };

/* Names of the tensors that are bound to memory when the plan runs; others are numbered after. */
enum { Q = 1, K, V, O, STATS, SCALE, HIDDEN, DO, DQ, DK, DV, SUMS, ONE, GATHER, N_BOUND };

/* The functions of libcudnn that are used. */
typedef struct library {
    bool tried, here;
    char report[256];
    cudnnStatus_t (*create)(cudnnHandle_t *);
    cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);
    cudnnStatus_t (*make)(cudnnBackendDescriptorType_t, desc *);
    cudnnStatus_t (*set)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         const void *);
    cudnnStatus_t (*get)(desc, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
                         int64_t *, void *);
    cudnnStatus_t (*finalize)(desc);
    cudnnStatus_t (*execute)(cudnnHandle_t, desc, desc);
    cudnnStatus_t (*destroy)(desc);
    const char *(*text)(cudnnStatus_t);
    void (*last)(char *, size_t);
    size_t (*version)(void);
    cudnnHandle_t handle[MOST_DEVICES]; /* by device, made when needed */
} library;

extern library sk_cudnn;

/* One call of a plan: n sequences of hq query heads, with steps in elements. */
typedef struct unit {
    int64_t n, hq, hk, t, d;
    int64_t x_seq, x_head, x_time, y_seq, y_head, y_time, l_seq;
    int64_t outer, inner;              /* calls: outer times inner */
    int64_t x_outer, y_outer, l_outer; /* from one call to the next; l: of lse */
    int64_t x_inner, y_inner, l_inner;
} unit;

/* ---- descriptors: after the first failure nothing is done, and its report is kept */

typedef struct maker {
    char report[1024]; /* why nothing can be made */
    char note[1024];   /* why the last engine was not taken */
    desc all[MOST_DESCS], ops[MOST_OPS];
    int n_all, n_ops;
    int64_t n_hidden; /* tensors that are nowhere in memory */
    cudnnDataType_t type;
} maker;

static inline bool good(const maker *m) { return !*m->report; }

void sk_cudnn_failed(maker *m, cudnnStatus_t st, const char *fmt, ...);
desc sk_cudnn_make(maker *m, cudnnBackendDescriptorType_t type);
void sk_cudnn_set(maker *m, desc x, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t n, const void *value);
void sk_cudnn_set_desc(maker *m, desc x, cudnnBackendAttributeName_t name, desc value);
void sk_cudnn_end(maker *m, desc x, const char *what, int number);

/* ---- attention as operations, into m->ops */

void sk_cudnn_forward(maker *m, const unit *u);
void sk_cudnn_backward(maker *m, const unit *u, int form);

#else
#define SK_HAS_CUDNN 0
#endif

#endif
