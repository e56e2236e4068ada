/* shell_word.c - quotes where a shell needs them. */
#include "base/shell_word.h"
#include "base/strings.h"

#include <string.h>

char *sk_shell_word(sk_arena *a, const char *word)
{
    static const char easy[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-./=:,+@%";
    if (*word && strspn(word, easy) == strlen(word)) return sk_strdup(a, word);
    sk_out o = {.arena = a};
    sk_out_add(&o, "'");
    for (; *word; word++) sk_out_add(&o, *word == '\'' ? "'\\''" : "%c", *word);
    sk_out_add(&o, "'");
    return o.s;
}
