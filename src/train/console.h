/* console.h - what a person sees of a run.
 *
 * A header (machine, data, model, layout, memory, program), a table with a row every log.every
 * steps, a progress bar at the bottom while standard output is a terminal, samples, and at the end
 * the paths of everything that was written.  Colours and other escape
 * sequences only on a terminal, without NO_COLOR; piped, or with TERM=dumb, the same
 * lines come plain and without the bar.
 * The console never stops the ranks: they write records (launcher_channel.h) and continue. */
#ifndef SK_TRAIN_CONSOLE_H
#define SK_TRAIN_CONSOLE_H

#include "train/loop.h"

#include <stdio.h>

#define SK_VERSION "0.1.0"

enum { SK_SPARK = 12 };

typedef struct sk_console {
    FILE *to;
    const sk_training *t;
    const sk_setup *s;
    bool tty, colour;
    int width;       /* of the terminal */
    bool bar;        /* stands on the last line now */
    bool headed;     /* the table has its head */
    double drawn;    /* when the bar was drawn last */
    double began;    /* when the first step was over */
    int64_t first;   /* which step that was */
    int64_t steps;   /* of the whole training; 0: not known yet */
    sk_record last;  /* the newest step */
    sk_record since; /* sums since the last row: seconds, tokens, waited, seconds x mfu */
    double measured; /* of these the seconds of steps whose mfu and waited are known */
    sk_record row;   /* a row that waits for its validation loss */
    bool waiting;
    double val, best; /* newest and best validation loss; NaN: none */
    double accuracy;  /* of the newest; NaN: no classifier */
    int64_t best_at;
    double spark[SK_SPARK]; /* losses of the last rows */
    int n_spark;
    int warnings;
} sk_console;

void sk_console_open(sk_console *c, FILE *to, const sk_training *t);
void sk_console_head(sk_console *c);
void sk_console_record(sk_console *c, const sk_record *r);
void sk_console_warn(sk_console *c, const char *text); /* of any length */
void sk_console_tick(sk_console *c);                   /* now and then: redraws the bar */
void sk_console_sample(sk_console *c, const char *prompt, const char *text);
void sk_console_done(sk_console *c, const char *model_dir);
void sk_console_clear(sk_console *c); /* takes the bar away, before others print */

#endif
