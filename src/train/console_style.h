/* console_style.h - colours, labels and short numbers of the console.  Private to console*.c. */
#ifndef SK_TRAIN_CONSOLE_STYLE_H
#define SK_TRAIN_CONSOLE_STYLE_H

#include "train/console.h"

typedef enum sk_tone {
    SK_TONE_PLAIN,
    SK_TONE_DIM,
    SK_TONE_BOLD,
    SK_TONE_GREEN,
    SK_TONE_YELLOW,
    SK_TONE_CYAN
} sk_tone;

const char *sk_console_paint(const sk_console *c, sk_tone t); /* "" without colours */
void sk_console_label(const sk_console *c, const char *word); /* of a line, 10 columns wide */
/* 7612 -> "7.6k", or "7.6 k" with a gap before the unit */
char *sk_short_number(sk_arena *a, double x, const char *gap);

#endif
