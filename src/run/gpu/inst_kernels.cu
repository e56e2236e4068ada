/* inst_kernels.cu - the table of kernels of instructions that are no ops. */
#include "run/gpu/inst_kernels_cuda.h"

extern "C" const sk_inst_kernels sk_inst_kernels_cuda = {
    sk_gpu_slice,   sk_gpu_paste,          sk_gpu_add,     sk_gpu_tree,
    sk_gpu_convert, sk_gpu_keep,           sk_gpu_noise,   sk_gpu_stats,
    sk_gpu_clip,    sk_gpu_sumsq,          sk_gpu_pack,    sk_gpu_unpack,
    sk_gpu_gather,  sk_gpu_reset_feedback, sk_gpu_average, sk_gpu_combine};
