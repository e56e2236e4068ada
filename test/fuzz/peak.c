/* libFuzzer target: the file of this host's peaks.  Its first line, which names the host, and its
 * last, which has the sum of the rest, are written anew.  What is kept can be believed, or it is
 * told why not. */
#include "base/hash.h"
#include "base/strings.h"
#include "lib/fuzz.h"
#include "train/host_peak.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

static char path[256], head[512]; /* of the file, in fuzz_dir() */

/* Keep a peak, to see where the file is and how it begins. */
static void find_file(sk_arena *a)
{
    glob_t g = {0};
    sk_text t = {0};
    setenv("XDG_CACHE_HOME", fuzz_dir(), 1);
    sk_host_peak_keep(a, 1, 1e9);
    sk_assert(!glob(sk_print(a, "%s/skein/peak-*.txt", fuzz_dir()), 0, NULL, &g) && g.gl_pathc);
    sk_assert(!sk_file_read(a, g.gl_pathv[0], &t));
    memcpy(path, g.gl_pathv[0] + strlen(fuzz_dir()) + 1,
           strlen(g.gl_pathv[0]) - strlen(fuzz_dir()));
    memcpy(head, t.s, strcspn(t.s, "\n") + 1);
    globfree(&g);
}

static void read_back(sk_arena *a, const char *text, size_t n)
{
    fuzz_file(path, text, n);
    for (int busy = 1; busy <= 2; busy++) {
        sk_kept_peak p = sk_host_peak_find(a, busy);
        sk_assert(p.flops >= 0 && p.flops <= 1e12 * busy && (!p.why || p.flops == 0));
        fuzz_printable(p.why ? p.why : "");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_out o = {.arena = &a};
    if (!*path) find_file(&a);
    read_back(&a, (const char *)data, n);
    sk_out_add(&o, "%s%s", head, fuzz_text(&a, data, n));
    sk_out_add(&o, "sum %08x\n", sk_crc32c(0, o.s, o.n));
    read_back(&a, o.s, o.n);
    sk_arena_end(&a);
    return 0;
}
