/* main.c - `skein COMMAND ...`: finds the command's part, prints the story of a failure once.
 *
 * The exit code is the status, so that scripts can tell a mistake on the
 * command line (64) from a full disk (74) and a run that wants to be resumed
 * (75); base/status.h lists them. */
#include "base/text.h"
#include "cli/cmd.h"
#include "device/blas.h"
#include "train/report.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void usage(FILE *to)
{
    fprintf(to, "skein " SK_VERSION " trains one model on many processors\n\n"
                "usage: skein COMMAND [arguments]      skein COMMAND --help\n\n");
    for (const sk_cmd *const *c = sk_cmd_parts; *c; c++)
        fprintf(to, "  %-10s %s\n", (*c)->name, (*c)->doc);
    fprintf(to, "\nTwo words to begin with: skein train\n");
}

static const sk_cmd *find(const char *name)
{
    for (const sk_cmd *const *c = sk_cmd_parts; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
    return NULL;
}

static sk_status unknown(sk_arena *a, const char *name)
{
    int n = 0;
    while (sk_cmd_parts[n]) n++;
    const char **names = sk_many(a, const char *, n);
    for (int i = 0; i < n; i++) names[i] = sk_cmd_parts[i]->name;
    const char *near = sk_nearest(name, names, n);
    if (near)
        return sk_fail(SK_EUSAGE, "there is no command '%s' (did you mean '%s'?)", name, near);
    return sk_fail(SK_EUSAGE, "there is no command '%s'; skein --help lists them", name);
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--")) return false;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    }
    return false;
}

static sk_status dispatch(sk_arena *a, int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return sk_fail(SK_EUSAGE, "a command is needed");
    }
    const char *name = argv[1];
    const sk_cmd *c = find(name);
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        puts("skein " SK_VERSION);
        return SK_OK;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        usage(stdout);
        return SK_OK;
    }
    if (!c) return unknown(a, name);
    if (c->help && wants_help(argc - 2, argv + 2)) { /* without, the command tells itself */
        printf("skein %s: %s\n\n%s", c->name, c->doc, c->help);
        return SK_OK;
    }
    return c->run(a, argc - 2, argv + 2);
}

/* A sentence is enough for a mistake of the user; a bug of ours shows the way it came. */
static void tell(sk_status st)
{
    const char *story = st == SK_EBUG ? sk_error() : sk_error_line();
    if (*story) fprintf(stderr, "skein: %s\n", story);
}

int main(int argc, char **argv)
{
    sk_arena a = {0};
    sk_blas_wake(argv); /* may start this program again, before anything is done */
    umask(077);         /* weights, logs and data belong to one user */
    signal(SIGPIPE, SIG_IGN);
    sk_status st = dispatch(&a, argc, argv);
    if (fflush(stdout) && !st) st = sk_fail(SK_EIO, "cannot write to standard output");
    if (st) tell(st);
    sk_arena_end(&a);
    return (int)st;
}
