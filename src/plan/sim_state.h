/* sim_state.h - the state of a simulation.  Private to plan/.
 *
 * Every rank, or every class of equal ranks, has a clock and a place in its program.  Here "rank"
 * means one of these, and sk_simulated_rank.ranks says how many real ones it stands for. */
#ifndef SK_PLAN_SIM_STATE_H
#define SK_PLAN_SIM_STATE_H

#include "plan/network.h"
#include "plan/simulator.h"

typedef struct sk_sim_call { /* one collective of a group */
    int announced;           /* members that have come to START */
    double ready;            /* when the last of them came */
    double begin, end;       /* when the bytes moved, on machines that overlap */
    double cost;
} sk_sim_call;

typedef struct sk_sim_group { /* a group, or all groups whose members are of the same classes */
    int group, members;       /* members: simulated ranks */
    int rank;                 /* a real one of them */
    int64_t places;           /* real ranks in all of these groups */
    sk_reach reach;
    const sk_links *links; /* of these members; NULL: those of a kind are alike */
    const int *ranks;      /* members; NULL without links */
    bool any_order;        /* of sums */
    double free;           /* when the newest complete call was over */
    double wire;           /* bytes that its members sent, in a step on average */
    struct {
        sk_sim_call *v;
        int n, cap;
    } calls; /* the k-th is complete when every member has announced its k-th */
} sk_sim_group;

typedef struct sk_sim_message {
    double sent, arrived, taken;
} sk_sim_message;

typedef struct sk_sim_channel { /* messages to one rank */
    sk_sim_message *v;
    int n, cap, taken, to;
    int more, mark; /* of laps (sim_laps.h): messages beyond those listed; n at the lap's begin */
} sk_sim_channel;

typedef struct sk_sim_laps sk_sim_laps;

typedef struct sk_sim_rank {
    const sk_program *p;
    const sk_machine *m; /* as its host is */
    double slow;         /* how many times as long its work takes */
    sk_simulated_rank *out;
    int rank, pc, end;
    int coord[SK_MAX_AXES];
    double now;
    double wire;        /* bytes that it sent, in a step on average */
    double host;        /* when its host has launched the kernels so far */
    int *group;         /* by group of the program: index in sk_sim.groups; -1: not a member */
    int *posted, *done; /* by group: calls announced and finished */
    struct {
        sk_sim_channel *v;
        int n, cap;
    } channels;
    const double *seconds; /* by instruction, measured; NULL: priced */
    double *prices; /* by instruction, of all ranks with this program and machine; below 0: not
                       yet known */
    double core;    /* seconds of a core that its calls on the host took */
    double between; /* seconds of its calls on links between hosts */
    double sum_begin, sum_end; /* of the newest sum of gradients that is not yet waited for */
    double updating;           /* when the newest update of the background worker is over */
    double copying;            /* when the newest copy between memories is over */
    double *copied;            /* by copy: when it began and was over */
    sk_sim_laps *laps;         /* NULL: its program lists all micro-batches */
    int micros;                /* then: to add to an instruction's, so that those of laps differ */
    int *charged; /* unit machine: [SK_N_WORKS * layer + work] -> 1 + micro last paid for */
} sk_sim_rank;

typedef struct sk_sim {
    sk_arena *arena;
    const sk_simulate_in *in;
    const sk_machine *m;
    const sk_layout *l;
    int n, n_ranks; /* simulated; real */
    int n_micro;    /* that are walked; 0: all */
    sk_sim_rank *w;
    int *at; /* by real rank: the simulated one */
    sk_sim_group *groups;
    int n_groups;
    sk_variants variants;
    double **prices; /* by shape and variant; they and what is known of all ranks outlive a step */
    sk_arena *lasting;
    const double *factors; /* by simulated rank: of its work in this step; NULL: 1 */
    sk_network network;
    bool early; /* a phase before the last of the step: without what runs once in a step */
    sk_simulation *out;
} sk_sim;

/* Which ranks are simulated, and what they meet (simulator.c). */
sk_status sk_sim_place(sk_arena *a, const sk_simulate_in *in, sk_simulation *out, sk_sim *k);
/* One step; its results are in k->arena. */
sk_status sk_sim_step(sk_sim *k);
/* sim_prices.c: seconds of the instruction at w->pc; of a collective in a group. */
double sk_sim_inst_cost(sk_sim_rank *w, const sk_inst *in);
double sk_sim_call_cost(const sk_sim *k, const sk_sim_group *c, const sk_program *p,
                        const sk_inst *in);
/* sim_execute.c: all ranks to the end of their programs. */
sk_status sk_sim_execute(sk_sim *k);

#endif
