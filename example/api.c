/* api.c - skein inside another program: train a small model on two ranks, then let it write.
 *
 *     example_api TEXT_FILE RUN_DIR [key=value ...]
 *
 * The words are those of the command line (include/skein.h). */
#include "skein.h"

#include <stdio.h>

enum { MOST = 64 };

static int run(int n, const char *const words[])
{
    int code = sk_command(n, words);
    if (code) fprintf(stderr, "%s failed (%d): %s\n", words[0], code, sk_error_line());
    return code;
}

int main(int argc, char **argv)
{
    char data[1024], dir[1024];
    const char *words[MOST] = {"train", "model=tiny", "layout=dp=2", "train.steps=60", data, dir};
    int n = 6;
    if (argc < 3 || argc > MOST - n) return fprintf(stderr, "example_api TEXT RUN\n"), 64;
    snprintf(data, sizeof data, "data.train=%s", argv[1]);
    snprintf(dir, sizeof dir, "run=%s", argv[2]);
    for (int i = 3; i < argc; i++) words[n++] = argv[i];
    printf("skein %s\n", sk_version());
    int code = run(n, words);
    if (code) return code;
    const char *sample[] = {"sample", argv[2], "--prompt", "skein ", "--tokens", "40"};
    return run(6, sample);
}
