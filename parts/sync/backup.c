/* backup.c - backup workers (Chen et al. 2016): of N ranks, the first N - B gradients make a step.
 */
#include "program/sync.h"

const sk_sync sk_sync_backup = {
    .name = "backup",
    .doc = "backup workers: a step commits with the first N-B gradients, and drops the last B",
    .kind = SK_SYNC_BACKUP,
    .usual = 1,
    .alias = {{"straggler stragglers backup_workers", "backup:1"}},
};
