/* attention_kv_grad.cu - the GPU half of attention_kv_grad.c, by kernel/cuda/flash.h. */
#include "kernel/cuda/flash.h"

enum { ADD_Q = 1, ADD_KV = 2 };

static sk_flash own(const sk_args *a)
{
    const sk_view *q = &a->in[0], *kv = &a->in[1];
    sk_flash f = {};
    f.op = "attention_kv_grad";
    sk_flash_apart(&f, q, kv);
    f.time = sk_times{q->at[1], q->size[1], kv->at[1], kv->size[1], q->full[1], (int)a->attr[0]};
    f.q = q->data;
    f.k = kv->data;
    f.v = sk_flash_at(kv, f.d);
    f.y = a->in[2].data;
    f.lse = sk_any_of(&a->in[3]);
    f.dy = a->in[4].data;
    f.dq = a->out[0].data;
    f.dk = a->out[1].data;
    f.dv = sk_flash_at(&a->out[1], f.d);
    f.add_q = a->add & ADD_Q;
    f.add_kv = a->add & ADD_KV;
    return f;
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    sk_flash f = own(a);
    return sk_flash_backward(&f, l);
}

static sk_status prepare(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    sk_flash f = own(a);
    (void)l;
    took->name = sk_flash_name(&f);
    return SK_OK;
}

extern "C" const sk_kernel sk_kernel_attention_kv_grad = {"attention_kv_grad", launch, prepare};
