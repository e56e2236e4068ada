/* postlocal.c - post-local SGD (Lin et al. 2020): synchronous at first, then Local SGD. */
#include "program/sync.h"

const sk_sync sk_sync_postlocal = {
    .name = "postlocal",
    .doc = "post-local SGD, postlocal:H@STEP or H@decay: gradients are summed at first, then as "
           "local:H",
    .after = true,
    .alias = {{"post_local post_local_sgd postlocalsgd post_localsgd", "postlocal:8@100"}},
};
