/* checkpoint_commit.c - merging the lists of all ranks into a manifest, and publishing it.
 *
 * The commit protocol is that of databases: shards, fsync; manifest, fsync; fsync of the temporary
 * directory; rename; fsync of the parent.  Leave out any of these and a power cut publishes a torn
 * checkpoint or forgets one that was reported as saved.  Reading is in restore.c. */
#include "train/checkpoint_dir.h"
#include "tensor/strict.h"
#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Put a rank's share into the whole: files are renumbered, tensors joined later. */
static sk_status join(sk_arena *a, sk_ckpt *all, const sk_ckpt *one)
{
    int first = all->files.n;
    for (int i = 0; i < one->files.n; i++)
        *(sk_ckpt_file *)sk_push(a, &all->files) = one->files.v[i];
    for (int i = 0; i < one->tensors.n; i++) {
        sk_ckpt_tensor *t = sk_push(a, &all->tensors);
        *t = one->tensors.v[i];
        for (int k = 0; k < t->boxes.n; k++) t->boxes.v[k].file += first;
    }
    return SK_OK;
}

static bool same_tensor(const sk_ckpt_tensor *x, const sk_ckpt_tensor *y)
{
    return x->type == y->type && x->n == y->n &&
           !memcmp(x->full, y->full, sizeof *x->full * (size_t)x->n);
}

/* Neighbours of one name become one tensor with all boxes; then each must be covered. */
static sk_status merge(sk_arena *a, sk_ckpt *c)
{
    int n = 0;
    sk_manifest_sort(c);
    for (int i = 0; i < c->tensors.n; i++) {
        sk_ckpt_tensor *t = &c->tensors.v[i], *last = n ? &c->tensors.v[n - 1] : NULL;
        if (!last || strcmp(last->name, t->name)) {
            c->tensors.v[n++] = *t;
            continue;
        }
        if (!same_tensor(last, t))
            return sk_fail(SK_EBUG, "checkpoint: ranks disagree about type or sizes of '%s'",
                           t->name);
        for (int k = 0; k < t->boxes.n; k++)
            *(sk_ckpt_box *)sk_push(a, &last->boxes) = t->boxes.v[k];
    }
    c->tensors.n = n;
    for (int i = 0; i < n; i++)
        if (!sk_manifest_covered(&c->tensors.v[i]))
            return sk_fail(
                SK_EBUG,
                "checkpoint: the %d shards that ranks own of '%s' do not cover it exactly "
                "once",
                c->tensors.v[i].boxes.n, c->tensors.v[i].name);
    return SK_OK;
}

static sk_status gather(sk_arena *a, int dir, int ranks, int64_t step, sk_ckpt *all)
{
    for (int r = 0; r < ranks; r++) {
        char side[32];
        sk_text text;
        sk_ckpt one = {0};
        sk_ckpt_side_name(side, r);
        SK_TRY(sk_strict_read(a, dir, side, side, SK_MANIFEST_BYTES, &text));
        SK_TRY(sk_manifest_parse(a, side, text, false, &one));
        if (one.state.step != step)
            return sk_fail(SK_EBUG, "checkpoint: rank %d wrote step %lld, not %lld", r,
                           (long long)one.state.step, (long long)step);
        SK_TRY(join(a, all, &one));
    }
    SK_TRY(merge(a, all));
    return SK_OK;
}

/* Is each file there with the size its writer reported? */
static sk_status check_files(int dir, const sk_ckpt *c)
{
    for (int i = 0; i < c->files.n; i++) {
        const sk_ckpt_file *f = &c->files.v[i];
        int fd = -1;
        int64_t size = 0;
        SK_TRY(sk_strict_open(dir, f->name, f->name, &fd, &size));
        close(fd);
        if (size != f->bytes)
            return sk_fail(SK_EDATA, "%s has %lld bytes, the manifest says %lld", f->name,
                           (long long)size, (long long)f->bytes);
    }
    return SK_OK;
}

/* Everything that must be true inside the temporary directory before it gets its name. */
static sk_status complete(sk_arena *a, int dir, int ranks, sk_ckpt *c)
{
    char side[32];
    sk_ckpt proof = {0}; /* what is published can be read */
    SK_TRY(gather(a, dir, ranks, c->state.step, c));
    SK_TRY(check_files(dir, c));
    char *text = sk_manifest_print(a, c);
    SK_TRY(sk_manifest_parse(a, "MANIFEST.json", (sk_text){text, strlen(text)}, true, &proof));
    SK_TRY(sk_folder_write(dir, "MANIFEST.json", 0666, text, strlen(text)));
    for (int r = 0; r < ranks; r++) {
        sk_ckpt_side_name(side, r);
        unlinkat(dir, side, 0);
    }
    if (fsync(dir))
        return sk_fail(SK_EIO, "checkpoint: fsync of the directory: %s", strerror(errno));
    return SK_OK;
}

static sk_status commit(sk_arena *a, sk_ckpt_dir *h, const char *name, int ranks, sk_ckpt *c)
{
    bool old = false; /* `name` is now an older checkpoint of the same step */
    char *final = sk_print(a, "step-%010" PRId64, c->state.step);
    int dir = openat(h->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) return sk_fail(SK_EIO, "%s/%s: %s", h->dir, name, strerror(errno));
    sk_status status = complete(a, dir, ranks, c);
    close(dir);
    if (!status) status = sk_folder_publish(h->fd, name, final, &old);
    if (status) {
        if (!old) sk_folder_sweep(h->fd, name); /* else the swap may not have reached the disk */
        return sk_trail(status, SK_HERE);
    }
    if (old)
        sk_ckpt_discard(h, name, c->state.step); /* the new one is safe; this is only tidying */
    sk_ckpt_remember(h, c->state.step);
    char *line = sk_print(a, "%s\n", final);
    sk_file_replace(sk_print(a, "%s/LATEST", h->dir), line, strlen(line)); /* a hint may fail */
    return SK_OK;
}

sk_status sk_ckpt_commit(sk_ckpt_dir *h, const char *name, int ranks, const sk_ckpt_state *state)
{
    sk_arena a = {0};
    sk_ckpt c = {.state = *state};
    int64_t step = -1, generation = -1;
    sk_assert(sk_ckpt_tmp_name(name, &step, &generation) && step == state->step);
    sk_assert(generation == h->generation && ranks > 0 && ranks <= SK_CKPT_RANKS);
    c.state.generation = h->generation;
    c.state.ranks = ranks;
    c.state.time = (int64_t)time(NULL);
    sk_status status = commit(&a, h, name, ranks, &c);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
