/* hash.c - FNV-1a with a final mix; CRC-32C (Castagnoli), by table or by the CPU's own
 * instruction where there is one. */
#include "base/hash.h"

#include <string.h>

uint64_t sk_hash(uint64_t before, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = before ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

uint64_t sk_hash_text(const char *s) { return sk_hash(SK_HASH_SEED, s, strlen(s)); }

#ifdef __SSE4_2__
#include <nmmintrin.h>
uint32_t sk_crc32c(uint32_t before, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t c = ~before, word;
    for (; n >= 8; n -= 8, p += 8) memcpy(&word, p, 8), c = _mm_crc32_u64(c, word);
    for (; n; n--) c = _mm_crc32_u8((uint32_t)c, *p++);
    return ~(uint32_t)c;
}

void sk_crc32c_three(uint32_t crc[3], const void *data, size_t step, size_t n)
{
    const unsigned char *p = data;
    uint64_t c[3] = {~crc[0], ~crc[1], ~crc[2]}, word[3];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 3; j++) memcpy(&word[j], p + (size_t)j * step + i, 8);
        for (int j = 0; j < 3; j++) c[j] = _mm_crc32_u64(c[j], word[j]);
    }
    for (int j = 0; j < 3; j++)
        crc[j] = sk_crc32c(~(uint32_t)c[j], p + (size_t)j * step + i, n - i);
}
#else
uint32_t sk_crc32c(uint32_t before, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t c = ~before;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (0x82F63B78u & -(c & 1));
    }
    return ~c;
}

void sk_crc32c_three(uint32_t crc[3], const void *data, size_t step, size_t n)
{
    for (int j = 0; j < 3; j++)
        crc[j] = sk_crc32c(crc[j], (const unsigned char *)data + (size_t)j * step, n);
}
#endif
