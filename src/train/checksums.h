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
 * told good from damaged, and is called so. */
#ifndef SK_TRAIN_CHECKSUMS_H
#define SK_TRAIN_CHECKSUMS_H

#include "train/manifest.h"

#define SK_CHECKSUMS_FILE "checksums.json"

/* List every plain file of `dir`, a directory in the making.  known: sums that the writer has made
 * of what it wrote; other files are read. */
sk_status sk_checksums_write(int dir, const sk_ckpt_file *known, int n_known);
/* Read every file that is listed and hold it to its sums; `only`: just that one, NULL all.  *good
 * is whether each tensor file of the directory (or `only`) is listed: false says that nothing is
 * known of it.  Damage is SK_EDATA. */
sk_status sk_checksums_verify(const char *dir, const char *only, bool *good);
/* May this directory be replaced?  Yes if nothing is there, if it is empty, or if its sums list
 * exactly the files that are in it: names, sizes, and the bytes of small ones.  Else SK_ECREATE
 * that names it: somebody's own files are never removed. */
sk_status sk_checksums_replaceable(const char *dir);

#endif
