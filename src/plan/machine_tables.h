/* machine_tables.h - rows of what was measured of a machine, as text.  Private to plan/. */
#ifndef SK_PLAN_MACHINE_TABLES_H
#define SK_PLAN_MACHINE_TABLES_H

#include "base/strings.h"
#include "plan/machine.h"

/* False: the row is wrong, or there is no more place. */
bool sk_machine_add_product(sk_machine *m, const char *value); /* "bf16 4096 1024 1024 2.2e14 8" */
bool sk_machine_add_width(sk_machine *m, const char *value);   /* "128 6e14 5e14" */
bool sk_machine_add_between(sk_machine *m, const char *value); /* "16 2.56e8 1e10" */
bool sk_machine_add_attention_at(sk_machine *m, const char *value); /* "bf16 64 1024 2e14 1e14" */
bool sk_machine_add_op(sk_machine *m, const char *value); /* "layernorm bf16 2.5e7 1.2e-5" */

void sk_machine_write_products(sk_out *o, const sk_machine *m);
void sk_machine_write_widths(sk_out *o, const sk_machine *m);
void sk_machine_write_between(sk_out *o, const sk_machine *m);
void sk_machine_write_attention_at(sk_out *o, const sk_machine *m);
void sk_machine_write_ops(sk_out *o, const sk_machine *m);

#endif
