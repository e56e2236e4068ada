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
/* The sums of three stretches of n bytes, the j-th at data + j * step: a sum waits for the word
 * before it, so that three side by side take the time of one. */
void sk_crc32c_three(uint32_t crc[3], const void *data, size_t step, size_t n);

#ifdef __cplusplus
}
#endif

#endif
