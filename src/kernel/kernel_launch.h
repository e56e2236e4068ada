/* kernel_launch.h - the GPU half of an op.
 *
 * parts/op/NAME.c is complete alone and is the truth; parts/op/NAME.cu beside it defines
 *
 *     extern "C" const sk_kernel sk_kernel_NAME = {"NAME", launch};
 *
 * and the build makes the table from the files.  launch() sees the same sk_args as the CPU half,
 * with these differences: the data of the views are addresses on the device; one call does all of
 * the shard, so that `part`, `of` and `scratch` mean nothing; and the step, for who draws random
 * numbers, is read on the device from l->step and not from `stream`, and updates from l->updates,
 * because what was launched once is recorded and played again in other steps.
 *
 * It puts its work into l->stream and returns; it neither waits nor allocates.  It takes the types
 * that op->types declares, which is checked before (sk_op_takes: the executor calls it once for
 * each launch), and every shape that the CPU half takes, empty ones too; what it does not know
 * besides it refuses with a sentence.  It gives the same bits whenever it is given the same
 * arguments: no atomics in sums.  In canonical order, which is for f32, it gives the same bits
 * however operands are cut, as the CPU half does; they start at 16 bytes then, so that what a
 * kernel does by alignment goes by the sizes of dims alone, and those that may be cut must not
 * change how an element is computed (kernel/cuda/ordered_reduce.h).  Scratch is l->workspace,
 * SK_WORKSPACE bytes and what op->workspace asked for beyond them; what is left there by one launch
 * is gone in the next.
 *
 * prepare(), if there is one, is called for every launch before the first step, with nothing of
 * value in any buffer: there algorithms are searched and handles are made, which must not happen
 * while launches are recorded.  It says which of its kernels the launch will take, and if that is
 * not the fast one, why.
 *
 * test/cuda/parts.cu takes every pair through the op's samples and more shapes, one half against
 * the other; a kernel needs no test of its own. */
#ifndef SK_KERNEL_KERNEL_LAUNCH_H
#define SK_KERNEL_KERNEL_LAUNCH_H

#include "base/status.h"
#include "kernel/args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of scratch that every launch may count on, and what they are aligned to. */
enum { SK_WORKSPACE = 64 << 20, SK_WORKSPACE_ALIGN = 256 };

typedef struct sk_launch {
    void *stream;           /* a cudaStream_t */
    char *workspace;        /* on the device, aligned */
    size_t workspace_bytes; /* SK_WORKSPACE, and what the op asked for */
    const uint64_t *step;   /* on the device */
    const int64_t *updates; /* on the device: sk_args.updates */
} sk_launch;

/* Elements of an operand whose type is known when the kernel runs: for what is read once a row. */
typedef struct sk_any {
    void *data;
    sk_dtype type;
} sk_any;

/* Which of its kernels a GPU half takes for a launch.  A name that is left NULL is "own". */
typedef struct sk_variant {
    const char *name;   /* "cuDNN", "cuBLASLt", "flash" */
    const char *wanted; /* the one that would be faster, or NULL: this is the fast one */
    const char *why;    /* then: why that one did not take it; for the life of the process */
    double slower;      /* and about how many times as long this one takes, at least */
} sk_variant;

/* Products in f32 arithmetic where 16 bits could go through tensor cores: 989.4 to 66.9 TFLOP/s by
 * the data sheet of an H100 or H200. */
#define SK_WITHOUT_TENSOR_CORES 14.8

typedef struct sk_kernel {
    const char *op;
    sk_status (*launch)(const sk_args *a, const sk_launch *l);
    /* Or NULL.  *took is zeroed. */
    sk_status (*prepare)(const sk_args *a, const sk_launch *l, sk_variant *took);
    /* Or NULL, or: what of prepare() needs the host alone, such as building a plan for a second.
     * It is called before, on a thread of its own, while others are prepared. */
    void (*early)(const sk_args *a, const sk_launch *l);
    /* launch() waits for the device or allocates there, as cuSOLVER does: the step that has it is
     * issued, and never recorded as a CUDA graph. */
    bool waits;
} sk_kernel;

extern const sk_kernel *const sk_kernel_parts[]; /* every parts/op/NAME.cu; NULL ends it */

/* The GPU half of the op of this name; NULL if it has none, or if skein_cuda is not linked. */
const sk_kernel *sk_kernel_find(const char *op);

#ifdef __cplusplus
}
#endif

#endif
