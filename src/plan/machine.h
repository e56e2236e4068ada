/* machine.h - what a machine costs, as a few numbers: for choosing algorithms and for simulating
 * programs.
 *
 * A rank computes at `flops` and reads and writes its memory at `memory_rate`;
 * an instruction takes the longer of the two, and `overhead` on top.  Ranks r
 * and q are on one host when r / ranks_per_host is the same; a message of S bytes
 * costs alpha + S * beta on the link between them.  What collectives cost is said by
 * `collectives`:
 *
 *     chosen     the algorithm that the compiler chose (coll/choose.h): skein's own collectives
 *     best       the cheapest of the closed forms below, as libraries choose it
 *     ring       the ring always
 *     nccl       rings over all network cards of the hosts; for an all-reduce also a tree
 *
 * For n ranks, k hosts with g of them each:
 *
 *     ring       2(n-1) alpha + 2S(n-1)/n beta         all-reduce; the others half of it
 *     tree       2(log g alpha_in + log k alpha_out) + 2S beta / 0.92
 *     two-level  scatter inside, all-reduce S/g between, gather inside
 *     nccl       the ring with beta_between / g
 *
 * Where the bytes of a link depend on their number, or links share a switch, the forms
 * are too optimistic.
 *
 * A machine is a name (`cpu`, `h100-8` ...: sk_machines), or a file:
 *
 *     like: h100-8              optional, first: the rest changes this one
 *     version: 2                of this list of keys; files of version 1 are read, too
 *     name: our cluster
 *     host: Intel Xeon ...      where it was measured (sk_host_mark); calibrate writes it
 *     flops: 6e14               per second and rank; with per_thread: yes, of one thread
 *     peak: 9.894e14            likewise, by the data sheet: what mfu is over; 0: flops
 *     per_thread: no
 *     memory_rate: 2.8e12       bytes per second and rank
 *     memory: 80e9              bytes that a rank may use; 0: not known
 *     copy_rate: 50e9           bytes per second between a rank's device and its host's memory
 *     file_rate: 3e9            and between that and a file
 *     host_rate: 25e9           bytes per second of the host's memory, for a rank's optimizer there
 *     ranks_per_host: 8
 *     alpha_inside: 4e-6        seconds; between two ranks of one host
 *     rate_inside: 370e9        bytes per second: 1 / beta
 *     each_inside: 1e-6         seconds of a core for every message
 *     alpha_between: 14e-6      and of two hosts
 *     rate_between: 48e9
 *     each_between: 1e-6
 *     incast_between: 0.35      how much dearer a byte is when two hosts send to one; 0: not at all
 *     gap_between: 0            seconds between two messages of a link (g of LogGP); gap_inside
 *     burst_between: 0          bytes that an idle link takes at once (the bucket of a shaper)
 *     add_rate: 10e9            bytes per second added: 1 / gamma
 *     shm_tiny: 0.4e-6          seconds; a small call in the heaps, two ranks
 *     shm_member: 0.1e-6        more for each further one
 *     shm_crowded: 3e-6         for each one, when there are more than cores
 *     shm_sum_rate: 8e9         bytes per second of one core in cache; shm_copy_rate likewise
 *     shm_sum_rate_far: 9e9     of all cores together out of cache; shm_copy_rate_far
 *     cache: 32Mi               bytes of all ranks of a host that are near its cores
 *     far: 128Mi                and from which on all are far, not below `cache`
 *     cores: 8                  of a host
 *     crowd: 1.2                how much longer its work takes a core while ranks outnumber the
 *                               cores: caches are cold behind every switch; 0: 1
 *     overhead: 2e-6            seconds an instruction takes to begin
 *     call: 30e-6               and a collective or message of a library, beside its hops
 *     flops_f32: 4e14           products of f32, and of 8 bits; 0: flops
 *     flops_fp8: 1.4e15
 *     sms: 132                  multiprocessors, each with one tile of a product at a time; 0: a
 *                               product of any size reaches flops
 *     ramp: 160                 terms of a sum that a tile needs to fill and drain its pipeline
 *     product: bf16 4096 1024 1024 2.2e14      measured: type, m, n, k, flops per second, and
 *                               the number of products in a batch if it is not 1; up to 192 lines
 *     attention: 128 6e14 5e14  width of a head, flops per second forward and backward; up to 8
 *     attention_ramp: 350       keys at which attention has half of these rates
 *     older: 0.62               part of these rates that kernels for older tensor cores reach
 *     attention_at: bf16 64 1024 2.1e14 1.6e14
 *                               measured: type, width, keys, flops per second forward and
 *                               backward; up to 48 lines
 *     op: layernorm bf16 2.5e7 1.2e-5
 *                               measured: the name of a kernel that is neither a product nor
 *                               attention (an op, a fusion, an optimizer; `any`: of others), its
 *                               type, its bytes, seconds; with per_thread: yes, of one thread;
 *                               up to 384 lines
 *     step: 4e-5                seconds of a step outside of its instructions
 *     issue: 4e-6               seconds of the host's thread for a kernel where there is no graph
 *                               of kernels (tensors are offloaded)
 *     overlap: yes              bytes move while the rank computes; no: only while it waits
 *     sustained: 0.9            part of products' flops that a device keeps under its power limit
 *     between: 16 2.56e8 1e10   measured: hosts, bytes of a collective over them, bytes per second
 *                               of each rank's share of the network; up to 32 lines
 *     collectives: best         or ring, nccl, or chosen
 *     engine: fsdp              whose programs run there, as a profile; the lines below change it
 *     flash: 1                  attention's rates, over those of the machine
 *     older_attention: no       yes: attention's kernels are for older tensor cores
 *     gathers: 1                rates of all-gathers and reduce-scatters, over those of the machine
 *     scores: flash             or memory: attention writes its scores there and reads them
 *     gather_each: no           yes: each tensor of a layer is gathered by a call of its own
 *     gather_least: 0           tensors of fewer elements are whole on every rank
 *     gather_reuse: 0           weights gathered to recompute a layer are still there for its
 *                               backward pass where no more elements are used between the two;
 *                               all others are gathered again; 0: none
 *     gather_passes: 0          bytes of the rank's memory that move for a byte gathered
 *     sum_passes: 0             and for a byte of gradients that ranks sum
 *     part_copy: 0              seconds of the kernel that copies a member's part of a gather of
 *                               weights, or of a reduce-scatter of gradients; 0: parts are in place
 *     wide_sums: no             yes: gradients of 16 bits are summed over ranks in 32
 *     whole_recompute: no       yes: a block is recomputed to its end, with the product that makes
 *                               its result, and the sum of it over ranks
 *     late_sums: no             yes: sums of sharded gradients are waited for at the update, not
 *                               before the next layer
 *     stream: 1                 bytes of norms and elementwise kernels, over those of skein
 *     loss: 1                   and of the kernels that read or write logits
 *     accumulate: 0             bytes of an element of a gradient that is added to those of other
 *                               micro-batches by a kernel of its own; 0: the product adds
 *     host_launch: 0            seconds of the host's thread for what skein launches as one kernel;
 *                               0: a graph of kernels
 *     contention: 0             part of the device that a collective takes while bytes move
 *     host_waits: no            yes: the host waits for messages between stages and for batches
 *     mtbf: 50e3                hours of a rank's device between two failures; 0: not known, as in
 *                               all lines below (skein goodput)
 *     host_mtbf: 80e3           and of what its ranks share in a host
 *     preemptible_mtbf: 20      hours until the owner takes a preemptible host back
 *     price: 2.5                dollars for an hour of a rank
 *     preemptible_price: 1.1
 *     watts: 700                of a rank that trains, and of one that does not; 0: watts
 *     idle_watts: 100
 *     slow: 3@1.2               ranks and hosts that are not as the others (plan/topology.h)
 *     unlike: 3 flops 5e14
 *     level: 32 over 2          how hosts are connected: also rails, torus, dragonfly
 *
 * `h100-8:nemo` is a machine with an engine's profile: sk_engines has them.
 *
 * The machine `unit` is for counting: a block of the model costs 1 forward and 2
 * backward, everything else nothing, so that bubbles come out as fractions.
 *
 * `skein calibrate` measures this host and writes such a file to
 * $XDG_CONFIG_HOME/skein/machine.txt (~/.config/skein/machine.txt), with device=cuda its GPU to
 * machine-cuda.txt beside it; `skein bench coll --calibrate` measures the collectives alone.
 * sk_machine_default reads it everywhere, unless another one is asked for or it was measured on
 * another host. */
#ifndef SK_PLAN_MACHINE_H
#define SK_PLAN_MACHINE_H

#include "coll/choose.h"
#include "kernel/kernel_shape.h"
#include "layout/layout.h"
#include "plan/topology.h"

#include <stdbool.h>

enum {
    SK_MOST_PRODUCTS = 192,
    SK_MOST_WIDTHS = 8,
    SK_MOST_BETWEEN = 32,
    SK_MOST_ATTENTION_AT = 48,
    SK_MOST_OPS = 384,
    SK_OP_WORD = 24
};

typedef struct sk_between_rate { /* measured: bytes per second of one rank's share of the network */
    double hosts, bytes, rate;
} sk_between_rate;

typedef struct sk_product_rate { /* measured */
    sk_dtype type;
    bool fp8;
    double m, n, k, rate;
    double batch; /* products at once, mostly 1 */
} sk_product_rate;

typedef struct sk_attention_rate {
    double width, forward, backward;
} sk_attention_rate;

typedef struct sk_attention_at { /* measured */
    sk_dtype type;
    double width, keys, forward, backward; /* flops per second */
} sk_attention_at;

typedef struct sk_measured_op { /* a kernel that is neither a product nor attention */
    char name[SK_OP_WORD];
    sk_dtype type;
    double bytes, seconds;
} sk_measured_op;

/* Kernels of a device.  Zeros: flops and memory_rate are all that is known. */
typedef struct sk_kernel_rates {
    double flops_f32, flops_fp8, ramp, attention_ramp;
    double sustained; /* part of what products reach that a device keeps at its power limit; 0: 1 */
    double older;     /* of attention's rates, by kernels for older tensor cores; 0: 1 */
    int sms, n_products, n_widths;
    sk_product_rate product[SK_MOST_PRODUCTS];
    sk_attention_rate attention[SK_MOST_WIDTHS]; /* ascending widths */
    int n_attention_at, n_ops;
    sk_attention_at attention_at[SK_MOST_ATTENTION_AT];
    sk_measured_op op[SK_MOST_OPS]; /* those of a name and type by ascending bytes */
} sk_kernel_rates;

/* What an engine makes of a device: skein's own programs have zeros. */
typedef struct sk_engine {
    char name[32];
    const char *doc;
    bool scores_in_memory, host_waits;
    bool no_overlap;      /* bytes of collectives move only while ranks wait */
    bool older;           /* attention is written for the tensor cores of the generation before */
    bool gather_each;     /* every tensor of a layer is gathered by a call of its own */
    bool wide_sums;       /* gradients are summed over ranks in 32 bits */
    bool late_sums;       /* sums of sharded gradients are waited for at the update */
    bool whole_recompute; /* of a block, the product that makes its result is recomputed too */
    double stream, loss, flash, gathers; /* 0: 1 */
    double host_launch, contention;
    double accumulate;   /* bytes of an element of a gradient that is added to those before, in a
                            kernel of its own; 0: the product adds */
    double gather_least; /* elements of a tensor from which on it is sharded */
    double gather_reuse; /* elements between recomputation and backward pass up to which weights
                            stay gathered; 0: all do */
    double gather_passes, sum_passes; /* bytes of memory for a byte gathered, and summed */
    double part_copy;                 /* seconds of a kernel for each member's part; 0: none */
} sk_engine;

/* What failures, time and power of a machine cost.  Zeros: not known. */
typedef struct sk_upkeep {
    double mtbf, host_mtbf, preemptible_mtbf; /* hours: of a rank's device, of a host */
    double price, preemptible_price;          /* dollars for an hour of a rank */
    double watts, idle_watts;                 /* of a rank */
} sk_upkeep;

typedef struct sk_machine {
    char name[64];
    const char *doc;                        /* where the numbers come from */
    double flops, memory_rate;              /* that programs reach */
    double peak;                            /* flops by the data sheet; 0: `flops` */
    double copy_rate, file_rate, host_rate; /* 0: half of memory_rate, 1e9, memory_rate */
    int64_t memory;                         /* bytes of a rank; 0: not known */
    bool per_thread;
    int ranks_per_host;
    sk_costs costs;
    int n_between;
    sk_between_rate between[SK_MOST_BETWEEN]; /* of collectives over hosts; none: costs.between */
    double overhead;                          /* seconds that an instruction takes to begin */
    double call;                              /* and a collective or message of a library */
    double step, issue, crowd;
    sk_kernel_rates kernels;
    sk_engine engine;
    sk_upkeep upkeep;
    sk_topology topology;
    bool overlap;
    bool ring;   /* always */
    bool chosen; /* as frozen in the program */
    bool nccl;   /* rings over all network cards of the hosts, and trees for all-reduce */
    bool unit;
} sk_machine;

/* The members of a collective, and their hosts. */
typedef struct sk_reach {
    int n, hosts, most; /* members; hosts they are on; the most on one of them */
} sk_reach;

/* A built-in name, or a file. */
sk_status sk_machine_read(sk_arena *a, const char *what, sk_machine *out);
/* What is asked for; if nothing is (NULL, ""), the file that was calibrated on this host, or the
 * preset `cpu`.  *warning (NULL if all is well): why a calibrated file was passed over. */
sk_status sk_machine_default(sk_arena *a, const char *what, sk_machine *out, const char **warning);
/* Writes m as a file that sk_machine_read understands, folders too. */
sk_status sk_machine_write(sk_arena *a, const char *path, const sk_machine *m);
/* Will it be possible?  Asked before something is measured for it; makes the folders. */
sk_status sk_machine_can_write(sk_arena *a, const char *path);
/* The same for a job on a GPU: the GPU's file first. */
sk_status sk_machine_default_on(sk_arena *a, const char *what, bool gpu, sk_machine *out,
                                const char **warning);
const char *sk_machine_path(sk_arena *a); /* of the calibrated file; NULL: no home */
const char *sk_machine_path_on(sk_arena *a, bool gpu);
/* The keys of a file that are numbers; NULL past the last. */
const char *sk_machine_number_name(int i);
/* One of them, as a file says it; false: it is none. */
bool sk_machine_number(const sk_machine *m, const char *name, double *out, bool *whole);
sk_status sk_machine_set(sk_machine *m, const char *name, const char *value); /* as a file's line */
/* So many times the number and what goes by it (machine_scale.c). */
sk_status sk_machine_scale(sk_machine *m, const char *name, double by);
/* The built-in machines; one without a name ends the list. */
extern const sk_machine sk_machines[];
extern const sk_engine sk_engines[];

/* What mfu is over: the peak of so many ranks. */
double sk_machine_peak(const sk_machine *m, int ranks, int threads);
double sk_machine_work(const sk_machine *m, double flops, int64_t bytes, int threads);
/* Seconds of arithmetic of a kernel of this shape (op_price.c), without its bytes. */
double sk_machine_compute(const sk_machine *m, const sk_kernel_shape *s, double flops, int threads);
/* A kernel of so many seconds of arithmetic and so many bytes.  Of a stream, or of a loss, an
 * engine may move more. */
double sk_machine_kernel(const sk_machine *m, double compute, int64_t bytes, sk_kernel_kind kind);
/* Of adding the gradient of a micro-batch in a kernel of its own; 0 where products do it. */
double sk_machine_accumulate(const sk_machine *m, int64_t elements);
/* A kernel without products and attention, as it was measured (op_rows.c); below 0: none
 * of this name was, and there is no `any`. */
double sk_machine_op(const sk_machine *m, const char *name, sk_dtype type, int64_t bytes,
                     int threads);
/* `chosen` and one host: in shared memory; else by the closed forms. */
double sk_machine_coll(const sk_machine *m, sk_coll_kind kind, int64_t bytes, sk_reach reach);
double sk_machine_copy(const sk_machine *m, int64_t bytes, bool file);
double sk_machine_host(const sk_machine *m, int64_t bytes); /* work of the host's processor */
double sk_machine_send(const sk_machine *m, int64_t bytes, bool one_host);
sk_reach sk_machine_reach(const sk_machine *m, const int *ranks, int n); /* ranks ascending */
/* rank -> host, for sk_compile_opts; NULL: one host, or collectives are those of a library, and the
 * layout is not one whose ranks read each other's memory. */
const int *sk_machine_hosts(sk_arena *a, const sk_machine *m, const sk_layout *l, int n_ranks);

#endif
