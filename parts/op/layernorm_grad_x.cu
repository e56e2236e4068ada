/* layernorm_grad_x.cu - the GPU half of layernorm_grad_x.c; the kernels are in
 * kernel/cuda/norm_grad.cu.
 */
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/norm_grad.h"

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *v = &a->in[0];
    sk_norm_grad_job j = {};
    j.op = "layernorm_grad_x";
    j.n = v->size[v->n - 1], j.rows = sk_span(v, 0, v->n - 1);
    j.type = v->type;
    j.cells = sk_args_canonical(a) ? v : NULL;
    j.x = v->data, j.w = a->in[1].data, j.dy = a->in[4].data, j.dx = a->out[0].data;
    j.mean = sk_any_of(&a->in[2]), j.rstd = sk_any_of(&a->in[3]);
    return sk_norm_grad(&j, l);
}

extern "C" const sk_kernel sk_kernel_layernorm_grad_x = {"layernorm_grad_x", launch};
