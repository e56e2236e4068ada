/* layernorm_grad_w.cu - the GPU half of layernorm_grad_w.c; the kernels are in
 * kernel/cuda/norm_grad.cu.
 */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/norm_grad.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    sk_norm_grad_job j = {};
    j.op = "layernorm_grad_w";
    j.n = v->size[v->n - 1], j.rows = sk_span(v, 0, v->n - 1);
    j.type = v->type;
    j.cells = sk_args_canonical(a) ? v : NULL;
    j.x = v->data, j.dy = a->in[3].data;
    j.mean = sk_any_of(&a->in[1]), j.rstd = sk_any_of(&a->in[2]);
    j.dw = sk_any_of(&a->out[0]), j.db = sk_any_of(&a->out[1]);
    j.add_dw = a->add & 1, j.add_db = a->add & 2;
    return sk_norm_grad(&j, l);
}

extern "C" const sk_kernel sk_kernel_layernorm_grad_w = {"layernorm_grad_w", launch};
