/* shell_word.h - a word as a shell reads it, for commands that are printed to be copied. */
#ifndef SK_BASE_SHELL_WORD_H
#define SK_BASE_SHELL_WORD_H

#include "base/arena.h"

/* runs/a -> runs/a, "my run" -> 'my run' */
char *sk_shell_word(sk_arena *a, const char *word);

#endif
