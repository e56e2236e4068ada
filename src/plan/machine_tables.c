/* machine_tables.c - rows of what was measured of a machine, as text. */
#include "plan/machine_tables.h"

#include <stdio.h>
#include <string.h>

/* "bf16 4096 1024 1024 2.2e14", or with a batch of 8 products "bf16 512 1024 1024 2.2e14 8" */
bool sk_machine_add_product(sk_machine *m, const char *value)
{
    sk_kernel_rates *r = &m->kernels;
    sk_product_rate p = {.batch = 1};
    char type[8], more;
    if (r->n_products == SK_MOST_PRODUCTS) return false;
    int n = sscanf(value, "%7s %lf %lf %lf %lf %lf %c", type, &p.m, &p.n, &p.k, &p.rate, &p.batch,
                   &more);
    if (n != 5 && n != 6) return false;
    if (!(p.batch >= 1 && p.batch <= 1e9)) return false;
    p.fp8 = !strcmp(type, "fp8");
    if (p.fp8) p.type = SK_BF16;
    else if (!sk_dtype_find(type, &p.type)) return false;
    bool fair = p.m >= 1 && p.n >= 1 && p.k >= 1 && p.m <= 1e9 && p.n <= 1e9 && p.k <= 1e9;
    if (!fair || !(p.rate >= 1 && p.rate <= 1e21)) return false;
    r->product[r->n_products++] = p;
    return true;
}

/* "128 6e14 5e14", by ascending width */
bool sk_machine_add_width(sk_machine *m, const char *value)
{
    sk_kernel_rates *r = &m->kernels;
    sk_attention_rate w = {0};
    char more;
    if (r->n_widths == SK_MOST_WIDTHS) return false;
    if (sscanf(value, "%lf %lf %lf %c", &w.width, &w.forward, &w.backward, &more) != 3)
        return false;
    bool fair = w.width >= 1 && w.width <= 1e6 && w.forward >= 1 && w.backward >= 1;
    if (!fair || !(w.forward <= 1e21 && w.backward <= 1e21)) return false;
    if (r->n_widths && w.width <= r->attention[r->n_widths - 1].width) return false;
    r->attention[r->n_widths++] = w;
    return true;
}

/* "16 2.56e8 1e10" */
bool sk_machine_add_between(sk_machine *m, const char *value)
{
    sk_between_rate b = {0};
    char more;
    if (m->n_between == SK_MOST_BETWEEN) return false;
    if (sscanf(value, "%lf %lf %lf %c", &b.hosts, &b.bytes, &b.rate, &more) != 3) return false;
    bool fair = b.hosts >= 2 && b.hosts <= 1e6 && b.bytes >= 1 && b.bytes <= 1e18;
    if (!fair || !(b.rate >= 1 && b.rate <= 1e18)) return false;
    m->between[m->n_between++] = b;
    return true;
}

/* "bf16 64 1024 2.1e14 1.6e14" */
bool sk_machine_add_attention_at(sk_machine *m, const char *value)
{
    sk_kernel_rates *r = &m->kernels;
    sk_attention_at p = {0};
    char type[8], more;
    if (r->n_attention_at == SK_MOST_ATTENTION_AT) return false;
    if (sscanf(value, "%7s %lf %lf %lf %lf %c", type, &p.width, &p.keys, &p.forward, &p.backward,
               &more) != 5)
        return false;
    if (!sk_dtype_find(type, &p.type)) return false;
    bool fair = p.width >= 1 && p.width <= 1e6 && p.keys >= 1 && p.keys <= 1e9;
    if (!fair || !(p.forward >= 1 && p.forward <= 1e21)) return false;
    if (!(p.backward >= 1 && p.backward <= 1e21)) return false;
    r->attention_at[r->n_attention_at++] = p;
    return true;
}

/* "layernorm bf16 2.5e7 1.2e-5" */
bool sk_machine_add_op(sk_machine *m, const char *value)
{
    sk_kernel_rates *r = &m->kernels;
    sk_measured_op p = {.bytes = 0};
    char type[8], more;
    if (r->n_ops == SK_MOST_OPS) return false;
    if (sscanf(value, "%23s %7s %lf %lf %c", p.name, type, &p.bytes, &p.seconds, &more) != 4)
        return false;
    if (!sk_dtype_find(type, &p.type)) return false;
    if (!(p.bytes >= 1 && p.bytes <= 1e18 && p.seconds >= 1e-12 && p.seconds <= 1e6)) return false;
    r->op[r->n_ops++] = p;
    return true;
}

void sk_machine_write_products(sk_out *o, const sk_machine *m)
{
    const sk_kernel_rates *r = &m->kernels;
    for (int i = 0; i < r->n_products; i++) {
        const sk_product_rate *p = &r->product[i];
        sk_out_add(o, "product: %s %.9g %.9g %.9g %.9g", p->fp8 ? "fp8" : sk_dtype_name(p->type),
                   p->m, p->n, p->k, p->rate);
        if (p->batch > 1) sk_out_add(o, " %.9g", p->batch);
        sk_out_add(o, "\n");
    }
}

void sk_machine_write_widths(sk_out *o, const sk_machine *m)
{
    const sk_kernel_rates *r = &m->kernels;
    for (int i = 0; i < r->n_widths; i++)
        sk_out_add(o, "attention: %.9g %.9g %.9g\n", r->attention[i].width, r->attention[i].forward,
                   r->attention[i].backward);
}

void sk_machine_write_between(sk_out *o, const sk_machine *m)
{
    for (int i = 0; i < m->n_between; i++)
        sk_out_add(o, "between: %.9g %.9g %.9g\n", m->between[i].hosts, m->between[i].bytes,
                   m->between[i].rate);
}

void sk_machine_write_attention_at(sk_out *o, const sk_machine *m)
{
    for (int i = 0; i < m->kernels.n_attention_at; i++) {
        const sk_attention_at *p = &m->kernels.attention_at[i];
        sk_out_add(o, "attention_at: %s %.9g %.9g %.9g %.9g\n", sk_dtype_name(p->type), p->width,
                   p->keys, p->forward, p->backward);
    }
}

void sk_machine_write_ops(sk_out *o, const sk_machine *m)
{
    for (int i = 0; i < m->kernels.n_ops; i++) {
        const sk_measured_op *p = &m->kernels.op[i];
        sk_out_add(o, "op: %s %s %.9g %.9g\n", p->name, sk_dtype_name(p->type), p->bytes,
                   p->seconds);
    }
}
