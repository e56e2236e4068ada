/* tokens.c - files of token ids made by others.
 *
 *     llm.c     256 int32 (magic, version, count), then uint16 (20240520, version 1)
 *               or uint32 (20240801, version 7)
 *     Megatron  x.bin with the ids, x.idx with their type and the documents' lengths
 *     nanoGPT   x.bin, nothing but uint16; train.bin and val.bin in a directory
 *     others    x.bin, nothing but uint32: by data.dtype, or because no uint16 ids look like that
 *
 * A directory has train.bin and val.bin, or shards with the word train or val in their names.
 * One file is mapped, so that its size does not matter; several (a glob of
 * shards) are read into memory.  None of them says how many ids there are: the
 * feed checks each id that it copies, and data/id_check.c all of them, early. */
#include "data/data.h"
#include "base/strings.h"
#include "data/data_files.h"
#include "data/format.h"

#include <stdio.h>
#include <string.h>

enum { LLMC_HEAD = 1024, LLMC_16 = 20240520, LLMC_32 = 20240801, MEGATRON_HEAD = 34 };
enum {
    LOOK = 1 << 20,
    SMALL = 16
}; /* bytes that are looked at; the upper half of ids below 2^20 */
static const char megatron[] = "MMIDIDX\0"; /* and the string's own NUL: nine bytes */

typedef struct shard {
    const sk_mapped *map;
    int64_t at, n;
    int width;
    bool raw; /* without a header: the width is the user's word, or assumed */
} shard;

static bool is_megatron(const char *index)
{
    char head[9];
    return sk_data_peek(index, head, 9) == 9 && !memcmp(head, megatron, 9);
}

/* The index that goes with x, x.bin or x.idx; NULL if there is none. */
static const char *index_of(sk_arena *a, const char *what)
{
    int n = (int)strlen(what);
    if (sk_ends_with(what, ".bin") || sk_ends_with(what, ".idx")) n -= 4;
    const char *index = sk_print(a, "%.*s.idx", n, what);
    return is_megatron(index) ? index : NULL;
}

static bool knows(const char *what)
{
    uint32_t head = 0;
    sk_arena a = {0};
    sk_paths files = {0};
    bool mine = sk_is_dir(what) ? sk_data_is_tokens(what) : index_of(&a, what) != NULL;
    if (!mine && !sk_is_dir(what) && !sk_data_list(&a, what, &files) && files.n) {
        bool some = sk_data_peek(files.v[0], &head, 4) == 4;
        mine = sk_ends_with(files.v[0], ".bin") || (some && (head == LLMC_16 || head == LLMC_32));
    }
    sk_arena_end(&a);
    return mine;
}

static int64_t long_at(const uint8_t *p)
{
    int64_t x;
    memcpy(&x, p, 8);
    return x;
}

static int32_t int_at(const uint8_t *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return x;
}

static sk_status open_llmc(const sk_mapped *m, shard *out)
{
    if (m->size < LLMC_HEAD)
        return sk_fail(SK_EDATA,
                       "%s has %lld bytes and begins like llm.c tokens, whose header has %d; it is "
                       "cut short",
                       m->path, (long long)m->size, LLMC_HEAD);
    int32_t magic = int_at(m->bytes), version = int_at(m->bytes + 4), n = int_at(m->bytes + 8);
    int width = magic == LLMC_16 ? 2 : 4;
    if (version != (width == 2 ? 1 : 7))
        return sk_fail(SK_EDATA, "%s: llm.c tokens of version %d, needed is %d", m->path, version,
                       width == 2 ? 1 : 7);
    if (n < 0 || m->size != LLMC_HEAD + (int64_t)n * width)
        return sk_fail(SK_EDATA,
                       "%s: the header promises %d tokens of %d bytes, that is %lld "
                       "bytes in all; the file has %lld",
                       m->path, n, width, LLMC_HEAD + (long long)n * width, (long long)m->size);
    *out = (shard){m, LLMC_HEAD, n, width, false};
    return SK_OK;
}

/* Lengths and places of the sequences must be one unbroken run over the whole of x.bin. */
static sk_status check_index(const sk_mapped *idx, const sk_mapped *bin, int64_t n, int width)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t len = int_at(idx->bytes + MEGATRON_HEAD + 4 * i);
        if (len < 0 || long_at(idx->bytes + MEGATRON_HEAD + 4 * n + 8 * i) != at)
            return sk_fail(SK_EDATA, "%s: sequence %lld does not follow the one before it",
                           idx->path, (long long)i);
        at += (int64_t)len * width;
    }
    if (at != bin->size)
        return sk_fail(SK_EDATA, "%s: the sequences have %lld bytes, %s has %lld", idx->path,
                       (long long)at, bin->path, (long long)bin->size);
    return SK_OK;
}

static sk_status read_index(const sk_mapped *idx, const sk_mapped *bin, shard *out)
{
    if (idx->size < MEGATRON_HEAD || long_at(idx->bytes + 9) != 1)
        return sk_fail(SK_EDATA, "%s: a Megatron index of another version than 1", idx->path);
    int type = idx->bytes[17];
    int64_t n = long_at(idx->bytes + 18), docs = long_at(idx->bytes + 26);
    int width = type == 1 ? 1 : type == 8 ? 2 : type == 4 ? 4 : 0;
    if (!width)
        return sk_fail(SK_EDATA,
                       "%s: type %d of the ids; uint8 (1), uint16 (8) or int32 (4) is "
                       "needed",
                       idx->path, type);
    if (n < 0 || docs < 0 || n > idx->size / 12 || docs > idx->size / 8 ||
        MEGATRON_HEAD + 12 * n + 8 * docs > idx->size)
        return sk_fail(SK_EDATA,
                       "%s promises %lld sequences and %lld documents, its %lld bytes "
                       "cannot hold them",
                       idx->path, (long long)n, (long long)docs, (long long)idx->size);
    SK_TRY(check_index(idx, bin, n, width));
    *out = (shard){bin, 0, bin->size / width, width, false};
    return SK_OK;
}

static sk_status open_megatron(sk_arena *a, const char *index, shard *out)
{
    sk_mapped *idx = NULL, *bin = NULL;
    SK_TRY(sk_data_map(a, index, &idx));
    sk_status st = sk_data_map(a, sk_print(a, "%.*s.bin", (int)strlen(index) - 4, index), &bin);
    if (!st) st = read_index(idx, bin, out);
    sk_mapped_close(idx);
    if (st && bin) sk_mapped_close(bin);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

/* uint32 ids read as uint16 are small in every second place: all 0, or the upper halves of ids that
 * are not all small themselves.  Text in uint16 is never so, unless it has next to no ids. */
static bool looks_wide(const sk_mapped *m)
{
    int64_t n = (m->size < LOOK ? m->size : LOOK) / 4;
    uint16_t low = 0, high = 0; /* the largest of each half */
    for (int64_t i = 0; i < n; i++) {
        uint16_t x[2];
        memcpy(x, m->bytes + 4 * i, 4);
        if (x[0] > low) low = x[0];
        if (x[1] > high) high = x[1];
    }
    return n >= 8 && (high ? high < SMALL && low >= SMALL : low > 0);
}

static sk_status open_raw(const sk_mapped *m, int said, shard *out)
{
    int width = said ? said : looks_wide(m) ? 4 : 2;
    size_t head = (size_t)(m->size < SK_FORMAT_HEAD ? m->size : SK_FORMAT_HEAD);
    const char *foreign = said ? NULL : sk_format_unsupported(m->path, m->bytes, head);
    if (foreign)
        return sk_fail(SK_EDATA,
                       "data: %s %s; if it holds ids nevertheless, data.dtype=uint16 or "
                       "uint32 says so",
                       m->path, foreign);
    if (m->size % width)
        return sk_fail(SK_EDATA,
                       "%s has %lld bytes, no multiple of %d: it cannot be raw uint%d ids%s, and "
                       "there is no header",
                       m->path, (long long)m->size, width, 8 * width,
                       said || width == 2 ? ""
                                          : " (as uint16 every second id would be almost 0; "
                                            "data.dtype=uint16 reads them so)");
    *out = (shard){m, 0, m->size / width, width, true};
    return SK_OK;
}

/* A file without an index. */
static sk_status open_plain(sk_arena *a, const char *path, int said, shard *out)
{
    sk_mapped *m = NULL;
    SK_TRY(sk_data_map(a, path, &m));
    int32_t magic = m->size >= 4 ? int_at(m->bytes) : 0;
    bool headed = magic == LLMC_16 || magic == LLMC_32;
    sk_status st = headed ? open_llmc(m, out) : open_raw(m, said, out);
    if (st) sk_mapped_close(m);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

static sk_status open_one(sk_arena *a, const char *path, int said, shard *out)
{
    const char *index = index_of(a, path);
    SK_TRY(index ? open_megatron(a, index, out) : open_plain(a, path, said, out));
    if (!said || said == out->width) return SK_OK;
    sk_mapped_close(out->map);
    return sk_fail(SK_EDATA,
                   "the header of %s says that its ids have %d bytes, data.dtype=uint%d says %d",
                   path, out->width, 8 * said, said);
}

/* May the next shard of several be added? */
static sk_status joins(const shard *s, int64_t bytes, const sk_store *out)
{
    if (s->width != out->token_bytes)
        return sk_fail(SK_EDATA, "%s has ids of %d bytes, the files before it of %d", s->map->path,
                       s->width, out->token_bytes);
    if (bytes > SK_DATA_LIMIT)
        return sk_fail(SK_EDATA,
                       "data: several token files with over %lld bytes together; join "
                       "them into one file, which is mapped",
                       (long long)SK_DATA_LIMIT);
    return SK_OK;
}

/* It is copied behind the others. */
static sk_status join(sk_arena *a, const shard *s, int64_t *cap, sk_store *out)
{
    size_t old = (size_t)(out->n_tokens * out->token_bytes), more = (size_t)(s->n * s->width);
    sk_status st = joins(s, (int64_t)(old + more), out);
    char *to = (char *)(uintptr_t)out->tokens;
    if (!st && (int64_t)(old + more) > *cap) {
        *cap = 2 * (int64_t)(old + more);
        to = sk_grow(a, to, old, (size_t)*cap);
    }
    if (!st && more) memcpy(to + old, s->map->bytes + s->at, more);
    sk_mapped_close(s->map); /* there may be more shards than descriptors */
    if (st) return sk_trail(st, SK_HERE);
    out->files[out->n_files++] = (sk_store_file){s->map->path, (int64_t)old, s->at};
    out->tokens = to;
    out->n_tokens += s->n;
    return SK_OK;
}

static sk_status open_all(sk_arena *a, const sk_paths *files, sk_store *out)
{
    int64_t cap = 0;
    shard s = {0};
    SK_TRY(open_one(a, files->v[0], out->said_bytes, &s));
    out->token_bytes = s.width;
    out->assumed = s.raw && !out->said_bytes;
    if (files->n == 1) {
        out->tokens = s.map->bytes + s.at, out->n_tokens = s.n;
        out->base = s.at, out->map = s.map, out->path = s.map->path;
        return SK_OK;
    }
    out->files = sk_many(a, sk_store_file, files->n), out->base = 0;
    SK_TRY(join(a, &s, &cap, out));
    for (int i = 1; i < files->n; i++) {
        SK_TRY(open_one(a, files->v[i], out->said_bytes, &s));
        SK_TRY(join(a, &s, &cap, out));
    }
    return SK_OK;
}

/* Shards of two sets in one directory are not one text. */
static sk_status one_set(const char *dir, const sk_paths *files, const char *word)
{
    for (int i = 1; i < files->n; i++) {
        const char *x = sk_base_name(files->v[0]), *y = sk_base_name(files->v[i]);
        size_t n = (size_t)(strstr(x, word) - x);
        if (strncmp(x, y, n) || strncmp(y + n, word, strlen(word)))
            return sk_fail(SK_EDATA,
                           "data: %s holds token files of several sets, %s and %s; name those of "
                           "one with a glob",
                           dir, x, y);
    }
    return SK_OK;
}

static sk_status find_files(sk_arena *a, const char *what, bool validation, sk_paths *files)
{
    const char *word = validation ? "val" : "train", *index = index_of(a, what);
    if (!sk_is_dir(what)) return sk_data_list(a, index ? index : what, files);
    SK_TRY(sk_data_shards(a, what, validation, files));
    if (!files->n)
        return sk_fail(SK_EDATA, "data: %s has no %s.bin and no NAME_%s_N.bin; name other data.%s",
                       what, word, word, word);
    return one_set(what, files, word);
}

static const char *assumption(const sk_store *s)
{
    if (s->said_bytes) return s->token_bytes == 2 ? " · uint16" : " · uint32";
    if (!s->assumed) return "";
    return s->token_bytes == 2 ? " · uint16 assumed"
                               : " · uint32 assumed: as uint16 every second id would be almost 0";
}

static sk_status open_tokens(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                             sk_store *out)
{
    sk_paths files = {0};
    SK_TRY(find_files(a, what, validation, &files));
    sk_assert(files.n > 0);
    SK_TRY(open_all(a, &files, out));
    int64_t most = out->token_bytes == 1 ? 256 : out->token_bytes == 2 ? 65536 : INT32_MAX;
    bool named = t && !sk_tokenizer_is_byte(t) && sk_tokenizer_vocab(t) < most;
    out->ready_made = true;
    out->vocab = named ? sk_tokenizer_vocab(t) : most;
    out->vocab_loose = !named;
    snprintf(out->describe, sizeof out->describe, "%.80s%s · %s tokens%s%s",
             sk_base_name(files.n > 1 ? what : files.v[0]),
             files.n > 1 ? sk_print(a, " · %d files", files.n) : "", sk_commas(a, out->n_tokens),
             assumption(out), sk_paths_repeated(a, &files));
    return SK_OK;
}

static bool brings_val(const char *what) { return sk_data_has_shards(what, true); }

const sk_source sk_source_tokens = {
    .name = "tokens",
    .doc = "token files: nanoGPT train.bin, llm.c shards, Megatron .bin with .idx",
    .knows = knows,
    .open = open_tokens,
    .inputs = {{"tokens", "bt", SK_I32, .kind = SK_INPUT_IDS},
               {"targets", "bt", SK_I32, .kind = SK_INPUT_NEXT},
               {"pos", "bt", SK_I32, .kind = SK_INPUT_PLACES},
               {"weights", "bt", SK_F32, .kind = SK_INPUT_ONES, .weighs = true}},
    .brings_val = brings_val,
};
