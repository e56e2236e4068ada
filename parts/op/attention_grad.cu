/* attention_grad.cu - the GPU half of attention_grad.c: as attention.cu. */
#include "kernel/cuda/cudnn_sdpa.h"
#include "kernel/cuda/flash.h"

/* Ours over cuDNN's, on an H200: 137 TFLOP/s at 32,768 tokens, where cuDNN has 383 at 16,384. */
static const double SLOWER = 2.8;

static sk_sdpa_plan *plan_for(const sk_args *a, const sk_launch *l, const char **why)
{
    const sk_view *x = &a->in[0];
    sk_sdpa_shape s = {x->type, x->size[0], x->size[1], x->size[2], x->size[3] - 2, x->size[4]};
    uintptr_t bits = (uintptr_t)a->out[0].data;
    for (int i = 0; i < 4; i++) bits |= (uintptr_t)a->in[i].data;
    *why = "operands are not aligned to 16 bytes";
    if (bits % 16) return NULL;
    *why = "time is dealt in zigzag, or rows are not f32";
    if (a->attr[0] > 1 || a->in[2].type != SK_F32) return NULL;
    s.backward = true;
    sk_sdpa_plan *plan = sk_sdpa_find(&s, l->workspace_bytes);
    *why = sk_sdpa_reason(&s);
    return plan;
}

static sk_flash own(const sk_args *a)
{
    const sk_view *x = &a->in[0], *dx = &a->out[0];
    sk_flash f = {};
    f.op = "attention_grad";
    sk_flash_packed(&f, x);
    f.time = sk_times{x->at[1], x->size[1], x->at[1], x->size[1], x->full[1], (int)a->attr[0]};
    f.q = x->data;
    f.k = sk_flash_at(x, f.r * f.d);
    f.v = sk_flash_at(x, (f.r + 1) * f.d);
    f.y = a->in[1].data;
    f.lse = sk_any_of(&a->in[2]);
    f.dy = a->in[3].data;
    f.dq = dx->data;
    f.dk = sk_flash_at(dx, f.r * f.d);
    f.dv = sk_flash_at(dx, (f.r + 1) * f.d);
    return f;
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const char *why;
    sk_sdpa_plan *plan = plan_for(a, l, &why);
    if (plan) {
        sk_sdpa_data data = {a->in[0].data, a->in[3].data, a->in[1].data, a->out[0].data,
                             (float *)a->in[2].data};
        return sk_sdpa_run(plan, &data, l->workspace, l->stream);
    }
    sk_flash f = own(a);
    return sk_flash_backward(&f, l);
}

static sk_status prepare(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    const char *why;
    sk_flash f = own(a);
    took->name = "cuDNN";
    if (plan_for(a, l, &why)) return launch(a, l);
    sk_flash_took(&f, why, SLOWER, took);
    return SK_OK;
}

static void early(const sk_args *a, const sk_launch *l)
{
    const char *why;
    (void)plan_for(a, l, &why);
}

extern "C" const sk_kernel sk_kernel_attention_grad = {"attention_grad", launch, prepare, early};
