/* job.h - everything a training run was asked to do, as plain data.
 *
 * cli/conf.c fills it from a YAML file and the command line; nothing below cli/
 * knows about keys or files of configuration. */
#ifndef SK_TRAIN_JOB_H
#define SK_TRAIN_JOB_H

#include "model/model.h"
#include "kernel/optim.h"
#include "train/lr_schedule.h"

#include <limits.h>

enum { SK_NAME = 64, SK_LAYOUT_TEXT = 4096 };

typedef struct sk_every { /* how often: after so many steps, or so many seconds; both 0: never */
    int64_t steps;
    double seconds;
} sk_every;

struct sk_machine;

typedef struct sk_job {
    const sk_model *model;
    sk_hyper hyper;
    char model_name[SK_NAME]; /* preset or arch, for people */
    char model_dir[PATH_MAX]; /* start from these weights; "" starts from init */
    char data_train[PATH_MAX], data_val[PATH_MAX]; /* file, directory, glob, or a known name */
    char data_tokenizer[PATH_MAX];                 /* "byte", "none", or where tokenizer.json is */
    char data_format[SK_NAME];                     /* "auto", or "text": whatever it looks like */
    char data_dtype[SK_NAME]; /* of ids without a header: "auto", "uint16" or "uint32" */
    char data_order[SK_NAME]; /* "shuffle" or "sequential" */
    int64_t data_changed;     /* 1: may be others than the checkpoint's */
    double data_val_fraction; /* cut off the end of data.train when data.val is empty */
    int64_t steps, batch, seq,
        micro_batch; /* micro_batch: sequences per micro-batch; 0: from layout */
    sk_dtype dtype;
    char matmul[SK_NAME]; /* "same": products are taken in dtype; "fp8": those of the blocks not */
    sk_dtype state_dtype; /* of the optimizer (kernel/optim.h) */
    char nonfinite[SK_NAME]; /* "stop", "skip" or "rollback" */
    uint64_t seed;
    int64_t threads; /* per rank; 0: cores / ranks on this host, at least 1 */
    char optim_name[SK_NAME];
    double lr, min_lr, clip;     /* clip 0: none */
    bool lr_said, decay_said;    /* beside groups: optim.lr, optim.weight_decay are for all */
    double knob[SK_MAX_KNOB];    /* of the optimizer, in the order of sk_optim.knobs; but lr */
    char groups[SK_LAYOUT_TEXT]; /* optim.groups, as it was said */
    sk_param_group group[SK_MAX_PARAM_GROUPS - 1]; /* and read: groups 1 to n_groups */
    int n_groups, n_groups_said; /* those behind what was said are of optimizers for matrices */
    int64_t budget;              /* bytes a rank may take; 0: any */
    const struct sk_machine *machine; /* that a layout is chosen for; NULL: a preset, by device */
    double ema;                       /* decay of the average of weights; 0: none is kept */
    int64_t adascale;                 /* the batch is so many times that of optim.lr; 0: off */
    char matrix_work[SK_NAME];        /* optim.work */
    int64_t late;                     /* 1: updates run beside the next step */
    char schedule[SK_NAME];           /* of the learning rate: a part of parts/lr */
    double lr_knob[SK_MAX_LR_KNOB];   /* of the schedule, in the order of sk_lr.knobs */
    int64_t warmup;
    char layout[SK_LAYOUT_TEXT];
    bool layout_unsaid;            /* it is dp=RANKS, for nobody said one: default_layout.h */
    char relayout[SK_LAYOUT_TEXT]; /* "STEP: LAYOUT, ...": from these steps on; "": never */
    char order[SK_NAME];           /* "fast", "canonical" or "any" */
    char device[32];               /* cpu, cuda or cuda:N */
    char scratch[PATH_MAX];        /* folder of the offload file; "": the run directory */
    char run[PATH_MAX];            /* run directory; "": runs/<time>-<name> */
    sk_every ckpt_every;           /* never: only at the end */
    int64_t ckpt_keep;             /* 0: all */
    char resume[PATH_MAX];         /* "": no; "auto": newest in the run directory; a path */
    char replay[PATH_MAX];         /* run whose commits.jsonl is imposed: --replay; "": none */
    int64_t ranks;
    char algorithm[256];  /* of collectives (coll/pins.h); "auto": chosen by cost */
    char links[PATH_MAX]; /* file of links between ranks (coll/links.h); "": all of a kind alike */
    int64_t bucket;       /* bytes of gradients that are reduced together; 0: 8 MiB */
    double timeout;       /* seconds any wait may take; 0: from the price of a step */
    /* Not asked for but found, where another launcher started the ranks: */
    const int *host_of;           /* rank -> host; NULL: one host */
    const struct sk_costs *costs; /* alike on all ranks; NULL: the preset */
    bool all_told;                /* no training loop runs it: sk_compile_opts.all_told */
    bool stays_here;              /* a budget may not take anything out of the device */
    int64_t log_every, val_every, val_batches, sample_every; /* 0: never; -1: choose */
    int64_t dropless; /* 1: a step in which an expert was full is run again with room for all */
    int64_t noise;    /* 1: measure the gradient noise scale */
    double stop_loss, stop_accuracy; /* a validation as good as that ends the run; 0: none does */
    char backward[SK_LAYOUT_TEXT];   /* "norms, variance": backward_outputs.h; "": nothing */
    int64_t backward_every;          /* steps between files of these tensors; 0: none */
    int64_t trace;                   /* 1: keep the times of the last step: trace.json */
    char sample_prompt[256];
    double time_limit;     /* seconds; > 0: choose steps so that training takes about this long */
    char source[PATH_MAX]; /* the config file, for messages and records; "" none */
    char own_said[256];    /* beside groups: optim.name and numbers of it that the user said */
    char left_out[1024];   /* lines about numbers of a file that the optimizer has no place for */
    /* Of the training loss, 0: none; and of rates, from layer to layer down from the head. */
    double label_smoothing, z_loss, layer_decay;
    /* train/batch_schedule.h, "": the batch stays; and how rates follow it: none, sqrt, linear. */
    char batch_schedule[SK_LAYOUT_TEXT], batch_scaling[SK_NAME];
    /* NULL, or: writes the graph in place of model->build; there is no model then, and hyper has
     * only what data are held to (vocab_size, input_size).  Letters b and t are sized. */
    void (*build)(sk_graph *g, void *ctx);
    void *build_ctx;
} sk_job;

/* train.steps=0: one validation, on all of its data, and nothing else. */
static inline bool sk_job_validates_only(const sk_job *j)
{
    return !j->steps && !(j->time_limit > 0);
}

#endif
