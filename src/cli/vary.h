/* vary.h - what-if tables of `skein simulate`: --vary SPEC, --sensitivity.
 *
 * A SPEC is NAME=LIST, or several with commas between them; a NAME is
 *
 *     tp, pp, micro, zero, sp ...   a word of a layout; `yes`: without a value, `no`: left out
 *     ranks                         dp is what the other axes leave, as with -n RANKS
 *     train.batch, model.* ...      a key of the job; also batch, seq, mbs (train.micro_batch)
 *     flops, rate_between ...       a number of the machine (plan/machine.h); nic: rate_between.
 *                                   2x: so many times what the machine has
 *
 * and a LIST has values, `1,2,4`, or ranges, `1..8` and `0.5x..2x`: each twice the one before, and
 * the last.  Every combination is a row, and takes what one `skein simulate` takes.  What does not
 * go together is a row, too, with the reason. */
#ifndef SK_CLI_VARY_H
#define SK_CLI_VARY_H

#include "cli/argv.h"
#include "plan/step_jitter.h"

enum { SK_VARY_NAMES = 8, SK_VARY_VALUES = 64, SK_VARY_ROWS = 4096, SK_VARY_AXES = 24 };

typedef enum sk_vary_kind { SK_VARY_WORD, SK_VARY_RANKS, SK_VARY_KEY, SK_VARY_NUMBER } sk_vary_kind;

typedef struct sk_variable {
    const char *name, *key; /* as it was said; of the layout, job or machine */
    sk_vary_kind kind;
    const char *values[SK_VARY_VALUES];
    int n;
} sk_variable;

/* A simulated step. */
typedef struct sk_vary_step {
    int ranks;
    double seconds, busy, exposed, bubble; /* the last three, and the next: mean over ranks */
    double exposed_by[SK_N_EXPOSED];
    const char *exposed_name[SK_N_EXPOSED]; /* NULL: the layout has no such axis */
    double tokens, mfu;
    sk_jitter_result jitter;
    double dollars; /* for a million tokens; 0: the machine has no price */
    int64_t bytes;  /* of the rank that needs the most */
    bool fits;
} sk_vary_step;

typedef struct sk_vary_row {
    int at[SK_VARY_NAMES]; /* by variable: which of its values */
    const char *refused;   /* why there is no step; NULL: there is one */
    sk_vary_step step;
    double efficiency; /* tokens a second and rank, over those of the first row of its line */
} sk_vary_row;

typedef struct sk_vary {
    sk_arena *arena;
    int argc;
    char **argv; /* of the job, with these options */
    const sk_option *options;
    const sk_job *job;
    const sk_machine *machine;
    sk_variable v[SK_VARY_NAMES];
    int n, n_rows;
    bool scaling, weak;                /* --scaling; weak: train.batch grows with the ranks */
    sk_vary_row *rows;                 /* the last variable goes fastest */
    const char *exposed[SK_VARY_AXES]; /* names of axes of all rows */
    int n_exposed;
} sk_vary;

/* All of it: reads the options, prints the table, draws.  `machine` is that of --cluster, and the
 * job's own where job->machine is set. */
sk_status sk_vary_print(sk_arena *a, int argc, char **argv, const sk_job *job,
                        const sk_machine *machine, const sk_conf_rest *rest);
/* Each number of the machine a tenth larger and smaller: what that makes of the step. */
sk_status sk_sensitivity_print(sk_arena *a, const sk_job *job, const sk_machine *machine,
                               const char *format);

/* --- between the files --- */

sk_status sk_vary_read(sk_vary *v, const char *spec); /* adds its variables (vary_spec.c) */
/* The job and the machine of a row (vary_row.c). */
sk_status sk_vary_job(sk_arena *a, const sk_vary *v, const sk_vary_row *r, sk_job *job,
                      sk_machine *machine);
sk_status sk_vary_step_of(sk_arena *a, const sk_job *job, const sk_machine *m, sk_vary_step *out);
/* Rows that differ in the first variable alone are a line; this is its name, or "". */
const char *sk_vary_line(sk_arena *a, const sk_vary *v, const sk_vary_row *r);
sk_status sk_vary_draw(const sk_vary *v, const char *path); /* picture_vary.c */

#endif
