/* api_memory.c - an allocator for memory that all ranks of a communicator can reach. */
#include "api/communicator.h"

#include <string.h>

enum { LINE = 64, FIRST = SK_CALL_SLOTS * SK_CALL_BYTES };

/* The free gap before block i, or after the last. */
static int64_t gap_at(const skein_comm *c, int i)
{
    return i ? c->given.v[i - 1].at + c->given.v[i - 1].bytes : FIRST;
}

static int64_t gap_end(const skein_comm *c, int i)
{
    return i < c->given.n ? c->given.v[i].at : c->bytes;
}

int64_t sk_comm_memory_alloc(skein_comm *c, int64_t bytes)
{
    int i = 0;
    if (bytes < 0 || bytes > c->bytes) return -1;
    bytes = bytes ? (bytes + LINE - 1) / LINE * LINE : LINE;
    while (i <= c->given.n && gap_end(c, i) - gap_at(c, i) < bytes) i++;
    if (i > c->given.n) return -1;
    int64_t at = gap_at(c, i);
    sk_push(&c->arena, &c->given);
    memmove(&c->given.v[i + 1], &c->given.v[i], (size_t)(c->given.n - 1 - i) * sizeof *c->given.v);
    c->given.v[i] = (sk_comm_memory_block){at, bytes};
    sk_assert(at >= FIRST && at + bytes <= c->bytes);
    sk_assert(i + 1 == c->given.n || at + bytes <= c->given.v[i + 1].at);
    return at;
}

bool sk_comm_memory_free(skein_comm *c, int64_t at)
{
    int i = 0;
    while (i < c->given.n && c->given.v[i].at != at) i++;
    if (i == c->given.n) return false;
    memmove(&c->given.v[i], &c->given.v[i + 1], (size_t)(c->given.n - 1 - i) * sizeof *c->given.v);
    c->given.n--;
    return true;
}

bool sk_comm_memory_has(const skein_comm *c, const void *p, int64_t bytes)
{
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)c->base + FIRST;
    uintptr_t to = (uintptr_t)c->base + (uintptr_t)c->bytes;
    return at >= from && at <= to && (uintptr_t)bytes <= to - at;
}

sk_status sk_comm_memory_short(const skein_comm *c, const char *who, int64_t bytes)
{
    int64_t most = 0;
    for (int i = 0; i <= c->given.n; i++)
        if (gap_end(c, i) - gap_at(c, i) > most) most = gap_end(c, i) - gap_at(c, i);
    return sk_fail(SK_EUSAGE,
                   "%s: %lld bytes are needed of the communicator's memory, and %lld are free in a "
                   "row; open it with more bytes",
                   who, (long long)bytes, (long long)most);
}

int skein_comm_alloc(skein_comm *c, int64_t bytes, void **out)
{
    SK_NEED(out);
    SK_TELL(sk_communicator_check(c, __func__));
    int64_t at = bytes >= 0 ? sk_comm_memory_alloc(c, bytes) : -1;
    if (at < 0) return (int)sk_comm_memory_short(c, __func__, bytes);
    *out = c->base + at;
    return SK_OK;
}

int skein_comm_free(skein_comm *c, void *memory)
{
    if (!memory) return SK_OK;
    SK_NEED(c);
    if (sk_comm_memory_has(c, memory, 0) && sk_comm_memory_free(c, (char *)memory - c->base))
        return SK_OK;
    return (int)sk_fail(SK_EUSAGE,
                        "skein_comm_free: that memory was not given by skein_comm_alloc() of "
                        "this communicator, or was given back already");
}
