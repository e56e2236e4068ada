/* libFuzzer target: a configuration, YAML or (where it begins with '{') JSON, perhaps a config.json
 * of a model.  What is accepted, printed and read again, is the same job. */
#include "cli/conf.h"
#include "lib/fuzz.h"

#include <string.h>

static sk_status load(sk_arena *a, const char *path, sk_job *job)
{
    char *argv[] = {sk_strdup(a, path), NULL};
    return sk_conf_load(a, 1, argv, job, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static sk_job job, again;
    sk_arena a = {0};
    sk_status st = load(&a, fuzz_file(n && *data == '{' ? "a.json" : "a.yaml", data, n), &job);
    fuzz_refused(st, SK_EUSAGE);
    if (!st) {
        const char *text = sk_conf_print(&a, &job);
        sk_assert(!load(&a, fuzz_file("b.yaml", text, strlen(text)), &again));
        sk_assert(!strcmp(text, sk_conf_print(&a, &again)));
    }
    sk_arena_end(&a);
    return 0;
}
