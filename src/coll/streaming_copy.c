/* streaming_copy.c - copying between heaps. */
#include "coll/streaming_copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>

enum { LINE = 64, PAGE = 4096, SIDE = 4 };

static inline void line(char *to, const char *from)
{
    __m256i a = _mm256_loadu_si256((const void *)from);
    __m256i b = _mm256_loadu_si256((const void *)(from + 32));
    _mm256_stream_si256((void *)to, a);
    _mm256_stream_si256((void *)(to + 32), b);
}

/* Whole groups of pages; returns how many bytes they were.  `to` is on a line. */
static size_t far_pages(char *to, const char *from, size_t n)
{
    size_t done = 0;
    for (; done + SIDE * PAGE <= n; done += SIDE * PAGE)
        for (size_t at = done; at < done + PAGE; at += LINE)
            for (size_t page = 0; page < SIDE; page++)
                line(to + at + page * PAGE, from + at + page * PAGE);
    _mm_sfence();
    return done;
}
#else
static size_t far_pages(char *to, const char *from, size_t n)
{
    (void)to, (void)from, (void)n;
    return 0;
}
#endif

void sk_streaming_copy(void *to, const void *from, size_t n)
{
    size_t head = (64 - ((uintptr_t)to & 63)) & 63, done = 0;
    char *q = to;
    const char *p = from;
    if (n >= SK_STREAMING_COPY_BYTES) {
        memcpy(q, p, head);
        done = head + far_pages(q + head, p + head, n - head);
    }
    memcpy(q + done, p + done, n - done);
}
