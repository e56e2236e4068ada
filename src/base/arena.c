/* arena.c - bump allocation in doubling blocks. */
#include "base/arena.h"
#include "base/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 64, SMALL = 16, FIRST_BLOCK = 1 << 16 };

struct sk_block {
    struct sk_block *below;
    size_t used, size; /* bytes in data[] */
    _Alignas(LINE) unsigned char data[];
};

/* Blocks that were given up, for as long as sk_arena_reuse says so. */
static struct {
    pthread_mutex_t lock;
    struct sk_block *first; /* linked by `below` */
    size_t bytes;
    _Atomic size_t most;
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct sk_block *spare_take(size_t size)
{
    struct sk_block *b, **at = &spare.first;
    pthread_mutex_lock(&spare.lock);
    while (*at && (*at)->size != size) at = &(*at)->below;
    b = *at;
    if (b) *at = b->below, spare.bytes -= size;
    pthread_mutex_unlock(&spare.lock);
    return b;
}

static bool spare_give(struct sk_block *b)
{
    pthread_mutex_lock(&spare.lock);
    bool keeps = spare.bytes + b->size <= spare.most;
    if (keeps) {
        b->below = spare.first;
        spare.first = b;
        spare.bytes += b->size;
    }
    pthread_mutex_unlock(&spare.lock);
    return keeps;
}

void sk_arena_reuse(size_t most)
{
    pthread_mutex_lock(&spare.lock);
    struct sk_block *b = spare.first;
    spare.most = most;
    spare.first = NULL;
    spare.bytes = 0;
    pthread_mutex_unlock(&spare.lock);
    for (struct sk_block *next; b; b = next) {
        next = b->below;
        free(b);
    }
}

static struct sk_block *block_new(size_t size, struct sk_block *below)
{
    struct sk_block *b = spare.most ? spare_take(size) : NULL;
    if (!b) b = aligned_alloc(LINE, sizeof *b + size);
    if (!b) {
        fprintf(stderr,
                "skein: memory: the system refuses %zu bytes more; free some, or raise ulimit -v\n",
                size);
        _exit(SK_EIO);
    }
    *b = (struct sk_block){.below = below, .size = size};
    return b;
}

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }
static size_t align_of(size_t bytes) { return bytes >= LINE ? LINE : SMALL; }
static size_t padded(size_t bytes) { return round_up(bytes, align_of(bytes)); }

/* Memory that is not zeroed yet. */
static unsigned char *take(sk_arena *a, size_t bytes)
{
    sk_assert(bytes < SIZE_MAX / 4);
    size_t need = padded(bytes);
    struct sk_block *b = a->top;
    size_t at = b ? round_up(b->used, align_of(bytes)) : 0;
    if (!b || at > b->size || b->size - at < need) {
        size_t size = b ? b->size * 2 : FIRST_BLOCK;
        while (size < need) size *= 2;
        b = a->top = block_new(size, b);
        at = 0;
    }
    b->used = at + need;
    return b->data + at;
}

void *sk_alloc(sk_arena *a, size_t bytes) { return memset(take(a, bytes), 0, padded(bytes)); }

void *sk_alloc_n(sk_arena *a, size_t size, size_t n)
{
    size_t bytes = 0;
    sk_assert(!__builtin_mul_overflow(size, n, &bytes));
    return sk_alloc(a, bytes);
}

/* What was taken last grows where it lies, if the block has the room. */
static bool grows_here(sk_arena *a, const unsigned char *old, size_t old_bytes, size_t new_bytes)
{
    struct sk_block *b = a->top;
    if (!b || !old_bytes || old + padded(old_bytes) != b->data + b->used) return false;
    size_t at = b->used - padded(old_bytes), need = padded(new_bytes);
    if (at % align_of(new_bytes) || need > b->size - at) return false;
    b->used = at + need;
    return true;
}

void *sk_grow(sk_arena *a, void *old, size_t old_bytes, size_t new_bytes)
{
    sk_assert(new_bytes >= old_bytes && new_bytes < SIZE_MAX / 4);
    bool here = grows_here(a, old, old_bytes, new_bytes);
    unsigned char *p = here ? old : take(a, new_bytes);
    if (!here && old_bytes) memcpy(p, old, old_bytes);
    memset(p + old_bytes, 0, padded(new_bytes) - old_bytes);
    return p;
}

char *sk_print(sk_arena *a, const char *fmt, ...)
{
    va_list ap, twice;
    va_start(ap, fmt);
    va_copy(twice, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    sk_assert(n >= 0);
    char *s = sk_alloc(a, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, twice);
    va_end(twice);
    va_end(ap);
    return s;
}

char *sk_strdup(sk_arena *a, const char *s) { return sk_print(a, "%s", s); }

sk_mark sk_arena_mark(const sk_arena *a)
{
    return (sk_mark){.top = a->top, .used = a->top ? a->top->used : 0};
}

void sk_arena_back(sk_arena *a, sk_mark m)
{
    while (a->top != m.top) {
        struct sk_block *b = a->top;
        a->top = b->below;
        if (!spare.most || !spare_give(b)) free(b);
    }
    if (a->top) a->top->used = m.used;
}

void sk_arena_end(sk_arena *a) { sk_arena_back(a, (sk_mark){0}); }
