/* conf.h - from a YAML file and the words of the command line to a job.
 *
 * One table in conf.c has every key: its field of sk_job, type, range, default
 * and one line of help.  The file comes first, then the words in order; the
 * last word on a key wins, but a key twice in the file is an error, and so is a
 * unknown key: the error names the place and the nearest key.
 *
 *     skein train demo.yaml train.steps=500 --optim.lr=3e-4 --resume -n 4
 *
 * In the file, sections nest (`train: {steps: 500}`) or are dotted
 * (`train.steps: 500`); JSON is YAML enough.  There are no includes, anchors,
 * tags or environment variables.  `model` is a preset, a Hugging Face directory,
 * or a mapping with Hugging Face names; a mapping without `arch` or `preset`
 * changes the default model.  `layout` is a string, a list of lines, or a file.
 *
 * A command may have options of its own: it declares them in sk_conf_rest and
 * finds them, and the words that are no option, there.  Options given as
 * `--no-x` have the value "no", those without a value "yes". */
#ifndef SK_CLI_CONF_H
#define SK_CLI_CONF_H

#include "train/job.h"

typedef struct sk_option {
    const char *name; /* "rank": --rank R; a single letter "o": -o csv; NULL ends the list */
    const char *doc;
    bool takes_value;
} sk_option;

typedef struct sk_conf_rest {
    const sk_option *options; /* by the caller; NULL: none */
    struct sk_given {
        const char *name, *value;
    } * given;
    int n_given;
    const char **words;
    int n_words;
    bool help; /* --help or -h: the rest was not looked at, the job is not filled */
    bool
        own_graph; /* by the caller: the job is for a graph of its own, and has no keys of models */
} sk_conf_rest;

/* argv: the words after the command.  rest may be NULL: no options, no words left over.
 * SK_EUSAGE for the command line, SK_ECONF for the file and for values that do not go together. */
sk_status sk_conf_load(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest);

/* The same without the model and what follows from it: which run is meant is known before its
 * config is, and words about the model are for that one. */
sk_status sk_conf_keys(sk_arena *a, int argc, char **argv, sk_job *job, sk_conf_rest *rest);

/* `is` replays `was`, the job of a run: SK_ECONF, and the keys, if it changes the result. */
sk_status sk_conf_replayed(sk_arena *a, const char *run, const sk_job *was, const sk_job *is);

/* The job that a checkpoint, a directory, was saved in. */
sk_status sk_conf_saved(sk_arena *a, const char *checkpoint, sk_job *out);

/* The value of an option of the caller's; NULL if it was not given. */
const char *sk_conf_option(const sk_conf_rest *rest, const char *name);

/* The whole job as YAML; loading it gives the same job. */
char *sk_conf_print(sk_arena *a, const sk_job *job);

/* Every key with its default and meaning; the caller's options first, if any. */
char *sk_conf_help(sk_arena *a, const sk_option *options);
/* The lines of a key, a section of keys, or a word of a layout; NULL: there is none of that name.
 */
char *sk_conf_help_on(sk_arena *a, const char *name);

#endif
