/* machine_fit.h - from what launches took to the rows of a machine's file.
 *
 *     sk_machine_fit *f = sk_machine_fit_begin(&arena);
 *     sk_machine_fit_add(f, program, &times);      once for each program that ran
 *     sk_machine_fit_end(f, &machine);             writes into a machine that is complete otherwise
 *
 * Launches with products give `product` rows by type and (m, n, k); those with attention
 * `attention_at` by type, width of a head and keys; all others `op` rows by name, type and bytes.
 * Of equal launches the mean of logarithms counts.  `flops`, `flops_f32` and `flops_fp8` are the
 * fastest products of their types.  A launch between marks of a GPU's stream takes longer than in
 * a graph without them: traced steps say by how much, and that is taken off. */
#ifndef SK_PLAN_MACHINE_FIT_H
#define SK_PLAN_MACHINE_FIT_H

#include "plan/launch_times.h"
#include "plan/machine.h"

typedef struct sk_machine_fit sk_machine_fit;

sk_machine_fit *sk_machine_fit_begin(sk_arena *a);
/* Other launches of one kernel than SK_MOST_OPS, SK_MOST_PRODUCTS and so on have room are left
 * out, the shortest first. */
void sk_machine_fit_add(sk_machine_fit *f, const sk_program *p, const sk_launch_times *t);
/* A kernel by itself: copies of a device, as op `any`. */
void sk_machine_fit_op(sk_machine_fit *f, const char *name, sk_dtype type, double bytes,
                       double seconds);
void sk_machine_fit_end(sk_machine_fit *f, sk_machine *m);

#endif
