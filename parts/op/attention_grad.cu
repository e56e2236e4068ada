/* attention_grad.cu - the GPU half of attention_grad.c: as attention.cu. */
#include "device/sdpa.h"
#include "graph/flash.h"

static sk_sdpa_plan *plan_for(const sk_args *a, const sk_launch *l)
{
    const sk_view *x = &a->in[0];
    sk_sdpa_shape s = {x->type, x->size[0], x->size[1], x->size[2], x->size[3] - 2, x->size[4]};
    uintptr_t bits = (uintptr_t)a->out[0].data;
    for (int i = 0; i < 4; i++) bits |= (uintptr_t)a->in[i].data;
    if (bits % 16 || a->attr[0] > 1 || a->in[2].type != SK_F32) return NULL;
    s.backward = true;
    return sk_sdpa_find(&s, l->room_bytes);
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    const sk_view *x = &a->in[0], *dx = &a->out[0];
    sk_sdpa_plan *plan = plan_for(a, l);
    if (plan) {
        sk_sdpa_data data = {x->data, a->in[3].data, a->in[1].data, dx->data,
                             (float *)a->in[2].data};
        return sk_sdpa_run(plan, &data, l->room, l->stream);
    }
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
    return sk_flash_backward(&f, l);
}

static sk_status prepare(const sk_args *a, const sk_launch *l)
{
    return plan_for(a, l) ? launch(a, l) : SK_OK;
}

static void early(const sk_args *a, const sk_launch *l) { (void)plan_for(a, l); }

extern "C" const sk_kernel sk_kernel_attention_grad = {"attention_grad", launch, prepare, early};
