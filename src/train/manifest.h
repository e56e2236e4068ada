/* manifest.h - what a checkpoint says about itself.
 *
 * MANIFEST.json is one JSON object.  Its first line names the format and its
 * major version, so that a newer one is refused by name; its last line is the
 * CRC-32C of all bytes before that line:
 *
 *     {"format":"skein-checkpoint","major":1,"minor":0,
 *     "state":{"step":100,"seed":"1337", ..., "hyper":{"arch":"gpt2", ...}},
 *     "files":[
 *     {"name":"m-00000.safetensors","bytes":7340096,"crc32c":"8d2c01e3f00d5eed"}],
 *     "tensors":[
 *     {"name":"wte","dtype":"f32","full":[256,64],"boxes":[[0,128,0,0,128,64], ...]}],
 *     "check":"crc32c:1c291ca3"}
 *
 * "crc32c" is eight hex digits per 4 MiB of the file.  A box is flat: index of
 * the file, byte of the file where its dense data starts, offsets, sizes.  Keys
 * that a reader does not know are skipped: a minor version only adds keys.
 *
 * While a checkpoint is being written every rank leaves the same text about its
 * own share in `r-00003.json`; the coordinator merges these.
 *
 * Reading checks all of it: sizes against overflow, boxes inside their tensor
 * and their file, and, for a whole manifest, that the boxes of each tensor
 * cover every element exactly once. */
#ifndef SK_TRAIN_MANIFEST_H
#define SK_TRAIN_MANIFEST_H

#include "base/file_io.h"
#include "base/strings.h"
#include "model/model.h"
#include "tensor/tensor_shard.h"

struct json_t;

enum { SK_CKPT_MAJOR = 1, SK_CKPT_MINOR = 0, SK_MANIFEST_BYTES = 1 << 28 /* at most */ };

#define SK_MANIFEST_FILE "MANIFEST.json"

/* The largest numbers that are written, and believed. */
#define SK_CKPT_STEPS       INT64_C(9999999999) /* ten digits: the name of a checkpoint */
#define SK_CKPT_GENERATIONS INT64_C(1000000000000000)
enum { SK_CKPT_RANKS = 100000 };

/* What a run must know to go on, besides the tensors.  Texts may be NULL when written and are
 * never NULL when read. */
typedef struct sk_ckpt_state {
    int64_t step, tokens;
    int64_t ranks, generation, time; /* filled in by the commit; time is in seconds since 1970 */
    uint64_t seed, program;          /* program: its hash */
    sk_hyper hyper;
    const char *config, *layout;
    const char *extra; /* the caller's own: loss scale, data digest, ... */
} sk_ckpt_state;

typedef struct sk_ckpt_file {
    const char *name;
    int64_t bytes, n_crc;
    uint32_t *crc; /* per SK_ST_CHUNK bytes */
} sk_ckpt_file;

typedef struct sk_ckpt_box {
    int file;
    int64_t begin; /* byte of the file */
    int64_t at[SK_SHARD_DIM], size[SK_SHARD_DIM];
} sk_ckpt_box;

typedef struct sk_ckpt_tensor {
    const char *name;
    sk_dtype type;
    int n;
    int64_t full[SK_SHARD_DIM];
    struct {
        sk_ckpt_box *v;
        int n, cap;
    } boxes;
} sk_ckpt_tensor;

typedef struct sk_ckpt {
    const char *path; /* the directory, for messages and for opening files */
    sk_ckpt_state state;
    struct {
        sk_ckpt_file *v;
        int n, cap;
    } files;
    struct {
        sk_ckpt_tensor *v; /* by name, once sk_manifest_sort() or reading has put them in order */
        int n, cap;
    } tensors;
} sk_ckpt;

char *sk_manifest_print(sk_arena *a, const sk_ckpt *c);
/* Texts and arrays go to the arena.  `whole`: tensors must be covered exactly once. */
sk_status sk_manifest_parse(sk_arena *a, const char *where, sk_text text, bool whole, sk_ckpt *out);
/* What other lists of files share (checksums.h): an entry, and the last line with the sum of the
 * rest.
 */
void sk_manifest_file_print(sk_out *o, const sk_ckpt_file *f, bool first);
sk_status sk_manifest_file_parse(sk_arena *a, const char *where, const struct json_t *j,
                                 sk_ckpt_file *f);
void sk_manifest_seal(sk_out *o);
sk_status sk_manifest_sealed(const char *where, sk_text text);
void sk_manifest_sort(sk_ckpt *c);
const sk_ckpt_tensor *sk_manifest_find(const sk_ckpt *c, const char *name);
/* Is every element of the logical tensor in exactly one box?  Reorders the boxes. */
bool sk_manifest_covered(sk_ckpt_tensor *t);
/* The key of a box in its file: "name@o0,o1:e0,e1" (offsets, then sizes), or the bare name when
 * the box is the whole tensor. */
char *sk_manifest_key(sk_arena *a, const sk_ckpt_tensor *t, const sk_ckpt_box *b);
/* Elements; false if it does not fit. */
bool sk_manifest_count(const int64_t *size, int n, int64_t *count);

#endif
