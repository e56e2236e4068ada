/* idx.c - images with labels in IDX files (LeCun's MNIST format), also packed (.gz).
 *
 * Two zero bytes, type 8 (bytes), the number of dims, the dims as big-endian
 * uint32, the bytes.  Images are X-images-idx3-ubyte, their labels
 * X-labels-idx1-ubyte beside them; a directory has train-... and t10k-... */
#include "data/data.h"
#include "base/strings.h"
#include "data/data_files.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DIMS = 4 };
static const char fashion[] = "/usr/share/datasets/fashion-mnist";

static bool is_idx(const char *path)
{
    uint8_t h[4];
    return sk_data_peek(path, h, 4) == 4 && !h[0] && !h[1] && h[2] == 8 && h[3] >= 2 &&
           h[3] <= MAX_DIMS;
}

/* dir/NAME or dir/NAME.gz; NULL if neither is there. */
static const char *either(sk_arena *a, const char *dir, const char *name)
{
    const char *gz = sk_print(a, "%s.gz", name);
    if (sk_data_has(dir, name)) return sk_print(a, "%s/%s", dir, name);
    return sk_data_has(dir, gz) ? sk_print(a, "%s/%s", dir, gz) : NULL;
}

static const char *images_in(sk_arena *a, const char *dir, bool validation)
{
    return either(a, dir, validation ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte");
}

static bool knows(const char *what)
{
    sk_arena a = {0};
    bool mine = !strcmp(what, "fashion-mnist") || is_idx(what) ||
                (sk_is_dir(what) && images_in(&a, what, false));
    sk_arena_end(&a);
    return mine;
}

/* Read a file of `dims` dims (0: two or more): n things of `size` bytes. */
static sk_status read_idx(sk_arena *a, const char *path, int dims, int64_t *n, int64_t *size,
                          const uint8_t **bytes)
{
    sk_text t = {0};
    SK_TRY(sk_data_read(a, path, SK_DATA_LIMIT, &t));
    const uint8_t *h = (const uint8_t *)t.s;
    int found = t.n < 4 || h[0] || h[1] || h[2] != 8 ? 0 : h[3];
    if (found < 1 || found > MAX_DIMS || (dims ? found != dims : found < 2) ||
        t.n < 4 + 4 * (size_t)found)
        return sk_fail(SK_EDATA, "%s is no IDX file of bytes with %s", path,
                       dims ? "one dim (labels)" : "2 to 4 dims (images)");
    int64_t total = 1, d[MAX_DIMS] = {0};
    for (int i = 0; i < found; i++) {
        const uint8_t *p = h + 4 + 4 * i;
        d[i] = (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
        if (!d[i] || d[i] > SK_DATA_LIMIT / total)
            return sk_fail(SK_EDATA, "%s: dim %d is %lld", path, i, (long long)d[i]);
        total *= d[i];
    }
    if ((size_t)total != t.n - 4 - 4 * (size_t)found)
        return sk_fail(SK_EDATA, "%s: the header says %lld bytes, the file has %lld", path,
                       (long long)total, (long long)t.n - 4 - 4 * found);
    *n = d[0], *size = total / d[0], *bytes = h + 4 + 4 * found;
    return SK_OK;
}

/* "x-images-idx3-ubyte.gz" -> "x-labels-idx1-ubyte.gz", with or without .gz. */
static sk_status labels_of(sk_arena *a, const char *images, const char **out)
{
    static const char mark[] = "images-idx";
    const char *base = sk_base_name(images), *m = strstr(base, mark);
    if (m && m[sizeof mark - 1]) {
        const char *dir = base == images ? "." : sk_print(a, "%.*s", (int)(base - images), images);
        const char *rest = m + sizeof mark; /* after the digit */
        int n = (int)strlen(rest) - (sk_ends_with(rest, ".gz") ? 3 : 0);
        *out = either(a, dir, sk_print(a, "%.*slabels-idx1%.*s", (int)(m - base), base, n, rest));
        if (*out) return SK_OK;
    }
    return sk_fail(SK_EDATA,
                   "%s: no labels beside it; needed: X-images-idx3-ubyte with "
                   "X-labels-idx1-ubyte in one directory, both may end in .gz",
                   images);
}

static sk_status open_idx(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                          sk_store *out)
{
    const char *labels = NULL, *images = what;
    int64_t n = 0, one = 0;
    (void)t;
    if (!strcmp(what, "fashion-mnist")) {
        images = images_in(a, fashion, validation);
        if (!images)
            return sk_fail(SK_EDATA,
                           "fashion-mnist is not installed (nothing in %s); apt-get "
                           "install dataset-fashion-mnist",
                           fashion);
    } else if (sk_is_dir(what)) images = images_in(a, what, validation);
    if (!images) return sk_fail(SK_EDATA, "%s: no t10k-images-idx3-ubyte for validation", what);
    SK_TRY(labels_of(a, images, &labels));
    SK_TRY(read_idx(a, images, 0, &out->n_rows, &out->row_size, &out->rows));
    SK_TRY(read_idx(a, labels, 1, &n, &one, &out->labels));
    if (n != out->n_rows)
        return sk_fail(SK_EDATA, "%s has %lld images, %s %lld labels", images,
                       (long long)out->n_rows, labels, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (out->labels[i] >= out->vocab) out->vocab = out->labels[i] + 1;
    out->path = labels;
    snprintf(out->describe, sizeof out->describe, "%.80s · %s images of %lld pixels · %lld classes",
             sk_base_name(what), sk_commas(a, n), (long long)out->row_size, (long long)out->vocab);
    return SK_OK;
}

static bool brings_val(const char *what)
{
    sk_arena a = {0};
    const char *in = !strcmp(what, "fashion-mnist") ? fashion : what;
    bool some = sk_is_dir(in) && images_in(&a, in, true);
    sk_arena_end(&a);
    return some;
}

const sk_source sk_source_idx = {
    .name = "idx",
    .doc = "images with labels in IDX files (MNIST and the like), also .gz",
    .known = "fashion-mnist",
    .knows = knows,
    .open = open_idx,
    .brings_val = brings_val,
    .inputs = {{"pixels", "bx", SK_F32, .kind = SK_INPUT_BYTES},
               {"targets", "b", SK_I32, .kind = SK_INPUT_LABELS},
               {"weights", "b", SK_F32, .kind = SK_INPUT_ONES, .weighs = true}},
};
