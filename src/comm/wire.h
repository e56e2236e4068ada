/* wire.h - bytes between ranks that share no memory.
 *
 * A wire moves messages: (from, to, tag), in order for equal tags.  It never
 * adds anything, so sums have the same bits on every wire.  Messages of any
 * length (a wire cuts them itself if it must).  Nothing moves unless somebody
 * calls: progress happens in test().  Calls come from one thread at a time.
 *
 * Tags: the low SK_WIRE_TAG_BITS bits tell apart what may be under way between two
 * ranks at once.  The bits above are a hash of what the message is for; a wire
 * compares as many of them as it can, so that messages of two programs that differ
 * never meet.
 *
 * A message that is longer than the receive that meets it is an error.  A request
 * belongs to the wire until test() says that it is over.
 *
 * `mpi` is a module (module/mpi.c), built once for every MPI that is found and
 * opened at run time: skein itself never links MPI. */
#ifndef SK_COMM_WIRE_H
#define SK_COMM_WIRE_H

#include "comm/comm.h"

enum { SK_WIRE_ABI = 2, SK_WIRE_REQS = 4096, SK_WIRE_TAG_BITS = 15 };

struct sk_native_call;
typedef int sk_req; /* a message under way: 0 .. SK_WIRE_REQS - 1; -1: none */

struct sk_wire {
    int abi;
    const char *name;    /* "openmpi", "mpich" */
    const char *library; /* the version as the library tells it */
    int rank, n_ranks;
    void *own;
    /* *r is -1, and nothing was sent or will be received, when all requests are in use: test()
     * others, then try again. */
    sk_status (*send)(sk_wire *w, int to, int64_t tag, const void *data, int64_t bytes, sk_req *r);
    sk_status (*recv)(sk_wire *w, int from, int64_t tag, void *data, int64_t most, sk_req *r);
    /* Over?  Then the request is gone and *bytes (if asked for) is what came. */
    sk_status (*test)(sk_wire *w, sk_req r, bool *done, int64_t *bytes);
    /* The library's own collective on all members of a group, blocking (coll/call.h says what is
     * asked for); NULL if it has none at all, SK_EUSAGE if it has none for this kind, reduction or
     * type. */
    sk_status (*native)(sk_wire *w, const struct sk_native_call *call);
    void (*abort)(sk_wire *w, int code); /* end the job, now, everywhere; does not return */
    void (*close)(sk_wire *w);           /* all ranks together */
};

/* What a module exports under the name sk_wire_module.  rank and n_ranks are what the library
 * says; the boot compares them with what the launcher said.  `fail` is the program's own
 * sk_fail_at, which a module uses for its error reports: it is linked with nothing of skein. */
typedef sk_status sk_wire_fail_fn(sk_status code, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
typedef sk_status sk_wire_open_fn(sk_wire_fail_fn *fail, sk_wire **out);
#define SK_WIRE_SYMBOL "sk_wire_module"

/* Opens the module skein_<name>.so: in $SKEIN_MODULES, beside the program, above it (tests in the
 * build tree), or where they are installed.  Once per process: MPI cannot begin twice. */
sk_status sk_wire_open(const char *name, sk_wire **out);
bool sk_wire_has(const char *name); /* is there such a module? */

#endif
