/* safetensors.h - tensor files that any tool of the field can open.
 *
 * A safetensors file is eight bytes (length of the header, little endian), a
 * JSON header and raw little-endian data:
 *
 *     {"__metadata__":{"format":"pt"},
 *      "wte":{"dtype":"F32","shape":[256,64],"data_offsets":[0,65536]}, ...}
 *
 * Reading is strict, and everything is checked before anything is allocated
 * for it: the header fits in the file and in the cap, JSON without duplicate
 * keys nested at most three deep, names of 1 to 512 bytes without control
 * characters, at most a million tensors of at most eight dims, a known type,
 * shape x type equal to the offsets, and the tensors cover the data without
 * overlap, hole or rest.  No product or sum can overflow.  Data is read with
 * pread, never mapped: a file cut short later is an error, not a SIGBUS.
 * Types that skein does not compute with (I8, BOOL, ...) are accepted as bytes.
 *
 *     sk_st st;
 *     SK_TRY(sk_st_open(&arena, "model.safetensors", &st));
 *     const sk_st_tensor *t = sk_st_find(&st, "wte");
 *     sk_status status = sk_st_read(&st, t, 0, t->end - t->begin, buffer);
 *     sk_st_close(&st);
 *
 * Writing is streamed: declare all tensors, then give their bytes in that
 * order, cut as you like.  Every 4 MiB of the file get a CRC-32C on the way.
 * The file is new (O_EXCL), its blocks are reserved before the first byte is
 * written so that a full disk is known early, and sk_st_finish() syncs it. */
#ifndef SK_TENSOR_SAFETENSORS_H
#define SK_TENSOR_SAFETENSORS_H

#include "base/arena.h"
#include "base/status.h"
#include "tensor/dtype.h"

#include <sys/types.h>

enum {
    SK_ST_DIM = 8,
    SK_ST_NAME = 512,              /* bytes of a tensor's name */
    SK_ST_TENSORS = 1000000,       /* in one file */
    SK_ST_HEADER = 16 << 20,       /* bytes of header, unless the caller allows more */
    SK_ST_HEADER_MOST = 100000000, /* the format's own limit */
    SK_ST_CHUNK = 4 << 20,         /* bytes under one CRC */
};

typedef struct sk_st_tensor {
    const char *name;
    sk_dtype type;     /* SK_N_DTYPES: one that skein does not compute with */
    const char *dtype; /* as the file spells it: "F32" */
    int n;
    int64_t size[SK_ST_DIM];
    int64_t begin, end; /* bytes, counted from the start of the data */
} sk_st_tensor;

typedef struct sk_st_pair {
    const char *key, *value;
} sk_st_pair;

typedef struct sk_st {
    const char *where; /* for messages */
    int fd;            /* -1: none, sk_st_parse() made this */
    int64_t data;      /* where the data starts in the file */
    int64_t bytes;     /* of data */
    int n, n_meta;
    sk_st_tensor *tensor; /* in file order */
    sk_st_pair *meta;
    const sk_st_tensor **by_name;
} sk_st;

/* *out is set only on success.  A path is followed through symbolic links, a name below an open
 * directory is not.  `header_cap` 0 is SK_ST_HEADER. */
sk_status sk_st_open(sk_arena *a, const char *path, sk_st *out);
sk_status sk_st_open_at(sk_arena *a, int dir, const char *name, const char *where,
                        int64_t header_cap, sk_st *out);
void sk_st_close(sk_st *st);
/* The header alone, of a file with `bytes` bytes of data. */
sk_status sk_st_parse(sk_arena *a, const char *where, const char *header, size_t n, int64_t bytes,
                      sk_st *out);
const sk_st_tensor *sk_st_find(const sk_st *st, const char *name); /* NULL: not there */
/* Bytes [at, at + n) of a tensor. */
sk_status sk_st_read(const sk_st *st, const sk_st_tensor *t, int64_t at, int64_t n, void *to);

typedef struct sk_st_writer {
    const char *where;
    const char *name;
    int dir, fd;
    int64_t at, bytes; /* written so far; of the whole file */
    int64_t data;      /* where the data starts in the file */
    uint32_t *crc;     /* one per SK_ST_CHUNK bytes of the file, header included */
    int64_t n_crc;
} sk_st_writer;

/* Create `name` below `dir` with permissions `mode` and write the header.  The caller has set
 * name, type, n and size of each tensor; begin, end and dtype are filled in here. */
sk_status sk_st_create(sk_arena *a, int dir, const char *name, mode_t mode, sk_st_tensor *t, int n,
                       const sk_st_pair *meta, int n_meta, sk_st_writer *out);
sk_status sk_st_write(sk_st_writer *w, const void *data, size_t n);
/* All declared bytes must have come.  Syncs and closes; if that fails the file is removed. */
sk_status sk_st_finish(sk_st_writer *w);
void sk_st_drop(sk_st_writer *w); /* close and remove an unfinished file */

#endif
