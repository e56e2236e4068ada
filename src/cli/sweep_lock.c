/* sweep_lock.c - DIR/LOCK: one sweep or swap at a time starts jobs in a directory.
 *
 * The file says who holds the lock: host, process and command.  Jobs inherit the lock by fork, so
 * it is free once all of them have ended, too.  If the holder is alive, a second one is refused,
 * after half a second.  If it was killed, its jobs end within moments, and the next one waits for
 * them. */
#include "base/clock.h"
#include "base/file_io.h"
#include "cli/sweep.h"
#include "tensor/strict.h"
#include "train/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { TICK_US = 20000, RECORD = 256 };
#define WAIT_S 5.0 /* ranks of a sweep that was killed are gone long before */
#define DIES_S 0.5 /* a process that was killed a moment ago still counts as alive */

static void host_name(char host[65])
{
    memset(host, 0, 65);
    gethostname(host, 64);
    if (!*host || strpbrk(host, " \n")) strcpy(host, "?");
}

/* "HOST PID COMMAND\n", filled up with blanks: written in place. */
static sk_status sign(int fd, const char *path, const char *command)
{
    char text[RECORD + 1], host[65];
    host_name(host);
    int n = snprintf(text, sizeof text, "%s %ld %s\n", host, (long)getpid(), command);
    memset(text + n, ' ', (size_t)(RECORD - n));
    if (pwrite(fd, text, RECORD, 0) == RECORD) return SK_OK;
    return sk_fail(SK_EIO, "%s: %s", path, strerror(errno));
}

/* The first bytes of a file, as many as there are. */
static void read_start(const char *path, char *to, size_t most)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, to, most);
    to[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
}

typedef struct holder {
    char host[65], command[33];
    long pid; /* 0: nobody has signed */
} holder;

static holder read_holder(const char *path)
{
    char text[RECORD + 1] = {0};
    holder h = {.pid = 0};
    read_start(path, text, RECORD);
    if (sscanf(text, "%64s %ld %32s", h.host, &h.pid, h.command) != 3 || h.pid < 1) h.pid = 0;
    return h;
}

/* It has ended, and its parent has not asked for its exit code yet. */
static bool is_zombie(long pid)
{
    char path[64], text[RECORD + 1];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_start(path, text, RECORD);
    const char *end = strrchr(text, ')'); /* of the program's name */
    return end && end[1] && end[2] == 'Z';
}

/* Of another host it is not known, and taken to be. */
static bool is_alive(const holder *h)
{
    char host[65];
    host_name(host);
    if (!h->pid) return false;
    if (strcmp(host, h->host) != 0) return true;
    return (!kill((pid_t)h->pid, 0) || errno == EPERM) && !is_zombie(h->pid);
}

static sk_status refuse(const char *dir, const holder *h)
{
    if (!h->pid)
        return sk_fail(SK_ECREATE,
                       "%s: another sweep runs jobs there; wait for it, or name another run=DIR",
                       dir);
    return sk_fail(SK_ECREATE,
                   "%s: another %s runs jobs there, process %ld on %s; wait for it, stop it, or "
                   "name another run=DIR",
                   dir, sk_strict_show(h->command).s, h->pid, sk_strict_show(h->host).s);
}

static sk_status wait_for_it(int fd, const char *path, const char *dir, FILE *progress)
{
    double began = sk_now();
    bool told = false;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return sk_fail(SK_EIO, "%s cannot be locked: %s", path, strerror(errno));
        holder h = read_holder(path);
        bool alive = is_alive(&h);
        if (sk_now() - began > (alive ? DIES_S : WAIT_S)) return refuse(dir, &h);
        usleep(TICK_US);
        if (alive) continue;
        if (!told)
            fprintf(progress, "%s: waiting for jobs of a %s that was killed\n", dir,
                    h.pid ? sk_strict_show(h.command).s : "sweep");
        fflush(progress);
        told = true;
    }
    return SK_OK;
}

sk_status sk_sweep_lock(sk_arena *a, const char *command, const char *dir, FILE *progress, int *fd)
{
    const char *path = sk_print(a, "%s/LOCK", dir), *run = sk_rundir_around(a, dir);
    if (run)
        return sk_fail(SK_ECREATE,
                       "%s: %s is the directory of a run, and jobs would lie among its files; name "
                       "another run=DIR",
                       dir, run);
    SK_TRY(sk_dir_make(dir));
    SK_TRY(sk_file_own(path, 0, fd));
    sk_status st = wait_for_it(*fd, path, dir, progress);
    if (!st) st = sign(*fd, path, command);
    if (st) close(*fd);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
