/* layout_choices.h - candidates of a search for a layout: a value for each word that has some to
 * try, and the moves from one candidate to others. */
#ifndef SK_PLAN_LAYOUT_CHOICES_H
#define SK_PLAN_LAYOUT_CHOICES_H

#include "layout/word.h"

/* By place in `words`: of an axis its size; of an INT word its number, 0: not said; of others 0:
 * not said, or 1 + the place of a text in `values`. */
typedef struct sk_choice {
    int v[SK_MOST_WORDS];
} sk_choice;

typedef struct sk_choices {
    sk_arena *arena;
    int ranks, n;
    const sk_word *words[SK_MOST_WORDS];
    const char **values[SK_MOST_WORDS];
    int n_values[SK_MOST_WORDS];
    int with[SK_MOST_WORDS], with_value[SK_MOST_WORDS]; /* sk_word.tries_with; with -1: none */
    int micro; /* the word that says micro-batches; -1: none */
} sk_choices;

typedef struct sk_move {
    int from, to, factor; /* of axes: a factor of one goes to the other; to: -1 */
    int word, value;      /* the word gets the value; -1: none */
    int with, with_value; /* and so does this one */
} sk_move;

/* The words that have .tries; `lossy`: also those with which a job has other results. */
void sk_choices_init(sk_choices *c, sk_arena *a, int ranks, bool lossy);
/* A text of short words, such as "dp=2 tp=4 zero=1"; words and values that are not tried are added.
 */
sk_status sk_choice_read(sk_choices *c, const char *text, sk_choice *out);
/* false: it is longer than the room. */
bool sk_choice_print(const sk_choices *c, const sk_choice *x, char *text, size_t room);
/* All moves from there, in an order that depends on nothing else; returns how many. */
int sk_choice_moves(const sk_choices *c, const sk_choice *x, sk_move *to, int most);
void sk_choice_move(const sk_move *m, sk_choice *x);

#endif
