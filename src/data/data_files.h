/* data_files.h - bytes from outside, for the sources and the tokenizer.
 *
 * Names become sorted lists of plain files, files become bytes (gzip is undone
 * on the way), and large token files are mapped.  Every size is checked against
 * a limit before it reaches an arena: a small .gz can claim to be a large one. */
#ifndef SK_DATA_DATA_FILES_H
#define SK_DATA_DATA_FILES_H

#include "base/file_io.h"

#include <time.h>

#define SK_DATA_LIMIT ((int64_t)8 << 30) /* bytes of text or images held in memory */

typedef struct sk_paths {
    const char **v;
    int n, cap;
    int again; /* names left out: further ones of files in the list */
} sk_paths;

/* A file in memory.  It stays mapped until it is closed, or to the end of the process, and its
 * descriptor open, so that sk_mapped_same() can tell that somebody wrote to it: a file cut short
 * under a mapping would otherwise end the process with a signal. */
typedef struct sk_mapped {
    const char *path;
    int fd;
    const uint8_t *bytes;
    int64_t size;
    struct timespec written;
} sk_mapped;

/* The plain files that `what` means, sorted by bytes: itself, what is below a directory (hidden
 * names left out, 8 levels, no link that leads back to a directory on the way), or what matches a
 * glob.  A file (device and inode) is there once, by the first of its names.  None at all is no
 * error. */
sk_status sk_data_list(sk_arena *a, const char *what, sk_paths *out);
/* " · 2 more names of the same files", "" if there are none: for the line that describes data. */
const char *sk_paths_repeated(sk_arena *a, const sk_paths *p);
/* Is there anything called dir/name?  Reading it says what is wrong if it is no plain file. */
bool sk_data_has(const char *dir, const char *name);
bool sk_data_is_glob(const char *what);
/* Is this word one of the name's, cut at '_', '-' and '.'? */
bool sk_data_has_word(const char *name, const char *word);
/* Token files of a directory, for training or for validation: train.bin and val.bin, or .bin files
 * with the word train or val in their names (llm.c: NAME_train_000001.bin).  Sorted; none: n = 0.
 */
sk_status sk_data_shards(sk_arena *a, const char *dir, bool validation, sk_paths *out);
bool sk_data_has_shards(const char *dir, bool validation);
bool sk_data_is_tokens(const char *dir); /* for either */

/* All of a file, at most `limit` bytes of it; .gz by content. */
sk_status sk_data_read(sk_arena *a, const char *path, int64_t limit, sk_text *out);
/* The first bytes of a file, unpacked; how many there were, 0 if it cannot be read. */
size_t sk_data_peek(const char *path, void *to, size_t n);

sk_status sk_data_map(sk_arena *a, const char *path, sk_mapped **out);
sk_status sk_mapped_same(const sk_mapped *m);
void sk_mapped_close(const sk_mapped *m); /* for one that is not needed any more */

/* How many bytes at the start of s are UTF-8 in good order (no surrogates, no overlong forms). */
size_t sk_utf8_span(const char *s, size_t n);
/* The bytes of the character that begins at s, by its first byte; 1 if none can begin there. */
size_t sk_utf8_length(const char *s);

bool sk_ends_with(const char *s, const char *tail);
const char *sk_base_name(const char *path);

#endif
