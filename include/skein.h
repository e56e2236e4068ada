/* skein.h - skein inside another program.
 *
 * Four ways in, from the shortest to the closest:
 *
 *   a command      sk_command(): everything that the program `skein` can do
 *   a plan         skein_job_open() -> skein_plan(): memory to the byte, flops, simulated time
 *   a training     skein_graph_open() or model=NAME -> skein_compile() -> skein_run_open() ->
 *                  skein_run_feed(), skein_run_step(), skein_run_read(), skein_run_read_output()
 *   collectives    skein_comm_run(), skein_comm_open() or skein_comm_join()
 *
 *     const char *words[] = {"model=tiny", "layout=dp=2", "optim.lr=1e-3"};
 *     skein_job *job; skein_program *program; skein_run *run; skein_step step;
 *     step.size = sizeof step;
 *     int st = skein_job_open(NULL, 3, words, &job);
 *     if (!st) st = skein_compile(job, NULL, &program);
 *     if (!st) st = skein_run_open(program, SKEIN_DATA, &run);
 *     if (!st) st = skein_run_step(run, &step);
 *     if (st) fprintf(stderr, "%s\n", sk_error_line());
 *
 * Compile and link with `pkg-config --cflags --libs skein` (libskein.so), skein-static (libskein.a)
 * or skein-cuda (libskein.a and the kernels for GPUs).  doc/library.md has four whole programs.
 *
 * Rules that hold everywhere
 *
 *   Results    Functions that can fail return 0 or a code below, and sk_error_line() tells why.
 *              An `out` argument is written on success only.  A mistake in arguments, words, files
 *              or data never ends the process; a bug in skein ends it by abort(), and so does the
 *              end of the host's memory while something is built.  Nothing is printed.
 *   Lifetime   What *_open, *_read, skein_plan and skein_compile give out is given back by the
 *              *_close of its type, once; NULL is accepted.  In any order: a run keeps its program,
 *              a program its job, a job its graph.  Texts and tensors belong to the object that
 *              they were asked of and live as long.  What is passed in is copied.
 *   Threads    One thread at a time uses an object; different objects do not disturb each other.
 *              A communicator belongs to the thread that is its rank.  Errors are per thread.
 *              A thread needs a stack of 256 KiB.  Its locale and its floating-point environment
 *              change nothing, and are kept; only sums of a communicator round as the thread does.
 *   Processes  SKEIN_PROCESSES forks: call it before other threads run.  Ranks end with the process
 *              that made them.
 *   Names      skein_ and SKEIN_ are other programs' to use; of sk_, only what is declared here.
 *   Versions   Symbols have the version SKEIN_1.  What is here stays; what comes is added, and
 *              SKEIN_API grows.  Enumerators and structs that are given out may get more members at
 *              their end: those structs begin with `size`, which the caller sets to sizeof. */
#ifndef SKEIN_H
#define SKEIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SKEIN_VERSION       "0.1.0"
#define SKEIN_VERSION_MAJOR 0
#define SKEIN_VERSION_MINOR 1
#define SKEIN_VERSION_PATCH 0
#define SKEIN_API           1

const char *sk_version(void); /* of the library that is linked: "0.1.0" */
int skein_api(void);          /* its SKEIN_API; at least that of the header it was compiled with */

/* ---- errors: the exit codes of the program, see doc/errors.md */

typedef enum skein_status {
    SKEIN_OK = 0,
    SKEIN_EUSAGE = 64,  /* wrong arguments or words */
    SKEIN_EDATA = 65,   /* data or checkpoint is damaged */
    SKEIN_EPEER = 69,   /* another rank failed first, or did not come in time */
    SKEIN_EBUG = 70,    /* skein is wrong: please report */
    SKEIN_ECREATE = 73, /* cannot create, or somebody holds it */
    SKEIN_EIO = 74,     /* a file or device said no */
    SKEIN_ESTOP = 75,   /* stopped because it was asked to; `skein train` has saved */
    SKEIN_ECONF = 78,   /* model, layout and config do not go together */
    SKEIN_ENUM = 79     /* numbers went bad */
} skein_status;

/* Why the last call of this thread that failed did: one sentence; or the sentence with the places
 * in skein's source that it came through.  Valid until the next call. */
const char *sk_error_line(void);
const char *sk_error(void);

/* ---- commands
 *
 * The words are those of the command line without the program's name, {"train", "model=tiny"};
 * {"--help"} tells them.  Results are files and lines on standard output.  One command at a time in
 * a process.  `train` makes its ranks by fork() unless "--launch=thread" is among the words.  While
 * it trains, SIGINT, SIGTERM, SIGHUP and SIGUSR1 mean "save and stop", SIGPIPE and SIGXFSZ are
 * ignored; afterwards they mean again what they meant before.  Standard streams that are closed are
 * opened on /dev/null.  What the program does and this does not: print the error report, and
 * start itself again when an old OpenBLAS does not know the processor (OPENBLAS_CORETYPE) or
 * address space is limited (OPENBLAS_NUM_THREADS=1). */
int sk_command(int n_words, const char *const words[]); /* 0, or the exit code */

/* ---- a model of one's own
 *
 * Tensors have letters for dims, and a letter has one size in a graph: b the batch and t time,
 * which train.batch and train.seq size, v the ids or classes, x the numbers of a row; the others
 * are free. Ops are those of `skein list op`, with their dims: "bx,xf->bf".  Builders remember the
 * first mistake and go on, so that a model reads as arithmetic: ask skein_graph_status() once, at
 * the end.  After a mistake they return NULL, and NULL is accepted.  The gradient is made by skein.
 */

typedef enum skein_dtype {
    SKEIN_F32,
    SKEIN_BF16,
    SKEIN_F16,
    SKEIN_F64,
    SKEIN_I32,
    SKEIN_I64,
    SKEIN_U8
} skein_dtype;

enum { SKEIN_ZEROS = -1, SKEIN_ONES = -2 }; /* for `init` of skein_param */
enum { SKEIN_MAX_DIMS = 6 };

typedef struct skein_graph skein_graph;
typedef struct skein_tensor skein_tensor;

int skein_graph_open(const char *name, skein_graph **out);
void skein_graph_close(skein_graph *g);
int skein_graph_status(const skein_graph *g);
void skein_graph_size(skein_graph *g, char letter, int64_t size);
/* What is made from now on is of this layer, from 0 on; pipelines cut between layers.  A layer
 * reads results of its own and of layers before it. */
void skein_graph_layer(skein_graph *g, int layer);
/* SKEIN_I32 or SKEIN_F32. */
skein_tensor *skein_input(skein_graph *g, const char *name, const char *letters, skein_dtype type);
/* Trained.  init: the standard deviation of its first values, SKEIN_ZEROS or SKEIN_ONES. */
skein_tensor *skein_param(skein_graph *g, const char *name, const char *letters, double init);
/* The first result of an op.  dims NULL: the op's own; attr: numbers that the op takes. */
skein_tensor *skein_apply(skein_graph *g, const char *op, const char *dims, int n_in,
                          skein_tensor *const in[], int n_attr, const double attr[]);
skein_tensor *skein_result(skein_tensor *first, int i); /* the i-th result of that op */
/* A product that sums over the letters that the result does not have: "btc,cf->btf". */
skein_tensor *skein_contract(skein_graph *g, const char *dims, skein_tensor *a, skein_tensor *b);
/* The loss: of logits "..v" against targets (i32), each weighed (f32); or any scalar sum with the
 * scalar that it is divided by. */
void skein_cross_entropy(skein_graph *g, skein_tensor *logits, skein_tensor *targets,
                         skein_tensor *weights);
void skein_loss(skein_graph *g, skein_tensor *sum, skein_tensor *weight);

/* ---- a job: what `skein train` would be told
 *
 * Words are "key=value" or the name of a YAML file; `skein train --help` lists the keys.  With a
 * graph there are no keys model.*.  Keys of files and of the console (run, ckpt.*, log.*, sample.*)
 * mean nothing here.  train.steps is read by optim.schedule alone, as the length that it is for: a
 * run does as many steps as skein_run_step() and skein_run_steps() ask for. */

typedef struct skein_job skein_job;

int skein_job_open(skein_graph *g, int n_words, const char *const words[], skein_job **out);
void skein_job_close(skein_job *job);

/* ---- a layout: doc/layout.md */

typedef struct skein_layout skein_layout;

/* n_ranks > 0: it must be for exactly so many. */
int skein_layout_read(const char *text, int n_ranks, skein_layout **out);
void skein_layout_close(skein_layout *l);
int skein_layout_ranks(const skein_layout *l);
int skein_layout_axis(const skein_layout *l, int i, const char **name, int *size); /* i from 0 on */
const char *skein_layout_text(const skein_layout *l); /* the long form */

/* ---- programs: what each rank will do and keep
 *
 * skein_plan compiles one program for each class of equal ranks, so that sixteen thousand ranks
 * cost what a few do.  skein_compile compiles that of every rank, proves them together, and gives
 * what skein_run_open takes.  layout NULL: the job's own. */

typedef struct skein_program skein_program;

typedef struct skein_memory { /* bytes of one rank; a run maps exactly as many */
    int64_t size;             /* of this struct, set by the caller */
    int64_t total;            /* of the device; the sum of the next six */
    int64_t weights, grads, optimizer, activations, wire, scratch;
    int64_t host, file; /* what is offloaded */
} skein_memory;

typedef struct skein_simulation { /* one step, simulated: doc/simulate.md */
    int64_t size;                 /* of this struct, set by the caller */
    double seconds, busy, exposed,
        bubble;     /* seconds is the sum of the others, means of all ranks */
    double flops;   /* of all ranks */
    int64_t wire;   /* bytes that leave ranks, all of them */
    int64_t memory; /* that a rank of the machine has; 0: not known */
} skein_simulation;

int skein_plan(skein_job *job, const skein_layout *layout, skein_program **out);
int skein_compile(skein_job *job, const skein_layout *layout, skein_program **out);
void skein_program_close(skein_program *p);
int skein_program_ranks(const skein_program *p);
int64_t skein_program_params(const skein_program *p); /* elements of the model */
double skein_program_flops(const skein_program *p);   /* of the model for one step */
int skein_program_memory(const skein_program *p, int rank, skein_memory *out);
/* The listing of `skein explain`; of a plan, that of the rank's class. */
int skein_program_text(skein_program *p, int rank, const char **out);
/* On "h100-8", "cpu" or a file of a machine. */
int skein_program_simulate(const skein_program *p, const char *machine, skein_simulation *out);

/* ---- a run: ranks as threads of this process, or as processes that are forked from it
 *
 * Weights start as `skein train` starts them (train.seed, or the directory that model names), steps
 * do the same, and losses have the same bits.  With SKEIN_DATA inputs come from data.train;
 * otherwise each is fed for every step, whole and dense, but for "pos" (0, 1, 2 ...) and "weights"
 * (ones), which may be left out.  After a failure of a rank a run can only be closed. */

typedef struct skein_run skein_run;

enum { SKEIN_PROCESSES = 1, SKEIN_DATA = 2 }; /* flags of skein_run_open */

typedef struct skein_step {
    int64_t size;   /* of this struct, set by the caller */
    int64_t step;   /* steps done so far, this one among them */
    double loss;    /* mean over the tokens of the step */
    double norm;    /* of the gradient, before clipping */
    double lr;      /* the learning rate it was done with */
    double tokens;  /* sum of their weights */
    double seconds; /* of rank 0 */
    double waited;  /* of these, for other ranks */
    int skipped;    /* 1: numbers were not finite and nothing was changed (train.nonfinite=skip) */
} skein_step;

/* After every step.  Returns 0 to go on; anything else stops.  May feed the next batch, read and
 * write tensors. */
typedef int skein_on_step(skein_run *run, const skein_step *step, void *ctx);

int skein_run_open(skein_program *p, int flags, skein_run **out);
void skein_run_close(skein_run *r);
/* The next step's input, all n elements of the global batch: int32_t for SKEIN_I32, else float. */
int skein_run_feed(skein_run *r, const char *input, const void *data, int64_t n);
int skein_run_step(skein_run *r, skein_step *out); /* out may be NULL */
/* n steps.  SKEIN_ESTOP: on_step stopped them; on_step may be NULL. */
int skein_run_steps(skein_run *r, int64_t n, skein_on_step *on_step, void *ctx);
/* The loss of a batch that is fed, or of data.val's next one; changes nothing. */
int skein_run_validate(skein_run *r, double *loss);
/* The learning rate of the next steps; below 0: as optim.schedule says. */
int skein_run_rate(skein_run *r, double lr);

/* Tensors: parameters first ("wte"), then the optimizer's state ("wte.adamw.m"), by logical names.
 * They are read and written whole, whichever ranks keep them, as floats; n is the number of
 * elements.  A parameter that is kept in 16 bits is read from its f32 master, and written to both.
 */
typedef struct skein_shape {
    int64_t size; /* of this struct, set by the caller */
    const char *name;
    int n_dims;
    int64_t dims[SKEIN_MAX_DIMS];
    int64_t elements;
} skein_shape;

/* One shard, where a rank keeps it.  data: dense, in memory that all ranks of the host see, valid
 * until skein_run_close, touched only between steps; NULL where it is a GPU's or a file, or state
 * of 8 bits (optim.state=int8), which skein_run_read and skein_run_write convert. */
typedef struct skein_shard {
    int64_t size; /* of this struct, set by the caller */
    const char *name;
    skein_dtype type;
    int n_dims;
    int64_t dims[SKEIN_MAX_DIMS], at[SKEIN_MAX_DIMS], count[SKEIN_MAX_DIMS]; /* whole; this shard */
    int owner; /* 1: this rank's elements count; others are copies of them */
    void *data;
} skein_shard;

int skein_run_tensors(const skein_run *r); /* how many there are */
int skein_run_tensor(const skein_run *r, int i, skein_shape *out);
int skein_run_read(skein_run *r, const char *name, float *to, int64_t n);
int skein_run_write(skein_run *r, const char *name, const float *from, int64_t n);
int skein_run_shards(const skein_run *r,
                     int rank); /* how many it keeps; -1: there is no such rank */
int skein_run_shard(const skein_run *r, int rank, int i, skein_shard *out);

/* What the backward pass tells besides gradients, if the job's key train.backward names it, as in
 * "train.backward=norms, variance": outputs of the last step, whole, as floats, in the units of
 * doc/backward.md.  "norms" has a number for each sample of the batch, the square of the norm of
 * its gradient; "wte.norms" the same of one parameter; "wte.variance", "wte.second_moment",
 * "wte.diag_ggn" and "wte.diag_ggn_mc" are as the parameter, "wte.gradients" has a dim of all
 * samples in front, "w1.kron_a" and "w1.kron_g" are factors, and "wte.grad" is the gradient. */
int skein_run_outputs(const skein_run *r); /* how many there are; 0: none was asked for */
int skein_run_output(const skein_run *r, int i, skein_shape *out);
int skein_run_read_output(skein_run *r, const char *name, float *to, int64_t n);

/* ---- collectives, without a model
 *
 * Every rank has `bytes` of memory that the others reach (0: 64 MiB).  What lies there, given out
 * by skein_comm_alloc, is used in place.  Other memory of the process is copied through it, so that
 * src and dst of a call together (data of a message) are no larger than what is free of `bytes`.
 * Memory of a GPU cannot be given.  A communicator has all ranks; there are none of a part of them.
 * All ranks make the same calls in the same order.  Sums are taken in the order of a binary tree
 * over the ranks, in f32 for 16 bits, so that all ranks get the same bits; sums of integers wrap,
 * and their means are rounded towards zero.  A wrong argument is answered at once and
 * changes nothing; any other failure ends the communicator on all ranks (SKEIN_EPEER there), and so
 * does a rank that keeps the others waiting for longer than timeout_s (0: 60, below 0: no limit).
 */

typedef struct skein_comm skein_comm;
typedef int skein_rank(skein_comm *c, void *ctx); /* what one rank does; 0, or its failure */

/* Part i of n elements, for rank i of p, is [n*i/p, n*(i+1)/p); parts of 8 on 3 ranks have 2, 3 and
 * 3.  src and dst do not overlap, or the call is in place: dst == src, but dst == src + my part's
 * place of a reduce-scatter, and src == dst + my part's place of an all-gather.  An all-to-all is
 * never in place.  (Kinds are numbered as src/coll/kinds.h numbers them; it has more.) */
typedef enum skein_kind {
    SKEIN_ALL_REDUCE,     /* src, dst: n elements on all */
    SKEIN_REDUCE_SCATTER, /* src: n, dst: my part */
    SKEIN_ALL_GATHER,     /* src: my part, dst: n */
    SKEIN_BROADCAST,      /* src: n on the root, else not read; dst: n */
    SKEIN_REDUCE,         /* src: n; dst: n on the root, else not written */
    SKEIN_ALL_TO_ALL = 7, /* src: n, part j goes to rank j; dst: p times my part, by sender: of 8
                             elements on 3 ranks 6, 9 and 9 */
    SKEIN_SCAN = 9        /* src, dst: n elements on all; dst: the reduction over ranks 0 to mine */
} skein_kind;

typedef enum skein_reduction { SKEIN_SUM, SKEIN_MAX, SKEIN_MIN, SKEIN_MEAN } skein_reduction;

typedef struct skein_call {
    int64_t size; /* of this struct, set by the caller; what is not set is 0 */
    skein_kind kind;
    skein_dtype type;
    skein_reduction reduction;
    int root;
    const void *src;
    void *dst;
    int64_t n;             /* elements of the whole */
    const char *algorithm; /* of `skein list coll`; NULL: chosen */
} skein_call;

/* n ranks, each of which calls f: threads, or with SKEIN_PROCESSES processes.  The first failure.
 */
int skein_comm_run(int n, int64_t bytes, double timeout_s, int flags, skein_rank *f, void *ctx);
/* n communicators for n threads of the caller's; comms[r] is used by one of them at a time. */
int skein_comm_open(int n, int64_t bytes, double timeout_s, skein_comm *comms[]);
/* This process is one rank of those that mpirun, srun, torchrun or SKEIN_RANK, SKEIN_RANKS and
 * SKEIN_JOB started, on one host or on many (doc/launch.md).  Nobody did: one rank alone. */
int skein_comm_join(int64_t bytes, double timeout_s, skein_comm **out);
void skein_comm_close(skein_comm *c); /* not of those that skein_comm_run gave */
int skein_comm_rank(const skein_comm *c);
int skein_comm_ranks(const skein_comm *c);
void skein_comm_abort(skein_comm *c, const char *why); /* all ranks return SKEIN_EPEER */
/* Memory of this rank that the others reach, out of the `bytes` of the communicator.  No
 * collective: ranks may ask for other sizes, in any order. */
int skein_comm_alloc(skein_comm *c, int64_t bytes, void **out);
int skein_comm_free(skein_comm *c, void *memory);

/* At once, with any memory of the process, copied as said above. */
int skein_comm_call(skein_comm *c, const skein_call *call);
int skein_all_reduce(skein_comm *c, void *data, int64_t n, skein_dtype type, skein_reduction how);
int skein_broadcast(skein_comm *c, void *data, int64_t n, skein_dtype type, int root);
int skein_barrier(skein_comm *c);
/* Returns when the other has it.  Both give the same number of bytes. */
int skein_send(skein_comm *c, int to, const void *data, int64_t bytes);
int skein_recv(skein_comm *c, int from, void *data, int64_t bytes);
/* Both at once, so that rings of them do not wait for each other. */
int skein_send_recv(skein_comm *c, int to, const void *src, int from, void *dst, int64_t bytes);

/* In two halves, with memory of skein_comm_alloc only; up to 32 under way, which end in the order
 * in which they were started.  skein_comm_wait looks after all of them for up to `seconds` (below
 * 0: the timeout of the communicator, then it fails), and says whether this one is done (`done` may
 * be NULL); a later wait may go on. */
int skein_comm_start(skein_comm *c, const skein_call *call, int64_t *ticket);
int skein_comm_wait(skein_comm *c, int64_t ticket, double seconds, int *done);

#ifdef __cplusplus
}
#endif

#endif
