/* acts.c - the engine's own work on a GPU, if it is linked. */
#include "run/acts.h"

/* In skein_cuda; where that is not linked, its address is NULL. */
#pragma weak sk_acts_cuda

const sk_acts *sk_acts_find(void) { return &sk_acts_cuda; }
