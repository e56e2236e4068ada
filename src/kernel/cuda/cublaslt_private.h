/* cublaslt_private.h - what the files of cublaslt.h share: the library, chosen algorithms, one job.
 *
 *     cublaslt.cu           opens the library, describes and runs a product
 *     cublaslt_cache.cu     algorithms that were chosen, by shape, in memory and in a file
 *     cublaslt_search.cu    asks cuBLASLt for algorithms, measures them, chooses one */
#ifndef SK_KERNEL_CUBLASLT_PRIVATE_H
#define SK_KERNEL_CUBLASLT_PRIVATE_H

#include "base/arena.h"
#include "kernel/cuda/cublaslt.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

enum { N_KEY = 34, ALIGN = 16 };
enum { MOST = 32 }; /* proposals of cuBLASLt that are looked at */

/* ---- the library */

#define CALLS(X)                            \
    X(cublasLtCreate)                       \
    X(cublasLtGetVersion)                   \
    X(cublasLtGetStatusName)                \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatrixLayoutSetAttribute)     \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulAlgoCheck)              \
    X(cublasLtMatmulAlgoConfigGetAttribute)

/* The functions of libcublasLt, by their own names. */
typedef struct sk_lt_library {
    void *handle;
#define X(name) decltype(&::name) name;
    CALLS(X)
#undef X
} sk_lt_library;

extern sk_lt_library sk_lt_lib;

sk_status sk_lt_load(void); /* opens the library if it is not open */
sk_status sk_lt_call_failed(const char *what, cublasStatus_t st);
sk_status sk_lt_cuda_failed(const char *what, cudaError_t e);

#define TRY(call)                                                   \
    do {                                                            \
        cudaError_t e_ = (call);                                    \
        if (e_ != cudaSuccess) return sk_lt_cuda_failed(#call, e_); \
    } while (0)

/* ---- chosen algorithms: cublaslt_cache.cu */

typedef enum state {
    BLANK, /* not looked at */
    NONE,  /* cuBLASLt has nothing */
    FIRST, /* its first proposal, not timed */
    READ,  /* from the file, not checked */
    BEST
} state;

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    int64_t key[N_KEY];
    cublasLtMatmulAlgo_t algo;
    state st;
    bool ran;   /* it is loaded: what is recorded should not have to load it */
    bool stale; /* algo is what cuBLASLt refused, though the file has it */
    int passed; /* proposals that it refused */
} entry;

/* One device. */
typedef struct lt {
    cublasLtHandle_t handle;
    sk_arena arena;
    entry *first;
    const char *head;
    const char *path; /* of the file; NULL: none */
    bool search;
} lt;

static inline int64_t alignment(uintptr_t x)
{
    uintptr_t bits = x | ALIGN;
    return (int64_t)(bits & (~bits + 1));
}

static inline int64_t alignment(const void *p) { return alignment((uintptr_t)p); }

static inline bool reads_c(const sk_product *p) { return p->beta != 0 && p->c.data; }
static inline sk_lt_matrix c_of(const sk_product *p) { return reads_c(p) ? p->c : p->d; }

static inline bool has_bias(const sk_product *p)
{
    return p->after == SK_AFTER_BIAS || p->after == SK_AFTER_GELU_BIAS ||
           p->after == SK_AFTER_GELU_AUX_BIAS;
}

static inline bool has_aux(const sk_product *p) { return p->after >= SK_AFTER_GELU_AUX; }

/* Everything that an algorithm may depend on; how far the matrices of a batch lie apart is not. */
void sk_lt_key(const sk_product *p, int64_t key[N_KEY]);
/* The entry of this key: a blank one if there was none. */
entry *sk_lt_entry(lt *d, const int64_t key[N_KEY]);
/* The current device, opened; the caller holds the lock. */
sk_status sk_lt_enter(lt **out);
void sk_lt_read_file(lt *d); /* takes in what is there and not known yet */
void sk_lt_write_file(lt *d);
int sk_lt_lock_file(lt *d); /* -1: there is no file, or it cannot be locked */
void sk_lt_unlock_file(int fd);

/* ---- one product as cuBLASLt wants it described */

typedef struct job {
    lt *at;
    const sk_product *p;
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
    cublasStatus_t st; /* the first that was not good */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d; /* in its words: our b, our a, c', d' */
} job;

cublasStatus_t sk_lt_multiply(const job *j, const cublasLtMatmulAlgo_t *algo);

/* ---- choosing: cublaslt_search.cu */

/* Fills the entry if it is blank; may_search: algorithms may be measured. */
sk_status sk_lt_choose(job *j, entry *e, bool may_search);
/* Does cuBLASLt refuse only this algorithm?  Then it is not taken again: sk_lt_choose() takes the
 * next proposal, the same in every run; or, where there is a search, what that finds, which it
 * writes into the file for all. */
bool sk_lt_refuses(cublasStatus_t st);
void sk_lt_reject(entry *e);

#endif
