/* id_check.c - ids outside of the vocabulary, found long before their windows come.
 *
 * A file of ids does not say how many there are, and the feed looks only at what it copies.  At the
 * start all ids are checked of up to 256 MiB, of more as many in blocks from the first to the last,
 * which sk_store_digest() reads as well: it costs next to nothing.  The rest is read once, in
 * order, while the ranks train.  Bytes of a mapped file are read, not touched: a file that is cut
 * short meanwhile is an error then, not a signal, and the process does not grow. */
#include "base/clock.h"
#include "data/data.h"
#include "data/data_files.h"

#include <fcntl.h>
#include <string.h>

enum { PART = 1 << 20 }; /* bytes read at once */

sk_status sk_store_outside(const sk_store *s, int64_t at, uint32_t id)
{
    if (s->base < 0)
        return sk_fail(SK_EDATA, "%s: token %lld is %u, ids must be below %lld", s->path,
                       (long long)at, id, (long long)s->vocab);
    const char *path = s->path;
    int64_t byte = s->base + at * s->token_bytes;
    for (int i = s->n_files - 1; i >= 0; i--) {
        if (byte < s->files[i].start) continue;
        path = s->files[i].path, byte += s->files[i].at - s->files[i].start;
        break;
    }
    bool assumed = s->assumed || s->said_bytes;
    return sk_fail(SK_EDATA,
                   "%s: the token at byte %lld is %u, ids must be below %lld; was the file made "
                   "with another tokenizer%s%s%s?",
                   path, (long long)byte, id, (long long)s->vocab,
                   assumed ? ", or with ids of another size than uint" : "",
                   !assumed              ? ""
                   : s->token_bytes == 2 ? "16"
                                         : "32",
                   assumed ? " (data.dtype)" : "");
}

static uint32_t id_at(const void *p, int width, int64_t i)
{
    uint32_t id = 0;
    memcpy(&id, (const char *)p + i * width, (size_t)width);
    return id;
}

/* The highest of n ids.  One loop for each width: compilers make vectors of them. */
static uint32_t highest(const void *p, int width, int64_t n)
{
    uint32_t top = 0;
    if (width == 2) {
        uint16_t most = 0;
        const uint16_t *ids = p;
        for (int64_t i = 0; i < n; i++) most = ids[i] > most ? ids[i] : most;
        return most;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t id = id_at(p, width, i);
        top = id > top ? id : top;
    }
    return top;
}

/* Ids [from, from + n), of at most PART bytes; buf has room for them. */
static sk_status look(const sk_store *s, int64_t from, int64_t n, void *buf)
{
    int64_t at = from * s->token_bytes;
    size_t bytes = (size_t)(n * s->token_bytes);
    if (s->map) SK_TRY(sk_file_pread(s->map->fd, s->path, buf, bytes, s->base + at));
    else memcpy(buf, (const char *)s->tokens + at, bytes);
    if (highest(buf, s->token_bytes, n) < (uint64_t)s->vocab) return SK_OK;
    int64_t i = 0;
    while (id_at(buf, s->token_bytes, i) < (uint64_t)s->vocab) i++;
    return sk_store_outside(s, from + i, id_at(buf, s->token_bytes, i));
}

/* Can this store have any?  A tokenizer of ours makes none, and all bytes may be ids. */
static bool in_doubt(const sk_store *s)
{
    return s->tokens && s->ready_made && (s->token_bytes > 1 || s->vocab < 256);
}

static sk_status check_spread(const sk_store *s, void *buf, int64_t *checked)
{
    int64_t each = SK_DIGEST_BLOCK / s->token_bytes, apart = s->n_tokens / SK_DIGEST_BLOCKS;
    for (int64_t i = 0; i < SK_DIGEST_BLOCKS; i++)
        SK_TRY(look(s, i == SK_DIGEST_BLOCKS - 1 ? s->n_tokens - each : apart * i, each, buf));
    *checked = each * SK_DIGEST_BLOCKS;
    return SK_OK;
}

static sk_status check_until(sk_id_check *c, void *buf, double until)
{
    const sk_store *s = c->store;
    int64_t most = PART / s->token_bytes;
    while (c->done < s->n_tokens) {
        int64_t left = s->n_tokens - c->done, n = left < most ? left : most;
        SK_TRY(look(s, c->done, n, buf));
        c->done += n;
        if (until > 0 && sk_now() >= until)
            break; /* one part at least: calls must come to an end */
    }
    return SK_OK;
}

sk_status sk_id_check_begin(sk_id_check *c, const sk_store *s)
{
    *c = (sk_id_check){.store = s, .done = s->n_tokens};
    if (!in_doubt(s)) return SK_OK;
    sk_arena a = {0};
    void *buf = sk_alloc(&a, PART);
    bool all = s->n_tokens * s->token_bytes <= (int64_t)SK_DIGEST_BLOCKS * SK_DIGEST_BLOCK;
    c->done = 0;
    sk_status status = all ? check_until(c, buf, 0) : check_spread(s, buf, &c->first);
    if (all) c->first = c->done;
    else if (s->map) posix_fadvise(s->map->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_id_check_more(sk_id_check *c, double seconds)
{
    if (!c->store || c->done == c->store->n_tokens) return SK_OK;
    sk_arena a = {0};
    void *buf = sk_alloc(&a, PART);
    sk_status status = check_until(c, buf, sk_now() + seconds);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
