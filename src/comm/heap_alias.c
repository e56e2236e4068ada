/* heap_alias.c - heaps of one host that begin with the same memory.
 *
 * Ranks that keep equal weights need them once.  An aliased heap has all its
 * addresses; its first bytes are a second mapping of the pages of the rank that
 * keeps them, and its own pages below them are never reserved.  So offsets, views
 * and peers know nothing of it.  Both begin on a 2 MiB boundary of the memfd and of
 * the addresses, so huge pages stay huge in all mappings. */
#include "comm/heap.h"

#include <errno.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

bool sk_heap_aliased(const sk_heaps_ask *q, int r)
{
    return q->aliases.of && q->aliases.of[r] != r && q->aliases.bytes[r] &&
           (!q->here || q->here[r]);
}

size_t sk_heap_alias_bytes(const sk_heaps_ask *q, int r)
{
    return sk_heap_aliased(q, r) ? (size_t)q->aliases.bytes[r] : 0;
}

static bool alias_good(const sk_heaps_ask *q, int r)
{
    int64_t n = q->aliases.bytes[r];
    int of = q->aliases.of[r];
    return of >= 0 && of < q->n_ranks && q->aliases.of[of] == of && (!q->here || q->here[of]) &&
           n % PAGE == 0 && n == q->aliases.bytes[of] && n <= q->bytes[r] && n <= q->bytes[of];
}

sk_status sk_heap_aliases_check(const sk_heaps_ask *q)
{
    for (int r = 0; r < q->n_ranks; r++)
        if (sk_heap_aliased(q, r) && !alias_good(q, r))
            return sk_fail(SK_EBUG,
                           "heaps: the first %lld bytes of rank %d shall be those of rank %d: no "
                           "whole pages, more than one of them has, or not its own",
                           (long long)q->aliases.bytes[r], r, q->aliases.of[r]);
    return SK_OK;
}

sk_status sk_heap_aliases_map(sk_heaps *h, const sk_heaps_ask *q, int fd, const char *map)
{
    for (int r = 0; r < h->n; r++) {
        h->alias_of[r] =
            q->aliases.of ? q->aliases.of[r] : r; /* of other hosts too: they count alike */
        h->alias_bytes[r] = q->aliases.of ? q->aliases.bytes[r] : 0;
        if (!sk_heap_aliased(q, r)) continue;
        off_t at = h->base[h->alias_of[r]] - map;
        if (mmap(h->base[r], sk_heap_alias_bytes(q, r), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, fd, at) == MAP_FAILED)
            return sk_fail(SK_EIO, "heaps: cannot map %lld bytes of rank %d for rank %d: %s",
                           (long long)h->alias_bytes[r], h->alias_of[r], r, strerror(errno));
    }
    return SK_OK;
}

bool sk_heaps_same(const sk_heaps *h, const int *ranks, int n, int64_t end)
{
    for (int i = 0; i < n; i++)
        if (h->alias_of[ranks[i]] != h->alias_of[ranks[0]] || h->alias_bytes[ranks[i]] < end)
            return false;
    return true;
}

int64_t sk_heap_own(const sk_heaps *h, int rank)
{
    return h->bytes[rank] - (h->alias_of[rank] == rank ? 0 : h->alias_bytes[rank]);
}
