/* api.c - skein.h: commands in process, their codes, their reports; the header stands alone. */
#include "skein.h" /* first, so that it is seen to need nothing before it */

#include "base/status.h"
#include "base/version.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s; the report: %s\n", __FILE__, __LINE__, #cond, sk_error()); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char dir[] = "/tmp/skein-api-XXXXXX", heard[1 << 16];

/* Run a command with standard output in a file; its text is in `heard`. */
static int quiet(int n, const char *const *words)
{
    char path[64];
    snprintf(path, sizeof path, "%s/heard", dir);
    fflush(stdout);
    int old = dup(1);
    CHECK(freopen(path, "w", stdout));
    int code = sk_command(n, words);
    fflush(stdout);
    dup2(old, 1);
    close(old);
    FILE *f = fopen(path, "r");
    CHECK(f);
    heard[fread(heard, 1, sizeof heard - 1, f)] = 0;
    fclose(f);
    return code;
}

#define RUN(...)                                                         \
    quiet((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), \
          (const char *[]){__VA_ARGS__})

static void words(void)
{
    CHECK(!strcmp(sk_version(), SK_VERSION));
    CHECK(RUN("list", "op") == 0 && strstr(heard, "contract") && !*sk_error());
    CHECK(RUN("--version") == 0 && strstr(heard, SK_VERSION));
    CHECK(RUN("--help") == 0 && strstr(heard, "train"));
    CHECK(RUN("plan", "--help") == 0 && strstr(heard, "layout"));
}

static void mistakes(void)
{
    CHECK(sk_command(1, NULL) == SK_EUSAGE && strstr(sk_error(), "words is NULL"));
    CHECK(RUN("list", NULL) == SK_EUSAGE && strstr(sk_error(), "word 2 of 2 is NULL"));
    CHECK(RUN("trian") == SK_EUSAGE && strstr(sk_error_line(), "train"));
    CHECK(!strchr(sk_error_line(), '\n') && strstr(sk_error(), "\n  at "));
    CHECK(RUN("plan", "model=tiny", "layout=dq=2") == SK_ECONF && strstr(sk_error_line(), "dp"));
    CHECK(RUN("verify", "no-such-thing") == SK_EDATA && *sk_error_line());
    CHECK(RUN("list") == 0 && !*sk_error_line() && !*sk_error());
}

/* A word may be changed by a command, but not the caller's. */
static void words_stay(void)
{
    char word[] = "no-such-model";
    const char *list[] = {"import", word, "run=/tmp/skein-api-none"};
    CHECK(quiet(3, list) != 0);
    CHECK(list[1] == word && !strcmp(word, "no-such-model"));
}

static void explain(void)
{
    CHECK(RUN("explain", "model=tiny", "layout=tp=2", "--rank", "1") == 0);
    CHECK(strstr(heard, "rank 1 of 2") && strstr(heard, "all-reduce over tp"));
}

/* Twice in one process, on ranks of both kinds; then go on from where the first ended. */
static void training(void)
{
    char data[] = "data.train=example/one_file.c", run[2][64], path[96];
    for (int i = 0; i < 2; i++) {
        snprintf(run[i], sizeof run[i], "run=%s/run%d", dir, i);
        CHECK(RUN("train", "model=tiny", data, run[i], "layout=dp=2", "train.steps=3",
                  "train.seq=16", "train.threads=1", "sample.every=0",
                  i ? "--launch=thread" : "--launch=process") == 0);
        snprintf(path, sizeof path, "%s/final/model.safetensors", run[i] + 4);
        CHECK(!access(path, R_OK));
    }
    CHECK(RUN("train", run[0]) == SK_ECREATE && strstr(sk_error_line(), "--resume"));
    CHECK(RUN("train", "--resume", run[0], "train.steps=4", "layout=tp=2") == 0);
    CHECK(RUN("verify", run[0] + 4) == 0 && strstr(heard, "good"));
}

/* The header includes stdint.h alone, and is C and C++ of any age. */
static bool compiles(const char *compiler, const char *language)
{
    char line[512];
    snprintf(line, sizeof line,
             "command -v %s >/dev/null || exit 77; "
             "%s -fsyntax-only -Wall -Wextra -pedantic -Werror -x %s include/skein.h",
             compiler, compiler, language);
    int rc = system(line);
    CHECK(WIFEXITED(rc) && (WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 77));
    return WEXITSTATUS(rc) == 0;
}

int main(void)
{
    CHECK(mkdtemp(dir));
    words();
    mistakes();
    words_stay();
    explain();
    training();
    CHECK(system("! grep '#include' include/skein.h | grep -v '^#include <stdint.h>$'") == 0);
    bool c = compiles("cc", "c-header -std=c99");
    bool cxx = compiles("c++", "c++-header -std=c++98");
    char line[64];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    if (system(line)) return 1;
    printf("%d checks; header read as C99%s%s\n", checks, c ? "" : " (no cc)",
           cxx ? " and C++98" : "; no C++ compiler here");
    return 0;
}
