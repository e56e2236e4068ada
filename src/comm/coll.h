/* coll.h - a collective algorithm: one file in parts/coll, a list of steps for each member.
 *
 * An algorithm says, for one member of n, what it sends, receives and adds, in
 * rounds.  The same list is proved (comm/prove.h: on paper, all members), counted
 * and priced (its closed form is tested against the list), drawn, and played on
 * any wire (comm/play.h).  Nothing in a list depends on data, sizes or time.
 *
 * A list moves chunks.  What an operand is made of:
 *
 *     SK_SRC   what the caller gave; never written
 *     SK_DST   what the caller gets
 *     SK_TMP   scratch, tmp_cells of them, each with room for the largest chunk
 *
 *     kind             chunks             SRC cells        DST cells
 *     all-reduce       `cells`, chosen    all              all (holds a copy of SRC at the start)
 *                      by the algorithm
 *     reduce-scatter   n, one a member    all              [0]: mine
 *     all-gather       n                  [0]: mine        all
 *     broadcast        `cells`            all, on the root all (on the root: holds SRC)
 *     reduce           `cells`            all              all, on the root
 *     gather           n                  [0]: mine        all, on the root
 *     scatter          n                  all, on the root [0]: mine
 *     all-to-all       n: chunk j of SRC is for member j; chunk i of DST came from member i
 *
 * A step works on `n` cells in a row, of chunks `chunk`, `chunk` + 1, ... (that is
 * what gives cells of TMP their size; for all-to-all every chunk has one size).
 * Steps of a member run in the order of the list, except that all sends and
 * receives of one round are under way together: in one round nothing may write
 * what the same round sends.  The k-th send from a to b meets the k-th receive at
 * b from a, and must have its chunk and n.
 *
 * Sums: a step adds two operands, or with SK_STEP_TREE any number in the order of
 * the tree (comm.h).  a + b has the bits of b + a, so what matters is only which
 * partial sums meet.  SK_ORDER_TREE is a promise, proved for n up to 33: the
 * result is that of the tree.  Only such algorithms are chosen by themselves;
 * the others must be asked for. */
#ifndef SK_COMM_COLL_H
#define SK_COMM_COLL_H

#include "comm/comm.h"

enum { SK_COLL_AXES = 4 };

typedef enum sk_space { SK_SRC, SK_DST, SK_TMP } sk_space;
typedef struct sk_cell {
    sk_space space;
    int at;
} sk_cell;

typedef enum sk_step_act {
    SK_STEP_SEND,     /* from, to peer */
    SK_STEP_RECV,     /* into, from peer */
    SK_STEP_RECV_SUM, /* into = with + what peer sent */
    SK_STEP_COPY,     /* into = from */
    SK_STEP_SUM,      /* into = from + with */
    SK_STEP_TREE,     /* into = the sum of k operands of one chunk: cells from, from + 1, ...; but
                         number `own` is `with` and its cell is passed over.  n is 1 */
    SK_N_STEP_ACTS
} sk_step_act;

typedef struct sk_step {
    sk_step_act act;
    int round; /* never falls along the list */
    int peer;  /* a member */
    sk_cell into, from, with;
    int n, chunk;
    int k, own; /* SK_STEP_TREE */
} sk_step;

typedef struct sk_coll_ask { /* what a list is asked for */
    sk_coll_kind kind;
    int n, me, root;
    int parts;              /* pieces of a pipeline; 0: the algorithm's usual number */
    int axes[SK_COLL_AXES]; /* n as a product, slowest first: hosts, ranks of a host; for algorithms
                             */
    int n_axes;             /* that go by axes.  0: the algorithm finds its own */
    const double *rate;     /* [n * n] bytes per second from i to j, 0: no link; NULL: all alike */
} sk_coll_ask;

typedef struct sk_steps { /* the list of one member */
    sk_arena *arena;
    sk_coll_ask ask;
    int cells;     /* chunks; where the kind says n it is n */
    int tmp_cells; /* most cells of SK_TMP used, plus one */
    int round;     /* in which steps are being written */
    struct {
        sk_step *v;
        int n, cap;
    } list;
} sk_steps;

/* What a list costs, for the member that has most: price = rounds * alpha + sent * S * beta
 * + summed * S * gamma, where S is the whole vector (all chunks). */
typedef struct sk_coll_cost {
    double rounds; /* messages one after the other, on the longest way through all members */
    double sent;   /* share of S that leaves the member that sends most */
    double summed; /* share of S that is added by the member that adds most */
} sk_coll_cost;

typedef enum sk_order { SK_ORDER_TREE, SK_ORDER_OWN } sk_order;

typedef struct sk_coll {
    const char *name, *doc; /* doc: one line, with the paper */
    const char *cost;       /* the closed form in letters: "2(n-1) a + 2S(n-1)/n b" */
    unsigned kinds;         /* 1 << kind */
    sk_order order;
    bool (*can)(const sk_coll_ask *a); /* NULL: every n */
    void (*build)(sk_steps *s);        /* of member s->ask.me; NULL: native */
    sk_coll_cost (*price)(const sk_coll_ask *a);
    bool native; /* not played: done directly in the heaps (shm), or by a library (mpi) */
    bool packs;  /* messages are index-value streams where that is shorter (sparse) */
    bool adasum; /* for SK_ADASUM, and only for it */
} sk_coll;

extern const sk_coll *const sk_coll_parts[]; /* in the order of names, NULL at the end */
int sk_coll_find(const char *name);          /* index, or -1 */
bool sk_coll_can(const sk_coll *c, const sk_coll_ask *a);

/* --- writing lists (comm/steps.c) --- */

void sk_steps_build(const sk_coll *c, const sk_coll_ask *a, sk_arena *arena, sk_steps *out);

void sk_steps_next(sk_steps *s); /* the next round */
void sk_steps_send(sk_steps *s, int peer, sk_cell from, int chunk, int n);
void sk_steps_recv(sk_steps *s, int peer, sk_cell into, int chunk, int n);
void sk_steps_recv_sum(sk_steps *s, int peer, sk_cell into, sk_cell with, int chunk, int n);
void sk_steps_copy(sk_steps *s, sk_cell into, sk_cell from, int chunk, int n);
void sk_steps_sum(sk_steps *s, sk_cell into, sk_cell from, sk_cell with, int chunk, int n);
void sk_steps_tree(sk_steps *s, sk_cell into, sk_cell from, int k, sk_cell own_is, int own,
                   int chunk);
static inline sk_cell sk_src(int at) { return (sk_cell){SK_SRC, at}; }
static inline sk_cell sk_dst(int at) { return (sk_cell){SK_DST, at}; }
static inline sk_cell sk_tmp(int at) { return (sk_cell){SK_TMP, at}; }

#endif
