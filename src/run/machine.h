/* machine.h - what a machine costs, as a dozen numbers: for running programs on paper.
 *
 * A rank computes at `flops` and reads and writes its memory at `memory_rate`;
 * an instruction takes the longer of the two, and `overhead` on top.  Ranks r
 * and q sit on one host when r / ranks_per_host is the same; a message of S bytes
 * costs alpha + S * beta on the link between them.  Collectives are priced by
 * the usual closed forms for n ranks, k hosts with g of them each:
 *
 *     ring       2(n-1) alpha + 2S(n-1)/n beta         all-reduce; the others half of it
 *     tree       2(log g alpha_in + log k alpha_out) + 2S beta / 0.92
 *     two-level  scatter inside, all-reduce S/g between, gather inside
 *
 * and the cheapest counts, as libraries choose it; `collectives: ring` takes the
 * ring always.  Where the bytes of a link depend on their number, or links share
 * a switch, the forms are too kind.
 *
 * A machine is a name (`cpu`, `h100-8` ...: sk_machines), or a file:
 *
 *     like: h100-8              optional, first: the rest changes this one
 *     name: our cluster
 *     flops: 6e14               per second and rank; with per_thread: yes, of one thread
 *     per_thread: no
 *     memory_rate: 2.8e12       bytes per second and rank
 *     memory: 80e9              bytes that a rank may use; 0: not known
 *     ranks_per_host: 8
 *     alpha_inside: 4e-6        seconds; between two ranks of one host
 *     rate_inside: 370e9        bytes per second: 1 / beta
 *     alpha_between: 14e-6      and of two hosts
 *     rate_between: 48e9
 *     overhead: 2e-6            seconds an instruction takes to begin
 *     overlap: yes              bytes move while the rank computes; no: only while it waits
 *     collectives: best         or ring
 *
 * The machine `unit` is for counting: a block of the model costs 1 forward and 2
 * backward, everything else nothing, so that bubbles come out as fractions. */
#ifndef SK_RUN_MACHINE_H
#define SK_RUN_MACHINE_H

#include "comm/comm.h"

#include <stdbool.h>

typedef struct sk_link {
    double alpha, beta; /* seconds; seconds per byte */
} sk_link;

typedef struct sk_machine {
    char name[64];
    const char *doc; /* where the numbers come from */
    double flops, memory_rate;
    int64_t memory; /* bytes of a rank; 0: not known */
    bool per_thread;
    int ranks_per_host;
    sk_link inside, between;
    double overhead;
    bool overlap;
    bool ring; /* always */
    bool unit;
} sk_machine;

/* Whom a collective reaches. */
typedef struct sk_reach {
    int n, hosts, most; /* members; hosts they sit on; the most on one of them */
} sk_reach;

/* A built-in name, or a file. */
sk_status sk_machine_read(sk_arena *a, const char *what, sk_machine *out);
/* The built-in machines; one without a name ends the list. */
extern const sk_machine sk_machines[];

double sk_machine_work(const sk_machine *m, double flops, int64_t bytes, int threads);
double sk_machine_coll(const sk_machine *m, sk_coll_kind kind, int64_t bytes, sk_reach reach);
double sk_machine_send(const sk_machine *m, int64_t bytes, bool one_host);
sk_reach sk_machine_reach(const sk_machine *m, const int *ranks, int n); /* ranks ascending */

#endif
