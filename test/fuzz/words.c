/* libFuzzer target: the words of a command line, one a line. */
#include "cli/conf.h"
#include "lib/fuzz.h"

#include <string.h>

enum { MOST_WORDS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const sk_option options[] = {
        {"rank", "of a rank", true}, {"o", "a format", true}, {"all", "a flag", false}, {0}};
    static sk_job job;
    sk_arena a = {0};
    sk_conf_rest rest = {.options = options};
    char *argv[MOST_WORDS + 1] = {NULL}, *text = fuzz_text(&a, data, n);
    int argc = 0;
    while (text && argc < MOST_WORDS) argv[argc++] = strsep(&text, "\n");
    sk_status st = sk_conf_load(&a, argc, argv, &job, &rest);
    fuzz_refused(st, st == SK_EIO ? SK_EIO : SK_EUSAGE); /* EIO: a file that is not there */
    for (int i = 0; !st && !rest.help && i < rest.n_given; i++)
        sk_assert(sk_conf_option(&rest, rest.given[i].name));
    if (!st && !rest.help) sk_assert(*sk_conf_print(&a, &job));
    sk_arena_end(&a);
    return 0;
}
