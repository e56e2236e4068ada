/* inst_kernels_cuda.h - the functions of sk_inst_kernels_cuda, which lie in several files.  Private
 * to run/gpu/.
 *
 * All kernels but CLIP are bound by memory: accesses have 16 bytes wherever addresses and sizes
 * allow, and each thread has FLIGHT of them under way. */
#ifndef SK_RUN_INST_KERNELS_CUDA_H
#define SK_RUN_INST_KERNELS_CUDA_H

#include "kernel/cuda/optim_pass.h"
#include "run/gpu/inst_kernels.h"

enum { BLOCK = SK_PASS_BLOCK, FLIGHT = 4 };

static inline unsigned blocks_for(int64_t n, int64_t each)
{
    return (unsigned)((n + each - 1) / each);
}

extern "C" {
/* copy_kernels.cu */
sk_status sk_gpu_slice(const sk_view *from, const sk_view *to, void *stream);
sk_status sk_gpu_paste(const sk_view *from, const sk_view *to, void *stream);
sk_status sk_gpu_gather(void *to, int64_t to_step, const void *from, int64_t from_step,
                        int64_t unit, int64_t units, void *stream);
/* elementwise_kernels.cu */
sk_status sk_gpu_add(void *to, const void *from, int64_t n, sk_dtype type, void *stream);
sk_status sk_gpu_tree(const sk_tree_job *j, void *stream);
sk_status sk_gpu_keep(float *to, const void *from, sk_dtype type, int64_t n, const int32_t *skip,
                      void *stream);
sk_status sk_gpu_convert(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n,
                         void *stream);
sk_status sk_gpu_noise(void *to, int64_t bytes, void *stream);
sk_status sk_gpu_reset_feedback(const sk_feedback_reset_job *j, const int32_t *skip, void *stream);
sk_status sk_gpu_average(float *to, const float *from, int64_t n, double decay,
                         const sk_step_scalars *pulse, void *stream);
sk_status sk_gpu_combine(const sk_combine_job *j, void *stream);
/* stats_kernels.cu */
sk_status sk_gpu_stats(const sk_stats_job *j, const sk_launch *l);
sk_status sk_gpu_clip(const sk_clip_job *j, const sk_launch *l);
sk_status sk_gpu_sumsq(void *sum, const void *data, sk_dtype type, int64_t n, bool exact,
                       const sk_launch *l);
/* pack_kernels.cu */
sk_status sk_gpu_pack(const void *data, char *packed, sk_dtype type, int64_t n, int64_t capacity,
                      int32_t *full, const sk_launch *l);
sk_status sk_gpu_unpack(void *data, const char *packed, sk_dtype type, int64_t n, int64_t capacity,
                        const sk_launch *l);
}

#endif
