/* gpu_support.c - the types of an instruction's operands, against what its GPU kernel takes. */
#include "run/gpu/gpu_support.h"
#include "kernel/codec_kernel.h"
#include "kernel/optim_kernel.h"
#include "program/acts.h"
#include "run/gpu/inst_kernels.h"
#include "run/gpu/gpu_offload.h"

static sk_dtype type_of(const sk_program *p, int buf) { return p->bufs.v[buf].type; }

static sk_status op_takes(const sk_program *p, const sk_inst *in)
{
    sk_args a;
    sk_inst_args(p, in, NULL, &a);
    return sk_op_takes(in->node->op, &a);
}

/* Operands as gpu_tables.c reads them: the gradient, sums, then the state. */
static sk_status update_takes(const sk_program *p, const sk_inst *in)
{
    if (sk_offload_does(p, in)) return SK_OK; /* the host does it */
    const sk_param_plan *q = &p->params.v[in->param];
    bool last = in->act == SK_DO_UPDATE && q->master >= 0 && sk_last_pass(p, in);
    sk_update_job j = {.grad_type = type_of(p, in->in[0]),
                       .state_type = SK_F32,
                       .narrow_type = last ? type_of(p, in->out[0]) : SK_F32,
                       .ordered = p->layout.canonical};
    if (q->n_state) j.state_type = type_of(p, in->in[2]);
    return sk_update_takes(q->optim->name, &j);
}

sk_status sk_gpu_supports(const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    switch (in->act) {
    case SK_DO_OP:
        return op_takes(p, in);
    case SK_DO_ENCODE:
        return sk_code_takes(in->codec->name, type_of(p, in->in[0]));
    case SK_DO_DECODE:
        return sk_code_takes(in->codec->name, type_of(p, in->out[0]));
    case SK_DO_UPDATE:
    case SK_DO_AHEAD:
        return update_takes(p, in);
    case SK_DO_ADD:
    case SK_DO_UNPACK:
        return sk_inst_kernel_takes(sk_act_row_of(in)->name, type_of(p, in->out[0]));
    case SK_DO_PACK:
    case SK_DO_KEEP:
    case SK_DO_SUMSQ:
        return sk_inst_kernel_takes(sk_act_row_of(in)->name, type_of(p, in->in[0]));
    default:
        return SK_OK;
    }
}
