/* rendezvous.c - where the ranks of one host meet. */
#include "comm/rendezvous.h"
#include "base/clock.h"
#include "base/strings.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAGIC = 0x736b6431, PIECE = 32 << 10, MOST_FDS = 2 };

typedef struct hello {
    uint32_t magic; /* also the version */
    uint32_t bytes; /* of this struct */
    sk_hello hello;
} hello;

struct sk_rendezvous {
    sk_arena *arena;
    const char *name;
    const int *ranks;
    int n, me, n_ranks;
    int *fds; /* of each of the others; who is not the first has fds[0] only.  -1: not here */
    double began;
    sk_rendezvous_late *late; /* NULL: was called */
    void *ctx;
};

/* --- waiting --- */

/* Until fd is ready.  0: too late.  A deadline of days does not fit into poll. */
static int ready(int fd, short events, double until)
{
    for (;;) {
        double left = until - sk_now();
        int ms = left > 1000 ? 1000000 : left > 0 ? (int)(1e3 * left) + 1 : 0;
        int rc = poll(&(struct pollfd){.fd = fd, .events = events}, 1, ms);
        if (rc > 0) return 1;
        if (left <= 0 && (!rc || errno == EINTR)) return 0;
        if (rc < 0 && errno != EINTR) return 1; /* the next call tells */
    }
}

static int waited_s(const sk_rendezvous *d) { return (int)(sk_now() - d->began + 0.5); }

/* --- messages --- */

typedef struct parcel { /* one message: bytes, and descriptors with the first */
    struct msghdr head;
    struct iovec io;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MOST_FDS * sizeof(int))];
    } control;
} parcel;

static void wrap(parcel *p, void *data, size_t bytes, int n_fds)
{
    memset(p, 0, sizeof *p);
    p->io = (struct iovec){data, bytes};
    p->head.msg_iov = &p->io;
    p->head.msg_iovlen = 1;
    if (!n_fds) return;
    p->head.msg_control = &p->control;
    p->head.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
}

static sk_status broken(const sk_rendezvous *d, int i, const char *why)
{
    return sk_fail(SK_EPEER, "boot: rank %d lost rank %d at their meeting: %s", d->ranks[d->me],
                   d->ranks[i], why);
}

static sk_status too_late(const sk_rendezvous *d, int i)
{
    return sk_fail(SK_EPEER, "boot: rank %d of %d said nothing for %d s (rank %d waits for it)",
                   d->ranks[i], d->n_ranks, waited_s(d), d->ranks[d->me]);
}

static sk_status put(sk_rendezvous *d, int i, void *data, size_t bytes, const int *fds, int n_fds,
                     double until)
{
    parcel p;
    wrap(&p, data, bytes, n_fds);
    if (n_fds) {
        struct cmsghdr *c = CMSG_FIRSTHDR(&p.head);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
    }
    for (;;) {
        ssize_t n = sendmsg(d->fds[i], &p.head, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == (ssize_t)bytes) return SK_OK;
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            return broken(d, i, n < 0 ? strerror(errno) : "a message was cut");
        if (!ready(d->fds[i], POLLOUT, until)) return too_late(d, i);
    }
}

/* Descriptors that came.  A kernel that had no room for them says so with fewer. */
static int unpack(parcel *p, int *fds, int n_fds)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(&p->head);
    if (!n_fds || !c || c->cmsg_type != SCM_RIGHTS) return 0;
    int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(c), (size_t)(n < n_fds ? n : n_fds) * sizeof(int));
    return n;
}

static sk_status get(sk_rendezvous *d, int i, void *data, size_t bytes, int *fds, int n_fds,
                     double until)
{
    parcel p;
    ssize_t n = -1;
    wrap(&p, data, bytes, n_fds);
    while (n < 0) {
        if (!ready(d->fds[i], POLLIN, until)) return too_late(d, i);
        n = recvmsg(d->fds[i], &p.head, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return broken(d, i, strerror(errno));
    }
    if (!n && bytes) return broken(d, i, "it left; it prints the error report");
    if (n != (ssize_t)bytes || unpack(&p, fds, n_fds) != n_fds)
        return broken(d, i, "a message was cut");
    return SK_OK;
}

/* --- the address --- */

static socklen_t address(const char *name, struct sockaddr_un *to)
{
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(to->sun_path + 1, sizeof to->sun_path - 1, "%s", name); /* a leading 0: no file */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(to->sun_path + 1));
}

static bool same_user(int fd, long *uid)
{
    struct ucred c = {0};
    socklen_t n = sizeof c;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n)) return false;
    *uid = (long)c.uid;
    return c.uid == getuid();
}

/* --- the first --- */

static sk_status open_door(sk_rendezvous *d, int *door)
{
    struct sockaddr_un at;
    socklen_t n = address(d->name, &at);
    *door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*door >= 0 && !bind(*door, (struct sockaddr *)&at, n) && !listen(*door, d->n)) return SK_OK;
    int err = errno;
    if (*door >= 0) close(*door);
    if (err == EADDRINUSE)
        return sk_fail(SK_ECREATE,
                       "boot: another process of this machine is rank %d of a job with the same "
                       "name (%s) and waits for its ranks; give each job its own SKEIN_JOB",
                       d->ranks[0], d->name);
    return sk_fail(SK_EIO, "boot: no socket for the ranks of this host: %s", strerror(err));
}

/* "rank 2", "ranks 1, 3 and 20 more" */
static const char *missing(const sk_rendezvous *d)
{
    sk_out o = {.arena = d->arena};
    int n = 0;
    for (int i = 1; i < d->n; i++) {
        if (d->fds[i] >= 0) continue;
        if (n++ < 8) sk_out_add(&o, "%s%d", n > 1 ? ", " : "", d->ranks[i]);
    }
    if (n > 8) sk_out_add(&o, " and %d more", n - 8);
    return sk_print(d->arena, "%s %s", n > 1 ? "ranks" : "rank", o.s);
}

static sk_status nobody(const sk_rendezvous *d)
{
    return sk_fail(SK_EPEER,
                   "boot: %s of %d did not come within %d s; see what happened to it, and whether "
                   "it is on this machine, outside any other container, under this user",
                   missing(d), d->n_ranks, waited_s(d));
}

static sk_status welcome(sk_rendezvous *d, int fd, const hello *h, sk_hello *hellos)
{
    int i = 1;
    while (i < d->n && d->ranks[i] != h->hello.rank) i++;
    if (h->magic != MAGIC || h->bytes != sizeof *h || h->hello.n_ranks != d->n_ranks || i == d->n ||
        d->fds[i] >= 0) {
        close(fd);
        return sk_fail(SK_ECONF,
                       "boot: process %d came as rank %d of %d to a job of %d ranks (%s)%s; give "
                       "each job its own SKEIN_JOB, and use one program",
                       h->hello.pid, h->hello.rank, h->hello.n_ranks, d->n_ranks, d->name,
                       i < d->n && d->fds[i] >= 0 ? ", where that rank has come already" : "");
    }
    d->fds[i] = fd;
    hellos[i] = h->hello;
    return SK_OK;
}

static sk_status let_in(sk_rendezvous *d, int door, sk_hello *hellos, double until)
{
    hello h = {0};
    long uid;
    int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return SK_OK; /* it went away again */
    if (!same_user(fd, &uid)) {
        close(fd);
        return SK_OK;
    }
    if (!ready(fd, POLLIN, until) || recv(fd, &h, sizeof h, MSG_DONTWAIT) <= 0) {
        close(fd);
        return SK_OK;
    }
    return welcome(d, fd, &h, hellos);
}

/* Is it time to say who is missing? */
static void say_late(sk_rendezvous *d, const char *who)
{
    if (!d->late || sk_now() < d->began + SK_RENDEZVOUS_QUIET_S) return;
    d->late(d->ctx, who);
    d->late = NULL;
}

static sk_status await_all(sk_rendezvous *d, sk_hello *hellos, double until)
{
    int door = -1;
    sk_status st = d->n > 1 ? open_door(d, &door) : SK_OK;
    for (int left = d->n - 1; left && !st;) {
        double quiet = d->late ? d->began + SK_RENDEZVOUS_QUIET_S : until;
        if (!ready(door, POLLIN, quiet < until ? quiet : until)) {
            say_late(d, missing(d));
            if (sk_now() >= until) st = nobody(d);
        } else st = let_in(d, door, hellos, until);
        left = 0;
        for (int i = 1; i < d->n; i++) left += d->fds[i] < 0;
    }
    if (door >= 0) close(door);
    return st;
}

/* --- the others --- */

/* Not there yet: ECONNREFUSED.  Its queue is full: EAGAIN. */
static sk_status try_connect(sk_rendezvous *d, double until)
{
    struct sockaddr_un at;
    socklen_t n = address(d->name, &at);
    for (useconds_t nap = 500;; nap = nap < 20000 ? 2 * nap : nap) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0) return sk_fail(SK_EIO, "boot: no socket: %s", strerror(errno));
        struct timeval second = {.tv_sec = 1};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
        d->fds[0] = fd;
        if (!connect(fd, (struct sockaddr *)&at, n)) return SK_OK;
        int err = errno;
        close(fd);
        d->fds[0] = -1;
        if (err != ECONNREFUSED && err != EAGAIN && err != EINTR)
            return sk_fail(SK_EIO, "boot: the door of this host's ranks: %s", strerror(err));
        if (sk_now() > until)
            return sk_fail(SK_EPEER,
                           "boot: rank %d of %d did not come within %d s (rank %d waits for it); "
                           "see what happened to it, and whether it is on this machine",
                           d->ranks[0], d->n_ranks, waited_s(d), d->ranks[d->me]);
        say_late(d, sk_print(d->arena, "rank %d", d->ranks[0]));
        usleep(nap);
    }
}

static sk_status enter(sk_rendezvous *d, const sk_hello *mine, double until)
{
    hello h = {.magic = MAGIC, .bytes = sizeof h, .hello = *mine};
    long uid = -1;
    SK_TRY(try_connect(d, until));
    if (!same_user(d->fds[0], &uid))
        return sk_fail(SK_ECONF,
                       "boot: the door %s was opened by user %ld, this is user %ld; all ranks of "
                       "a host must be of one user",
                       d->name, uid, (long)getuid());
    return put(d, 0, &h, sizeof h, NULL, 0, until);
}

/* --- the whole --- */

sk_status sk_rendezvous_join(sk_arena *a, const char *name, const int *ranks, int n, int me,
                             sk_hello *hellos, double until, sk_rendezvous_late *late, void *ctx,
                             sk_rendezvous **out)
{
    sk_rendezvous *d = sk_new(a, sk_rendezvous);
    *d = (sk_rendezvous){.arena = a,
                         .name = sk_strdup(a, name),
                         .ranks = ranks,
                         .n = n,
                         .me = me,
                         .n_ranks = hellos[me].n_ranks,
                         .fds = sk_many(a, int, n),
                         .began = sk_now(),
                         .late = late,
                         .ctx = ctx};
    for (int i = 0; i < n; i++) d->fds[i] = -1;
    sk_status st = me ? enter(d, &hellos[me], until) : await_all(d, hellos, until);
    if (st) {
        sk_rendezvous_close(d);
        return sk_trail(st, SK_HERE);
    }
    *out = d;
    return SK_OK;
}

/* In pieces that fit into a socket's buffer; no bytes at all are one empty piece. */
sk_status sk_rendezvous_bcast(sk_rendezvous *d, void *data, size_t bytes, int *fds, int n_fds,
                              double until)
{
    size_t at = 0;
    d->began = sk_now();
    do {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        char *p = (char *)data + at;
        int with = at ? 0 : n_fds;
        if (d->me) SK_TRY(get(d, 0, p, n, fds, with, until));
        for (int i = 1; !d->me && i < d->n; i++) SK_TRY(put(d, i, p, n, fds, with, until));
        at += n;
    } while (at < bytes);
    return SK_OK;
}

void sk_rendezvous_close(sk_rendezvous *d)
{
    if (!d) return;
    for (int i = 0; i < d->n; i++)
        if (d->fds[i] >= 0) close(d->fds[i]);
    d->n = 0;
}
