/* attention.cu - the GPU half of attention.c: cuDNN's kernels where it has some
 * (kernel/cuda/cudnn_sdpa.h), else our own (kernel/cuda/flash.h), which know every shape, type and
 * order of time. */
#include "kernel/cuda/cudnn_sdpa.h"
#include "kernel/cuda/flash.h"

/* cuDNN's over ours on an H100: as FlashAttention-3, which is built like the one, over
 * FlashAttention-2, which is built like the other (Shah et al. 2024: 1.5 to 2). */
static const double SLOWER = 1.5;

/* The plan for these arguments; NULL: our own kernels do it, and *why says why. */
static sk_sdpa_plan *plan_for(const sk_args *a, const sk_launch *l, const char **why)
{
    const sk_view *x = &a->in[0];
    sk_sdpa_shape s = {x->type, x->size[0], x->size[1], x->size[2], x->size[3] - 2, x->size[4]};
    uintptr_t bits = (uintptr_t)x->data | (uintptr_t)a->out[0].data | (uintptr_t)a->out[1].data;
    *why = "operands are not aligned to 16 bytes";
    if (bits % 16) return NULL;
    *why = "time is dealt in zigzag, or rows are not f32";
    if (a->attr[0] > 1 || a->out[1].type != SK_F32) return NULL;
    sk_sdpa_plan *plan = sk_sdpa_find(&s, l->workspace_bytes);
    *why = sk_sdpa_reason(&s);
    return plan;
}

static sk_flash own(const sk_args *a)
{
    const sk_view *x = &a->in[0];
    sk_flash f = {};
    f.op = "attention";
    sk_flash_packed(&f, x);
    f.time = sk_times{x->at[1], x->size[1], x->at[1], x->size[1], x->full[1], (int)a->attr[0]};
    f.q = x->data;
    f.k = sk_flash_at(x, f.r * f.d);
    f.v = sk_flash_at(x, (f.r + 1) * f.d);
    f.y = a->out[0].data;
    f.lse = sk_any_of(&a->out[1]);
    return f;
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const char *why;
    sk_sdpa_plan *plan = plan_for(a, l, &why);
    if (plan) {
        sk_sdpa_data data = {a->in[0].data, NULL, a->out[0].data, NULL, (float *)a->out[1].data};
        return sk_sdpa_run(plan, &data, l->workspace, l->stream);
    }
    sk_flash f = own(a);
    return sk_flash_forward(&f, l);
}

/* Runs a new plan once: its kernels are loaded before anything is recorded. */
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

extern "C" const sk_kernel sk_kernel_attention = {"attention", launch, prepare, early};
