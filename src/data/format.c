/* format.c - see format.h. */
#include "data/format.h"
#include "data/data_files.h"

#include <string.h>

typedef struct sign { /* `n` bytes at byte `at` */
    const char *bytes;
    size_t n, at;
    const char *what;
} sign;

#define UNPACK "; unpack it first"
#define TABLE  "; write its column of text as JSON lines"

static const sign signs[] = {
    {"PK\3\4", 4, 0, "is a zip archive" UNPACK},
    {"PK\5\6", 4, 0, "is an empty zip archive"},
    {"\x1f\x8b\x08", 3, 0, "is packed with gzip" UNPACK},
    {"\x28\xb5\x2f\xfd", 4, 0, "is packed with zstd" UNPACK},
    {"\xfd\x37zXZ\0", 6, 0, "is packed with xz" UNPACK},
    {"1AY&SY", 6, 4, "is packed with bzip2" UNPACK},
    {"7z\xbc\xaf\x27\x1c", 6, 0, "is a 7z archive" UNPACK},
    {"ustar", 5, 257, "is a tar archive" UNPACK},
    {"PAR1", 4, 0, "is a Parquet file" TABLE},
    {"ARROW1", 6, 0, "is an Arrow file" TABLE},
    {"SQLite format 3", 16, 0, "is an SQLite database" TABLE},
    {"\x89HDF\r\n\x1a\n", 8, 0, "is an HDF5 file"},
    {"\x93NUMPY", 6, 0, "is a NumPy array; tofile() writes its ids as a token file"},
    {"GGUF", 4, 0, "is a GGUF model, no data"},
    {"%PDF-", 5, 0, "is a PDF; write its text to a file"},
};

static const struct {
    const char *end, *what;
} names[] = {
    {".csv", "is called a table (CSV)" TABLE},         {".tsv", "is called a table (TSV)" TABLE},
    {".csv.gz", "is called a table (CSV)" TABLE},      {".tsv.gz", "is called a table (TSV)" TABLE},
    {".parquet", "is called a table (Parquet)" TABLE},
};

#define COUNT(x) (sizeof(x) / sizeof *(x))

/* One array of all documents.  Text may begin with a bracket, but not with one before an object or
 * a string. */
static bool is_array(const char *path, const char *s, size_t n)
{
    if (sk_ends_with(path, ".jsonl") || sk_ends_with(path, ".jsonl.gz"))
        return false; /* line by line */
    size_t i = n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < n && strchr(" \t\r\n", s[i])) i++;
    if (i == n || s[i] != '[') return false;
    if (sk_ends_with(path, ".json") || sk_ends_with(path, ".json.gz")) return true;
    while (++i < n && strchr(" \t\r\n", s[i])) continue;
    return i < n && (s[i] == '{' || s[i] == '"');
}

const char *sk_format_unsupported(const char *path, const void *head, size_t n)
{
    for (size_t i = 0; i < COUNT(signs); i++) {
        const sign *s = &signs[i];
        if (s->at + s->n <= n && !memcmp((const char *)head + s->at, s->bytes, s->n))
            return s->what;
    }
    for (size_t i = 0; i < COUNT(names); i++)
        if (sk_ends_with(path, names[i].end)) return names[i].what;
    return is_array(path, head, n) ? "is one JSON array; write each element as a line of its own"
                                   : NULL;
}

const char *sk_format_of(const char *path)
{
    char head[SK_FORMAT_HEAD];
    size_t n = sk_data_peek(path, head, sizeof head);
    if (n >= 2 && (!memcmp(head, "\xff\xfe", 2) || !memcmp(head, "\xfe\xff", 2)))
        return "is text in UTF-16; UTF-8 is needed"; /* two bytes: ids may begin with them */
    return sk_format_unsupported(path, head, n);
}
