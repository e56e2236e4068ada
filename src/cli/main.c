/* main.c - `skein COMMAND ...`: what belongs to a process of its own, around sk_command().
 *
 * The exit code is the status, so that scripts can tell a mistake on the
 * command line (64) from a full disk (74) and a run that wants to be resumed
 * (75); base/status.h lists them.  The error report of a failure is printed here, once. */
#include "base/proc.h"
#include "base/status.h"
#include "device/blas_setup.h"
#include "skein.h"

#include <signal.h>
#include <stdio.h>

/* A sentence is enough for a mistake of the user; a bug of ours shows the way it came. */
static void tell(int code)
{
    const char *report = code == SK_EBUG ? sk_error() : sk_error_line();
    if (*report) fprintf(stderr, "skein: %s\n", report);
}

int main(int argc, char **argv)
{
    sk_proc_begin();
    sk_blas_wake(argv);       /* may start this program again, before anything is done */
    signal(SIGXFSZ, SIG_IGN); /* ulimit -f: a write that fails is reported, a signal is not */
    int code = sk_command(argc - 1, (const char *const *)argv + 1);
    if (code) tell(code);
    return code;
}
