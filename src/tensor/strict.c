/* strict.c - JSON and file names that come from outside, read with suspicion. */
#include "tensor/strict.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Count brackets and commas outside of strings.  Whether it is JSON at all is jansson's business;
 * on bytes that are not, the counts are still an upper bound of what jansson can build. */
static sk_status look(const char *where, const char *s, size_t n, const sk_strict *most)
{
    int64_t objects = 0, values = 1;
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (quoted) {
            if (c == '\\') i++;
            else if (c == '"') quoted = false;
            continue;
        }
        if (c == '"') quoted = true;
        else if (c == '}' || c == ']') depth--;
        else if (c == ',') values++;
        else if (c == '{' || c == '[') depth++, values++, objects += c == '{';
        if (depth > most->depth)
            return sk_fail(SK_EDATA, "%s: JSON nested deeper than %d at byte %zu", where,
                           most->depth, i);
        if (objects > most->objects || values > most->values)
            return sk_fail(SK_EDATA,
                           "%s: more JSON than it can need: over %lld objects or %lld values",
                           where, (long long)most->objects, (long long)most->values);
    }
    return SK_OK;
}

sk_status sk_strict_json(const char *where, const char *text, size_t n, const sk_strict *most,
                         struct json_t **out)
{
    json_error_t e;
    SK_TRY(look(where, text, n, most));
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        return sk_fail(SK_EDATA, "%s: not JSON at byte %d: %s", where, e.position,
                       sk_strict_show(e.text).s);
    *out = root;
    return SK_OK;
}

bool sk_strict_file(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strlen(name);
    return n >= 1 && n <= 128 && strspn(name, allowed) == n && strcmp(name, ".") &&
           strcmp(name, "..");
}

bool sk_strict_label(const char *name, size_t most)
{
    size_t n = strnlen(name, most + 1);
    if (!n || n > most) return false;
    const unsigned char *s = (const unsigned char *)name;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < 0x20 || s[i] == 0x7f) return false;
        if (s[i] == 0xc2 && s[i + 1] < 0xa0) return false; /* U+0080 to U+009F: terminals obey */
    }
    return true;
}

/* Bytes of the UTF-8 character at s, 0 if it is none. */
static int utf8(const unsigned char *s)
{
    int n = s[0] < 0x80   ? 1
            : s[0] < 0xc2 ? 0
            : s[0] < 0xe0 ? 2
            : s[0] < 0xf0 ? 3
            : s[0] < 0xf5 ? 4
                          : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return n;
}

void sk_strict_quote(sk_out *o, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    sk_out_add(o, "\"");
    while (*s) {
        int n = utf8(s);
        if (*s == '"' || *s == '\\') sk_out_add(o, "\\%c", *s);
        else if (*s == '\n') sk_out_add(o, "\\n");
        else if (*s < 0x20 || *s == 0x7f) sk_out_add(o, "\\u%04x", *s);
        else if (!n) sk_out_add(o, "?");
        else sk_out_add(o, "%.*s", n, (const char *)s);
        s += n ? n : 1;
    }
    sk_out_add(o, "\"");
}

sk_shown sk_strict_show(const char *s)
{
    sk_shown out = {""};
    size_t n = 0;
    for (; s[n] && n < 128; n++) {
        unsigned char c = (unsigned char)s[n];
        out.s[n] = c < 0x20 || c > 0x7e ? '?' : (char)c;
    }
    if (s[n]) memcpy(out.s + n, "...", 4);
    return out;
}

/* Nothing is at that path; a link that leads nowhere is another mistake than no file. */
static sk_status missing(int dir, const char *name, const char *where)
{
    char aim[256];
    ssize_t n = readlinkat(dir, name, aim, sizeof aim - 1);
    if (n < 0) return sk_fail(SK_EDATA, "%s is missing", where);
    aim[n] = 0;
    return sk_fail(SK_EDATA, "%s is a symbolic link to %s, and nothing is there", where,
                   sk_strict_show(aim).s);
}

sk_status sk_strict_open(int dir, const char *name, const char *where, int *fd, int64_t *size)
{
    struct stat s;
    bool follow = dir == AT_FDCWD;
    int f = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));
    if (f < 0 && (errno == ENOENT || errno == ENOTDIR))
        return sk_trail(missing(dir, name, where), SK_HERE);
    if (f < 0 && errno == ELOOP && follow)
        return sk_fail(SK_EDATA, "%s is a symbolic link that leads back to itself", where);
    if (f < 0 && errno == ELOOP)
        return sk_fail(SK_EDATA, "%s is a symbolic link; skein follows none here: copy the file",
                       where);
    if (f < 0) return sk_fail(SK_EIO, "%s: %s", where, strerror(errno));
    if (fstat(f, &s)) {
        int e = errno;
        close(f);
        return sk_fail(SK_EIO, "%s: %s", where, strerror(e));
    }
    if (!S_ISREG(s.st_mode)) {
        close(f);
        return sk_fail(SK_EDATA, "%s is %s, not a plain file", where,
                       S_ISDIR(s.st_mode) ? "a directory" : "a special file");
    }
    *fd = f;
    *size = s.st_size;
    return SK_OK;
}

sk_status sk_strict_read(sk_arena *a, int dir, const char *name, const char *where, int64_t most,
                         sk_text *out)
{
    int fd = -1;
    int64_t size = 0;
    SK_TRY(sk_strict_open(dir, name, where, &fd, &size));
    if (size > most) {
        close(fd);
        return sk_fail(SK_EDATA, "%s has %lld bytes, at most %lld make sense", where,
                       (long long)size, (long long)most);
    }
    char *s = sk_alloc(a, (size_t)size + 1);
    sk_status status = sk_file_pread(fd, where, s, (size_t)size, 0);
    close(fd);
    if (status) return sk_trail(status, SK_HERE);
    *out = (sk_text){.s = s, .n = (size_t)size};
    return SK_OK;
}

sk_status sk_strict_dir(const char *path, int *fd)
{
    int f = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (f < 0)
        return sk_fail(errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? SK_EDATA : SK_EIO,
                       "the directory %s: %s", path, strerror(errno));
    *fd = f;
    return SK_OK;
}
