/* experts.h - mixtures of experts: what the models that have them are built from.
 *
 *     sk_experts m = sk_experts_route(g, h, x, i, mode, true);
 *     sk_tensor *rows = sk_experts_send(g, m, x);            "btc" -> "ebxc"
 *     ... what an expert does, as products over the letter e ...
 *     sk_tensor *y = sk_experts_collect(g, m, rows);         "ebxc" -> "btc"
 *
 * Letters: e experts, x places of an expert in a sequence, k choices of a token, u groups of
 * experts; and g, experts as the router counts them: as many as e, but not split where experts are,
 * because every rank that has a token must have all of its logits. Routing goes by sequence, so
 * that no layout and no micro-batch changes a decision. Weights of a bank begin with a long dim,
 * "fec" or "cef": shards are cut along the first one. */
#ifndef SK_MODEL_EXPERTS_H
#define SK_MODEL_EXPERTS_H

#include "model/blocks.h"

typedef struct sk_experts {
    sk_tensor *slot, *gate; /* "btk" */
} sk_experts;

/* Check the sizes and give e, g, x, k and u theirs; b and t have theirs. */
void sk_experts_sizes(sk_graph *g, const sk_hyper *h, sk_mode mode);

/* The router of layer i.  With router_bias_update_speed it has a bias (parts/op/route_biased.c),
 * which is updated against the load of its experts.  In training, its balance goes to the sum of
 * aux and the number of dropped choices to drops; in decoding no choice is dropped. */
sk_experts sk_experts_route(sk_graph *g, const sk_hyper *h, sk_tensor *x, int i, sk_mode mode,
                            bool among_chosen);
sk_tensor *sk_experts_send(sk_graph *g, sk_experts m, sk_tensor *x);
sk_tensor *sk_experts_collect(sk_graph *g, sk_experts m, sk_tensor *rows);

/* The tensors of a router in Hugging Face's form: how many there are, and the k-th. */
typedef struct sk_experts_names {
    sk_hf_row router, groups, bias;
} sk_experts_names;
int sk_experts_routers(const sk_hyper *h);
const sk_hf_row *sk_experts_router(const sk_hyper *h, const sk_experts_names *names, int k);

/* The keys of experts in config.json, all but the coefficient of the balance loss. */
extern const sk_hf_key sk_experts_keys[];

#endif
