/* strict.h - JSON and file names that come from outside, read with suspicion.
 *
 * Headers of tensor files, manifests and Hugging Face indexes are JSON written
 * by somebody else.  sk_strict_json() looks over the bytes first, without
 * allocating: nesting, number of objects and number of values must stay below
 * the limits, so that a small file cannot become a large tree.  Only then does
 * jansson parse, with duplicate keys refused.  The tree takes at most about 70
 * bytes per value; the caller frees it with json_decref() as soon as it has
 * what it needs.
 *
 * A file name found in JSON must pass sk_strict_file().  Files of checkpoints are
 * opened below a directory that is already open, never through a symbolic link.
 * Files of model directories are opened by their path, and links are followed: a
 * Hugging Face cache is nothing but links to ../../blobs. */
#ifndef SK_TENSOR_STRICT_H
#define SK_TENSOR_STRICT_H

#include "base/file_io.h"
#include "base/status.h"
#include "base/strings.h"

#include <stdbool.h>

struct json_t;

typedef struct sk_strict {
    int depth; /* of nesting */
    int64_t objects, values;
} sk_strict;

/* `where` names the text in messages.  *out is set only on success. */
sk_status sk_strict_json(const char *where, const char *text, size_t n, const sk_strict *most,
                         struct json_t **out);

bool sk_strict_file(const char *name); /* ^[A-Za-z0-9._-]{1,128}$, and neither "." nor ".." */
/* Names of tensors: 1 to `most` bytes, no control characters. */
bool sk_strict_label(const char *name, size_t most);

/* Append s as a JSON string.  Bytes that are not UTF-8 become '?': what is written can be read. */
void sk_strict_quote(sk_out *o, const char *s);
/* A short printable copy, for messages about names that cannot be trusted on a terminal. */
typedef struct sk_shown {
    char s[132];
} sk_shown;
sk_shown sk_strict_show(const char *s);

/* Open a plain file: below `dir` without following a link, or, with AT_FDCWD, at a path whose
 * links are followed.  A file that is missing or is something else is SK_EDATA: a directory is
 * not what it claims to be. */
sk_status sk_strict_open(int dir, const char *name, const char *where, int *fd, int64_t *size);
/* Read a whole text file the same way, if it has at most `most` bytes. */
sk_status sk_strict_read(sk_arena *a, int dir, const char *name, const char *where, int64_t most,
                         sk_text *out);
/* Open a directory; the last part of the path must not be a link. */
sk_status sk_strict_dir(const char *path, int *fd);

#endif
