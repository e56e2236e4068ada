/* gossip.c - gossip averaging (Jin et al. 2016; Lian et al. 2017, D-PSGD): every so often a replica
 * averages with one partner, who changes from time to time. */
#include "program/sync.h"

const sk_sync sk_sync_gossip = {
    .name = "gossip",
    .doc = "gossip: every H steps each replica averages its weights with a partner, who changes",
    .usual = 1,
    .pairs = true,
    .alias = {{"dpsgd d_psgd gossip_sgd decentralized_sgd", "gossip:1"}},
};
