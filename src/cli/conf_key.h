/* conf_key.h - a key of the job: where its value goes, its type, range, default and help.
 *
 * The table in conf_keys.c has every key but those that parts declare: sizes of models
 * (conf_model.c) and hyperparameters of optimizers and
 * schedules (conf_knob.c).  Private to conf_*.c. */
#ifndef SK_CLI_CONF_KEY_H
#define SK_CLI_CONF_KEY_H

#include "cli/setting.h"

#include <stddef.h>

typedef enum sk_key_kind {
    SK_KEY_INT,
    SK_KEY_REAL,
    SK_KEY_SECONDS,
    SK_KEY_BYTES,
    SK_KEY_EVERY, /* steps, or seconds with a unit: sk_every */
    SK_KEY_TEXT,
    SK_KEY_LAYOUT,
    SK_KEY_DTYPE,
    SK_KEY_STATE /* a type of optimizer state (kernel/optim.h) */
} sk_key_kind;

typedef struct sk_conf_key {
    const char *name;
    sk_key_kind kind;
    size_t at, size;          /* its field of sk_job */
    const char *default_text; /* read like a value that somebody wrote */
    const char *doc;
    const char *more; /* NULL, or lines of `skein help KEY` behind it: what it takes, examples */
    double least, most;
    const char *one_of;                       /* the only words a text may be; NULL: any */
    const char *(*one_of_parts)(sk_arena *a); /* NULL, or: makes one_of, of names of parts */
    const char *on, *off; /* what --key and --no-key mean; NULL: a value must be given */
    const char *knob;     /* its default is that of this knob of the optimizer (kernel/optim.h) */
    sk_knob_owners after_knobs; /* keys that these declare are printed before this one */
} sk_conf_key;

extern const sk_conf_key sk_conf_table[];
extern const int sk_n_conf_keys;

const sk_conf_key *sk_conf_find(const char *name); /* NULL: there is none */
/* conf_value.c: a value to its field of the job. */
sk_status sk_conf_set(sk_arena *a, const sk_conf_key *k, sk_setting s, sk_job *job);

#endif
