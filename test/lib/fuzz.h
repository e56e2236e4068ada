/* fuzz.h - what the fuzzers of parsers share.
 *
 * test/fuzz/NAME.c gives LLVMFuzzerTestOneInput() the bytes of one file, and checks what the parser
 * says of them.  It is built twice:
 *
 *     preset `fuzz`      with libFuzzer, the address and the undefined-behaviour sanitizer
 *     any other preset   with test/lib/fuzz/replay.c, which runs the inputs of test/corpus/NAME and
 *                        a few thousand mutations of them, the same ones every time
 *
 * What a parser accepts must hold (each fuzzer says what that means, usually: printed and read
 * again it is the same).  What a parser refuses must come with one of the exit codes that belong to
 * the file and with a sentence that can be shown on a terminal.  A parser may not take much more
 * memory than the file has bytes: one allocation of over FUZZ_MEMORY ends the fuzzer (without
 * sanitizers: allocations of four times as much together). */
#ifndef SK_TEST_FUZZ_H
#define SK_TEST_FUZZ_H

#include "base/arena.h"
#include "base/file_io.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { FUZZ_MEMORY = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An empty folder of this process, made by the first call and removed at the exit. */
const char *fuzz_dir(void);
/* A file of that folder with these bytes; its path lives until the next call. */
const char *fuzz_file(const char *name, const void *data, size_t n);
/* The bytes as a text that ends with a NUL; a text from a file. */
char *fuzz_text(sk_arena *a, const uint8_t *data, size_t n);

/* A refusal: SK_ECONF or SK_EDATA (or `other`), and a sentence without control characters. */
void fuzz_refused(sk_status st, sk_status other);
/* A sentence that a terminal shows and does not obey. */
void fuzz_printable(const char *line);

/* Two inputs in one: the first four bytes say how many of the rest belong to the first (modulo the
 * bytes there are, so that mutations stay useful).  False: too short. */
bool fuzz_halves(const uint8_t *data, size_t n, sk_text *first, sk_text *second);

#endif
