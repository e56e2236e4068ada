/* conf_keys.c - the table of keys. */
#include "cli/conf_key.h"
#include "cli/setting.h"
#include "kernel/optim.h"

#include <math.h>
#include <string.h>

#define KEY(key_name, key_kind, field, ...)                                         \
    {                                                                               \
        .name = key_name, .kind = SK_KEY_##key_kind, .at = offsetof(sk_job, field), \
        .size = sizeof(((sk_job *)0)->field), __VA_ARGS__                           \
    }
#define DEFAULT(text, help)   .default_text = text, .doc = help
#define FROM(lowest, highest) .least = lowest, .most = highest
#define HUGE_COUNT            1e15

static const char backward_more[] =
    "\n"
    "  norms             norm of the gradient of every sample\n"
    "  second_moment     squared gradients of samples, summed\n"
    "  variance          of the gradients of samples, element by element\n"
    "  gradients         of every sample\n"
    "  diag_ggn          diagonal of the generalised Gauss-Newton matrix (classifiers)\n"
    "  diag_ggn_mc       an estimate of it, from one drawn class a row\n"
    "  kron              Kronecker factors of the Fisher matrix, as K-FAC's\n"
    "\n"
    "  train.backward=norms                                 metrics.jsonl has sample_norm_mean "
    "...\n"
    "  train.backward=\"variance, kron\" train.backward_every=100     and RUN/backward the "
    "tensors\n";

static const char batches_more[] =
    "\n"
    "  STEP: BATCH, STEP: BATCH ...   from so many steps on; before the first it is train.batch\n"
    "  noise, noise:LEAST-MOST        doubled and halved by the gradient noise scale, 20 steps\n"
    "                                 after the last change at the earliest\n"
    "\n"
    "  train.batch_schedule=\"100: 64, 300: 256\"\n"
    "  train.batch_schedule=noise:8-512 optim.batch_scaling=sqrt     the rate follows the batch\n";

static const char relayout_more[] =
    "\n"
    "  STEP: LAYOUT, STEP: LAYOUT ...   from so many steps on; before the first it is layout\n"
    "\n"
    "  layout=dp=4 train.relayout=\"100: dp=2 tp=2, 200: dp=4 zero=3\"     ranks stay as many\n";

static const char groups_more[] =
    "\n"
    "  GROUP: OPTIMIZER KEY=VALUE ..., GROUP: ...   The first group that a parameter is in "
    "counts.\n"
    "  GROUP is a pattern of names (h.0.*), or a class: matrix, head (the last matrix), "
    "embedding,\n"
    "  vector (biases, norms), rest (what is in no other).  OPTIMIZER: skein list optim; left "
    "out,\n"
    "  it is the one that a parameter has without the group.  KEY: lr, or a number of the "
    "optimizer;\n"
    "  a list is [0.9, 0.99].  lr and weight_decay, left out, are optim.lr and "
    "optim.weight_decay\n"
    "  where these are said, else the optimizer's defaults.\n"
    "\n"
    "  optim.groups=\"matrix: muon lr=0.02 match_rms=0, rest: adamw\"\n"
    "  optim.groups=\"wte: lr=1e-4, h.0.*: lion betas=[0.9, 0.99], rest: adamw\"\n"
    "  optim.groups=\"vector: adamw weight_decay=0.01, rest: adamw\"   vectors decay only if it is "
    "said\n";

static const char links_more[] =
    "\n"
    "  FROM TO BYTES_PER_SECOND         the link of two ranks, both ways\n"
    "  FROM > TO BYTES_PER_SECOND       one way\n"
    "  rest BYTES_PER_SECOND            all pairs without a line; left out, they have no link\n"
    "  # a comment\n"
    "\n"
    "  For calls between hosts: ranks of one host read each other's memory, and between GPUs NCCL\n"
    "  finds the topology itself.\n";

const sk_conf_key sk_conf_table[] = {
    KEY("data.train", TEXT, data_train,
        DEFAULT("kjv", "training data: file, directory, glob or name (kjv, fashion-mnist)")),
    KEY("data.val", TEXT, data_val,
        DEFAULT("", "validation data, likewise; empty: those that data.train brings, or its end"),
        .off = ""),
    KEY("data.tokenizer", TEXT, data_tokenizer,
        DEFAULT("byte", "byte, or where tokenizer.json is; a model directory brings its own")),
    KEY("data.format", TEXT, data_format,
        DEFAULT("auto", "auto: by content and name; text: plain text, whatever it looks like"),
        .one_of = "auto text"),
    KEY("data.dtype", TEXT, data_dtype,
        DEFAULT("auto", "of token files without a header: uint16 or uint32; auto: from their ids"),
        .one_of = "auto uint16 uint32"),
    KEY("data.order", TEXT, data_order,
        DEFAULT("shuffle", "order of samples: shuffle or sequential"),
        .one_of = "shuffle sequential"),
    KEY("data.val_fraction", REAL, data_val_fraction,
        DEFAULT("0.1", "part of data.train that is held out for validation"), FROM(0, 0.9),
        .off = "0"),
    KEY("data.changed", INT, data_changed,
        DEFAULT("0", "1: resume although data.train is not what the checkpoint was trained on"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("train.steps", INT, steps,
        DEFAULT("200", "optimizer steps; 0: validate on all of data.val, and end"),
        FROM(0, HUGE_COUNT)),
    KEY("train.batch", INT, batch,
        DEFAULT("12", "global batch size: sequences per step, over all ranks"), FROM(1, 1e9)),
    KEY("train.seq", INT, seq,
        DEFAULT("256", "sequence length in tokens; by default at most what the model has"),
        FROM(1, 1e9)),
    KEY("train.micro_batch", INT, micro_batch,
        DEFAULT("0", "sequences per micro-batch; 0: as the layout says"), FROM(0, 1e9)),
    KEY("train.dtype", DTYPE, dtype,
        DEFAULT("f32", "type of weights and activations: f32, bf16 or f16"),
        .one_of = "f32 bf16 f16"),
    KEY("train.matmul", TEXT, matmul,
        DEFAULT("same", "matrix products with weights of blocks: same (as train.dtype), or fp8"),
        .one_of = "same fp8"),
    KEY("train.nonfinite", TEXT, nonfinite,
        DEFAULT("stop", "loss or gradients not finite: stop, skip the step, or rollback"),
        .one_of = "stop skip rollback"),
    KEY("train.scratch", TEXT, scratch,
        DEFAULT("", "folder for tensors that are offloaded to a file; empty: the run directory")),
    KEY("train.seed", INT, seed,
        DEFAULT("1", "seed of initial weights, dropout and the order of samples"), FROM(0, 9e18)),
    KEY("train.threads", INT, threads,
        DEFAULT(
            "0",
            "CPU threads per rank; 0: OMP_NUM_THREADS, or the host's cores divided by its ranks"),
        FROM(0, 256)),
    KEY("train.time", SECONDS, time_limit,
        DEFAULT("0", "choose the number of steps to take about 90, 90s, 2m or 1h; 0: train.steps"),
        FROM(0, 1e9), .off = "0"),
    KEY("train.relayout", TEXT, relayout,
        DEFAULT("", "change the layout from a step on: \"100: dp=2 tp=2, 200: dp=4\""), .off = "",
        .more = relayout_more),
    KEY("train.batch_schedule", TEXT, batch_schedule,
        DEFAULT("",
                "change train.batch from a step on: \"100: 64, 300: 256\"; or noise, noise:8-512"),
        .off = "", .more = batches_more),
    KEY("train.dropless", INT, dropless,
        DEFAULT("0", "1: a step that drops tokens of a full expert runs again with room for all"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("train.noise", INT, noise,
        DEFAULT("0", "1: measure the gradient noise scale, from gradients of parts of the batch"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("train.label_smoothing", REAL, label_smoothing,
        DEFAULT("0", "part of the target that is spread over all classes of the cross-entropy"),
        FROM(0, 0.99), .off = "0"),
    KEY("train.z_loss", REAL, z_loss,
        DEFAULT("0", "weight of the squared logarithm of the softmax's divisor, as 1e-4"),
        FROM(0, 1), .off = "0"),
    KEY("train.backward", TEXT, backward,
        DEFAULT("", "what the backward pass tells: \"norms, variance, kron\" (doc/backward.md)"),
        .off = "", .more = backward_more),
    KEY("train.backward_every", INT, backward_every,
        DEFAULT("0", "steps between files with these tensors, in RUN/backward; 0: none"),
        FROM(0, HUGE_COUNT), .off = "0"),
    KEY("optim.name", TEXT, optim_name, DEFAULT("adamw", "optimizer: skein list optim")),
    KEY("optim.groups", TEXT, groups,
        DEFAULT("", "optimizers of some parameters: \"matrix: sgd lr=0.1, wte: adamw\""), .off = "",
        .more = groups_more),
    KEY("optim.state", STATE, state_dtype,
        DEFAULT("auto", "type of the optimizer state: f32, bf16, int8, or auto: its own"),
        .one_of = "auto f32 bf16 int8"),
    KEY("optim.lr", REAL, lr, DEFAULT("1e-3", "peak learning rate"), FROM(0, 1e6), .knob = "lr"),
    KEY("optim.min_lr", REAL, min_lr, DEFAULT("0", "learning rate at the end of the schedule"),
        FROM(0, 1e6)),
    KEY("optim.clip", REAL, clip,
        DEFAULT("1", "gradients are clipped to this global norm; 0: never"), FROM(0, 1e9),
        .off = "0", .after_knobs = SK_KNOBS_OPTIM),
    KEY("optim.ema", REAL, ema,
        DEFAULT("0", "decay of an average of the weights, for validation and export; 0: none"),
        FROM(0, SK_BELOW_ONE), .off = "0"),
    KEY("optim.layer_decay", REAL, layer_decay,
        DEFAULT("1", "the rate of a layer is this part of the rate of the layer above it"),
        FROM(0.01, 1), .off = "1"),
    KEY("optim.batch_scaling", TEXT, batch_scaling,
        DEFAULT("none", "the rate follows train.batch_schedule: none, sqrt or linear"),
        .one_of = "none sqrt linear"),
    KEY("optim.work", TEXT, matrix_work,
        DEFAULT("auto", "who works on whole matrices: all, owner, cut, or auto: the fastest"),
        .one_of = "auto all owner cut"),
    KEY("optim.late", INT, late,
        DEFAULT("0", "1: an update overlaps the next step, on the host (offload=state)"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("optim.adascale", INT, adascale,
        DEFAULT("0", "AdaScale: the batch is so many times the one that optim.lr is for; 0: off"),
        FROM(0, 1e6), .off = "0"),
    KEY("optim.schedule", TEXT, schedule,
        DEFAULT("cosine", "learning rate behind the warmup: skein list lr"),
        .one_of_parts = sk_conf_schedules),
    KEY("optim.warmup", INT, warmup,
        DEFAULT("10", "steps of linear warmup to the peak learning rate"), FROM(0, HUGE_COUNT),
        .off = "0", .after_knobs = SK_KNOBS_LR),
    KEY("layout", LAYOUT, layout,
        DEFAULT("", "how ranks share the work: words (skein help layout), lines, or a file; empty: "
                    "dp=RANKS, or what is predicted to be much faster or fits; auto: the fastest "
                    "that is found")),
    KEY("device", TEXT, device,
        DEFAULT("cpu", "cpu, or cuda: a GPU of this host for each rank; cuda:1: that one")),
    KEY("budget", BYTES, budget,
        DEFAULT("0",
                "bytes of memory per rank: recomputation and sharding are chosen to fit; 0: any"),
        FROM(0, 1e18), .off = "0"),
    KEY("comm.algorithm", TEXT, algorithm,
        DEFAULT("auto", "algorithm of collectives (skein list coll); also \"all-reduce/dp: ring, "
                        "...\"; auto: by cost; between GPUs NCCL chooses")),
    KEY("comm.bucket", BYTES, bucket,
        DEFAULT("8MiB", "gradients are reduced together in buckets of about so many bytes"),
        FROM(1, 1e15)),
    KEY("comm.links", TEXT, links,
        DEFAULT("", "file of links between ranks that differ, lines FROM TO BYTES_PER_SECOND; "
                    "empty: all alike"),
        .off = "", .more = links_more),
    KEY("comm.timeout", SECONDS, timeout,
        DEFAULT("0", "longest wait for another rank; 0: from the predicted time of a step"),
        FROM(0, 1e9), .off = "0"),
    KEY("order", TEXT, order,
        DEFAULT("fast", "order of sums: fast; canonical: the same bits under any layout; any: also "
                        "that of any algorithm between hosts"),
        .one_of = "fast canonical any"),
    KEY("ranks", INT, ranks, DEFAULT("1", "processes on this host; also -n"), FROM(1, 1 << 20)),
    KEY("run", TEXT, run, DEFAULT("", "the run directory; empty: runs/<time>-<name>")),
    KEY("resume", TEXT, resume, DEFAULT("", "checkpoint to resume; auto: the newest of the run"),
        .on = "auto", .off = ""),
    KEY("ckpt.every", EVERY, ckpt_every,
        DEFAULT("10m", "interval of checkpoints: time (10m; costs at most 1 % of the run) or "
                       "steps; 0: only at the end"),
        FROM(0, HUGE_COUNT), .off = "0"),
    KEY("ckpt.keep", INT, ckpt_keep, DEFAULT("2", "checkpoints to keep; 0: all"),
        FROM(0, HUGE_COUNT)),
    KEY("log.every", INT, log_every,
        DEFAULT("-1", "steps between two rows of the console; 0: never, -1: chosen"),
        FROM(-1, HUGE_COUNT), .off = "0"),
    KEY("log.trace", INT, trace, DEFAULT("0", "1: write trace.json, the last step of all ranks"),
        FROM(0, 1), .on = "1", .off = "0"),
    KEY("val.every", INT, val_every,
        DEFAULT("-1", "steps between two validations; 0: never, -1: chosen"), FROM(-1, HUGE_COUNT),
        .off = "0"),
    KEY("val.batches", INT, val_batches, DEFAULT("-1", "batches per validation; -1: chosen"),
        FROM(-1, HUGE_COUNT)),
    KEY("val.stop_loss", REAL, stop_loss,
        DEFAULT("0", "training ends at the first validation loss at or below this; 0: never"),
        FROM(0, 1e9), .off = "0"),
    KEY("val.stop_accuracy", REAL, stop_accuracy,
        DEFAULT("0", "training ends at the first validation accuracy from this on; 0: never"),
        FROM(0, 1), .off = "0"),
    KEY("sample.every", INT, sample_every,
        DEFAULT("-1", "steps between two samples; 0: never, -1: chosen"), FROM(-1, HUGE_COUNT),
        .off = "0"),
    KEY("sample.prompt", TEXT, sample_prompt, DEFAULT("In the beginning", "prompt of samples")),
};
const int sk_n_conf_keys = sizeof sk_conf_table / sizeof *sk_conf_table;

const sk_conf_key *sk_conf_find(const char *name)
{
    for (int i = 0; i < sk_n_conf_keys; i++)
        if (!strcmp(sk_conf_table[i].name, name)) return &sk_conf_table[i];
    return NULL;
}

bool sk_conf_is_key(const char *name)
{
    return sk_conf_find(name) || sk_conf_knob(name) || !strcmp(name, "model") ||
           (!strncmp(name, "model.", 6) && name[6]);
}

bool sk_conf_is_section(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < sk_n_conf_keys; i++)
        if (!strncmp(sk_conf_table[i].name, name, n) && sk_conf_table[i].name[n] == '.')
            return true;
    return false;
}

const char *sk_conf_on(const char *name)
{
    const sk_conf_key *k = sk_conf_find(name);
    const sk_knob *own = k ? NULL : sk_conf_knob(name);
    return k ? k->on : own ? sk_conf_knob_on(own) : NULL;
}

const char *sk_conf_off(const char *name)
{
    const sk_conf_key *k = sk_conf_find(name);
    if (!k && !strncmp(name, "model.", 6)) return "false";
    const sk_knob *own = k ? NULL : sk_conf_knob(name);
    return k ? k->off : own ? sk_conf_knob_off(own) : NULL;
}

const char *sk_conf_name(sk_arena *a, int i)
{
    return i < sk_n_conf_keys ? sk_conf_table[i].name : sk_conf_knob_name(a, i - sk_n_conf_keys);
}
