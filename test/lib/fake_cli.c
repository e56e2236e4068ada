/* fake_cli.c - for tests: the program `skein` with a fake GPU (lib/fake_gpu.h).
 *
 * cmake/test.cmake links it beside src/cli/main.c, by the name of the variable.  SKEIN_FUSE is
 * obeyed as ever; without it all is joined that can be. */
#include "lib/fake_gpu.h"

#include <stdbool.h>
#include <stdlib.h>

extern int sk_fake_cli;
int sk_fake_cli;

__attribute__((constructor)) static void begin(void)
{
    bool all = !getenv("SKEIN_FUSE");
    sk_fake_gpu(0);
    if (all) unsetenv("SKEIN_FUSE");
}
