/* adasum_insts.c - PRODUCTS and ADASUM of a list of gradients (program/grad_adasum.c), on the host.
 *
 * A thread takes whole pairs, and each product is summed in one order: the bits do not depend on
 * the number of threads. */
#include "run/cpu/adasum_insts.h"
#include "coll/adasum_kernel.h"

typedef struct adasum_job {
    sk_dtype type;
    int n;
    int64_t length, bytes; /* of one vector */
    char *vectors, *out;
    double *products, weight[SK_ADASUM_MOST];
} adasum_job;

static adasum_job job_of(const sk_program *p, const sk_inst *in, char *base, int products)
{
    const sk_buffer *all = &p->bufs.v[in->in[0]];
    adasum_job j = {.type = all->type,
                    .n = (int)in->pieces,
                    .bytes = all->bytes / in->pieces,
                    .vectors = base + all->offset,
                    .out = base + p->bufs.v[in->out[0]].offset,
                    .products = (double *)(void *)(base + p->bufs.v[products].offset)};
    j.length = j.bytes / (int64_t)sk_dtype_size(all->type);
    return j;
}

static void products_part(void *ctx, int part, int of)
{
    const adasum_job *j = ctx;
    for (int i = 0; i < j->n; i++)
        for (int k = 0; k <= i; k++) {
            int at = sk_adasum_pair(i, k);
            if (at % of != part) continue;
            j->products[at] = sk_adasum_product(j->type, j->vectors + i * j->bytes,
                                                j->vectors + k * j->bytes, j->length);
        }
}

void sk_run_products(const sk_program *p, const sk_inst *in, char *base, sk_threads *team)
{
    adasum_job j = job_of(p, in, base, in->out[0]);
    sk_threads_run(team, products_part, &j);
}

static void adasum_part(void *ctx, int part, int of)
{
    adasum_job *j = ctx;
    sk_adasum_join(j->type, j->vectors, j->n, j->length, j->weight, j->out, j->length * part / of,
                   j->length * (part + 1) / of);
}

void sk_run_adasum(const sk_program *p, const sk_inst *in, char *base, sk_threads *team)
{
    adasum_job j = job_of(p, in, base, in->in[1]);
    sk_adasum_weights(j.products, j.n, j.weight);
    for (int i = 0; i < j.n; i++) j.weight[i] *= j.n;
    sk_threads_run(team, adasum_part, &j);
}
