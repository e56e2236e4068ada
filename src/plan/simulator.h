/* simulator.h - simulating a training step of all ranks, from their programs.
 *
 * Instructions mean what they mean for verify and run.  START announces a collective and goes on;
 * WAIT ends when all members have announced it and the bytes have moved; SEND goes on; RECV ends
 * when the message has arrived; SENT ends when the receiver has taken the first `sent` messages.
 * The machine says how long each instruction takes; a collective is priced by the algorithm that
 * the compiler chose for it, if the machine says `chosen`.  A group moves one call at a time;
 * different groups, and messages, do not slow each other down.
 *
 * The step of a rank is busy + exposed + bubble: its instructions; bytes under way that it waits
 * for; waiting for other ranks to come.  exposed_by says along which axis the bytes moved.  On a
 * machine without overlap bytes move only while a rank waits for them.
 *
 * Of ranks whose steps are equal by symmetry one is simulated (rank_classes.h), so the cost does
 * not depend on the number of ranks.  Bytes are counted by closed forms: their sum over all ranks
 * is exact, whether by class or rank by rank. */
#ifndef SK_PLAN_SIMULATOR_H
#define SK_PLAN_SIMULATOR_H

#include "program/program.h"
#include "plan/call_times.h"
#include "plan/machine.h"

enum { SK_SIMULATE_EACH = 64 }; /* commands simulate up to so many ranks one by one */

typedef struct sk_simulate_in {
    const sk_machine *machine;
    const sk_program *const *programs; /* by shape; those of one layout */
    const int *shape_of;               /* by rank; NULL: programs are by rank */
    double *const *seconds; /* by shape: what instructions take; NULL, also of one: price them */
    const sk_call_times *calls; /* what calls in the heaps take; NULL: price them */
    bool by_class;              /* simulate one rank of each class */
    bool trace;                 /* keep the times of every instruction */
} sk_simulate_in;

/* Exposed time by axis of the mesh, which messages have too, and behind these: */
enum {
    SK_EXPOSED_WORLD = SK_MAX_AXES, /* calls of all ranks */
    SK_EXPOSED_MEMORY,              /* copies between memories, updates of the background worker */
    SK_N_EXPOSED
};

typedef struct sk_simulated_rank { /* a rank that was simulated */
    const sk_program *program;     /* its own, or that of its shape */
    int rank, ranks, stage;        /* ranks: how many it stands for */
    double busy, exposed, bubble;
    double exposed_by[SK_N_EXPOSED];
    double copied, uncovered; /* copies between memories, and how long the rank waited for them */
    double flops;
    int64_t wire;   /* bytes that leave it */
    double *times;  /* [2 * n_train]: start and end of each instruction; NULL without trace */
    double *moving; /* of WAIT and RECV: when the bytes moved */
} sk_simulated_rank;

typedef struct sk_simulation {
    double seconds;               /* of the step */
    double busy, exposed, bubble; /* mean over all ranks */
    double exposed_by[SK_N_EXPOSED];
    double copied, uncovered;
    double flops; /* of all ranks */
    int64_t wire; /* of all ranks */
    int64_t wire_axis[SK_MAX_AXES], wire_world, wire_near, wire_sends;
    int n;
    sk_simulated_rank *v;
    int *at; /* by rank: its place in v */
} sk_simulation;

/* One program per shape: all that sk_simulate needs, for any number of ranks. */
sk_status sk_simulate_compile(sk_arena *a, const sk_graph *g, const sk_layout *l,
                              const sk_compile_opts *o, const sk_program *const **programs,
                              int **shape_of);
/* The program of rank 0 among them, alone. */
sk_status sk_simulate_compile_first(sk_arena *a, const sk_graph *g, const sk_layout *l,
                                    const sk_compile_opts *o, const sk_program **program);
/* "tp", "world", "memory"; NULL: of an axis that is not there, or has one rank. */
const char *sk_exposed_name(const sk_mesh *m, int i);
sk_status sk_simulate(sk_arena *a, const sk_simulate_in *in, sk_simulation *out);

#endif
