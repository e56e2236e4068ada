/* checkpoint_save.c - beginning a checkpoint, and the files of one rank. */
#include "train/checkpoint_dir.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static sk_status preflight(const sk_ckpt_dir *h, int64_t bytes)
{
    struct statvfs v;
    if (!bytes) return SK_OK;
    if (fstatvfs(h->fd, &v)) return sk_fail(SK_EIO, "%s: %s", h->dir, strerror(errno));
    double free_bytes = (double)v.f_bavail * (double)v.f_frsize, need = 1.1 * (double)bytes;
    if (free_bytes < need)
        return sk_fail(SK_EIO,
                       "%s: %.0f bytes free, a checkpoint needs %.0f: free some space or save less",
                       h->dir, free_bytes, need);
    return SK_OK;
}

sk_status sk_ckpt_begin(sk_ckpt_dir *h, int64_t step, int64_t bytes, char name[SK_CKPT_NAME])
{
    sk_assert(step >= 0 && step <= SK_CKPT_STEPS);
    SK_TRY(preflight(h, bytes));
    snprintf(name, SK_CKPT_NAME, "tmp-%010" PRId64 "-g%" PRId64 "-%016" PRIx64, step, h->generation,
             sk_folder_nonce());
    if (mkdirat(h->fd, name, 0777))
        return sk_fail(SK_EIO, "%s/%s: %s", h->dir, name, strerror(errno));
    return SK_OK;
}

void sk_ckpt_abandon(sk_ckpt_dir *h, const char *name)
{
    int64_t step, generation;
    if (sk_ckpt_tmp_name(name, &step, &generation)) sk_folder_sweep(h->fd, name);
}

/* One shard in the making: what goes in, and the share of the manifest about it. */
typedef struct shard {
    sk_arena *arena;
    int dir, rank;
    int64_t step, generation;
    sk_ckpt *about;
    sk_ckpt_report *report;
} shard;

/* Boxes that this rank writes, as tensors of a file and as boxes of the manifest. */
static int collect(shard *s, const sk_tensor_shard *box, int n, sk_st_tensor *t,
                   const sk_tensor_shard **from)
{
    int k = 0;
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        const sk_tensor_shard *b = &box[i];
        sk_assert(b->n <= SK_SHARD_DIM && sk_manifest_count(b->size, b->n, &count));
        if (!b->mine || !count) continue;
        sk_ckpt_tensor *about = sk_push(s->arena, &s->about->tensors);
        *about = (sk_ckpt_tensor){.name = b->name, .type = b->type, .n = b->n};
        sk_ckpt_box *place = sk_push(s->arena, &about->boxes);
        place->file = s->about->files.n;
        for (int d = 0; d < b->n; d++) {
            about->full[d] = b->full[d];
            place->at[d] = b->at[d];
            place->size[d] = t[k].size[d] = b->size[d];
        }
        t[k].name = sk_manifest_key(s->arena, about, place);
        t[k].type = b->type;
        t[k].n = b->n;
        from[k++] = b;
    }
    return k;
}

/* Blocks of 8 bits are saved as the f32 numbers that they are: any layout reads these, and the same
 * blocks have the same codes again. */
static sk_status write_blocks(sk_st_writer *w, const sk_tensor_shard *b)
{
    float x[4096];
    int64_t n = sk_shard_count(b), m;
    for (int64_t i = 0; i < n; i += m) {
        m = n - i < 4096 ? n - i : 4096;
        sk_shard_read(b, i, x, m);
        SK_TRY(sk_st_write(w, x, (size_t)m * sizeof *x));
    }
    return SK_OK;
}

static sk_status write_data(sk_st_writer *w, const sk_st_tensor *t, const sk_tensor_shard **from,
                            int n)
{
    for (int i = 0; i < n; i++)
        if (from[i]->q8) SK_TRY(write_blocks(w, from[i]));
        else SK_TRY(sk_st_write(w, from[i]->data, (size_t)(t[i].end - t[i].begin)));
    return SK_OK;
}

static sk_status write_shard(shard *s, char kind, const sk_tensor_shard *box, int n)
{
    sk_arena *a = s->arena;
    sk_st_tensor *t = sk_many(a, sk_st_tensor, n);
    const sk_tensor_shard **from = sk_many(a, const sk_tensor_shard *, n);
    int first = s->about->tensors.n, k = collect(s, box, n, t, from);
    if (!k) return SK_OK;
    sk_st_pair meta[] = {{"format", "skein"},
                         {"skein_format", sk_print(a, "%d.%d", SK_CKPT_MAJOR, SK_CKPT_MINOR)},
                         {"step", sk_print(a, "%" PRId64, s->step)},
                         {"generation", sk_print(a, "%" PRId64, s->generation)},
                         {"writer", sk_print(a, "%d", s->rank)}};
    char *name = sk_print(a, "%c-%05d.safetensors", kind, s->rank);
    sk_st_writer w;
    SK_TRY(sk_st_create(a, s->dir, name, 0666, t, k, meta, 5, &w));
    sk_status status = write_data(&w, t, from, k);
    if (status) sk_st_drop(&w);
    else status = sk_st_finish(&w);
    if (status) return sk_trail(status, SK_HERE);
    for (int i = 0; i < k; i++)
        s->about->tensors.v[first + i].boxes.v[0].begin = w.data + t[i].begin;
    *(sk_ckpt_file *)sk_push(a, &s->about->files) =
        (sk_ckpt_file){.name = name, .bytes = w.bytes, .n_crc = w.n_crc, .crc = w.crc};
    s->report->bytes += w.bytes;
    s->report->n_tensors += k;
    return SK_OK;
}

void sk_ckpt_side_name(char out[32], int rank) { snprintf(out, 32, "r-%05d.json", rank); }

static sk_status write_share(shard *s, const sk_ckpt_share *share)
{
    char side[32];
    SK_TRY(write_shard(s, 'm', share->model, share->n_model));
    SK_TRY(write_shard(s, 'o', share->state, share->n_state));
    s->about->state.step = s->step;
    s->about->state.generation = s->generation;
    char *text = sk_manifest_print(s->arena, s->about);
    sk_ckpt_side_name(side, s->rank);
    SK_TRY(sk_folder_write(s->dir, side, 0666, text, strlen(text)));
    return SK_OK;
}

sk_status sk_ckpt_write_rank(const char *dir, const char *name, int rank,
                             const sk_ckpt_share *share, sk_ckpt_report *report)
{
    sk_arena a = {0};
    sk_ckpt about = {0};
    *report = (sk_ckpt_report){0};
    shard s = {.arena = &a, .rank = rank, .about = &about, .report = report};
    sk_assert(rank >= 0 && rank < SK_CKPT_RANKS && sk_ckpt_tmp_name(name, &s.step, &s.generation));
    sk_status status = sk_strict_dir(sk_print(&a, "%s/%s", dir, name), &s.dir);
    if (!status) {
        status = write_share(&s, share);
        for (int i = 0; status && i < about.files.n; i++) unlinkat(s.dir, about.files.v[i].name, 0);
        close(s.dir);
    } else status = SK_EIO; /* nobody's data is wrong: the directory was taken away */
    sk_arena_end(&a);
    report->status = (int32_t)status;
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
