/* hash.h - a 64-bit hash for names and programs, CRC-32C for bytes on disk. */
#ifndef SK_BASE_HASH_H
#define SK_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_HASH_SEED = 0 };
uint64_t sk_hash(uint64_t before, const void *data, size_t n);
uint64_t sk_hash_text(const char *s);
uint32_t sk_crc32c(uint32_t before, const void *data, size_t n); /* start with 0 */

#ifdef __cplusplus
}
#endif

#endif
