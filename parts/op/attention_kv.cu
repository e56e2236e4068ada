/* attention_kv.cu - the GPU half of attention_kv.c, by kernel/cuda/flash.h. */
#include "kernel/cuda/flash.h"

enum { BOTH = 3 };

static sk_flash own(const sk_args *a)
{
    const sk_view *q = &a->in[0], *kv = &a->in[1];
    sk_flash f = {};
    f.op = "attention_kv";
    sk_flash_apart(&f, q, kv);
    f.time = sk_times{q->at[1], q->size[1], kv->at[1], kv->size[1], q->full[1], (int)a->attr[0]};
    f.q = q->data;
    f.k = kv->data;
    f.v = sk_flash_at(kv, f.d);
    f.y = a->out[0].data;
    f.lse = sk_any_of(&a->out[1]);
    f.merge = (a->add & BOTH) == BOTH;
    return f;
}

static sk_status launch(const sk_args *a, const sk_launch *l)
{
    sk_flash f = own(a);
    return sk_flash_forward(&f, l);
}

static sk_status prepare(const sk_args *a, const sk_launch *l, sk_variant *took)
{
    sk_flash f = own(a);
    (void)l;
    took->name = sk_flash_name(&f);
    return SK_OK;
}

extern "C" const sk_kernel sk_kernel_attention_kv = {"attention_kv", launch, prepare};
