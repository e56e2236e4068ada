/* format.h - files of data that skein does not read, known by their first bytes or their names.
 *
 * Without this a table or an archive that has no zero byte at its beginning would be trained on as
 * if it were text. */
#ifndef SK_DATA_FORMAT_H
#define SK_DATA_FORMAT_H

#include <stddef.h>

enum { SK_FORMAT_HEAD = 512 }; /* bytes that are looked at */

/* What skein reads, for messages. */
#define SK_FORMATS                                                                              \
    "skein reads plain text and JSON lines ({\"text\": ...} in every line), both also as .gz, " \
    "token files (.bin) and IDX images"

/* "is a zip archive; unpack it first", if `head` (the first n bytes, with gzip undone where that is
 * done) or the name of the file says so; NULL: nothing of that kind. */
const char *sk_format_unsupported(const char *path, const void *head, size_t n);
/* The same of a file that is to be text, with gzip undone. */
const char *sk_format_of(const char *path);

#endif
