/* local.c - Local SGD (Stich 2019; Zinkevich et al. 2010): replicas average their weights. */
#include "program/sync.h"

const sk_sync sk_sync_local = {
    .name = "local",
    .doc = "Local SGD: each replica updates alone, weights are averaged every H steps",
    .alias = {{"localsgd local_sgd local_steps model_averaging periodic_averaging fedavg",
               "local:8"}},
};
