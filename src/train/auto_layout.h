/* auto_layout.h - the fastest layout of a job on a machine, searched for (plan/layout_search.h).
 *
 * A layout is compiled and simulated as the job would run.  Of a deep model whose layers are alike,
 * programs of a few layers a stage are, and time and bytes grow by a line from there; what is
 * returned was priced whole.  The search begins at plain recipes: DDP, ZeRO, FSDP, and tensor and
 * pipeline parallelism as Megatron-LM's users set them. */
#ifndef SK_TRAIN_AUTO_LAYOUT_H
#define SK_TRAIN_AUTO_LAYOUT_H

#include "plan/layout_search.h"
#include "plan/machine.h"
#include "train/job.h"

typedef struct sk_auto_in {
    const sk_job *job; /* its layout, if it says one, is a start, too */
    const sk_machine *machine;
    int ranks;
    int64_t memory; /* bytes of a rank; 0: any */
    double seconds; /* 0: any */
    int most;       /* layouts; 0: any */
    int64_t insts;  /* that are compiled; 0: any */
    bool lossy;
} sk_auto_in;

/* One layout, as the search prices it. */
sk_status sk_auto_price(const sk_auto_in *in, const char *text, sk_priced_layout *out);
sk_status sk_auto_layout(const sk_auto_in *in, sk_search_out *out);

/* The machine of a job: job->machine, or a preset, since all hosts must choose alike. */
sk_status sk_auto_machine(sk_arena *a, const sk_job *job, sk_machine *out);
/* layout=auto: the text.  So many layouts are tried, not so long, for the same reason. */
sk_status sk_auto_text(sk_arena *a, const sk_job *job, const char **text);

#endif
