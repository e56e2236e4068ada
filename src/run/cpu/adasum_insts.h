/* adasum_insts.h - the instructions PRODUCTS and ADASUM, on all threads of a rank. */
#ifndef SK_RUN_ADASUM_INSTS_H
#define SK_RUN_ADASUM_INSTS_H

#include "base/threads.h"
#include "program/program.h"

void sk_run_products(const sk_program *p, const sk_inst *in, char *base, sk_threads *team);
void sk_run_adasum(const sk_program *p, const sk_inst *in, char *base, sk_threads *team);

#endif
