/* folder.h - directories that appear at once, complete and synced.
 *
 * Write into a temporary directory, sync it, sk_folder_publish() it.  All names
 * are single words below a directory that is open, and no link is followed. */
#ifndef SK_TRAIN_FOLDER_H
#define SK_TRAIN_FOLDER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A new file: written, synced, closed; removed if any of it fails. */
sk_status sk_folder_write(int dir, const char *name, mode_t mode, const char *text, size_t n);
/* Rename `tmp` to `final` and sync the parent.  A directory that is already there is swapped:
 * then *old is true and `tmp` is now the name of the old one. */
sk_status sk_folder_publish(int parent, const char *tmp, const char *final, bool *old);
/* Remove a directory of plain files.  Silent: it runs while another error is being reported.
 */
void sk_folder_sweep(int parent, const char *name);
uint64_t sk_folder_nonce(void);

#endif
