/* machine_presets.c - built-in machines, and profiles of engines.
 *
 * Nothing here was measured by skein.  Rates are those that programs reach, not those on the box:
 * best 16-bit matrix products as published by users (the box says `peak`, dense, as
 * device/cuda.cu has it), 0.85 of the memory's rate, ring all-reduce of large buffers, NCCL's own
 * latencies.  A tile's ramp, attention's rates and its ramp are round numbers of published kernel
 * benchmarks (FlashAttention 2 on A100, 3 and cuDNN on H100).  No number was fitted to training
 * runs.
 *
 *     call       30 us: what nccl-tests on DGX A100 (2, 4 and 8 GPUs, 1 to 64 MiB) and on B200
 *                leave beside 2 (n - 1) hops of 3.4 us, NCCL's own number, and the bytes
 *     sustained  A100: 257 Tflop/s of 8192 x 8192 x 8192 with normal numbers, where zeros reach 295
 *                and the best shape 271 (power limit; "Strangely, matrix multiplications on GPUs
 *                run faster when given predictable data", thonking.ai); H100: an estimate
 *     older      H100: mma.sync reaches 62 % of the peak of wgmma (arXiv 2402.13499)
 *     EFA        40 us a hop: all-reduces of up to 16 MiB of 4 hosts of B200 need 350 to 500 us
 *
 * Watts are the most that a GPU alone takes by its data sheet, without host, network and cooling.
 * Prices differ from contract to contract: no preset has one. */
#include "plan/machine.h"

#include <limits.h>

/* PCIe 5 for each GPU, an eighth of the host's memory, an NVMe drive for each. */
#define GPUS(per_host)                                                                          \
    .ranks_per_host = per_host, .overlap = true, .nccl = true, .overhead = 2e-6, .call = 30e-6, \
    .copy_rate = 50e9, .file_rate = 3e9, .host_rate = 40e9
/* 419 unexpected interruptions of 16,384 H100 in 54 days (Llama 3, arXiv 2407.21783); a failure in
 * 1.8 h on 16,384 A100, which Meta projects from 11 months of RSC-1 (arXiv 2410.21680). */
#define H100_UPKEEP(w) .upkeep = {.mtbf = 54 * 24.0 * 16384 / 419, .watts = w}
#define A100_UPKEEP    .upkeep = {.mtbf = 1.8 * 16384, .watts = 400}
#define LINK(alpha_s, bytes_per_s)                  \
    {                                               \
        .alpha = alpha_s, .beta = 1 / (bytes_per_s) \
    }

#define V100_KERNELS                                           \
    .flops_f32 = 14e12, .sms = 80, .ramp = 128, .n_widths = 2, \
    .attention = {{64, 45e12, 35e12}, {128, 50e12, 40e12}}, .attention_ramp = 350
#define A100_KERNELS                                             \
    .flops_f32 = 135e12, .sms = 108, .ramp = 128, .n_widths = 2, \
    .attention = {{64, 170e12, 150e12}, {128, 200e12, 175e12}}, .attention_ramp = 350
#define H100_KERNELS                                                                   \
    .flops_f32 = 400e12, .flops_fp8 = 1400e12, .sms = 132, .ramp = 160, .n_widths = 2, \
    .attention = {{64, 400e12, 320e12}, {128, 600e12, 500e12}}, .attention_ramp = 500, \
    .older = 0.62
#define B200_KERNELS                                                                       \
    .flops_f32 = 900e12, .sustained = 0.88, .flops_fp8 = 3430e12, .sms = 148, .ramp = 192, \
    .n_widths = 2, .attention = {{64, 800e12, 600e12}, {128, 1200e12, 900e12}},            \
    .attention_ramp = 700

const sk_machine sk_machines[] = {
    {.name = "cpu",
     .doc = "preset, not measured: ranks of one host over shared memory",
     .flops = 8e10,
     .memory_rate = 1e10,
     .per_thread = true,
     .ranks_per_host = INT_MAX,
     .costs = SK_COSTS_PRESET,
     .chosen = true,
     .overhead = 1e-6},
    {.name = "v100-8",
     .doc = "preset, not measured: hosts of 8 V100-32GB, NVLink 2, 100 Gb/s for each GPU",
     .flops = 108e12,
     .peak = 125e12,
     .memory_rate = 0.77e12,
     .memory = 32000000000,
     .kernels = {V100_KERNELS},
     .costs = {.inside = LINK(3.4e-6, 125e9), .between = LINK(14e-6, 11.5e9)},
     .upkeep = {.watts = 300},
     GPUS(8)},
    {.name = "a100-8",
     .doc = "preset, not measured: hosts of 8 A100-80GB, NVLink 3, 200 Gb/s for each GPU",
     .flops = 271e12,
     .peak = 312e12,
     .memory_rate = 1.7e12,
     .memory = 80000000000,
     .kernels = {A100_KERNELS, .sustained = 0.95},
     .costs = {.inside = LINK(3.4e-6, 235e9), .between = LINK(14e-6, 23e9)},
     A100_UPKEEP,
     GPUS(8)},
    {.name = "a100-40g-8",
     .doc = "preset, not measured: hosts of 8 A100-40GB, NVLink 3, 200 Gb/s for each GPU",
     .flops = 271e12,
     .peak = 312e12,
     .memory_rate = 1.32e12,
     .memory = 40000000000,
     .kernels = {A100_KERNELS, .sustained = 0.95},
     .costs = {.inside = LINK(3.4e-6, 235e9), .between = LINK(14e-6, 23e9)},
     A100_UPKEEP,
     GPUS(8)},
    {.name = "h100-8",
     .doc = "preset, not measured: hosts of 8 H100-80GB, NVLink 4, 400 Gb/s for each GPU",
     .flops = 794e12,
     .peak = 989.4e12,
     .memory_rate = 2.85e12,
     .memory = 80000000000,
     .kernels = {H100_KERNELS, .sustained = 0.88},
     .costs = {.inside = LINK(3.4e-6, 370e9), .between = LINK(14e-6, 46e9)},
     H100_UPKEEP(700),
     GPUS(8)},
    {.name = "h100-500w-8",
     .doc = "preset, not measured: hosts of 8 H100-96GB with HBM2e, limited to 500 W",
     .flops = 794e12,
     .peak = 989.4e12,
     .memory_rate = 2.05e12,
     .memory = 96000000000,
     .kernels = {H100_KERNELS, .sustained = 0.72},
     .costs = {.inside = LINK(3.4e-6, 370e9), .between = LINK(14e-6, 46e9)},
     H100_UPKEEP(500),
     GPUS(8)},
    {.name = "h100-efa-8",
     .doc = "preset, not measured by skein: H100-80GB with 8 times 400 Gb/s of EFA, as published",
     .flops = 794e12,
     .peak = 989.4e12,
     .memory_rate = 2.85e12,
     .memory = 80000000000,
     .kernels = {H100_KERNELS, .sustained = 0.88},
     .costs = {.inside = LINK(3.4e-6, 370e9), .between = LINK(40e-6, 45e9)},
     H100_UPKEEP(700),
     GPUS(8)},
    {.name = "h200-8",
     .doc = "preset, not measured: hosts of 8 H200-141GB, NVLink 4, 400 Gb/s for each GPU",
     .flops = 794e12,
     .peak = 989.4e12,
     .memory_rate = 4.1e12,
     .memory = 141000000000,
     .kernels = {H100_KERNELS, .sustained = 0.88},
     .costs = {.inside = LINK(3.4e-6, 366e9), .between = LINK(14e-6, 46e9)},
     .upkeep = {.watts = 700},
     GPUS(8)},
    {.name = "b200-8",
     .doc = "preset, not measured: hosts of 8 B200-180GB, NVLink 5, 400 Gb/s for each GPU",
     .flops = 1745e12,
     .peak = 2250e12,
     .memory_rate = 6.8e12,
     .memory = 180000000000,
     .kernels = {B200_KERNELS},
     .costs = {.inside = LINK(3.4e-6, 682e9), .between = LINK(14e-6, 46e9)},
     .upkeep = {.watts = 1000},
     GPUS(8)},
    {.name = "gb200-72",
     .doc = "preset, not measured: racks of 72 GB200, NVLink 5, 400 Gb/s for each GPU",
     .flops = 1745e12,
     .peak = 2500e12,
     .memory_rate = 6.8e12,
     .memory = 186000000000,
     .kernels = {B200_KERNELS},
     .costs = {.inside = LINK(3.4e-6, 682e9), .between = LINK(14e-6, 46e9)},
     .upkeep = {.watts = 1200},
     GPUS(72)},
    {.name = "tpu-v5p",
     .doc =
         "preset, not measured: cubes of 64 TPU v5p in a torus, 1,200 GB/s for each; by its data "
         "sheet, no kernel was timed",
     .flops = 390e12,
     .peak = 459e12,
     .memory_rate = 2.3e12,
     .memory = 95000000000,
     .costs = {.inside = LINK(1e-6, 300e9), .between = LINK(20e-6, 6e9)},
     .ranks_per_host = 64,
     .overlap = true,
     .overhead = 2e-6,
     .copy_rate = 16e9,
     .file_rate = 1e9,
     .host_rate = 40e9},
    {.name = "unit",
     .doc = "for counting: a block costs 1 forward and 2 backward, the rest nothing",
     .ranks_per_host = INT_MAX,
     .overlap = true,
     .unit = true},
    {.flops = 0},
};

/* An eager engine's host needs 55 to 120 us for the kernels that skein launches as one (Python, the
 * dispatcher, autograd); FlashAttention 1 has about half of the rates of the machines above,
 * FlashAttention 2 has them on A100; both are `older` on H100.  All-gathers between hosts that no
 * later NCCL tuned were seen at half of the rate of all-reduces.
 *
 *     stream      what an engine's kernels of a block read and write of activations, over what
 *                 skein's do; doc/published.md has the counts.  1.25 is an estimate
 *     loss        bytes of a logit over the 8 that skein moves: 52 of the cross-entropies of
 *                 Megatron and nanotron over a split vocabulary (cast, maximum, difference,
 *                 exponential, sum, division, gradient and its cast, in f32), 24 and 16 where a
 *                 compiler fuses some of these; llm-foundry takes one fused kernel
 *     accumulate  bytes of an element of a gradient: 6 where 16 bits are added to 16, 10 to 32;
 *                 0 where the product adds (gradient_accumulation_fusion)
 *     gather_each DeepSpeed's ZeRO-3 gathers parameter by parameter, but for those of less than
 *                 stage3_param_persistence_threshold
 *     gather_reuse  its stage3_max_reuse_distance
 *     gather_passes, sum_passes  of DeepSpeed up to 0.4 torch.zeros() before a gather, and div_()
 *                 before a sum, of later ones the copy into one buffer; of FSDP gradients that
 *                 autograd concatenates and FSDP divides; of FSDP2 the copy out of a gather, and
 *                 into a sum of twice the bytes
 *     part_copy   with lists of parts an all-gather among 8 A100 took 130 us before and 250 us in
 *                 its launch (DeepSpeed issues 1069 and 1174); without the launches of two plain
 *                 ops of 75 us that are 29 us for a part
 *     wide_sums   nanotron's buffers of gradients, and mixed_precision_reduce of torchtitan
 *     whole_recompute  functions that are called again: torch.utils.checkpoint before it stopped
 *                 early (2.1), Megatron's and DeepSpeed's own */
const sk_engine sk_engines[] = {
    {.name = "skein", .doc = "skein's own programs, in CUDA graphs"},
    {.name = "megatron-2021",
     .doc =
         "Megatron-LM of 2021: eager, scores of attention in memory, gradients summed at the end",
     .whole_recompute = true,
     .scores_in_memory = true,
     .no_overlap = true,
     .host_waits = true,
     .stream = 1.2,
     .loss = 6.5,
     .accumulate = 6,
     .host_launch = 75e-6},
    {.name = "nemo",
     .doc = "Megatron Core and NeMo: few launches, attention of cuDNN, collectives beside work",
     .whole_recompute = true,
     .stream = 1.25,
     .loss = 3,
     .host_launch = 10e-6,
     .contention = 0.15},
    {.name = "fsdp",
     .doc = "FSDP of PyTorch 2.0: eager, FlashAttention 1, gathers and sums beside work",
     .whole_recompute = true,
     .late_sums = true,
     .sum_passes = 4,
     .older = true,
     .flash = 0.5,
     .host_launch = 75e-6,
     .contention = 0.15},
    {.name = "deepspeed-2021",
     .doc = "ZeRO-3 of DeepSpeed up to 0.4: a call and a copy for each tensor, waited for",
     .whole_recompute = true,
     .scores_in_memory = true,
     .no_overlap = true,
     .stream = 1.2,
     .loss = 6.5,
     .gather_each = true,
     .gather_least = 1e5,
     .gather_reuse = 1e9,
     .gather_passes = 1,
     .sum_passes = 2,
     .part_copy = 29e-6,
     .gathers = 0.5,
     .host_launch = 75e-6},
    {.name = "deepspeed-2022",
     .doc = "ZeRO-3 of DeepSpeed from 0.6 on: eager, scores in memory, gathers beside work",
     .whole_recompute = true,
     .scores_in_memory = true,
     .late_sums = true,
     .stream = 1.2,
     .loss = 6.5,
     .gather_each = true,
     .gather_least = 1e5,
     .gather_reuse = 1e9,
     .sum_passes = 2,
     .gathers = 0.5,
     .host_launch = 75e-6,
     .contention = 0.15},
    {.name = "torchtitan",
     .doc = "torchtitan with torch.compile: FlashAttention 2, gathers and sums beside work",
     .wide_sums = true,
     .late_sums = true,
     .gather_passes = 2,
     .sum_passes = 3,
     .stream = 1.25,
     .loss = 2,
     .older = true,
     .host_launch = 20e-6,
     .contention = 0.15},
    {.name = "nanotron",
     .doc = "nanotron: eager, FlashAttention 2, tensor parallel collectives waited for",
     .no_overlap = true,
     .host_waits = true,
     .wide_sums = true,
     .stream = 1.4,
     .loss = 6.5,
     .accumulate = 10,
     .older = true,
     .host_launch = 75e-6},
    {.doc = NULL},
};
