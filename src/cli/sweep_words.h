/* sweep_words.h - the words of a command that starts many jobs (`skein sweep`, `skein swap`):
 * FILE.yaml, key=value, options, run=DIR, --jobs K, -o csv.
 *
 *     sk_sweep_words w = {.arena = a, .command = "swap", .options = options};
 *     SK_TRY(sk_sweep_read(&w, argc, argv));
 *     if (sk_sweep_says_dir_alone(&w) && w.dir) SK_TRY(sk_sweep_read_again(&w, argc, argv));
 */
#ifndef SK_CLI_SWEEP_WORDS_H
#define SK_CLI_SWEEP_WORDS_H

#include "cli/setting.h"

typedef struct sk_sweep_words {
    sk_arena *arena;
    const char *command; /* "sweep" or "swap" */
    const sk_option *options;
    /* filled by sk_sweep_read() */
    sk_conf_rest rest;
    sk_settings said;
    const char *file;   /* FILE.yaml; NULL: none */
    const char *dir;    /* run=DIR; NULL: not said */
    const char *format; /* -o; NULL: text */
    int64_t at_once;    /* --jobs */
} sk_sweep_words;

sk_status sk_sweep_read(sk_sweep_words *w, int argc, char **argv);
/* No FILE.yaml, and no key but run. */
bool sk_sweep_says_dir_alone(const sk_sweep_words *w);
/* With the words of w->dir/COMMAND.json in front of these. */
sk_status sk_sweep_read_again(sk_sweep_words *w, int argc, char **argv);
/* run=DIR, or runs/TIME-COMMAND. */
const char *sk_sweep_dir(const sk_sweep_words *w);
/* The i-th of w->said; NULL: run, or a key that is said again behind it.  resume is refused. */
sk_status sk_sweep_key(const sk_sweep_words *w, int i, const sk_setting **out);
/* An option that is a whole number; *out stays if it is not said. */
sk_status sk_sweep_count(const sk_sweep_words *w, const char *name, int64_t least, int64_t most,
                         int64_t *out);

#endif
