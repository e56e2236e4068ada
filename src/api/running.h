/* running.h - a run of the library: the caller's requests and the ranks that serve them;
 * private to api/.
 *
 * Requests, answers and the batch lie in the memory that the heaps have beside them,
 * so that ranks may be threads or processes.  The caller writes a request and
 * raises `go` of every rank; each serves it, writes its answer and raises `done`.
 * Between two requests ranks stand still, and the caller reads and writes their heaps. */
#ifndef SK_API_RUNNING_H
#define SK_API_RUNNING_H

#include "api/handles.h"
#include "run/run.h"
#include "train/loss_scale.h"
#include "train/lr_schedule.h"

#include <semaphore.h>
#include <sys/types.h>

typedef enum sk_request_kind {
    SK_REQUEST_BEGIN, /* what ranks do unasked: open, first weights */
    SK_REQUEST_STEP,
    SK_REQUEST_VALIDATE,
    SK_REQUEST_PULL,     /* weights and state from the device to where the caller sees them */
    SK_REQUEST_PUSH,     /* and back */
    SK_REQUEST_PULL_SUM, /* a sum that an output of the backward pass is made of */
    SK_REQUEST_END
} sk_request_kind;

typedef struct sk_run_control {
    sem_t done;
    sk_request_kind kind;
    long long number; /* of the request; ranks answer with it */
    sk_step_in in;
    int64_t batch;   /* of validation */
    int output;      /* of SK_REQUEST_PULL_SUM: of this one of skein_run.outputs */
    bool of_grad;    /* its gradient, not its sum */
    sk_step_out out; /* rank 0's */
} sk_run_control;

typedef struct sk_run_slot { /* one for each rank */
    _Alignas(64) sem_t go;
    atomic_llong answered;
} sk_run_slot;

typedef struct sk_run_input { /* of the graph */
    const char *name;
    sk_dtype type;
    int n;
    int64_t full[SK_MAX_DIM], count;
    bool *fed;  /* for the next step; shared, as is */
    char *data; /* the whole, dense */
} sk_run_input;

typedef struct sk_kept_tensor { /* a tensor that ranks keep */
    const char *name;
    int n;
    int64_t full[SK_SHARD_DIM], count;
} sk_kept_tensor;

struct skein_run {
    sk_arena arena;
    skein_program *program;
    int flags;
    pid_t caller;
    sk_heaps *heaps;
    sk_run_control *control;
    sk_run_slot *slots;
    sk_ranks ranks;
    bool started; /* ranks were */
    bool broken;  /* a rank failed: the control block says why */
    sk_run_input *inputs;
    int n_inputs;
    sk_kept_tensor *tensors; /* parameters first */
    int n_tensors;
    sk_tensor_shard **boxes; /* by rank, what it keeps */
    int *n_boxes;
    struct sk_backward_output *outputs; /* of the backward pass: ranks know them, too */
    int n_outputs;
    bool step_finite; /* the last step: its outputs can be read */
    double step_tokens, step_scale;
    sk_lr_schedule rate;
    sk_loss_scale scale;
    double own_lr; /* below 0: by `rate` */
    int64_t done, updates, validated;
};

/* api_run.c: a request, until all ranks have served it. */
sk_status sk_run_request(skein_run *r, sk_request_kind kind);
/* api_life.c: what a rank does from the beginning to the end; ctx is the skein_run. */
sk_status sk_rank_life(void *ctx, int rank);

/* api_feed.c */
int64_t sk_inputs_bytes(const skein_run *r); /* of shared memory */
void sk_inputs_list(skein_run *r);
void sk_inputs_place(skein_run *r, char *at);
sk_status sk_inputs_check(const skein_run *r); /* has everything been fed? */
void sk_inputs_used(skein_run *r);
sk_status sk_inputs_suit(const skein_run *r); /* can data.train fill them? */
sk_status sk_inputs_fill(void *run, const char *input, sk_dtype type, const sk_extent *box,
                         int64_t step, bool validation, void *to);

/* api_tensor.c: what ranks keep, by name. */
void sk_tensors_list(skein_run *r);

/* api_output.c: what the backward pass tells; and the shards of one, of a rank, from its device. */
void sk_outputs_list(skein_run *r);
sk_status sk_output_pull(const skein_run *r, int rank, sk_run *run);

#endif
