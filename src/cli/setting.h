/* setting.h - one key with its value and the place where it was written; inside cli/ only. */
#ifndef SK_CLI_SETTING_H
#define SK_CLI_SETTING_H

#include "base/strings.h"
#include "cli/conf.h"

typedef struct sk_spot {
    int line, column; /* from 1 */
} sk_spot;

typedef struct sk_setting {
    const char *key, *value; /* a list is one text with newlines between its items */
    const char *file;        /* NULL: the command line */
    sk_spot key_at, value_at;
} sk_setting;

typedef struct sk_settings {
    sk_setting *v;
    int n, cap;
} sk_settings;

/* Where a key, or its value, stands: "demo.yaml:14:9", "command line". */
const char *sk_setting_where(sk_arena *a, const sk_setting *s, bool value);
static inline sk_status sk_setting_code(const sk_setting *s)
{
    return s->file ? SK_ECONF : SK_EUSAGE;
}

/* The last setting of a key, or NULL. */
const sk_setting *sk_setting_find(const sk_settings *s, const char *key);

/* conf.c: is this a key (any `model.x` may be: its model decides), a section of keys? */
bool sk_conf_is_key(const char *name);
bool sk_conf_is_section(const char *name);
/* What `--key` and `--no-key` without a value mean; NULL: they need one. */
const char *sk_conf_on(const char *name), *sk_conf_off(const char *name);
const char *sk_conf_name(sk_arena *a, int i); /* of a key that is no model's; NULL past the end */
/* "from 0 to 1"; is there a unit after the digits?; is the word in a list that is separated by
 * spaces? */
const char *sk_conf_range(sk_arena *a, double least, double most);
bool sk_conf_has_unit(const char *s);
bool sk_conf_among(const char *words, const char *word);
#define sk_conf_no_units "; units (k, m, g) are for counts and bytes"
/* A key, what it is, and its default or "", which is broken at 100 columns. */
void sk_conf_help_line(sk_out *o, const char *name, const char *doc, const char *usual);

/* conf_hint.c: " - did you mean x?" or "" */
const char *sk_conf_hint(sk_arena *a, const char *name, const sk_option *options);
/* The key that other programs call so, or that has this last part; NULL: none. */
const char *sk_conf_known_as(sk_arena *a, const char *name);

/* conf_yaml.c and conf_args.c: settings of a file, and of the command line. */
sk_status sk_conf_yaml(sk_arena *a, const char *path, sk_settings *out);
/* conf_resumed.c: a sentence if the config.yaml of a run is damaged. */
sk_status sk_conf_resumed(sk_arena *a, const char *path);
sk_status sk_conf_args(sk_arena *a, int argc, char **argv, sk_settings *out, sk_conf_rest *rest,
                       const char **file);

/* conf_model.c: what `model` and `model.x` say; how it is printed. */
sk_status sk_conf_model(sk_arena *a, const sk_settings *s, sk_job *job);
void sk_conf_model_print(sk_out *o, const sk_job *job);
const char *sk_conf_model_name(int i); /* of numbers of any model; NULL past the end */
void sk_conf_model_help(sk_out *o);    /* their lines */

/* conf_knob.c: the keys that optimizers (kernel/optim.h) and schedules of the learning rate
 * (train/lr_schedule.h) declare. */
typedef enum sk_knob_owners { SK_KNOBS_NONE, SK_KNOBS_OPTIM, SK_KNOBS_LR } sk_knob_owners;

const sk_knob *sk_conf_knob(const char *name);     /* of "optim.betas"; NULL: no such key */
const char *sk_conf_knob_name(sk_arena *a, int i); /* "optim.betas"; NULL past the end */
sk_knob_owners sk_conf_knob_owners(int i);         /* who declare the i-th key */
const char *sk_conf_knob_on(const sk_knob *k), *sk_conf_knob_off(const sk_knob *k);
/* "adamw 0.9, 0.95; lamb 0.9, 0.999": of every part that has the key. */
const char *sk_conf_knob_default(sk_arena *a, const char *key);
void sk_conf_knob_help(sk_out *o, int i);
/* "rate of the outer step; a number from 0 to 10" */
const char *sk_conf_knob_text(sk_arena *a, const sk_knob *k);
/* All of one optimizer or schedule: key, help, range, its default. */
void sk_conf_knobs_help(sk_out *o, const sk_knob *knobs);
/* The numbers of the job's optimizer and schedule: their defaults, and what the settings change. */
sk_status sk_conf_knobs(sk_arena *a, const sk_settings *s, sk_job *job);
sk_status sk_conf_knob_read(sk_arena *a, const sk_knob *k, const sk_setting *s, double *to);
/* conf_effect.c: refuses keys that would do nothing beside others; the sentence about such a
 * number.
 */
sk_status sk_conf_effects(sk_arena *a, const sk_settings *s, sk_job *job);
sk_status sk_conf_unused(sk_arena *a, const sk_knob *k, const sk_setting *s);
/* conf_groups.c: optim.groups, read into job->group; after the knobs. */
sk_status sk_conf_groups(sk_arena *a, const sk_settings *s, sk_job *job);
/* "matrix: muon": the first group that names an optimizer with this number; NULL: none does. */
const char *sk_conf_group_with(sk_arena *a, const char *groups, const char *key);
void sk_conf_knobs_print(sk_out *o, sk_knob_owners of, const sk_job *job);
const char *sk_conf_schedules(sk_arena *a); /* the names of all schedules, with spaces between */

/* conf_paste.c: is this setting a key of a config.json that was pasted below `model:`?  The model
 * that those of `own` describe.  Is the text of a file a config.json itself? */
bool sk_conf_pasted(const sk_settings *own, const sk_setting *s);
sk_status sk_conf_paste(sk_arena *a, const sk_settings *own, sk_job *job);
sk_status sk_conf_is_paste(sk_arena *a, const char *path, const char *text, size_t n, bool *out);

/* conf_deepspeed.c: refuses the text of a file that is one of DeepSpeed's. */
sk_status sk_conf_no_deepspeed(sk_arena *a, const char *path, const char *text, size_t n);

/* A string as YAML reads it back. */
char *sk_conf_quote(sk_arena *a, const char *s);

#endif
