/* libFuzzer target: a file that describes a machine.  What is accepted has finite prices, and is
 * the same when it was written and read again. */
#include "lib/fuzz.h"
#include "plan/routes.h"

#include <math.h>
#include <string.h>

static bool fair(double seconds) { return isfinite(seconds) && seconds >= 0; }

static void price(const sk_machine *m)
{
    const sk_reach reach = {8, 2, 4};
    sk_assert(fair(sk_machine_work(m, 1e9, 1 << 20, 2)));
    for (int kind = 0; kind < SK_N_COLLS; kind++)
        sk_assert(fair(sk_machine_coll(m, (sk_coll_kind)kind, 1 << 20, reach)));
    for (int kind = SK_KERNEL_STREAM; kind <= SK_KERNEL_ATTENTION_GRAD; kind++) {
        sk_kernel_shape s = {.kind = (sk_kernel_kind)kind, .type = SK_BF16, .batch = 3};
        s.m = 1000, s.n = 300, s.k = 64;
        sk_assert(fair(sk_machine_compute(m, &s, 1e9, 2)));
    }
    sk_assert(!m->kernels.n_ops || fair(fmax(sk_machine_op(m, "add", SK_BF16, 1 << 20, 2), 0)));
    sk_assert(fair(sk_machine_kernel(m, 1, 1 << 20, SK_KERNEL_STREAM)));
    sk_assert(fair(sk_machine_kernel(m, 1, 1 << 20, SK_KERNEL_LOSS)));
    sk_assert(fair(sk_machine_accumulate(m, 1 << 20)));
    sk_assert(fair(sk_machine_copy(m, 1 << 20, true)) && fair(sk_machine_host(m, 1 << 20)));
    sk_assert(fair(sk_machine_send(m, 1 << 20, true)) && fair(sk_machine_send(m, 1 << 20, false)));
}

/* Every way is over links that there are. */
static void go(sk_arena *a, const sk_machine *m)
{
    enum { RANKS = 48 };
    sk_routes r;
    sk_path path = {.arena = a};
    if (sk_routes_open(m, RANKS, &r)) return;
    for (int i = 0; i < 2 * RANKS * RANKS; i++) {
        r.around = i >= RANKS * RANKS;
        sk_routes_find(&r, i / RANKS % RANKS, i % RANKS, &path);
        sk_assert(fair(path.alpha));
        for (int k = 0; k < path.n; k++) {
            int link = path.v[k].link;
            double part = path.v[k].part;
            sk_assert(link >= 0 && link < r.n_links && part > 0 && part <= 1);
            sk_assert(fair(1 / sk_routes_capacity(&r, link)));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_machine m, again;
    sk_status st = sk_machine_read(&a, fuzz_file("machine.txt", data, n), &m);
    fuzz_refused(st, SK_ECONF);
    if (!st) {
        price(&m);
        go(&a, &m);
        const char *path = sk_strdup(&a, fuzz_file("again.txt", "", 0));
        sk_assert(m.unit || !sk_machine_write(&a, path, &m));
        sk_assert(m.unit || !sk_machine_read(&a, path, &again));
    }
    sk_arena_end(&a);
    return 0;
}
