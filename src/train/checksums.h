/* checksums.h - checksums.json, beside the files of a model directory.
 *
 *     {"format":"skein-checksums","major":1,
 *     "files":[
 *     {"name":"config.json","bytes":393,"crc32c":"9a3f01c2"},
 *     {"name":"model.safetensors","bytes":7340096,"crc32c":"8d2c01e3f00d5eed"}],
 *     "check":"crc32c:1c291ca3"}
 *
 * Entries and the last line are those of a manifest (manifest.h): eight hex digits for every 4 MiB
 * of a file, and the sum of all bytes before the last line.  Other programs leave the file alone.
 * Who changes a file of the directory on purpose removes checksums.json: what has no sums cannot be
 * told good from damaged, and is called so.
 *
 * Whoever loads a model directory checks it: sk_hf_config() and sk_companions_read() the texts,
 * sk_hf_check() the tensor files.  Ranks of a host share the chunks of 4 MiB among them, so that
 * each byte is read once more on every host. */
#ifndef SK_TRAIN_CHECKSUMS_H
#define SK_TRAIN_CHECKSUMS_H

#include "train/manifest.h"

#define SK_CHECKSUMS_FILE "checksums.json"

/* List every plain file of `dir`, a directory in the making.  known: sums that the writer has made
 * of what it wrote; other files are read. */
sk_status sk_checksums_write(int dir, const sk_ckpt_file *known, int n_known);

typedef struct sk_chunk_share { /* of the chunks of a file: part, part + of, part + 2 of, ... */
    int part, of;
} sk_chunk_share;
extern const sk_chunk_share sk_all_chunks;

/* Hold files that are listed to their sums: all but the tensor files, which are small, or the
 * tensor files (*.safetensors).  A directory without checksums.json, and files that it does not
 * list, pass.  Damage, of checksums.json too, is SK_EDATA. */
sk_status sk_checksums_check_texts(const char *dir);
sk_status sk_checksums_check_tensors(const char *dir, sk_chunk_share share);
/* Both; `only`: just that file, NULL all.  *good is whether each tensor file of the directory (or
 * `only`) is listed: false says that nothing is known of it. */
sk_status sk_checksums_verify(const char *dir, const char *only, bool *good);
/* Files that are listed are there, in the sizes of the list; their bytes are not read. */
sk_status sk_checksums_check_sizes(const char *dir);
/* May this directory be replaced?  Yes if nothing is there, if it is empty, or if its sums list
 * exactly the files that are in it: names, sizes, and the bytes of small ones.  Else SK_ECREATE
 * that names it: somebody's own files are never removed. */
sk_status sk_checksums_replaceable(const char *dir);

#endif
