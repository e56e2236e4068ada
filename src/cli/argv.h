/* argv.h - what commands share in reading their words and showing tables.
 *
 * Commands about a job (train, explain, plan ...) take a FILE.yaml, key=value
 * words and options of their own: sk_argv_job().  The others take options and
 * plain words: sk_argv_words().
 *
 * A table has the same rows whatever its form: aligned for people, or -o csv, json
 * (one array of objects, numbers unquoted) and md. */
#ifndef SK_CLI_ARGV_H
#define SK_CLI_ARGV_H

#include "cli/conf.h"

#include <stdio.h>

/* Fills the job; rest->options and usage are the caller's.  After --help everything is printed,
 * rest->help is set, and the command has nothing left to do.  Ranks that nobody named are 0: as
 * many as the layout has.  --resume without a FILE.yaml reads the config.yaml of that run. */
sk_status sk_argv_job(sk_arena *a, int argc, char **argv, const char *usage, sk_job *job,
                      sk_conf_rest *rest);

/* For commands that start no training: the layout of a job that says none is that of `train`
 * (train/default_layout.h), and a line on stderr says so. */
sk_status sk_argv_layout(sk_arena *a, sk_job *job);

/* For commands that show a job and start nothing: refuses what `train` would, as far as it can be
 * told without data and devices. */
struct sk_setup;
sk_status sk_argv_job_stands(const struct sk_setup *s);

/* For commands that start what they measure themselves: refuses where a launcher started this
 * process as one of many, each of which would do all of it.  ranks: it has -n. */
sk_status sk_argv_alone(sk_arena *a, const char *command, bool ranks);

typedef struct sk_argv_option {
    const char *name;   /* "--prompt", "-o"; NULL ends the list */
    const char **value; /* gets the word after it, or "yes" for a flag */
    bool flag;
} sk_argv_option;

/* The words that are no options, at most `most`; SK_EUSAGE for anything else. */
sk_status sk_argv_words(sk_arena *a, int argc, char **argv, const sk_argv_option *options,
                        const char **words, int most, int *n);

typedef struct sk_table {
    sk_arena *arena;
    const char *const *head; /* names of the columns */
    int n_cols;
    struct {
        const char ***v;
        int n, cap;
    } rows;
} sk_table;

void sk_table_add(sk_table *t, const char *const *cells);
/* format NULL: for people. */
sk_status sk_table_print(const sk_table *t, const char *format, FILE *to);

#endif
