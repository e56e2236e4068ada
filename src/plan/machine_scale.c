/* machine_scale.c - a machine with another number.
 *
 * A factor of `flops` holds for all that computes: products of other types, measured products,
 * attention, and the peak that mfu is over.  One of `memory_rate` holds for measured ops.  One of
 * `rate_between` holds for measured rates of collectives between hosts, too.  Otherwise a network
 * that is twice as fast would change nothing where it was measured. */
#include "plan/machine.h"
#include "base/strings.h"

#include <math.h>
#include <string.h>

static void scale_kernels(sk_machine *m, double by)
{
    sk_kernel_rates *k = &m->kernels;
    m->peak *= by, k->flops_f32 *= by, k->flops_fp8 *= by;
    for (int i = 0; i < k->n_products; i++) k->product[i].rate *= by;
    for (int i = 0; i < k->n_widths; i++)
        k->attention[i].forward *= by, k->attention[i].backward *= by;
    for (int i = 0; i < k->n_attention_at; i++)
        k->attention_at[i].forward *= by, k->attention_at[i].backward *= by;
}

sk_status sk_machine_scale(sk_machine *m, const char *key, double by)
{
    sk_arena tmp = {0};
    bool whole = false;
    double now = 0;
    if (!sk_machine_number(m, key, &now, &whole) || now == 0)
        return sk_fail(SK_ECONF,
                       "machine %s: %s is 0 or not known, and has no %gx; a number is needed",
                       m->name, key, by);
    now = whole ? round(now * by) : now * by;
    sk_status st = sk_machine_set(m, key, sk_print(&tmp, "%.17g", now));
    sk_arena_end(&tmp);
    if (st) return sk_trail(st, SK_HERE);
    if (!strcmp(key, "flops")) scale_kernels(m, by);
    for (int i = 0; !strcmp(key, "memory_rate") && i < m->kernels.n_ops; i++)
        m->kernels.op[i].seconds /= by;
    for (int i = 0; !strcmp(key, "rate_between") && i < m->n_between; i++) m->between[i].rate *= by;
    return SK_OK;
}
